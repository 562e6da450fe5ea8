"""The forward-backward recursion over the hidden number of vehicles that cannot be rented.

`unmet.mobility.supply.broken` has the model of one step. Here stations are cut into chunks of steps that are worked on
side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.supply.broken import (
    STATES,
    Drift,
    Fault,
    Steps,
    carry_ahead,
    carry_back,
    demand_with,
    event_codes,
    event_tables,
    initial,
)

__all__ = ["Chunks", "Smoothed", "log_likelihood", "log_likelihoods", "smooth"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHUNK = 128
_SETTLED, _ROUNDS = 1e-6, 4


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


class Chunks:
    """Chunks of steps that are worked on side by side.

    A chunk begins where its station lists nothing, if it can: the hidden state is known there, so that nothing before
    makes a difference. Chunks are sorted by length. Row `t` holds the steps number `t` of all chunks that are so long.
    Rows lie one behind the other, so that no place is empty.

    Attributes
    ----------
    first : array of int
        First step of each chunk.
    known : array of bool
        Whether the hidden state is known where a chunk begins.
    before, behind : array of int
        The chunk that ends where a chunk begins, and the one that begins where it ends; -1 if that makes no difference.
    wide : array of int
        Number of chunks with a step in each row.
    order : array of int
        The step at each place.
    """

    def __init__(self, steps: Steps) -> None:
        cut, known = _cuts(steps)
        length = np.diff(np.append(cut, len(steps)))
        by_length = np.argsort(-length, kind="stable")
        rank = np.empty_like(by_length)
        rank[by_length] = np.arange(len(cut))
        self.first, self.known = cut[by_length], known[by_length]
        self.before = np.where(known, -1, np.append(-1, rank[:-1]))[by_length]
        self.behind = np.append(np.where(known[1:], -1, rank[1:]), -1)[by_length]
        self.wide = np.cumsum(np.bincount(length)[:0:-1])[::-1]
        row = np.repeat(np.arange(len(self.wide)), self.wide)
        chunk = np.arange(len(row)) - np.repeat(np.cumsum(self.wide) - self.wide, self.wide)
        self.order = self.first[chunk] + row
        self.steps, self.arranged, self.code = steps, steps.select(self.order), event_codes(steps)[self.order]


class _Passes:
    """The recursions through all chunks, for several faults side by side: each chunk has a column per fault."""

    def __init__(self, chunks: Chunks, faults: Sequence[Fault]) -> None:
        number = np.arange(len(faults))

        def columns(chunk: Ints) -> Ints:
            return np.where(chunk[:, None] < 0, -1, chunk[:, None] * len(faults) + number).ravel()

        self.before, self.behind = columns(chunks.before), columns(chunks.behind)
        self._wide = chunks.wide * len(faults)
        self._row = (np.cumsum(self._wide) - self._wide).tolist()
        drift = Drift(faults, chunks.arranged)
        self._factors, self._taken = drift.factors, drift.taken
        tables = np.array([event_tables(fault) for fault in faults])
        self._code = (chunks.code[:, None] + number * tables.shape[1]).ravel()
        self._tables = tables.reshape(-1, STATES, STATES).transpose(1, 2, 0).copy()
        begin = np.array([initial(fault, chunks.steps) for fault in faults])  # faults, stations, states
        begins = chunks.steps.first
        # Where the state is not known, a guess by the station's own records alone.
        station = np.searchsorted(begins, chunks.first, side="right") - 1
        is_first = begins[station] == chunks.first
        start = np.where((chunks.known & ~is_first)[:, None], np.eye(STATES)[0], begin[:, station])
        self.start = start.transpose(2, 1, 0).reshape(STATES, -1)

    def __len__(self) -> int:
        return len(self.before)

    def _rows(self, some: Ints | None) -> list[tuple[int, slice | Ints]]:
        """Number of columns with a step, and the places of these steps, row after row; of some columns or all."""
        if some is None:
            return [(w, slice(r, r + w)) for r, w in zip(self._row, self._wide.tolist(), strict=True)]
        wide = np.searchsorted(some, self._wide).tolist()
        return [(w, r + some[:w]) for r, w in zip(self._row, wide, strict=True) if w]

    def forward(self, state: Floats, some: Ints | None, begin: Floats | None, end: Floats | None) -> Floats:
        """Carry states through some columns, in place; fill in their steps; return the log-scales."""
        scale = np.zeros(state.shape[1])
        for wide, at in self._rows(some):
            here = state[:, :wide]
            if begin is not None:
                begin[:, at] = here
            carry_ahead(here, self._factors[:, at], self._taken[:, at])
            if end is not None:
                end[:, at] = here
            here[:] = np.einsum("ic,ijc->jc", here, self._tables.take(self._code[at], axis=2))
            scale[:wide] += _rescale(here)
        return scale

    def backward(self, value: Floats, some: Ints | None, begin: Floats, end: Floats) -> None:
        """Carry values back through some columns, in place; fill in begin and end of their steps."""
        for wide, at in reversed(self._rows(some)):
            here = value[:, :wide]
            here[:] = np.einsum("ijc,jc->ic", self._tables.take(self._code[at], axis=2), here)
            end[:, at] = here
            carry_back(here, self._factors[:, at], self._taken[:, at])
            _rescale(here)
            begin[:, at] = here


def _cuts(steps: Steps) -> tuple[Ints, NDArray[np.bool_]]:
    """First step of every chunk, and whether the hidden state is known there.

    Blocks of `_CHUNK` steps are counted from the first of each station. A chunk begins in every block: at the first
    step at which nothing is listed, at the begin if there is none, and at the first step of the station in any case.
    """
    first = steps.first
    count = np.diff(np.append(first, len(steps)))
    blocks = -(-count // _CHUNK)
    block = np.cumsum(blocks) - blocks  # the first of each station
    cut = np.repeat(first - block * _CHUNK, blocks) + np.arange(int(blocks.sum())) * _CHUNK
    empty = np.flatnonzero(steps.listed == 0)
    of = np.searchsorted(cut, empty, side="right") - 1
    found, which = np.unique(of, return_index=True)
    known = np.zeros(len(cut), dtype=bool)
    cut[found], known[found] = empty[which], True
    cut[block], known[block] = first, True
    return cut, known


def _rescale(values: Floats) -> Floats:
    """Make the entries of each column sum to one, in place; return the logarithms of their sums."""
    total = values.sum(axis=0)
    values /= total
    result: Floats = np.log(total)
    return result


def _settle(at: Floats, neighbour: Ints, run: Callable[[Floats, Ints | None], Floats]) -> None:
    """Run all chunks from a guess, then those again whose neighbour ends elsewhere, up to `_ROUNDS` times.

    What was the case more than three chunks away makes no difference.
    """
    last = run(at.copy(), None)
    joined = np.flatnonzero(neighbour >= 0)
    for _ in range(_ROUNDS - 1):
        moved = np.abs(last[:, neighbour[joined]] - at[:, joined]).max(axis=0, initial=0.0) > _SETTLED
        some = joined[moved]
        if len(some) == 0:
            break
        at[:, some] = last[:, neighbour[some]]
        last[:, some] = run(at[:, some], some)


def _run_forward(passes: _Passes, begin: Floats | None = None, end: Floats | None = None) -> Floats:
    """Fill in the states given the record so far, if there is room; return the log-likelihood of each column."""
    scale = np.empty(len(passes))

    def run(state: Floats, some: Ints | None) -> Floats:
        scale[slice(None) if some is None else some] = passes.forward(state, some, begin, end)
        return state

    _settle(passes.start, passes.before, run)
    return scale


def _run_backward(passes: _Passes, begin: Floats, end: Floats) -> None:
    """Fill in the likelihood of what is still to come, by hidden state."""

    def run(value: Floats, some: Ints | None) -> Floats:
        passes.backward(value, some, begin, end)
        return value

    _settle(np.full(passes.start.shape, 1.0 / STATES), passes.behind, run)


def log_likelihood(fault: Fault, steps: Steps) -> float:
    """Log-likelihood of the record, up to a constant that does not depend on the parameters."""
    return float(log_likelihoods([fault], Chunks(steps))[0])


def log_likelihoods(faults: Sequence[Fault], chunks: Chunks) -> Floats:
    """Log-likelihood of a record for each of several parameters, in one pass."""
    total: Floats = _run_forward(_Passes(chunks, faults)).reshape(-1, len(faults)).sum(axis=0)
    return total + [_of_demand(fault, chunks.steps) for fault in faults]


def _of_demand(fault: Fault, steps: Steps) -> float:
    """Logarithm of the factor of the rates to the power of the pickups, which is the same for all states."""
    some = steps.listed > 0
    return float(np.log(demand_with([fault], steps.listed[some])[:, 0]) @ steps.pickups[some])


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
    chunks = Chunks(steps)
    passes = _Passes(chunks, [fault])
    begin, end, begin_back, end_back = (np.empty((STATES, len(steps))) for _ in range(4))
    total = _run_forward(passes, begin, end)
    _run_backward(passes, begin_back, end_back)
    for table, back in ((begin, begin_back), (end, end_back)):
        table *= back
        _rescale(table)
        back[:, chunks.order] = table
    return Smoothed(begin_back.T, end_back.T, float(total.sum()) + _of_demand(fault, steps))
