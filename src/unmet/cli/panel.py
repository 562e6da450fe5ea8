"""`unmet panel`: build a panel from an operator's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from unmet._exceptions import InputError
from unmet._storage.files import real_path
from unmet.cli import _options as flags
from unmet.cli._console import Console
from unmet.cli._progress import step_progress
from unmet.cli._tables import count, counted
from unmet.mobility.supply.states import REASONS, WORDS
from unmet.mobility.supply.usable_words import supply_curve, supply_facts, supply_line

if TYPE_CHECKING:
    import pandas as pd

    from unmet.mobility.panel.build import Panel

__all__ = ["panel_command", "panel_facts"]

_SHOWN_CADENCE = 0.1  # share of hours
_PICKUPS_FROM = {
    "trips": "",
    "status": " (inferred from falls in availability)",
    "trips and status": " (inferred from falls in availability where there are no trip records)",
}


@flags.with_panel_options
def panel_command(
    *,
    out: Annotated[Path, typer.Option(help="Parquet file to write; it appears only when complete.")],
    trips: flags.Trips = None,
    status: flags.Status = None,
    stations: flags.Stations = None,
    unusable: Annotated[
        Path | None,
        typer.Option(help="CSV file to write: stations that very probably list vehicles nobody can rent."),
    ] = None,
    jobs: flags.Jobs = None,
    engine: flags.Engine = "processes",
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
    **options: Any,
) -> None:
    r"""Build the panel: one row per zone and time bin, with pickups, exposure and stock-outs.

    Give trips, station status, or both. With both, pickups come from trips and supply from status. With status alone,
    pickups are inferred from falls in availability. With trips alone, supply is computed from departures and arrivals,
    which is weaker evidence.

    Example:

      unmet panel --trips 'trips/*.csv.gz' --status status.parquet \
          --stations stations.csv --zones superhubs:200m --every 1h \
          --timezone America/New_York --out panel.parquet
    """
    # Imported here to keep `unmet --help` fast.
    from unmet.engines import find_executor
    from unmet.execution import count_workers
    from unmet.mobility.panel.build import write_panel
    from unmet.mobility.panel.saving import check_new_file, write_unusable

    options["mapping"] = flags.parse_map(options["mapping"])
    if unusable is not None:
        words = [options["zones"], *options["zones"].split(":"), options["areas"], *(options["hours"] or "").split(",")]
        check_new_file(unusable, trips, status, stations, [word for word in words if word and Path(word).is_file()])
        if real_path(unusable) == real_path(out):
            raise InputError(f"{str(out)!r} cannot be both the panel (--out) and the stations (--unusable).")
    executor = find_executor(engine)
    options |= {"executor": executor, "jobs": count_workers(jobs, executor)}
    with step_progress(Console(stderr=True, quiet=quiet), "starting") as progress:
        made = write_panel(out, trips, status, stations, progress=progress, **options)
    if unusable is not None:
        write_unusable(made, unusable)
    if as_json:
        document = {"out": str(out), "summary": made.summary, "quality": made.quality.to_dict("records")}
        typer.echo(json.dumps(document, indent=2, default=str))
    elif not quiet:
        _print(Console(), made, out)


def _print(console: Console, made: Panel, out: Path) -> None:
    summary = made.summary
    console.print(f"[bold]{escape(str(out))}[/]: {counted(summary['rows'], 'row')}", highlight=False)
    console.print(panel_facts(summary), _minutes(summary), sep="\n")
    for remark in summary.get("remarks", []):
        console.print(Text(f"Note: {remark}"))
    learnt = _usable(summary.get("usable_supply"))
    if learnt is not None:
        console.print(learnt)
    rejected = made.quality[made.quality["reason"] != "read"]
    if len(rejected):
        console.print(_quality(rejected))


def panel_facts(summary: dict[str, Any]) -> Table:
    """Make a small table of a panel's summary."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    used = summary["trips_used"]
    share = summary["censored_share"]
    rows = {
        "period": f"{summary['start_local']} to {summary['end_local']} ({summary['timezone']}), "
        f"bins of {summary['every']}",
        "zones": _zones(summary),
        "status": _status(summary),
        "usable supply": supply_line(summary.get("usable_supply")),
        "usable docks": supply_line(summary.get("usable_docks"), "returns", "dock"),
        "trips used": "none" if used is None else f"{used:,}",
        "pickups": count(summary["observed"]) + _PICKUPS_FROM[summary["pickups_from"]] + _expected(summary),
        "censored bins": "no zone was open in any bin"
        if share is None
        else f"{share:.1%} of {summary['bins_open']:,} open zone-bins (rule: {summary['censored_rule']})",
    }
    for name, value in rows.items():
        table.add_row(name, escape(value))
    return table


def _zones(summary: dict[str, Any]) -> str:
    if summary["zones_as"] == "stations":
        return f"{summary['zones']:,} (one per station)"
    stations = counted(summary["stations"], "station")
    return f"{counted(summary['zones'], 'zone')} ({summary['zones_as']}) from {stations}"


def _expected(summary: dict[str, Any]) -> str:
    some = summary.get("cancelled", 0.0)
    return f"; {count(some)} of them expected between looks" if some else ""


def _status(summary: dict[str, Any]) -> str:
    if summary["status"]:
        outages = summary["feed_outages"]
        looks = [row for row in summary.get("cadence") or [] if row["share"] >= _SHOWN_CADENCE]
        every = ", ".join(f"{row['minutes']:.0f} min ({row['share']:.0%})" for row in looks)
        return f"{summary['status']}; {counted(outages, 'outage') if outages else 'no outage'} of the whole feed" + (
            f"; time between records: {every}" if every else ""
        )
    if summary["minutes"]["available"] + summary["minutes"]["stockout"] == 0:
        return "none; supply cannot be computed from trips without station capacities (--stations) and ends"
    return "none; supply is computed from departures and arrivals, which is weaker evidence"


def _usable(learnt: dict[str, Any] | None) -> Table | None:
    """Make a small table of what was learnt about listed vehicles; None if nothing was."""
    facts = supply_facts(learnt)
    if not facts:
        return None
    title = "Listed vehicles that nobody can rent"
    table = Table(box=None, padding=(0, 2), title=title, title_justify="left", title_style="bold", show_header=False)
    curve = supply_curve(learnt)
    if curve:
        for name, place in (("if all can be rented", 1), ("by the model", 2)):
            numbers = ", ".join(f"{row[place]:.2f}" for row in curve)
            table.add_row(f"Pickups over expected with 1 to {len(curve)} listed, {name}", numbers)
    for fact in facts:
        table.add_row(*fact)
    return table


def _minutes(summary: dict[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 2), title="Minutes by state", title_justify="left", title_style="bold")
    table.add_column("state")
    table.add_column("minutes", justify="right")
    table.add_column("share", justify="right")
    table.add_column("reason")
    total = max(sum(summary["minutes"].values()), 1)
    for state, minutes in summary["minutes"].items():
        why = {k: v for k, v in summary["reasons"].items() if REASONS[k] == state}
        reasons = "; ".join(
            f"{WORDS[k]} {v / total:.1%}" if len(why) > 1 else WORDS[k]
            for k, v in sorted(why.items(), key=lambda i: -i[1])
        )
        table.add_row(state, f"{minutes:,}", f"{minutes / total:.1%}", reasons)
    return table


def _quality(findings: pd.DataFrame) -> Table:
    table = Table(
        box=None, padding=(0, 2), title="Rejected, repaired and noted", title_justify="left", title_style="bold"
    )
    table.add_column("")
    table.add_column("finding", overflow="fold")
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    order = {"rejected": 0, "repaired": 1, "noted": 2}
    for row in sorted(findings.to_dict("records"), key=lambda r: (order[r["action"]], r["source"])):
        # The detail gets its own line: as a column it would be too narrow.
        what = f"{row['source']}: {row['reason']}" + (f"\n{row['detail']}" if row["detail"] else "")
        text = Text(what)
        text.stylize("dim", len(what) - len(row["detail"] or ""))
        table.add_row(row["action"], text, f"{row['rows']:,}", f"{row['share']:.2%}")
    return table
