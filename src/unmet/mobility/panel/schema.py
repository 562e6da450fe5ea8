"""Columns of the panel: name, type, meaning, and how each one is made.

`SCHEMA` is the only list of columns. The arrays that `unmet.mobility.panel.assembly` fills, the SQL that makes the
panel from them, the checks of `unmet.mobility.panel.file.open_panel` and the table in ``docs/reference/files.md`` come
from it.

To add a column, add a `PanelColumn` to `SCHEMA`. That is all if SQL can make it from the stored arrays, in which
-1 stands for a missing `observed` or `returns`. For example::

    PanelColumn("empty_share", FLOAT, "Share of the bin in stock-out.", "stockout_minutes / minutes"),

If it needs an array of its own, give its NumPy type as `stored`, and fill the array of that name in `zone_rows` of
``assembly.py``::

    PanelColumn("checked", INTEGER, "Minutes with a record.", "checked::INTEGER", stored=np.int16),
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from unmet.mobility.supply.states import STATE_MINUTES

__all__ = [
    "EVIDENCE",
    "INFERRED_COLUMNS",
    "NEEDED_COLUMNS",
    "PANEL_COLUMNS",
    "SCHEMA",
    "STATE_MINUTES",
    "ColumnType",
    "PanelColumn",
    "columns_of",
    "select_panel",
    "stored_types",
]

EVIDENCE = ("none", "trips", "netted", "status", "status+trips")
"""Evidence for a bin: none; trips, with supply unknown; trips, with supply netted from them; status alone, with pickups
inferred from it; both."""


@dataclass(frozen=True)
class ColumnType:
    """Type of a column.

    Attributes
    ----------
    name : str
        Name of the type that `unmet` writes, in DuckDB.
    words : str
        Types that are accepted when a panel file is opened, in words.
    accepted : re.Pattern
        Names of these types in DuckDB.
    """

    name: str
    words: str
    accepted: re.Pattern[str]


_INTEGERS = r"U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)"
_NUMBERS = re.compile(rf"{_INTEGERS}|FLOAT|DOUBLE|DECIMAL\(.*\)")
TEXT = ColumnType("VARCHAR", "text", re.compile(".*"))
MOMENT = ColumnType("TIMESTAMP WITH TIME ZONE", "a timestamp, best with time zone", re.compile(r"TIMESTAMP.*"))
# Parquet keeps moments, not wall clocks: with a time zone the local hour would be lost.
WALL_CLOCK = ColumnType("TIMESTAMP", "a timestamp without time zone", re.compile(r"TIMESTAMP(_S|_MS|_NS)?"))
INTEGER = ColumnType("INTEGER", "a number", _NUMBERS)
FLOAT = ColumnType("DOUBLE", "a number", _NUMBERS)
LABEL = ColumnType("BOOLEAN", "a boolean or an integer", re.compile(rf"BOOLEAN|{_INTEGERS}"))


@dataclass(frozen=True)
class PanelColumn:
    """A column of the panel.

    Attributes
    ----------
    name : str
        Name of the column.
    type : ColumnType
        Its type.
    meaning : str
        One sentence, for the documentation.
    sql : str
        SQL that makes it from the stored arrays. ``{censored}`` stands for the chosen rule for censored bins.
    stored : NumPy type, optional
        Type of the array that `unmet.mobility.panel.assembly.zone_rows` fills. None if SQL alone makes the column.
    needed : bool
        Whether a panel file without it is refused.
    inferred_only : bool
        Whether it exists only where pickups are inferred from status.
    """

    name: str
    type: ColumnType
    meaning: str
    sql: str
    stored: Any = None
    needed: bool = False
    inferred_only: bool = False


def _count(name: str, meaning: str, **more: bool) -> PanelColumn:
    # -1 is stored for a missing count, so that the array can hold integers.
    return PanelColumn(name, FLOAT, meaning, f"CASE WHEN {name} >= 0 THEN {name}::DOUBLE END", np.int32, **more)


_STATE_MEANINGS = {
    "available_minutes": "Minutes in which the zone was open and listed a vehicle.",
    "stockout_minutes": "Minutes in which the zone was open and listed none.",
    "closed_minutes": "Minutes in which the zone was closed.",
    "unknown_minutes": "Minutes in an unknown state. The four sum to `minutes`.",
}

SCHEMA: tuple[PanelColumn, ...] = (
    PanelColumn("zone", TEXT, "Name of the zone.", "r.zone", np.int32, needed=True),
    PanelColumn("start", MOMENT, "Start of the bin, in UTC.", "r.start", "M8[us]", needed=True),
    PanelColumn(
        "start_local", WALL_CLOCK, "Local time at the start of the bin.", "r.start_local", "M8[us]", needed=True
    ),
    PanelColumn(
        "minutes",
        INTEGER,
        "Length of the bin. Days of 23 and 25 hours have 23 and 25 hourly bins.",
        "minutes::INTEGER",
        np.int16,  # a bin is no longer than a week
        needed=True,
    ),
    _count(
        "observed",
        "Pickups, from trips or inferred from status. Missing where there is neither.",
        needed=True,
    ),
    _count(
        "observed_early",
        "Pickups in the first half of the bin. Missing where there is no trip record, and if times are too rounded.",
    ),
    _count("returns", "Returns, from the same records as `observed`."),
    *(
        PanelColumn(name, INTEGER, _STATE_MEANINGS[name], f"{name}::INTEGER", np.int16)  # one per state, in their order
        for name in STATE_MINUTES
    ),
    PanelColumn(
        "unusable_minutes",
        FLOAT,
        "Expected minutes in which vehicles were listed and none could be rented. 0 with `--supply listed`.",
        "unusable_minutes::DOUBLE",
        np.float32,
    ),
    PanelColumn(
        "out_minutes",
        FLOAT,
        "Expected minutes in which the zone was open and nothing could be rented, listed or not.",
        "out_minutes::DOUBLE",
        np.float32,
    ),
    PanelColumn(
        "out_sd",
        FLOAT,
        "Standard deviation of the minutes out of stock: by the hidden number of broken vehicles or, where looks at "
        "the feed are far apart, by what could have happened between them.",
        "out_sd::DOUBLE",
        np.float32,
    ),
    PanelColumn(
        "exposure",
        FLOAT,
        "Expected share of the bin in which a rider could be served.",
        "(available_minutes + stockout_minutes - out_minutes::DOUBLE) / minutes",
        needed=True,
    ),
    PanelColumn("listed_exposure", FLOAT, "`available_minutes / minutes`.", "available_minutes / minutes"),
    PanelColumn("censored", LABEL, "Whether stock-outs hid demand, by the chosen rule.", "{censored}", needed=True),
    PanelColumn(
        "dock_minutes",
        INTEGER,
        "Minutes in which the zone accepted returns and listed a free dock. Missing if docks are unknown all the bin.",
        "CASE WHEN dock_minutes >= 0 THEN dock_minutes::INTEGER END",
        np.int16,
    ),
    PanelColumn(
        "full_minutes",
        INTEGER,
        "Minutes in which the zone accepted returns and listed no free dock. Missing where `dock_minutes` is.",
        "CASE WHEN full_minutes >= 0 THEN full_minutes::INTEGER END",
        np.int16,
    ),
    PanelColumn(
        "no_dock_minutes",
        FLOAT,
        "Expected minutes in which the zone accepted returns and no dock could be used, listed or not.",
        "CASE WHEN no_dock_minutes >= 0 THEN no_dock_minutes::DOUBLE END",
        np.float32,
    ),
    PanelColumn(
        "dock_exposure",
        FLOAT,
        "Expected share of the bin in which a rider could return a vehicle.",
        "CASE WHEN dock_minutes >= 0 THEN (dock_minutes + full_minutes - no_dock_minutes::DOUBLE) / minutes END",
    ),
    PanelColumn(
        "supply_mean",
        FLOAT,
        "Mean number of vehicles to rent while the zone was open. Missing if it never was.",
        "CASE WHEN NOT isnan(supply_mean) THEN supply_mean END",
        np.float64,
    ),
    PanelColumn(
        "evidence",
        TEXT,
        "Records behind the row: `status+trips`, `status`, `netted`, `trips` or `none`.",
        "r.evidence",
        np.int8,
    ),
    _count(
        "rebalanced_out", "Vehicles taken away by rebalancing. Only where pickups are inferred.", inferred_only=True
    ),
    _count("rebalanced_in", "Vehicles brought by rebalancing. Only where pickups are inferred.", inferred_only=True),
    _count(
        "cancelled",
        "Expected pickups that cancelled out with returns between two looks; part of `observed` and `returns`.",
        inferred_only=True,
    ),
)

CALENDAR_COLUMNS = ("t", "hour", "day_of_week", "hour_of_week")
"""Names of columns of the calendar, which are computed from the start of a bin."""

COMPUTED_COLUMNS = re.compile("|".join([r"future|weather_usual|shared_log_rate|shared_off_\d+", *CALENDAR_COLUMNS]))
"""Names of columns that are added to a panel's rows while they are estimated; no file may have them."""

PANEL_COLUMNS = tuple(column.name for column in SCHEMA if not column.inferred_only)
INFERRED_COLUMNS = tuple(column.name for column in SCHEMA if column.inferred_only)
NEEDED_COLUMNS = tuple(column.name for column in SCHEMA if column.needed)


def _columns(inferred: bool) -> list[PanelColumn]:
    return [column for column in SCHEMA if inferred or not column.inferred_only]


def columns_of(inferred: bool) -> tuple[str, ...]:
    """Return the names of a panel's columns; `inferred` if pickups are inferred from status anywhere."""
    return tuple(column.name for column in _columns(inferred))


def stored_types(inferred: bool) -> Mapping[str, Any]:
    """Return the NumPy type of every array that `unmet.mobility.panel.assembly` fills.

    Examples
    --------
    >>> "exposure" in stored_types(inferred=False)  # SQL makes it from other columns
    False
    """
    return {column.name: column.stored for column in _columns(inferred) if column.stored is not None}


def select_panel(inferred: bool, censored: str) -> str:
    """Return the SQL that makes the panel from ``panel_rows``, the stored arrays; `censored` is the rule in SQL."""
    body = ", ".join(f"{column.sql.format(censored=censored)} AS {column.name}" for column in _columns(inferred))
    return f"SELECT {body} FROM panel_rows r"
