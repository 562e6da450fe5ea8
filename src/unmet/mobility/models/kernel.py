"""The covariance of log-demand of a zone or a city."""

from __future__ import annotations

import numpy as np

from unmet._parameters import LogNormal, Parameter
from unmet.kernels import Constant, Kernel, Linear, Periodic, SquaredExponential
from unmet.mobility.models.zone_data import CITY_ERRORS, CITY_RATE, ZoneData

__all__ = ["demand_kernel", "fixed", "trend_medians"]

# Medians of the variances of log-demand's terms: for a zone estimated alone, and for a zone's difference from the city.
_TERMS = ("trend", "day", "weekend", "week", "drift", "holiday", "weather")
_ALONE = dict(zip(_TERMS, (0.1, 1.0, 0.3, 0.03, 0.01, 0.1, 0.1), strict=True))
_DIFFERENCES = dict(zip(_TERMS, (0.02, 0.3, 0.1, 0.01, 0.01, 0.03, 0.003), strict=True))


def demand_kernel(data: ZoneData, *, city: bool = False, trend: Kernel | None = None) -> Kernel:
    """Make the default covariance of (log-)demand: trend, day, weekend, week, drift of the day, holidays, weather.

    Weekends have a term of their own because they differ from other days much more than those differ from each other:
    with one weekly pattern for all days, the hours of each weekday would be learnt nearly separately. The daily pattern
    may drift. With a city model, the zone has a multiple of the city's curve, and the other terms describe how the zone
    differs from it. Priors are log-normal with a factor of e^0.5 (length-scales) or e^1.5 (variances): weak enough for
    any city, strong enough to fit many zones unattended.

    Parameters
    ----------
    data : ZoneData
        The zone; its bins and covariates decide which terms are used.
    city : bool
        Whether to use the city's curve, if the data have it. Only for models of log-demand.
    trend : Kernel, optional
        The trend, if it is known (`unmet.mobility.models.trend`).
    """
    days = float(np.ptp(data.inputs["t"]))
    city = city and CITY_RATE in data.inputs
    medians = _DIFFERENCES if city else _ALONE
    if trend is None:
        variance, length = trend_medians(data, city=city)
        trend = SquaredExponential(_variance(variance), _length(length), columns="t")
    kernel = trend
    for term in _patterns(data, days, medians):
        kernel = kernel + term
    if data.inputs["holiday"].any():
        kernel = kernel + Linear(fixed(medians["holiday"]), columns="holiday")
    for name in data.covariates:
        spread = float(data.inputs[name].std())
        kernel = kernel + SquaredExponential(_variance(medians["weather"]), _length(2.0 * spread), columns=name)
    if not city:
        return kernel
    # The level has a term of its own: without it, the variances of the other terms would grow to hold it.
    return kernel + Linear(fixed(1.0), columns=[CITY_RATE, *CITY_ERRORS]) + Constant(fixed(0.1))


def trend_medians(data: ZoneData, *, city: bool) -> tuple[float, float]:
    """Give the medians of the priors of the trend's variance and length-scale (days)."""
    days = float(np.ptp(data.inputs["t"]))
    return (_DIFFERENCES if city else _ALONE)["trend"], min(40.0, max(days / 3, 1.0))


def _patterns(data: ZoneData, days: float, medians: dict[str, float]) -> list[Kernel]:
    """Make the periodic terms that the length of bins and record can tell apart."""
    if data.daily:
        weekly = Periodic(fixed(7.0), _variance(medians["weekend"]), _length(1.0), columns="week")
        return [weekly] if days >= 14 else []
    terms: list[Kernel] = [Periodic(fixed(1.0), _variance(medians["day"]), _length(0.6), columns="week")]
    if days >= 14:
        weekend = Linear(fixed(1.0), columns="weekend")
        terms.append(Periodic(fixed(1.0), _variance(medians["weekend"]), _length(0.6), columns="week") * weekend)
        terms.append(Periodic(fixed(7.0), _variance(medians["week"]), _length(0.08), columns="week"))
    if days >= 90:
        slow = SquaredExponential(fixed(1.0), fixed(90.0), columns="t")
        terms.append(Periodic(fixed(1.0), _variance(medians["drift"]), fixed(1.5), columns="week") * slow)
    return terms


def _variance(median: float) -> Parameter:
    return Parameter(median, prior=LogNormal(median, 1.5))


def _length(median: float) -> Parameter:
    return Parameter(median, prior=LogNormal(median, 0.5))


def fixed(value: float) -> Parameter:
    """Make a hyper-parameter that no search changes."""
    return Parameter(value, fixed=True)
