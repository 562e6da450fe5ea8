"""Listed vehicles that nobody can rent, where looks at a station are far apart.

A station lists ``n = u + k`` vehicles: ``u`` are sound, ``k`` are broken. Riders take and bring sound vehicles as in
`unmet.mobility.supply.between`. Broken ones come at the rate ``breakage`` × vehicles brought, independently of that. At
the rate ``mended`` all broken vehicles of a station are repaired or fetched. So ``k`` is a hidden Markov chain over the
looks, and the likelihood of an interval is that of the move of ``u`` from one look to the other. Riders who are sure to
come and take nothing say that ``u`` is 0.

Vans move many vehicles at once. Such an interval says nothing about riders, and the van sees to the broken vehicles
with probability `VISIT`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from unmet.mobility.clock.bins import Integers
from unmet.mobility.supply.bridge import MOST, bridge, into_table, probability

__all__ = [
    "Breaking",
    "Bridged",
    "Looks",
    "TimeWithout",
    "bridge_looks",
    "find_pairs",
    "learn_breaking",
    "log_likelihood",
    "rider_transitions",
    "sound_moves",
    "states_ahead",
    "time_without",
]

Floats = NDArray[np.float64]

STATES = 4
"""Broken vehicles that are told apart, from none; more count as so many."""

VAN = 0.02
"""Probability that a van came in an interval in which fewer vehicles moved than vans usually do."""

VISIT = 0.7
"""Probability that a van that brings or takes vehicles sees to the broken ones."""

STRETCH = 500
"""Intervals that a sample has in one piece."""

_NUMBER = np.arange(STATES)
_IMPROBABLE = 1e-9  # probability of a move that the model does not know
_CENTRE, _SPREAD = np.array([logit(0.005), np.log(8e-4)]), np.array([1.5, 0.7])  # priors: logit, logarithm
_ADDED = np.subtract.outer(_NUMBER, _NUMBER).T  # from a number (rows) to another (columns)
_FACTORIAL = np.array([1.0, 1.0, 2.0, 6.0])


@dataclass(frozen=True)
class Breaking:
    """How vehicles come to be listed that nobody can rent, and for how long.

    Attributes
    ----------
    breakage : float
        Probability that a vehicle is broken when it is brought.
    mended : float
        Rate, per minute, at which a station's broken vehicles are repaired or fetched.
    gain : float
        Log-likelihood above that of a model in which no vehicle breaks.
    """

    breakage: float
    mended: float
    gain: float = 0.0


@dataclass(frozen=True)
class Looks:
    """Intervals between two looks, station after station, in order of time.

    Attributes
    ----------
    begins : array of bool
        Whether an interval does not follow the one before it.
    minutes : array
        Length of each interval.
    taken, brought : array
        Vehicles expected to be taken in it if there are always some, and to be brought.
    first, second : array of int
        Vehicles listed at both looks.
    van : array of bool
        Whether a van came.
    """

    begins: NDArray[np.bool_]
    minutes: Floats
    taken: Floats
    brought: Floats
    first: Integers
    second: Integers
    van: NDArray[np.bool_]

    def select(self, chosen: slice | NDArray[np.bool_] | Integers) -> Looks:
        """Keep some of the intervals."""
        return Looks(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def thin(self, most: int) -> Looks:
        """Keep about `most` intervals: stretches of `STRETCH`, evenly spread, each as if of a station of its own."""
        stretch = np.arange(len(self.minutes)) // STRETCH
        share = min(1.0, most / max(len(self.minutes), 1))
        chosen = np.diff(np.floor(np.arange(stretch[-1] + 2) * share)) > 0
        begins = self.begins | (np.arange(len(self.minutes)) % STRETCH == 0)
        return replace(self, begins=begins).select(chosen[stretch])


@dataclass(frozen=True)
class Bridged:
    """Moves of the sound vehicles, by the number broken at both looks, each of shape (intervals, STATES, STATES).

    Attributes
    ----------
    looks : Looks
        The intervals.
    probability : array
        Of the second look given the first.
    out, variance : array
        Mean and variance of the share of time without a sound vehicle.
    cancelled : array
        Expected pickups that cancelled out with returns.
    """

    looks: Looks
    probability: Floats
    out: Floats
    variance: Floats
    cancelled: Floats


def bridge_looks(looks: Looks) -> Bridged:
    """Find the moves of the sound vehicles of all intervals."""
    first, second, impossible = _sound_numbers(looks)
    sound, out, variance, cancelled = bridge(first, second, looks.taken, looks.brought)
    sound[impossible] = 0.0
    return Bridged(looks, sound, out, variance, cancelled)


def sound_moves(looks: Looks) -> Floats:
    """Return `Bridged.probability` alone, which takes less time."""
    first, second, impossible = _sound_numbers(looks)
    sound = probability(first, second, looks.taken, looks.brought)
    sound[impossible] = 0.0
    return sound


def _sound_numbers(looks: Looks) -> tuple[Integers, Integers, NDArray[np.bool_]]:
    """Sound vehicles at both looks by the number broken, and where these would be more than are listed."""
    listed, then = into_table(looks.first, looks.second)
    first, second = np.broadcast_arrays(listed[:, None, None] - _NUMBER[:, None], then[:, None, None] - _NUMBER)
    return np.maximum(first, 0), np.maximum(second, 0), (first < 0) | (second < 0)


def rider_transitions(looks: Looks, sound: Floats, breaking: Breaking) -> Floats:
    """Probability of the second look and of the number broken at it, given those at the first, if no van came.

    `sound` is `Bridged.probability`. Vehicles that are mended are fetched, and no longer listed, or repaired where they
    are: either is as likely.
    """
    come = (breaking.breakage * looks.brought)[:, None, None]
    arrivals = np.where(_ADDED >= 0, np.exp(-come) * come ** np.maximum(_ADDED, 0) / _FACTORIAL[np.abs(_ADDED)], 0.0)
    gone = -np.expm1(-breaking.mended * looks.minutes)[:, None] * (_NUMBER > 0)
    table: Floats = (1.0 - gone)[:, :, None] * arrivals * sound
    table[:, :, 0] += gone * 0.5 * (sound[:, :, 0] + sound[:, _NUMBER, _NUMBER])
    return table


def _transitions(looks: Looks, sound: Floats, breaking: Breaking) -> Floats:
    """Probability of the second look and of the number broken at it, given those at the first."""
    room = (looks.second[:, None] >= _NUMBER).astype(float)[:, None]
    seen = VISIT * (_NUMBER == 0) + (1 - VISIT) * np.eye(STATES)
    riders = np.where(looks.van, 0.0, 1 - VAN)[:, None, None]
    moved = np.where(looks.van, 1.0, VAN / (MOST + 1))[:, None, None]  # a van may leave any number
    return riders * rider_transitions(looks, sound, breaking) + moved * seen * room + _IMPROBABLE * room


def _start(looks: Looks, breaking: Breaking) -> Floats:
    """Distribution at the first look of an interval if nothing is known before it: breakages and mending in balance."""
    mean = breaking.breakage * looks.brought / np.maximum(looks.minutes, 1.0) / breaking.mended
    weight = np.minimum(mean, 2.0)[:, None] ** _NUMBER / _FACTORIAL
    weight = np.where(looks.first[:, None] >= _NUMBER, weight, 0.0)
    result: Floats = weight / weight.sum(axis=1, keepdims=True)
    return result


def _chain(table: Floats, start: Floats, begins: NDArray[np.bool_]) -> Floats:
    """Matrices that lead from the first look of each interval to that of the next, in blocks of equal length.

    Where a record begins, the matrix gives the likelihood of the record before it and the new distribution. Shape
    (blocks, length, STATES, STATES); the last block is filled with identities.
    """
    ahead = np.where(begins[1:, None, None], table[:-1].sum(axis=2)[:, :, None] * start[1:, None], table[:-1])
    length = max(int(np.sqrt(len(table))), 1)
    blocks = -(-len(ahead) // length)
    chain = np.broadcast_to(np.eye(STATES), (blocks * length, STATES, STATES)).copy()
    chain[: len(ahead)] = ahead
    return chain.reshape(blocks, length, STATES, STATES)


def _products(chain: Floats) -> tuple[Floats, Floats]:
    """The product of the matrices of each block, scaled to sum 1, and the logarithms of the scales."""
    product = np.broadcast_to(np.eye(STATES), (len(chain), STATES, STATES))
    scale = np.zeros(len(chain))
    for at in range(chain.shape[1]):
        product = product @ chain[:, at]
        total = product.sum(axis=(1, 2), keepdims=True)
        product = product / total
        scale += np.log(total[:, 0, 0])
    return product, scale


def _through(product: Floats, vector: Floats) -> tuple[Floats, float]:
    """The vector where each block begins, and behind the last; and the sum of the logarithms of its scales."""
    found, scale = [vector], 0.0
    for matrix in product:
        following = found[-1] @ matrix
        total = following.sum()
        found.append(following / total)
        scale += float(np.log(total))
    return np.array(found), scale


def _within(chain: Floats, vector: Floats) -> Floats:
    """The vectors within each block, from those where it begins: shape (blocks, length + 1, STATES), each of sum 1."""
    found = [vector]
    for at in range(chain.shape[1]):
        following = np.einsum("bi,bij->bj", found[-1], chain[:, at])
        found.append(following / following.sum(axis=1, keepdims=True))
    return np.stack(found, axis=1)


def _ahead(chain: Floats, product: Floats, start: Floats, number: int) -> Floats:
    """`states_ahead` of a chain, from the product of each of its blocks."""
    states, _ = _through(product, start)
    inside = _within(chain, states[:-1])[:, :-1].reshape(-1, STATES)
    return np.append(inside[: number - 1], states[-1:], axis=0)


def states_ahead(looks: Looks, breaking: Breaking) -> Floats:
    """Distribution of the number broken at the first look of each interval, given all looks up to it.

    Its shape is (intervals, STATES).
    """
    start = _start(looks, breaking)
    chain = _chain(_transitions(looks, sound_moves(looks), breaking), start, looks.begins)
    return _ahead(chain, _products(chain)[0], start[0], len(looks.minutes))


def log_likelihood(bridged: Bridged, breaking: Breaking) -> float:
    """Log-likelihood of all looks after the first ones."""
    looks = bridged.looks
    table, start = _transitions(looks, bridged.probability, breaking), _start(looks, breaking)
    product, scales = _products(_chain(table, start, looks.begins))
    states, scale = _through(product, start[0])
    return float(scales.sum()) + scale + float(np.log((states[-1] @ table[-1]).sum()))


def find_pairs(bridged: Bridged, breaking: Breaking) -> Floats:
    """Find the probability of the numbers broken at both ends of every interval, by a forward-backward recursion.

    Its shape is (intervals, STATES, STATES).

    Blocks of intervals are worked on side by side: first their products, then the states where they begin, then the
    states within. This is exact.
    """
    looks = bridged.looks
    number = len(looks.minutes)
    table, start = _transitions(looks, bridged.probability, breaking), _start(looks, breaking)
    chain = _chain(table, start, looks.begins)
    product, _ = _products(chain)
    ends = table[-1].sum(axis=1)
    ends = ends / ends.sum()
    values, _ = _through(product[::-1].transpose(0, 2, 1), ends)
    value = _within(chain[:, ::-1].transpose(0, 1, 3, 2), values[:-1][::-1])[:, ::-1]
    before = _ahead(chain, product, start[0], number)
    # The value of the second look is that of the next interval's first, or 1 where the record ends.
    behind = np.ones((number, STATES))
    following = np.append(value[:, :-1].reshape(-1, STATES)[: number - 1], ends[None], axis=0)[1:]
    behind[:-1] = np.where(looks.begins[1:, None], 1.0, following)
    both = before[:, :, None] * table * behind[:, None]
    both /= both.sum(axis=(1, 2), keepdims=True)
    return both


@dataclass(frozen=True)
class TimeWithout:
    """Time without a sound vehicle, by interval.

    Attributes
    ----------
    share : array
        Mean share of the time without one.
    riders, broken : array
        Variances of that share: by what riders did between the looks, and by the number broken, which stays for long.
    some, number : array
        Probability that a vehicle is broken at the second look, and the expected number.
    cancelled : array
        Expected pickups that cancelled out with returns.
    """

    share: Floats
    riders: Floats
    broken: Floats
    some: Floats
    number: Floats
    cancelled: Floats


def time_without(looks: Looks, breaking: Breaking) -> TimeWithout:
    """Find the time without a sound vehicle in each interval, given all looks."""
    bridged = bridge_looks(looks)
    both = find_pairs(bridged, breaking)
    share, riders, square, cancelled = (
        (both * value).sum(axis=(1, 2)) for value in (bridged.out, bridged.variance, bridged.out**2, bridged.cancelled)
    )
    last = both.sum(axis=1)
    return TimeWithout(share, riders, np.maximum(square - share**2, 0.0), 1.0 - last[:, 0], last @ _NUMBER, cancelled)


def learn_breaking(bridged: Bridged) -> Breaking | None:
    """Find the parameters at the maximum of likelihood times prior; none if all looks are as likely without."""

    def at(units: Floats) -> Breaking:
        free = _CENTRE + _SPREAD * units
        return Breaking(float(expit(free[0])), float(np.exp(free[1])))

    def objective(units: Floats) -> float:
        return 0.5 * float(units @ units) - log_likelihood(bridged, at(units))

    simplex = np.array([[0.0, 0.0], [0.5, 0.0], [0.0, 0.5]])
    found = minimize(
        objective,
        simplex[0],
        method="Nelder-Mead",
        options={"xatol": 0.02, "fatol": 0.05, "initial_simplex": simplex},
    )
    breaking = at(found.x)
    gain = log_likelihood(bridged, breaking) - log_likelihood(bridged, Breaking(1e-9, breaking.mended))
    return replace(breaking, gain=gain) if gain > 0 else None
