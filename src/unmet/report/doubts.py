"""Answers to "what should I not believe?": the weak points of a report, the gravest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from unmet.report.source import RunSource
from unmet.report.tables import flag_counts

__all__ = ["list_doubts"]

_UNKNOWN = 0.02  # share of the time that is worth a sentence
_WIDE = 1.0  # width of an interval over its estimate
_ALWAYS = (
    "Riders who have given up for good, or who stayed at home because an app showed no vehicle, are in no record.",
    "Intervals assume that the model and the records are right. One true value in ten lies outside a 90% interval.",
)


def list_doubts(
    source: RunSource, checks: Iterable[Mapping[str, Any]], plan: Mapping[str, Any], forecast: Mapping[str, Any] | None
) -> list[str]:
    """Return sentences about what not to rely on.

    Parameters
    ----------
    source : RunSource
        The run.
    checks : iterable of dict
        As of `unmet.report.trust.Check.to_dict`.
    plan, forecast : dict
        As of `unmet.report.plan.plan_data` and `unmet.report.forecast.forecast_data`.
    """
    found = [f"{check['sentence'][:1].upper()}{check['sentence'][1:]}." for check in checks if not check["good"]]
    holiday = plan.get("holiday")
    if holiday and not holiday["included"]:
        found.append(f"The plan is for a public holiday ({holiday['name']}), but treats it as a usual day.")
    if forecast and forecast["missing"]:
        found.append("The forecast lacks weather: it is that of a day with the usual weather of the season.")
    found += [
        text
        for text in (_baseline(source), _wide(source), _unknown(source), _extrapolated(source), _netted(source))
        if text
    ]
    return [*found, *_ALWAYS]


def _baseline(source: RunSource) -> str:
    model = source.info.get("model", {})
    if model.get("uses_covariates", True):
        return ""
    name = source.info["inputs"].get("model", {}).get("name", "model")
    return (
        f"The model ({name}) knows no weather and no trend: recent weeks, plan and forecast may be off with the season."
    )


def _wide(source: RunSource) -> str:
    zones = source.zones[source.counted & (source.zones["lost_mean"] >= 1)]
    wide = int((zones["lost_q95"] - zones["lost_q05"] > _WIDE * zones["lost_mean"]).sum())
    if not wide:
        return ""
    return (
        f"Single zones and hours are less sure than sums: the 90% interval of lost trips is wider than the estimate "
        f"itself for {wide} of the {len(zones)} zones that lost a trip or more."
    )


def _unknown(source: RunSource) -> str:
    minutes = {name: float(source.zones[f"{name}_minutes"].sum()) for name in ("available", "stockout", "unknown")}
    share = minutes["unknown"] / max(sum(minutes.values()), 1.0)
    if share < _UNKNOWN:
        return ""
    return f"In {share:.0%} of the time it is unknown whether there was a vehicle: no lost trips are counted there."


def _extrapolated(source: RunSource) -> str:
    bins = flag_counts(source).get("extrapolation", {})
    if not bins:
        return ""
    some = "1 zone has" if len(bins) == 1 else f"{len(bins)} zones have"
    return f"{some} hours of the week that never had a vehicle: their demand is extrapolated from other hours."


def _netted(source: RunSource) -> str:
    if not source.summary or source.summary.get("status"):
        return ""
    if not source.zones[["available_minutes", "stockout_minutes"]].to_numpy().any():
        return ""  # nothing could be computed: all time is unknown
    return "Without station status, times without vehicles are computed from trips: weak evidence."
