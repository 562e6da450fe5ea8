"""The history of one system on disk: finished days as Parquet files, the day in progress as a segment.

::

    feeds/<system>/manifest.json                      address, and SHA-256 of every file of every finished day
                   days/2026-11-16/changes.parquet    a station's row whenever something changed
                                   polls.parquet      every poll, also those without an answer
                                   stations.parquet   a station's description whenever it changed
                                   vehicles.parquet   a dockless vehicle's row whenever something changed
                                   documents.parquet  vehicle types, hours and system information, as published
                   open/2026-11-17.segment            the day in progress: one frame per poll

The first document of a day writes all rows (``restated`` where nothing changed), so a day can be read by itself. A
finished day is made aside and renamed. It is never written again.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.files import read_whole
from unmet._storage.hashes import file_hash
from unmet._storage.sql import connect, fetch_all, literal, parquet_sql, path_literal, reading
from unmet._storage.writing import replacing, write_text
from unmet.collect.segments import damaged_bytes, read_segment

__all__ = ["SEGMENT", "TABLES", "SystemHistory", "day_of", "find_histories"]

_TIME, _TEXT, _WHOLE, _REAL, _FLAG = "TIMESTAMPTZ", "VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN"
_DTYPES = {_TEXT: "string", _WHOLE: "Int64", _REAL: "Float64", _FLAG: "boolean"}

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
        "restated": _FLAG,
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
        "left_feed": _FLAG,
        "restated": _FLAG,
    },
    "documents": {"feed": _TEXT, "poll_time": _TIME, "text": _TEXT},
}
"""Columns of each table with their types, in order. A frame of a segment has rows in the same order."""

SEGMENT = ".segment"
"""Ending of the file of a day in progress."""

_MANIFEST = "manifest.json"
_FILES = {f"{table}.parquet" for table in TABLES}
_DOCUMENTS = "documents.parquet"
_MOST_NUMBER = 9e12  # as a time, the last one that DuckDB has
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which is not text
_BATCH = 5_000  # rows of Python take ten times the space of those of a table
_KEYS = {"changes": ("station_id", "poll_time"), "vehicles": ("vehicle_id", "poll_time")}
_KEYS |= {"stations": ("station_id", "valid_from"), "documents": ("feed", "poll_time")}


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
        return self.folder / "open" / f"{day}{SEGMENT}"

    def open_days(self) -> list[str]:
        """Days with a segment, the oldest first."""
        found = (self.folder / "open").glob(f"????-??-??{SEGMENT}")
        return sorted(path.stem for path in found if _is_day(path.stem) and path.is_file())

    def frames(self, day: str) -> Iterator[dict[str, Any]]:
        """Yield the polls of a day in progress: rows of `TABLES`, by table.

        Raises
        ------
        FileFormatError
            If rows are not those of the tables.
        """
        path = self.segment(day)
        for frame in read_segment(path):
            for table, kinds in TABLES.items():
                rows = frame.get(table, [])
                if not isinstance(rows, list) or not all(_is_row(row, tuple(kinds.values())) for row in rows):
                    raise FileFormatError(f"{path}: a poll has rows of {table!r} that the collector does not write.")
            yield frame

    def all_files(self) -> list[Path]:
        """Files of all days, the oldest first."""
        days = [path for day in self.finished_days() for path in sorted((self.folder / "days" / day).glob("*.parquet"))]
        return days + [self.segment(day) for day in self.open_days()]

    def finished_days(self) -> list[str]:
        """Days in the manifest, the oldest first."""
        return sorted(self.manifest()["days"])

    def manifest(self) -> dict[str, Any]:
        """Content of ``manifest.json``; without days if there is none yet."""
        path = self.folder / _MANIFEST
        if path.exists() and not path.is_file():
            raise FileFormatError(f"{path}: expected a file. Move it away.")
        try:
            content = json.loads(read_whole(path))
        except FileNotFoundError:
            return {"days": {}}
        except (OSError, ValueError, RecursionError) as error:
            raise FileFormatError(f"{path}: cannot be read as a manifest ({error}).") from None
        if not isinstance(content, dict) or not _is_days(content.get("days")):
            raise FileFormatError(f"{path}: expected an object 'days' with the files of each day and their checksums.")
        return content

    def claim(self, address: str) -> None:
        """Note the address whose feed is kept here, or refuse another one; remove what a kill has left unfinished."""
        for partial in self.folder.rglob(".*.partial"):
            shutil.rmtree(partial) if partial.is_dir() and not partial.is_symlink() else partial.unlink()
        self._refuse_links()
        known = self.manifest()
        if known.get("url", address) != address:
            raise InputError(
                f"{self.folder}: keeps the history of {known['url']}, not of {address}. Name another system or folder."
            )
        if "url" not in known:
            self._write_manifest({**known, "url": address})

    def finish(self, day: str) -> None:
        """Turn the segment of a day that is over into Parquet files, once."""
        final = self.folder / "days" / day
        if not final.exists():
            final.parent.mkdir(exist_ok=True)
            with replacing(final, scratch=self.folder / "open") as aside:
                aside.mkdir()
                self._write_day(day, aside, TABLES)
        # A kill may have come between the rename and the manifest: the folder is whole, and is entered now.
        known = self.manifest()
        hashes = {path.name: file_hash(path) for path in sorted(final.glob("*.parquet"))}
        self._write_manifest({**known, "days": {**known["days"], day: hashes}})
        self.segment(day).unlink(missing_ok=True)

    def has(self, table: str) -> bool:
        """Whether a table has rows."""
        finished = any((self.folder / "days" / day / f"{table}.parquet").is_file() for day in self.finished_days())
        return finished or any(frame.get(table) for day in self.open_days() for frame in self.frames(day))

    def files(self, table: str, scratch: Path) -> list[Path]:
        """Parquet files of a table, the oldest day first. Those of days in progress are made in `scratch`."""
        finished, found = self.finished_days(), []
        for day in sorted({*finished, *self.open_days()}):
            path = self.folder / "days" / day / f"{table}.parquet"
            if day not in finished:
                aside = scratch / f"{self.folder.name}-{day}"
                aside.mkdir(exist_ok=True)
                try:
                    self._write_day(day, aside, [table])
                    path = aside / path.name
                except FileNotFoundError:  # the collector has finished this day just now
                    pass
            if path.is_file():
                found.append(path)
        return found

    def last_answered_day(self) -> str | None:
        """Last finished day of which documents are here: neither moved away nor without any answer."""
        days = (day for day in reversed(self.finished_days()) if (self.folder / "days" / day / _DOCUMENTS).is_file())
        return next(days, None)

    def last_rows(self, day: str) -> dict[str, list[list[Any]]]:
        """Last row of every station, vehicle and document of a finished day, as in a frame of a segment."""
        rows = {}
        for table, (key, time) in _KEYS.items():
            path = self.folder / "days" / day / f"{table}.parquet"
            if not path.is_file():
                continue
            columns = ", ".join(f"epoch({c})" if kind == _TIME else c for c, kind in TABLES[table].items())
            latest = f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {time} DESC) = 1"
            with reading(str(path)), connect(threads=1) as connection:
                found = fetch_all(connection, f"SELECT {columns} FROM {parquet_sql(path_literal(str(path)))} {latest}")
            rows[table] = [list(row) for row in found]
        return rows

    def damaged(self) -> list[str]:
        """Files that are not as they were collected, and links. `check_content` has the reasons.

        A day whose folder is missing is no damage: old days may be moved away.
        """
        return sorted(self._damage())

    def check_content(self, *tables: str) -> None:
        """Refuse tables that were damaged, changed or removed: a station would keep an earlier state.

        Days that are missing are no damage: every day states all stations at its start.
        """
        self._refuse_links()
        names = {f"{table}.parquet" for table in tables}
        for name, reason in sorted(self._damage().items()):
            path = self.folder / name
            if path.name in names or path.suffix == SEGMENT:
                raise FileFormatError(
                    f"{path}: {reason}. Restore the file from a copy, or move its day out of the folder: other days "
                    "can be read without it."
                )

    def _damage(self) -> dict[str, str]:
        """Files that are not as they were collected, with the reasons."""
        found = {str(path.relative_to(self.folder)): "is a symbolic link" for path in self._links()}
        # A collector may finish a day meanwhile: it makes the folder, then writes the manifest, then removes the
        # segment. In this order of looking, the manifest has every folder without a segment.
        folders = {path.name for path in (self.folder / "days").glob("*") if _is_day(path.name) and path.is_dir()}
        open_days = self.open_days()
        finished = self.manifest()["days"]
        for day in folders & finished.keys() | folders - set(open_days):
            found |= self._damage_of_day(day, finished.get(day, {}))
        for day in open_days:
            with suppress(FileNotFoundError):  # the collector has finished this day just now
                if reason := self._damage_of_segment(day):
                    found[f"open/{day}{SEGMENT}"] = reason
        return found

    def _damage_of_day(self, day: str, hashes: Mapping[str, str]) -> dict[str, str]:
        folder, found = self.folder / "days" / day, {}
        for name in _FILES:
            path = folder / name
            if not path.is_file():
                reason = "is missing, and the other files of its day are here" if name in hashes else ""
            elif name not in hashes:
                reason = "is not in manifest.json, which lists the files of all finished days"
            else:
                reason = "was damaged or changed since it was collected" if file_hash(path) != hashes[name] else ""
            if reason:
                found[f"days/{day}/{name}"] = reason
        return found

    def _damage_of_segment(self, day: str) -> str:
        if damaged_bytes(self.segment(day)):
            return "was damaged or changed since it was collected"
        times = (poll[1] for frame in self.frames(day) for poll in frame.get("polls", ()) if poll[1] is not None)
        first = next(times, None)
        begin = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
        # The first poll of a day opens its segment.
        return "" if first is None or 0 <= first - begin < 86_400 else "has the name of one day and polls of another"

    def _links(self) -> list[Path]:
        """Symbolic links in the folder. The collector makes none: what they lead to is not its own."""
        return sorted(path for path in self.folder.rglob("*") if path.is_symlink())

    def _refuse_links(self) -> None:
        for link in self._links():
            raise FileFormatError(
                f"{link}: is a symbolic link, and the history of a feed has none. Move the file itself to this place, "
                "or link the whole folder of the system."
            )

    def _write_day(self, day: str, folder: Path, tables: Iterable[str]) -> None:
        """Write tables of a segment as Parquet files; those without rows only where a reader expects them."""
        waiting: dict[str, list[list[Any]]] = {table: [] for table in tables}
        # One thread, so that equal rows give equal bytes.
        with connect(threads=1) as connection:
            for table in waiting:
                columns = ", ".join(f"{name} {kind}" for name, kind in TABLES[table].items())
                connection.execute(f"CREATE TABLE {table} ({columns})")
            for frame in self.frames(day):
                for table, rows in waiting.items():
                    rows += frame.get(table, ())
                    if len(rows) >= _BATCH:
                        _insert(connection, table, rows)
            for table, rows in waiting.items():
                _insert(connection, table, rows)
                (count,) = fetch_all(connection, f"SELECT count(*) FROM {table}")[0]
                if count or table in ("changes", "polls"):
                    target = literal(str(folder / f"{table}.parquet"))
                    connection.execute(f"COPY {table} TO {target} (FORMAT parquet, COMPRESSION zstd)")

    def _write_manifest(self, content: dict[str, Any]) -> None:
        write_text(self.folder / _MANIFEST, json.dumps(content, indent=1, sort_keys=True) + "\n")


def find_histories(folder: Path) -> dict[str, SystemHistory]:
    """Systems in a folder, by name: those below a collector's folder, or the one whose folder this is.

    Empty if it is neither.
    """
    if (folder / _MANIFEST).is_file() and ((folder / "days").is_dir() or (folder / "open").is_dir()):
        return {folder.name: SystemHistory(folder)}
    found = sorted(path for path in folder.glob(f"*/{_MANIFEST}") if path.is_file())
    return {path.parent.name: SystemHistory(path.parent) for path in found}


def _is_days(days: object) -> bool:
    """Whether this maps days to files and their hashes. Other names could lead out of the folder."""
    return isinstance(days, dict) and all(
        _is_day(day) and isinstance(hashes, dict) and hashes.keys() <= _FILES for day, hashes in days.items()
    )


def _is_day(text: str) -> bool:
    try:
        return len(text) == 10 and str(date.fromisoformat(text)) == text
    except ValueError:
        return False


def _is_row(row: object, kinds: tuple[str, ...]) -> bool:
    return isinstance(row, list) and len(row) == len(kinds) and all(map(_is_value, row, kinds))


def _is_value(value: object, kind: str) -> bool:
    if value is None:
        return True
    if kind == _TEXT:
        return isinstance(value, str) and (value.isascii() or _SURROGATE.search(value) is None)
    if kind == _FLAG or isinstance(value, bool):
        return kind == _FLAG and isinstance(value, bool)
    if kind == _WHOLE:
        return isinstance(value, int) and abs(value) < 2**53
    return isinstance(value, int | float) and abs(value) < _MOST_NUMBER


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: list[list[Any]]) -> None:
    """Move rows to a table."""
    if rows:
        connection.register("batch", _as_frame(table, rows))
        connection.execute(f"INSERT INTO {table} SELECT * FROM batch")
        connection.unregister("batch")
        rows.clear()


def _as_frame(table: str, rows: list[list[Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(TABLES[table]), dtype=object)
    return pd.DataFrame({name: _column(frame[name], kind) for name, kind in TABLES[table].items()})


def _column(values: pd.Series[Any], kind: str) -> pd.Series[Any]:
    if kind != _TIME:
        return values.astype(pd.api.types.pandas_dtype(_DTYPES[kind]))
    micros = (values.astype("Float64") * 1e6).round().astype("Int64")
    return pd.to_datetime(micros, unit="us", utc=True).astype("datetime64[us, UTC]")
