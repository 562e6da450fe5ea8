"""The city's curve: how the demand of a city rises and falls as a whole.

Weather, season, holidays and most of the week move all zones of a city alike. A zone alone has too few trips to learn
these effects: it takes noise for weather, and finds it again in the hours that ran out. So the curve is learnt first,
from the sum of all zones. Each zone then learns its level and how it differs (`unmet.mobility.models.kernel`).

Real cities also have good and bad days that no record explains. In the sum of all zones they are far larger than noise.
They have a term of their own, because without it they would bend the trend and the weather. The curve leaves that term
out: it contains what the records explain, in observed and other bins alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from unmet._exceptions import ConvergenceWarning
from unmet._parameters import LogNormal, Parameter
from unmet._typing import Array, BoolArray
from unmet.estimators import CensoredGP
from unmet.estimators.kept import KeptGP
from unmet.kernels import SquaredExponential
from unmet.mobility.clock.bins import HOURS_OF_WEEK
from unmet.mobility.models.effects import find_effects
from unmet.mobility.models.fitting import SEARCH_ITERATIONS, inference_for
from unmet.mobility.models.kept import KeptCurve
from unmet.mobility.models.kernel import demand_kernel
from unmet.mobility.models.zone_data import CITY_ERRORS, CITY_RATE, NOT_COVARIATES, ZoneData, zone_data
from unmet.mobility.panel.schema import STATE_MINUTES

__all__ = ["LEAST_ZONES", "city_curve", "continued", "learn_curve"]

LEAST_ZONES = 8
"""With fewer zones, a zone's own noise would leak into the city curve."""

_BIN = ["start", "start_local", "minutes"]
_MOMENT = "moment"  # time once more, for the term that the curve leaves out
# Days: how long a good or bad spell lasts; longer in a record that would have more than `_SPELLS` of them. Each spell
# needs features of its own, and with too few features all other terms would be approximated coarsely.
_SPELL, _SPELLS, _FEATURES = 0.7, 500, 1200
_SEARCH_WEEKS = 16
_DRAWS = 200
# Standard deviation of the level of a city a week after its records, beyond what its own past shows; its square grows
# with time.
_TURN = 0.15
_TOTALS = ["observed", "seen", "usual"]


def city_curve(zones: Iterable[tuple[pd.DataFrame, ZoneData]], seed: int = 0) -> pd.DataFrame | None:
    """Learn the city's curve; return None if there are too few zones or no trips.

    In each bin the observed trips of all zones are added up. The city's exposure is the share of its usual demand at
    that hour of the week (pickups over exposure, zone by zone) that had something to rent. With these counts the city
    is estimated as one zone.

    Parameters
    ----------
    zones, seed
        As in `unmet.mobility.models.city.learn_city`.

    Returns
    -------
    DataFrame or None
        ``start``; ``shared_log_rate``, the log of the city's rate over its mean; ``shared_off_1`` and so on, the
        directions in which the curve is least certain, weighted by demand, and a last one for bins to come. The error
        of the curve is their sum, each multiplied by a standard normal number.

    Examples
    --------
    >>> city_curve([]) is None
    True
    """
    found = learn_curve(zones, seed)
    return None if found is None else found[0]


def learn_curve(
    zones: Iterable[tuple[pd.DataFrame, ZoneData]], seed: int = 0
) -> tuple[pd.DataFrame, KeptCurve | None, list[dict[str, Any]]] | None:
    """Learn the city's curve as `city_curve` does.

    Also return what continues it to later bins, for long records, and the effects of weather and holidays.
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
    with threadpool_limits(limits=1):  # the order in which threads add numbers changes the last digits
        data = _as_one_zone(bins, totals)
        gp = _fit(data, seed)
        # With the same moment for all bins, good and bad days become a constant, which the level absorbs.
        at = data.inputs.assign(**{_MOMENT: float(data.inputs.loc[data.seen, _MOMENT].median())})
        rate = gp.predict_quantiles(at, [0.5], kind="latent")[:, 0]
        draws = np.log(gp.sample(at, _DRAWS, random_state=seed) / rate)
        level, projection = _directions(draws, rate)
        effects = find_effects(gp, data, at, seed)
    kept, moment = KeptGP.of(gp), float(at[_MOMENT].iloc[0])
    assert data.scales is not None
    of_later = None if kept is None else KeptCurve(kept, data.scales, moment, rate.mean(), level, projection, seed)
    errors = np.vstack([projection @ _centred(draws, level), _turns(data.start, data.start[data.seen].max())])
    return _curve(data.start, rate, rate.mean(), errors), of_later, effects


def continued(kept: KeptCurve, bins: pd.DataFrame) -> pd.DataFrame:
    """Give the curve of `city_curve` for other bins, from the rows of any zone with the features of their bins."""
    states = dict.fromkeys(STATE_MINUTES, 0.0) | {"closed_minutes": bins["minutes"]}
    frame = bins.assign(zone="all zones", observed=0.0, exposure=0.0, censored=False, **states)
    with threadpool_limits(limits=1):
        data = zone_data(frame.drop(columns=["out_minutes", "observed_early"], errors="ignore"), kept.scales)
        at = data.inputs.assign(**{_MOMENT: kept.moment})
        rate = kept.gp.predict_quantiles(at, [0.5])[:, 0]
        draws = np.log(kept.gp.sample(at, _DRAWS, random_state=kept.seed) / rate)
    known = bins[~bins["future"].astype(bool)] if "future" in bins else bins
    errors = np.vstack([kept.projection @ _centred(draws, kept.level), _turns(data.start, known["start"].max())])
    return _curve(data.start, rate, kept.rate, errors)


def _turns(start: pd.DatetimeIndex, last: pd.Timestamp) -> Array:
    """Standard deviation of the level in bins after the last one with records: that of a random walk."""
    weeks = ((start - last) / pd.Timedelta(weeks=1)).to_numpy(dtype=float)
    return np.asarray(_TURN * np.sqrt(np.maximum(weeks, 0.0)))


def _curve(start: pd.DatetimeIndex, rate: Array, mean: float, off: Array) -> pd.DataFrame:
    curve = pd.DataFrame({"start": start, CITY_RATE: np.log(rate / mean)})
    return curve.assign(**dict(zip(CITY_ERRORS, off, strict=True)))


def _centred(draws: Array, level: Array) -> Array:
    draws = draws - level[:, None]
    return np.asarray(draws - draws.mean(axis=0))


def _joined(bins: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Join the bins of zones; drop covariates that differ between zones, which do not describe the city."""
    both = bins.merge(rows, on="start", how="inner", suffixes=("", " "))
    for name in [c for c in rows.columns if c not in _BIN]:
        if name not in bins or not _same(both[name], both[f"{name} "]):
            rows, bins = rows.drop(columns=name), bins.drop(columns=name, errors="ignore")
    fresh = rows[~rows["start"].isin(bins["start"])]
    joined = bins if fresh.empty else pd.concat([bins, fresh], ignore_index=True)
    return joined[[c for c in joined.columns if c in rows.columns]]


def _same(left: pd.Series, right: pd.Series) -> bool:
    """Compare two columns bin by bin; a column of whole numbers has another type if a value is missing elsewhere."""
    return bool(((left == right) | (left.isna() & right.isna())).all())


def _directions(draws: Array, rate: Array) -> tuple[Array, Array]:
    """Give the level of each draw of a log-rate, and the projection of centred draws on their principal components.

    With ``U S Vᵀ`` the weighted draws, the components times their standard deviations are ``S Vᵀ/√(n−1)``, which is
    ``Uᵀ/√(n−1)`` times the draws. The latter also holds at bins that were not among them.
    """
    share = rate / rate.mean()
    level = (draws * share).mean(axis=1)
    left, _, _ = np.linalg.svd(_centred(draws, level) * np.sqrt(share), full_matrices=False)
    count = len(CITY_ERRORS) - 1
    projection = np.zeros((count, len(draws)))
    found = min(count, left.shape[1])
    projection[:found] = left[:, :found].T / np.sqrt(len(draws) - 1)
    return level, projection


def _fit(data: ZoneData, seed: int) -> CensoredGP:
    """Fit the city, with a term for good and bad days: hyper-parameters from some weeks, the posterior from all."""
    kernel = demand_kernel(data)
    if not data.daily:  # with bins of a day, the dispersion of the counts has this role
        shock = Parameter(0.03, prior=LogNormal(0.03, 1.5))
        spell = max(_SPELL, float(np.ptp(data.inputs[_MOMENT])) / _SPELLS)
        kernel = kernel + SquaredExponential(shock, Parameter(spell, fixed=True), columns=_MOMENT)
    week, moment = np.divmod(data.inputs[_MOMENT].to_numpy(), 7.0)
    weeks = np.unique(week[data.seen])
    some = np.sort(np.random.default_rng(seed).permutation(weeks)[:_SEARCH_WEEKS])
    # The weeks are moved together in time, so that the weeks between them need no features.
    moved = data.inputs.assign(**{_MOMENT: 7.0 * np.searchsorted(some, week) + moment})
    search = CensoredGP(
        kernel,
        likelihood="negative-binomial",
        inference=inference_for(data),
        n_features=_FEATURES,
        optimizer="scoring",
        max_iter=SEARCH_ITERATIONS,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the search may end at its limit with little left to gain
        found = _fitted(search, data, moved, data.seen & np.isin(week, some))
    return _fitted(found.with_learnt_parameters(), data, data.inputs, data.seen)


def _fitted(gp: CensoredGP, data: ZoneData, inputs: pd.DataFrame, rows: BoolArray) -> CensoredGP:
    return gp.fit(inputs[rows], data.observed[rows], exposure=data.exposure[rows])


def _totals(data: ZoneData) -> pd.DataFrame:
    """Give a zone's part of the city's sums: trips, usual demand with supply (seen), and usual demand of each bin."""
    seen = data.seen
    pickups = np.where(seen, data.observed, 0.0)
    time = np.where(seen, data.exposure, 0.0)
    mean = pickups.sum() / time.sum()
    # One more bin at the zone's mean is added to each hour of the week, for hours with few records.
    by_hour, time_by_hour = (np.bincount(data.slot, w, minlength=HOURS_OF_WEEK) for w in (pickups, time))
    usual = (by_hour + mean) / (time_by_hour + 1)
    rate: Array = usual[data.slot]
    return pd.DataFrame({"observed": pickups, "seen": time * rate, "usual": rate}, index=data.start)


def _as_one_zone(bins: pd.DataFrame, totals: pd.DataFrame) -> ZoneData:
    frame = bins.sort_values("start", ignore_index=True)
    totals = totals.loc[pd.DatetimeIndex(frame["start"])]
    states = dict.fromkeys(STATE_MINUTES, 0.0) | {"closed_minutes": frame["minutes"]}
    frame = frame.assign(zone="all zones", observed=0.0, exposure=0.0, censored=False, **states)
    # Set after `zone_data`, which raises the exposure of bins with pickups: right for a zone, wrong for a share.
    seen, usual = totals["seen"].to_numpy(), totals["usual"].to_numpy()
    share = np.divide(seen, usual, out=np.zeros(len(seen)), where=usual > 0)
    data = zone_data(frame)
    inputs = data.inputs.assign(**{_MOMENT: data.inputs["t"]})
    return replace(data, inputs=inputs, observed=totals["observed"].to_numpy(), exposure=share)
