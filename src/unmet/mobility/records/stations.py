"""Stations, and their several ids."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import duckdb

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.sql import fetch_all, reading
from unmet.mobility.clock.timezones import standard_offset_hours
from unmet.mobility.records.casting import text
from unmet.mobility.records.collected import split_histories, station_rows
from unmet.mobility.records.files import (
    Given,
    InputTable,
    Workspace,
    expand,
    is_frame,
    is_json,
    malformed_lines,
    open_files,
    open_tables,
)
from unmet.mobility.records.gbfs import read_station_information
from unmet.mobility.records.headers import Headers, is_id_column, normalise
from unmet.mobility.records.quality import QualityLog

__all__ = ["Resolved", "Station", "StationTable", "check_not_swapped", "id_text", "read_stations", "resolve"]

# A station whose coordinates change by more than this has moved; less is a correction.
MOVED_METRES = 50.0
_MOST_DOCKS = 100_000  # of a station; as many as the vehicles of a status record
_IMPOSSIBLE = -1  # a capacity that is no number of docks
_ROW_BYTES = 2000  # memory that a row takes in Python with its ids, about


@dataclass(frozen=True)
class Station:
    """One station. `lat`, `lon`, `capacity` and `area` are None if unknown. `ids` maps id columns to their values."""

    station: str
    name: str | None = None
    lat: float | None = None
    lon: float | None = None
    capacity: int | None = None
    ids: Mapping[str, str] = field(default_factory=dict)
    area: str | None = None


@dataclass(frozen=True)
class StationTable:
    """Stations and their ids.

    Attributes
    ----------
    stations : list of Station
        Stations, in order.
    ids : dict
        Id column → value → position of the station.
    running : frozenset of str
        Id columns that only number the rows 0, 1, 2, ... They are used only for files that name them.
    """

    stations: list[Station]
    ids: dict[str, dict[str, int]]
    running: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Resolved:
    """Stations of the ids in a file.

    Attributes
    ----------
    index : dict
        Raw id → position in the table, or None.
    matched : dict
        Id column → number of rows that it explained.
    ambiguous : int
        Rows whose id belongs to another station by another id column.
    """

    index: dict[str, int | None]
    matched: dict[str, int]
    ambiguous: int


def id_text(value: object) -> str | None:
    """Convert an id to text: trimmed, and ``3184`` for ``3184.0``, which spreadsheets make of it.

    Examples
    --------
    >>> id_text(" JC005 "), id_text(3184.0), id_text("3184.0"), id_text(float("nan"))
    ('JC005', '3184', '3184', None)
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    written = str(value).strip()
    whole, point, decimals = written.partition(".")
    if point and whole.isdigit() and decimals and not decimals.strip("0") and len(decimals) == 1:
        return whole
    return written or None


def read_stations(
    workspace: Workspace, given: Given, timezone: str, headers: Headers, log: QualityLog
) -> tuple[StationTable, set[str]]:
    """Read stations from tables, frames or GBFS documents. Return them and all headers."""
    seen: set[str] = set()
    named: dict[str, str] = {}
    histories, others = split_histories(given)
    collected = [row for history in histories for row in station_rows(workspace, history)]
    rows, label = [_described(row, headers, seen) for row in collected], "the collected stations"
    if is_frame(others):
        tables, label = open_tables(workspace, others, "stations"), "the stations frame"
        rows += _from_tables(tables, workspace, headers, seen, named, log)
    elif others or not histories:
        paths = expand(others, "stations")
        label = str(paths[0]) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
        # Documents in the order in which they were written: the last entry of a station is used.
        documents = _read_documents(workspace, [p for p in paths if is_json(p)], label)
        rows += [_described(row, headers, seen) for _, found in documents for row in found]
        tables = open_files(workspace, [p for p in paths if not is_json(p)])
        rows += _from_tables(tables, workspace, headers, seen, named, log)
    log.total("stations", len(rows))
    kept = [row for row in rows if row.station]
    log.add("stations", "missing station", "rejected", len(rows) - len(kept), "no id")
    return _table(_unique(_placed(_sized(kept, log), timezone, label, named, log), log)), seen


def _read_documents(
    workspace: Workspace, paths: Sequence[Path], label: str
) -> list[tuple[float, list[dict[str, Any]]]]:
    """Read ``station_information`` documents, in the order of their times."""
    documents, rows = [], 0
    for path in paths:
        documents.append(read_station_information(path, workspace.memory))
        rows += len(documents[-1][1])
        _check_rows(rows, workspace.memory, label)
    return sorted(documents, key=lambda document: document[0])


def _check_rows(rows: int, memory: int, label: str) -> None:
    if rows * _ROW_BYTES > memory:
        raise InputError(
            f"{label}: {rows:,} rows of stations or more do not fit into the memory limit. One row for each station is "
            "enough: give fewer files, or raise the limit (memory=, --memory)."
        )


def _from_tables(
    tables: Sequence[InputTable],
    workspace: Workspace,
    headers: Headers,
    seen: set[str],
    named: dict[str, str],
    log: QualityLog,
) -> list[Station]:
    """Read tables. Add their headers to `seen`, and the headers of our fields to `named`."""
    rows = []
    for table in tables:
        seen.update(table.columns)
        matched = headers.match("stations", table.columns, table.label)
        named.update(matched)
        wanted = [h for h in table.columns if h in matched.values() or is_id_column(h)]
        select = ", ".join(f"{text(table.columns[h])}" for h in wanted)
        limit = f"LIMIT {workspace.memory // _ROW_BYTES + 1}"
        with reading(table.label):
            try:
                found = fetch_all(workspace.connection, f"SELECT {select} FROM {table.relation} {limit}")
            except duckdb.InvalidInputException:
                found = fetch_all(
                    workspace.connection, f"SELECT {select} FROM {table.lenient or table.relation} {limit}"
                )
        _check_rows(len(found), workspace.memory, table.label)
        malformed = malformed_lines(workspace, table, found.__len__)
        log.total("stations", malformed)
        log.add("stations", "malformed line", "rejected", malformed, table.label)
        for values in found:
            row = dict(zip(wanted, values, strict=True))
            ours = {field: row[header] for field, header in matched.items()}
            rows.append(_station({**ours, "station_id": ours["station"]}, dict.fromkeys(wanted), row))
    return rows


def _described(row: Mapping[str, Any], headers: Headers, seen: set[str]) -> Station:
    """Read a station of GBFS, whose fields have the names of the specification."""
    area = headers.mapping.get("stations.area", "area")
    seen.update({area} & set(row))
    return _station({**row, "area": row.get(area)}, dict.fromkeys(row), row)


def _station(ours: Mapping[str, Any], headers: Mapping[str, None], row: Mapping[str, Any]) -> Station:
    ids = {h: id_text(row[h]) for h in headers if is_id_column(h)}
    return Station(
        id_text(ours.get("station_id")) or "",
        ours.get("name"),
        _float(ours.get("lat")),
        _float(ours.get("lon")),
        _capacity(ours.get("capacity")),
        {h: value for h, value in ids.items() if value is not None},
        id_text(ours.get("area")),
    )


def _capacity(value: Any) -> int | None:
    """Read a number of docks: None if missing, `_IMPOSSIBLE` if it is none."""
    if value is None or value != value or not str(value).strip():
        return None
    number = _float(value)
    return int(number) if number is not None and number.is_integer() and 0 <= number <= _MOST_DOCKS else _IMPOSSIBLE


def _sized(stations: Sequence[Station], log: QualityLog) -> list[Station]:
    """Blank capacities that are no number of docks."""
    log.add(
        "stations", "impossible capacity", "repaired", sum(s.capacity == _IMPOSSIBLE for s in stations), "left blank"
    )
    return [replace(s, capacity=None) if s.capacity == _IMPOSSIBLE else s for s in stations]


def _float(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _placed(
    stations: Sequence[Station], timezone: str, label: str, named: Mapping[str, str], log: QualityLog
) -> list[Station]:
    """Check coordinates: refuse a table with swapped latitude and longitude, correct or blank single rows."""
    points = [(s.lat, s.lon) for s in stations if s.lat is not None and s.lon is not None]
    possible = [(lat, lon) for lat, lon in points if (lat, lon) != (0.0, 0.0)]
    middle = (0.0, 0.0)
    if possible:
        middle = (median(p[0] for p in possible), median(p[1] for p in possible))
        check_not_swapped(*middle, timezone, label, named, [("lat", "lon")])
    placed, swapped, impossible, missing = [], 0, 0, 0
    for s in stations:
        place: tuple[float | None, float | None] = (None, None)
        if s.lat is None or s.lon is None:
            missing += 1
        elif _near((s.lon, s.lat), middle) and not _near((s.lat, s.lon), middle):
            swapped += 1
            place = (s.lon, s.lat)
        elif (s.lat, s.lon) == (0.0, 0.0) or abs(s.lat) > 90 or abs(s.lon) > 180:
            impossible += 1
        else:
            place = (s.lat, s.lon)
        placed.append(replace(s, lat=place[0], lon=place[1]))
    log.add("stations", "swapped latitude and longitude", "repaired", swapped, "swapped back")
    log.add("stations", "impossible coordinates", "repaired", impossible, "left blank")
    log.add("stations", "missing or unreadable coordinates", "noted", missing, "expected numbers such as 40.72")
    return placed


def check_not_swapped(
    lat: float, lon: float, timezone: str, label: str, named: Mapping[str, str], fields: Sequence[tuple[str, str]]
) -> None:
    """Refuse coordinates of the middle of a system that are plausible only if swapped.

    A latitude beyond 90 degrees is certainly wrong. Otherwise the time zone gives the approximate longitude, 15 degrees
    per hour: coordinates are refused if the latitude is closer to it than the longitude by 20 degrees. `named` maps our
    fields to the file's headers, and `fields` are the pairs to swap.
    """
    offset = standard_offset_hours(timezone)
    expected = None if offset is None else 15 * offset
    if max(abs(lat), abs(lon)) > 180:
        raise FileFormatError(
            f"{label}: the middle of the system is at latitude {lat:.4g}, longitude {lon:.4g}, and these are no "
            "degrees. Correct the coordinates, or choose other columns with --map."
        )
    odd = expected is not None and _degrees_apart(lat, expected) + 20 < _degrees_apart(lon, expected)
    if abs(lat) <= 90 and not odd:
        return
    swapped = " ".join(
        f"--map {a}={named[b]!r} --map {b}={named[a]!r}" for a, b in fields if a in named and b in named
    ).replace("'", '"')
    remedy = f"swap them with {swapped}" if swapped else "correct lat and lon in the document"
    where = f"the middle of the system is at latitude {lat:.4f}, longitude {lon:.4f}"
    if abs(lat) > 90:
        raise FileFormatError(
            f"{label}: latitude and longitude seem to be swapped: {where}, and a latitude is between -90 and 90. "
            f"If they are, {remedy}."
        )
    raise FileFormatError(
        f"{label}: {where}, which is far from {timezone}. Correct the time zone (--timezone), or if latitude and "
        f"longitude are swapped, {remedy}."
    )


def _degrees_apart(a: float, b: float) -> float:
    """Return the difference of two longitudes; -180 and 180 are the same."""
    return abs((a - b + 180) % 360 - 180)


def _near(point: tuple[float, float], middle: tuple[float, float], degrees: float = 3.0) -> bool:
    return abs(point[0] - middle[0]) < degrees and abs(point[1] - middle[1]) < degrees


def _unique(stations: Sequence[Station], log: QualityLog) -> list[Station]:
    last: dict[str, Station] = {}
    moved: dict[str, float] = {}
    for s in stations:
        before = last.get(s.station)
        if before is not None and (distance := _metres(before, s)) > MOVED_METRES:
            moved[s.station] = max(distance, moved.get(s.station, 0.0))
        last[s.station] = s
    log.add("stations", "duplicate", "repaired", len(stations) - len(last), "the last row of a station was used")
    far = ", ".join(f"{station} by {d:,.0f} m" for station, d in sorted(moved.items(), key=lambda m: -m[1])[:5])
    log.add("stations", "station moved", "noted", len(moved), f"the last position was used: {far}")
    return list(last.values())


def _metres(a: Station, b: Station) -> float:
    if a.lat is None or a.lon is None or b.lat is None or b.lon is None:
        return 0.0
    shrink = math.cos(math.radians(a.lat))
    return 111_195 * math.hypot(a.lat - b.lat, (a.lon - b.lon) * shrink)


def _table(stations: list[Station]) -> StationTable:
    headers = dict.fromkeys(h for s in stations for h in s.ids)
    ids: dict[str, dict[str, int]] = {"station": {s.station: i for i, s in enumerate(stations)}}
    for header in headers:
        ids[header] = _distinct([s.ids.get(header) for s in stations])
    ids["name"] = _distinct([s.name for s in stations])
    everywhere = {str(i) for i in range(len(stations))}
    running = {h for h, values in ids.items() if len(values) > 1 and set(values) <= everywhere and h != "station"}
    return StationTable(stations, {h: v for h, v in ids.items() if v}, frozenset(running))


def _distinct(values: Sequence[str | None]) -> dict[str, int]:
    """Map values that occur once to their rows. Return nothing if many repeat: that is a region, not an id."""
    times = Counter(v for v in values if v is not None)
    once = {v: i for i, v in enumerate(values) if v is not None and times[v] == 1}
    return once if len(once) >= 0.9 * times.total() else {}


def resolve(table: StationTable, rows_of: Mapping[str, int], header: str) -> Resolved:
    """Find the station of each raw id.

    Parameters
    ----------
    table : StationTable
        The stations and all their ids.
    rows_of : mapping
        Raw id, as text → number of rows that have it.
    header : str
        Header of the ids in the file. An id column of that name is tried first, then the others by the number of rows
        that they explain.

    Examples
    --------
    >>> stations = [Station("a", ids={"legacy_id": "72", "short_name": "JC1"})]
    >>> ids = {"station": {"a": 0}, "legacy_id": {"72": 0}, "short_name": {"JC1": 0}}
    >>> table = StationTable(stations, ids)
    >>> resolve(table, {"72": 10, "JC1": 5, "9": 1}, "start_station_id")
    Resolved(index={'72': 0, 'JC1': 0, '9': None}, matched={'legacy_id': 10, 'short_name': 5}, ambiguous=0)
    """
    named = [h for h in table.ids if normalise(h) == normalise(header)]
    columns = [h for h in table.ids if h not in named and h not in table.running]
    exact = {raw: id_text(raw) or "" for raw in rows_of}

    def explained(column: str) -> int:
        return sum(rows for raw, rows in rows_of.items() if exact[raw] in table.ids[column])

    order = named + sorted(columns, key=explained, reverse=True)
    loose = {h: _loose(table.ids[h]) for h in order}
    index: dict[str, int | None] = {}
    matched: dict[str, int] = {}
    ambiguous = 0
    for raw, rows in rows_of.items():
        hits = [(h, table.ids[h][exact[raw]]) for h in order if exact[raw] in table.ids[h]]
        if not hits:
            key = _loose_key(exact[raw])
            hits = [(h, loose[h][key]) for h in order if key in loose[h]]
        index[raw] = hits[0][1] if hits else None
        if hits:
            matched[hits[0][0]] = matched.get(hits[0][0], 0) + rows
            ambiguous += rows * any(hit[1] != hits[0][1] for hit in hits)
    return Resolved(index, matched, ambiguous)


def _loose(ids: Mapping[str, int]) -> dict[str, int]:
    """Reduce ids to keys without case and trailing zeros (``5470.10`` is 5470.1); leave out keys of several ids."""
    keys = Counter(_loose_key(value) for value in ids)
    return {key: i for value, i in ids.items() if keys[key := _loose_key(value)] == 1}


def _loose_key(value: str) -> str:
    folded = value.casefold()
    if folded.replace(".", "", 1).isdigit() and folded.isascii():
        return repr(float(folded))
    return folded
