"""Trials for models: a zone's data with something taken away whose truth is known.

Two ways to take away. **Held-out**: whole weeks are hidden, and the model says what demand was in them. **Replay**: on
some days supply is cut. The day starts with few vehicles, the pickups that really happened are served in their order
until none is left, and then the zone is out of stock until the day ends; what was not served is the loss that the model
should find.

Neither may choose by what demand turned out to be, or a right model would look wrong. Bins that never ran out are those
with little demand, and so are days without a stock-out: a right model is too high there. Hence

* days are chosen blindly, and a day with real stock-outs is replayed in the time that had supply: the truth speaks of
  that time only, and so does the estimate it is compared with (`Trial.part`);
* the vehicles at the start of a day are drawn from what *another* day would have needed;
* bias on held-out bins is also given over all bins: pickups against the rate times the exposure. Pickups less that are
  a martingale, whose mean is zero although exposure depends on demand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._typing import Array, BoolArray, IntArray
from unmet.mobility.models.zone_data import ZoneData

__all__ = ["HELD_OUT", "REPLAY", "SUBSETS", "TASKS", "Replayed", "Trial", "blocks", "hold_out", "replay", "serve"]

HELD_OUT, REPLAY = TASKS = ("held-out", "replay")
ALL, CUT, FULL, HALF_OR_MORE, UNDER_HALF, ZERO = SUBSETS = ("all", "cut", "full", ">= half", "< half", "zero")
"""All bins; all but the full ones; and classes of bins by exposure, for replays by the share of the available time that
the cut has left."""

_MONDAY = pd.Timestamp("1970-01-05")


@dataclass(frozen=True)
class Trial:
    """What a model is given, and what it is scored against.

    Attributes
    ----------
    task : str
        ``held-out`` or ``replay``.
    data : ZoneData
        What the model is given.
    scored : array of bool
        The rows that count.
    truth : array
        Pickups that really happened; NaN where that is not known.
    part : array
        Of the time in which the model is told of no supply, the share that really had some. The truth speaks of that
        part.
    subset : array of str
        Each row's class by exposure, of `SUBSETS`.
    """

    task: str
    data: ZoneData
    scored: BoolArray
    truth: Array
    part: Array
    subset: np.ndarray


def blocks(data: ZoneData, days: int) -> IntArray:
    """Number the stretches of so many local days; weeks begin on Mondays."""
    return np.asarray((data.local.normalize() - _MONDAY) // pd.Timedelta(days=days), dtype=np.intp)


def hold_out(data: ZoneData, *, fold: int, folds: int, share: float, seed: int) -> Trial:
    """Hide whole weeks; the same ones for all zones that have the same bins.

    Parameters
    ----------
    data : ZoneData
        What is known of the zone.
    fold, folds : int
        Which of how many trials with weeks of their own.
    share : float
        How many of the weeks are hidden.
    seed : int
        Decides which.
    """
    rng = np.random.default_rng([seed, 0])
    hidden = _chosen(blocks(data, 7), np.isfinite(data.observed), "weeks", fold, folds, share, rng)
    given = replace(
        data,
        observed=np.where(hidden, np.nan, data.observed),
        exposure=np.where(hidden, 0.0, data.exposure),
        stockout=np.where(hidden, 0.0, data.stockout),
        censored=data.censored & ~hidden,
    )
    if not given.seen.any():
        raise InputError(f"With {share:.0%} of its weeks hidden nothing is left to learn from.")
    return Trial(HELD_OUT, given, hidden & data.seen, data.observed, data.exposure, _classes(data.exposure))


def replay(data: ZoneData, returns: Array | None, *, fold: int, folds: int, share: float, seed: int) -> Trial:
    """Cut supply on some days (for bins of a day or more, in some weeks).

    Parameters
    ----------
    data : ZoneData
        What is known of the zone.
    returns : array, optional
        Vehicles brought back in each bin; they are to rent again. None where that is not known.
    fold, folds, share, seed
        As in `hold_out`, for days.
    """
    rng = np.random.default_rng([seed, 1, *data.zone.encode()])
    available = np.where(np.isfinite(data.observed), data.exposure, 0.0)
    window = blocks(data, 7 if data.daily else 1)
    chosen = _chosen(window, available > 0, "days", fold, folds, share, rng)
    pickups = _counts("pickups", np.where(available > 0, data.observed, 0.0))
    back = _counts("returns", np.zeros(len(data)) if returns is None else np.nan_to_num(returns))
    done = serve(pickups, back, window, chosen, rng)
    cut = (1.0 - done.kept) * available
    stockout = np.where(cut > 0, data.stockout + cut, data.stockout)
    given = replace(
        data,
        observed=np.where(chosen & (available > 0), done.served, data.observed),
        exposure=np.where(chosen, done.kept * available, data.exposure),
        stockout=stockout,
        censored=data.censored | (cut > 0),
    )
    part = np.divide(cut, stockout, out=np.zeros(len(data)), where=stockout > 0)
    return Trial(REPLAY, given, chosen & (available > 0), data.observed, part, _classes(done.kept))


@dataclass(frozen=True)
class Replayed:
    """What `serve` gives, per bin.

    Attributes
    ----------
    served : array of int
        Pickups until supply ran out.
    kept : array
        Share of the bin's available time until then.
    stock : dict
        Window → vehicles it started with.
    """

    served: IntArray
    kept: Array
    stock: dict[int, int]


def serve(
    pickups: IntArray, returns: IntArray, window: IntArray, chosen: BoolArray, rng: np.random.Generator
) -> Replayed:
    """Serve what happened in order, from a stock drawn for each window, until it is gone.

    Given their number, the pickups of a bin are spread evenly over its time: the moment of the k-th is a Beta order
    statistic, drawn here by drawing all. After the last vehicle is gone nothing is served until the window ends.

    Parameters
    ----------
    pickups, returns : array of int
        Per bin.
    window : array of int
        The window of each bin, ascending.
    chosen : array of bool
        Bins of the windows to cut; the others are as they were.
    rng : Generator
        Draws moments and stocks.

    Examples
    --------
    >>> day, none = np.array([0, 0, 1, 1]), np.zeros(4, dtype=int)
    >>> done = serve(np.array([5, 5, 5, 5]), none, day, day == 1, np.random.default_rng(2))
    >>> done.stock, done.served.tolist(), done.kept.round(2).tolist()
    ({1: 4}, [5, 5, 4, 0], [1.0, 1.0, 0.56, 0.0])
    """
    served, kept, stock = pickups.copy(), np.ones(len(pickups)), {}
    events = {first: _events(pickups[rows], returns[rows], rng) for first, rows in _windows(window)}
    # The stock with which a window would never have run out: its largest excess of pickups over returns.
    needs = np.array([max(0, -int(np.cumsum(step).min(initial=0))) for _, step in events.values()])
    for number, (first, rows) in enumerate(_windows(window)):
        if not chosen[rows].any():
            continue
        other = needs[rng.choice(np.delete(np.arange(len(needs)), number))] if len(needs) > 1 else needs[number]
        stock[first] = 1 + int(rng.uniform() * other)
        at, step = events[first]
        gone = np.flatnonzero(stock[first] + np.cumsum(step) == 0)
        if gone.size:
            last, moment = divmod(float(at[gone[0]]), 1.0)
            end = rows.start + int(last)
            served[end] = int(((step < 0) & (np.floor(at) == last))[: gone[0] + 1].sum())
            kept[end] = moment
            served[end + 1 : rows.stop], kept[end + 1 : rows.stop] = 0, 0.0
    return Replayed(served, kept, stock)


def _windows(window: IntArray) -> Iterator[tuple[int, slice]]:
    """Each window's name and its rows."""
    first = np.flatnonzero(np.r_[True, np.diff(window) != 0])
    for begin, end in zip(first, np.r_[first[1:], len(window)], strict=True):
        yield int(window[begin]), slice(int(begin), int(end))


def _events(pickups: IntArray, returns: IntArray, rng: np.random.Generator) -> tuple[Array, IntArray]:
    """Moments, in bins since the window's start, and −1 or +1 vehicle at each."""
    bins = np.arange(len(pickups))
    at = np.concatenate([np.repeat(bins, pickups), np.repeat(bins, returns)]).astype(float)
    step = np.repeat(np.array([-1, 1]), [pickups.sum(), returns.sum()])
    at += rng.uniform(size=at.size)
    order = np.argsort(at, kind="stable")
    return at[order], step[order]


def _chosen(
    group: IntArray, counts: BoolArray, unit: str, fold: int, folds: int, share: float, rng: np.random.Generator
) -> BoolArray:
    """Rows of the groups that a fold takes: a random part of those that have rows that count."""
    groups = rng.permutation(np.unique(group[counts]))
    size = max(1, round(share * groups.size))
    if groups.size < max(2, folds * size):
        raise InputError(
            f"{folds} folds of {share:.0%} of the {unit} need at least {max(2, folds * size)} {unit} with something "
            f"seen; there are {groups.size}"
        )
    return np.isin(group, groups[fold * size : (fold + 1) * size])


def _counts(what: str, values: Array) -> IntArray:
    bad = (values < 0) | (values != np.floor(values))
    if bad.any():
        raise InputError(
            f"A replay needs {what} as counts; {int(bad.sum())} bins have others, such as {values[bad][0]}."
        )
    return values.astype(np.intp)


def _classes(exposure: Array) -> np.ndarray:
    return np.select([exposure >= 1, exposure >= 0.5, exposure > 0], [FULL, HALF_OR_MORE, UNDER_HALF], ZERO)
