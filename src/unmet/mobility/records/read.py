"""Read an operator's files into DuckDB: checked, converted to UTC, with every rejected row counted.

The tables are in a database file in a temporary folder. Only those in `Records.tables` exist:

``stations``
    ``station, name, lat, lon, capacity, ix``: one row per station. `ix` numbers them 0, 1, 2, ...
``trips``
    ``trip_id, started_at, ended_at, start_station, end_station, start_lat, start_lon, end_lat, end_lon, start_ix,
    end_ix``: accepted trips. `ended_at` and `end_*` may be NULL, and `start_*` if a trip has only coordinates.
``trip_span``
    ``first, last, last_end``: one row with the first and the last start, and the last end, of the trips.
``status``
    ``station, at, available, disabled, docks, installed, renting, accepting, ix, rn, second``: accepted records.
    `available` counts functional vehicles, `rn` follows the order of the rows in the files, and `second` is `at` in
    seconds since 1970, rounded up. Write ``"at"`` in quotes, because it is a keyword. Sorting by `ix` is cheaper
    than by `station`.
``polls``
    ``at, fresh``: answered polls of station status, if the status is a history of `unmet collect`; `fresh` if the
    document was a new one.
``weather``
    ``at`` and the columns of numbers, under their headers.

Times are UTC (TIMESTAMP). `trips` and `status` are views if the files are Parquet: nothing is copied.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import cast

import duckdb
import pandas as pd

from unmet._exceptions import InputError
from unmet._numbers import read_switch
from unmet._storage.sql import connect, reading
from unmet._storage.temporary import temporary_folder
from unmet.mobility.clock.timezones import zone_info
from unmet.mobility.records.casting import DateOrder
from unmet.mobility.records.collected import split_histories
from unmet.mobility.records.databases import copied
from unmet.mobility.records.dates import check_date_order
from unmet.mobility.records.files import Given, Workspace
from unmet.mobility.records.headers import Headers, more_headers
from unmet.mobility.records.quality import QualityLog, check_rejected
from unmet.mobility.records.staging import Within, create_table, find_stations, own_table
from unmet.mobility.records.stations import StationTable, id_text, read_stations
from unmet.mobility.records.status import make_status, stage_status
from unmet.mobility.records.trips import StagedTrips, make_trips, stage_trips
from unmet.mobility.records.weather import make_weather

__all__ = ["Records", "parse_memory", "read_records"]

_MOST_MEMORY = 10**15  # more than any machine has; DuckDB refuses numbers of more than 64 bits
_LEAST_MEMORY = 100_000_000  # with less, DuckDB cannot decode a row group of a Parquet file
# If a smaller share of trips starts at a station of the status, the trips or their ids belong to another system.
_FEWEST_IN_COMMON = 0.5


@dataclass(frozen=True)
class Records:
    """Records in a database. Close them, or use them in a ``with``, to remove their temporary folder.

    Attributes
    ----------
    connection : duckdb.DuckDBPyConnection
        Database with the tables that are described at the top of this module.
    timezone : str
        Time zone of the system.
    tables : frozenset of str
        Names of the tables that exist.
    quality : pandas.DataFrame
        ``source, reason, action, rows, share, detail``: rows that were read, rejected, repaired and noted.
    folder : pathlib.Path
        The temporary folder.
    within : mapping
        Source → rows in the chosen period, if one was chosen.
    held : contextlib.ExitStack
        Removes the folder when it is closed.
    """

    connection: duckdb.DuckDBPyConnection
    timezone: str
    tables: frozenset[str]
    quality: pd.DataFrame
    folder: Path
    within: Mapping[str, int] = field(default_factory=dict)
    held: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """Close the connection and remove the temporary folder. A second call does nothing."""
        self.connection.close()
        self.held.close()

    def __enter__(self) -> Records:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_records(
    trips: Given = None,
    status: Given = None,
    stations: Given = None,
    weather: Given = None,
    *,
    timezone: str,
    mapping: Mapping[str, str] | None = None,
    headers: Mapping[str, str | Sequence[str]] | None = None,
    memory: str = "2GB",
    max_rejected: float = 0.2,
    force: bool = False,
    keep_duplicates: bool = False,
    within: Within = (None, None),
    date_order: str | None = None,
    vehicle_type: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Records:
    """Read an operator's files.

    Parameters
    ----------
    trips, status, stations, weather : path, list of paths, folder, glob or frame, optional
        CSV, CSV.gz, zip of CSV, Parquet, or a pandas, polars or Arrow frame. Status and stations also as GBFS
        ``station_status`` and ``station_information`` documents, or the folder of one system that `unmet collect`
        keeps. Without `stations`, those of such a folder are used. Frames are not changed. Trips, status and stations
        also from a DuckDB file: ``duckdb://city.duckdb?table=trips``, see `unmet.mobility.records.databases`.
    timezone : str
        Time zone of the system. Times without an offset are local to it.
    mapping : mapping, optional
        Our field → the file's column, for columns with unknown headers. Use ``"status.at"`` if several sources have
        the field. A column that no file has is an error.
    headers : mapping, optional
        Our field → more headers to recognise it by, tried before the known ones. See `more_headers`.
    memory : str
        Memory limit of DuckDB. Data that does not fit is kept on disk.
    max_rejected : float
        Largest share of a source's rows (in the chosen period) that may be rejected. More is an error, unless `force`.
    force : bool
        Continue however many rows are rejected. Unreadable GBFS documents are skipped and counted.
    keep_duplicates : bool
        Keep status records of the same station and second, for callers that sort the records and find them then.
    within : tuple of int or None
        The chosen period: its first minute (UTC) and the one after its last. Rows outside are read, but rows rejected
        there are only noted, and shares are of the rows inside. None for no limit.
    date_order : str, optional
        Order of day, month and year in dates such as 01/02/2024: ``mdy``, ``dmy`` or ``ymd``. The dates decide if not
        given; a file whose dates do not show it is refused.
    vehicle_type : str, optional
        Count only vehicles and trips of one type: ``electric``, ``classic``, or an id of GBFS documents.
    progress : callable, optional
        Called with a sentence at the start of each step.

    Returns
    -------
    Records
        Close them after use.

    Examples
    --------
    >>> import pandas as pd
    >>> trips = pd.DataFrame({
    ...     "start_time": ["2021-07-01 08:00", "2021-07-01 09:00", "2021-07-01 10:00"],
    ...     "end_time": ["2021-07-01 08:10", "2021-07-01 08:50", "2021-07-01 10:05"],
    ...     "from_station_id": [7, 7, 8],
    ... })
    >>> with read_records(trips, timezone="America/Chicago", max_rejected=0.5) as records:
    ...     print(records.connection.sql("SELECT started_at, start_station FROM trips").fetchall())
    ...     print(records.quality.query("action == 'rejected'")[["reason", "rows"]].to_string(index=False))
    [(datetime.datetime(2021, 7, 1, 13, 0), '7'), (datetime.datetime(2021, 7, 1, 15, 0), '8')]
              reason  rows
    end before start     1
    """
    for name, switch in (("force", force), ("keep_duplicates", keep_duplicates)):
        read_switch(switch, name)
    zone_info(timezone)
    if trips is None and status is None:
        raise InputError("There is nothing to read: give trips, station status, or both.")
    if not 0 <= max_rejected <= 1:
        raise InputError(f"max_rejected: expected a number between 0 and 1, got {max_rejected!r}.")
    check_date_order(date_order)
    limit = parse_memory(memory)
    log = QualityLog()
    with ExitStack() as held:
        folder = held.enter_context(temporary_folder())
        connection = connect(folder / "records.duckdb", memory=limit, temp_folder=folder / "spill")
        held.callback(connection.close)
        workspace = Workspace(connection, folder, limit)
        tables = _load(
            workspace,
            trips,
            status,
            stations,
            weather,
            timezone,
            Headers(mapping or {}, more_headers(headers)),
            log,
            force,
            keep_duplicates,
            within,
            cast(DateOrder | None, date_order),
            vehicle_type,
            progress or (lambda _: None),
        )
        if not force:
            check_rejected(log.frame(), max_rejected)
        kept = held.pop_all()
    records = Records(connection, timezone, tables, log.frame(), folder, log.within, kept)
    weakref.finalize(records, kept.close)  # the folder of records that are never closed is removed too
    return records


def parse_memory(memory: str) -> int:
    """Convert a size such as 2GB or 500MiB to bytes.

    Examples
    --------
    >>> parse_memory("2GB"), parse_memory("0.5 GiB")
    (2000000000, 536870912)
    """
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,12})?)\s*([KMGT])(i?)B", str(memory).strip(), re.IGNORECASE)
    if match is None:
        raise InputError(f"memory: expected a size such as '2GB' or '500MB', got {memory!r}.")
    size = int(float(match[1]) * (1024 if match[3] else 1000) ** (1 + "KMGT".index(match[2].upper())))
    if not _LEAST_MEMORY <= size <= _MOST_MEMORY:
        limits = f"{_LEAST_MEMORY // 10**6}MB to {_MOST_MEMORY // 10**12}TB"
        raise InputError(f"memory: expected {limits}, got {memory!r}.")
    return size


def _load(
    workspace: Workspace,
    trips: Given,
    status: Given,
    stations: Given,
    weather: Given,
    timezone: str,
    headers: Headers,
    log: QualityLog,
    force: bool,
    keep_duplicates: bool,
    within: Within,
    order: DateOrder | None,
    vehicle_type: str | None,
    progress: Callable[[str], None],
) -> frozenset[str]:
    """Read every source into its table. Return the names of the tables."""
    seen: dict[str, set[str]] = {}
    known: StationTable | None = None
    rows_of: dict[str, dict[str, int]] = {}
    trips, status = copied(workspace, trips, "trips"), copied(workspace, status, "status")
    stations = copied(workspace, stations, "stations")
    histories, _ = split_histories(status)
    if stations is None:
        described = [str(history.folder) for history in histories if history.has("stations")]
        stations = described or None
    if stations is not None:
        progress("reading stations")
        known, seen["stations"] = read_stations(workspace, stations, timezone, headers, log)
    if trips is not None:
        progress("reading trips")
        staged_trips = stage_trips(workspace, trips, headers, log, order, vehicle_type)
        seen["trips"] = staged_trips.headers
        rows_of["trips"] = find_stations(workspace, staged_trips.staged, ["start_raw", "end_raw"])
    if status is not None:
        progress("reading station status")
        staged_status = stage_status(workspace, status, headers, log, force, progress, order, vehicle_type)
        seen["status"] = staged_status.headers
        rows_of["status"] = find_stations(workspace, staged_status.staged, ["raw"])
    if known is None:
        known = own_table({raw: 0 for found in rows_of.values() for raw in found})
        if trips is not None and status is not None:
            _compare_ids(rows_of["trips"], rows_of["status"], log, force)
    if trips is not None:
        progress("checking trips")
        looked_up = stations is not None
        make_trips(workspace, staged_trips, known, rows_of["trips"], timezone, log, matched=looked_up, within=within)
    if status is not None:
        progress("checking station status")
        make_status(
            workspace,
            staged_status,
            known,
            rows_of["status"],
            timezone,
            log,
            matched=stations is not None,
            keep_duplicates=keep_duplicates,
            within=within,
        )
    _write_stations(workspace, known, staged_trips if trips is not None and stations is None else None)
    if weather is not None:
        progress("reading weather")
        seen["weather"] = make_weather(workspace, weather, timezone, headers, log, order=order)
    headers.check_used(seen)
    given = {"trips": trips, "status": status, "weather": weather, "polls": histories or None}
    return frozenset({"stations", *(name for name, value in given.items() if value is not None)})


def _compare_ids(trips: Mapping[str, int], status: Mapping[str, int], log: QualityLog, force: bool) -> None:
    """Refuse trips and status with different station ids: nothing shows which belong together."""
    known = {id_text(raw) for raw in status}
    rows = sum(trips.values())
    met = sum(count for raw, count in trips.items() if id_text(raw) in known)
    if rows and met < _FEWEST_IN_COMMON * rows and not force:

        def some(ids: Mapping[str, int]) -> str:
            return ", ".join(repr(raw) for raw in list(ids)[:3])

        raise InputError(
            f"Only {met:,} of {rows:,} trips ({met / rows:.1%}) start at a station of the status. Station ids of the "
            f"trips are {some(trips)}, those of the status {some(status)}. If these are ids of two kinds, give a table "
            "of the stations that has both (--stations, in Python stations=). If the ids are right, continue with "
            "--force (force=True)."
        )
    log.add("trips", "station without status", "noted", rows - met, "counted; supply there is unknown")


def _write_stations(workspace: Workspace, known: StationTable, located_by: StagedTrips | None) -> None:
    """Make the table ``stations``. Stations without a table get name and coordinates from trips that start there."""
    types = {
        "station": "VARCHAR",
        "name": "VARCHAR",
        "lat": "DOUBLE",
        "lon": "DOUBLE",
        "capacity": "INTEGER",
        "area": "VARCHAR",
    }
    columns: dict[str, list[object]] = {c: [getattr(s, c) for s in known.stations] for c in types}
    columns["ix"] = list(range(len(known.stations)))
    create_table(workspace, "stations", types | {"ix": "INTEGER"}, columns)
    if located_by is None or not {"start_station_name", "start_lat"} & located_by.fields.keys():
        return
    staged = located_by.staged
    with reading(staged.label):
        workspace.connection.execute(
            f"""UPDATE stations SET name = t.name, lat = t.lat, lon = t.lon FROM
            (SELECT start_raw, any_value(start_name) AS name,
                median(start_lat) AS lat, median(start_lon) AS lon
             FROM {staged.relation} WHERE start_lat IS NULL OR start_lat <> 0 GROUP BY start_raw) t
            WHERE stations.station = t.start_raw"""
        )
