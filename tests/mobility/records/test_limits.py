"""Tables with too many columns, and files that promise too many rows, are refused before they are read."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from unmet._exceptions import FileFormatError
from unmet.mobility.features.bins import read_weather
from unmet.mobility.records import read_records
from unmet.mobility.records.heads import read_head
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.zones.build import find_zones

TRIPS = {"started_at": "2021-07-01 08:00", "start_station_id": "a"}
STATUS = {"station_id": "a", "at": "2021-07-01 08:00", "available": "1"}
STATIONS = {"station_id": "a", "lat": "40.7", "lon": "-74"}
ROWS = 200_000


def wide(fields: dict[str, str], columns: int, name: str = "c{}") -> str:
    """A CSV file of one row, with further columns before the fields."""
    more = {name.format(i): "1" for i in range(columns - len(fields))}
    return "\n".join(",".join(line) for line in ({**more, **fields}, {**more, **fields}.values())) + "\n"


def pack(path: Path, text: str) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.csv", text)
    else:
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def write_parquet(path: Path, query: str) -> Path:
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION V2)")
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.zip"])
@pytest.mark.parametrize(
    ("source", "fields"), [("trips", TRIPS), ("status", STATUS), ("stations", STATIONS), ("weather", {"time": "x"})]
)
def test_a_text_table_with_too_many_columns_is_refused(
    tmp_path: Path, name: str, source: str, fields: dict[str, str]
) -> None:
    path = pack(tmp_path / name, wide(fields, 2_001))
    given = {"trips": pd.DataFrame([TRIPS]), source: path}
    with pytest.raises(FileFormatError, match=r"a\.(csv|zip).*: it has 2,001 columns; expected at most 2,000"):
        read_records(**given, timezone="UTC")


def test_fields_behind_many_columns_with_long_names_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(wide(TRIPS, 2_000, name="c{}" + "x" * 100))
    with read_records(tmp_path / "a.csv", timezone="UTC") as records:
        assert records.connection.execute("SELECT start_station FROM trips").fetchall() == [("a",)]


@pytest.mark.parametrize("end", ["", "\n", "\r"])
@pytest.mark.parametrize("character", ["a", ",", '"'])
def test_a_header_that_does_not_end_is_refused(tmp_path: Path, character: str, end: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("started_at,start_station_id" + character * (2 << 20) + end)
    with pytest.raises(FileFormatError, match=r"a\.csv: its first line is longer than 1 MiB; .* at most 2,000 columns"):
        read_head(path, str(path))


def test_a_file_of_one_long_line_with_old_line_ends_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(("at,rain" + "\r2021-01-01,1" * 100_000).encode())
    assert read_head(tmp_path / "a.csv", "a.csv")[1] == ["at", "rain"]


def test_a_parquet_file_and_a_frame_with_too_many_columns_are_refused(tmp_path: Path) -> None:
    columns = ", ".join(f"1 AS c{i}" for i in range(1_999))
    path = write_parquet(tmp_path / "a.parquet", f"SELECT 'a' AS start_station_id, now() AS started_at, {columns}")
    with pytest.raises(FileFormatError, match=r"a\.parquet: it has 2,001 columns"):
        read_records(path, timezone="UTC")
    with pytest.raises(FileFormatError, match=r"the weather frame: it has 2,001 columns"):
        read_weather(pd.read_parquet(path), "UTC")


def test_points_of_super_hubs_with_too_many_columns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text(wide({"lat": "40.7", "lon": "-74"}, 2_001))
    stations = pd.DataFrame({"station": ["a"], "name": ["a"], "lat": [40.7], "lon": [-74.0]})
    with pytest.raises(FileFormatError, match=r"points\.csv: it has 2,001 columns"):
        find_zones(f"superhubs:{tmp_path / 'points.csv'}:200m", stations, QualityLog(), None, 10**9)


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit rows to those of small files."""
    monkeypatch.setattr("unmet.mobility.records.limits._MOST_DENSE", ROWS)


EQUAL = "SELECT TIMESTAMP '2021-07-01 08:00' AS started_at, 'a' AS start_station_id FROM range({})"


@pytest.mark.usefixtures("few_rows")
def test_a_parquet_file_that_promises_more_rows_than_its_bytes_can_hold_is_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", EQUAL.format(ROWS + 1))
    with pytest.raises(FileFormatError, match=r"a\.parquet: it promises 200,001 rows in [\d,]+ bytes; .* 50 rows"):
        read_records(path, timezone="UTC")
    with read_records(write_parquet(path, EQUAL.format(ROWS)), timezone="UTC", force=True) as records:
        assert records.quality.query("reason == 'read'")["rows"].tolist() == [ROWS]


@pytest.mark.usefixtures("few_rows")
def test_several_such_files_count_together(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_parquet(tmp_path / f"{name}.parquet", EQUAL.format(ROWS // 2 + 1))
    with pytest.raises(FileFormatError, match=r"b\.parquet: it promises 100,001 rows"):
        read_records(tmp_path, timezone="UTC")


@pytest.mark.usefixtures("few_rows")
def test_rows_whose_times_differ_are_not_too_many(tmp_path: Path) -> None:
    """Looks in each minute at stations with twenty changes a day, in the best encoding."""
    query = f"""SELECT 's' || i // 50000 AS station_id, TIMESTAMP '2021-01-01' + to_minutes(i % 50000) AS at,
        sum((hash(i) % 72 = 0)::INTEGER) OVER (ORDER BY i) % 10 AS available FROM range({2 * ROWS}) AS looks(i)"""
    path = write_parquet(tmp_path / "a.parquet", query)
    with read_records(status=path, timezone="UTC") as records:
        assert records.quality.query("reason == 'read'")["rows"].tolist() == [2 * ROWS]


@pytest.mark.usefixtures("few_rows")
def test_the_rows_that_are_read_count_not_those_that_the_file_says_it_has(tmp_path: Path) -> None:
    path, rows = write_parquet(tmp_path / "a.parquet", EQUAL.format(ROWS + 1)), 2 * (ROWS + 1)
    content = path.read_bytes()
    number = bytes([rows & 127 | 128, rows >> 7 & 127 | 128, rows >> 14])
    place = content.index(number, len(content) - 8 - int.from_bytes(content[-8:-4], "little"))
    path.write_bytes(content[:place] + b"\x82\x80\x00" + content[place + 3 :])
    with duckdb.connect() as connection:
        told = connection.execute(f"SELECT num_rows FROM parquet_file_metadata('{path}')").fetchall()
    assert told == [(1,)]
    with pytest.raises(FileFormatError, match=r"it promises 200,001 rows"):
        read_records(path, timezone="UTC")
