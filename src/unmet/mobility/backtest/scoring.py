"""Scores of a trial, kept as sums so that zones can be pooled without their bins.

=========================== =====================================================================================
``rows``, ``trips``         number of scored bins, and number of true trips in them
``bias``                    estimated over true trips, less one: −0.1 means that a tenth is missing
``wape``, ``rmse``          total absolute error over total trips; root mean squared error, of the mean
``crps``                    continuous ranked probability score of the draws, in trips; smaller is better
``pinball_05 …``            pinball loss of the draws' quantiles
``coverage_80 …``           share of the bins whose truth is in the central interval of the draws, ends included. For
                            counts it exceeds 80 % even for a correct model, by much if the counts are small
``calibration_80 …``        the same with ties broken evenly: 0.8 for a correct model, also of counts
``stockout_correlation``    correlation of the estimate with the stock-out share, within hours of the week: well below 0
                            if the estimate follows supply; a little above 0 for the truth, which causes stock-outs
``error_correlation``       correlation of the error with the stock-out share, likewise: 0 for a correct model
=========================== =====================================================================================
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from unmet._exceptions import NumericalError
from unmet._typing import Array, IntArray
from unmet.metrics import crps_samples
from unmet.mobility.backtest.trials import ALL, CUT, FULL, HELD_OUT, SUBSETS, Trial
from unmet.mobility.models.rates import Rates

__all__ = ["LEVELS", "METRICS", "answer", "metrics_of", "tally", "tidy"]

LEVELS = (50, 80, 90, 95)
PINBALL = (5, 50, 95)
_MEANS = (
    "crps",
    *(f"pinball_{q:02d}" for q in PINBALL),
    *(f"{kind}_{level}" for kind in ("coverage", "calibration") for level in LEVELS),
)
METRICS = ("rows", "trips", "bias", "wape", "rmse", *_MEANS, "stockout_correlation", "error_correlation")


def answer(trial: Trial, rates: Rates, seed: int) -> tuple[Array, Array]:
    """Give the mean and the draws of the demand that the truth covers, for the scored rows.

    The truth covers a part of the time without supply. A model's lost trips are spread evenly over that time.

    Returns
    -------
    mean : array of shape (k,)
    draws : array of shape (draws, k)
    """
    at = np.flatnonzero(trial.scored)
    part = trial.part[at]
    hidden = np.isnan(trial.data.observed[at])
    seen = np.where(hidden, 0.0, trial.data.observed[at])
    more = rates.lost[:, at]
    if hidden.any():
        if rates.future is None:
            raise NumericalError("the model returned no draws of demand (Rates.future) for bins without observations")
        more = np.where(hidden, rates.future[:, at], more)
    mean = seen + part * np.where(hidden, rates.mean[at], rates.lost_mean[at])
    draws = seen + _part_of(more, part, seed)
    if not (np.isfinite(mean).all() and np.isfinite(draws).all()):
        raise NumericalError("the model returned estimates that are not finite")
    return mean, draws


def _part_of(draws: Array, part: Array, seed: int) -> Array:
    """Thin counts, trip by trip, to a part of their time; scale values that are not counts."""
    if not (draws == np.floor(draws)).all() or (draws < 0).any():
        return draws * part
    some = (part > 0) & (part < 1)
    kept = draws * (part >= 1)
    kept[:, some] = np.random.default_rng(seed).binomial(draws[:, some].astype(np.int64), part[some])
    return kept


def tally(trial: Trial, mean: Array, draws: Array) -> pd.DataFrame:
    """Sum the scores of the scored bins, one row per subset that has any.

    Held-out bins that were not fully available count only for the bias of all bins: they are selected for high demand,
    and no distribution is correct for bins selected that way.
    """
    scored = np.flatnonzero(trial.scored)
    truth, kind = trial.truth[scored], trial.subset[scored]
    subsets = (ALL, FULL) if trial.task == HELD_OUT else SUBSETS
    rows = []
    for subset in subsets:
        at = np.flatnonzero({ALL: np.ones(kind.size, dtype=bool), CUT: kind != FULL}.get(subset, kind == subset))
        if not at.size:
            continue
        sums = {"rows": float(at.size), "trips": float(truth[at].sum()), "estimate": float(mean[at].sum())}
        if trial.task != HELD_OUT or subset == FULL:
            sums |= _errors(truth[at], mean[at]) | _distances(truth[at], draws[:, at])
        if trial.task != HELD_OUT and subset == ALL:
            sums |= _products(trial.data.stockout[scored], mean, truth, trial.data.slot[scored])
        rows.append({"task": trial.task, "subset": subset, **sums})
    return pd.DataFrame(rows)


def _errors(truth: Array, mean: Array) -> dict[str, float]:
    return {"absolute": float(np.abs(mean - truth).sum()), "squared": float(np.square(mean - truth).sum())}


def _distances(truth: Array, draws: Array) -> dict[str, float]:
    """Sum the scores of whole distributions."""
    sums = {"crps": truth.size * crps_samples(truth, draws)}
    for q in PINBALL:
        miss = truth - np.quantile(draws, q / 100, axis=0)
        sums[f"pinball_{q:02d}"] = float(np.maximum(q / 100 * miss, (q / 100 - 1) * miss).sum())
    # Range of the truth's rank among the draws; ties make it wide. It is uniform for a correct model.
    low = (draws < truth).sum(axis=0) / (len(draws) + 1)
    high = ((draws <= truth).sum(axis=0) + 1) / (len(draws) + 1)
    for level in LEVELS:
        tail = (1 - level / 100) / 2
        begin, end = np.quantile(draws, [tail, 1 - tail], axis=0)
        sums[f"coverage_{level}"] = float(((begin <= truth) & (truth <= end)).sum())
        inside = np.minimum(high, 1 - tail) - np.maximum(low, tail)
        sums[f"calibration_{level}"] = float((np.maximum(inside, 0.0) / (high - low)).sum())
    return sums


def _products(stockout: Array, mean: Array, truth: Array, slot: IntArray) -> dict[str, float]:
    """Sum squares and products about the means of each hour of the week."""
    size = np.bincount(slot)

    def about(values: Array) -> Array:
        return values - (np.bincount(slot, values) / np.maximum(size, 1))[slot]

    x, estimate, error = about(stockout), about(mean), about(mean - truth)
    return {
        "xx": float(x @ x),
        "xm": float(x @ estimate),
        "mm": float(estimate @ estimate),
        "xe": float(x @ error),
        "ee": float(error @ error),
    }


def metrics_of(sums: pd.DataFrame) -> pd.DataFrame:
    """Compute metrics from sums, row by row; NaN if one is not defined, such as the bias of no trips."""

    def column(name: str) -> Array:
        return sums[name].to_numpy(dtype=float) if name in sums else np.full(len(sums), np.nan)

    with np.errstate(divide="ignore", invalid="ignore"):
        rows, trips = column("rows"), np.where(column("trips") > 0, column("trips"), np.nan)
        values = {
            "rows": rows,
            "trips": column("trips"),
            "bias": column("estimate") / trips - 1,
            "wape": column("absolute") / trips,
            "rmse": np.sqrt(column("squared") / rows),
            **{name: column(name) / rows for name in _MEANS},
            "stockout_correlation": _correlation(column("xm"), column("xx"), column("mm")),
            "error_correlation": _correlation(column("xe"), column("xx"), column("ee")),
        }
    return pd.DataFrame(values, index=sums.index)


def _correlation(xy: Array, xx: Array, yy: Array) -> Array:
    # What is constant up to rounding is correlated with nothing.
    return np.where((xx > 1e-20) & (yy > 1e-20), xy / np.sqrt(xx * yy), np.nan)


def tidy(sums: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Make a table with one row per metric: `keys`, ``metric``, ``value``. An undefined metric has no row."""
    table = pd.concat([sums[keys], metrics_of(sums)], axis=1)
    long = table.melt(id_vars=keys, value_vars=list(METRICS), var_name="metric", value_name="value")
    return long.dropna(subset="value", ignore_index=True)
