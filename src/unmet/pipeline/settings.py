"""What a run is made from: every setting once, with its place in ``unmet.toml``, its kind and what it means.

The flags of the command line and the example that ``unmet init`` writes take their words from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from unmet.mobility.panel.options import PANEL_OPTIONS

__all__ = ["PANEL_SETTINGS", "TABLES", "About", "RunSettings", "about", "panel_options", "settings_by_table"]

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


def _panel_option(name: str, **changes: Any) -> Any:
    """Make the setting of a panel option, with the default and the words of `PanelOptions`."""
    info = PANEL_OPTIONS[name]
    default = changes.pop("default", info.default)
    return _setting(default, info.table, info.kind, info.help, info.example, **changes)


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
    timezone: str = _panel_option("timezone", default="", shown=True)
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
    map: Mapping[str, str] | None = _panel_option("mapping")
    max_rejected: float = _panel_option("max_rejected")
    force: bool = _panel_option("force")

    zones: str = _panel_option("zones")
    every: str = _panel_option("every")
    start: str | None = _panel_option("start")
    end: str | None = _panel_option("end")
    censored_rule: str = _panel_option("censored_rule")
    rebalancing: int = _panel_option("rebalancing")
    hours: str | None = _panel_option("hours")
    memory: str = _panel_option("memory")

    model: str = _setting(
        "exposure",
        "estimate",
        "text",
        "exposure, cgp, ncgp, ncgp-a, tobit, observed, weekly-mean or drop-censored.",
        '"exposure"',
    )
    horizon: str | None = _setting(
        None, "estimate", "text", "Go on beyond the panel's end by so much: 7d, 12h.", '"7d"'
    )
    seed: int = _setting(0, "estimate", "whole", "The same seed gives the same numbers.", "0")
    draws: int = _setting(400, "estimate", "whole", "Joint draws behind the intervals of totals.", "400")
    jobs: int | None = _setting(None, "estimate", "whole", "Worker processes; as many as processors.", "2")

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
