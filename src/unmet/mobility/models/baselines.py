"""Plain baselines, which every other model should beat."""

from __future__ import annotations

import numpy as np

from unmet._exceptions import InputError
from unmet._typing import BoolArray
from unmet.mobility.clock.bins import HOURS_OF_WEEK
from unmet.mobility.models.rates import Rates
from unmet.mobility.models.zone_data import ZoneData

__all__ = ["drop_censored", "observed", "weekly_mean"]


def observed(data: ZoneData, draws: int, seed: int) -> Rates:
    """Take the observed trips as demand."""
    rate = np.where(np.isfinite(data.observed), data.observed, np.nanmean(data.observed))
    zero = np.zeros((draws, len(data)))
    return Rates(rate, np.zeros(len(data)), rate, rate, zero, zero[0], zero + rate, {"converged": True})


def weekly_mean(data: ZoneData, draws: int, seed: int) -> Rates:
    """Divide pickups by exposure, for each hour of the week."""
    return _by_hour_of_week(data, draws, seed, data.seen)


def drop_censored(data: ZoneData, draws: int, seed: int) -> Rates:
    """Do as `weekly_mean` on the uncensored bins only, which are selected for low demand."""
    return _by_hour_of_week(data, draws, seed, data.seen & ~data.censored)


def _by_hour_of_week(data: ZoneData, draws: int, seed: int, rows: BoolArray) -> Rates:
    """Use Gamma(pickups, exposure) as the rate of each hour of the week, and Poisson losses.

    The mean of that gamma distribution is pickups over exposure, for hours with at least one bin of exposure.
    """
    if not rows.any():
        raise InputError("No bin is left to learn from.")
    rng = np.random.default_rng(seed)
    count = np.bincount(data.slot[rows], data.observed[rows], minlength=HOURS_OF_WEEK)
    time = np.bincount(data.slot[rows], data.exposure[rows], minlength=HOURS_OF_WEEK)
    # An hour of the week with less supply than one full bin in all gets the zone's mean for the rest of that bin: a
    # pickup in a moment of supply would count as hundreds. One that never had supply is flagged as extrapolation.
    rest = np.maximum(1.0 - time, 0.0)
    shape, time = count + rest * count.sum() / time.sum(), time + rest
    by_slot = rng.gamma(shape, 1 / time, size=(draws, HOURS_OF_WEEK))
    mean = (shape / time)[data.slot]
    rate = by_slot[:, data.slot]
    some = np.where(np.isfinite(data.observed), data.stockout, 0.0)
    q05, q95 = np.quantile(by_slot, [0.05, 0.95], axis=0)[:, data.slot]
    q05, q95 = np.minimum(q05, mean), np.maximum(q95, mean)  # a gamma of small shape has its mean above most draws
    future = rng.poisson(rate).astype(float) if np.isnan(data.observed).any() else None
    lost = rng.poisson(some * rate).astype(float)
    return Rates(mean, by_slot.std(axis=0)[data.slot], q05, q95, lost, some * mean, future, {"converged": True})
