"""The stations, and which of their several ids a file uses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from unmet._exceptions import FileFormatError
from unmet._storage.sql import fetch_all, reading
from unmet.mobility.clock.timezones import standard_offset_hours
from unmet.mobility.records.casting import text
from unmet.mobility.records.files import (
    Given,
    Part,
    Workspace,
    expand,
    is_frame,
    is_json,
    malformed_lines,
    open_files,
    open_parts,
)
from unmet.mobility.records.gbfs import read_station_information
from unmet.mobility.records.headers import is_id_column, match_columns, normalise
from unmet.mobility.records.quality import QualityLog

__all__ = ["Resolved", "Station", "StationTable", "check_not_swapped", "id_text", "read_stations", "resolve"]

# Two places of one station further apart than this are a move, not a correction of its coordinates.
MOVED_METRES = 50.0


@dataclass(frozen=True)
class Station:
    """One station; `lat`, `lon` and `capacity` are None where unknown. `ids`: id column → its value."""

    station: str
    name: str | None = None
    lat: float | None = None
    lon: float | None = None
    capacity: int | None = None
    ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StationTable:
    """The stations, in order, and for every id column which value is which station."""

    stations: list[Station]
    ids: dict[str, dict[str, int]]
    running: frozenset[str] = frozenset()
    """Id columns that only number the rows 0, 1, 2 ...: used where a file names them, never guessed."""


@dataclass(frozen=True)
class Resolved:
    """A file's station ids in terms of ours: raw value → position in the table, or None."""

    index: dict[str, int | None]
    matched: dict[str, int]
    """Id column → how many rows it explained."""
    ambiguous: int
    """Rows whose id another id column gives to another station."""


def id_text(value: object) -> str | None:
    """Write an id as text: trimmed, and ``3184.0``, which a spreadsheet made of 3184, as ``3184``.

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
    workspace: Workspace, given: Given, timezone: str, mapping: Mapping[str, str] | None, log: QualityLog
) -> tuple[StationTable, set[str]]:
    """Read stations from tables, frames or GBFS documents; return them and all headers seen."""
    headers: set[str] = set()
    named: dict[str, str] = {}
    if is_frame(given):
        parts, label = open_parts(workspace, given, "stations"), "the stations frame"
        rows = _from_tables(parts, workspace, mapping, headers, named, log)
    else:
        paths = expand(given, "stations")
        label = str(paths[0]) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
        # Documents in the order they were written: what the last one says of a station holds.
        documents = sorted((read_station_information(p) for p in paths if is_json(p)), key=lambda d: d[0])
        rows = [_station(row, dict.fromkeys(row), row) for _, found in documents for row in found]
        tables = [p for p in paths if not is_json(p)]
        if tables:
            rows += _from_tables(open_files(workspace, tables), workspace, mapping, headers, named, log)
    log.total("stations", len(rows))
    kept = [row for row in rows if row.station]
    log.add("stations", "missing station", "rejected", len(rows) - len(kept), "no id")
    return _table(_unique(_placed(kept, timezone, label, named, log), log), log), headers


def _from_tables(
    parts: Sequence[Part],
    workspace: Workspace,
    mapping: Mapping[str, str] | None,
    headers: set[str],
    named: dict[str, str],
    log: QualityLog,
) -> list[Station]:
    """Read tables; add their headers to `headers`, and what they call our fields to `named`."""
    rows = []
    for part in parts:
        headers.update(part.columns)
        matched = match_columns("stations", part.columns, part.label, mapping)
        named.update(matched)
        wanted = [h for h in part.columns if h in matched.values() or is_id_column(h)]
        select = ", ".join(f"{text(part.columns[h])}" for h in wanted)
        with reading(part.label):
            found = fetch_all(workspace.connection, f"SELECT {select} FROM {part.lenient or part.relation}")
        malformed = malformed_lines(workspace, part)
        log.total("stations", malformed)
        log.add("stations", "malformed line", "rejected", malformed, part.label)
        for values in found:
            row = dict(zip(wanted, values, strict=True))
            ours = {field: row[header] for field, header in matched.items()}
            rows.append(_station({**ours, "station_id": ours["station"]}, dict.fromkeys(wanted), row))
    return rows


def _station(ours: Mapping[str, Any], headers: Mapping[str, None], row: Mapping[str, Any]) -> Station:
    ids = {h: id_text(row[h]) for h in headers if is_id_column(h)}
    capacity = _float(ours.get("capacity"))
    return Station(
        id_text(ours.get("station_id")) or "",
        ours.get("name"),
        _float(ours.get("lat")),
        _float(ours.get("lon")),
        None if capacity is None or not 0 <= capacity < 2**31 else round(capacity),
        {h: value for h, value in ids.items() if value is not None},
    )


def _float(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _placed(
    stations: Sequence[Station], timezone: str, label: str, named: Mapping[str, str], log: QualityLog
) -> list[Station]:
    """Check coordinates: refuse a table with latitude and longitude swapped, mend or blank single rows."""
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
    log.add("stations", "missing coordinates", "noted", missing)
    return placed


def check_not_swapped(
    lat: float, lon: float, timezone: str, label: str, named: Mapping[str, str], fields: Sequence[tuple[str, str]]
) -> None:
    """Refuse coordinates of the middle of a system that make sense only the other way round.

    A latitude beyond 90 degrees is certain. Otherwise the time zone tells roughly where the system is: 15
    degrees of longitude per hour. It is refused when the latitude is nearer to that than the longitude, by 20
    degrees. `named` is what the file calls our fields, and `fields` are those to swap.
    """
    offset = standard_offset_hours(timezone)
    expected = None if offset is None else 15 * offset
    odd = expected is not None and abs(lat - expected) + 20 < abs(lon - expected)
    if abs(lat) <= 90 and not odd:
        return
    swapped = " ".join(
        f"--map {a}={named[b]!r} --map {b}={named[a]!r}" for a, b in fields if a in named and b in named
    ).replace("'", '"')
    remedy = f"read them the other way round with {swapped}" if swapped else "correct lat and lon in the document"
    why = "a latitude lies between -90 and 90" if abs(lat) > 90 else f"that is far from {timezone}"
    raise FileFormatError(
        f"{label}: latitude and longitude seem to be swapped: the middle of the system is at latitude {lat:.4f}, "
        f"longitude {lon:.4f}, and {why}. If they are, {remedy}; if not, check the time zone."
    )


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
    log.add("stations", "duplicate", "repaired", len(stations) - len(last), "the last row of a station holds")
    far = ", ".join(f"{station} by {d:,.0f} m" for station, d in sorted(moved.items(), key=lambda m: -m[1])[:5])
    log.add("stations", "station moved", "noted", len(moved), f"the last place holds: {far}")
    return list(last.values())


def _metres(a: Station, b: Station) -> float:
    if a.lat is None or a.lon is None or b.lat is None or b.lon is None:
        return 0.0
    shrink = math.cos(math.radians(a.lat))
    return 111_195 * math.hypot(a.lat - b.lat, (a.lon - b.lon) * shrink)


def _table(stations: list[Station], log: QualityLog) -> StationTable:
    headers = dict.fromkeys(h for s in stations for h in s.ids)
    ids: dict[str, dict[str, int]] = {"station": {s.station: i for i, s in enumerate(stations)}}
    for header in headers:
        ids[header] = _distinct([s.ids.get(header) for s in stations])
    ids["name"] = _distinct([s.name for s in stations])
    everywhere = {str(i) for i in range(len(stations))}
    running = {h for h, values in ids.items() if len(values) > 1 and set(values) <= everywhere and h != "station"}
    return StationTable(stations, {h: v for h, v in ids.items() if v}, frozenset(running))


def _distinct(values: Sequence[str | None]) -> dict[str, int]:
    """Value → row, of the values that stand once; nothing where many repeat: a region, not an id."""
    times = Counter(v for v in values if v is not None)
    once = {v: i for i, v in enumerate(values) if v is not None and times[v] == 1}
    return once if len(once) >= 0.9 * times.total() else {}


def resolve(table: StationTable, rows_of: Mapping[str, int], header: str) -> Resolved:
    """Say which station each raw id is.

    Parameters
    ----------
    table : StationTable
        The stations and all their ids.
    rows_of : mapping
        Raw id, as text → the number of rows that have it.
    header : str
        What the file calls the column: an id column of that name is tried first, then the others by how many
        rows they explain.

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
    """Ids up to case and the digits a float loses (``5470.10`` is 5470.1), without those that then clash."""
    keys = Counter(_loose_key(value) for value in ids)
    return {key: i for value, i in ids.items() if keys[key := _loose_key(value)] == 1}


def _loose_key(value: str) -> str:
    folded = value.casefold()
    if folded.replace(".", "", 1).isdigit() and folded.isascii():
        return repr(float(folded))
    return folded
