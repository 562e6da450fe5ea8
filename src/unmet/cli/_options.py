"""Options that several commands share. Their help texts come from `unmet.pipeline.settings`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from unmet._exceptions import InputError
from unmet.mobility.panel.options import PANEL_OPTIONS, PanelOptions
from unmet.pipeline.settings import PANEL_SETTINGS, about

__all__ = [
    "RUN_PANEL",
    "Areas",
    "AsJson",
    "Basemap",
    "CensoredRule",
    "Compare",
    "Draws",
    "End",
    "Engine",
    "Every",
    "Force",
    "Holidays",
    "Horizon",
    "Hours",
    "Jobs",
    "Keep",
    "Map",
    "MaxRejected",
    "Memory",
    "Model",
    "PanelFileArgument",
    "Quiet",
    "Rebalancing",
    "Seed",
    "Start",
    "Stations",
    "Status",
    "Supply",
    "Title",
    "Trips",
    "Truth",
    "VehicleType",
    "Weather",
    "WeatherColumns",
    "WeatherTimezone",
    "Zones",
    "option",
    "parse_columns",
    "parse_duration",
    "parse_map",
    "with_panel_options",
]

_PANELS = {
    "": "Run",
    "records": "Records",
    "panel": "Panel: zones and time bins",
    "estimate": "Estimate",
    "report": "Report",
}
RUN_PANEL = _PANELS[""]
# Types as typer writes them, without its additions for lists and ranges.
_METAVARS = {
    "path": "<path>",
    "paths": "<path>",
    "text": "<str>",
    "zones": "<str>",
    "moment": "<time>",
    "whole": "<int>",
    "number": "<float>",
    "columns": "<str>",
    "names": "<our=their>",
}


def option(name: str, *flags: str, **more: Any) -> Any:
    """Make the command-line option of a setting."""
    known = about(name)
    usual = {"help": known.help, "rich_help_panel": _PANELS[known.table], "metavar": _METAVARS.get(known.kind)}
    return typer.Option(*flags, **(usual | more))


Trips = Annotated[list[str] | None, option("trips")]
Status = Annotated[list[str] | None, option("status")]
Stations = Annotated[list[str] | None, option("stations")]
Weather = Annotated[Path | None, option("weather")]
WeatherColumns = Annotated[str | None, option("weather_columns")]
Holidays = Annotated[str | None, option("holidays")]
WeatherTimezone = Annotated[
    str | None,
    option("timezone", help="Time zone of weather times without an offset; default: the panel's."),
]
Map = Annotated[list[str] | None, option("map", "--map")]
DateOrder = Annotated[str | None, option("date_order")]
VehicleType = Annotated[str | None, option("vehicle_type")]
MaxRejected = Annotated[float, option("max_rejected", min=0.0, max=1.0)]
Force = Annotated[bool, option("force", "--force")]

Zones = Annotated[str, option("zones")]
Every = Annotated[str, option("every")]
Start = Annotated[str | None, option("start")]
End = Annotated[str | None, option("end")]
CensoredRule = Annotated[str, option("censored_rule")]
Rebalancing = Annotated[int, option("rebalancing", min=2)]
Hours = Annotated[str | None, option("hours")]
Supply = Annotated[str, option("supply")]
Areas = Annotated[str | None, option("areas")]
Keep = Annotated[str | None, option("keep")]
Memory = Annotated[str, option("memory")]

Model = Annotated[str, option("model")]
Side = Annotated[str, option("side")]
Horizon = Annotated[str | None, option("horizon")]
Seed = Annotated[int, option("seed", min=0)]
Draws = Annotated[int, option("draws", min=20)]
Walk = Annotated[str, option("walk")]
Jobs = Annotated[int | None, option("jobs", min=1, rich_help_panel=RUN_PANEL)]
Engine = Annotated[str, option("engine", rich_help_panel=RUN_PANEL)]

Title = Annotated[str | None, option("title")]
Truth = Annotated[Path | None, option("truth")]
Compare = Annotated[str | None, option("compare")]
Basemap = Annotated[Path | None, option("basemap")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Do not compare the run's files with their checksums; read them as they are.")
]

PanelFileArgument = Annotated[Path, typer.Argument(help="Panel file written by `unmet panel`.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.", rich_help_panel=RUN_PANEL)]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of tables.", rich_help_panel=RUN_PANEL)
]


def parse_columns(text: str | None) -> tuple[str, ...] | None:
    """Split names of columns at commas.

    Examples
    --------
    >>> parse_columns("temperature, rain")
    ('temperature', 'rain')
    """
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def parse_duration(text: str, flag: str, least: float = 0.0) -> float:
    """Seconds of a time such as 90s, 30min, 2h or 7d; not less than `least`.

    Examples
    --------
    >>> parse_duration("2h", "--for")
    7200.0
    """
    units = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
    number = text.strip().rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text.strip()[len(number) :].strip()
    try:
        seconds = float(number) * units[unit]
    except (KeyError, ValueError):
        seconds = 0.0
    if not 0 < seconds < 1e10 or seconds < least:
        bound = f", of at least {least:g} s" if least else ""
        raise InputError(f"{flag}: expected a time such as 90s, 30min, 2h or 7d{bound}, got {text!r}.")
    return seconds


def parse_map(pairs: list[str] | None) -> dict[str, str] | None:
    """Parse pairs ``our_name=their_column``.

    Examples
    --------
    >>> parse_map(["at=Time of record"])
    {'at': 'Time of record'}
    """
    mapping: dict[str, str] = {}
    for pair in pairs or []:
        ours, equals, theirs = (part.strip() for part in pair.partition("="))
        if not (ours and equals and theirs):
            raise InputError(f"--map: expected our_name=their_column, got {pair!r}.")
        if ours in mapping:
            raise InputError(f"--map: {ours} is given twice, as {mapping[ours]!r} and as {theirs!r}. Give one column.")
        mapping[ours] = theirs
    return mapping or None


def with_panel_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a flag for every panel option, before its ``quiet``. The values arrive in its ``**options``."""
    own = inspect.signature(command, eval_str=True)
    hints = get_type_hints(PanelOptions)
    parameters = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    place = list(own.parameters).index("quiet")
    for name, setting in reversed(list(PANEL_SETTINGS.items())):
        info = PANEL_OPTIONS[name]
        kind = list[str] | None if info.kind == "names" else hints[name]
        flag = option(setting, f"--{setting.replace('_', '-')}", min=info.limits[0], max=info.limits[1])
        default = inspect.Parameter.empty if info.default is MISSING else info.default
        typed = Annotated[kind, flag]  # type: ignore[valid-type]
        added = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=typed)
        parameters.insert(place, added)
    # typer reads both.
    command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
    return command
