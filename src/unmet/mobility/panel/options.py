"""Options of a panel: each one with its default, check, help text and example.

`build_panel` takes the fields of `PanelOptions` as keywords. The flags of ``unmet panel`` and the settings of
``unmet run`` take their defaults, help texts and examples from here. To add an option, add a field here and
its line (``name: type = _panel_option("name")``) to ``pipeline/settings.py``; ``unmet panel`` then has the flag.

This module imports nothing heavy, so that ``unmet --help`` is fast.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from numbers import Real
from typing import Any

from unmet._exceptions import InputError
from unmet._numbers import is_whole

__all__ = ["PANEL_OPTIONS", "OptionInfo", "PanelOptions", "censored_sql"]


@dataclass(frozen=True)
class OptionInfo:
    """Description of one option.

    Attributes
    ----------
    table : str or None
        Table of ``unmet.toml`` and group of flags: ``records`` or ``panel``. None if the option exists only in Python.
    kind : str
        Kind of value: ``text``, ``text or file``, ``texts or files`` (separated by commas), ``moment``, ``whole``,
        ``number``, ``flag`` or ``names``.
    help : str
        One sentence.
    example : str
        A value in TOML.
    default : Any
        Default value. `dataclasses.MISSING` if the option must be given.
    check : callable
        Raises `InputError` if the value is wrong.
    limits : tuple of float
        Smallest and largest value of a number. None for no limit.
    changes_panel : bool
        Whether another value can give another panel.
    """

    table: str | None
    kind: str
    help: str
    example: str
    default: Any
    check: Callable[[Any], object] = lambda _: None
    limits: tuple[float | None, float | None] = (None, None)
    changes_panel: bool = True


def _option(default: Any, table: str | None, kind: str, help: str, example: str, **more: Any) -> Any:
    return field(default=default, metadata={"info": OptionInfo(table, kind, help, example, default, **more)})


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_names(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(key, str) and (isinstance(item, str) or (isinstance(item, Sequence) and all(map(_is_text, item))))
        for key, item in value.items()
    )


# True is a number in Python, and any text but "" is true: neither is meant.
_KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "text": ("text", _is_text),
    "text or file": ("text", _is_text),
    "texts or files": ("text", _is_text),
    "moment": ("a date or a local time", lambda value: True),  # see `_utc_minute`
    "whole": ("a whole number", is_whole),
    "number": ("a number", lambda value: isinstance(value, Real) and not isinstance(value, bool)),
    "flag": ("True or False", lambda value: isinstance(value, bool)),
    "names": ("a mapping of names", _are_names),
}


def _check_timezone(timezone: str) -> None:
    from unmet.mobility.clock.timezones import zone_info

    zone_info(timezone)


def _check_every(every: str) -> None:
    from unmet.mobility.clock.bins import parse_every

    parse_every(every)


def _check_hours(hours: str | None) -> None:
    from unmet.mobility.records.opening import read_opening_hours

    if hours is not None:
        read_opening_hours(hours)


def _check_supply(supply: str) -> None:
    if supply not in ("usable", "listed"):
        raise InputError(f"Supply should be usable or listed; {supply!r} is neither.")


def _check_memory(memory: str) -> None:
    from unmet.mobility.records.read import parse_memory

    parse_memory(memory)


def _check_date_order(order: str | None) -> None:
    from unmet.mobility.records.dates import check_date_order

    check_date_order(order)


def censored_sql(rule: str) -> str:
    """Return the SQL condition of a rule for censored bins.

    Examples
    --------
    >>> censored_sql("minutes:10")
    'out_minutes >= 10'
    """
    kind, _, value = rule.partition(":")
    if rule == "any":
        return "out_minutes >= 1"
    if kind == "minutes" and re.fullmatch(r"\d+", value) and int(value) > 0:
        return f"out_minutes >= {int(value)}"
    if kind == "share" and re.fullmatch(r"\d*\.?\d+", value) and 0 < float(value) <= 1:
        return f"out_minutes >= 1 AND out_minutes >= {float(value)!r}::DOUBLE * (available_minutes + stockout_minutes)"
    raise InputError(f"censored_rule: expected any, minutes:10 (at least) or share:0.25 (at least), got {rule!r}.")


@dataclass(frozen=True, kw_only=True)
class PanelOptions:
    """Options of `build_panel`, checked when they are made.

    Parameters
    ----------
    timezone : str
        Time zone of the system. Times without an offset are local to it, and bins follow its wall clock.
    zones : str
        ``stations``, ``superhubs:200m``, ``superhubs:points.csv:200m``, a GeoJSON file, or ``h3:9``.
    every : str
        Length of a bin, from ``5min`` to ``1w``.
    start, end : str, optional
        Local times between which the panel is built. The records decide if not given.
    censored_rule : str
        Rule for censored bins: ``any`` (any minute of stock-out, as in the paper), ``minutes:10`` (at least 10 minutes)
        or ``share:0.25`` (at least a quarter of the minutes in which the zone was open).
    rebalancing : int
        Where pickups are inferred from status: a change of at least this many vehicles at once is counted as
        rebalancing, not as pickups or returns.
    hours : str, optional
        Opening hours: ``06:00-23:00`` daily, or GBFS documents (``system_hours.json``, ``system_calendar.json``,
        ``system_information.json``), separated by commas. Zones are closed outside them.
    supply : str
        ``usable``: exposure is the expected share of the bin in which a rider can be served, by a model of listed
        vehicles that cannot be rented. ``listed``: every listed vehicle can be rented.
    areas : str, optional
        Areas to sum zones by: a GeoJSON file of polygons, or a column of the stations table.
    keep : str, optional
        Zones that stay in the totals of the system although their records contradict each other: ``all``, or names or
        ids separated by commas. See `unmet.mobility.panel.plausibility`.
    mapping : mapping, optional
        Our field → the file's column, for columns with unknown headers. Use ``"status.at"`` if several sources have
        the field.
    headers : mapping, optional
        Our field → more headers to recognise it by. See `unmet.mobility.records.headers.more_headers`.
    date_order : str, optional
        Order of day, month and year in dates such as 01/02/2024: ``mdy``, ``dmy`` or ``ymd``. The dates decide if not
        given; a file whose dates do not show it is refused.
    vehicle_type : str, optional
        Count only vehicles and trips of one type: ``electric``, ``classic``, or a ``vehicle_type_id`` of GBFS
        documents. A zone is out of stock when it has none of that type.
    memory : str
        Memory limit. Data that does not fit is kept on disk.
    max_rejected : float
        Largest share of a source's rows (in the period) that may be rejected. More is an error, unless `force`.
    force : bool
        Continue however many rows are rejected.

    Examples
    --------
    >>> options = PanelOptions(timezone="Europe/Oslo", every="15min")
    >>> options.every, options.zones, options.rebalancing
    ('15min', 'stations', 8)
    """

    timezone: str = _option(
        MISSING,
        "records",
        "text",
        "Time zone of the system, such as America/New_York.",
        '"America/New_York"',
        check=_check_timezone,
    )
    zones: str = _option(
        "stations",
        "panel",
        "text or file",
        "stations | superhubs:200m (grouped) | superhubs:points.csv:200m (around points) | polygons.geojson | h3:9",
        '"stations"',
    )
    every: str = _option(
        "1h", "panel", "text", "Length of a bin, from 5min to 1w, by the local wall clock.", '"1h"', check=_check_every
    )
    start: str | None = _option(
        None,
        "panel",
        "moment",
        "Local time to start at (a bin that it cuts is taken whole); else where the records start.",
        '"2024-03-01"',
    )
    end: str | None = _option(
        None,
        "panel",
        "moment",
        "Local time to end at (a bin that it cuts is taken whole); else where the records end.",
        '"2024-06-01"',
    )
    censored_rule: str = _option(
        "any",
        "panel",
        "text",
        "Which bins are censored: any stock-out | minutes:10 (at least) | share:0.25 (at least).",
        '"any"',
        check=censored_sql,
    )
    rebalancing: int = _option(
        8,  # in Jersey City 6 to 8 agrees best with the trips; 5 to 10 hardly differ
        "panel",
        "whole",
        "Without trips: a change of at least this many vehicles at once is counted as rebalancing, not as pickups.",
        "8",
        limits=(2, None),
    )
    hours: str | None = _option(
        None,
        "panel",
        "texts or files",
        "Opening hours: 06:00-23:00, or GBFS documents such as system_hours.json; closed otherwise.",
        '"06:00-23:00"',
        check=_check_hours,
    )
    supply: str = _option(
        "usable",
        "panel",
        "text",
        "usable (learn how many listed vehicles cannot be rented) | listed (every listed vehicle can be rented).",
        '"usable"',
        check=_check_supply,
    )
    areas: str | None = _option(
        None,
        "panel",
        "text or file",
        "Areas to sum zones by: polygons.geojson, or a column of the stations table.",
        '"districts.geojson"',
    )
    keep: str | None = _option(
        None,
        "panel",
        "text",
        "Zones to count whatever their records say: all, or names separated by commas.",
        '"all"',
    )
    mapping: Mapping[str, str] | None = _option(
        None,
        "records",
        "names",
        "our_name=their_column, for headers that are not recognised.",
        '{ started_at = "Checkout Time" }',
    )
    headers: Mapping[str, str | Sequence[str]] | None = _option(
        None, None, "names", "Our field → more headers to recognise it by.", '{ started_at = "Checkout Time" }'
    )
    date_order: str | None = _option(
        None,
        "records",
        "text",
        "Order of dates such as 01/02/2024: mdy, dmy or ymd; else found from the dates.",
        '"dmy"',
        check=_check_date_order,
    )
    vehicle_type: str | None = _option(
        None,
        "records",
        "text",
        "Count vehicles and trips of one type: electric, classic, or a vehicle_type_id of GBFS documents.",
        '"electric"',
    )
    memory: str = _option(
        "2GB",
        "panel",
        "text",
        "Memory limit; data that does not fit is kept on disk.",
        '"2GB"',
        check=_check_memory,
        changes_panel=False,
    )
    max_rejected: float = _option(
        0.2,
        "records",
        "number",
        "Largest share of a source's rows, in the period, that may be rejected; more is an error.",
        "0.2",
        limits=(0.0, 1.0),
    )
    force: bool = _option(False, "records", "flag", "Continue however many rows are rejected.", "false")

    def __post_init__(self) -> None:
        for name, info in PANEL_OPTIONS.items():
            value = getattr(self, name)
            expected, right = _KINDS[info.kind]
            if not right(value) and not (value is None and info.default is None):
                raise InputError(f"{name}: expected {expected}, such as {info.example}; got {value!r:.60}.")
            info.check(value)
            least, most = info.limits
            if not ((least is None or value >= least) and (most is None or value <= most)):  # also for NaN
                limits = f"of at least {least}" if most is None else f"between {least:g} and {most:g}"
                raise InputError(f"{name}: expected a number {limits}, got {value!r}.")
        self.period()

    def columns(self) -> dict[str, str]:
        """Return `mapping`, with the column of the areas if they are one."""
        from unmet.mobility.zones.areas import is_polygon_file

        column = {} if self.areas is None or is_polygon_file(self.areas) else {"stations.area": self.areas}
        return {**(self.mapping or {}), **column}

    def period(self) -> tuple[int | None, int | None]:
        """Return the first minute (UTC) and the one after the last. None if not given."""
        start, end = (_utc_minute(name, getattr(self, name), self.timezone) for name in ("start", "end"))
        if start is not None and end is not None and end <= start:
            raise InputError(f"The panel would end before it starts: start {self.start!r}, end {self.end!r}.")
        return start, end


PANEL_OPTIONS: Mapping[str, OptionInfo] = {f.name: f.metadata["info"] for f in fields(PanelOptions)}
"""Description of every field of `PanelOptions`."""


def _utc_minute(name: str, text: str | None, timezone: str) -> int | None:
    """Convert a local time to a UTC minute; a local time that occurs twice is the first."""
    import pandas as pd

    from unmet.mobility.clock.timezones import FIRST_TIME, LAST_TIME

    if text is None:
        return None
    try:
        # The year comes first: pandas would read 01/07/2021 as January, and "now" as the time of the run.
        if isinstance(text, str) and not re.match(r"\s*\d{4}(\D|\d{4}|$)", text):
            raise ValueError(text)
        local = pd.Timestamp(text)
        if local.tzinfo is None:
            local = local.tz_localize(timezone, ambiguous=True, nonexistent="shift_forward")
        minute = int(local.timestamp() // 60)
    except (ValueError, TypeError, OverflowError, NotImplementedError) as error:  # the last: beyond the year 9999
        raise InputError(f"{name}: expected a local date or time such as 2021-03-01, got {text!r:.60}.") from error
    if not FIRST_TIME.year <= local.year < LAST_TIME.year:
        raise InputError(f"{name}: expected a year from {FIRST_TIME.year} to {LAST_TIME.year - 1}, got {text!r:.60}.")
    return minute
