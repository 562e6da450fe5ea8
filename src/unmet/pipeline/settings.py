"""Settings of a run: each with its table in ``unmet.toml``, its kind and its help text.

The command-line flags and the example that ``unmet init`` writes use the texts of this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

__all__ = ["TABLES", "About", "RunSettings", "about", "settings_by_table"]

TABLES = {
    "": "Where to write the results.",
    "records": "Input files, and data that explains demand.",
    "panel": "How to build the panel of zones and time bins.",
    "estimate": "How to estimate demand.",
    "report": "The report page.",
}
"""The tables of ``unmet.toml``; the first is its top level."""


@dataclass(frozen=True)
class About:
    """Description of one setting.

    Attributes
    ----------
    table : str
        Its table in ``unmet.toml``; a key of `TABLES`.
    kind : str
        ``path``, ``paths``, ``text``, ``moment``, ``zones``, ``whole``, ``number``, ``flag``, ``columns`` or ``names``.
    help : str
        One sentence.
    example : str
        A value in TOML syntax, for the example file.
    shown : bool
        Whether the example file sets it, or shows it as a comment.
    """

    table: str
    kind: str
    help: str
    example: str
    shown: bool = False


def _setting(default: Any, *what: Any, **more: Any) -> Any:
    return field(default=default, metadata={"about": About(*what, **more)})


# ruff: noqa: RUF009 - `_setting` returns a dataclass field.
@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings of a run; the flags of ``unmet run`` have the same names.

    Examples
    --------
    >>> settings = RunSettings(trips=("trips.csv",), status=("status.parquet",), timezone="Europe/Oslo")
    >>> settings.every, settings.model, str(settings.out)
    ('1h', 'exposure', 'out')
    """

    out: Path = _setting(
        Path("out"), "", "path", "Folder for panel.parquet, estimate/ and report.html.", '"out"', shown=True
    )

    trips: tuple[str, ...] = _setting(
        (),
        "records",
        "paths",
        "Trip files (CSV, CSV.gz, zip, Parquet), a folder, or a quoted glob such as 'trips/*.csv.gz'.",
        '"trips/*.csv.gz"',
        shown=True,
    )
    status: tuple[str, ...] = _setting(
        (),
        "records",
        "paths",
        "Station status: a folder of GBFS snapshots, or a table of changes.",
        '"status.parquet"',
        shown=True,
    )
    stations: tuple[str, ...] = _setting(
        (),
        "records",
        "paths",
        "Stations: GBFS station_information, or a table with id, lat, lon and capacity.",
        '"stations.csv"',
        shown=True,
    )
    timezone: str = _setting(
        "",
        "records",
        "text",
        "Time zone of the system, such as America/New_York.",
        '"America/New_York"',
        shown=True,
    )
    weather: str | None = _setting(
        None,
        "records",
        "path",
        "Weather: a CSV or Parquet file with a time column and numeric columns.",
        '"weather.csv"',
    )
    weather_columns: tuple[str, ...] | None = _setting(
        None,
        "records",
        "columns",
        "Weather columns to use, separated by commas; default: all.",
        '["temp", "rain"]',
    )
    holidays: str | None = _setting(
        None, "records", "text", "Public holidays of a country (US) or a subdivision (US:NY).", '"US:NY"'
    )
    map: Mapping[str, str] | None = _setting(
        None,
        "records",
        "names",
        "Column names that are not recognised, as our_name=their_column.",
        '{ started_at = "Checkout Time" }',
    )
    max_rejected: float = _setting(
        0.2,
        "records",
        "number",
        "Stop if more than this share of a source's rows in the period is rejected.",
        "0.2",
    )
    force: bool = _setting(False, "records", "flag", "Continue even if more rows are rejected.", "false")

    zones: str = _setting(
        "stations",
        "panel",
        "zones",
        "stations, superhubs:200m (grouped), superhubs:points.csv:200m (around points), polygons.geojson or h3:9.",
        '"stations"',
    )
    every: str = _setting("1h", "panel", "text", "Length of a bin on the local clock, from 5min to 1w.", '"1h"')
    start: str | None = _setting(
        None, "panel", "moment", "First local time; default: the start of the records.", '"2024-03-01"'
    )
    end: str | None = _setting(
        None, "panel", "moment", "Last local time; default: the end of the records.", '"2024-06-01"'
    )
    censored_rule: str = _setting(
        "any",
        "panel",
        "text",
        "Bins labelled as censored: any (any stock-out), minutes:10 or share:0.25 (at least so long a stock-out).",
        '"any"',
    )
    rebalancing: int = _setting(
        8,
        "panel",
        "whole",
        "Without trips: a drop of at least this many vehicles at once is rebalancing, not pickups.",
        "8",
    )
    hours: str | None = _setting(None, "panel", "text", "Daily opening hours, such as 06:00-23:00.", '"06:00-23:00"')
    memory: str = _setting("2GB", "panel", "text", "Memory limit; larger data is kept on disk.", '"2GB"')

    model: str = _setting(
        "exposure",
        "estimate",
        "text",
        "Demand model: exposure, cgp, ncgp, ncgp-a, tobit, observed, weekly-mean or drop-censored.",
        '"exposure"',
    )
    horizon: str | None = _setting(
        None, "estimate", "text", "Forecast beyond the panel's end, such as 7d or 12h.", '"7d"'
    )
    seed: int = _setting(0, "estimate", "whole", "Random seed; the same seed gives the same numbers.", "0")
    draws: int = _setting(
        400, "estimate", "whole", "Number of joint posterior draws, for the intervals of totals.", "400"
    )
    jobs: int | None = _setting(
        None, "estimate", "whole", "Number of worker processes; default: one per processor.", "2"
    )

    title: str | None = _setting(None, "report", "text", "Title of the report.", '"Bikes of our city, spring 2024"')
    truth: str | None = _setting(
        None,
        "report",
        "path",
        "truth.parquet of a simulated city; the report then shows its true demand.",
        '"city/truth.parquet"',
    )


def about(name: str) -> About:
    """Return the description of a setting.

    Examples
    --------
    >>> about("every").table
    'panel'
    """
    return _ABOUT[name]


def settings_by_table(table: str) -> list[str]:
    """Return the names of the settings in a table, in order.

    Examples
    --------
    >>> settings_by_table("report")
    ['title', 'truth']
    """
    return [name for name, known in _ABOUT.items() if known.table == table]


_ABOUT: dict[str, About] = {f.name: f.metadata["about"] for f in fields(RunSettings)}
