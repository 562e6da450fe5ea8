"""How a run was made, in plain words: the model, the data, the assumptions, what to be careful with."""

from __future__ import annotations

from typing import Any

from unmet.mobility.supply.states import REASONS, STATES, WORDS
from unmet.report.source import RunSource

__all__ = ["MODEL_WORDS", "assumptions", "data_used", "minutes_by_state", "model_facts", "quality_rows", "span"]

MODEL_WORDS = {
    "exposure": "Negative binomial counts with exposure: pickups are counted against the time with something to rent. "
    "Expected demand follows a weekly pattern, a slow trend, holidays and weather, by Gaussian processes. With eight "
    "zones or more, a curve of the whole city is learnt first, then how each zone differs from it.",
    "cgp": "Censored Gaussian process: in bins labelled as stock-outs demand was at least what was seen; in all others "
    "it was what was seen.",
    "ncgp": "Gaussian process that ignores stock-outs: what was seen is taken for demand. Expect it to be too low.",
    "ncgp-a": "Gaussian process without the bins that had a stock-out. What is left is selected for low demand.",
    "tobit": "Linear Tobit model: effects of the hour of the week, trend, holidays and weather, with demand at least "
    "what was seen in bins labelled as stock-outs.",
    "observed": "What was recorded, taken for demand: a baseline, by which nothing is ever lost.",
    "weekly-mean": "Pickups over the time there was something to rent, by hour of the week: a baseline that knows no "
    "trend and no weather.",
    "drop-censored": "Mean pickups by hour of the week over the bins without a stock-out: a baseline. What is left is "
    "selected for low demand.",
}
_COUNTED = ("exposure", "weekly-mean", "drop-censored")
_PLAIN = ("observed", "weekly-mean", "drop-censored")  # know neither weather nor holidays
_PICKUPS = {
    "trips": "Observed trips are trips that started in the zone.",
    "status": "There were no trip files: observed trips are falls in the number of available vehicles, less those "
    "taken for vans. A pickup and a return between two records cancel out, so they are somewhat too few.",
    "trips and status": "Where trip files have a hole, observed trips are falls in the number of available vehicles.",
}


def span(minutes: float) -> str:
    """A length of time as words.

    Examples
    --------
    >>> span(60), span(15), span(1440), span(10080), span(180)
    ('hour', '15 minutes', 'day', 'week', '3 hours')
    """
    for unit, name in ((10080, "week"), (1440, "day"), (60, "hour"), (1, "minute")):
        if minutes % unit == 0:
            count = int(minutes // unit)
            return name if count == 1 else f"{count} {name}s"
    return f"{minutes:g} minutes"


def model_facts(source: RunSource) -> list[list[str]]:
    """Name and value of what there is to know of the model and the run."""
    info, settings = source.info, source.info["inputs"].get("model", {})
    told = info.get("provenance", {})
    facts = [
        ["Model", f"{settings.get('name', 'unknown')}: {MODEL_WORDS.get(settings.get('name', ''), '')}".rstrip(": ")],
        ["Joint draws behind intervals", str(settings.get("draws", ""))],
        ["Seed", str(settings.get("seed", ""))],
        ["Weather", _given(told.get("weather"), settings)],
        ["Weather columns", ", ".join(map(str, told.get("weather_columns") or []))],
        ["Holidays", _given(told.get("holidays"), settings)],
    ]
    for gap in (told.get("weather_gaps") or [])[:5]:
        facts.append(["Weather missing", f"{gap.get('column')}: {gap.get('bins')} bins from {gap.get('first')} on"])
    ahead = int(source.bins["future"].sum())
    if ahead:
        facts.append(["Ahead of the records", f"{ahead} bins; they are in no total"])
    costs = info.get("costs", {})
    seconds = costs.get("cpu_seconds")
    if seconds is not None:
        facts.append(["Computed in", f"{seconds:,.0f} s of processor time, finished {info.get('finished', '')}"])
    versions = info.get("versions", {})
    used = ["unmet " + str(info["inputs"].get("unmet", "")), *(f"{k} {v}" for k, v in versions.items())]
    facts.append(["Software", ", ".join(used)])
    return [fact for fact in facts if fact[1]]


def _given(what: Any, settings: dict[str, Any]) -> str:
    if not what:
        return "not used"
    return f"{what} (given, but this model makes no use of it)" if settings.get("name") in _PLAIN else str(what)


def data_used(source: RunSource) -> list[list[str]]:
    """Name and value of what the panel was made from."""
    told = source.summary
    if not told:
        return [["Panel", "made elsewhere: it does not say from what records"]]
    trips = told.get("trips_used")
    outages = told.get("feed_outages") or 0
    facts = [
        ["Zones", f"{told.get('zones', len(source.zones)):,}, made of {told.get('stations', 0):,} stations "
         f"({told.get('zones_as', 'stations')})"],
        ["Trips used", "none" if trips is None else f"{trips:,}"],
        ["Station status", str(told.get("status") or "none: supply is netted from trips")],
        ["Outages of the whole feed", f"{outages:,}" if told.get("status") else ""],
        ["Supply known from", str(told.get("supply_from", ""))],
        ["Bins", f"of one {span(source.minutes)}, by the local clock ({told.get('timezone', '')})"],
        ["Bins with hidden demand", "" if told.get("censored_share") is None
         else f"{told['censored_share']:.1%} of those in which a zone was open (rule: {told.get('censored_rule')})"],
    ]  # fmt: skip
    return [fact for fact in facts if fact[1]]


def minutes_by_state(source: RunSource) -> list[dict[str, Any]]:
    """Zone-hours in each state with their reasons, in the order of the states."""
    columns = {state: f"{state}_minutes" for state in STATES}
    total = max(sum(float(source.zones[c].sum()) for c in columns.values()), 1.0)
    reasons = source.summary.get("reasons", {})
    rows = []
    for state, column in columns.items():
        why = sorted(((v, k) for k, v in reasons.items() if REASONS.get(k) == state and v), reverse=True)
        minutes = float(source.zones[column].sum())
        words = [WORDS.get(k, k) if len(why) == 1 else f"{WORDS.get(k, k)} ({v / total:.1%})" for v, k in why]
        rows.append({"state": state, "hours": minutes / 60.0, "share": minutes / total, "why": "; ".join(words)})
    return rows


def quality_rows(source: RunSource) -> list[list[Any]]:
    """Action, source, reason, rows, share and detail of what was rejected, repaired and noted; worst first."""
    if source.quality.empty:
        return []
    order = {"rejected": 0, "repaired": 1, "noted": 2}
    found = [row for row in source.quality.to_dict("records") if row["reason"] != "read"]
    found.sort(key=lambda row: (order.get(row["action"], 3), -row["rows"]))
    return [
        [row["action"], row["source"], row["reason"], int(row["rows"]), float(row["share"]), row["detail"] or ""]
        for row in found
    ]


# From here on a bin mixes hours of little and of much demand.
_LONG_BIN = 360


def assumptions(source: RunSource) -> list[str]:
    """What the numbers rest on."""
    model = source.info["inputs"].get("model", {}).get("name", "")
    told = source.summary
    lines = [
        "Lost trips are counted only while a zone was open and had nothing to rent. Closed and unknown time counts "
        "neither as supply nor as loss.",
        "A rider who finds a zone empty is lost to that zone. Those who walk on and rent nearby are counted there as "
        "observed and here as lost: the sum over zones is then more than the riders who went home.",
        f"The rate is the expected demand of a full {span(source.minutes)}: what to plan with. Demand is what was "
        "wanted in that very bin: observed plus lost. Where supply never ran out, demand is what was observed.",
        "Intervals are 90 %: one in ten should miss. They hold given the model and the records; an error in the "
        "records is not in them.",
    ]
    if model in _COUNTED:
        lines.append(
            "Riders come as often while a zone is empty as they would have had it been stocked, given the hour, the "
            "season and the weather."
        )
        if source.minutes >= _LONG_BIN:
            lines.append(
                f"Bins of one {span(source.minutes)}: an hour empty at night counts like one at rush hour, so lost "
                "trips may be off by more than their interval. Estimate hours (--every 1h) where losses matter."
            )
    elif model in ("cgp", "tobit"):
        lines.append("The model knows which bins had a stock-out, not for how long: labels carry all the information.")
    if told:
        lines.append(_PICKUPS.get(told.get("pickups_from", ""), ""))
        if not told.get("status"):
            lines.append(
                "Without station status, supply is netted from trips alone. That is weak evidence: a vehicle that "
                "cannot be rented looks like supply, and a van looks like nothing at all."
            )
    return [line for line in lines if line]
