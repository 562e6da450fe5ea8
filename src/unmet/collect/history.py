"""The history of one system on disk: finished days as Parquet files, the day in progress as a segment.

::

    feeds/<system>/manifest.json                      address, and SHA-256 of every file of every finished day
                   days/2026-11-16/changes.parquet    a station's row whenever something changed
                                   polls.parquet      every poll, also those without an answer
                                   stations.parquet   a station's description whenever it changed
                                   vehicles.parquet   dockless vehicles, by poll
                                   documents.parquet  vehicle types, hours and system information, as published
                   open/2026-11-17.segment            the day in progress: one frame per poll

The first poll of a day writes all stations, so a day can be read by itself. A finished day is made aside and renamed.
It is never written again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.hashes import file_hash
from unmet._storage.sql import connect, fetch_frame, path_literal, reading
from unmet._storage.writing import write_parquet
from unmet.collect.segments import read_segment

__all__ = ["TABLES", "SystemHistory", "day_of", "find_histories", "read_table"]

_TIME, _TEXT, _WHOLE, _REAL, _FLAG = "datetime64[us, UTC]", "string", "Int64", "Float64", "boolean"

TABLES: Mapping[str, Mapping[str, str]] = {
    "changes": {
        "station_id": _TEXT,
        "poll_time": _TIME,
        "last_updated": _TIME,
        "last_reported": _TIME,
        "num_bikes_available": _WHOLE,
        "num_bikes_disabled": _WHOLE,
        "num_docks_available": _WHOLE,
        "num_docks_disabled": _WHOLE,
        "is_installed": _FLAG,
        "is_renting": _FLAG,
        "is_returning": _FLAG,
        "vehicle_types": _TEXT,
        "left_feed": _FLAG,
    },
    "polls": {
        "feed": _TEXT,
        "poll_time": _TIME,
        "last_updated": _TIME,
        "ttl": _REAL,
        "http_status": _WHOLE,
        "etag": _TEXT,
        "rows": _WHOLE,
        "changes": _WHOLE,
        "unreadable": _WHOLE,
        "bytes": _WHOLE,
        "seconds": _REAL,
        "error": _TEXT,
    },
    "stations": {
        "station_id": _TEXT,
        "valid_from": _TIME,
        "name": _TEXT,
        "lat": _REAL,
        "lon": _REAL,
        "capacity": _WHOLE,
        "fields": _TEXT,
    },
    "vehicles": {
        "vehicle_id": _TEXT,
        "poll_time": _TIME,
        "lat": _REAL,
        "lon": _REAL,
        "vehicle_type_id": _TEXT,
        "station_id": _TEXT,
        "is_reserved": _FLAG,
        "is_disabled": _FLAG,
        "range_metres": _REAL,
        "fuel_share": _REAL,
    },
    "documents": {"feed": _TEXT, "poll_time": _TIME, "text": _TEXT},
}
"""Columns of each table with their types, in order. A frame of a segment has rows in the same order."""

_MANIFEST = "manifest.json"


def day_of(moment: float) -> str:
    """UTC day of a moment in seconds since 1970.

    Examples
    --------
    >>> day_of(1_600_000_000.0)
    '2020-09-13'
    """
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")


@dataclass(frozen=True)
class SystemHistory:
    """The folder of one system."""

    folder: Path

    def segment(self, day: str) -> Path:
        """File of a day in progress."""
        return self.folder / "open" / f"{day}.segment"

    def open_days(self) -> list[str]:
        """Days with a segment, the oldest first."""
        return sorted(path.stem for path in (self.folder / "open").glob("????-??-??.segment"))

    def finished_days(self) -> list[str]:
        """Days in the manifest, the oldest first."""
        return sorted(self.manifest().get("days", {}))

    def manifest(self) -> dict[str, Any]:
        """Content of ``manifest.json``; empty if there is none yet."""
        path = self.folder / _MANIFEST
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise FileFormatError(f"{path}: cannot be read as a manifest ({error}).") from None
        if not isinstance(content, dict) or not isinstance(content.get("days", {}), dict):
            raise FileFormatError(f"{path}: expected an object with an object 'days'.")
        return content

    def claim(self, address: str) -> None:
        """Note the address whose feed is kept here; refuse another one."""
        known = self.manifest()
        if known.get("url", address) != address:
            raise InputError(
                f"{self.folder}: keeps the history of {known['url']}, not of {address}. Name another system or folder."
            )
        if "url" not in known:
            self._write_manifest({"url": address, "days": {}})

    def finish(self, day: str) -> None:
        """Turn the segment of a day that is over into Parquet files, once."""
        final = self.folder / "days" / day
        if not final.exists():
            aside = self.folder / "open" / f".{day}"
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
            for name in TABLES:
                rows = _as_frame(name, self._rows(self.segment(day), name))
                if len(rows) or name in ("changes", "polls"):
                    write_parquet(rows, aside / f"{name}.parquet")
            final.parent.mkdir(exist_ok=True)
            os.replace(aside, final)
        # A kill may have come between the rename and the manifest: the folder is whole, and is entered now.
        known = self.manifest()
        hashes = {path.name: file_hash(path) for path in sorted(final.glob("*.parquet"))}
        self._write_manifest({**known, "days": {**known.get("days", {}), day: hashes}})
        self.segment(day).unlink(missing_ok=True)

    def damaged(self) -> list[str]:
        """Files of finished days whose content is not what the manifest states."""
        wrong = []
        for day, hashes in sorted(self.manifest().get("days", {}).items()):
            for name, expected in sorted(hashes.items()):
                path = self.folder / "days" / day / name
                if not path.is_file() or file_hash(path) != expected:
                    wrong.append(f"{day}/{name}")
        return wrong

    def _rows(self, segment: Path, table: str) -> Iterator[list[Any]]:
        for frame in read_segment(segment):
            yield from frame.get(table, [])

    def _write_manifest(self, content: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / f".{_MANIFEST}"
        with aside.open("w", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=1, sort_keys=True) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, self.folder / _MANIFEST)


def find_histories(folder: Path) -> dict[str, SystemHistory]:
    """Systems below a collector's folder, by name; empty if it is not such a folder."""
    return {path.parent.name: SystemHistory(path.parent) for path in sorted(folder.glob(f"*/{_MANIFEST}"))}


def read_table(history: SystemHistory, table: str) -> Iterator[pd.DataFrame]:
    """Yield a table day by day, the oldest first: finished days, then days in progress."""
    finished = history.finished_days()
    for day in finished:
        path = history.folder / "days" / day / f"{table}.parquet"
        if path.is_file():
            yield _read_day(path)
    for day in history.open_days():
        if day not in finished:
            rows = _as_frame(
                table, (row for frame in read_segment(history.segment(day)) for row in frame.get(table, []))
            )
            if len(rows):
                yield rows


def _read_day(path: Path) -> pd.DataFrame:
    with reading(str(path)), connect() as connection:
        return fetch_frame(connection, f"SELECT * FROM read_parquet({path_literal(str(path))})")


def _as_frame(table: str, rows: Iterator[list[Any]]) -> pd.DataFrame:
    columns = TABLES[table]
    frame = pd.DataFrame(list(rows), columns=list(columns), dtype=object)
    return pd.DataFrame({name: _column(frame[name], kind) for name, kind in columns.items()})


def _column(values: pd.Series[Any], kind: str) -> pd.Series[Any]:
    if kind == _TIME:
        micros = (pd.to_numeric(values).astype("Float64") * 1e6).round().astype("Int64")
        return pd.to_datetime(micros, unit="us", utc=True).astype(_TIME)
    return values.astype(pd.api.types.pandas_dtype(kind))
