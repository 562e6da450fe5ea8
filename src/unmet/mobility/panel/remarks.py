"""Remarks on a panel: sentences about records that limit what it can tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from unmet.mobility.clock.bins import DAY, wall_minutes
from unmet.mobility.panel.evidence import Evidence
from unmet.mobility.panel.usable import LONGEST_CADENCE
from unmet.mobility.supply.cadence import HOUR
from unmet.mobility.supply.polls import MISSED_POLLS
from unmet.mobility.supply.silence import LONGEST_LOOK, repeat_daily

__all__ = ["cadence_table", "find_remarks", "misses_pickups"]

_UNEXPLAINED = 0.75  # pickups over those expected by the model, below which it is not believed
_MOST_GAPS = 5000
_IN_HOURS = "in these hours:"
_NAMED = 3  # zones named in one remark
_MOSTLY_COVERED = 0.9  # share of the bins that trips cover, beyond which pickups are taken to be counted


def cadence_table(evidence: Evidence) -> list[dict[str, float]]:
    """List the usual intervals between two looks at the feed (whole minutes), and the share of hours with each."""
    cadence = evidence.feed.cadence
    minutes = _rounded(np.where(cadence.apart > 0, cadence.apart, cadence.minutes))
    found, hours = np.unique(minutes, return_counts=True)
    order = np.argsort(-hours, kind="stable")[:5]
    return [{"minutes": float(found[i]), "share": round(float(hours[i] / hours.sum()), 4)} for i in order]


def _rounded(minutes: Any) -> Any:
    """Round usual intervals: they are known to 6 %, and nobody looks every 44 minutes."""
    return np.where(minutes > 12, 5 * np.round(minutes / 5), np.round(minutes))


def find_remarks(
    evidence: Evidence,
    reasons: pd.DataFrame,
    zones: pd.DataFrame,
    implausible: Sequence[dict[str, Any]],
    pickups_from: str,
    timezone: str,
) -> list[str]:
    """Write the remarks.

    Parameters
    ----------
    evidence : Evidence
        The evidence of the panel.
    reasons : pandas.DataFrame
        ``zone, state, reason, minutes``.
    zones : pandas.DataFrame
        ``zone, name`` and more.
    implausible : sequence of dict
        Implausible stations, as `unmet.mobility.panel.plausibility.describe` returns them.
    pickups_from : str
        ``trips``, ``status`` or ``trips and status``.
    timezone : str
        Time zone of the system.
    """
    remarks = []
    for row in implausible:
        name = _name(str(row["station"]), row["name"])
        if row["left_out"]:
            tail = f"left out of the totals of the system (--keep {row['zone']} counts it)"
        else:
            tail = f"zone {row['zone']} rests on its other stations"
        remarks.append(f"{name}: {row['why']}; {tail}.")
    remarks += [
        f"No trip starts from {_local(begin, timezone)} to {_local(end, timezone)}, and the status shows no closure: "
        "trips seem to be missing. Pickups are inferred from the status where it has records."
        for begin, end in evidence.missing.tolist()
    ]
    if evidence.incomplete is not None:
        remarks.append(
            f"Of {evidence.incomplete:.1%} of the trips an end is not known, or is at no station: supply is not "
            "computed from trips, and is unknown. Give --status, or trips with stations and times of both ends."
        )
    if evidence.activity is not None:
        looks = _on_looks(evidence, pickups_from, timezone)
        remarks += looks
        if not any(_IN_HOURS in remark for remark in looks):
            remarks += _on_gaps(evidence, timezone)
        remarks += _on_worth(evidence)
    names = {str(zone): _name(str(zone), name) for zone, name in zip(zones["zone"], zones["name"], strict=True)}
    minutes = reasons.groupby(["reason", "zone"])["minutes"].sum()
    whole = reasons.groupby("zone")["minutes"].sum()
    for reason, sentence in {
        "unused": "closed without saying so for {days:.1f} days in all (empty, and nothing was brought): {zones}",
        "not_reopened": "not yet open again {days:.1f} days in all after a closure: {zones}",
        "left": "left the feed: {zones}",
    }.items():
        if reason in minutes.index:
            of_zone = minutes[reason].sort_values(ascending=False)
            remarks.append(_counted(of_zone, names, sentence))
    if "no_record" in minutes.index:
        never = minutes["no_record"][minutes["no_record"] >= whole[minutes["no_record"].index]]
        if len(never):
            remarks.append(_counted(never, names, "without any status record in the period: {zones}"))
    return remarks


def _local(minute: int, timezone: str) -> str:
    return f"{pd.Timestamp(minute * 60, unit='s', tz='UTC').tz_convert(timezone):%Y-%m-%d %H:%M}"


def _name(ident: str, name: object) -> str:
    return f"{name} ({ident})" if isinstance(name, str) and name not in ("", ident) else ident


def _counted(minutes: pd.Series, names: dict[str, str], sentence: str) -> str:
    some = ", ".join(names[str(zone)] for zone in minutes.index[:_NAMED]) + (" …" if len(minutes) > _NAMED else "")
    count = f"{len(minutes):,} zone{'s' if len(minutes) > 1 else ''}"
    return f"{count} {sentence.format(days=minutes.sum() / DAY, zones=some)}."


def misses_pickups(evidence: Evidence, pickups_from: str) -> bool:
    """Return whether pickups that cancel out with returns are missing: looks at the feed are far apart."""
    return not _is_bridged(evidence) and _looks_rarely(evidence, pickups_from)


def _is_bridged(evidence: Evidence) -> bool:
    return evidence.supply is not None and evidence.supply.between is not None


def _looks_rarely(evidence: Evidence, pickups_from: str) -> bool:
    """Whether pickups are inferred from looks that are far apart."""
    if pickups_from == "trips" or evidence.activity is None or evidence.covered.mean() > _MOSTLY_COVERED:
        return False
    return evidence.feed.cadence.looks > LONGEST_CADENCE


def _on_worth(evidence: Evidence) -> list[str]:
    """Say where the model of usable supply does not explain the pickups with one or two vehicles listed."""
    if evidence.supply is None:
        return []
    learnt = evidence.supply.summary()[0]
    worth = min(learnt["curve_usable"][number] for number in ("1", "2"))
    if learnt["method"] not in ("hidden", "between") or worth >= _UNEXPLAINED:
        return []
    return [
        f"Where one or two vehicles are listed, {worth:.2f} of the expected pickups are seen, though the model knows "
        "of unusable ones: minutes out of stock are uncertain. With few riders, vans that move few vehicles at once "
        "do that (--rebalancing)."
    ]


def _on_gaps(evidence: Evidence, timezone: str) -> list[str]:
    """Say at which hours the feed has a gap on many days."""
    silent = evidence.silent[repeat_daily(evidence.silent, evidence.feed)]
    if len(silent) == 0 or len(silent) > _MOST_GAPS:
        return []
    minute = np.concatenate([np.arange(begin + HOUR // 2, end, HOUR) for begin, end in silent])
    hours = ", ".join(f"{h:02d}" for h in np.unique(wall_minutes(minute, timezone) % DAY // HOUR))
    return [f"The feed has a gap at the same time of {len(silent):,} days, {_IN_HOURS} {hours}; it is unknown time."]


def _on_looks(evidence: Evidence, pickups_from: str, timezone: str) -> list[str]:
    """Say where looks at the feed are far apart."""
    cadence = evidence.feed.cadence
    usual, looks = cadence.usual, cadence.looks
    inferred = pickups_from != "trips" and evidence.covered.mean() <= _MOSTLY_COVERED
    apart = f"Looks at the feed are {_rounded(looks):.0f} minutes apart."
    if _looks_rarely(evidence, pickups_from):
        if not _is_bridged(evidence):
            some = "Most" if looks > LONGEST_LOOK else "Some"
            return [f"{apart} {some} pickups between them cancel out with returns and are missing: give trips."]
        return [
            f"{apart} Pickups that cancel out with returns between them are not seen but expected (cancelled), and "
            "exposure is what could have happened, with its standard deviation (out_sd). To count them, give trips."
        ]
    if not inferred and looks > LONGEST_LOOK:
        return [f"{apart} States between them are not known."]
    slow = cadence.regular & (cadence.minutes > max(LONGEST_LOOK, MISSED_POLLS * usual))
    if not slow.any():
        return []
    minute = evidence.feed.first + HOUR * np.flatnonzero(slow)
    hour = np.unique(wall_minutes(minute, timezone) % DAY // HOUR)
    apart = _rounded(np.median(cadence.minutes[slow]))
    if inferred and not _is_bridged(evidence):
        tail = "pickups cannot be inferred then, and the time is unknown"
    else:
        tail = "pickups and stock-outs are coarser then" if inferred else "stock-outs are coarser then"
    hours = ", ".join(f"{h:02d}" for h in hour)
    return [f"Looks at the feed are {apart:.0f} minutes apart on some days {_IN_HOURS} {hours}; {tail}."]
