"""Riders lost on days with rain or snow, against days without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from unmet._storage.sql import fetch_frame, reading
from unmet._typing import Array, BoolArray
from unmet.report.source import RunSource
from unmet.report.story import points
from unmet.report.weather_words import describe_column

__all__ = ["compare_days", "wet_days"]

_FEWEST = 5  # days of each kind
_RESAMPLED = 2000
_LIMITS = (0.05, 0.95)


def wet_days(source: RunSource) -> list[dict[str, Any]]:
    """Compare the share of riders lost on days with and without what a weather column measures.

    Columns count that are never negative, and 0 on at least five days and above 0 on at least five: rain and snow. The
    result is empty if the run kept no weather by day.

    Returns
    -------
    list of dict
        ``name`` of the column, ``sentence``, and the numbers of `compare_days`.
    """
    weather = pd.DataFrame(source.info.get("provenance", {}).get("weather_by_day") or {"day": []})
    if weather.empty:
        return []
    riders = _riders_by_day(source).join(weather.set_index("day"), how="inner")
    found = []
    for name in weather.columns.drop("day"):
        own = riders[riders[name].notna()]
        wet = (own[name] > 0).to_numpy()
        if own[name].min() >= 0 and min(wet.sum(), (~wet).sum()) >= _FEWEST:
            numbers = compare_days(own["wanted"].to_numpy(dtype=float), own["lost"].to_numpy(dtype=float), wet)
            found.append({"name": str(name), "sentence": _sentence(describe_column(str(name))[0], numbers), **numbers})
    return found


def _riders_by_day(source: RunSource) -> pd.DataFrame:
    """Riders who came and riders lost by local day, of the zones that count for totals."""
    source.connection.register("counted_zones", pd.DataFrame({"zone": source.zones["zone"][source.counted]}))
    with reading("demand.parquet"):
        rows = fetch_frame(
            source.connection,
            """SELECT strftime(b.start_local, '%Y-%m-%d') AS day, sum(demand_mean) AS wanted, sum(lost_mean) AS lost
            FROM demand JOIN bin_numbers b USING (start) SEMI JOIN counted_zones USING (zone)
            WHERE observed IS NOT NULL GROUP BY day ORDER BY day""",
        )
    source.connection.unregister("counted_zones")
    return rows.set_index("day")


def compare_days(wanted: Array, lost: Array, wet: BoolArray, seed: int = 0) -> dict[str, Any]:
    """Compare the share lost on wet and on dry days, with a 90% interval from resampled days.

    Examples
    --------
    >>> found = compare_days(np.full(20, 100.0), np.repeat([5.0, 9.0], 10), np.repeat([True, False], 10))
    >>> found["wet_share"], found["dry_share"], round(found["change_q95"], 3), found["verdict"]
    (0.05, 0.09, -0.04, 'fewer')
    """
    generator = np.random.default_rng(seed)
    shares, drawn = [], []
    for days in (np.flatnonzero(wet), np.flatnonzero(~wet)):
        picks = generator.choice(days, size=(_RESAMPLED, len(days)))
        drawn.append(lost[picks].sum(axis=1) / np.maximum(wanted[picks].sum(axis=1), 1e-9))
        shares.append(float(lost[days].sum() / max(wanted[days].sum(), 1e-9)))
    low, high = np.quantile(drawn[0] - drawn[1], _LIMITS)
    return {
        "wet_days": int(np.sum(wet)),
        "dry_days": int(len(wet) - np.sum(wet)),
        "wet_share": shares[0],
        "dry_share": shares[1],
        "change_q05": float(low),
        "change_q95": float(high),
        "verdict": "fewer" if high < 0 else "more" if low > 0 else "unclear",
    }


_ANSWERS = {
    "fewer": "A smaller share of riders is lost on days with {}",
    "more": "A larger share of riders is lost on days with {}",
    "unclear": "No clear difference in the share of riders lost on days with {}",
}


def _sentence(name: str, found: dict[str, Any]) -> str:
    change = found["wet_share"] - found["dry_share"]
    return (
        f"{_ANSWERS[found['verdict']].format(name)}: {found['wet_share']:.1%} on {found['wet_days']} days with it, "
        f"{found['dry_share']:.1%} on {found['dry_days']} days without ({points(change)} points, 90% over days: "
        f"{points(found['change_q05'])} to {points(found['change_q95'])})."
    )
