"""What a run is made from: every setting once, with its place in ``unmet.toml``, its kind and what it means.

The flags of the command line and the example that ``unmet init`` writes take their words from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from unmet.execution import ENGINES
from unmet.mobility.models.registry import DEFAULT_MODEL, MODELS

__all__ = ["TABLES", "About", "RunSettings", "about", "settings_by_table"]

TABLES = {
    "": "Where results go.",
    "records": "The operator's files, and what may explain demand.",
    "panel": "How records become a table of zones and time bins.",
    "estimate": "How demand is estimated.",
    "report": "The page.",
}
"""The tables of ``unmet.toml``; the first is its top level."""


@dataclass(frozen=True)
class About:
    """What is to be known of one setting.

    Attributes
    ----------
    table : str
        Where it stands in ``unmet.toml``; a key of `TABLES`.
    kind : str
        ``path``, ``paths``, ``text``, ``moment``, ``zones``, ``whole``, ``number``, ``flag``, ``columns`` or ``names``.
    help : str
        One sentence.
    example : str
        A value as TOML writes it, for the example.
    shown : bool
        Whether the example sets it (else it is there as a comment).
    """

    table: str
    kind: str
    help: str
    example: str
    shown: bool = False


def _setting(default: Any, *what: Any, **more: Any) -> Any:
    return field(default=default, metadata={"about": About(*what, **more)})


# ruff: noqa: RUF009 - `_setting` gives a dataclass field, which is what belongs there.
@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Everything that decides what a run does; the flags of ``unmet run`` have the same names.

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
        "Trip files: CSV, CSV.gz, zip, Parquet; a folder or a 'glob/*.csv.gz'.",
        '"trips/*.csv.gz"',
        shown=True,
    )
    status: tuple[str, ...] = _setting(
        (),
        "records",
        "paths",
        "Station status: GBFS documents (a folder of snapshots) or a table of changes.",
        '"status.parquet"',
        shown=True,
    )
    stations: tuple[str, ...] = _setting(
        (),
        "records",
        "paths",
        "Stations: GBFS station_information or a table with id, lat, lon, capacity.",
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
        None, "records", "path", "Weather: a CSV or Parquet with a time and numbers.", '"weather.csv"'
    )
    weather_columns: tuple[str, ...] | None = _setting(
        None,
        "records",
        "columns",
        "Columns of the weather to use, commas between; all unless given.",
        '["temp", "rain"]',
    )
    holidays: str | None = _setting(
        None, "records", "text", "Public holidays of a country or a part of it: US, US:NY.", '"US:NY"'
    )
    map: Mapping[str, str] | None = _setting(
        None,
        "records",
        "names",
        "our_name=their_column, for headers that are not recognised.",
        '{ started_at = "Checkout Time" }',
    )
    max_rejected: float = _setting(
        0.2,
        "records",
        "number",
        "More than this share of a source rejected, in the period asked for, is an error.",
        "0.2",
    )
    force: bool = _setting(False, "records", "flag", "Go on however much was rejected.", "false")

    zones: str = _setting(
        "stations",
        "panel",
        "zones",
        "stations | superhubs:200m (grouped) | superhubs:points.csv:200m (around points) | polygons.geojson | h3:9",
        '"stations"',
    )
    every: str = _setting("1h", "panel", "text", "Length of a bin, from 5min to 1w, by the local wall clock.", '"1h"')
    start: str | None = _setting(
        None, "panel", "moment", "Local time to start at; else where the records start.", '"2024-03-01"'
    )
    end: str | None = _setting(
        None, "panel", "moment", "Local time to end at; else where the records end.", '"2024-06-01"'
    )
    censored_rule: str = _setting(
        "any",
        "panel",
        "text",
        "Which bins are censored: any stock-out | minutes:10 (at least) | share:0.25 (at least).",
        '"any"',
    )
    rebalancing: int = _setting(
        8, "panel", "whole", "Without trips: so many vehicles gone at once are a van, not riders.", "8"
    )
    hours: str | None = _setting(
        None, "panel", "text", "Daily opening hours, 06:00-23:00; closed otherwise.", '"06:00-23:00"'
    )
    memory: str = _setting("2GB", "panel", "text", "Memory to use; what does not fit goes to disk.", '"2GB"')

    model: str = _setting(
        DEFAULT_MODEL,
        "estimate",
        "text",
        f"Model: {', '.join(MODELS)}.",
        f'"{DEFAULT_MODEL}"',
    )
    horizon: str | None = _setting(
        None, "estimate", "text", "Go on beyond the panel's end by so much: 7d, 12h.", '"7d"'
    )
    seed: int = _setting(0, "estimate", "whole", "The same seed gives the same numbers.", "0")
    draws: int = _setting(400, "estimate", "whole", "Joint draws behind the intervals of totals.", "400")
    jobs: int | None = _setting(None, "estimate", "whole", "Worker processes; as many as processors.", "2")
    engine: str = _setting(
        "processes", "estimate", "text", f"Where zones are estimated: {', '.join(ENGINES)}.", '"processes"'
    )

    title: str | None = _setting(None, "report", "text", "Title of the page.", '"Bikes of our city, spring 2024"')
    truth: str | None = _setting(
        None,
        "report",
        "path",
        "truth.parquet of a simulated city, to show its true demand beside the estimate.",
        '"city/truth.parquet"',
    )


def about(name: str) -> About:
    """What is to be known of a setting.

    Examples
    --------
    >>> about("every").table
    'panel'
    """
    return _ABOUT[name]


def settings_by_table(table: str) -> list[str]:
    """Names of the settings in a table, in order.

    Examples
    --------
    >>> settings_by_table("report")
    ['title', 'truth']
    """
    return [name for name, known in _ABOUT.items() if known.table == table]


_ABOUT: dict[str, About] = {f.name: f.metadata["about"] for f in fields(RunSettings)}
