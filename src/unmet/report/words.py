"""Texts of a report: the model, the data and the assumptions of a run."""

from __future__ import annotations

import re
from typing import Any

from unmet.mobility.supply.states import REASONS, STATES, WORDS
from unmet.mobility.supply.usable_words import supply_curve, supply_facts
from unmet.report.beside import returns_totals
from unmet.report.source import RunSource

__all__ = [
    "assumptions",
    "city_facts",
    "data_used",
    "minutes_by_state",
    "model_facts",
    "quality_rows",
    "span",
    "supply_learnt",
]

_PICKUPS = {
    "trips": "Observed trips are trips that started in the zone.",
    "status": "There were no trip files. Observed trips are falls in the number of available vehicles, without those "
    "counted as rebalancing, and those that are expected to have cancelled out with returns between two looks.",
    "trips and status": "Where trip files have a gap, observed trips are falls in the number of available vehicles.",
}


def _hours(hours: float) -> str:
    return f"{hours:.0f} hour{'' if round(hours) == 1 else 's'}"


def span(minutes: float) -> str:
    """Describe a length of time.

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
    """Return facts about the model and the run, as pairs of name and value."""
    info, settings = source.info, source.info["inputs"].get("model", {})
    provenance, model = info.get("provenance", {}), info.get("model", {})
    facts = [
        ["Model", f"{settings.get('name', 'unknown')}: {model.get('sentence', '')}".rstrip(": ")],
        ["Joint draws for intervals", str(settings.get("draws", ""))],
        ["Seed", str(settings.get("seed", ""))],
        ["Weather", _given(_file_name(provenance.get("weather")), model)],
        ["Weather columns", ", ".join(map(str, provenance.get("weather_columns") or []))],
        ["Holidays", _given(provenance.get("holidays"), model)],
    ]
    for gap in (provenance.get("weather_gaps") or [])[:5]:
        facts.append(["Weather missing", f"{gap.get('column')}: {gap.get('bins')} bins, from {gap.get('first')}"])
    ahead = int(source.bins["future"].sum())
    if ahead:
        facts.append(["Forecast", f"{ahead} bins after the records; not in any total"])
    costs = info.get("costs", {})
    seconds = costs.get("cpu_seconds")
    if seconds is not None:
        facts.append(["Processor time", f"{seconds:,.0f} s; finished {info.get('finished', '')}"])
    versions = info.get("versions", {})
    used = ["unmet " + str(info["inputs"].get("unmet", "")), *(f"{k} {v}" for k, v in versions.items())]
    facts.append(["Software", ", ".join(used)])
    return [fact for fact in facts if fact[1]]


def city_facts(source: RunSource) -> list[list[str]]:
    """Return facts about what zones share: how far riders walk, and how unusual hours and days were."""
    joint = source.info.get("joint")
    if not joint:
        return []
    walking, shocks = joint["walking"], joint["shocks"]
    curve = zip(walking["metres"][:-1], walking["chance"], walking["sd"], walking["measured_elsewhere"], strict=False)
    days = ", ".join(f"{day['day']} ({day['change']:+.0%})" for day in joint["unusual_days"])
    return [
        *([f"Riders who walk {metres:.0f} m to be served" if metres else "Riders who go on to a station next door",
           f"{chance:.0%} ± {sd:.0%} ({other:.0%} in another system)"] for metres, chance, sd, other in curve),
        ["Hours that were unusual in the whole city", f"demand varies by ± {shocks['city_variance'] ** 0.5:.0%} "
         f"beyond pattern, trend and weather, for about {_hours(shocks['city_hours'])}"],
        ["Hours that were unusual in a neighbourhood", f"± {shocks['local_variance'] ** 0.5:.0%} within about "
         f"{shocks['local_metres']:.0f} m, for about {_hours(shocks['local_hours'])}"],
        ["Most unusual days", days],
        *_held_out_facts(joint.get("held_out")),
    ]  # fmt: skip


def _held_out_facts(found: dict[str, Any] | None) -> list[list[str]]:
    if not found:
        return []
    return [
        ["Bins held out to check the estimate", f"{found['bins']:,}; predicted {found['bias']:+.1%} "
         f"(± {2 * found['bias_se']:.1%}); {found['coverage']:.0%} inside their 90% interval"],
    ]  # fmt: skip


def _file_name(path: Any) -> str:
    """The name without its folders, which are nobody's business but the analyst's."""
    return re.split(r"[\\/]", str(path or ""))[-1]


def _given(value: Any, model: dict[str, Any]) -> str:
    if not value:
        return "not used"
    return str(value) if model.get("uses_covariates", True) else f"{value} (given, but not used by this model)"


def data_used(source: RunSource) -> list[list[str]]:
    """Return facts about the panel's data, as pairs of name and value."""
    summary = source.summary
    if not summary:
        return [["Panel", "not built by unmet: its records are unknown"]]
    trips = summary.get("trips_used")
    outages = summary.get("feed_outages") or 0
    left_out = source.info.get("left_out", [])
    facts = [
        ["Zones", f"{summary.get('zones', len(source.zones)):,} from {summary.get('stations', 0):,} stations "
         f"({summary.get('zones_as', 'stations')})"],
        ["Trips used", "none" if trips is None else f"{trips:,}"],
        ["Station status", str(summary.get("status") or "none: supply is computed from departures and arrivals")],
        ["Left out of the totals", "; ".join(f"{one['zone']} ({one['why']})" for one in left_out)],
        *(["Note", str(remark)] for remark in summary.get("remarks", [])),
        ["Outages of the whole feed", f"{outages:,}" if summary.get("status") else ""],
        ["Source of supply", str(summary.get("supply_from", ""))],
        ["Bins", f"one {span(source.minutes)} each, by the local clock ({summary.get('timezone', '')})"],
        ["Censored bins", "" if summary.get("censored_share") is None
         else f"{summary['censored_share']:.1%} of open zone-bins (rule: {summary.get('censored_rule')})"],
        ["Returns", _returns_sentence(source)],
    ]  # fmt: skip
    return [fact for fact in facts if fact[1]]


def _returns_sentence(source: RunSource) -> str:
    """Describe the returns that full stations hid; empty if they were not estimated."""
    totals = returns_totals(source)
    rows = totals[totals["level"] == "system"].to_dict("records")
    if not rows:
        return ""
    of = {row["quantity"]: row for row in rows}
    return (
        f"{of['observed']['mean']:,.0f} recorded, {of['demand']['mean']:,.0f} wanted: "
        f"{of['walked_on']['mean']:,.0f} riders rode on to another dock, {of['lost']['mean']:,.0f} "
        f"({of['lost']['q05']:,.0f} to {of['lost']['q95']:,.0f}) found none nearby"
    )


def supply_learnt(source: RunSource) -> dict[str, Any]:
    """Return what was learnt about listed vehicles: facts, pickups over expected by number listed, and stations."""
    learnt = source.summary.get("usable_supply")
    stations = [
        [row["name"] or row["station"], int(row["listed"]), row["unusable"], row["probability"], row["since_local"]]
        for row in source.unusable.to_dict("records")
    ]
    return {"facts": supply_facts(learnt), "curve": supply_curve(learnt), "stations": stations}


def minutes_by_state(source: RunSource) -> list[dict[str, Any]]:
    """Return zone-hours in each state with their reasons."""
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
    """Return action, source, reason, rows, share and detail of rejected, repaired and noted rows; worst first."""
    if source.quality.empty:
        return []
    order = {"rejected": 0, "repaired": 1, "noted": 2}
    found = [row for row in source.quality.to_dict("records") if row["reason"] != "read"]
    found.sort(key=lambda row: (order.get(row["action"], 3), -row["rows"]))
    return [
        [row["action"], row["source"], row["reason"], int(row["rows"]), float(row["share"]), row["detail"] or ""]
        for row in found
    ]


# By whether the zones were estimated as one city.
_WALKERS = {
    False: "A rider who finds a zone empty is lost to that zone. A rider who walks on and rents nearby is counted as "
    "lost here and as observed there, so the sum over zones exceeds the number of riders who gave up.",
    True: "A rider who finds a zone empty may walk on to one nearby. Riders who were served there count as walked on, "
    "not as lost. If nobody walked, as simpler estimates assume, they would count as lost here and as demand there.",
}
_DEMAND = {
    False: "Demand is the number of trips wanted in that bin: observed plus lost. If supply never ran out, demand "
    "equals observed trips.",
    True: "Demand is the number of riders who came to a zone first. In the whole city it is observed plus lost trips. "
    "In one zone it is more by riders who walked on from it, and less by riders who walked to it.",
}
# Longer bins mix hours of low and high demand.
_LONG_BIN = 360


def assumptions(source: RunSource) -> list[str]:
    """Return the assumptions behind the numbers, one sentence or two each."""
    supply = source.info.get("model", {}).get("supply")
    summary = source.summary
    lines = [
        "Trips are lost only while a zone is open and has nothing to rent. Closed and unknown time counts neither as "
        "supply nor as loss.",
        _WALKERS[bool(source.info.get("joint"))],
        f"The rate is the expected demand of a full {span(source.minutes)}; use it for planning. "
        + _DEMAND[bool(source.info.get("joint"))],
        "Intervals are 90% intervals: one in ten should miss. They assume that the model and the records are right.",
    ]
    if source.info.get("model", {}).get("uses_city"):
        lines.append(
            "Zones that use the city's curve share its error. The intervals of totals and the bands of all zones and "
            "of areas include it. The band of a day takes the error of a zone to last all day."
        )
    if supply == "exposure":
        lines.append(
            "Riders arrive at an empty zone at the same rate as at a stocked one, given the hour, the season and the "
            "weather."
        )
        if source.minutes >= _LONG_BIN:
            lines.append(
                f"With bins of one {span(source.minutes)}, an empty hour at night counts like one at rush hour, so the "
                "error of lost trips may exceed their interval. Use hourly bins (--every 1h) to estimate losses."
            )
    elif supply == "labels":
        lines.append("The model uses which bins had a stock-out, but not how long it lasted.")
    if summary:
        lines.append(_PICKUPS.get(summary.get("pickups_from", ""), ""))
        if not summary.get("status"):
            lines.append(
                "Without station status, supply is computed from departures and arrivals. This is weak evidence: a "
                "vehicle that cannot be rented counts as supply, and rebalancing is not seen."
            )
    return [line for line in lines if line]
