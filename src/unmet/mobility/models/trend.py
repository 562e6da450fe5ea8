"""How much and how fast the level of single zones moves against the city, learnt from the counts of whole days.

Hours next to each other are busy together, for reasons that no record explains (`unmet.mobility.models.shocks`). Counts
by hour are fitted as if each hour were on its own, so a search on hours takes a run of good hours for a movement of the
level: the trend comes out too fast, and is carried on beyond the records. A day is longer than such spells, and the
counts of days have a dispersion of their own that holds them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from unmet._parameters import LogNormal, Parameter
from unmet._typing import Array
from unmet.estimators import CensoredGP
from unmet.estimators.together import learn_together, with_data
from unmet.kernels import Constant, Linear, SquaredExponential
from unmet.mobility.models.fitting import SEARCH_ITERATIONS, inference_for_rows
from unmet.mobility.models.kernel import fixed, trend_medians
from unmet.mobility.models.zone_data import CITY_ERRORS, CITY_RATE, ZoneData

__all__ = ["daily_counts", "learn_trend"]

_GROUPS = 48  # hours of the day, apart at weekends
_LEAST_GAIN = 0.03  # nats, over all zones: the search stops below this gain
_LEAST_DAYS = 28  # with fewer, the prior decides
# Standard deviation of the prior of the log of the trend's variance. Several zones together show whether there is any
# trend beyond the city's, as there hardly is for returns: a narrower prior would not let it go.
_PRIOR_SD = 3.0
_SHORTEST, _LONGEST = 7.0, 400.0  # days: what moves within a week is dispersion, not trend
_VARIANCES, _DISPERSIONS = (1e-5, 0.5), (1e-3, 0.5)  # bounds; the search would try far larger ones
_DISPERSION = 0.03  # where the search starts: days vary less than hours


def learn_trend(zones: Sequence[ZoneData]) -> SquaredExponential | None:
    """Learn the trend of a zone's difference from the city's curve, one for all zones.

    Parameters
    ----------
    zones : sequence of ZoneData
        Zones with the city's curve among their inputs.

    Returns
    -------
    SquaredExponential or None
        With known hyper-parameters; None for bins of a day or longer, and for short records.
    """
    longest = max(zones, key=lambda data: float(np.ptp(data.inputs["t"])))
    if longest.daily:
        return None
    variance, length = trend_medians(longest, city=True)
    trend = SquaredExponential(
        Parameter(variance, bounds=_VARIANCES, prior=LogNormal(variance, _PRIOR_SD)),
        Parameter(max(length, _SHORTEST), bounds=(_SHORTEST, _LONGEST), prior=LogNormal(length, 0.5)),
        columns="t",
    )
    kernel = trend + Linear(fixed(1.0), columns=CITY_ERRORS) + Constant(fixed(0.1))
    fitted = []
    for data in zones:
        days = daily_counts(data)
        if len(days) >= _LEAST_DAYS:
            gp = CensoredGP(
                kernel,
                likelihood="negative-binomial",
                dispersion=Parameter(_DISPERSION, bounds=_DISPERSIONS),
                inference=inference_for_rows(len(days)),
                optimizer=None,
            )
            fitted.append(with_data(gp, days[["t", *CITY_ERRORS]], days["observed"], exposure=days["exposure"]))
    if not fitted:
        return None
    found = learn_together(fitted, max_iter=SEARCH_ITERATIONS, least_gain=_LEAST_GAIN).model.kernel.leaves()[0]
    return SquaredExponential(fixed(found.value("variance")), fixed(found.value("lengthscale")), columns="t")


def daily_counts(data: ZoneData) -> pd.DataFrame:
    """Sum the seen bins of a zone by local day.

    Returns
    -------
    DataFrame
        ``t`` and the errors of the city's curve (means of the day), ``observed``, and ``exposure``: the counts that the
        city's curve and the zone's usual hours lead one to expect, over the largest of them.
    """
    seen = data.seen
    curve = np.where(seen, data.exposure * np.exp(data.inputs[CITY_RATE].to_numpy()), 0.0)
    observed = np.where(seen, data.observed, 0.0)
    expected = curve * _hours(data, observed, curve)
    inputs = data.inputs.loc[seen, ["t", *CITY_ERRORS]]
    days = inputs.assign(observed=observed[seen], exposure=expected[seen]).groupby(data.local[seen].normalize())
    table = days.mean().assign(observed=days["observed"].sum(), exposure=days["exposure"].sum())
    return table.assign(exposure=table["exposure"] / table["exposure"].max()).reset_index(drop=True)


def _hours(data: ZoneData, observed: Array, curve: Array) -> Array:
    """Pickups over the city's curve by hour of the day, apart at weekends; each hour has the mean seen once more."""
    week = data.inputs["week"].to_numpy()
    group = (24 * (week % 1.0)).astype(np.intp) % 24 + 24 * (week >= 5)
    counted, lasted = (np.bincount(group, values, minlength=_GROUPS) for values in (observed, curve))
    mean = observed.sum() / curve.sum()
    return np.asarray(((counted + mean) / (lasted + 1.0))[group])
