"""Exports to databases, workbooks and forecasters: the same numbers, twice the same, whole or not at all."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path

import duckdb
import openpyxl
import pandas as pd
import pytest

from report.postgres_server import ENCODED, PASSWORD, Server, find_binaries, running_server
from report.small_runs import run_on
from unmet._exceptions import InputError
from unmet.report import export_tables, export_to, write_report
from unmet.report.postgresql import _watched
from unmet.report.workbook import write_workbook

TABLES = ["headline", "zones", "hours_of_week", "act", "weeks", "bins", "totals", "quality"]


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("adbc_driver_postgresql", reason="its driver is not installed (unmet[postgresql])")
    if find_binaries() is None:
        pytest.skip("no PostgreSQL server here: apt-get install postgresql")
    with running_server("fsync=off") as running:
        yield running


@pytest.fixture(scope="module")
def parquet(hostile_run, tmp_path_factory):
    """The tables as Parquet files: the numbers that every other place must have."""
    folder = tmp_path_factory.mktemp("parquet")
    export_tables(hostile_run.folder, folder, formats=["parquet"], panel=hostile_run.panel)
    return {name: pd.read_parquet(folder / f"{name}.parquet") for name in TABLES}


def same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(
        found.drop(columns="run", errors="ignore"), expected, check_dtype=False, check_exact=True
    )


# ---- DuckDB


def read_duckdb(path: Path, name: str) -> pd.DataFrame:
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"COPY (FROM unmet.{name}) TO '{path}.{name}.parquet'")
    return pd.read_parquet(f"{path}.{name}.parquet")


def test_a_duckdb_file_has_the_numbers_of_the_parquet_files(hostile_run, parquet, tmp_path):
    path = tmp_path / "city.duckdb"
    exported = export_to(hostile_run.folder, f"duckdb://{path}", panel=hostile_run.panel, name="jc")
    assert list(exported.rows) == TABLES
    for name in TABLES:
        found = read_duckdb(path, name)
        assert exported.rows[name] == len(parquet[name])
        assert found["run"].eq("jc").all()
        same(found, parquet[name])


def test_twice_gives_the_same_table_and_other_runs_stay(hostile_run, plain_run, tmp_path):
    path = tmp_path / "city.duckdb"
    for _ in range(2):
        export_to(hostile_run.folder, f"duckdb://{path}", panel=hostile_run.panel, name="first")
    once = read_duckdb(path, "bins")
    export_to(plain_run.folder, f"duckdb://{path}", panel=plain_run.panel, name="second")
    both = read_duckdb(path, "bins")
    same(both[both["run"] == "first"], once.drop(columns="run"))
    assert (both["run"] == "second").sum() > 0


def test_tables_that_a_run_lacks_have_no_rows_of_an_earlier_export(hostile_run, plain_run, tmp_path):
    """Rows of the earlier forecast and areas stayed, and looked like those of this run."""
    path = tmp_path / "city.duckdb"
    for name in ("this", "other"):
        export_to(plain_run.folder, f"duckdb://{path}", panel=plain_run.panel, name=name)
    export_to(hostile_run.folder, f"duckdb://{path}", panel=hostile_run.panel, name="this")
    for table in ("areas", "forecast"):
        assert set(read_duckdb(path, table)["run"]) == {"other"}


def test_a_table_of_another_program_under_an_optional_name_is_left_alone(hostile_run, tmp_path):
    path = tmp_path / "city.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE SCHEMA unmet; CREATE TABLE unmet.areas AS SELECT 1 AS run")
        connection.execute("CREATE VIEW unmet.forecast AS SELECT 'this' AS run")
    export_to(hostile_run.folder, f"duckdb://{path}", panel=hostile_run.panel, name="this")
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("FROM unmet.areas").fetchall() == [(1,)]


def test_columns_that_an_earlier_model_lacked_are_added(city, hostile_run, tmp_path):
    path = tmp_path / "city.duckdb"
    export_to(hostile_run.folder, f"duckdb://{path}", panel=hostile_run.panel, name="a")
    with duckdb.connect(str(path)) as connection:
        connection.execute("ALTER TABLE unmet.zones DROP COLUMN lost_q95")
    export_to(hostile_run.folder, f"duckdb://{path}", panel=hostile_run.panel, name="b")
    zones = read_duckdb(path, "zones")
    assert zones.loc[zones["run"] == "a", "lost_q95"].isna().all()
    assert zones.loc[zones["run"] == "b", "lost_q95"].notna().any()


def test_a_table_of_another_program_is_refused_and_left_alone(hostile_run, tmp_path):
    path = tmp_path / "city.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE SCHEMA unmet; CREATE TABLE unmet.totals AS SELECT 1 AS mine")
    with pytest.raises(InputError, match="another program made it"):
        export_to(hostile_run.folder, f"duckdb://{path}", panel=hostile_run.panel)
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("FROM unmet.totals").fetchall() == [(1,)]
        assert connection.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("totals",)]


def test_a_file_that_is_no_database_is_refused(hostile_run, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database")
    with pytest.raises(InputError, match="cannot be opened as a DuckDB file"):
        export_to(hostile_run.folder, f"duckdb://{path}", panel=hostile_run.panel)
    assert path.read_text() == "not a database"


# ---- killed exports

_KILLED = """
import os, signal, sys
from unmet.report import export_to
def progress(table):
    if table == "totals":  # the bins are written by then, in the same transaction
        os.kill(os.getpid(), signal.SIGKILL)
export_to(sys.argv[1], sys.argv[2], panel=sys.argv[3], name="jc", progress=progress)
"""


def kill_export(run, to: str) -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED, run.folder, to, run.panel], check=False)
    assert done.returncode == -9


def test_a_killed_export_leaves_the_old_tables_in_duckdb(hostile_run, plain_run, parquet, tmp_path):
    to = f"duckdb://{tmp_path / 'city.duckdb'}"
    export_to(hostile_run.folder, to, panel=hostile_run.panel, name="jc")
    kill_export(plain_run, to)
    for name in TABLES:
        same(read_duckdb(tmp_path / "city.duckdb", name), parquet[name])


@pytest.mark.slow
def test_a_killed_export_leaves_the_old_tables_in_postgresql(hostile_run, plain_run, parquet, server):
    export_to(hostile_run.folder, server.url, panel=hostile_run.panel, name="jc")
    kill_export(plain_run, server.url)
    for name in TABLES:
        same(read_postgresql(server, name), parquet[name])


# ---- PostgreSQL


def ask(server: Server, *statements: str) -> pd.DataFrame:
    """Run statements and give the rows of the last."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(server.url) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        rows = cursor.fetch_arrow_table().to_pandas()
        connection.commit()
        return rows


def read_postgresql(server: Server, name: str, schema: str = "unmet") -> pd.DataFrame:
    return ask(server, f"SELECT * FROM {schema}.{name} ORDER BY ctid")


def test_postgresql_has_the_numbers_of_the_parquet_files(hostile_run, parquet, server):
    exported = export_to(hostile_run.folder, server.url, panel=hostile_run.panel, schema="other")
    assert exported.place == f"postgresql://127.0.0.1:{server.port}/postgres"
    for name in TABLES:
        found = read_postgresql(server, name, "other")
        assert exported.rows[name] == len(found)
        assert found["run"].eq(hostile_run.folder.name).all()
        same(found, parquet[name])


def test_twice_gives_the_same_table_in_postgresql_and_views_stay(hostile_run, server):
    view = "CREATE OR REPLACE VIEW worst AS SELECT zone FROM twice.zones ORDER BY lost_mean DESC"
    for _ in range(2):
        export_to(hostile_run.folder, server.url, panel=hostile_run.panel, schema="twice")
        bins = read_postgresql(server, "bins", "twice")
        assert not bins.duplicated(["zone", "start"]).any()
        assert len(ask(server, view, "SELECT * FROM worst")) == 12


def test_tables_that_a_run_lacks_have_no_rows_of_an_earlier_export_in_postgresql(hostile_run, plain_run, server):
    for run, name in ((plain_run, "this"), (plain_run, "other"), (hostile_run, "this")):
        export_to(run.folder, server.url, panel=run.panel, schema="optional", name=name)
    for table in ("areas", "forecast"):
        assert set(read_postgresql(server, table, "optional")["run"]) == {"other"}


@pytest.mark.parametrize(
    "thwart",
    [
        "CREATE RULE keep AS ON DELETE TO {schema}.zones DO INSTEAD NOTHING",
        "CREATE TRIGGER drop_rows BEFORE INSERT ON {schema}.zones FOR EACH ROW EXECUTE FUNCTION {schema}.nothing()",
    ],
    ids=["rule", "trigger"],
)
def test_rows_that_the_database_keeps_or_drops_are_noticed(hostile_run, server, thwart, request):
    schema = f"thwarted_{request.node.callspec.id}"
    export_to(hostile_run.folder, server.url, panel=hostile_run.panel, schema=schema)
    before = read_postgresql(server, "zones", schema)
    function = f"CREATE FUNCTION {schema}.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
    ask(server, function, thwart.format(schema=schema), "SELECT 1")
    with pytest.raises(InputError, match=r"zones: .* rows of the run were sent, and the table has"):
        export_to(hostile_run.folder, server.url, panel=hostile_run.panel, schema=schema)
    same(read_postgresql(server, "zones", schema), before.drop(columns="run"))


def test_a_user_who_may_not_make_schemas_writes_into_an_existing_one(hostile_run, server):
    grants = "CREATE ROLE guest LOGIN PASSWORD 'guest'; CREATE SCHEMA shared; GRANT ALL ON SCHEMA shared TO guest"
    ask(server, *grants.split("; "), "SELECT 1")
    url = f"postgresql://guest:guest@127.0.0.1:{server.port}/postgres"
    export_to(hostile_run.folder, url, panel=hostile_run.panel, schema="shared")
    assert len(read_postgresql(server, "zones", "shared")) == 12


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://unmet:WRONG-{secret}@127.0.0.1:{port}/postgres",
        "postgresql://unmet:{secret}@127.0.0.1:1/postgres",
        "postgresql://127.0.0.1:{port}/postgres?user=unmet&password={secret}x",
        "postgresql://unmet:{secret}@127.0.0.1:{port}/missing",
        "postgresql://unmet:{secret}@127.0.0.1:{port}/postgres?{secret}",
        "postgresql://unmet:{plain}@127.0.0.1:{port}/postgres",
        "postgresql://unmet:5{plain}@127.0.0.1:{port}/postgres",
        "postgresql://unmet:{secret}@127.0.0.1:{port}/postgres?pasword={secret}",
        "mysql://unmet:{secret}@127.0.0.1/postgres",
    ],
)
def test_no_error_contains_the_password(hostile_run, server, address):
    to = address.format(secret=ENCODED, plain=PASSWORD, port=server.port)
    with pytest.raises(InputError) as caught:
        export_to(hostile_run.folder, to, panel=hostile_run.panel)
    told = "".join(traceback.format_exception(caught.value))  # as --debug prints it
    pieces = (ENCODED, PASSWORD, "p@ss", "wo?rd", "rd#1", "p%40ss", "wo%3Frd")
    assert not [piece for piece in pieces if piece in told], told


@pytest.fixture
def silent_server() -> Iterator[str]:
    """A server that lets everyone in, and then does not answer."""
    welcome = b"R\0\0\0\x08\0\0\0\0" + b"K\0\0\0\x0c\0\0\0\1\0\0\0\2" + b"Z\0\0\0\x05I"
    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as clients:

        def serve() -> None:
            with suppress(OSError):  # the sockets are closed when the test ends
                while True:
                    client = clients.enter_context(listening.accept()[0])
                    client.recv(1000)
                    client.sendall(welcome)

        threading.Thread(target=serve, daemon=True).start()
        yield f"postgresql://me@127.0.0.1:{listening.getsockname()[1]}/city?sslmode=disable&gssencmode=disable"


def test_a_server_that_does_not_answer_is_not_waited_for(hostile_run, silent_server, monkeypatch):
    pytest.importorskip("adbc_driver_postgresql")
    monkeypatch.setattr("unmet.report.postgresql._SILENCE", 0.3)
    with pytest.raises(InputError, match=r"127.0.0.1:\d+/city: the server did not answer for .* are unchanged"):
        export_to(hostile_run.folder, silent_server, panel=hostile_run.panel)


def test_a_table_that_is_locked_is_not_waited_for_without_end(hostile_run, server, monkeypatch):
    from adbc_driver_postgresql import dbapi

    with monkeypatch.context() as patch, dbapi.connect(server.url) as other, other.cursor() as cursor:
        patch.setattr("unmet.report.postgresql._SILENCE", 0.5)
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('unmet.locked'))")
        with pytest.raises(InputError, match="the server did not answer for"):
            export_to(hostile_run.folder, server.url, panel=hostile_run.panel, schema="locked")
        waiting = "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        assert ask(server, waiting)["n"].tolist() == [0]
    export_to(hostile_run.folder, server.url, panel=hostile_run.panel, schema="locked")


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_waiting_for_a_server_can_be_interrupted():
    """The driver waits in C, where Python's handlers of signals do not run."""
    forever = threading.Event()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            _watched(lambda _: forever.wait(), 60.0)
    finally:
        signal.signal(signal.SIGINT, before)
        forever.set()


def test_what_a_watched_thread_returns_or_raises_is_passed_on():
    assert _watched(lambda answered: [answered() for _ in range(3)], 1.0) == [None] * 3
    with pytest.raises(TimeoutError, match="mine"):
        _watched(lambda _: (_ for _ in ()).throw(TimeoutError("mine")), 1.0)


# ---- workbooks


@pytest.mark.slow
def test_a_workbook_has_the_numbers_of_the_parquet_files_and_no_formula(hostile_run, parquet, tmp_path):
    path = tmp_path / "city.xlsx"
    exported = export_to(hostile_run.folder, str(path), panel=hostile_run.panel)
    book = openpyxl.load_workbook(path)
    assert book.sheetnames == TABLES
    for name in TABLES:
        expected = parquet[name]
        cells = list(book[name].iter_rows(min_row=2))
        assert exported.rows[name] == len(cells) == len(expected)
        assert [cell.value for cell in book[name][1]] == list(expected.columns)
        assert {cell.data_type for row in cells for cell in row} <= {"s", "n", "b", "d"}  # never "f"
        assert not any(cell.hyperlink for row in cells for cell in row)
        for index, column in enumerate(expected.select_dtypes("number").columns):
            place = expected.columns.get_loc(column)
            values = pd.Series([row[place].value for row in cells], dtype=float)
            assert index < 60
            pd.testing.assert_series_equal(values, expected[column], check_dtype=False, check_names=False, rtol=1e-14)
    names = [row[0].value for row in book["zones"].iter_rows(min_row=2)]
    assert names == parquet["zones"]["zone"].tolist()


@pytest.mark.slow
def test_a_table_too_long_for_a_sheet_goes_on_in_the_next(hostile_run, parquet, tmp_path, monkeypatch):
    monkeypatch.setattr("unmet.report.workbook._MOST_ROWS", 1000)
    path = tmp_path / "city.xlsx"
    exported = export_to(hostile_run.folder, str(path), panel=hostile_run.panel)
    book = openpyxl.load_workbook(path, read_only=True)
    sheets = [name for name in book.sheetnames if name.startswith("bins")]
    assert sheets[:2] == ["bins", "bins (2)"]
    assert sum(sum(1 for _ in book[name].rows) - 1 for name in sheets) == exported.rows["bins"] == len(parquet["bins"])


@pytest.mark.slow
def test_equal_runs_give_equal_workbooks(hostile_run, tmp_path):
    for name in ("a", "b"):
        export_to(hostile_run.folder, str(tmp_path / f"{name}.xlsx"), panel=hostile_run.panel)
    assert (tmp_path / "a.xlsx").read_bytes() == (tmp_path / "b.xlsx").read_bytes()


# ---- forecasters and folders


def test_nixtla_gets_recovered_demand_on_an_even_grid(plain_run, tmp_path):
    for file in ("y.parquet", "y.csv"):
        export_to(plain_run.folder, "nixtla", out=tmp_path / file, panel=plain_run.panel)
    frame = pd.read_parquet(tmp_path / "y.parquet")
    assert list(frame.columns) == ["unique_id", "ds", "y"]
    demand = pd.read_parquet(plain_run.folder / "demand.parquet")
    records = demand[demand["observed"].notna()]
    assert frame["y"].sum() == pytest.approx(records["demand_mean"].sum())
    for _, rows in frame.groupby("unique_id"):  # over a change of the clock, without the 48 bins of the forecast
        assert (rows["ds"].diff().dropna() == pd.Timedelta(hours=1)).all()
        assert len(rows) == 16 * 24 - 1
    pd.testing.assert_series_equal(pd.read_csv(tmp_path / "y.csv")["y"], frame["y"])


def test_names_that_look_like_formulas_are_harmless_in_the_csv_for_forecasters(hostile_run, tmp_path):
    export_to(hostile_run.folder, "nixtla", out=tmp_path / "y.csv", panel=hostile_run.panel)
    names = pd.read_csv(tmp_path / "y.csv", dtype={"unique_id": str})["unique_id"]
    assert not names.str.match(r"^[=+@-]").any()


def test_nixtla_gets_local_days_for_bins_of_a_day(city, tmp_path):
    run = run_on(city, tmp_path / "days", every="1d")
    export_to(run.folder, "nixtla", out=tmp_path / "y.parquet", panel=run.panel)
    frame = pd.read_parquet(tmp_path / "y.parquet")
    assert (frame["ds"].dt.hour == 0).all()
    assert set(frame.groupby("unique_id")["ds"].diff().dropna()) == {pd.Timedelta(days=1)}


def test_a_folder_gets_parquet_files(hostile_run, parquet, tmp_path):
    exported = export_to(hostile_run.folder, str(tmp_path / "tables"), panel=hostile_run.panel)
    assert set(exported.rows) == set(TABLES)
    same(pd.read_parquet(tmp_path / "tables" / "bins.parquet"), parquet["bins"])


@pytest.mark.parametrize(
    ("to", "out"), [("nixtla", None), ("nixtla", "y.txt"), ("x.xlsx", "y.csv"), ("", None), ("duckdb://", None)]
)
def test_places_that_make_no_sense_are_refused(hostile_run, to, out):
    with pytest.raises(InputError, match=r"expected|needs"):
        export_to(hostile_run.folder, to, out=out, panel=hostile_run.panel)


# ---- Outputs that must not be written


@pytest.mark.parametrize(
    ("to", "more", "said"),
    [
        ("duckdb://:memory:", {}, "the path of a file"),
        ("duckdb://a.db?table=t", {}, "the path of a file"),
        ("tables.xls", {}, "not taken for a folder"),
        ("duckdb://{folder}/a.db", {"name": "a" * 201}, "--name: expected at most 200 bytes"),
        ("duckdb://{folder}/a.db", {"schema": "ä" * 40}, "--schema: expected at most 63 bytes"),
        ("postgresql://127.0.0.1/a", {"schema": "information_schema"}, "'information_schema' belongs to PostgreSQL"),
        ("postgres://127.0.0.1/a", {"schema": "pg_temp_3"}, "expected a schema of your own"),
        ("duckdb://{folder}/a.db", {"schema": "information_schema"}, "schema 'information_schema' cannot be used"),
        ("duckdb://{folder}/taken.db", {}, "schema 'unmet' cannot be used"),
        ("{folder}/none/a.xlsx", {}, "There is no folder"),
    ],
)
def test_places_that_cannot_be_written_are_refused(hostile_run, tmp_path, to, more, said):
    with duckdb.connect(str(tmp_path / "taken.db")) as connection:
        connection.execute("CREATE SCHEMA unmet; CREATE VIEW unmet.zones AS SELECT 'a' AS run")
    with pytest.raises(InputError, match=said):
        export_to(hostile_run.folder, to.format(folder=tmp_path), panel=hostile_run.panel, **more)


@pytest.mark.parametrize("name", ["truth", "basemap"])
def test_no_page_replaces_what_it_is_made_from(hostile_run, tmp_path, name):
    given = tmp_path / "given"
    given.write_text("mine")
    with pytest.raises(InputError, match="is one of the inputs"):
        write_report(hostile_run.folder, given, panel=hostile_run.panel, **{name: given})
    assert given.read_text() == "mine"


def test_no_output_replaces_a_file_of_the_run(hostile_run, tmp_path):
    run, panel = tmp_path / "run", tmp_path / "elsewhere" / "panel.parquet"
    panel.parent.mkdir()
    shutil.copytree(hostile_run.folder, run)
    shutil.copytree(hostile_run.folder, run / "returns")
    shutil.copy(hostile_run.panel, panel)
    shutil.copy(hostile_run.panel, run / "returns")
    shutil.copy(hostile_run.panel, run.parent / "panel.parquet")  # of a run that was moved, beside another panel
    (tmp_path / "link").symlink_to(run)
    files = [panel, run.parent / "panel.parquet", *(path for path in run.rglob("*") if path.is_file())]
    before = [path.read_bytes() for path in files]
    for write in (
        lambda: write_report(run, run / "returns" / "run.json", panel=panel),
        lambda: export_to(run, str(run / "returns"), panel=panel),
        lambda: export_to(run, "nixtla", out=run / "returns" / "panel.parquet", panel=panel),
        lambda: export_to(run, str(run), panel=panel),
        lambda: export_tables(run, tmp_path / "link", panel=panel),
        lambda: export_to(run, "nixtla", out=run / "demand.parquet", panel=panel),
        lambda: export_to(run, "nixtla", out=panel, panel=panel),
        lambda: write_report(run, run / "run.json", panel=panel),
        lambda: write_report(run, run.parent / "panel.parquet", panel=panel),
    ):
        with pytest.raises(InputError, match="is a file of this run"):
            write()
    assert [path.read_bytes() for path in files] == before


@pytest.mark.parametrize("kind", [duckdb.IOException, duckdb.TransactionException, duckdb.FatalException])
def test_a_full_disk_of_a_database_is_named_and_nothing_is_left(hostile_run, tmp_path, monkeypatch, kind):
    """It was said that temporary files could not be written, to another disk."""

    def write(tables):
        raise kind("Could not write file: No space left on device")

    monkeypatch.setattr("unmet.report.databases._write", write)
    with pytest.raises(InputError, match=r"city\.duckdb: cannot be written: No space left.* choose another file"):
        export_to(hostile_run.folder, f"duckdb://{tmp_path}/city.duckdb", panel=hostile_run.panel)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_a_full_disk_of_a_workbook_prints_no_traceback(tmp_path, monkeypatch):
    """An archive that is forgotten writes its end; Python prints what goes wrong then."""
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    monkeypatch.setattr("unmet.report.workbook.replacing", lambda path: nullcontext(Path("/dev/full")))
    with duckdb.connect() as connection, pytest.raises(InputError, match=r"a\.xlsx: cannot be written: No space left"):
        write_workbook(connection, {"numbers": "SELECT 1 AS x"}, tmp_path / "a.xlsx", print)
    gc.collect()
    assert not printed
