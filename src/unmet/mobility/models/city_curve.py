"""What the zones of a city share: how its demand rises and falls as a whole.

Weather, season, holidays and most of the week move all zones of a city alike. A zone alone has to learn all of that
from its own few trips, in which chance and stock-outs sit side by side: what it mistakes for weather it finds again in
the very hours that ran out. So the city is learnt first, from the sum of its zones, and each zone then learns its level
and how it differs (`unmet.mobility.models.zone_models.demand_kernel`).

Real cities also have good and bad days that nothing recorded explains. In the sum of all zones they stand out far above
chance; without a term of their own they would bend the trend and the weather to fit. They have one, and it is left
out of the curve: what a zone is told is what can be explained, in bins that were seen and in others alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from unmet._exceptions import ConvergenceWarning
from unmet._parameters import LogNormal, Parameter
from unmet._typing import Array, BoolArray
from unmet.estimators import CensoredGP
from unmet.kernels import SquaredExponential
from unmet.mobility.models.zone_data import NOT_COVARIATES, SHARED, SHARED_OFF, ZoneData, zone_data
from unmet.mobility.models.zone_models import SEARCH_ITERATIONS, demand_kernel, inference_for

__all__ = ["LEAST_ZONES", "shared_curve"]

LEAST_ZONES = 8
"""With fewer, a zone would meet too much of its own chance in what it is told of the others."""

_BIN = ["start", "start_local", "minutes"]
_MOMENT = "moment"  # time once more, for what is left out of the curve
# Days: how long a good or a bad day lasts. Over a longer record it is as short as some 500 of them allow: each needs
# features of its own, and without enough of them all other terms would be drawn coarsely.
_SPELL, _SPELLS, _FEATURES = 0.7, 500, 1200
_SEARCH_WEEKS = 16
_DRAWS = 200
_TOTALS = ["observed", "seen", "usual"]


def shared_curve(zones: Iterable[tuple[pd.DataFrame, ZoneData]], seed: int = 0) -> pd.DataFrame | None:
    """The city's log-rate about that of its mean; None where zones are too few or no trips.

    In each bin the observed trips of all zones are added up. The city's exposure is the share of its usual demand
    at that hour of the week (pickups over exposure, zone by zone) that had something to rent. With these counts the
    city is estimated as if it were one zone.

    The frame has ``start``, ``shared_log_rate``, and ``shared_off_1`` ...: how that may be off, the directions
    in which it is least known, weighted by demand. Each is to be multiplied by a standard normal number.

    Parameters
    ----------
    zones, seed
        As of `unmet.mobility.models.city.learn_shared`.

    Examples
    --------
    >>> shared_curve([]) is None
    True
    """
    totals, bins, count = pd.DataFrame(columns=_TOTALS, dtype=float), pd.DataFrame(), 0
    for rows, data in zones:
        if not data.has_counts:
            continue
        count += 1
        totals = totals.add(_totals(data), fill_value=0.0)
        own = [c for c in rows.columns if c in _BIN or c == "holiday" or c not in NOT_COVARIATES]
        bins = rows[own] if bins.empty else _joined(bins, rows[own])
    if count < LEAST_ZONES or not totals["observed"].any():
        return None
    with threadpool_limits(limits=1):  # the order in which threads add up would show in the last digits
        data = _as_one_zone(bins, totals)
        gp = _fit(data, seed)
        # At one moment for all bins every day is as good or bad as that one: a constant, which the level takes.
        at = data.inputs.assign(**{_MOMENT: float(data.inputs.loc[data.seen, _MOMENT].median())})
        rate = gp.predict_quantiles(at, [0.5], kind="latent")[:, 0]
        off = _directions(np.log(gp.sample(at, _DRAWS, random_state=seed) / rate), rate)
    curve = pd.DataFrame({"start": data.start, SHARED: np.log(rate / rate.mean())})
    return curve.assign(**dict(zip(SHARED_OFF, off, strict=True)))


def _joined(bins: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The bins of several zones, without covariates that differ between them: those say nothing of the city."""
    both = bins.merge(rows, on="start", how="inner", suffixes=("", " "))
    for name in [c for c in rows.columns if c not in _BIN]:
        if name not in bins or not _same(both[name], both[f"{name} "]):
            rows, bins = rows.drop(columns=name), bins.drop(columns=name, errors="ignore")
    fresh = rows[~rows["start"].isin(bins["start"])]
    joined = bins if fresh.empty else pd.concat([bins, fresh], ignore_index=True)
    return joined[[c for c in joined.columns if c in rows.columns]]


def _same(left: pd.Series, right: pd.Series) -> bool:
    """Equal in every bin, whatever their types: whole numbers are fractions where one is missing elsewhere."""
    return bool(((left == right) | (left.isna() & right.isna())).all())


def _directions(draws: Array, rate: Array) -> Array:
    """Principal components of draws of a log-rate, each by its standard deviation; its level does not count."""
    share = rate / rate.mean()
    weight = np.sqrt(share)
    draws = draws - (draws * share).mean(axis=1, keepdims=True)
    _, size, rows = np.linalg.svd((draws - draws.mean(axis=0)) * weight, full_matrices=False)
    count = len(SHARED_OFF)
    off = np.zeros((count, len(rate)))
    found = min(count, len(size))
    off[:found] = size[:found, None] * rows[:found] / weight / np.sqrt(len(draws) - 1)
    return off


def _fit(data: ZoneData, seed: int) -> CensoredGP:
    """Hyper-parameters from some whole weeks, posterior from all; with a term for good and bad days."""
    kernel = demand_kernel(data)
    if not data.daily:  # for days, the counts' own dispersion is that
        shock = Parameter(0.03, prior=LogNormal(0.03, 1.5))
        spell = max(_SPELL, float(np.ptp(data.inputs[_MOMENT])) / _SPELLS)
        kernel = kernel + SquaredExponential(shock, Parameter(spell, fixed=True), columns=_MOMENT)
    week, moment = np.divmod(data.inputs[_MOMENT].to_numpy(), 7.0)
    weeks = np.unique(week[data.seen])
    some = np.sort(np.random.default_rng(seed).permutation(weeks)[:_SEARCH_WEEKS])
    # Moved together, so that the good and bad days of the weeks between them need no features.
    moved = data.inputs.assign(**{_MOMENT: 7.0 * np.searchsorted(some, week) + moment})
    search = CensoredGP(
        kernel,
        likelihood="negative-binomial",
        inference=inference_for(data),
        n_features=_FEATURES,
        max_iter=SEARCH_ITERATIONS,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it may end at its limit with little to gain
        found = _fitted(search, data, moved, data.seen & np.isin(week, some))
    return _fitted(found.with_learnt_parameters(), data, data.inputs, data.seen)


def _fitted(gp: CensoredGP, data: ZoneData, inputs: pd.DataFrame, rows: BoolArray) -> CensoredGP:
    return gp.fit(inputs[rows], data.observed[rows], exposure=data.exposure[rows])


def _totals(data: ZoneData) -> pd.DataFrame:
    """What a zone adds to the city: trips, and its usual demand in each bin, that which could be seen and all of it."""
    seen = data.seen
    pickups = np.where(seen, data.observed, 0.0)
    time = np.where(seen, data.exposure, 0.0)
    mean = pickups.sum() / time.sum()
    # An hour of the week little seen is taken for the zone's mean: as if that had been seen once more.
    usual = (np.bincount(data.slot, pickups, minlength=168) + mean) / (np.bincount(data.slot, time, minlength=168) + 1)
    rate: Array = usual[data.slot]
    return pd.DataFrame({"observed": pickups, "seen": time * rate, "usual": rate}, index=data.start)


def _as_one_zone(bins: pd.DataFrame, totals: pd.DataFrame) -> ZoneData:
    frame = bins.sort_values("start", ignore_index=True)
    totals = totals.loc[pd.DatetimeIndex(frame["start"])]
    states = dict.fromkeys([f"{state}_minutes" for state in ("available", "stockout", "closed", "unknown")], 0.0)
    frame = frame.assign(zone="all zones", observed=0.0, exposure=0.0, censored=False, **states)
    # Not by way of the frame: a zone's exposure is raised where a pickup proves it, which does not hold for a share.
    seen, usual = totals["seen"].to_numpy(), totals["usual"].to_numpy()
    share = np.divide(seen, usual, out=np.zeros(len(seen)), where=usual > 0)
    data = zone_data(frame)
    inputs = data.inputs.assign(**{_MOMENT: data.inputs["t"]})
    return replace(data, inputs=inputs, observed=totals["observed"].to_numpy(), exposure=share)
