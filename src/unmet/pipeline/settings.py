"""Settings of a run: each with its table in ``unmet.toml``, its kind and its help text.

The command-line flags and the example that ``unmet init`` writes use the texts of this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from unmet.engines import ENGINE_WORDS
from unmet.mobility.models.registry import DEFAULT_DRAWS, DEFAULT_MODEL, MODELS
from unmet.mobility.panel.options import PANEL_OPTIONS

__all__ = ["PANEL_SETTINGS", "TABLES", "About", "RunSettings", "about", "panel_options", "settings_by_table"]

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
        ``path``, ``paths``, ``text``, ``text or file``, ``texts or files`` (separated by commas), ``moment``,
        ``whole``, ``number``, ``flag``, ``columns`` or ``names``.
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


def _panel_option(name: str, **changes: Any) -> Any:
    """Make the setting of a panel option, with the default and the words of `PanelOptions`."""
    info = PANEL_OPTIONS[name]
    default = changes.pop("default", info.default)
    return _setting(default, info.table, info.kind, info.help, info.example, **changes)


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
        "Trip files (CSV, CSV.gz, zip, Parquet), a folder, or a quoted glob such as 'trips/*.csv.gz'. Or a table of a "
        "DuckDB file: 'duckdb://a.db?table=t'.",
        '"trips/*.csv.gz"',
        shown=True,
    )
    status: tuple[str, ...] = _setting(
        (),
        "records",
        "paths",
        "Station status: a folder of GBFS snapshots or of `unmet collect`, a table of changes, or "
        "'duckdb://a.db?table=t'.",
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
    timezone: str = _panel_option("timezone", default="", shown=True)
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
    map: Mapping[str, str] | None = _panel_option("mapping")
    date_order: str | None = _panel_option("date_order")
    vehicle_type: str | None = _panel_option("vehicle_type")
    max_rejected: float = _panel_option("max_rejected")
    force: bool = _panel_option("force")

    zones: str = _panel_option("zones")
    every: str = _panel_option("every")
    start: str | None = _panel_option("start")
    end: str | None = _panel_option("end")
    censored_rule: str = _panel_option("censored_rule")
    rebalancing: int = _panel_option("rebalancing")
    hours: str | None = _panel_option("hours")
    supply: str = _panel_option("supply")
    areas: str | None = _panel_option("areas")
    keep: str | None = _panel_option("keep")
    memory: str = _panel_option("memory")

    model: str = _setting(
        DEFAULT_MODEL,
        "estimate",
        "text",
        f"Demand model: {', '.join(MODELS)}.",
        f'"{DEFAULT_MODEL}"',
    )
    side: str = _setting(
        "pickups",
        "estimate",
        "text",
        "What to estimate: pickups, or both (also the returns that full stations hide, in estimate/returns).",
        '"pickups"',
    )
    horizon: str | None = _setting(
        None, "estimate", "text", "Forecast beyond the panel's end, such as 7d or 12h.", '"7d"'
    )
    seed: int = _setting(0, "estimate", "whole", "Random seed; the same seed gives the same numbers.", "0")
    draws: int = _setting(
        DEFAULT_DRAWS, "estimate", "whole", "Number of joint posterior draws, for the intervals of totals.", "400"
    )
    walk: str = _setting(
        "learn",
        "estimate",
        "text or file",
        "How likely riders walk on from an empty zone: learn (from the records), none (nobody walks), or a CSV file "
        "with columns metres and chance.",
        '"learn"',
    )
    jobs: int | None = _setting(
        None, "estimate", "whole", "Number of worker processes; default: one per processor.", "2"
    )
    engine: str = _setting("processes", "estimate", "text", f"Where the work is done: {ENGINE_WORDS}.", '"processes"')

    title: str | None = _setting(
        None,
        "report",
        "text",
        "Title of the report; default: the name of the system in its feed, or of the folder of the records.",
        '"Bikes of our city, spring 2024"',
    )
    truth: str | None = _setting(
        None,
        "report",
        "path",
        "truth.parquet of a simulated city; the report then shows its true demand.",
        '"city/truth.parquet"',
    )
    compare: str | None = _setting(
        None,
        "report",
        "text",
        "Weeks that the report compares first: 4w (the last four against the four before), or year (the same weeks of "
        "the year before); default: four weeks, or half of a shorter record.",
        '"4w"',
    )
    basemap: str | None = _setting(
        None, "report", "path", "GeoJSON of streets (lines) and water (polygons) behind the map.", '"lines.geojson"'
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
    ['title', 'truth', 'compare', 'basemap']
    """
    return [name for name, known in _ABOUT.items() if known.table == table]


_ABOUT: dict[str, About] = {f.name: f.metadata["about"] for f in fields(RunSettings)}

PANEL_SETTINGS: Mapping[str, str] = {
    name: "map" if name == "mapping" else name for name, info in PANEL_OPTIONS.items() if info.table is not None
}
"""Option of the panel → setting of the run."""


def panel_options(settings: RunSettings) -> dict[str, Any]:
    """Return the settings that are options of the panel, as keywords of `PanelOptions`.

    Examples
    --------
    >>> panel_options(RunSettings(timezone="Europe/Oslo", map={"at": "Zeit"}))["mapping"]
    {'at': 'Zeit'}
    """
    return {option: getattr(settings, setting) for option, setting in PANEL_SETTINGS.items()}
