"""An operator's files, read into DuckDB: checked, time-zoned, and with every rejected row counted.

The tables, in a database file in a temporary folder (only those in `Records.tables` exist):

``stations``
    ``station, name, lat, lon, capacity, ix``: one row per station; `ix` numbers them 0, 1, 2 ...
``trips``
    ``trip_id, started_at, ended_at, start_station, end_station, start_lat, start_lon, end_lat, end_lon, start_ix,
    end_ix``: accepted trips; `ended_at` and `end_*` may be NULL, and `start_*` where a trip has only coordinates.
``trip_span``
    ``first, last, last_end``: one row with the first and the last start, and the last end, of the trips.
``status``
    ``station, at, available, disabled, docks, installed, renting, ix, rn, second``: accepted records; `available`
    counts functional vehicles; `rn` rises as the rows stand in the files; `second` is `at` in seconds since 1970,
    rounded up. Write ``"at"`` in quotes: it is a word of DuckDB's. Sorting by `ix` is cheaper than by `station`.
``weather``
    ``at`` and the numeric columns as they were called.

Times are UTC (TIMESTAMP). `trips` and `status` are views where the files are Parquet: nothing is copied.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import duckdb
import pandas as pd

from unmet._exceptions import InputError
from unmet._storage.sql import connect, reading
from unmet.mobility.clock.timezones import zone_info
from unmet.mobility.records.files import Given, Workspace
from unmet.mobility.records.headers import check_mapping
from unmet.mobility.records.quality import QualityLog, check_rejected
from unmet.mobility.records.staging import Within, create_table, find_stations, own_table
from unmet.mobility.records.stations import StationTable, id_text, read_stations
from unmet.mobility.records.status import make_status, stage_status
from unmet.mobility.records.trips import StagedTrips, make_trips, stage_trips
from unmet.mobility.records.weather import make_weather

__all__ = ["Records", "parse_memory", "read_records"]

_LEAST_MEMORY = 100_000_000  # with less DuckDB cannot decode a row group of a Parquet file
# Trips of which fewer start at stations that the status knows are of another system, or their ids of another kind.
_FEWEST_IN_COMMON = 0.5


@dataclass(frozen=True)
class Records:
    """What `read_records` returns; close it, or use it in a ``with``, to remove its temporary folder.

    Attributes
    ----------
    connection : duckdb.DuckDBPyConnection
        Holds the tables described at the head of this module.
    timezone : str
        The system's time zone.
    tables : frozenset of str
        Which of them exist.
    quality : pandas.DataFrame
        ``source, reason, action, rows, share, detail``: what was read, rejected, repaired and noted.
    within : mapping
        Rows of each source in the period asked for, where one was.
    """

    connection: duckdb.DuckDBPyConnection
    timezone: str
    tables: frozenset[str]
    quality: pd.DataFrame
    folder: Path
    within: Mapping[str, int] = field(default_factory=dict)

    def close(self) -> None:
        """Close the connection and remove the temporary folder; doing so again does nothing."""
        self.connection.close()
        shutil.rmtree(self.folder, ignore_errors=True)

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
    memory: str = "2GB",
    max_rejected: float = 0.2,
    force: bool = False,
    keep_duplicates: bool = False,
    within: Within = (None, None),
    progress: Callable[[str], None] | None = None,
) -> Records:
    """Read an operator's files.

    Parameters
    ----------
    trips, status, stations, weather : path, list of paths, folder, glob or frame, optional
        CSV, CSV.gz, zip of CSV, Parquet, a pandas, polars or Arrow frame; status and stations also as GBFS
        ``station_status`` and ``station_information`` documents. Frames are not changed.
    timezone : str
        The system's time zone; naive times are local to it.
    mapping : mapping, optional
        Our name → their column, for files whose headers are not recognised; ``"status.at"`` where a name
        belongs to several sources.
    memory : str
        DuckDB's memory limit; what does not fit goes to disk.
    max_rejected : float
        More than this share of a source rejected (of its rows in the period asked for) is an error, unless `force`.
    force : bool
        Go on with what is left, passing over (and counting) unreadable GBFS documents too.
    keep_duplicates : bool
        Leave status records of the same station and second in: for those who sort them anyway and see them then.
    within : tuple of int or None
        First minute (UTC) and the one behind the last of the period that is asked for: rows outside it are read, but
        what is rejected there counts as noted, and shares are of the rows within. None for no limit.
    progress : callable, optional
        Called with a sentence at the start of each step.

    Returns
    -------
    Records
        To be closed.

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
    zone_info(timezone)
    if trips is None and status is None:
        raise InputError("nothing to read: give trips, station status, or both.")
    if not 0 <= max_rejected <= 1:
        raise InputError(f"max_rejected: expected a number between 0 and 1, got {max_rejected!r}.")
    limit = parse_memory(memory)
    folder = Path(tempfile.mkdtemp(prefix="unmet-"))
    try:
        connection = connect(folder / "records.duckdb", memory=limit, temp_folder=folder / "spill")
        workspace = Workspace(connection, folder, limit)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    log = QualityLog()
    try:
        tables = _load(
            workspace,
            trips,
            status,
            stations,
            weather,
            timezone,
            mapping,
            log,
            force,
            keep_duplicates,
            within,
            progress or (lambda _: None),
        )
        if not force:
            check_rejected(log.frame(), max_rejected)
    except BaseException:
        workspace.connection.close()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    records = Records(workspace.connection, timezone, tables, log.frame(), folder, log.within)
    # Records that were never closed leave nothing behind either.
    weakref.finalize(records, shutil.rmtree, folder, ignore_errors=True)
    return records


def parse_memory(memory: str) -> int:
    """Read a size such as 2GB or 500MiB, in bytes.

    Examples
    --------
    >>> parse_memory("2GB"), parse_memory("0.5 GiB")
    (2000000000, 536870912)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT])(i?)B", str(memory).strip(), re.IGNORECASE)
    if match is None:
        raise InputError(f"memory: expected a size such as '2GB' or '500MB', got {memory!r}.")
    size = int(float(match[1]) * (1024 if match[3] else 1000) ** (1 + "KMGT".index(match[2].upper())))
    if size < _LEAST_MEMORY:
        raise InputError(f"memory: expected {_LEAST_MEMORY // 10**6}MB or more, got {memory!r}.")
    return size


def _load(
    workspace: Workspace,
    trips: Given,
    status: Given,
    stations: Given,
    weather: Given,
    timezone: str,
    mapping: Mapping[str, str] | None,
    log: QualityLog,
    force: bool,
    keep_duplicates: bool,
    within: Within,
    progress: Callable[[str], None],
) -> frozenset[str]:
    seen: dict[str, set[str]] = {}
    table: StationTable | None = None
    rows_of: dict[str, dict[str, int]] = {}
    if stations is not None:
        progress("reading stations")
        table, seen["stations"] = read_stations(workspace, stations, timezone, mapping, log)
    if trips is not None:
        progress("reading trips")
        staged_trips = stage_trips(workspace, trips, mapping, log)
        seen["trips"] = staged_trips.headers
        rows_of["trips"] = find_stations(workspace, staged_trips.staged, ["start_raw", "end_raw"])
    if status is not None:
        progress("reading station status")
        staged_status = stage_status(workspace, status, mapping, log, force, progress)
        seen["status"] = staged_status.headers
        rows_of["status"] = find_stations(workspace, staged_status.staged, ["raw"])
    if table is None:
        table = own_table({raw: 0 for found in rows_of.values() for raw in found})
        if trips is not None and status is not None:
            _compare_ids(rows_of["trips"], rows_of["status"], log, force)
    if trips is not None:
        progress("checking trips")
        looked_up = stations is not None
        make_trips(workspace, staged_trips, table, rows_of["trips"], timezone, log, matched=looked_up, within=within)
    if status is not None:
        progress("checking station status")
        make_status(
            workspace,
            staged_status,
            table,
            rows_of["status"],
            timezone,
            log,
            matched=stations is not None,
            keep_duplicates=keep_duplicates,
            within=within,
        )
    _write_stations(workspace, table, staged_trips if trips is not None and stations is None else None)
    if weather is not None:
        progress("reading weather")
        seen["weather"] = make_weather(workspace, weather, timezone, mapping, log)
    check_mapping(mapping, seen)
    given = {"trips": trips, "status": status, "weather": weather}
    return frozenset({"stations", *(name for name, value in given.items() if value is not None)})


def _compare_ids(trips: Mapping[str, int], status: Mapping[str, int], log: QualityLog, force: bool) -> None:
    """Refuse trips and status that name stations in different ways: nothing says which belong together."""
    known = {id_text(raw) for raw in status}
    rows = sum(trips.values())
    met = sum(count for raw, count in trips.items() if id_text(raw) in known)
    if rows and met < _FEWEST_IN_COMMON * rows and not force:

        def some(ids: Mapping[str, int]) -> str:
            return ", ".join(repr(raw) for raw in list(ids)[:3])

        raise InputError(
            f"{met:,} of {rows:,} trips ({met / rows:.1%}) start at a station that the status knows: the trips "
            f"call stations {some(trips)}, the status {some(status)}. If these are ids of two kinds, give a table of "
            "the stations that has both (--stations, in Python stations=); if they are right as they are, go on with "
            "--force (force=True)."
        )
    log.add("trips", "station without status", "noted", rows - met, "counted; nothing is known of supply there")


def _write_stations(workspace: Workspace, table: StationTable, located_by: StagedTrips | None) -> None:
    """Write the table ``stations``; derived ones get name and place from the trips that started there."""
    types = {"station": "VARCHAR", "name": "VARCHAR", "lat": "DOUBLE", "lon": "DOUBLE", "capacity": "INTEGER"}
    columns: dict[str, list[object]] = {c: [getattr(s, c) for s in table.stations] for c in types}
    columns["ix"] = list(range(len(table.stations)))
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
