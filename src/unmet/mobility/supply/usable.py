"""The forward-backward recursion over the hidden number of vehicles that cannot be rented.

`unmet.mobility.supply.broken` has the model of one step. Here stations are cut into chunks of steps that are worked on
side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.supply.broken import (
    NO_EVENT,
    STATES,
    Drift,
    Fault,
    Steps,
    carry_ahead,
    carry_back,
    event_codes,
    event_tables,
    initial,
)

__all__ = ["Smoothed", "log_likelihood", "log_likelihoods", "smooth"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHUNK = 128
_SETTLED, _ROUNDS = 1e-7, 4


@dataclass(frozen=True)
class Smoothed:
    """The hidden state given the whole record.

    Attributes
    ----------
    begin, end : array, shape (steps, STATES)
        Probability of each hidden state at the begin of a step, and at its end before the event.
    log_likelihood : float
        Of all stations, up to a constant that does not depend on the parameters.
    """

    begin: Floats
    end: Floats
    log_likelihood: float


class _Chunks:
    """Steps as a table: its columns are chunks of one station each, its rows the steps of all chunks.

    Several faults are worked on side by side, each with columns and steps of its own.

    Attributes
    ----------
    place : array of int, shape (rows, chunks)
        Which step; the one behind the last of its fault where a chunk has ended.
    is_first : array of bool, shape (chunks,)
        Whether a chunk is the first of its station.
    """

    def __init__(self, faults: Sequence[Fault], steps: Steps) -> None:
        first = steps.first
        count = np.diff(np.append(first, len(steps)))
        chunks = -(-count // _CHUNK)
        station = np.repeat(np.arange(len(first)), chunks)
        rank = np.arange(len(station)) - np.repeat(np.cumsum(chunks) - chunks, chunks)
        self.is_first = np.tile(rank == 0, len(faults))
        within = rank * _CHUNK + np.arange(min(_CHUNK, int(count.max())))[:, None]
        place = np.where(within < count[station], first[station] + within, len(steps))
        self.place = np.hstack([place + number * (len(steps) + 1) for number in range(len(faults))])
        drifts = [Drift(fault, steps) for fault in faults]
        self._drift = drifts[0]
        self._drift.append(drifts[1:])
        tables, code = [event_tables(fault) for fault in faults], np.append(event_codes(steps), NO_EVENT)
        self._code = np.concatenate([code + number * len(tables[0]) for number in range(len(faults))])
        self._tables = np.concatenate(tables)

    def forward(self, state: Floats, some: Ints, begin: Floats | None, end: Floats | None) -> tuple[Floats, Floats]:
        """Carry states through some chunks; fill in their steps; return the last states and the log-scales."""
        scale = np.zeros(len(some))
        for place in self.place[:, some]:
            moved = carry_ahead(state, self._drift.of(place))
            if begin is not None and end is not None:
                begin[place], end[place] = state, moved
            state = np.matmul(moved[:, None, :], self._tables[self._code[place]])[:, 0]
            scale += _rescale(state)
        return state, scale

    def backward(self, value: Floats, some: Ints, begin: Floats, end: Floats) -> Floats:
        """Carry values back through some chunks; fill in begin and end of their steps; return the first."""
        for place in self.place[::-1, some]:
            moved = np.matmul(self._tables[self._code[place]], value[:, :, None])[:, :, 0]
            end[place] = moved
            value = carry_back(moved, self._drift.of(place))
            _rescale(value)
            begin[place] = value
        return value


def _rescale(values: Floats) -> Floats:
    """Make the entries of each row sum to one, in place; return the logarithms of their sums."""
    total = values.sum(axis=1, keepdims=True)
    values /= total
    result: Floats = np.log(total[:, 0])
    return result


def _run_forward(chunks: _Chunks, start: Floats, begin: Floats | None = None, end: Floats | None = None) -> Floats:
    """Fill in the states given the record so far, if there is room; return the log-likelihood of each chunk.

    A chunk starts where the one before it ends. All run at once from their station's start as a guess, then those again
    whose start has moved, up to `_ROUNDS` times: what was the case more than three chunks ago makes no difference.
    """
    number = len(chunks.is_first)
    last, scale = np.empty((number, STATES)), np.empty(number)
    at = start[np.cumsum(chunks.is_first) - 1]
    some = np.arange(number)
    for _ in range(_ROUNDS):
        last[some], scale[some] = chunks.forward(at[some], some, begin, end)
        before = np.roll(last, 1, axis=0)
        some = np.flatnonzero(~chunks.is_first & (np.abs(before - at).max(axis=1) > _SETTLED))
        if len(some) == 0:
            break
        at[some] = before[some]
    return scale


def _run_backward(chunks: _Chunks, begin: Floats, end: Floats) -> None:
    """Fill in the likelihood of what is still to come, by hidden state; as `_run_forward`, from the end."""
    number = len(chunks.is_first)
    at, first = np.full((number, STATES), 1.0 / STATES), np.empty((number, STATES))
    is_last = np.roll(chunks.is_first, -1)
    some = np.arange(number)
    for _ in range(_ROUNDS):
        first[some] = chunks.backward(at[some], some, begin, end)
        behind = np.roll(first, -1, axis=0)
        some = np.flatnonzero(~is_last & (np.abs(behind - at).max(axis=1) > _SETTLED))
        if len(some) == 0:
            break
        at[some] = behind[some]


def log_likelihood(fault: Fault, steps: Steps) -> float:
    """Log-likelihood of the record, up to a constant that does not depend on the parameters."""
    return float(log_likelihoods([fault], steps)[0])


def log_likelihoods(faults: Sequence[Fault], steps: Steps) -> Floats:
    """Log-likelihood of the record for each of several parameters, in one pass."""
    start = np.concatenate([initial(fault, steps) for fault in faults])
    total: Floats = _run_forward(_Chunks(faults, steps), start).reshape(len(faults), -1).sum(axis=1)
    return total


def smooth(fault: Fault, steps: Steps) -> Smoothed:
    """Find the distribution of the hidden state at both ends of every step, given the whole record.

    Parameters
    ----------
    fault : Fault
        The parameters.
    steps : Steps
        At least one.

    Examples
    --------
    A vehicle is brought to an empty station and listed all day; nobody takes it, though four riders are expected to:

    >>> from unmet.mobility.supply.broken import BROKEN
    >>> one = np.ones(2, dtype=np.int64)
    >>> listed, returned = np.array([0, 1]), np.array([1, 0])
    >>> steps = Steps(0 * one, 720.0 * one, 4.0 * one, listed, 0 * one, returned, 0 * one, one < 0)
    >>> found = smooth(Fault(breakage=0.02, repair=1 / 1440), steps)
    >>> bool(found.end[1, BROKEN == 1].sum() > 0.3)
    True
    """
    chunks = _Chunks([fault], steps)
    begin, end, begin_back, end_back = (np.empty((len(steps) + 1, STATES)) for _ in range(4))
    total = _run_forward(chunks, initial(fault, steps), begin, end)
    _run_backward(chunks, begin_back, end_back)
    begin, end = begin[:-1] * begin_back[:-1], end[:-1] * end_back[:-1]
    for table in (begin, end):
        _rescale(table)
    return Smoothed(begin, end, float(total.sum()))
