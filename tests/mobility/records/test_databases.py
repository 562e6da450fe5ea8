"""Records from DuckDB files: the rows of a table or a query, and nothing beyond the file."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pandas as pd
import pytest

from unmet._exceptions import InputError
from unmet.mobility.records import databases
from unmet.mobility.records.read import read_records

TRIPS = pd.DataFrame(
    {
        "ride_id": ["a", "b", "c"],
        "started_at": pd.to_datetime(["2024-03-04 08:00", "2024-03-04 09:30", "2024-03-05 10:00"]),
        "ended_at": pd.to_datetime(["2024-03-04 08:10", "2024-03-04 09:50", "2024-03-05 10:05"]),
        "start_station_id": ["7", "8", "7"],
        "end_station_id": ["8", "7", "8"],
    }
)


@pytest.fixture
def database(tmp_path) -> Path:
    path = tmp_path / "city.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.register("frame", TRIPS)
        connection.execute("CREATE TABLE trips AS FROM frame; CREATE SCHEMA raw; CREATE VIEW raw.rides AS FROM trips")
        (tmp_path / "secret.csv").write_text("started_at,start_station_id\n2024-03-04 08:00,7\n")
        connection.execute(f"CREATE VIEW outside AS FROM read_csv('{tmp_path / 'secret.csv'}')")
    return path


def read(given: object) -> list[tuple[object, ...]]:
    with read_records(given, timezone="UTC") as records:
        return records.connection.sql("SELECT started_at, start_station, end_station FROM trips ORDER BY 1").fetchall()


@pytest.mark.parametrize(
    "rest",
    ["", "?table=trips", "?table=raw.rides", "#SELECT * FROM trips;", "#SELECT * FROM trips -- all", "#FROM raw.rides"],
)
def test_a_table_a_view_and_a_query_give_the_rows_of_the_frame(database, rest):
    assert read(f"duckdb://{database}{rest}") == read(TRIPS)


def test_a_query_chooses_rows_and_names_columns(database):
    query = "SELECT started_at AS begin, start_station_id AS start_station FROM trips WHERE start_station_id = '8'"
    with read_records(f"duckdb://{database}#{query}", timezone="UTC", mapping={"started_at": "begin"}) as records:
        assert records.connection.sql("SELECT start_station FROM trips").fetchall() == [("8",)]


def test_files_and_databases_are_read_together(database, tmp_path):
    week = pd.Timedelta(days=7)
    later = TRIPS.assign(started_at=TRIPS["started_at"] + week, ended_at=TRIPS["ended_at"] + week)
    later.assign(ride_id=["d", "e", "f"]).to_parquet(tmp_path / "later.parquet")
    assert len(read([f"duckdb://{database}", tmp_path / "later.parquet"])) == 6


def test_the_database_is_not_changed(database):
    before = database.read_bytes()
    read(f"duckdb://{database}")
    assert database.read_bytes() == before
    assert sorted(p.name for p in database.parent.iterdir()) == ["city.duckdb", "secret.csv"]


@pytest.mark.parametrize(
    "rest",
    [
        "?table=outside",
        "#SELECT * FROM read_csv('{folder}/secret.csv')",
        "#SELECT * FROM '{folder}/secret.csv'",
        "#SELECT *, getenv('HOME') FROM trips",
        "#SELECT * FROM read_text('/etc/passwd')",
        "#ATTACH '{folder}/other.duckdb'",
        "#LOAD httpfs",
        "#INSTALL httpfs",
        "#SET enable_external_access = true",
        "#COPY trips TO '{folder}/out.csv'",
        "#SELECT 1; DROP TABLE trips",
        "#DROP TABLE trips",
        "#SELECT * FROM trips) TO '{folder}/out.csv' --",
        "?table=missing",
        "?column=x",
        "#",
    ],
)
def test_what_reaches_beyond_the_database_is_refused(database, rest):
    before = database.read_bytes()
    with pytest.raises(InputError):
        read(f"duckdb://{database}{rest.format(folder=database.parent)}")
    assert sorted(p.name for p in database.parent.iterdir()) == ["city.duckdb", "secret.csv"]
    assert database.read_bytes() == before


def test_a_missing_file_and_another_kind_of_file_are_named(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.duckdb: no such DuckDB file for trips"):
        read(f"duckdb://{tmp_path / 'nothing.duckdb'}")
    (tmp_path / "x.duckdb").write_text("something else")
    with pytest.raises(InputError, match="another kind of file"):
        read(f"duckdb://{tmp_path / 'x.duckdb'}")


@pytest.mark.parametrize(
    ("view", "limit"),
    [
        (
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n AS at FROM r",
            "_MOST_SECONDS",
        ),
        ("SELECT hash(range) AS started_at FROM range(1000000000000)", "_MOST_MORE"),
    ],
)
def test_a_view_without_end_is_stopped(tmp_path, monkeypatch, view, limit):
    path = tmp_path / "endless.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE VIEW trips AS {view}")
    monkeypatch.setattr(databases, limit, 0)
    monkeypatch.setattr(databases, "_BETWEEN", 0.01)
    with pytest.raises(InputError, match="the query was stopped"):
        read_records(f"duckdb://{path}", timezone="UTC", memory="100MB")


def test_a_view_that_needs_more_memory_is_called_so(tmp_path):
    path = tmp_path / "large.duckdb"
    text = "repeat('x', 200000000) || range"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"""CREATE VIEW trips AS SELECT TIMESTAMP '2024-03-04 08:00' AS started_at, '7' AS start_station_id,
            {text} AS ride_id FROM range(3) ORDER BY {text}"""
        )
    with pytest.raises(InputError, match="needs more memory than is allowed"):
        read_records(f"duckdb://{path}?table=trips", timezone="UTC", memory="100MB")


@pytest.mark.parametrize("name", ["a+b", "a&b", "a&table=c", "a=b", "a%b"])
def test_all_behind_the_sign_is_the_name_of_the_table(name, database):
    with duckdb.connect(str(database)) as connection:
        connection.execute("CREATE TABLE a AS FROM trips LIMIT 0; CREATE TABLE c AS FROM trips LIMIT 1")
        connection.execute(f'CREATE TABLE "{name}" AS FROM trips')
    assert len(read(f"duckdb://{database}?table={name.replace('%', '%25')}")) == len(TRIPS)


def test_two_tables_are_refused(database):
    with pytest.raises(InputError, match="trips&table=raw"):
        read(f"duckdb://{database}?table=trips&table=raw.rides")
