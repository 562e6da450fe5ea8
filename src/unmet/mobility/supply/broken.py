"""The hidden number of listed vehicles that cannot be rented, and what it leaves for riders.

A feed lists vehicles that nobody can rent: a flat tyre, a dock that does not let go. Let ``n`` be the number listed at
a station. The model has two hidden numbers: ``k`` vehicles are broken, ``j`` (0 or 1) cannot be rented for some
minutes, and ``u = n - k - j`` are sound.

- Riders take vehicles at rate ``λ s(u)``: `λ` is the usual rate, ``s(u) = 1 - q**u`` the chance that one of `u` sound
  vehicles is to be had (``fleeting`` `q`: causes that leave no trace in the record), ``s(0) = 0``.
- A vehicle that is brought back is broken with probability ``breakage``, or else not to be had for a while with
  probability ``brief``.
- The latter is over at rate ``recovery``. All broken vehicles of a station are repaired or fetched at once, at rate
  ``repair``, without a trace.
- Somebody finds broken vehicles at rate ``found`` if there are any, and the feed shows it: vehicles turn from listed to
  disabled, and ``k`` falls by their number. At rate ``unforeseen`` sound vehicles turn disabled.
- A van that brings or takes many vehicles sees to the broken ones with probability ``visit``.
- ``k + j`` never exceeds ``n``: an empty station has no broken vehicle among those listed.

The record of a station is a sequence of *steps*: stretches in which the listed number stays, each ended by an event
(pickups, returns, a visit). A step is carried out at once (`Drift`), so minutes are never looked at one by one. This is
a Markov-modulated Poisson process; `unmet.mobility.supply.usable` has its forward-backward recursion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BRIEF",
    "BROKEN",
    "MOST_BROKEN",
    "STATES",
    "Drift",
    "Fault",
    "Steps",
    "carry_ahead",
    "carry_back",
    "demand_with",
    "event_codes",
    "event_tables",
    "initial",
    "served_share",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_BROKEN = 3
"""Broken vehicles of a station that are told apart; more count as so many."""

BROKEN, BRIEF = (v.ravel() for v in np.meshgrid(np.arange(MOST_BROKEN + 1), np.arange(2), indexing="ij"))
"""Vehicles broken, and out for some minutes, in each hidden state."""

STATES = len(BROKEN)
_PLENTY = MOST_BROKEN + 2  # with so many listed or more, the hidden state makes no difference
_MOST_RETURNED, _MOST_DISABLED = 12, 2
_MOST_TAKEN = 5  # more at once say no more
_AT_ONCE = 1024  # steps whose factors are worked out together, so that all of it stays in the processor's cache


@dataclass(frozen=True)
class Fault:
    """Parameters of the model: how vehicles come to be listed that nobody can rent, and for how long.

    Attributes
    ----------
    breakage : float
        Probability that a vehicle is broken when it is brought back.
    repair : float
        Rate, per minute, at which a station's broken vehicles are repaired or fetched without a trace.
    found : float
        Rate, per minute, at which broken vehicles of a station are found and shown as disabled.
    unforeseen : float
        Rate, per minute, at which vehicles turn disabled that were not broken.
    visit : float
        Probability that a van that brings or takes vehicles sees to the broken ones.
    brief : float
        Probability that a vehicle cannot be rented for some minutes after it was brought back.
    recovery : float
        Rate, per minute, at which that is over.
    fleeting : float
        Share of the time in which a sound vehicle cannot be had, for reasons that leave no trace.
    stray : float
        Pickups recorded while nothing can be rented, over those expected otherwise: a feed that lags behind. It keeps a
        single such record from ruling out what all others say.
    demand : float
        Pickups to expect with four vehicles listed, over those of the usual rates.
    scarcity : float
        Factor of that for each vehicle fewer: the rates know only in part why few are left.
    """

    breakage: float
    repair: float
    found: float = 0.0
    unforeseen: float = 1e-4
    visit: float = 0.7
    brief: float = 0.0
    recovery: float = 0.05
    fleeting: float = 0.0
    stray: float = 0.01
    demand: float = 1.0
    scarcity: float = 1.0

    @property
    def is_none(self) -> bool:
        """Whether every listed vehicle can be rented."""
        return self.breakage == self.brief == self.fleeting == 0.0


@dataclass(frozen=True)
class Steps:
    """Stretches without an event, of one station after the other, in order of time.

    Attributes
    ----------
    station : array of int
        Never falling.
    minutes : array
        How long the step lasts.
    expected : array
        Pickups expected in it if a vehicle can be had all the while.
    listed : array of int
        Vehicles listed meanwhile.
    pickups, returned, disabled : array of int
        Vehicles taken, brought back, and turned from listed to disabled at its end.
    visited : array of bool
        Whether a van came at its end.
    """

    station: Ints
    minutes: Floats
    expected: Floats
    listed: Ints
    pickups: Ints
    returned: Ints
    disabled: Ints
    visited: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.station)

    def select(self, chosen: slice | NDArray[np.bool_] | Ints) -> Steps:
        """Keep some of the steps."""
        return Steps(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    @property
    def first(self) -> Ints:
        """Where the steps of each station begin."""
        return np.flatnonzero(np.append(True, self.station[1:] != self.station[:-1]))


def served_share(fault: Fault, listed: Ints) -> Floats:
    """Chance that a rider can be served, by number listed (rows) and hidden state (columns).

    Examples
    --------
    >>> served_share(Fault(0.01, 0.001, fleeting=0.1), np.array([1, 2]))[:, BRIEF == 0].round(2)
    array([[0.9 , 0.  , 0.  , 0.  ],
           [0.99, 0.9 , 0.  , 0.  ]])
    """
    sound = np.maximum(np.asarray(listed)[..., None] - BROKEN - BRIEF, 0)
    share: Floats = 1.0 - fault.fleeting**sound
    return share


def demand_with(faults: Sequence[Fault], listed: Ints) -> Floats:
    """Pickups to expect over those of the usual rates, by number listed (rows) and fault (columns)."""
    fewer = np.maximum(_PLENTY - 1 - np.asarray(listed), 0)[:, None]
    factor: Floats = np.array([f.demand for f in faults]) * np.array([f.scarcity for f in faults]) ** fewer
    return factor


class Drift:
    """Carry hidden states through steps in which no event happens.

    Half of the repairs come first and half last (Strang splitting: repairs are rare within a step), and between them a
    vehicle may recover. With `b = Λ s(n - k)` and `a = recovery L + Λ s(n - k - 1)`, nobody takes a vehicle with
    probability `exp(-b)` where none is out for minutes; with `exp(-a)` where one is and stays so, and with
    `recovery L (exp(-b) - exp(-a)) / (a - b)` where it recovers at some moment. The `y` pickups at the end multiply all
    by `s**y`. Left out is what does not depend on the state: the factor `Λ**y` and `exp(-unforeseen L)`.

    Several faults are worked on side by side: their number is the last axis, flattened into that of the steps.

    Attributes
    ----------
    factors : array, shape (2 + 3 (MOST_BROKEN + 1), steps * faults)
        Shares that stay broken and that are repaired in half a step, `exp(-b)`, `exp(-a)` and the share that recovers.
    taken : array, shape (STATES, steps * faults)
        Likelihood of the pickups at the end.
    """

    def __init__(self, faults: Sequence[Fault], steps: Steps) -> None:
        numbers = np.arange(_PLENTY + 1)
        share = np.array([np.maximum(served_share(f, numbers), f.stray) for f in faults]).T.copy()
        share[:, _PLENTY] = 1.0
        self._faults, self._share = faults, share.copy()
        share[:, 0] = 1.0
        powers = share[:, :, None] ** np.arange(_MOST_TAKEN + 1.0)[:, None]
        self._powers = powers.reshape(STATES, -1, len(faults))
        factors = np.empty((2 + 3 * (MOST_BROKEN + 1), len(steps), len(faults)))
        taken = np.empty((STATES, len(steps), len(faults)))
        for low in range(0, len(steps), _AT_ONCE):
            some = slice(low, low + _AT_ONCE)
            self._fill(steps.select(some), factors[:, some], taken[:, some])
        self.factors, self.taken = factors.reshape(len(factors), -1), taken.reshape(STATES, -1)

    def _fill(self, steps: Steps, factors: Floats, taken: Floats) -> None:
        """Fill in the factors and the likelihood of pickups of some steps."""
        faults, share = self._faults, self._share
        recovery, repair, found = (np.array([getattr(f, n) for f in faults]) for n in ("recovery", "repair", "found"))
        listed, minutes = np.minimum(steps.listed, _PLENTY), steps.minutes[:, None]
        # Where none is listed the hidden state is known, and pickups say nothing about it.
        expected = np.where(listed > 0, steps.expected, 0.0)[:, None] * demand_with(faults, listed)
        sound, brief = (expected * share[j == BRIEF].take(listed, axis=1) for j in (0, 1))
        over = recovery * minutes
        brief += over
        still_sound, still_brief, recover = factors[2:].reshape(3, MOST_BROKEN + 1, *sound.shape[1:])
        np.exp(-sound, out=still_sound)
        np.exp(-brief, out=still_brief)
        gap = brief - sound
        small = np.abs(gap) < 1e-3  # where the difference loses digits; the error of the series is gap**2 / 6
        gap[small] = 1.0
        np.divide(still_sound - still_brief, gap, out=recover)
        recover[small] = (still_sound * (1 + 0.5 * (sound - brief)))[small]
        recover *= over
        unseen, mended = np.exp(-found * minutes / 2), -np.expm1(-repair * minutes / 2)
        factors[0], factors[1] = (1 - mended) * unseen, mended * unseen
        which = listed * (_MOST_TAKEN + 1) + np.minimum(steps.pickups, _MOST_TAKEN)
        taken[:] = self._powers.take(which, axis=1)


def _half_ahead(state: Floats, broken: Floats, repaired: Floats) -> None:
    mended = state[1:].sum(axis=0) * repaired
    state[1:] *= broken
    state[0] += mended


def _half_back(value: Floats, broken: Floats, repaired: Floats) -> None:
    value[1:] *= broken
    value[1:] += repaired * value[0]


def carry_ahead(state: Floats, factors: Floats, taken: Floats) -> None:
    """Carry probabilities, shape (STATES, steps), through a step each, in place."""
    broken, repaired = factors[:2]
    sound, brief, recover = factors[2:].reshape(3, MOST_BROKEN + 1, -1)
    table = state.reshape(MOST_BROKEN + 1, 2, -1)
    _half_ahead(table, broken, repaired)
    table[:, 0] *= sound
    table[:, 0] += table[:, 1] * recover
    table[:, 1] *= brief
    _half_ahead(table, broken, repaired)
    state *= taken


def carry_back(value: Floats, factors: Floats, taken: Floats) -> None:
    """Carry values, shape (STATES, steps), back through a step each, in place."""
    broken, repaired = factors[:2]
    sound, brief, recover = factors[2:].reshape(3, MOST_BROKEN + 1, -1)
    value *= taken
    table = value.reshape(MOST_BROKEN + 1, 2, -1)
    _half_back(table, broken, repaired)
    table[:, 1] *= brief
    table[:, 1] += table[:, 0] * recover
    table[:, 0] *= sound
    _half_back(table, broken, repaired)


def event_codes(steps: Steps) -> Ints:
    """Number of each step's event in the table of `event_tables`."""
    following = np.append(steps.listed[1:], _PLENTY)
    following[np.append(steps.station[1:] != steps.station[:-1], True)] = _PLENTY
    code = np.minimum(steps.returned, _MOST_RETURNED)
    code = code * (_MOST_DISABLED + 1) + np.minimum(steps.disabled, _MOST_DISABLED)
    code = code * 2 + steps.visited
    return code * (_PLENTY + 1) + np.minimum(following, _PLENTY)


def _moved_to(broken: Ints | int, brief: Ints) -> Floats:
    """Transition matrix from each state to the one with so many broken and out for minutes."""
    return np.eye(STATES)[2 * np.minimum(broken, MOST_BROKEN) + np.minimum(brief, 1)]


_FOUND = np.array([_moved_to(np.maximum(BROKEN - n, 0), BRIEF) for n in range(_MOST_DISABLED + 1)])
_CAPPED = np.array(
    [
        _moved_to(np.minimum(BROKEN, most), np.minimum(BRIEF, most - np.minimum(BROKEN, most)))
        for most in range(_PLENTY + 1)
    ]
)
_ONE_BROKEN, _ONE_BRIEF, _SEEN_TO = _moved_to(BROKEN + 1, BRIEF), _moved_to(BROKEN, BRIEF + 1), _moved_to(0, BRIEF)


def event_tables(fault: Fault) -> Floats:
    """Transition matrices of all kinds of events: disabled, visited, returned, then no more than are listed."""
    same = np.eye(STATES)
    back = (1 - fault.breakage) * ((1 - fault.brief) * same + fault.brief * _ONE_BRIEF) + fault.breakage * _ONE_BROKEN
    brought = np.array([np.linalg.matrix_power(back, n) for n in range(_MOST_RETURNED + 1)])
    found = _FOUND.copy()
    for n in range(1, _MOST_DISABLED + 1):  # relative to sound ones that turned disabled
        found[n, n <= BROKEN] *= 1.0 + fault.found / fault.unforeseen
    visits = np.array([same, (1 - fault.visit) * same + fault.visit * _SEEN_TO])
    tables = (found[:, None] @ visits)[None, :, :, None] @ (brought[:, None] @ _CAPPED)[:, None, None]
    return tables.reshape(-1, STATES, STATES)


def initial(fault: Fault, steps: Steps) -> Floats:
    """Distribution of the hidden state where the record of each station begins, shape (stations, STATES).

    Breakages and repairs in balance: Poisson with mean `breakage` × returns per minute / rate of repairs, up to the
    number listed.
    """
    first = steps.first
    minutes = np.maximum(np.add.reduceat(steps.minutes, first), 1.0)
    returned = np.add.reduceat(steps.returned, first)
    mean = fault.breakage * returned / minutes / max(fault.repair + fault.found, 1e-6)
    weights = np.minimum(mean, 2.0)[:, None] ** BROKEN / np.cumprod(np.maximum(np.arange(MOST_BROKEN + 1), 1))[BROKEN]
    weights[(steps.listed[first, None] < BROKEN) | (BRIEF > 0)] = 0.0
    result: Floats = weights / weights.sum(axis=1, keepdims=True)
    return result
