"""Tables of a report in a DuckDB file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from unmet._exceptions import InputError
from unmet._storage.sql import fetch_all, fetch_one, identifier, literal
from unmet._storage.writing import system_reason
from unmet.report.export import OPTIONAL_TABLES, columns_of

__all__ = ["RUN", "RunTables", "check_rows", "check_types", "write_to_duckdb"]

RUN = "run"
"""Column of every table in a database: the name of the run."""

# Types that DuckDB and PostgreSQL both have, wide enough for every run. Any other type becomes text.
_WIDE = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER"), "BIGINT"),
    **dict.fromkeys(("FLOAT", "DOUBLE"), "DOUBLE"),
    **dict.fromkeys(("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "TIMESTAMP"),
    **{name: name for name in ("BOOLEAN", "BIGINT", "VARCHAR", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")},
}


@dataclass(frozen=True)
class RunTables:
    """The tables of a run, to be written to a database.

    Attributes
    ----------
    connection : duckdb.DuckDBPyConnection
        Has the tables of the report.
    queries : mapping
        Name → SQL.
    schema, run : str
        Schema of the tables, and value of their column ``run``.
    progress : callable
        Called with the name of each table.
    """

    connection: duckdb.DuckDBPyConnection
    queries: Mapping[str, str]
    schema: str
    run: str
    progress: Callable[[str], None]

    @property
    def absent(self) -> list[str]:
        """Tables that this run does not have. An earlier export may have written rows of the run there."""
        return [name for name in OPTIONAL_TABLES if name not in self.queries]

    def __iter__(self) -> Iterator[tuple[str, str, dict[str, str]]]:
        """Yield name, query and types of each table: the column ``run``, then the others, all of plain types."""
        for table, sql in self.queries.items():
            self.progress(table)
            parts = [f"{literal(self.run)} AS {RUN}"]
            for name, type_ in columns_of(self.connection, sql).items():
                quoted = identifier(name)
                as_type = _WIDE.get(type_, "VARCHAR")
                parts.append(quoted if as_type == type_ else f"{quoted}::{as_type} AS {quoted}")
            query = f"SELECT {', '.join(parts)} FROM ({sql})"
            yield table, query, columns_of(self.connection, query)


def check_types(table: str, expected: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Give the columns that a table lacks; refuse a table whose columns have other types."""
    for name, type_ in found.items():
        if name in expected and type_ != expected[name]:
            raise InputError(
                f"{table}: the column {name!r} of the existing table is {type_}, that of this run {expected[name]}. "
                "Choose another schema with --schema, or drop the table."
            )
    if RUN not in found:
        raise InputError(
            f"{table}: the existing table has no column {RUN!r}, so another program made it. Choose another schema "
            "with --schema."
        )
    return [name for name in expected if name not in found]


def check_rows(table: str, sent: int, found: int) -> None:
    """Refuse a table that has other rows of the run than those sent: a rule or trigger drops, keeps or adds some."""
    if sent != found:
        raise InputError(
            f"{table}: {sent:,} rows of the run were sent, and the table has {found:,} afterwards. A trigger, a rule "
            "or a policy of the database changes what is written. Remove it, or choose another schema with --schema. "
            "Existing tables are unchanged."
        )


def write_to_duckdb(tables: RunTables, path: Path) -> dict[str, int]:
    """Replace the rows of a run in a DuckDB file, in one transaction; the file is created if missing.

    Returns
    -------
    dict
        Table → number of rows of this run.
    """
    connection, new = tables.connection, not path.exists()
    try:
        connection.execute(f"ATTACH {literal(str(path))} AS target (TYPE duckdb)")
    except duckdb.Error as error:
        if new:
            path.unlink(missing_ok=True)  # what was written of it
        raise InputError(
            f"{path}: cannot be opened as a DuckDB file: another program has it open, it is another kind of file, its "
            "folder does not exist or is not writable, or the disk is full."
        ) from error
    done = False
    try:
        connection.execute("BEGIN")
        rows = _write(tables)
        connection.execute("COMMIT")
        connection.execute("DETACH target")
        done = True
    except (duckdb.IOException, duckdb.TransactionException, duckdb.FatalException) as error:
        raise InputError(
            f"{path}: cannot be written: {system_reason(error)}. Existing tables are unchanged: free some space or "
            "choose another file."
        ) from error
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ConstraintException) as error:
        raise InputError(
            f"{path}: the schema {tables.schema!r} cannot be used: it belongs to DuckDB, or has views or tables of "
            "another program under the names of the report's tables. Choose another with --schema. Existing tables "
            "are unchanged."
        ) from error
    finally:
        for statement in ("ROLLBACK", "DETACH target"):
            with suppress(duckdb.Error):  # it was committed and closed, or the disk is full
                connection.execute(statement)
        if new and not done:
            for left in (path, path.with_name(f"{path.name}.wal")):
                left.unlink(missing_ok=True)
    return rows


def _write(tables: RunTables) -> dict[str, int]:
    connection, schema = tables.connection, f"target.{identifier(tables.schema)}"
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    rows = {}
    for name, query, types in tables:
        target = f"{schema}.{identifier(name)}"
        columns = ", ".join(f"{identifier(column)} {type_}" for column, type_ in types.items())
        connection.execute(f"CREATE TABLE IF NOT EXISTS {target} ({columns})")
        found = {str(row[0]): str(row[1]) for row in fetch_all(connection, f"DESCRIBE {target}")}
        for column in check_types(name, types, found):
            connection.execute(f"ALTER TABLE {target} ADD COLUMN {identifier(column)} {types[column]}")
        connection.execute(f"DELETE FROM {target} WHERE {RUN} = ?", [tables.run])
        (rows[name],) = fetch_one(connection, f"INSERT INTO {target} BY NAME {query}")
    for name in tables.absent:
        (known,) = fetch_one(
            connection,
            """SELECT count(*) FROM duckdb_columns() JOIN duckdb_tables() USING (database_name, schema_name, table_name)
            WHERE database_name = 'target' AND schema_name = ? AND table_name = ? AND column_name = ?
                AND data_type = 'VARCHAR'""",
            [tables.schema, name, RUN],
        )
        if known:
            connection.execute(f"DELETE FROM {schema}.{identifier(name)} WHERE {RUN} = ?", [tables.run])
    return rows
