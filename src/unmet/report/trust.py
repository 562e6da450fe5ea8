"""Checks before a report is sent on: what a careful colleague would look at, each with a sentence and a verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from unmet._storage.sql import fetch_all, reading
from unmet.report.source import RunSource

__all__ = ["Check", "check_run", "summarise_checks"]

_MANY_EXPECTED = 0.25  # share of the pickups
_MANY_REJECTED = 0.01  # share of the rows of a kind of records
_MOSTLY = 0.5
_LARGE_BIAS, _COVERAGE = 0.05, (0.85, 0.95)
_BEYOND = 3.0  # times the most trips ever observed in a bin of the zone
_NAMED = 3
_ALWAYS = ("held_out", "simpler_assumptions")  # in the line of the summary, whatever they found


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes
    ----------
    name : str
        Short name, for `quality.json`.
    good : bool
        Whether nothing was found.
    sentence : str
        The finding, or that there is none.
    values : dict
        The numbers behind it.
    """

    name: str
    good: bool
    sentence: str
    values: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Give JSON-able values."""
        return asdict(self)


def check_run(source: RunSource) -> list[Check]:
    """Check a run: stations left out, odd zones, unknown time, pickups, rows, fits, held-out bins, simpler models."""
    zones = source.zones[source.zones["status"] == "ok"]
    found = [
        _left_out(source.zones),
        _lost_above_observed(zones),
        _mostly_empty(zones),
        _mostly_unknown(source),
        _beyond_observed(source),
        _missing_pickups(source.summary),
        _rejected(source.quality),
        _fits(source.zones),
        _held_out(source),
        _simpler(source),
    ]
    return [check for check in found if check is not None]


def summarise_checks(checks: Iterable[Mapping[str, Any]]) -> str:
    """Return the line under the headline: findings, then held-out bins and simpler assumptions.

    Parameters
    ----------
    checks : iterable of dict
        As of `Check.to_dict`, or read from ``quality.json``.

    Examples
    --------
    >>> fits = Check("fits", True, "all fits converged", {})
    >>> held_out = Check("held_out", True, "on 90 held-out bins predictions are +1.0% off", {})
    >>> summarise_checks([fits.to_dict(), held_out.to_dict()])
    'Checks: nothing found. On 90 held-out bins predictions are +1.0% off.'
    """
    listed = list(checks)
    bad = [check["sentence"] for check in listed if not check["good"]]
    also = [check["sentence"] for check in listed if check["good"] and check["name"] in _ALWAYS]
    first = f"Before you send this on: {'; '.join(bad)}." if bad else "Checks: nothing found."
    return " ".join([first, *(f"{text[0].upper()}{text[1:]}." for text in also)])


def _about_zones(name: str, zones: list[str], found: str, none: str) -> Check:
    """A check that finds zones: good if there are none."""
    return Check(name, not zones, f"{_some(zones, 'zone')} {found}" if zones else none, {"zones": zones})


def _missing_pickups(summary: Mapping[str, Any]) -> Check:
    """Without trips and with rare looks at the feed, pickups that cancel out with returns are not seen."""
    good, found = True, "no pickups are missing"
    share = float(summary.get("cancelled", 0.0)) / max(float(summary.get("observed", 0.0)), 1.0)
    if bool(summary.get("misses_pickups", False)):
        good = False
        found = "many pickups are missing, so demand and lost trips are too low; give trips"
    elif share > _MANY_EXPECTED:
        good = False
        found = f"{share:.0%} of the pickups are expected, not seen: looks at the feed are far apart; give trips"
    return Check("missing_pickups", good, found, {"expected_share": round(share, 4)})


def _rejected(quality: pd.DataFrame) -> Check:
    """Kinds of records of which many rows were rejected. A repeated reading or record of status is no loss."""
    parts, shares = [], {}
    if not quality.empty:
        lost = (quality["source"] == "trips") | (quality["reason"] != "duplicate")
        for name, rows in quality[(quality["action"] == "rejected") & lost].groupby("source", sort=False):
            share = float(rows["share"].sum())
            shares[str(name)] = round(share, 4)
            if share >= _MANY_REJECTED:
                reason = rows["reason"].iloc[int(rows["rows"].argmax())]
                parts.append(f"{share:.1%} of the rows of {name} were rejected ({reason})")
    return Check("rejected", not parts, "; ".join(parts) or "hardly any row is rejected", {"shares": shares})


def _left_out(zones: pd.DataFrame) -> Check:
    some = zones[zones["left_out"].notna()] if "left_out" in zones.columns else zones[:0]
    # The reason begins with the station, which the name of the zone repeats.
    names = [f"{row['name']}: {row['left_out'].split(': ', 1)[-1]}" for row in some.to_dict("records")]
    return _about_zones("left_out", names, "left out of the totals", "no zone is left out")


def _lost_above_observed(zones: pd.DataFrame) -> Check:
    names = zones.loc[zones["lost_mean"] > zones["observed"], "name"].tolist()
    found = "with more trips lost than observed"
    return _about_zones("lost_above_observed", names, found, "no zone lost more than it served")


def _mostly_empty(zones: pd.DataFrame) -> Check:
    open_ = zones["available_minutes"] + zones["stockout_minutes"]
    names = zones.loc[zones["stockout_minutes"] > _MOSTLY * open_, "name"].tolist()
    return _about_zones("mostly_empty", names, "empty most of the time", "no zone is empty most of the time")


def _mostly_unknown(source: RunSource) -> Check:
    """Hours of the week that are mostly unknown: totals do not cover them."""
    with reading("panel"):
        rows = fetch_all(
            source.connection,
            "SELECT (isodow(start_local) - 1) * 24 + hour(start_local) AS slot FROM panel GROUP BY slot "
            f"HAVING sum(unknown_minutes) > {_MOSTLY} * sum(minutes) ORDER BY slot",
        )
    hours = [int(row[0]) for row in rows]
    count = "1 hour of the week is" if len(hours) == 1 else f"{len(hours) or 'no'} hours of the week are"
    text = f"{count} mostly unknown"
    return Check("mostly_unknown", not hours, text, {"hours_of_week": hours})


def _beyond_observed(source: RunSource) -> Check:
    """Zones whose demand in some bin is far above anything that was ever observed there."""
    with reading("demand.parquet"):
        rows = fetch_all(
            source.connection,
            "SELECT zone FROM demand WHERE observed IS NOT NULL GROUP BY zone "
            f"HAVING max(demand_mean) > {_BEYOND} * greatest(max(observed), 3) ORDER BY zone",
        )
    known = dict(zip(source.zones["zone"], source.zones["name"], strict=True))
    names = [known.get(row[0], row[0]) for row in rows]
    found = "with hours far above anything observed there"
    return _about_zones("beyond_observed", names, found, "no estimate is far above what was observed")


def _fits(zones: pd.DataFrame) -> Check:
    failed = zones.loc[zones["status"] != "ok", "name"].tolist()
    loose = zones.loc[zones["converged"].eq(False).fillna(False), "name"].tolist() if "converged" in zones else []
    parts = [f"{_some(failed, 'zone')} could not be estimated"] if failed else []
    parts += [f"the fit of {_some(loose, 'zone')} did not converge"] if loose else []
    return Check(
        "fits", not parts, "; ".join(parts) or "all fits converged", {"failed": failed, "not_converged": loose}
    )


def _held_out(source: RunSource) -> Check | None:
    found = (source.info.get("joint") or {}).get("held_out")
    if not found:
        return None
    biased = abs(found["bias"]) > max(_LARGE_BIAS, 2 * found["bias_se"])
    covered = _COVERAGE[0] <= found["coverage"] <= _COVERAGE[1]
    text = (
        f"on {found['bins']:,} held-out bins predictions are {found['bias']:+.1%} off, "
        f"{found['coverage']:.0%} inside their 90% interval"
    )
    return Check("held_out", not biased and covered, _with_minus(text), dict(found))


def _simpler(source: RunSource) -> Check | None:
    """Lost trips if nobody walked, and if every listed vehicle could be rented; both roughly."""
    system = source.totals[source.totals["level"] == "system"].set_index("quantity")["mean"]
    lost = float(system["lost"])
    if lost <= 0 or "rate_mean" not in source.demand_columns:
        return None
    walked = float(system.get("walked_on", 0.0))
    values = {"lost": lost, "lost_if_nobody_walked": lost + walked}
    parts = [f"{walked / lost:+.0%} if nobody walked"] if walked >= 0.005 * lost else []
    with reading("panel"):
        columns = {str(row[0]) for row in fetch_all(source.connection, "DESCRIBE panel")}
    if "out_minutes" in columns:
        with reading("demand.parquet"):
            ((listed, usable),) = fetch_all(
                source.connection,
                "SELECT sum(rate_mean * stockout_minutes / minutes), sum(rate_mean * out_minutes / minutes) "
                "FROM demand JOIN panel USING (zone, start)",
            )
        if usable and abs(ratio := float(listed) / float(usable) - 1) >= 0.005:
            values["lost_if_all_listed_were_rentable"] = lost * (1 + ratio)
            parts.append(f"{ratio:+.0%} if every listed vehicle could be rented")
    if not parts:
        return None
    text = _with_minus(" and ".join(parts))
    return Check("simpler_assumptions", True, f"lost trips would be {text}", values)


def _with_minus(text: str) -> str:
    """Write signs of numbers as minus signs, as the page does; hyphens within words stay."""
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)


def _some(names: list[str], what: str) -> str:
    """Count names, and name the first few.

    Examples
    --------
    >>> _some(["a", "b"], "zone"), _some(list("abcde"), "zone")
    ('2 zones (a, b)', '5 zones (a, b, c …)')
    """
    more = " …" if len(names) > _NAMED else ""
    return f"{len(names):,} {what}{'s' * (len(names) != 1)} ({', '.join(names[:_NAMED])}{more})"
