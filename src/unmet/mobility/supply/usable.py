"""The hidden number of listed vehicles that cannot be rented, and what it leaves for riders.

A feed lists vehicles that nobody can rent: a flat tyre, a dock that holds on to a vehicle. Let ``n`` be the number that
is listed and ``k`` the hidden number of those that cannot be rented, ``0 <= k <= n``. The model of one station:

- Riders take vehicles at rate ``λ s(n - k)``: `λ` is the usual rate, ``s(u) = 1 - q**u`` the chance that one of `u`
  sound vehicles is to be had. `q` stands for short-lived causes (a reservation, a dock that fails for a minute), each
  vehicle by itself; none of `n` is to be had when all are broken, ``s(0) = 0``.
- A vehicle that is brought back is broken with probability `p` (``breakage``): ``k`` rises by one.
- All broken vehicles of a station are repaired or fetched at once, at rate `ρ` (``repair``): ``k`` falls to zero.
- Somebody finds broken vehicles at rate `φ` (``found``) if there are any, and the feed shows it: vehicles turn from
  listed to disabled, and ``k`` falls by their number. At rate `ψ` (``unforeseen``) sound ones do.
- A van that brings or takes many vehicles sees to the broken ones with probability `v` (``visit``).
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
_MOST_RETURNED, _MOST_DISABLED = 40, 2
_CHUNK = 192
_PLENTY = MOST_BROKEN + 1  # with so many listed or more, what is broken makes no difference


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
    fleeting : float
        Share of the time in which a sound vehicle cannot be had, for reasons that last minutes.
    stray : float
        Pickups recorded while nothing can be rented, over those expected otherwise: clocks that disagree. It keeps a
        single such record from ruling out what all others say, and is not counted as supply.
    """

    breakage: float
    repair: float
    found: float = 0.0
    unforeseen: float = 1e-4
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


def _drift(fault: Fault, steps: Steps) -> tuple[Floats, Floats]:
    """Carry the hidden number through steps: the chance to stay at each number, and to fall from it to zero.

    With `a = (ρ + φ)L + Λ s_k` and `b = Λ s_0`, no event and no repair in the step has probability `exp(-a)`, a repair
    at some moment of it and no event `ρL (exp(-b) - exp(-a)) / (a - b)`. The pickups at the end multiply both by the
    share served in the state they are taken from. Left out is what does not depend on the state: `exp(-ψL)` and the
    factor `Λ**y` of the pickups.
    """
    share = np.maximum(served_share(fault, np.arange(_PLENTY + 1)), fault.stray)
    share[_PLENTY] = 1.0
    listed = np.minimum(steps.listed, _PLENTY)
    wear = (fault.repair * steps.minutes)[:, None]
    served = steps.expected[:, None] * share[listed]
    none = np.exp(-served[:, :1])
    leave = wear + (fault.found * steps.minutes)[:, None] + served - served[:, :1]
    stay = np.exp(-leave) * none
    small = np.abs(leave) < 1e-8
    fall = wear * np.where(small, none, (none - stay) / np.where(small, 1.0, leave))
    fall[:, 0] = 0.0
    stay[:, 0] = none[:, 0]  # a repair where nothing is broken changes nothing
    taking = np.flatnonzero(steps.pickups)
    taken = share[listed[taking]] ** steps.pickups[taking, None]
    stay[taking] *= taken
    fall[taking] *= taken[:, :1]
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
    upper = np.eye(STATES, k=1)
    upper[-1, -1] = 1.0
    back = (1 - fault.breakage) * np.eye(STATES) + fault.breakage * upper
    visit = (1 - fault.visit) * np.eye(STATES)
    visit[:, 0] += fault.visit
    caps = [np.eye(STATES)[np.minimum(np.arange(STATES), most)] for most in range(STATES)]
    tables, brought = [], np.eye(STATES)
    for _ in range(_MOST_RETURNED + 1):
        for disabled in range(_MOST_DISABLED + 1):
            found = np.eye(STATES)[np.maximum(np.arange(STATES) - disabled, 0)]
            if disabled:  # relative to sound ones that turned disabled
                found[disabled:] *= 1.0 + fault.found / fault.unforeseen
            tables += [found @ visited @ brought @ cap for visited in (np.eye(STATES), visit) for cap in caps]
        brought = brought @ back
    return np.array(tables)


def initial(fault: Fault, steps: Steps) -> Floats:
    """Distribution of the hidden number where the record of each station begins, shape (stations, STATES).

    Breakages and repairs in balance: Poisson with mean `p` × returns per minute / `ρ`, up to the number listed.
    """
    first = np.flatnonzero(np.append(True, steps.station[1:] != steps.station[:-1]))
    minutes = np.add.reduceat(steps.minutes, first)
    returned = np.add.reduceat(steps.returned, first)
    mean = fault.breakage * returned / (np.maximum(minutes, 1.0) * max(fault.repair, 1e-6))
    number = np.arange(STATES)
    weights = np.minimum(mean, 2.0)[:, None] ** number / np.cumprod(np.maximum(number, 1))
    weights[number > steps.listed[first, None]] = 0.0
    result: Floats = weights / weights.sum(axis=1, keepdims=True)
    return result


# All steps: stations are cut into chunks that are worked on side by side


class _Chunks:
    """Steps as a table: its rows are chunks of one station each, its columns the steps of all chunks.

    Attributes
    ----------
    place : array of int, shape (columns, chunks)
        Which step; the number of all steps where a chunk has ended.
    station, rank : array of int, shape (chunks,)
        Station of each chunk (counted from zero), and its place among those of the station.
    """

    def __init__(self, fault: Fault, steps: Steps) -> None:
        first = np.flatnonzero(np.append(True, steps.station[1:] != steps.station[:-1]))
        count = np.diff(np.append(first, len(steps)))
        chunks = -(-count // _CHUNK)
        self.station = np.repeat(np.arange(len(first)), chunks)
        self.rank = np.arange(len(self.station)) - np.repeat(np.cumsum(chunks) - chunks, chunks)
        within = self.rank * _CHUNK + np.arange(min(_CHUNK, int(count.max())))[:, None]
        self.place = np.where(within < count[self.station], first[self.station] + within, len(steps))
        stay, fall = _drift(fault, steps)
        # Behind the last step, one in which nothing happens.
        self._stay, self._fall = np.vstack([stay, np.ones(STATES)]), np.vstack([fall, np.zeros(STATES)])
        self._code, self._tables = np.append(_event_codes(steps), _NO_EVENT), _event_tables(fault)

    def drift(self, column: int) -> tuple[Floats, Floats]:
        place = self.place[column]
        return self._stay[place], self._fall[place]

    def event(self, column: int) -> Floats:
        table: Floats = self._tables[self._code[self.place[column]]]
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


def _rescale(values: Floats) -> Floats:
    """Divide by the largest entry of each row, in place; return the logarithms of those."""
    top = values.reshape(len(values), -1).max(axis=1)
    values /= top.reshape(-1, *[1] * (values.ndim - 1))
    result: Floats = np.log(top)
    return result


def _forward(chunks: _Chunks, state: Floats) -> tuple[Floats, Floats]:
    """Carry vectors, or matrices of them, shape (chunks, rows, STATES), to the ends of chunks; and their log-scales."""
    scale = np.zeros(len(state))
    for column in range(len(chunks.place)):
        stay, fall = chunks.drift(column)
        state = _ahead(state, stay[:, None], fall[:, None]) @ chunks.event(column)
        scale += _rescale(state)
    return state, scale


def _edges(chunks: _Chunks, start: Floats) -> tuple[Floats, Floats, float]:
    """Vectors at the edges of chunks, forward at the begin of each and backward at its end; and the log-likelihood."""
    if chunks.rank.max() == 0:
        end, scale = _forward(chunks, start[:, None].copy())
        return start, np.ones_like(start), float(scale.sum() + np.log(end.sum(axis=(1, 2))).sum())
    unit = np.broadcast_to(np.eye(STATES), (len(chunks.rank), STATES, STATES)).copy()
    transfer, scale = _forward(chunks, unit)
    ahead, back = np.empty((len(chunks.rank), STATES)), np.ones((len(chunks.rank), STATES))
    state, total = start.copy(), float(scale.sum())
    by_rank = [np.flatnonzero(chunks.rank == rank) for rank in range(int(chunks.rank.max()) + 1)]
    for here in by_rank:
        station = chunks.station[here]
        ahead[here] = state[station]
        moved = np.einsum("ij,ijk->ik", state[station], transfer[here])
        total += float(_rescale(moved).sum())
        state[station] = moved
    for here in by_rank[:0:-1]:
        moved = np.einsum("ijk,ik->ij", transfer[here], back[here])
        _rescale(moved)
        back[here - 1] = moved
    return ahead, back, total + float(np.log(state.sum(axis=1)).sum())


def log_likelihood(fault: Fault, steps: Steps) -> float:
    """Log-likelihood of the record, up to a constant that does not depend on the parameters."""
    return _edges(_Chunks(fault, steps), initial(fault, steps))[2]


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

    >>> one = np.ones(2, dtype=np.int64)
    >>> steps = Steps(0 * one, 720.0 * one, 2.0 * one, one, 0 * one, one, 0 * one, one < 0)
    >>> found = smooth(Fault(breakage=0.02, repair=1 / 1440), steps)
    >>> bool(found.end[1, 1] > 0.3)
    True
    """
    chunks = _Chunks(fault, steps)
    ahead, back, total = _edges(chunks, initial(fault, steps))
    begin, end = np.empty((len(steps) + 1, STATES)), np.empty((len(steps) + 1, STATES))
    for column, place in enumerate(chunks.place):
        begin[place] = ahead
        moved = _ahead(ahead, *chunks.drift(column))
        end[place] = moved
        ahead = np.einsum("ij,ijk->ik", moved, chunks.event(column))
        _rescale(ahead)
    for column, place in reversed(list(enumerate(chunks.place))):
        moved = np.einsum("ijk,ik->ij", chunks.event(column), back)
        end[place] *= moved
        back = _back(moved, *chunks.drift(column))
        _rescale(back)
        begin[place] *= back
    for table in (begin, end):
        table /= table.sum(axis=1, keepdims=True)
    return Smoothed(begin[:-1], end[:-1], total)
