"""Fields of each kind of file, and the headers by which they are recognised.

`SOURCES` is the table of known headers. `more_headers` adds headers to it for one call of `read_records` or
`build_panel` (argument ``headers``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from unmet._exceptions import FileFormatError, InputError

__all__ = ["SOURCES", "Headers", "Source", "is_id_column", "is_staff", "more_headers", "normalise"]


@dataclass(frozen=True)
class Source:
    """Fields of a kind of file.

    Parameters
    ----------
    name : str
        ``trips``, ``status``, ``stations`` or ``weather``.
    required : tuple of str
        Required fields. Of fields separated by ``|``, one is enough.
    variants : mapping
        Our field → its headers. The first one found is used. Case and punctuation are ignored.
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
            "vehicle": ("vehicle", "rideable_type", "bike_type", "vehicle_type", "vehicle_type_id"),
            "rider": ("rider", "user_type", "member_casual", "member type", "subscriber type"),
        },
    ),
    "status": Source(
        "status",
        ("station", "at", "available"),
        {
            "station": ("station", "station_id", "station_ix", "id", "station number"),
            # The time of the poll comes before the station's own time: the state is that seen by the poll.
            "at": (
                "at",
                "fetched_at",
                "polled_at",
                "poll_time",
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
            "electric": ("electric", "num_ebikes_available", "ebikes_available"),
            "installed": ("installed", "is_installed"),
            "renting": ("renting", "is_renting"),
            "accepting": ("accepting", "is_returning"),
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
            "area": ("area",),
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

# Columns of a stations table that may contain another id of the station (`stations.py` also requires distinct
# values, which excludes regions).
_ID_COLUMN = re.compile(r"(id|ix|key|code|number|shortname|terminal|terminalname)$")

# Names of depots, workshops and test stations (Citi Bike, Divvy), and rider types that are not customers. Words of
# the second group also occur in names of streets.
_STAFF = re.compile(r"\b(nycbs|8d|bike checking|repair|warehouse|workshop|rebalancing|staff|employee|lbs wh)\b")
_STAFF_UNLESS_STREET = re.compile(r"\b(test|testing|depot|ops|operator|maintenance)\b")
_STREET = re.compile(r"\b(st|ave?|rd|pl|blvd|dr|ln|street|avenue|road|place|square|sq|park)\b")


_NUMBERED = re.compile(r" \(\d+\)$")  # a header that occurs several times: see `files.py`


def is_staff(name: str) -> bool:
    """Return whether a station's name or id, or a rider's type, belongs to staff or tests.

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
    """Reduce a header to its letters and digits, in lower case.

    Examples
    --------
    >>> normalise(" Start Station ID")
    'startstationid'
    """
    return re.sub(r"[\W_]+", "", header.casefold())


def is_id_column(header: str) -> bool:
    """Return whether a column of a stations table may contain ids, judged by its name.

    Examples
    --------
    >>> is_id_column("legacy_id"), is_id_column("short_name"), is_id_column("latitude")
    (True, True, False)
    """
    return _ID_COLUMN.search(normalise(header)) is not None


def more_headers(headers: Mapping[str, str | Sequence[str]] | None) -> Mapping[str, Source]:
    """Return `SOURCES` with more headers, which are tried before the known ones.

    Parameters
    ----------
    headers : mapping or None
        Our field → a header or several. Use ``"status.at"`` if several sources have the field.

    Examples
    --------
    >>> sources = more_headers({"started_at": "Checkout Time"})
    >>> sources["trips"].variants["started_at"][:2]
    ('Checkout Time', 'started_at')
    """
    variants = {name: dict(source.variants) for name, source in SOURCES.items()}
    for key, given in (headers or {}).items():
        added = (given,) if isinstance(given, str) else tuple(given)
        for source in _sources_of(key, "headers"):
            field = key.rpartition(".")[2]
            variants[source][field] = (*added, *variants[source][field])
    return {name: replace(source, variants=variants[name]) for name, source in SOURCES.items()}


def _sources_of(key: str, argument: str) -> list[str]:
    """Return the names of the sources that a key means: ``field`` or ``source.field``."""
    prefix, _, field = key.rpartition(".")
    names = [s.name for s in SOURCES.values() if field in s.variants and prefix in ("", s.name)]
    if not names:
        fields = "; ".join(f"{s.name}: {', '.join(s.variants)}" for s in SOURCES.values())
        raise InputError(f"{argument}: there is no field {key!r}. Fields are - {fields}")
    return names


@dataclass(frozen=True)
class Headers:
    """Rules to find our fields among the headers of files.

    Parameters
    ----------
    mapping : mapping
        Our field → the file's column, or ``"status.at"`` if several sources have the field. It comes before `sources`.
    sources : mapping
        Name → `Source`, as `more_headers` returns it.

    Examples
    --------
    >>> Headers().match("status", ["Station ID", "last_reported", "num_bikes_available"], "status.csv")
    {'station': 'Station ID', 'at': 'last_reported', 'available': 'num_bikes_available'}
    """

    mapping: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=lambda: SOURCES)

    def match(self, source: str, found: Iterable[str], label: str) -> dict[str, str]:
        """Find our fields among a file's headers.

        Parameters
        ----------
        source : str
            ``trips``, ``status``, ``stations`` or ``weather``.
        found : iterable of str
            The file's headers.
        label : str
            Name of the file in messages.

        Returns
        -------
        dict
            Our field → the file's column, for the fields that were found. Entries of `mapping` whose column the file
            does not have are ignored; `check_used` reports those that no file used.
        """
        kind = self.sources[source]
        headers = [header for header in found if header.strip()]
        by_normal: dict[str, list[str]] = {}
        for header in headers:
            by_normal.setdefault(normalise(_NUMBERED.sub("", header)), []).append(header)
        matched: dict[str, str] = {}
        for name, variants in kind.variants.items():
            given = self.mapping.get(f"{source}.{name}", self.mapping.get(name))
            if given is not None and given in headers:
                matched[name] = given
                continue
            candidates = next((by_normal[normal] for normal in map(normalise, variants) if normal in by_normal), [])
            if len(candidates) > 1:
                raise FileFormatError(
                    f"{label}: several columns could be {name} of {kind.name}: {', '.join(map(repr, candidates[:5]))}. "
                    f'Name the right one with --map "{name}={candidates[0]}" '
                    f"(in Python: mapping={{{name!r}: {candidates[0]!r}}})."
                )
            if candidates:
                matched[name] = candidates[0]
        missing = [need for need in kind.required if not any(part in matched for part in need.split("|"))]
        if missing:
            raise FileFormatError(self._explain(kind, headers, matched, missing, label))
        return matched

    def check_used(self, seen: Mapping[str, set[str]]) -> None:
        """Refuse a mapping of an unknown field, or to a column that no file has.

        Parameters
        ----------
        seen : mapping
            Source → all headers of its files.
        """
        for key, column in self.mapping.items():
            sources = _sources_of(key, "mapping")
            if not any(column in seen.get(source, ()) for source in sources):
                found = sorted(set().union(*(seen.get(source, set()) for source in sources)))
                raise InputError(
                    f"mapping {key}={column}: no file has a column {column!r}. Found: {', '.join(found) or 'nothing'}"
                )

    def _looks_like(self, headers: list[str], not_this: str) -> str | None:
        """Return the other kind of file whose required fields are all among these headers, if there is one."""
        present = {normalise(header) for header in headers}
        for kind in self.sources.values():
            fields = {f for f, variants in kind.variants.items() if any(normalise(v) in present for v in variants)}
            whole = all(any(part in fields for part in need.split("|")) for need in kind.required)
            if whole and kind.name not in (not_this, "weather"):  # any table with a time could be weather
                return kind.name
        return None

    def _explain(
        self, kind: Source, headers: list[str], matched: Mapping[str, str], missing: list[str], label: str
    ) -> str:
        needed = "; ".join(" or ".join(need.split("|")) for need in missing)
        known = ", ".join(f"{ours} = {theirs!r}" for ours, theirs in matched.items()) or "nothing"
        name = missing[0].split("|")[0]
        other = self._looks_like(headers, kind.name)
        hint = f" This looks like {other}: give it as {other} (--{other})." if other else ""
        return (
            f"{label}: no column was recognised for {needed} of {kind.name}.{hint}\n"
            f"  columns found:  {', '.join(map(repr, headers)) or 'none'}\n"
            f"  recognised:     {known}\n"
            f"  name the column with --map {name}=THEIR_COLUMN "
            f"(in Python: mapping={{{name!r}: 'THEIR_COLUMN'}}); fields: {', '.join(kind.variants)}"
        )
