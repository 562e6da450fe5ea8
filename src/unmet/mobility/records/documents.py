"""Station status in GBFS documents, one per poll, as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unmet._exceptions import FileFormatError
from unmet._storage.sql import fetch_all, fetch_one
from unmet.mobility.records.files import Column, InputTable, Workspace
from unmet.mobility.records.gbfs import StationStatus, read_station_status
from unmet.mobility.records.quality import QualityLog

__all__ = ["load_documents"]


def load_documents(
    workspace: Workspace,
    paths: Sequence[Path],
    log: QualityLog,
    force: bool,
    progress: Callable[[str], None],
    vehicle_type: str | None = None,
) -> InputTable:
    """Load GBFS documents into a table, a batch of documents at a time."""
    name = workspace.name("gbfs")
    workspace.connection.execute(
        f"CREATE TABLE {name} (station_id VARCHAR, last_updated DOUBLE, num_bikes_available INTEGER, "
        "num_bikes_disabled INTEGER, num_docks_available INTEGER, is_installed BOOLEAN, is_renting BOOLEAN, "
        "is_returning BOOLEAN, own_time DOUBLE, stale BOOLEAN)"
    )
    batch: list[StationStatus] = []
    held = unreadable = 0
    first_error = ""
    for i, path in enumerate(paths):
        try:
            document = read_station_status(path, workspace.memory, vehicle_type)
        except FileFormatError as error:
            if not force:
                raise
            unreadable += 1
            first_error = first_error or str(error)
            continue
        held += len(document.station)
        batch.append(document)
        if i % 100 == 0:
            progress(f"reading GBFS documents: {i + 1:,} of {len(paths):,}")
        if held > 200_000 or i == len(paths) - 1:
            _append(workspace, name, batch)
            batch, held = [], 0
    _append(workspace, name, batch)
    stale = _remove_stale(workspace, name, log)
    log.total("status", stale + unreadable)
    log.add("status", "stale report", "rejected", stale, "last_reported more than a day before the newest report")
    log.add("status", "unreadable document", "rejected", unreadable, first_error)
    label = str(paths[0]) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
    columns = {r[0]: Column(r[0], r[1]) for r in fetch_all(workspace.connection, f"DESCRIBE {name}")}
    return InputTable(label, name, columns, lazy=True, row="rowid")


def _append(workspace: Workspace, table: str, batch: Sequence[StationStatus]) -> None:
    if not batch:
        return

    def column(field: str, dtype: type) -> npt.NDArray[Any]:
        values: list[Any] = [value for d in batch for value in getattr(d, field)]
        if dtype is float:  # counts and flags that may be missing are passed as float with NaN
            values = [np.nan if v is None else v for v in values]
        array: npt.NDArray[Any] = np.array(values, dtype=dtype)
        return array

    frame = {
        "station": column("station", object),
        "moment": column("at", float),
        "available": column("available", float),
        "disabled": column("disabled", float),
        "docks": column("docks", float),
        "installed": column("installed", float),
        "renting": column("renting", float),
        "accepting": column("accepting", float),
        "own_time": column("reported", float),
        "stale": column("stale", bool),
    }
    workspace.connection.register("gbfs_batch", frame)
    counts = ", ".join(f"CASE WHEN NOT isnan({c}) THEN {c}::INTEGER END" for c in ("available", "disabled", "docks"))
    flags = ", ".join(f"CASE WHEN NOT isnan({c}) THEN {c} = 1 END" for c in ("installed", "renting", "accepting"))
    workspace.connection.execute(
        f"INSERT INTO {table} SELECT station, moment, {counts}, {flags}, own_time, stale FROM gbfs_batch"
    )
    workspace.connection.unregister("gbfs_batch")


def _remove_stale(workspace: Workspace, table: str, log: QualityLog) -> int:
    """Remove stale reports of GBFS documents, and the columns that tell them; return their number.

    Reports are not stale if the number of vehicles has three values or more under one ``last_reported``: that time
    stands still, not the station. Once, the vehicles of a dead station may be fetched.
    """
    run = workspace.connection.execute
    run(
        f"""UPDATE {table} SET stale = NULL WHERE stale AND station_id IN (SELECT station_id FROM {table} WHERE stale
        GROUP BY station_id, own_time HAVING count(DISTINCT num_bikes_available) > 2)"""
    )
    moving = fetch_all(
        workspace.connection, f"SELECT station_id, count(*) FROM {table} WHERE stale IS NULL GROUP BY 1 ORDER BY 1"
    )
    some = ", ".join(str(station) for station, _ in moving[:3]) + (" …" if len(moving) > 3 else "")
    rows = sum(number for _, number in moving)
    log.add("status", "last_reported stands still", "noted", rows, f"numbers change, so reports are used: {some}")
    (stale,) = fetch_one(workspace.connection, f"SELECT count(*) FROM {table} WHERE stale")
    run(f"DELETE FROM {table} WHERE stale")
    for column in ("own_time", "stale"):
        run(f"ALTER TABLE {table} DROP COLUMN {column}")
    return int(stale)
