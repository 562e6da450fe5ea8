"""What strangers' files may do to us."""

from __future__ import annotations

import gc
import gzip
import os
import zipfile
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from unmet._exceptions import FileFormatError, InputError
from unmet.mobility.records import Records, read_records
from unmet.mobility.records.files import Workspace, expand

TRIPS = "ride_id,started_at,ended_at,start_station_id\n"
TRIPS += "1,2021-01-01 08:00,2021-01-01 08:10,a\n2,2021-01-01 09:00,,b\n"


def count(records: Records, table: str = "trips") -> int:
    return int(records.connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])


def read(given: object, **options: object) -> Records:
    return read_records(given, timezone="America/New_York", **options)  # type: ignore[arg-type]


def frames() -> list[object]:
    frame = pd.DataFrame({"started_at": ["2021-01-01 08:00"], "start_station_id": [7]})
    return [
        frame,
        pl.from_pandas(frame),
        pl.from_pandas(frame).lazy(),
        pa.Table.from_pandas(frame),
        frame.convert_dtypes(dtype_backend="pyarrow"),
    ]


@pytest.mark.parametrize("frame", frames(), ids=lambda f: type(f).__module__)
def test_frames_of_any_kind_are_read_and_not_changed(frame: object) -> None:
    before = str(frame)
    with read(frame) as records:
        assert records.connection.execute("SELECT start_station FROM trips").fetchall() == [("7",)]
    assert str(frame) == before


def test_a_frame_that_runs_backwards_in_memory_is_read() -> None:
    frame = pd.DataFrame(
        {"started_at": pd.to_datetime(["2021-01-01 08:00", "2021-01-01 09:00"]), "start_station_id": [7, 8]}
    )
    with read(frame.iloc[::-1]) as records:
        assert records.connection.execute("SELECT start_station FROM trips ORDER BY 1").fetchall() == [("7",), ("8",)]


def test_a_frame_with_a_column_of_no_table_is_named() -> None:
    frame = pd.DataFrame({"started_at": ["2021-01-01 08:00"], "start_station_id": [7], "x": [1j]})
    with pytest.raises(InputError, match="DataFrame cannot be read as a table"):
        read(frame)


def test_a_frame_changed_after_reading_changes_nothing() -> None:
    frame = pd.DataFrame({"started_at": ["2021-01-01 08:00"], "start_station_id": ["a"]})
    with read(frame) as records:
        frame.loc[0, "start_station_id"] = "z"
        assert records.connection.execute("SELECT start_station FROM trips").fetchall() == [("a",)]


def test_csv_gz_zip_parquet_folder_list_and_glob_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(TRIPS)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(TRIPS.replace("1,", "11,").replace("2,2", "22,2").encode()))
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("../../evil.csv", TRIPS.replace("1,2", "111,2").replace("2,2", "222,2"))
        archive.writestr("__MACOSX/._evil.csv", b"\0\0junk")
        archive.writestr("readme.txt", "hello")
    pd.DataFrame(
        {"ride_id": ["p"], "started_at": pd.to_datetime(["2021-01-01"]), "start_station_id": ["a"]}
    ).to_parquet(tmp_path / "d.parquet")
    for given in (
        tmp_path,
        str(tmp_path / "*"),
        sorted(tmp_path.iterdir()),
        [str(p) for p in tmp_path.iterdir()],
    ):
        with read(given) as records:
            assert count(records) == 7
    assert not (tmp_path.parent.parent / "evil.csv").exists()


def test_the_temporary_folder_goes_with_the_records(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(TRIPS)
    records = read(tmp_path / "a.csv")
    assert records.folder.exists()
    records.close()
    records.close()
    assert not records.folder.exists()


def test_records_that_nobody_closes_take_their_folder_along(tmp_path: Path) -> None:
    records = read(frames()[0])
    folder = records.folder
    del records
    gc.collect()
    assert not folder.exists()


def test_nothing_is_left_behind_by_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "tmp"
    home.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(home))
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(FileFormatError):
        read(tmp_path / "a.csv")
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["it's [1]*?.csv", 'a "b"; DROP TABLE trips; --.csv', "ü ñ 日本.csv", "per%cent&#.csv"]
)
def test_odd_names_of_files_are_only_names(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(TRIPS)
    (tmp_path / "it's 1xx.csv").write_text(TRIPS)
    with read(tmp_path / name) as records:
        assert count(records) == 2
    pd.DataFrame({"started_at": pd.to_datetime(["2021-01-01"]), "start_station_id": ["a"]}).to_parquet(
        tmp_path / (name + ".parquet")
    )
    with read(tmp_path / (name + ".parquet")) as records:
        assert count(records) == 1


def test_names_of_folders_are_no_columns(tmp_path: Path) -> None:
    """DuckDB takes ``key=value`` in a path for a column, in place of the file's own."""
    folder = tmp_path / "start_station_id=b"
    folder.mkdir()
    trips = pd.DataFrame({"started_at": pd.to_datetime(["2021-01-01", "2021-01-02"]), "start_station_id": ["a", "a"]})
    trips.to_parquet(folder / "trips.parquet")
    for given in (folder / "trips.parquet", folder):
        with read(given) as records:
            stations = records.connection.execute(
                "SELECT DISTINCT station FROM stations WHERE ix IN (SELECT start_ix FROM trips)"
            )
            assert stations.fetchall() == [("a",)]


@pytest.mark.parametrize("given", ["~nobody-of-this-name/trips.csv", "duckdb://~nobody-of-this-name/x.db?table=t"])
def test_the_home_of_an_unknown_user_is_a_missing_file(given: str) -> None:
    with pytest.raises(InputError, match="nobody-of-this-name"):
        read(given)


def test_a_name_may_begin_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("~t.csv").write_text(TRIPS)
    with read("./~t.csv") as records:
        assert count(records) == 2


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_in_any_unit_are_the_same(tmp_path: Path, unit: str) -> None:
    local = pd.DatetimeIndex(["2021-01-01 08:00", "2021-06-01 08:00"], tz="America/New_York").as_unit(unit)
    trips = pd.DataFrame({"started_at": local.tz_convert("UTC"), "start_station_id": "a"})
    trips.to_parquet(tmp_path / "aware.parquet")
    trips.assign(started_at=local.tz_localize(None)).to_parquet(tmp_path / "naive.parquet")
    for given in (tmp_path / "aware.parquet", tmp_path / "naive.parquet", trips, pl.from_pandas(trips)):
        with read(given) as records:
            times = records.connection.execute("SELECT started_at FROM trips ORDER BY 1").fetchall()
        assert [time.hour for (time,) in times] == [13, 12]


def test_odd_names_and_values_in_files_are_only_data(tmp_path: Path) -> None:
    evil = "'; DROP TABLE trips; --"
    (tmp_path / "a.csv").write_text(f'started_at,start_station_id,"{evil}"\n2021-01-01,"{evil}",1\n')
    weather = pd.DataFrame({"date": ["2021-01-01"], "r\"a'in); --": [1.5]})
    with read_records(tmp_path / "a.csv", weather=weather, timezone="UTC") as records:
        assert records.connection.execute("SELECT start_station FROM trips").fetchall() == [(evil,)]
        assert [d[0] for d in records.connection.execute("SELECT * FROM weather").description][1] == "r\"a'in); --"


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.csv", b"", "empty"),
        ("a.csv", b"\n\n", "empty"),
        ("a.csv.gz", b"\x1f\x8b", "cannot be unpacked"),
        ("a.csv.gz", gzip.compress(b"", mtime=0), "empty"),
        ("a.csv", b"\0\1\2", "not a text file"),
        ("a.parquet", b"PAR1 but no more", "cannot be read"),
        ("a.parquet", b"x", "cannot be read"),
        ("a.zip", b"PK\3\4 no archive", "not a readable zip"),
        ("a.xlsx", b"PK", "unknown kind of file"),
        ("a.json", b"{}", "unknown kind of file for trips"),
        ("a.csv", b"just one line without a comma", "no column was recognised"),
    ],
)
def test_bad_files_are_refused_by_path(tmp_path: Path, name: str, content: bytes, match: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=match) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_a_parquet_cut_in_the_middle_is_refused_by_path(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pd.DataFrame(
        {"started_at": pd.date_range("2021-01-01", periods=9999, freq="s"), "start_station_id": "a"}
    ).to_parquet(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + os.urandom(1) * (len(whole) // 2) + whole[4 + len(whole) // 2 :])
    with pytest.raises(FileFormatError, match=r"a\.parquet"):
        read(path)


def test_malformed_lines_are_counted_and_the_others_kept(tmp_path: Path) -> None:
    lines = [f"{i},2021-01-01 08:00,,a" for i in range(100)]
    lines[50:50] = ["too,few", "one,2021-01-01 08:00,,a,many", 'bad "quote,2021-01-01 08:00,,a']
    (tmp_path / "a.csv").write_text("\r\n".join(["ride_id,started_at,ended_at,start_station_id", *lines]) + "\n")
    with read(tmp_path / "a.csv") as records:
        malformed = records.quality.query("reason == 'malformed line'")["rows"].sum()
        assert count(records) + malformed == 103
        assert count(records) >= 100
        assert records.quality.query("source == 'trips' and reason == 'read'")["rows"].to_list() == [103]


@pytest.mark.parametrize("line", [1, 60])
def test_lines_behind_a_quote_that_is_not_closed_are_counted(tmp_path: Path, line: int) -> None:
    rows = [f"{k},2021-07-01 08:{k % 60:02d},2021-07-01 09:00,a,{'x' * 400}" for k in range(1, 101)]
    rows[line - 1] = rows[line - 1].replace(",a,", ',"a,')
    path = tmp_path / "trips.csv"
    path.write_text("\n".join(["ride_id,started_at,ended_at,start_station_id,note", *rows]) + "\n")
    with pytest.raises(InputError, match=rf"malformed line: {101 - line} "):
        read_records(path, timezone="UTC").close()


@pytest.mark.parametrize("odd", ["294247-01-10 04:00:54", "2021-07-01 08:00:00+99:00"])
def test_a_time_that_no_calendar_knows_takes_its_row_alone(tmp_path: Path, odd: str) -> None:
    times = [f"2021-07-01 08:{k:02d}:00+00:00" for k in range(40)]
    times[7] = odd
    rows = [f"{k},{time},,a" for k, time in enumerate(times)]
    (tmp_path / "a.csv").write_text("\n".join(["ride_id,started_at,ended_at,start_station_id", *rows]) + "\n")
    with read(tmp_path / "a.csv") as records:
        assert count(records) == 39
        assert records.quality.query("action == 'rejected'")["rows"].to_list() == [1]


def test_a_malformed_line_is_counted_once_though_the_file_is_looked_at_before(tmp_path: Path) -> None:
    lines = [f"{i},2021-01-01 08:00:00,,a" for i in range(100)]
    (tmp_path / "a.csv").write_text("\n".join(["ride_id,started_at,ended_at,start_station_id", *lines, "101"]) + "\n")
    with read(tmp_path / "a.csv") as records:
        assert records.quality.query("reason == 'malformed line'")["rows"].to_list() == [1]
        assert records.quality.query("source == 'trips' and reason == 'read'")["rows"].to_list() == [101]


def test_semicolons_latin_letters_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("started_at;start_station_id\n2021-01-01;Café\n".encode("latin-1"))
    (tmp_path / "b.csv").write_bytes("started_at\tstart_station_id\n2021-01-01\tCafé\n".encode("utf-8-sig"))
    for name in ("a.csv", "b.csv"):
        with read(tmp_path / name) as records:
            assert records.connection.execute("SELECT start_station FROM trips").fetchall() == [("Café",)]


def test_blank_lines_before_the_header_and_a_wrong_ending_of_gzip_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\r\n\n" + TRIPS)
    (tmp_path / "b.csv").write_bytes(gzip.compress(TRIPS.encode()))
    (tmp_path / "c.csv.gz").write_text(TRIPS)
    (tmp_path / "d.csv").write_bytes(TRIPS.replace("\n", "\r").replace(",a", ",\xe9").encode("latin-1"))
    for name in ("a.csv", "b.csv", "c.csv.gz", "d.csv"):
        with read(tmp_path / name) as records:
            assert count(records) == 2


def test_a_zip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unmet.mobility.records.unpacking._LARGE", 1 << 20)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", b"0" * (4 << 20))
    with pytest.raises(FileFormatError, match="zip bomb"):
        read(tmp_path / "a.zip")


def test_a_zip_without_csv_is_refused_and_says_what_it_holds(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("readme.txt", "x")
    with pytest.raises(FileFormatError, match=r"readme\.txt"):
        read(tmp_path / "a.zip")


def test_a_link_to_a_folder_among_the_records_is_refused(tmp_path: Path) -> None:
    for folder in ("records", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}.csv").write_text(TRIPS)
    (tmp_path / "records" / "2024").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileFormatError, match="'2024' is a link to a folder"):
        read(tmp_path / "records")


def test_only_files_named_like_other_feeds_are_passed_over(tmp_path: Path) -> None:
    for name in ("station_status_1.csv", "status_2.csv", "poll.json", "station_information.json", "gbfs.json"):
        (tmp_path / name).write_text("x")
    assert [p.name for p in expand(tmp_path, "status")] == ["poll.json", "station_status_1.csv", "status_2.csv"]
    assert [p.name for p in expand(tmp_path, "stations")] == ["poll.json", "station_information.json", "status_2.csv"]


def test_text_tables_in_a_zip_are_read_whatever_their_ending(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.csv", TRIPS)
        archive.writestr("b.TXT", TRIPS.replace("1,2", "11,2").replace("2,2", "22,2"))
        archive.writestr("c.tsv", TRIPS.replace("1,2", "111,2").replace("2,2", "222,2").replace(",", "\t"))
        archive.writestr("docs/LICENSE.txt", "do as you like")
    with read(tmp_path / "a.zip") as records:
        assert count(records) == 6


@pytest.mark.parametrize("name", ["b.csv.gz", "b.parquet", "inner.zip", "b.xlsx", "b.csv.part", "b"])
def test_other_files_beside_tables_that_may_be_records_are_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.csv", TRIPS)
        archive.writestr(name, b"anything")
    with pytest.raises(FileFormatError, match=f"contains '{name}'.*Unpack the archive"):
        read(tmp_path / "a.zip")


@pytest.mark.parametrize("name", ["b.xlsx", "sub/b.csv.part", "b.json", "b"])
def test_files_of_a_folder_that_may_be_records_are_never_passed_over(tmp_path: Path, name: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.csv").write_text(TRIPS)
    for about in ("README.txt", "license", ".hidden.csv", "_SUCCESS", "notes.md", "codes.pdf"):
        (tmp_path / about).write_text("no records")
    with read(tmp_path) as records:
        assert count(records) == 2
    (tmp_path / name).write_text(TRIPS)
    with pytest.raises(FileFormatError, match=rf"contains '{name}', which cannot be read as trips.*glob"):
        read(tmp_path)


@pytest.mark.parametrize("given", [7, [7], [], object(), "no-such-file.csv", "nothing-*.csv"])
def test_what_is_no_source_is_refused(given: object) -> None:
    with pytest.raises(InputError, match="trips"):
        read(given)


def test_too_many_rejected_rows_are_an_error_that_lists_the_reasons() -> None:
    frame = pd.DataFrame({"started_at": ["2021-01-01", "never", None], "start_station_id": ["a", "a", "a"]})
    with pytest.raises(InputError) as caught:
        read(frame)
    assert "2 of 3 rows (66.7%) were rejected, more than the allowed 20%" in str(caught.value)
    assert "impossible time: 1" in str(caught.value)
    with read(frame, force=True) as records:
        assert count(records) == 1


@pytest.mark.parametrize("memory", ["2 apples", "'; DROP", "", "-1GB"])
def test_a_memory_limit_that_is_none_is_refused(memory: str) -> None:
    with pytest.raises(InputError, match="memory"):
        read(frames()[0], memory=memory)


def test_duplicates_are_found_in_several_passes_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "unmet.mobility.records.read.Workspace", lambda connection, folder, _: Workspace(connection, folder, 2000)
    )
    ids = [f"t{i % 150}" for i in range(200)]
    frame = pd.DataFrame({"ride_id": ids, "started_at": "2021-01-01", "start_station_id": "a"})
    status = pd.DataFrame({"station": [i % 7 for i in range(200)], "at": [1_600_000_000 + i % 140 for i in range(200)]})
    with read_records(frame, status.assign(available=1), timezone="UTC", force=True) as records:
        assert (count(records), count(records, "status")) == (150, 140)


@pytest.mark.parametrize("given", ["trips", "trips/*/*.csv", "trips/**/*.csv"])
def test_a_folder_that_may_not_be_read_is_not_passed_over(given, tmp_path, monkeypatch):
    for name in ("open", "shut"):
        (tmp_path / "trips" / name).mkdir(parents=True)
        (tmp_path / "trips" / name / "a.csv").write_text("started_at\n")
    assert len(expand(str(tmp_path / given), "trips")) == 2
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "shut" and may(path, mode))
    with pytest.raises(FileFormatError, match="shut: cannot open this folder: permission denied"):
        expand(str(tmp_path / given), "trips")


def test_an_iterator_of_paths_is_refused(tmp_path: Path) -> None:
    """It is read twice: the second time it was an empty list of files."""
    with pytest.raises(InputError, match="a list of paths, a folder, a glob or a frame; got generator"):
        expand((path for path in [tmp_path]), "trips")


@pytest.mark.parametrize("shut", ["oslo", "open"])
def test_a_system_whose_folders_may_not_be_read_is_not_passed_over(shut, tmp_path, monkeypatch):
    """A collector keeps the polls of the day in progress in the folder open."""
    for name in ("bergen", "oslo"):
        for inside in ("days", "open"):
            (tmp_path / "feeds" / name / inside).mkdir(parents=True)
        (tmp_path / "feeds" / name / "manifest.json").write_text('{"url": "https://example.invalid", "days": {}}')
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != shut and may(path, mode))
    with pytest.raises(FileFormatError, match=f"{shut}: cannot open this folder: permission denied"):
        expand(str(tmp_path / "feeds"), "status")


def test_a_file_in_utf16_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "trips.csv").write_text("started_at,start_station_id\n2024-05-01 10:00,a\n", encoding="utf-16")
    with pytest.raises(FileFormatError, match="it again as UTF-8"):
        read_records(trips=str(tmp_path / "trips.csv"), timezone="UTC")
