"""GBFS documents, versions 1.0 to 3.1, as the collector keeps them.

Versions differ in four ways that matter here. Times are POSIX seconds up to 2.3 and RFC 3339 text from 3.0. Feeds are
listed per language up to 2.3. ``num_bikes_*`` became ``num_vehicles_*``, and ``free_bike_status`` became
``vehicle_status``. A station or vehicle that cannot be read is counted and left out; the others are kept. Of
one that is listed twice, the last is kept, and the others are counted and named. Numbers are kept as published, also
negative ones: whoever reads the history judges them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from unmet._exceptions import FileFormatError

__all__ = [
    "MOST_ROWS",
    "MOST_VALUES",
    "Document",
    "LastRead",
    "Listed",
    "StationInfo",
    "StationState",
    "Vehicle",
    "feed_addresses",
    "parse_document",
    "refuse_many_values",
    "station_infos",
    "station_states",
    "vehicles",
]

_MILLISECONDS = 1e11  # a number of seconds beyond this lies after the year 5000
_MOST_COUNT = 100_000
MOST_ROWS = 300_000
"""Most stations or vehicles of a system: the largest has less than a tenth of it."""
MOST_VALUES = 8_000_000
"""Most values of a document or a frame. Parsed, they take up to 100 times the memory of their text."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
Row = TypeVar("Row")

LastRead: TypeAlias = list[tuple[Any, str, Row] | None]
"""Items of the last document, each with its name and what was read of it; None if unreadable. Functions that are given
it bring it up to date. An item that is still the same at the same place, as most are, is not read again."""


@dataclass(frozen=True)
class Document:
    """One GBFS document.

    Attributes
    ----------
    updated : float or None
        ``last_updated`` in seconds since 1970.
    ttl : float
        Seconds until the publisher updates the document; 0 if it does not state any.
    data : dict
        The content of ``data``.
    """

    updated: float | None
    ttl: float
    data: dict[str, Any]


class StationState(NamedTuple):
    """Status of one station. Counts and flags that the feed does not contain are None."""

    available: int
    disabled: int | None
    docks: int | None
    docks_disabled: int | None
    installed: bool | None
    renting: bool | None
    returning: bool | None
    types: str | None
    """Available vehicles by type, as a JSON object; None if the feed has no types."""


class StationInfo(NamedTuple):
    """Description of one station; `fields` contains all other scalar fields as a JSON object."""

    name: str | None
    lat: float | None
    lon: float | None
    capacity: int | None
    fields: str


class Vehicle(NamedTuple):
    """One vehicle of a dockless feed."""

    lat: float | None
    lon: float | None
    type: str | None
    station: str | None
    reserved: bool
    disabled: bool
    range_metres: float | None
    fuel_share: float | None


class Listed(NamedTuple, Generic[Row]):
    """Stations or vehicles of a document.

    Attributes
    ----------
    rows : dict
        What was read, by id.
    unreadable : int
        Number that could not be read.
    repeated : list of str
        Id of each further one with the id of another; the last of them is in `rows`.
    """

    rows: dict[str, Row]
    unreadable: int
    repeated: list[str]


def parse_document(content: bytes) -> Document:
    """Parse a GBFS document.

    Raises
    ------
    FileFormatError
        If it is not a whole JSON object with an object ``data``.

    Examples
    --------
    >>> parse_document(b'{"last_updated": 1600000000, "ttl": 30, "data": {"stations": []}}')
    Document(updated=1600000000.0, ttl=30.0, data={'stations': []})
    """
    refuse_many_values(content, MOST_VALUES)
    try:
        # JSON is UTF-8. Of bytes, `json` reads other encodings too, which the text that is kept does not have.
        document = json.loads(content.decode("utf-8-sig"))
        if rb"\u" in content:  # half a character, as in "\ud800", is not text and could not be kept
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"not a whole JSON document ({str(error)[:80]})") from None
    if not isinstance(document, dict) or not isinstance(document.get("data"), dict):
        raise FileFormatError("not a GBFS document: expected an object with an object 'data'")
    ttl = document.get("ttl")
    ttl = float(ttl) if isinstance(ttl, int | float) and not isinstance(ttl, bool) and 0 <= ttl < 1e9 else 0.0
    return Document(_time(document.get("last_updated")), ttl, document["data"])


def refuse_many_values(text: bytes, most: int) -> None:
    """Raise `FileFormatError` for a JSON text that may have more than so many values, before it is parsed."""
    if _values(text) > most and _values(_STRING.sub(b"", text)) > most:
        raise FileFormatError(f"it has more than {most:,} values")


def _values(text: bytes) -> int:
    """Return the largest number of values that a JSON text can have."""
    return sum(text.count(sign) for sign in (b",", b"[", b"{"))


def feed_addresses(document: Document, language: str = "en") -> dict[str, str]:
    """Addresses of the feeds that a ``gbfs.json`` lists, by name; of `language` where feeds are listed per language.

    Examples
    --------
    >>> feeds = [{"name": "station_status", "url": "https://example.com/status"}]
    >>> feed_addresses(Document(None, 0.0, {"fr": {"feeds": feeds}}))
    {'station_status': 'https://example.com/status'}
    """
    listed = document.data.get("feeds")
    if listed is None:
        languages = {k: v.get("feeds") for k, v in document.data.items() if isinstance(v, dict)}
        listed = languages.get(language) or next((v for v in languages.values() if v), None)
    if not isinstance(listed, list):
        raise FileFormatError("not a gbfs.json: there is no list of feeds")
    return {
        feed["name"]: feed["url"]
        for feed in listed
        if isinstance(feed, dict) and isinstance(feed.get("name"), str) and isinstance(feed.get("url"), str)
    }


def station_states(
    document: Document, last: LastRead[tuple[StationState, float | None]] | None = None
) -> Listed[tuple[StationState, float | None]]:
    """Read ``station_status``: station id → (state, ``last_reported``)."""
    return _rows(document, ("stations",), ("station_id",), _reported_state, last)


def station_infos(document: Document) -> Listed[StationInfo]:
    """Read ``station_information``: station id → description."""
    return _rows(document, ("stations",), ("station_id",), _info)


def vehicles(document: Document, last: LastRead[Vehicle] | None = None) -> Listed[Vehicle]:
    """Read ``vehicle_status`` or ``free_bike_status``: vehicle id → vehicle."""
    return _rows(document, ("vehicles", "bikes"), ("vehicle_id", "bike_id"), _vehicle, last)


def _rows(
    document: Document,
    lists: tuple[str, ...],
    ids: tuple[str, ...],
    read: Callable[[Mapping[str, Any]], Row],
    last: LastRead[Row] | None = None,
) -> Listed[Row]:
    key = next((key for key in lists if key in document.data), None)
    listed = None if key is None else document.data[key]
    if not isinstance(listed, list):
        instead = f"found {sorted(document.data)[:5]}" if key is None else "it is of another kind"
        raise FileFormatError(f"expected a list {key or ' or '.join(lists)!r} in 'data'; {instead}")
    if len(listed) > MOST_ROWS:
        raise FileFormatError(f"expected at most {MOST_ROWS:,} {' or '.join(lists)}; found {len(listed):,}")
    before: LastRead[Row] = [] if last is None else last
    found: LastRead[Row] = []
    for number, item in enumerate(listed):
        known = before[number] if number < len(before) else None
        try:
            same = known is not None and known[0] == item
            found.append(known if same else (item, _identity(item, ids), read(item)))
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            found.append(None)
    if last is not None:
        last[:] = found
    rows = {one[1]: one[2] for one in found if one is not None}
    unreadable = found.count(None)
    repeated: list[str] = []
    if len(rows) + unreadable < len(found):
        counts = Counter(one[1] for one in found if one is not None)
        repeated = [name for name, count in counts.items() for _ in range(count - 1)]
    return Listed(rows, unreadable, repeated)


def _identity(row: Mapping[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        value = row.get(name)
        if type(value) in (str, int) and (text := str(value).strip()):
            return text
    raise ValueError(f"no {names[0]}")


def _reported_state(station: Mapping[str, Any]) -> tuple[StationState, float | None]:
    return _state(station), _time(station.get("last_reported"))


def _state(station: Mapping[str, Any]) -> StationState:
    types = station.get("vehicle_types_available")
    by_type: dict[str, int] | None = None
    if isinstance(types, list):
        by_type = {}
        for t in types:
            name = str(t["vehicle_type_id"])
            by_type[name] = by_type.get(name, 0) + (_count(t, "count") or 0)
    available = _count(station, "num_vehicles_available", "num_bikes_available")
    if available is None:
        if by_type is None:
            raise ValueError("no count of vehicles")
        available = sum(by_type.values())
    electric = _count(station, "num_ebikes_available")
    if by_type is None and electric is not None and 0 <= electric <= available:
        by_type = {"electric": electric, "classic": available - electric}
    return StationState(
        available,
        _count(station, "num_vehicles_disabled", "num_bikes_disabled"),
        _count(station, "num_docks_available"),
        _count(station, "num_docks_disabled"),
        _flag(station, "is_installed"),
        _flag(station, "is_renting"),
        _flag(station, "is_returning"),
        None if by_type is None else json.dumps(by_type, sort_keys=True),
    )


def _info(station: Mapping[str, Any]) -> StationInfo:
    name = station.get("name", station.get("station_name"))
    if isinstance(name, list):  # version 3: [{"text": ..., "language": ...}, ...]
        name = next((n["text"] for n in name if isinstance(n, dict) and isinstance(n.get("text"), str)), None)
    known = {"station_id", "name", "station_name", "lat", "lon", "capacity"}
    other = {k: v for k, v in station.items() if k not in known and isinstance(v, str | int | float | bool)}
    return StationInfo(
        name if isinstance(name, str) else None,
        _number(station, "lat"),
        _number(station, "lon"),
        _count(station, "capacity"),
        json.dumps(other, sort_keys=True),
    )


def _vehicle(vehicle: Mapping[str, Any]) -> Vehicle:
    return Vehicle(
        _number(vehicle, "lat"),
        _number(vehicle, "lon"),
        _text(vehicle, "vehicle_type_id"),
        _text(vehicle, "station_id"),
        _flag(vehicle, "is_reserved") or False,
        _flag(vehicle, "is_disabled") or False,
        _number(vehicle, "current_range_meters"),
        _number(vehicle, "current_fuel_percent"),
    )


def _time(value: Any) -> float | None:
    """Seconds since 1970 of POSIX seconds, milliseconds or RFC 3339 text; None if missing or none of these."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        return moment.timestamp() if moment.tzinfo is not None else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        return None
    return value / 1000.0 if value > _MILLISECONDS else float(value)


def _count(row: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = row.get(name)
        if value is None:
            continue
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or abs(value) > _MOST_COUNT:
            raise ValueError(f"{name}: {value!r}")
        return value
    return None


def _number(row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e9:
        raise ValueError(f"{name}: {value!r}")
    return float(value)


def _text(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    return None if value is None else str(value)


def _flag(row: Mapping[str, Any], name: str) -> bool | None:
    value = row.get(name)
    if value is None:
        return None
    if value is True or value is False:
        return value
    if type(value) is int and value in (0, 1):  # in version 1.0
        return bool(value)
    raise ValueError(f"{name}: {value!r}")
