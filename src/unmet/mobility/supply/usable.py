"""The hidden number of listed vehicles that cannot be rented, and what it leaves for riders.

A feed lists vehicles that nobody can rent: a flat tyre, a dock that holds on to a vehicle. Let ``n`` be the number that
is listed and ``k`` the hidden number of those that cannot be rented, ``0 <= k <= n``. The model of one station:

- Riders take vehicles at rate ``λ s(n - k)``: `λ` is the usual rate, ``s(u) = 1 - q**u`` the chance that one of `u`
  sound vehicles is to be had. `q` stands for short-lived causes (a reservation, a dock that fails for a minute), each
  vehicle by itself; none of `n` is to be had when all are broken, ``s(0) = 0``.
- A vehicle that is brought back is broken with probability `p` (``breakage``): ``k`` rises by one.
- All broken vehicles of a station are repaired or fetched at once, at rate `ρ` (``repair``): ``k`` falls to zero.
- A van that brings or takes many vehicles sees to the broken ones with probability `v` (``visit``).
- A vehicle that turns from listed to disabled was one of the broken, if there were any.
- ``k`` never exceeds ``n``: an empty station has no broken vehicle among those listed.

The record of a station is a sequence of *steps*: stretches without an event in which nothing but a repair may happen,
each ended by an event (pickups, returns, a visit). Over a step the model has a closed form, so minutes are never
looked at one by one; see `_drift`. This is a Markov-modulated Poisson process, and `smooth` its forward-backward
recursion.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_BROKEN", "Fault", "Smoothed", "Steps", "log_likelihood", "served_share", "smooth"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_BROKEN = 4
"""Broken vehicles of a station that are told apart; more count as so many."""

STATES = MOST_BROKEN + 1
_MOST_RETURNED, _MOST_DISABLED = 4, 2
_CHUNK = 192


@dataclass(frozen=True)
class Fault:
    """Parameters of the model: how vehicles come to be listed that nobody can rent, and for how long.

    Attributes
    ----------
    breakage : float
        Probability that a vehicle is broken when it is brought back.
    repair : float
        Rate, per minute, at which a station's broken vehicles are repaired or fetched.
    visit : float
        Probability that a van that brings or takes vehicles sees to the broken ones.
    fleeting : float
        Share of the time in which a sound vehicle cannot be had, for reasons that last minutes.
    stray : float
        Pickups recorded while nothing can be rented, over those expected otherwise: clocks that disagree. It keeps a
        single such record from ruling out what all others say, and is not counted as supply.
    """

    breakage: float
    repair: float
    visit: float = 0.5
    fleeting: float = 0.0
    stray: float = 0.01


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


@dataclass(frozen=True)
class Smoothed:
    """The hidden number given the whole record.

    Attributes
    ----------
    begin, end : array, shape (steps, STATES)
        Probability of each number of broken vehicles at the begin of a step, and at its end before the event.
    log_likelihood : float
        Of all stations, up to a constant that does not depend on the parameters.
    """

    begin: Floats
    end: Floats
    log_likelihood: float


def served_share(fault: Fault, listed: Ints) -> Floats:
    """Chance that a rider can be served, by number listed (rows) and number broken (columns)."""
    sound = np.maximum(np.asarray(listed)[..., None] - np.arange(STATES), 0)
    share: Floats = 1.0 - fault.fleeting**sound
    return share


# One step


def _drift(fault: Fault, minutes: Floats, expected: Floats, listed: Ints, pickups: Ints) -> tuple[Floats, Floats]:
    """Carry the hidden number through steps: the chance to stay at each number, and to fall from it to zero.

    With `a = ρL + Λ s_k` and `b = Λ s_0`, no pickup and no repair in the step has probability `exp(-a)`, a repair at
    some moment of it and no pickup `ρL exp(-b) φ(a - b)`, `φ(x) = (1 - exp(-x))/x`. The pickups at the end multiply both by
    the share served in the state they are taken from. Probabilities of pickups leave out the factor `Λ**y`.
    """
    share = np.maximum(served_share(fault, listed), fault.stray)
    taken = share ** pickups[..., None]
    wear = (fault.repair * minutes)[..., None]
    served = expected[..., None] * share
    leave = wear + served - served[..., :1]
    small = np.abs(leave) < 1e-8
    phi = np.where(small, 1.0 - leave / 2, -np.expm1(-leave) / np.where(small, 1.0, leave))
    none = np.exp(-served[..., :1])
    fall = wear * none * phi * taken[..., :1]
    stay = np.exp(-wear - served) * taken
    stay[..., 0] += fall[..., 0]  # a repair where nothing is broken changes nothing
    fall[..., 0] = 0.0
    return stay, fall


def _event_codes(steps: Steps) -> Ints:
    """Number of each step's event in the table of `_event_tables`."""
    following = np.append(steps.listed[1:], MOST_BROKEN)
    following[np.append(steps.station[1:] != steps.station[:-1], True)] = MOST_BROKEN
    code = np.minimum(steps.returned, _MOST_RETURNED)
    code = code * (_MOST_DISABLED + 1) + np.minimum(steps.disabled, _MOST_DISABLED)
    code = code * 2 + steps.visited
    return code * STATES + np.minimum(following, MOST_BROKEN)


_NO_EVENT = MOST_BROKEN  # nothing returned, nothing disabled, no visit, any number listed afterwards


def _event_tables(fault: Fault) -> Floats:
    """Transition matrices of all kinds of events: disabled, visited, returned, then no more than are listed."""
    lower = np.eye(STATES, k=-1)
    lower[0, 0] = 1.0
    upper = np.eye(STATES, k=1)
    upper[-1, -1] = 1.0
    back = (1 - fault.breakage) * np.eye(STATES) + fault.breakage * upper
    visit = (1 - fault.visit) * np.eye(STATES)
    visit[:, 0] += fault.visit
    power = np.linalg.matrix_power
    tables = []
    for returned in range(_MOST_RETURNED + 1):
        for disabled in range(_MOST_DISABLED + 1):
            for visited in (False, True):
                moved = power(lower, disabled) @ (visit if visited else np.eye(STATES)) @ power(back, returned)
                for most in range(STATES):
                    cap = np.eye(STATES)[np.minimum(np.arange(STATES), most)]
                    tables.append(moved @ cap)
    return np.array(tables)


def initial(fault: Fault, steps: Steps) -> Floats:
    """Distribution of the hidden number where the record of each station begins, shape (stations, STATES).

    Breakages and repairs in balance: Poisson with mean `p` × returns per minute / `ρ`, up to the number listed.
    """
    first = np.flatnonzero(np.r_[True, steps.station[1:] != steps.station[:-1]])
    minutes = np.add.reduceat(steps.minutes, first)
    returned = np.add.reduceat(steps.returned, first)
    mean = fault.breakage * (returned + 1) / (minutes + 1) / max(fault.repair, 1e-6)
    number = np.arange(STATES)
    weights = np.minimum(mean, 2.0)[:, None] ** number / np.cumprod(np.maximum(number, 1))
    weights[number > steps.listed[first, None]] = 0.0
    result: Floats = weights / weights.sum(axis=1, keepdims=True)
    return result


# All steps: stations are cut into chunks that are worked on side by side


@dataclass(frozen=True)
class _Grid:
    """Steps as a table: row by row chunks of one station each, column by column the steps of a chunk.

    Attributes
    ----------
    place : array of int, shape (chunks, length)
        Which step; the number of all steps where a chunk has ended.
    station, rank : array of int
        Station of each chunk (counted from zero), and its place among those of the station.
    """

    place: Ints
    station: Ints
    rank: Ints


def _cut(steps: Steps) -> _Grid:
    first = np.flatnonzero(np.r_[True, steps.station[1:] != steps.station[:-1]])
    count = np.diff(np.append(first, len(steps)))
    chunks = -(-count // _CHUNK)
    station = np.repeat(np.arange(len(first)), chunks)
    rank = np.arange(len(station)) - np.repeat(np.cumsum(chunks) - chunks, chunks)
    within = rank[:, None] * _CHUNK + np.arange(min(_CHUNK, int(count.max())))
    place = np.where(within < count[station, None], first[station, None] + within, len(steps))
    return _Grid(place, station, rank)


class _Columns:
    """The matrices of one column of the grid at a time."""

    def __init__(self, fault: Fault, steps: Steps, grid: _Grid) -> None:
        self._fault, self._grid, self._tables = fault, grid, _event_tables(fault)

        def padded(values: NDArray[np.generic], nothing: float) -> NDArray[np.generic]:
            return np.append(values, np.array([nothing]).astype(values.dtype))

        self._code = padded(_event_codes(steps), _NO_EVENT)
        self._data = [padded(v, 0) for v in (steps.minutes, steps.expected, steps.listed, steps.pickups)]

    def __len__(self) -> int:
        return self._grid.place.shape[1]

    def drift(self, column: int) -> tuple[Floats, Floats]:
        place = self._grid.place[:, column]
        return _drift(self._fault, *(v[place] for v in self._data))  # type: ignore[arg-type]

    def event(self, column: int) -> Floats:
        table: Floats = self._tables[self._code[self._grid.place[:, column]]]
        return table


def _ahead(state: Floats, stay: Floats, fall: Floats) -> Floats:
    """Row vectors, shape (..., STATES), through a step."""
    moved = state * stay
    moved[..., 0] += (state * fall).sum(axis=-1)
    return moved


def _back(value: Floats, stay: Floats, fall: Floats) -> Floats:
    """Column vectors, shape (..., STATES), back through a step."""
    moved: Floats = value * stay + value[..., :1] * fall
    return moved


def _rescaled(values: Floats, axes: tuple[int, ...]) -> tuple[Floats, Floats]:
    top = values.max(axis=axes, keepdims=True)
    return values / top, np.log(top.reshape(len(values)))


def _transfer(columns: _Columns, chunks: int) -> tuple[Floats, Floats]:
    """The product of all matrices of each chunk, divided by its largest entry; and the logarithm of that."""
    product = np.broadcast_to(np.eye(STATES), (chunks, STATES, STATES)).copy()
    scale = np.zeros(chunks)
    for column in range(len(columns)):
        stay, fall = columns.drift(column)
        product = _ahead(product, stay[:, None], fall[:, None]) @ columns.event(column)
        product, log_top = _rescaled(product, (1, 2))
        scale += log_top
    return product, scale


def _edges(grid: _Grid, transfer: Floats, start: Floats) -> tuple[Floats, Floats, Floats]:
    """Vectors at the edges of chunks: forward at the begin of each, backward at its end; scale of the forward ones."""
    ahead, back = np.empty((len(grid.rank), STATES)), np.ones((len(grid.rank), STATES))
    state, scale = start.copy(), np.zeros(len(start))
    for rank in range(int(grid.rank.max()) + 1):
        here = np.flatnonzero(grid.rank == rank)
        station = grid.station[here]
        ahead[here] = state[station]
        moved = np.einsum("ij,ijk->ik", state[station], transfer[here])
        state[station], log_top = _rescaled(moved, (1,))
        scale[station] += log_top
    for rank in range(int(grid.rank.max()), 0, -1):
        here = np.flatnonzero(grid.rank == rank)
        moved = np.einsum("ijk,ik->ij", transfer[here], back[here])
        back[here - 1], _ = _rescaled(moved, (1,))
    return ahead, back, scale + np.log(state.sum(axis=1))


def log_likelihood(fault: Fault, steps: Steps) -> float:
    """Log-likelihood of the record, up to a constant that does not depend on the parameters."""
    grid = _cut(steps)
    transfer, scale = _transfer(_Columns(fault, steps, grid), len(grid.rank))
    _, _, ends = _edges(grid, transfer, initial(fault, steps))
    return float(scale.sum() + ends.sum())


def smooth(fault: Fault, steps: Steps) -> Smoothed:
    """Find the distribution of the hidden number at both ends of every step, given the whole record.

    Parameters
    ----------
    fault : Fault
        The parameters.
    steps : Steps
        At least one.

    Notes
    -----
    Chunks of a station are first multiplied out by themselves, which gives the vectors at their edges; then all of
    them are run through forward and backward at once. Nothing is approximated, and the cost does not depend on how the
    steps are spread over stations.

    Examples
    --------
    One vehicle is listed all day, and nobody takes it although four riders would be expected to:

    >>> one = np.ones(1, dtype=np.int64)
    >>> steps = Steps(0 * one, 1440.0 * one, 4.0 * one, one, 0 * one, 0 * one, 0 * one, one < 0)
    >>> found = smooth(Fault(breakage=0.02, repair=1 / 1440), steps)
    >>> bool(found.end[0, 1] > 0.3)
    True
    """
    grid = _cut(steps)
    columns = _Columns(fault, steps, grid)
    transfer, scale = _transfer(columns, len(grid.rank))
    ahead, back, ends = _edges(grid, transfer, initial(fault, steps))
    begin, end = np.empty((len(steps) + 1, STATES)), np.empty((len(steps) + 1, STATES))
    for column in range(len(columns)):
        place = grid.place[:, column]
        begin[place] = ahead
        moved = _ahead(ahead, *columns.drift(column))
        end[place] = moved
        ahead, _ = _rescaled(np.einsum("ij,ijk->ik", moved, columns.event(column)), (1,))
    for column in reversed(range(len(columns))):
        place = grid.place[:, column]
        moved = np.einsum("ijk,ik->ij", columns.event(column), back)
        end[place] *= moved
        back, _ = _rescaled(_back(moved, *columns.drift(column)), (1,))
        begin[place] *= back
    for table in (begin, end):
        table /= table.sum(axis=1, keepdims=True)
    return Smoothed(begin[:-1], end[:-1], float(scale.sum() + ends.sum()))
