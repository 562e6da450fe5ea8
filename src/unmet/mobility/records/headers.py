"""The canonical tables, and the one table of the names other people give their columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from unmet._exceptions import FileFormatError, InputError

__all__ = ["SOURCES", "Source", "check_mapping", "is_id_column", "is_staff", "match_columns", "normalise"]


@dataclass(frozen=True)
class Source:
    """What a kind of file must and may hold.

    Parameters
    ----------
    name : str
        ``trips``, ``status``, ``stations`` or ``weather``.
    required : tuple of str
        Of each of these, the fields separated by ``|``, at least one must be found.
    variants : mapping
        Our field → the headers it is known by, the first found wins. Case and punctuation do not count.
    """

    name: str
    required: tuple[str, ...]
    variants: Mapping[str, tuple[str, ...]]


SOURCES: Mapping[str, Source] = {
    "trips": Source(
        "trips",
        ("started_at", "start_station|start_station_name|start_lat"),
        {
            "trip_id": (
                "trip_id",
                "ride_id",
                "rental_id",
                "01 - Rental Details Rental ID",
                "provider_trip_id",
            ),
            "bike": (
                "bike",
                "bike_id",
                "bike number",
                "01 - Rental Details Bike ID",
                "bike_or_ride_id",
                "vehicle_id",
            ),
            "started_at": (
                "started_at",
                "start_time",
                "start date",
                "start_datetime",
                "01 - Rental Details Local Start Time",
                "tpep_pickup_datetime",
                "lpep_pickup_datetime",
                "pickup_datetime",
                "Trip_Pickup_DateTime",
            ),
            "ended_at": (
                "ended_at",
                "end_time",
                "stop_time",
                "end date",
                "end_datetime",
                "01 - Rental Details Local End Time",
                "tpep_dropoff_datetime",
                "lpep_dropoff_datetime",
                "dropoff_datetime",
                "Trip_Dropoff_DateTime",
            ),
            "start_station": (
                "start_station_id",
                "from_station_id",
                "start station number",
                "03 - Rental Start Station ID",
                "PULocationID",
                "start_zone",
                "start_station",
            ),
            "end_station": (
                "end_station_id",
                "to_station_id",
                "end station number",
                "02 - Rental End Station ID",
                "DOLocationID",
                "end_zone",
                "end_station",
            ),
            "start_station_name": (
                "start_station_name",
                "from_station_name",
                "03 - Rental Start Station Name",
                "start station",
            ),
            "end_station_name": (
                "end_station_name",
                "to_station_name",
                "02 - Rental End Station Name",
                "end station",
            ),
            "start_lat": ("start_lat", "start station latitude", "start_latitude", "pickup_latitude"),
            "start_lon": (
                "start_lon",
                "start_lng",
                "start station longitude",
                "start_longitude",
                "pickup_longitude",
            ),
            "end_lat": ("end_lat", "end station latitude", "end_latitude", "dropoff_latitude"),
            "end_lon": ("end_lon", "end_lng", "end station longitude", "end_longitude", "dropoff_longitude"),
            "rider": ("rider", "user_type", "member_casual", "member type", "subscriber type"),
        },
    ),
    "status": Source(
        "status",
        ("station", "at", "available"),
        {
            "station": ("station", "station_id", "station_ix", "id", "station number"),
            # A poll's own time before the station's: what was seen when the feed was asked.
            "at": (
                "at",
                "fetched_at",
                "polled_at",
                "snapshot_time",
                "last_updated",
                "last_reported",
                "timestamp",
                "datetime",
                "time",
            ),
            "available": (
                "available",
                "num_vehicles_available",
                "num_bikes_available",
                "bikes_available",
                "available_bikes",
                "vehicles_available",
            ),
            "disabled": ("disabled", "num_vehicles_disabled", "num_bikes_disabled", "bikes_disabled"),
            "docks": ("docks", "num_docks_available", "docks_available", "available_docks"),
            "installed": ("installed", "is_installed"),
            "renting": ("renting", "is_renting"),
        },
    ),
    "stations": Source(
        "stations",
        ("station",),
        {
            "station": ("station", "station_id", "id", "station number", "station_ix", "LocationID"),
            "name": ("name", "station_name", "address", "zone"),
            "lat": ("lat", "latitude"),
            "lon": ("lon", "lng", "longitude", "long"),
            "capacity": ("capacity", "dpcapacity", "total_docks", "num_docks"),
        },
    ),
    "weather": Source(
        "weather",
        ("at",),
        {
            "at": ("at", "timestamp", "datetime", "valid", "time", "date"),
            "hour": ("hour",),
        },
    ),
}

# Columns of a stations table that may hold another id of the same station (`stations.py` also asks that the
# values be distinct, which leaves out regions).
_ID_COLUMN = re.compile(r"(id|ix|key|code|number|shortname|terminal|terminalname)$")

# Depots, workshops and test stations, by the names operators gave them (Citi Bike, Divvy), and rider types
# that are not customers. The second group are also words in the names of streets.
_STAFF = re.compile(r"\b(nycbs|8d|bike checking|repair|warehouse|workshop|rebalancing|staff|employee|lbs wh)\b")
_STAFF_UNLESS_STREET = re.compile(r"\b(test|testing|depot|ops|operator|maintenance)\b")
_STREET = re.compile(r"\b(st|ave?|rd|pl|blvd|dr|ln|street|avenue|road|place|square|sq|park)\b")


def is_staff(name: str) -> bool:
    """Whether a station's name or id, or a rider's type, is of staff or tests.

    Examples
    --------
    >>> is_staff("NYCBS Depot - SSP"), is_staff("TEST"), is_staff("Depot Pl & Main St")
    (True, True, False)
    """
    words = re.sub(r"[\W_]+", " ", name.casefold())
    if _STAFF.search(words):
        return True
    return _STAFF_UNLESS_STREET.search(words) is not None and _STREET.search(words) is None


def normalise(header: str) -> str:
    """Reduce a header to what counts: letters and digits, lower case.

    Examples
    --------
    >>> normalise(" Start Station ID")
    'startstationid'
    """
    return re.sub(r"[\W_]+", "", header.casefold())


def is_id_column(header: str) -> bool:
    """Whether a column of a stations table may hold ids, judged by its name.

    Examples
    --------
    >>> is_id_column("legacy_id"), is_id_column("short_name"), is_id_column("latitude")
    (True, True, False)
    """
    return _ID_COLUMN.search(normalise(header)) is not None


def match_columns(
    source: str, found: Iterable[str], label: str, mapping: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Find our fields among a file's headers.

    Parameters
    ----------
    source : str
        ``trips``, ``status``, ``stations`` or ``weather``.
    found : iterable of str
        The file's headers.
    label : str
        What the file is called in messages.
    mapping : mapping, optional
        Our field → their column, or ``"status.at"`` where the field belongs to several sources. Entries
        whose column this file does not have are passed over; `check_mapping` finds those that no file used.

    Returns
    -------
    dict
        Our field → their column, for the fields that were found.

    Examples
    --------
    >>> match_columns("status", ["Station ID", "last_reported", "num_bikes_available"], "status.csv")
    {'station': 'Station ID', 'at': 'last_reported', 'available': 'num_bikes_available'}
    """
    kind = SOURCES[source]
    headers = [header for header in found if header.strip()]
    by_normal = {normalise(header): header for header in reversed(headers)}
    matched: dict[str, str] = {}
    for field, variants in kind.variants.items():
        given = _given(mapping, source, field)
        if given is not None and given in headers:
            matched[field] = given
            continue
        for variant in variants:
            if normalise(variant) in by_normal:
                matched[field] = by_normal[normalise(variant)]
                break
    missing = [need for need in kind.required if not any(part in matched for part in need.split("|"))]
    if missing:
        raise FileFormatError(_explain(kind, headers, matched, missing, label))
    return matched


def check_mapping(mapping: Mapping[str, str] | None, seen: Mapping[str, set[str]]) -> None:
    """Refuse a mapping to a field we do not have, or to a column that no file has.

    Parameters
    ----------
    mapping : mapping or None
        As given by the user.
    seen : mapping
        Source → all headers found in its files.
    """
    for key, column in (mapping or {}).items():
        prefix, _, field = key.rpartition(".")
        homes = [s for s in SOURCES.values() if field in s.variants and prefix in ("", s.name)]
        if not homes:
            fields = "; ".join(f"{s.name}: {', '.join(s.variants)}" for s in SOURCES.values())
            raise InputError(f"mapping: there is no field {key!r}. Ours are - {fields}")
        if not any(column in seen.get(home.name, ()) for home in homes):
            given = sorted(set().union(*(seen.get(home.name, set()) for home in homes)))
            raise InputError(
                f"mapping {key}={column}: no file has a column {column!r}. Found: {', '.join(given) or 'nothing'}"
            )


def _given(mapping: Mapping[str, str] | None, source: str, field: str) -> str | None:
    mapping = mapping or {}
    return mapping.get(f"{source}.{field}", mapping.get(field))


def _looks_like(headers: list[str], not_this: str) -> str | None:
    """The kind of file that has all that is needed of it among these headers, if it is not what was asked for."""
    present = {normalise(header) for header in headers}
    for kind in SOURCES.values():
        fields = {f for f, variants in kind.variants.items() if any(normalise(v) in present for v in variants)}
        whole = all(any(part in fields for part in need.split("|")) for need in kind.required)
        if whole and kind.name not in (not_this, "weather"):  # any table with a time could be weather
            return kind.name
    return None


def _explain(kind: Source, headers: list[str], matched: Mapping[str, str], missing: list[str], label: str) -> str:
    needed = "; ".join(" or ".join(need.split("|")) for need in missing)
    known = ", ".join(f"{ours} = {theirs!r}" for ours, theirs in matched.items()) or "nothing"
    field = missing[0].split("|")[0]
    other = _looks_like(headers, kind.name)
    hint = f" This looks like {other}: give it as {other} (--{other})." if other else ""
    return (
        f"{label}: no column was recognised for {needed} of {kind.name}.{hint}\n"
        f"  columns found:  {', '.join(map(repr, headers)) or 'none'}\n"
        f"  recognised:     {known}\n"
        f"  name the column with --map {field}=THEIR_COLUMN "
        f"(in Python: mapping={{{field!r}: 'THEIR_COLUMN'}}); fields: {', '.join(kind.variants)}"
    )
