"""GBFS documents, versions 1.0 to 3.1: ``station_status`` and ``station_information``.

Differences between the versions: times are POSIX seconds up to 2.3 and RFC 3339 text from 3.0; ``num_bikes_*`` became
``num_vehicles_*``; booleans were 0/1 in 1.0; names are lists of translations in 3.0. Some feeds write milliseconds,
which are read too. Every error names the document and the field.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from unmet._exceptions import FileFormatError
from unmet.mobility.records.casting import seconds
from unmet.mobility.records.unpacking import DEFAULT_MEMORY, read_json
from unmet.mobility.records.vehicle_types import CLASSIC, ELECTRIC

__all__ = ["StationStatus", "read_station_information", "read_station_status"]

# A station whose last report is this much older than the newest of the same document is dead; its report is ignored.
STALE_SECONDS = 86_400


@dataclass(frozen=True)
class StationStatus:
    """Columns of one document, in the order of its stations. Times are seconds since 1970."""

    station: list[str]
    at: list[float]
    available: list[int | None]
    disabled: list[int | None]
    docks: list[int | None]
    installed: list[bool | None]
    renting: list[bool | None]
    accepting: list[bool | None]
    reported: list[float | None]
    stale: list[bool]


def read_station_status(path: Path, memory: int = DEFAULT_MEMORY, vehicle_type: str | None = None) -> StationStatus:
    """Read a ``station_status`` document.

    `at` is the document's ``last_updated``, the time of the poll. If the document has none, it is the station's own
    ``last_reported``. `memory` is the memory limit in bytes. If `vehicle_type` is given, only vehicles of that type are
    counted as available: ``electric``, ``classic``, or an id of ``vehicle_types_available``. A station without a number
    of vehicles has None, unless all are without.
    """
    updated, stations = _stations(path, "station_status", memory)
    result = StationStatus([], [], [], [], [], [], [], [], [], [])
    for i, station in enumerate(stations):
        where = f"data.stations[{i}]"
        last = _time(path, station.get("last_reported"), f"{where}.last_reported")
        if updated is None and last is None:
            raise _bad(path, "last_updated", "is missing, and so is the station's last_reported")
        result.reported.append(last)
        result.station.append(_id(path, station, where))
        result.at.append(updated if updated is not None else last or 0.0)
        counted = _available(path, station, where)
        if vehicle_type is not None:
            counted = _available_of_type(path, station, where, vehicle_type, counted)
        result.available.append(counted)
        result.disabled.append(_count(path, station, where, "num_vehicles_disabled", "num_bikes_disabled"))
        result.docks.append(_count(path, station, where, "num_docks_available"))
        result.installed.append(_flag(path, station, where, "is_installed"))
        result.renting.append(_flag(path, station, where, "is_renting"))
        result.accepting.append(_flag(path, station, where, "is_returning"))
    if stations and all(count is None for count in result.available):
        raise _bad(
            path, "data.stations[0].num_bikes_available", "is missing (from version 3.0: num_vehicles_available)"
        )
    newest = max((last for last in result.reported if last is not None), default=0.0)
    if updated is not None:
        newest = min(newest, updated)  # the clock of a station may be ahead
    result.stale.extend(
        last is not None and newest - last > STALE_SECONDS and installed is not False and renting is not False
        for last, installed, renting in zip(result.reported, result.installed, result.renting, strict=True)
    )
    return result


def read_station_information(path: Path, memory: int = DEFAULT_MEMORY) -> tuple[float, list[dict[str, Any]]]:
    """Read a ``station_information`` document: the time when it was written, and one dict per station.

    The dicts contain every scalar field, because a station may have several ids. `memory` is the memory
    limit in bytes.
    """
    updated, stations = _stations(path, "station_information", memory)
    rows = []
    for i, station in enumerate(stations):
        where = f"data.stations[{i}]"
        row: dict[str, Any] = {key: value for key, value in station.items() if isinstance(value, str | int | float)}
        row["station_id"] = _id(path, station, where)
        row["name"] = _name(station)
        for key in ("lat", "lon"):
            value = station.get(key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise _bad(path, f"{where}.{key}", f"should be a number, is {_short(value)}")
            row[key] = value
        row["capacity"] = _count(path, station, where, "capacity")
        rows.append(row)
    return updated or 0.0, rows


def _stations(path: Path, feed: str, memory: int) -> tuple[float | None, list[dict[str, Any]]]:
    document = read_json(path, memory)
    if not isinstance(document, dict):
        raise _bad(path, "(the document)", f"should be an object, is {_short(document)}")
    data = document.get("data")
    if not isinstance(data, dict):
        raise _bad(path, "data", f"should be an object, is {_short(data)}")
    stations = data.get("stations")
    if not isinstance(stations, list):
        found = ", ".join(sorted(map(str, data))[:5]) or "nothing"
        raise _bad(path, "data.stations", f"should be a list; this is not a {feed} document (data contains: {found})")
    for i, station in enumerate(stations):
        if not isinstance(station, dict):
            raise _bad(path, f"data.stations[{i}]", f"should be an object, is {_short(station)}")
    return _time(path, document.get("last_updated"), "last_updated"), stations


def _time(path: Path, value: Any, field: str) -> float | None:
    """Convert POSIX seconds, milliseconds or RFC 3339 text to seconds."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except (ValueError, OverflowError):
            raise _bad(path, field, f"should be POSIX seconds or an RFC 3339 time, is {_short(value)}") from None
        if moment.tzinfo is None:
            raise _bad(path, field, f"has no offset to UTC: {_short(value)}")
        return moment.timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad(path, field, f"should be a time, is {_short(value)}")
    moment_in_seconds = seconds(value)
    if moment_in_seconds is None:
        raise _bad(path, field, f"should be in seconds or milliseconds since 1970, is {_short(value)}")
    return moment_in_seconds


def _id(path: Path, station: Mapping[str, Any], where: str) -> str:
    value = station.get("station_id")
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise _bad(path, f"{where}.station_id", f"should be a text, is {_short(value)}")
    return str(value).strip()


def _name(station: Mapping[str, Any]) -> str | None:
    name = station.get("name", station.get("station_name"))
    if isinstance(name, list):  # version 3: [{"text": ..., "language": ...}, ...]
        name = next((n.get("text") for n in name if isinstance(n, dict)), None)
    return name if isinstance(name, str) else None


def _available(path: Path, station: Mapping[str, Any], where: str) -> int | None:
    available = _count(path, station, where, "num_vehicles_available", "num_bikes_available")
    if available is not None:
        return available
    types = station.get("vehicle_types_available")
    if isinstance(types, list) and all(isinstance(t, dict) for t in types):
        return sum(_count(path, t, f"{where}.vehicle_types_available", "count") or 0 for t in types)
    return None


def _available_of_type(
    path: Path, station: Mapping[str, Any], where: str, kind: str, available: int | None
) -> int | None:
    """Count vehicles of one type. A station that does not list the type has none."""
    electric = _count(path, station, where, "num_ebikes_available")
    if kind in (ELECTRIC, CLASSIC) and electric is not None:
        if kind == ELECTRIC:
            return electric
        return available - electric if available is not None and 0 <= electric <= available else None
    if kind in (ELECTRIC, CLASSIC):
        raise _bad(path, f"{where}.num_ebikes_available", f"is missing; name a vehicle_type_id in place of {kind!r}")
    types = station.get("vehicle_types_available")
    if not isinstance(types, list):
        raise _bad(path, f"{where}.vehicle_types_available", f"is missing, so vehicles of type {kind!r} are not known")
    chosen = [t for t in types if isinstance(t, dict) and str(t.get("vehicle_type_id")) == kind]
    return sum(_count(path, t, f"{where}.vehicle_types_available", "count") or 0 for t in chosen)


def _count(path: Path, station: Mapping[str, Any], where: str, *names: str) -> int | None:
    for name in names:
        value = station.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
            raise _bad(path, f"{where}.{name}", f"should be a whole number, is {_short(value)}")
        if abs(value) >= 2**31:
            raise _bad(path, f"{where}.{name}", f"is not a number of vehicles: {_short(value)}")
        return int(value)
    return None


def _flag(path: Path, station: Mapping[str, Any], where: str, name: str) -> bool | None:
    value = station.get(name)
    if value is None:
        return None
    if value in (0, 1) and isinstance(value, bool | int):
        return bool(value)
    raise _bad(path, f"{where}.{name}", f"should be true or false (1 or 0 in version 1), is {_short(value)}")


def _bad(path: Path, field: str, problem: str) -> FileFormatError:
    return FileFormatError(f"{path}: {field} {problem}.")


def _short(value: Any) -> str:
    text = reprlib.repr(value)  # of bounded depth and length
    return "missing" if value is None else text if len(text) <= 60 else text[:57] + "..."
