"""Tables of a run's estimates for the terminal."""

from __future__ import annotations

import math
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from unmet.cli._console import Console
from unmet.cli._ending import end_with_failures

if TYPE_CHECKING:
    import pandas as pd

    from unmet.mobility.runs.run import RunResult

__all__ = [
    "add_zone_column",
    "count",
    "counted",
    "duration",
    "end_if_zones_failed",
    "forecast_table",
    "interval",
    "print_estimate",
    "zone_labels",
]

_WORST = 5
_FAILED = 10


def print_estimate(console: Console, result: RunResult) -> None:
    """Print the totals, the zones with most lost trips, and the zones that failed."""
    labels = zone_labels(result.zones)
    console.print(_totals_table(result))
    if held_out := (result.info.get("joint") or {}).get("held_out"):
        console.print(
            f"Check on {held_out['bins']:,} bins that were held out: predicted {held_out['bias']:+.1%} "
            f"(± {2 * held_out['bias_se']:.1%}), {held_out['coverage']:.0%} inside their 90 % interval."
        )
    if len(worst := _worst(result.zones)):
        console.print(_zones_table(worst, labels))
    if result.failures:
        console.print(_failures_table(result, labels))


def forecast_table(rows: pd.DataFrame, labels: dict[str, str]) -> Table:
    """Return the zones and hours of a forecast in which most riders are expected to find nothing."""
    lost = "expected_lost" if rows["expected_lost"].notna().any() else "rate_mean"
    table = Table(title="Forecast: where most riders would find nothing", title_justify="left")
    add_zone_column(table)
    for name in ("hour", "riders", "90 % interval", "risk to find nothing", "find nothing"):
        table.add_column(name, justify="right")
    for row in rows.nlargest(_WORST, lost).to_dict("records"):
        end = row["start_local"] + timedelta(minutes=float(row["minutes"]))
        known = math.isfinite(row["risk"])
        table.add_row(
            Text(labels[row["zone"]]),
            f"{row['start_local']:%a %H:%M} – {end:%H:%M}",
            f"{row['demand_mean']:.1f}",
            interval(row["demand_q05"], row["demand_q95"]) if math.isfinite(row["demand_q05"]) else "",
            f"{row['risk']:.0%}" if known else "unknown",
            f"{row['expected_lost']:.1f}" if known else "",
        )
    return table


def end_if_zones_failed(result: RunResult) -> None:
    """Exit with code 1 and a message if zones have no estimate."""
    if result.failures:
        failed, zones = len(result.failures), result.info["zones"]["all"]
        message = f"{failed:,} of {counted(zones, 'zone')} could not be estimated; the others are done"
        if failed == zones:
            message = (
                "The only zone could not be estimated"
                if zones == 1
                else f"None of the {zones:,} zones could be estimated"
            )
        end_with_failures(message, str(result.out / "zones.parquet"))


def zone_labels(zones: pd.DataFrame) -> dict[str, str]:
    """Return a label for each zone: its name, followed by its id if several zones have that name."""
    names = Counter(zones["name"])
    pairs = zip(zones["zone"], zones["name"], strict=True)
    return {zone: name if names[name] == 1 or name == zone else f"{name} ({zone})" for zone, name in pairs}


def _totals_table(result: RunResult) -> Table:
    counts, totals = result.info["zones"], result.info["totals"]
    model = result.info["inputs"]["model"].get("name", "")
    title = f"{counts['estimated']} of {counted(counts['all'], 'zone')}, model {model}"
    table = Table(title=Text(title), title_justify="left")
    for name in ("trips", "mean", "90 % interval", "of demand"):
        table.add_column(name, justify="left" if name == "trips" else "right")
    demand = totals["demand"]["mean"]
    walked = ("walked_on",) if totals.get("walked_on", {}).get("mean", 0.0) > 0.0 else ()
    for name in ("observed", "lost", *walked, "demand"):
        row = totals[name]
        between = "" if name == "observed" else interval(row["q05"], row["q95"])
        share = f"{row['mean'] / demand:.1%}" if demand > 0 else ""
        table.add_row(
            name.replace("_", " "), count(row["mean"]), between, share, style="bold" if name == "lost" else None
        )
    return table


def _worst(zones: pd.DataFrame) -> pd.DataFrame:
    inside = zones["left_out"].isna() if "left_out" in zones else True
    fitted = zones[(zones["status"] == "ok") & inside & (zones["lost_mean"] > 0)]
    return fitted.nlargest(_WORST, "lost_mean")


def _zones_table(worst: pd.DataFrame, labels: dict[str, str]) -> Table:
    table = Table(title="Zones with most lost trips", title_justify="left")
    add_zone_column(table)
    for name in ("observed", "lost", "90 % interval", "of demand", "hours out of stock"):
        table.add_column(name, justify="right")
    for _, row in worst.iterrows():
        hours = count(row["stockout_minutes"] / 60) if "stockout_minutes" in worst.columns else ""
        table.add_row(
            Text(labels[row["zone"]]),  # as Text: a name from a file must not be read as markup
            count(row["observed"]),
            count(row["lost_mean"]),
            interval(row["lost_q05"], row["lost_q95"]),
            f"{row['lost_mean'] / row['demand_mean']:.1%}",
            hours,
        )
    return table


def _failures_table(result: RunResult, labels: dict[str, str]) -> Table:
    failed = result.zones[result.zones["status"] == "failed"]
    table = Table(
        title=Text(
            f"{counted(len(failed), 'zone')} could not be estimated and {'is' if len(failed) == 1 else 'are'} "
            "not in the totals",
            style="bold red",
        ),
        title_justify="left",
    )
    add_zone_column(table)
    table.add_column("observed", justify="right")
    table.add_column("reason", overflow="fold")
    for _, row in failed.head(_FAILED).iterrows():
        table.add_row(Text(labels[row["zone"]]), count(row["observed"]), Text(str(row["reason"])))
    if len(failed) > _FAILED:
        table.add_row("…", "", Text(f"and {len(failed) - _FAILED} more in zones.parquet"))
    return table


def add_zone_column(table: Table) -> None:
    """Add a column for zone names, which may be of any length: long ones are wrapped."""
    table.add_column("zone", overflow="fold", max_width=24)


def count(value: float) -> str:
    """Format a whole number with commas. Halves round up, as in the report (Python rounds to even).

    Examples
    --------
    >>> count(140.5), count(1234.4)
    ('141', '1,234')
    """
    return f"{math.floor(value + 0.5):,}" if math.isfinite(value) else ""  # NaN: nothing was observed


def counted(number: int, what: str) -> str:
    """Format a number with its noun, in the plural if needed.

    Examples
    --------
    >>> counted(1, "zone"), counted(1200, "zone")
    ('1 zone', '1,200 zones')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def interval(low: float, high: float) -> str:
    """Format an interval of whole numbers."""
    return f"{count(low)} – {count(high)}"


def duration(seconds: float) -> str:
    """Format a length of time.

    Examples
    --------
    >>> duration(4.23), duration(312)
    ('4.2 s', '5.2 min')
    """
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
