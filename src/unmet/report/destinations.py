"""Write the tables of a report where people keep data: a database, a workbook, a folder, a table for forecasters."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb

from unmet._exceptions import InputError
from unmet._storage.files import real_path
from unmet._storage.sql import connect, fetch_one, parquet_sql, path_literal
from unmet._storage.writing import replacing, writing
from unmet.mobility.panel.saving import check_new_file
from unmet.report.databases import RunTables, write_to_duckdb
from unmet.report.export import copy_table, export_tables, report_tables
from unmet.report.postgresql import hide_secrets, write_to_postgresql
from unmet.report.source import open_run
from unmet.report.workbook import write_workbook

__all__ = ["Exported", "export_to"]

_EXPECTED = (
    "duckdb://FILE, postgresql://USER@HOST/DATABASE, a file that ends in .xlsx, nixtla, or a folder for Parquet files"
)
_HOUR = 60
_LONGEST = {"name": 200, "schema": 63}  # PostgreSQL cuts longer names of schemas; that of the run is in every row
_NOT_FOLDERS = (".xls", ".ods", ".csv", ".parquet", ".db", ".duckdb")


@dataclass(frozen=True)
class Exported:
    """The result of `export_to`.

    Attributes
    ----------
    place : str
        Where the tables are, without password.
    rows : dict
        Table → number of rows.
    """

    place: str
    rows: dict[str, int]


def export_to(
    run: str | os.PathLike[str],
    to: str,
    *,
    out: str | os.PathLike[str] | None = None,
    name: str | None = None,
    schema: str = "unmet",
    panel: str | os.PathLike[str] | None = None,
    trust: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Exported:
    """Write the tables of a run's report to a database, a workbook, a folder, or a table for forecasters.

    Existing tables are replaced when all new ones are complete. In a database, each table has a column ``run``: the
    rows of this run are replaced in one transaction, those of other runs stay.

    Parameters
    ----------
    run : path
        The folder written by ``unmet estimate`` or ``unmet run``.
    to : str
        ``duckdb://FILE``, ``postgresql://USER@HOST/DATABASE``, ``FILE.xlsx``, a folder for Parquet files, or
        ``nixtla``: one table with the columns ``unique_id``, ``ds`` and ``y``, written to `out`.
    out : path, optional
        For ``nixtla``: a file that ends in ``.parquet`` or ``.csv``.
    name : str, optional
        For databases: the value of the column ``run``; default: the name of the run's folder.
    schema : str
        For databases: the schema of the tables; created if missing.
    panel, trust, progress
        As for `unmet.report.export_tables`; progress is called with the name of each table.

    Examples
    --------
    >>> export_to("run", "mysql://localhost/city")
    Traceback (most recent call last):
        ...
    unmet._exceptions.InputError: mysql://localhost/city: expected duckdb://FILE, ...
    """
    report = progress or (lambda _: None)
    _check(to, out, name, schema)
    if not ("://" in to or to == "nixtla" or to.lower().endswith(".xlsx")):
        paths = export_tables(run, to, formats=["parquet"], panel=panel, trust=trust, progress=progress)
        return Exported(to, {path.stem: _rows_in(path) for path in paths})
    with open_run(run, panel, trust=trust) as source:
        if to == "nixtla":
            assert out is not None
            check_new_file(Path(out))
            source.check_outputs(Path(out))
            return Exported(str(out), {"demand": _write_nixtla(source.connection, Path(out), source.minutes)})
        tables = report_tables(source)
        if to.lower().endswith(".xlsx"):
            return Exported(to, write_workbook(source.connection, tables, Path(to), report))
        named = RunTables(source.connection, tables, schema, name or _run_name(run), report)
        if to.startswith("duckdb://"):
            path = Path(to.removeprefix("duckdb://"))
            return Exported(str(path), write_to_duckdb(named, path))
        return Exported(hide_secrets(to), write_to_postgresql(named, to))


def _check(to: str, out: object, name: str | None, schema: str) -> None:
    scheme, separator, rest = to.partition("://")
    if separator and (scheme not in ("duckdb", "postgresql", "postgres") or not rest):
        raise InputError(f"{hide_secrets(to)}: expected {_EXPECTED}.")
    if rest == ":memory:" or (scheme == "duckdb" and "?" in rest):
        raise InputError(f"{to}: expected duckdb:// and the path of a file; got {rest!r}.")
    if not separator and to.lower().endswith(_NOT_FOLDERS):
        raise InputError(f"{to}: expected {_EXPECTED}. A name with this ending is not taken for a folder.")
    if not to:
        raise InputError(f"to: expected {_EXPECTED}; got nothing.")
    if (to == "nixtla") != (out is not None):
        raise InputError("--to nixtla needs --out FILE.parquet or FILE.csv; no other --to takes --out.")
    if out is not None and Path(str(out)).suffix not in (".parquet", ".csv"):
        raise InputError(f"{out}: expected a file that ends in .parquet or .csv.")
    if name == "" or not schema or "\0" in schema + (name or ""):
        raise InputError("expected a name for the run and for the schema, without NUL characters.")
    if scheme.startswith("postgres") and (schema == "information_schema" or schema.startswith("pg_")):
        # A superuser may write there, and loses the tables when the database is copied or upgraded.
        raise InputError(
            f"--schema: expected a schema of your own; {schema!r} belongs to PostgreSQL. Choose another name, such as "
            "unmet."
        )
    for what, text in (("name", name or ""), ("schema", schema)):
        if len(text.encode(errors="replace")) > _LONGEST[what]:
            raise InputError(f"--{what}: expected at most {_LONGEST[what]} bytes, got {len(text):,} signs.")


def _run_name(run: str | os.PathLike[str]) -> str:
    """The name of the folder of ``unmet run``, also if that of its estimate is given."""
    folder = real_path(Path(run))
    return folder.parent.name if folder.name == "estimate" else folder.name


def _rows_in(path: Path) -> int:
    with connect() as connection:
        return int(fetch_one(connection, f"SELECT count(*) FROM {parquet_sql(path_literal(str(path)))}")[0])


def _write_nixtla(connection: duckdb.DuckDBPyConnection, path: Path, minutes: int) -> int:
    """Write ``unique_id, ds, y``: recovered demand of each zone and bin, without bins after the records' end.

    Forecasters expect evenly spaced times without a zone. Bins of up to an hour are evenly spaced in UTC, longer ones
    in local time.
    """
    ds = "b.start AT TIME ZONE 'UTC'" if minutes <= _HOUR else "b.start_local"
    sql = f"""
        SELECT d.zone AS unique_id, {ds} AS ds, d.demand_mean AS y
        FROM demand d JOIN bin_numbers b USING (start) SEMI JOIN panel p ON p.start = d.start ORDER BY 1, 2"""
    with writing(path, "An existing file is unchanged."), replacing(path) as aside:
        copy_table(connection, sql, aside, path.suffix.removeprefix("."))
    return int(fetch_one(connection, f"SELECT count(*) FROM ({sql})")[0])
