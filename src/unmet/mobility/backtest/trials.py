"""Trials of models: a zone's data with some of it removed, whose truth is known.

There are two tasks. **Held-out** hides whole weeks, and the model estimates their demand. **Replay** cuts supply on
some days: the day starts with few vehicles, the recorded pickups are served in their order until none is left, and the
zone is then out of stock until the day ends. The pickups that were not served are the loss that the model should find.

No choice may depend on the demand that occurred, or a correct model would look wrong: bins and days without a stock-out
are those with little demand, and a correct model is too high there. Hence

* days are chosen blindly. A day with real stock-outs is replayed in the time that had supply: the truth covers only
  that time, and so does the estimate that is compared with it (`Trial.part`);
* the number of vehicles at the start of a day is drawn from the need of *another* day;
* the bias on held-out bins is also computed over all bins, as pickups against rate times exposure. Their difference is
  a martingale: its mean is zero although exposure depends on demand.
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
"""All bins; all bins but the full ones; and classes of bins by exposure, in replays by the share of the available time
that the cut has left."""

_MONDAY = pd.Timestamp("1970-01-05")


@dataclass(frozen=True)
class Trial:
    """The data for a model, and the truth for its scores.

    Attributes
    ----------
    task : str
        ``held-out`` or ``replay``.
    data : ZoneData
        Data for the model.
    scored : array of bool
        Rows that are scored.
    truth : array
        Recorded pickups; NaN if unknown.
    part : array
        Of the time without supply in `data`, the share that really had supply. The truth covers that part.
    subset : array of str
        Class of each row by exposure, one of `SUBSETS`.
    """

    task: str
    data: ZoneData
    scored: BoolArray
    truth: Array
    part: Array
    subset: np.ndarray


def blocks(data: ZoneData, days: int) -> IntArray:
    """Number the blocks of this many local days; weeks begin on Mondays."""
    return np.asarray((data.local.normalize() - _MONDAY) // pd.Timedelta(days=days), dtype=np.intp)


def hold_out(data: ZoneData, *, fold: int, folds: int, share: float, seed: int) -> Trial:
    """Hide whole weeks; the same ones for all zones that have the same bins.

    Parameters
    ----------
    data : ZoneData
        The zone.
    fold, folds : int
        Number of the trial, and number of trials; each has weeks of its own.
    share : float
        Share of the weeks that are hidden.
    seed : int
        Decides which weeks.
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
        raise InputError(f"With {share:.0%} of its weeks hidden, no bin is left to learn from.")
    return Trial(HELD_OUT, given, hidden & data.seen, data.observed, data.exposure, _classes(data.exposure))


def replay(data: ZoneData, returns: Array | None, *, fold: int, folds: int, share: float, seed: int) -> Trial:
    """Cut supply on some days (for bins of a day or more, in some weeks).

    Parameters
    ----------
    data : ZoneData
        The zone.
    returns : array, optional
        Vehicles returned in each bin, which can be rented again. None if unknown.
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
    """The result of `serve`, per bin.

    Attributes
    ----------
    served : array of int
        Pickups until supply ran out.
    kept : array
        Share of the bin's available time until then.
    stock : dict
        Window → number of vehicles at its start.
    """

    served: IntArray
    kept: Array
    stock: dict[int, int]


def serve(
    pickups: IntArray, returns: IntArray, window: IntArray, chosen: BoolArray, rng: np.random.Generator
) -> Replayed:
    """Serve pickups in order from a stock drawn for each window, until it is empty.

    The pickups of a bin are spread uniformly over its time. After the last vehicle is gone, nothing is served until the
    window ends.

    Parameters
    ----------
    pickups, returns : array of int
        Numbers per bin.
    window : array of int
        Window of each bin, ascending.
    chosen : array of bool
        Bins of the windows to cut; the others are unchanged.
    rng : Generator
        Draws the times of pickups and the stocks.

    Examples
    --------
    >>> day, none = np.array([0, 0, 1, 1]), np.zeros(4, dtype=int)
    >>> done = serve(np.array([5, 5, 5, 5]), none, day, day == 1, np.random.default_rng(2))
    >>> done.stock, done.served.tolist(), done.kept.round(2).tolist()
    ({1: 4}, [5, 5, 4, 0], [1.0, 1.0, 0.56, 0.0])
    """
    served, kept, stock = pickups.copy(), np.ones(len(pickups)), {}
    events = {first: _events(pickups[rows], returns[rows], rng) for first, rows in _windows(window)}
    # The smallest stock with which a window never runs out: its largest excess of pickups over returns.
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
    """Yield the name and the rows of each window."""
    first = np.flatnonzero(np.r_[True, np.diff(window) != 0])
    for begin, end in zip(first, np.r_[first[1:], len(window)], strict=True):
        yield int(window[begin]), slice(int(begin), int(end))


def _events(pickups: IntArray, returns: IntArray, rng: np.random.Generator) -> tuple[Array, IntArray]:
    """Give the times of events, in bins since the window's start, and −1 or +1 vehicle at each."""
    bins = np.arange(len(pickups))
    at = np.concatenate([np.repeat(bins, pickups), np.repeat(bins, returns)]).astype(float)
    step = np.repeat(np.array([-1, 1]), [pickups.sum(), returns.sum()])
    at += rng.uniform(size=at.size)
    order = np.argsort(at, kind="stable")
    return at[order], step[order]


def _chosen(
    group: IntArray, counts: BoolArray, unit: str, fold: int, folds: int, share: float, rng: np.random.Generator
) -> BoolArray:
    """Choose the rows of a fold: a random share of the groups that have countable rows."""
    groups = rng.permutation(np.unique(group[counts]))
    size = max(1, round(share * groups.size))
    if groups.size < max(2, folds * size):
        raise InputError(
            f"{folds} folds of {share:.0%} of the {unit} need at least {max(2, folds * size)} {unit} with "
            f"observations; the zone has {groups.size}."
        )
    return np.isin(group, groups[fold * size : (fold + 1) * size])


def _counts(what: str, values: Array) -> IntArray:
    bad = (values < 0) | (values != np.floor(values))
    if bad.any():
        raise InputError(
            f"A replay needs {what} as whole numbers, 0 or more; {int(bad.sum())} bins have others, such as "
            f"{values[bad][0]}."
        )
    return values.astype(np.intp)


def _classes(exposure: Array) -> np.ndarray:
    return np.select([exposure >= 1, exposure >= 0.5, exposure > 0], [FULL, HALF_OR_MORE, UNDER_HALF], ZERO)
