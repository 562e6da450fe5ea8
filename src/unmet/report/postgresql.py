"""Tables of a report in a PostgreSQL database.

Rows are sent by a binary ``COPY`` of Apache Arrow's driver (ADBC): neither side parses text or handles a row in Python.
No message contains the password of an address.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from unmet._exceptions import InputError, MissingExtraError
from unmet._storage.sql import identifier
from unmet.report.databases import RUN, RunTables, check_rows, check_types

__all__ = ["hide_secrets", "write_to_postgresql"]

# DuckDB's types by PostgreSQL's names, as information_schema has them.
_TYPES = {
    "BOOLEAN": "boolean",
    "BIGINT": "bigint",
    "DOUBLE": "double precision",
    "VARCHAR": "text",
    "DATE": "date",
    "TIMESTAMP": "timestamp without time zone",
    "TIMESTAMP WITH TIME ZONE": "timestamp with time zone",
}
_SECRET = ("password", "sslpassword")
_TIMEOUT = 10  # seconds to connect
_SILENCE = 600.0  # seconds without an answer: a table that somebody locks is waited for
_PATIENCE = 2.0  # seconds until work that was cancelled has to end
Result = TypeVar("Result")


def hide_secrets(url: str) -> str:
    """Give an address without user, password and options.

    Examples
    --------
    >>> hide_secrets("postgresql://me:secret@db.example.org:5433/city?sslmode=require")
    'postgresql://db.example.org:5433/city'
    """
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0].partition('#')[0]}"


def write_to_postgresql(tables: RunTables, url: str) -> dict[str, int]:
    """Replace the rows of a run in a PostgreSQL database, in one transaction; return the number of rows by table.

    Readers see the earlier rows until the transaction ends; views and permissions stay.
    """
    secrets = _secrets(url)
    connections: list[Any] = []

    def write(answered: Callable[[], None]) -> dict[str, int]:
        with _explained(url, secrets), _connected(url) as server, server.cursor() as cursor:
            connections.append(server)
            rows = _write(tables, cursor, answered)
            server.commit()
            return rows

    try:
        return _watched(write, _SILENCE, cancel=lambda: [server.adbc_cancel() for server in connections])
    except _SilentError:
        raise InputError(
            f"{hide_secrets(url)}: the server did not answer for {_SILENCE / 60:g} minutes. Another program may hold "
            "a lock on the tables. Existing tables are unchanged."
        ) from None


def _write(tables: RunTables, cursor: Any, answered: Callable[[], None]) -> dict[str, int]:
    """Replace the rows of a run; call `answered` whenever the server has answered."""
    from pyarrow import RecordBatchReader  # the driver needs it too

    schema, rows = tables.schema, {}
    # Two exports into the same schema wait for each other.
    cursor.execute("SELECT pg_advisory_xact_lock(hashtext($1))", [f"unmet.{schema}"])
    cursor.execute("SELECT count(*) FROM pg_namespace WHERE nspname = $1", [schema])
    if not cursor.fetchone()[0]:  # to make one takes a right that users of an existing schema need not have
        cursor.execute(f"CREATE SCHEMA {identifier(schema)}")
    for name, query, types in tables:
        answered()
        _prepare(cursor, schema, name, {column: _TYPES[type_] for column, type_ in types.items()})
        cursor.execute(f"DELETE FROM {identifier(schema)}.{identifier(name)} WHERE {RUN} = $1", [tables.run])
        reader = RecordBatchReader.from_stream(tables.connection.sql(query))
        batches = RecordBatchReader.from_batches(reader.schema, _each(reader, answered))
        rows[name] = cursor.adbc_ingest(name, batches, mode="append", db_schema_name=schema)
        cursor.execute(f"SELECT count(*) FROM {identifier(schema)}.{identifier(name)} WHERE {RUN} = $1", [tables.run])
        check_rows(name, rows[name], cursor.fetchone()[0])
    for name in tables.absent:
        answered()
        cursor.execute(
            "SELECT count(*) FROM information_schema.columns JOIN information_schema.tables "
            "USING (table_schema, table_name) WHERE table_schema = $1 AND table_name = $2 AND column_name = $3 "
            "AND data_type = 'text' AND table_type = 'BASE TABLE'",
            [schema, name, RUN],
        )
        if cursor.fetchone()[0]:
            cursor.execute(f"DELETE FROM {identifier(schema)}.{identifier(name)} WHERE {RUN} = $1", [tables.run])
    return rows


def _each(batches: Iterator[Any], answered: Callable[[], None]) -> Iterator[Any]:
    for batch in batches:
        answered()
        yield batch


class _SilentError(Exception):
    """A server does not answer."""


def _watched(
    work: Callable[[Callable[[], None]], Result], silence: float, cancel: Callable[[], object] = lambda: None
) -> Result:
    """Work in another thread, which calls its argument while all goes well; raise `_SilentError` if it stops to.

    The driver does not return to Python while it waits for a server: in the main thread, Ctrl-C would have no effect.
    Work that is given up is cancelled. A server that ignores this too keeps the thread until the program ends.
    """
    done: Future[Result] = Future()
    last = time.monotonic()

    def answered() -> None:
        nonlocal last
        last = time.monotonic()

    def run() -> None:
        try:
            done.set_result(work(answered))
        except BaseException as error:  # raised again by whoever waits
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        while not wait([done], timeout=min(1.0, silence)).done:
            if time.monotonic() - last > silence:
                raise _SilentError
    except (KeyboardInterrupt, _SilentError):
        threading.Thread(target=cancel, daemon=True).start()
        wait([done], timeout=_PATIENCE)
        raise
    return done.result()


def _secrets(url: str) -> list[str]:
    """Give the passwords of an address. Refuse one in which a password could be taken for something else."""
    try:
        parts = urlsplit(url)
        _ = parts.port
        query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError:
        query, parts = None, None
    if query is None or parts is None or url.count("@") > 1 or "@" in parts.path + parts.query or parts.fragment:
        # Not the address: in a part of it that cannot be read, a password may be anywhere.
        raise InputError(
            "--to postgresql://…: the address cannot be read. Expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
            "with signs such as @ / ? # of the password percent-encoded (@ is %40). Or leave the password out and "
            "set PGPASSWORD, or put it in ~/.pgpass."
        ) from None
    given = [parts.password, *(query.get(name) for name in _SECRET)]
    return [form for secret in given if secret for form in {secret, unquote(secret)}]


@contextmanager
def _connected(url: str) -> Iterator[Any]:
    """Connect, with a transaction that is rolled back unless it is committed."""
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as error:
        raise MissingExtraError("adbc-driver-postgresql", "postgresql", "Exports to PostgreSQL") from error
    if "connect_timeout=" not in url:
        url += f"{'&' if '?' in url else '?'}connect_timeout={_TIMEOUT}"
    with dbapi.connect(url) as server:
        yield server


@contextmanager
def _explained(url: str, secrets: list[str]) -> Iterator[None]:
    """Turn errors of the server into an `InputError` without secrets."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("adbc"):
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        told = " ".join(lines) if lines else type(error).__name__
        if any(secret in told for secret in secrets):
            told = "the server's message contains the password and is not shown"
        raise InputError(f"{hide_secrets(url)}: {told.rstrip('.')}. Existing tables are unchanged.") from None


def _prepare(cursor: Any, schema: str, name: str, types: Mapping[str, str]) -> None:
    """Make the table, or add the columns that it lacks."""
    target = f"{identifier(schema)}.{identifier(name)}"
    columns = ", ".join(f"{identifier(column)} {type_}" for column, type_ in types.items())
    cursor.execute(f"CREATE TABLE IF NOT EXISTS {target} ({columns})")
    cursor.execute(
        "SELECT column_name::text, data_type::text FROM information_schema.columns "
        "WHERE table_schema = $1 AND table_name = $2",
        [schema, name],
    )
    found = {str(column): str(type_) for column, type_ in cursor.fetchall()}
    for column in check_types(name, types, found):
        cursor.execute(f"ALTER TABLE {target} ADD COLUMN {identifier(column)} {types[column]}")
