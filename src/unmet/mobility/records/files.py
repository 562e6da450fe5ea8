"""Open files, folders, globs or frames as relations that DuckDB can read.

Values are not interpreted here. An `InputTable` is one relation with known columns: a group of Parquet files or of CSV
files with the same header, or one frame. CSV columns are named by position, so that a header never reaches SQL.
"""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

import duckdb

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.files import check_listable
from unmet._storage.sql import fetch_all, fetch_one, identifier, literal, parquet_sql, path_literal, reading, register
from unmet.collect.history import SEGMENT, find_histories
from unmet.mobility.records.heads import read_head
from unmet.mobility.records.limits import check_columns, check_parquet
from unmet.mobility.records.unpacking import check_path, may_have_records, unpack

__all__ = [
    "MOST_TABLES",
    "Column",
    "Given",
    "InputTable",
    "Workspace",
    "expand",
    "is_frame",
    "is_json",
    "open_files",
    "open_tables",
]

Given: TypeAlias = Any
"""A path, a list of paths, a folder, a glob, or a pandas, polars or Arrow frame."""

_TABLES = (".parquet", ".csv", ".csv.gz", ".zip", ".tsv", ".tsv.gz", ".txt", ".txt.gz")
_JSON = (".json", ".json.gz")
_WORDS = {"status": "station_status", "stations": "station_information"}
# Names of feeds that are kept beside those of the stations.
_FEEDS = ("gbfs", "system_", "station_", "vehicle_", "free_bike_status", "geofencing_zones", "manifest")
MOST_TABLES = 100
"""Largest number of different headers among the files of a source."""
_FILE_BYTES = 120_000  # memory that DuckDB takes for each file that it reads together with others, as measured
_NULLS = ["", "NULL", "null", "NA", "\\N"]


@dataclass(frozen=True)
class Column:
    """A column of an input table: its name in SQL, and its type in DuckDB."""

    sql: str
    type: str


@dataclass(frozen=True)
class InputTable:
    """One relation that DuckDB can read.

    Attributes
    ----------
    label : str
        Name in messages.
    relation : str
        SQL that may follow FROM.
    columns : mapping
        Header → column.
    lazy : bool
        Whether it is cheap to read again.
    row : str, optional
        SQL of a number that identifies and orders the rows.
    rejects : str, optional
        Temporary table in which DuckDB stores the CSV lines that it could not split.
    lenient : str, optional
        The relation by DuckDB's lenient CSV reader, which accepts mixed line ends and stray quotes.
    files : tuple of (str, str)
        Label and relation of each file, if there are several.
    """

    label: str
    relation: str
    columns: Mapping[str, Column]
    lazy: bool
    row: str | None = None
    rejects: str | None = None
    lenient: str | None = None
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Workspace:
    """A DuckDB connection, the temporary folder of its file, its memory limit in bytes, and a source of new names."""

    connection: duckdb.DuckDBPyConnection
    folder: Path
    memory: int
    numbers: Iterator[int] = field(default_factory=count)

    def name(self, prefix: str) -> str:
        """Return a new, unique name."""
        return f"{prefix}_{next(self.numbers)}"


def is_frame(given: Given) -> bool:
    """Return whether an object is a table in memory: pandas, polars, Arrow or another with Arrow's stream interface."""
    # The class is asked, because looking at the columns of a lazy frame would compute them.
    return hasattr(type(given), "__arrow_c_stream__") or hasattr(type(given), "columns")


def is_json(path: Path) -> bool:
    """Return whether a file is a JSON document, gzipped or not, judged by its name."""
    return path.name.lower().endswith(_JSON)


def expand(given: Given, source: str) -> list[Path]:
    """List the files of a path, a folder, a glob or a list of those, sorted by name.

    Folders are searched with all their subfolders. Read-me files, licences, documents and hidden files are passed over;
    a file of another kind that may be records is refused. If names in a folder contain ``station_status`` (for status)
    or ``station_information`` (for stations), files that are named like other feeds of GBFS are passed over: feeds are
    often kept side by side. Of a folder of `unmet collect`, all files are listed.
    """
    if isinstance(given, str | PathLike):
        given = [given]
    if isinstance(given, Iterator) or not isinstance(given, Iterable):  # an iterator is empty when it is read again
        raise InputError(
            f"{source}: expected a path, a list of paths, a folder, a glob or a frame; got {type(given).__name__}."
        )
    found: list[Path] = []
    for item in given:
        if not isinstance(item, str | PathLike):
            raise InputError(f"{source}: expected paths; got {type(item).__name__}: {item!r:.80}.")
        found.extend(_expand_one(str(fspath(item)), source))
    unique = list(dict.fromkeys(found))
    if not unique:
        raise InputError(f"{source}: the list of files is empty.")
    for path in unique:
        check_path(path)
        if path.suffix != SEGMENT:
            _check_name(path, source)
    return unique


def _kinds(source: str) -> tuple[str, ...]:
    """Return the file endings of a source. Only status and stations can be GBFS documents."""
    return _TABLES + _JSON if source in ("status", "stations") else _TABLES


def _expand_one(item: str, source: str) -> list[Path]:
    path = Path(os.path.expanduser(item))
    try:
        if path.is_dir():
            return _in_folder(path, source)
        if path.exists():
            return [path]
        matches = _matches(path)
    except OSError as error:
        raise FileFormatError(f"{item!r}: cannot be opened: {error}") from error
    if not matches:
        raise FileFormatError(f"{item!r}: no such file, folder or match for {source}.")
    return matches


def _in_folder(path: Path, source: str) -> list[Path]:
    kinds = _kinds(source)
    check_listable([path])
    inside = sorted(path.rglob("*"))
    check_listable(f for f in inside if f.is_dir())
    if source in ("status", "stations") and (histories := find_histories(path)):
        return [file for history in histories.values() for file in history.all_files()]
    files = [f for f in inside if may_have_records(f.relative_to(path).as_posix()) and not f.is_dir()]
    for folder in inside:
        if folder.is_symlink() and folder.is_dir():
            raise FileFormatError(
                f"{path}: '{folder.relative_to(path)}' is a link to a folder, which is not followed. Name that folder "
                "itself as well, or remove the link."
            )
    files = _without_other_feeds(files, source)
    if not any(f.name.lower().endswith(kinds) for f in files):
        raise FileFormatError(f"{path}: this folder contains no file to read (looked for {', '.join(kinds)}).")
    for file in files:
        if not (file.name.lower().endswith(kinds) and file.is_file()):
            raise FileFormatError(
                f"{path}: this folder contains '{file.relative_to(path)}', which cannot be read as {source} (expected "
                f"{', '.join(kinds)}). Move it elsewhere, or name the files with a glob such as '{path / '*.csv'}'."
            )
    return files


def _without_other_feeds(files: list[Path], source: str) -> list[Path]:
    """Leave out files named like other feeds of GBFS, if any file is named like the one of the source."""
    word = _WORDS.get(source)
    if word is None or not any(word in file.name.lower() for file in files):
        return files
    return [f for f in files if word in f.name.lower() or not any(feed in f.name.lower() for feed in _FEEDS)]


def _matches(pattern: Path) -> list[Path]:
    """List the files that match a glob."""
    for end in range(1, len(pattern.parts)):  # every folder in which is searched
        leading = glob.glob(str(Path(*pattern.parts[:end])), recursive=True)
        check_listable(Path(p) for p in leading if glob.has_magic(str(pattern)) and Path(p).is_dir())
    return sorted(Path(p) for p in glob.glob(str(pattern), recursive=True) if Path(p).is_file())


def _check_name(path: Path, source: str) -> None:
    if not path.name.lower().endswith(_kinds(source)):
        raise FileFormatError(
            f"{path}: unknown kind of file for {source}; expected one of {', '.join(_kinds(source))}."
        )
    if path.stat().st_size == 0:
        raise FileFormatError(f"{path}: the file is empty.")


def open_tables(workspace: Workspace, given: Given, source: str) -> list[InputTable]:
    """Open a frame or files as input tables."""
    if is_frame(given):
        return [_frame_table(workspace, given, source)]
    return open_files(workspace, expand(given, source))


def open_files(workspace: Workspace, paths: Sequence[Path]) -> list[InputTable]:
    """Open files as input tables, one per distinct header.

    Gzipped files and zip archives are unpacked into the workspace, under new names.
    """
    names = (f"{workspace.name('unpacked')}.csv" for _ in count())
    groups: dict[tuple[Any, ...], list[tuple[Path, str]]] = {}
    room, dense = workspace.memory // _FILE_BYTES, 0
    for path in paths:
        for file, label in unpack(path, workspace.folder, names, room):
            if _is_parquet(file):
                dense = check_parquet(workspace.connection, path_literal(str(file)), label, dense)
            groups.setdefault(_shape(workspace, file, label), []).append((file, label))
            if len(groups) > MOST_TABLES:
                raise InputError(f"{label}: the files have more than {MOST_TABLES} different headers; give fewer.")
            room -= 1
    return [_file_table(workspace, shape, files) for shape, files in groups.items()]


def _frame_table(workspace: Workspace, frame: Any, source: str) -> InputTable:
    name = workspace.name("frame")
    label = f"the {source} frame"
    with reading(label):
        try:
            register(workspace.connection, name, frame)
        except (duckdb.InvalidInputException, duckdb.NotImplementedException, TypeError, ValueError) as error:
            raise InputError(f"{label}: {type(frame).__name__} cannot be read as a table: {error}") from error
        columns = _described(workspace, name)
    check_columns(len(columns), label)
    return InputTable(label, name, columns, lazy=False)


def _described(workspace: Workspace, relation: str) -> dict[str, Column]:
    rows = fetch_all(workspace.connection, f"DESCRIBE SELECT * FROM {relation}")
    return {row[0]: Column(identifier(row[0]), row[1]) for row in rows}


def _is_parquet(path: Path) -> bool:
    return path.name.lower().endswith(".parquet")


def _shape(workspace: Workspace, path: Path, label: str) -> tuple[Any, ...]:
    if _is_parquet(path):
        quoted = path_literal(str(path))
        with reading(label):
            columns = _described(workspace, parquet_sql(quoted))
            written = {
                name for (name,) in fetch_all(workspace.connection, f"SELECT name FROM parquet_schema({quoted})")
            }
        # DuckDB appends a number to a name that occurs several times, letter case aside.
        header = [name if name in written else name.rpartition("_")[0] for name in columns]
        names = zip(_distinct(header), columns.items(), strict=True)
        return ("parquet", *((shown, name, column.type) for shown, (name, column) in names))
    head, header = read_head(path, label)
    return ("csv", head, *header)


def _file_table(workspace: Workspace, shape: tuple[Any, ...], files: Sequence[tuple[Path, str]]) -> InputTable:
    label = files[0][1] + (f" and {len(files) - 1} more" if len(files) > 1 else "")
    paths = "[" + ", ".join(path_literal(str(path)) for path, _ in files) + "]"

    def one_by_one(relation: str) -> tuple[tuple[str, str], ...]:
        singles = [(name, relation.replace(paths, f"[{path_literal(str(path))}]", 1)) for path, name in files]
        return tuple(singles) if len(singles) > 1 else ()

    if shape[0] == "parquet":
        columns = {shown: Column(identifier(name), kind) for shown, name, kind in shape[1:]}
        # DuckDB adds file_index and file_row_number; a column of that name in the file would hide them.
        hidden = {"file_index", "file_row_number"} & {name.lower() for name in columns}
        row = None if hidden else "(file_index::BIGINT << 40 | file_row_number)"
        relation = parquet_sql(paths)
        return InputTable(label, relation, columns, lazy=row is not None, row=row, files=one_by_one(relation))
    _, head, *header = shape
    names = [f"c{i}" for i in range(len(header))]
    rejects = workspace.name("rejects")
    struct = "{" + ", ".join(f"'{name}': 'VARCHAR'" for name in names) + "}"
    relation = (
        f"read_csv({paths}, auto_detect=false, header=true, delim={literal(head.delimiter)}, "
        f"quote='\"', escape='\"', columns={struct}, encoding='{head.encoding}', skip={head.blank}, "
        f"compression='none', "
        f"nullstr=[{', '.join(map(literal, _NULLS))}], "
        f"store_rejects=true, rejects_table='{rejects}', rejects_scan='{rejects}_scan')"
    )
    columns = {found: Column(name, "VARCHAR") for name, found in zip(names, _distinct(header), strict=True)}
    lenient = relation.replace("store_rejects=true", "strict_mode=false, parallel=false, store_rejects=true", 1)
    # The strict reader counts the lines to skip by the line end of the first line only.
    strict = lenient if head.blank else relation
    return InputTable(label, strict, columns, lazy=False, rejects=rejects, lenient=lenient, files=one_by_one(lenient))


def _distinct(header: Sequence[str]) -> list[str]:
    """Number the headers that occur several times, letter case aside: ``--map`` has to say which of them is meant.

    Examples
    --------
    >>> _distinct(["at", "station", "At"])
    ['at (1)', 'station', 'At (2)']
    """
    times = Counter(map(str.casefold, header))
    so_far: Counter[str] = Counter()
    names = []
    for name in header:
        folded = name.casefold()
        so_far[folded] += 1
        names.append(name if times[folded] == 1 or not name else f"{name} ({so_far[folded]})")
    return names


def malformed_lines(workspace: Workspace, table: InputTable, count_rows: Callable[[], int]) -> int:
    """Count the lines of a table, after it was read, that could not be split into columns.

    A quote that is not closed takes the lines behind it: then it is all lines that are in no row.
    """
    if table.rejects is None:
        return 0
    try:
        # The table has the lines of every scan: looks at the dates come before.
        last = f"WHERE scan_id = (SELECT max(scan_id) FROM {table.rejects})"
        sql = f"""SELECT count(DISTINCT (file_id, line)), coalesce(bool_or(error_type = 'UNQUOTED VALUE'), false)
            FROM {table.rejects} {last}"""
        found, is_open = fetch_one(workspace.connection, sql)
    except duckdb.CatalogException:  # DuckDB makes the table with the first such line
        return 0
    if not is_open:
        return int(found)
    paths = fetch_all(workspace.connection, f"SELECT DISTINCT file_path FROM {table.rejects}_scan {last}")
    return max(int(found), sum(_count_lines(Path(path)) - 1 for (path,) in paths) - count_rows())


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
