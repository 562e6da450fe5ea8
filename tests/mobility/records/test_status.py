"""Status against a plain Python reading of the same rows."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmet._exceptions import FileFormatError, InputError
from unmet.mobility.records import Records, read_records

Row = tuple[int | None, int | None, int | None, int | None, int | None, bool, bool]
NAMES = ["station", "last_reported", "num_bikes_available", "num_bikes_disabled", "num_docks_available"]
NAMES += ["is_installed", "is_renting"]


def reference(rows: list[Row]) -> tuple[dict[tuple[str, int], tuple[object, ...]], Counter[str]]:
    """Station and second → the last accepted record; the rejected rows by reason. Stations 1-4 are known."""
    kept: dict[tuple[str, int], tuple[object, ...]] = {}
    rejected: Counter[str] = Counter()
    for station, at, available, disabled, docks, installed, renting in rows:
        if station is None:
            rejected["missing station"] += 1
        elif station not in (1, 2, 3, 4):
            rejected["unknown station"] += 1
        elif at is None:
            rejected["missing time"] += 1
        elif at < 631152000 or at > 4102444800:
            rejected["impossible time"] += 1
        elif available is None:
            rejected["missing or unreadable count"] += 1
        elif available < 0:
            rejected["negative vehicles"] += 1
        else:
            rejected["duplicate"] += (str(station), at) in kept
            blank = [None if v is None or v < 0 else v for v in (disabled, docks)]
            kept[str(station), at] = (available, *blank, installed, renting)
    return kept, +rejected


row = st.tuples(
    st.sampled_from([1, 2, 3, 4, 4, 3, 2, 1, 9, None]),
    st.one_of(st.integers(1_600_000_000, 1_600_000_020), st.sampled_from([None, 0, 1, 5_000_000_000])),
    st.one_of(st.integers(0, 5), st.integers(0, 5), st.sampled_from([None, -1])),
    st.sampled_from([None, 0, 2, -1]),
    st.sampled_from([None, 0, 2, -1]),
    st.booleans(),
    st.booleans(),
)
clean = st.tuples(
    st.integers(1, 4), st.integers(1_600_000_000, 1_600_000_020), st.integers(0, 5), st.just(0), st.just(1),
    st.booleans(), st.booleans(),
)  # fmt: skip
feeds = st.one_of(
    st.lists(row, min_size=1, max_size=30),
    st.lists(clean, min_size=1, max_size=30),
    st.lists(clean, min_size=1, max_size=30).map(sorted),
    st.lists(clean, min_size=1, max_size=30).map(lambda rows: sorted(rows, key=lambda r: r[1])),
)


def to_frame(rows: list[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=NAMES)
    return frame.astype(dict.fromkeys(NAMES[:5], "Int64"))


def contents(records: Records) -> dict[tuple[str, int], tuple[object, ...]]:
    found = records.connection.execute(
        'SELECT station, epoch_us("at") // 1000000, available, disabled, docks, installed, renting FROM status'
    ).fetchall()
    result = {(r[0], r[1]): r[2:] for r in found}
    assert len(result) == len(found)
    return result


@settings(max_examples=30, deadline=None)
@given(feeds, st.sampled_from(["parquet", "csv", "frame", "two files"]))
def test_accepted_and_rejected_records_are_those_of_a_plain_reading(rows: list[Row], how: str) -> None:
    frame, stations = to_frame(rows), pd.DataFrame({"station_id": [1, 2, 3, 4]})
    with TemporaryDirectory() as folder:
        home = Path(folder)
        given: object = frame
        if how == "parquet":
            frame.to_parquet(home / "status.parquet")
            given = home / "status.parquet"
        elif how == "csv":
            frame.to_csv(home / "status.csv", index=False)
            given = home / "status.csv"
        elif how == "two files":
            middle = len(frame) // 2
            frame[:middle].to_parquet(home / "a.parquet")
            frame[middle:].to_parquet(home / "b.parquet")
            given = home
        with read_records(status=given, stations=stations, timezone="Europe/Paris", force=True) as records:
            found, quality = contents(records), records.quality
    expected, rejected = reference(rows)
    assert found == expected
    counted = quality.query("source == 'status' and action == 'rejected'").set_index("reason")["rows"].to_dict()
    assert counted == dict(rejected)


@pytest.mark.parametrize("as_text", [True, False])
def test_a_count_with_a_fraction_is_no_count(as_text: bool) -> None:
    counts = ["2.0", "2.5", "3", "0x3", "1e1", "inf"] if as_text else [2.0, 2.5, 3.0, 0.3, 10.0, float("inf")]
    frame = pd.DataFrame({"station_id": 1, "last_reported": range(1_600_000_000, 1_600_000_006), "available": counts})
    with read_records(status=frame, stations=pd.DataFrame({"station_id": [1]}), timezone="UTC", force=True) as records:
        assert sorted(row[0] for row in contents(records).values()) == [2, 3, 10]
        rejected = records.quality.query("reason == 'missing or unreadable count'")["rows"]
        assert rejected.to_list() == [3]


def test_naive_times_are_local_and_the_doubled_hour_is_noted() -> None:
    frame = pd.DataFrame(
        {
            "station_id": ["a", "a", "a"],
            "time": pd.to_datetime(["2021-03-28 02:30", "2021-10-31 02:30", "2021-06-01 12:00"]),
            "available": [1, 2, 3],
        }
    )
    with read_records(status=frame, timezone="Europe/Paris") as records:
        found = records.connection.execute('SELECT available, "at" FROM status ORDER BY 1').fetchall()
        reasons = records.quality.set_index("reason")["rows"]
    assert found == [
        (1, datetime(2021, 3, 28, 1, 30)),
        (2, datetime(2021, 10, 31, 0, 30)),
        (3, datetime(2021, 6, 1, 10)),
    ]
    assert reasons["hour that came twice"] == 1
    assert reasons["hour that did not exist"] == 1


def test_times_with_a_zone_are_instants() -> None:
    times = pd.to_datetime(["2021-10-31 00:30", "2021-10-31 01:30"]).tz_localize("UTC").tz_convert("Europe/Paris")
    frame = pd.DataFrame({"station_id": "a", "time": times, "available": [1, 2]})
    with read_records(status=frame, timezone="Europe/Paris") as records:
        found = records.connection.execute('SELECT "at" FROM status ORDER BY 1').fetchall()
    assert found == [(t.astimezone(UTC).replace(tzinfo=None),) for t in times.to_pydatetime()]


def test_a_feed_without_flags_is_taken_as_open_and_says_so() -> None:
    frame = pd.DataFrame({"station_id": ["a"], "time": pd.to_datetime(["2021-06-01"]), "available": [1]})
    with read_records(status=frame, timezone="UTC") as records:
        assert records.connection.execute("SELECT installed, renting FROM status").fetchall() == [(True, True)]
        noted = records.quality.query("action == 'noted'")["reason"].to_list()
    assert {"no column installed", "no column renting"} <= set(noted)


@pytest.mark.parametrize("kind", ["int64", "float64", "str"])
def test_milliseconds_are_read_as_seconds_are(kind: str) -> None:
    seconds = [1_600_000_000, 1_600_000_060, 1_600_000_120]
    frame = pd.DataFrame({"station_id": "a", "last_reported": seconds, "available": [1, 2, 3]})
    query = 'SELECT station, "at", second, available FROM status ORDER BY "at"'
    with read_records(status=frame, timezone="UTC") as records:
        expected = records.connection.execute(query).fetchall()
    frame["last_reported"] *= 1000
    with read_records(status=frame.astype({"last_reported": kind}), timezone="UTC") as records:
        assert records.connection.execute(query).fetchall() == expected


def test_parts_of_a_second_are_kept_and_rounded_up_to_the_second_of_a_record() -> None:
    frame = pd.DataFrame({"station_id": ["a"], "last_reported": [1_600_000_000_001], "available": [1]})
    with read_records(status=frame, timezone="UTC") as records:
        at, second = records.connection.execute('SELECT "at", second FROM status').fetchone()
    assert at == datetime(2020, 9, 13, 12, 26, 40, 1000)
    assert second == 1_600_000_001


@pytest.mark.parametrize("kind", ["int64", "float64", "str"])
def test_a_column_that_mixes_seconds_and_milliseconds_is_refused(kind: str) -> None:
    frame = pd.DataFrame({"station_id": "a", "last_reported": [1_600_000_000, 1_600_000_060_000], "available": [1, 2]})
    with pytest.raises(FileFormatError, match=r"last_reported should be in.*mixes both \(1 and 1"):
        read_records(status=frame.astype({"last_reported": kind}), timezone="UTC")


@pytest.mark.parametrize("kind", ["int64", "float64", "str"])
def test_microseconds_are_refused_with_the_column_named(kind: str) -> None:
    frame = pd.DataFrame({"station_id": ["a"], "last_reported": [1_600_000_000_000_000], "available": [1]})
    with pytest.raises(FileFormatError, match=r"last_reported should be in seconds or milliseconds.*is neither"):
        read_records(status=frame.astype({"last_reported": kind}), timezone="UTC")


@pytest.mark.parametrize("unit", [1, 1000])
def test_a_single_time_in_another_unit_is_a_rejected_row(unit: int) -> None:
    times = [(1_600_000_000 + 60 * i) * unit for i in range(199)] + [1_600_100_000 * 1000 // unit]
    frame = pd.DataFrame({"station_id": "a", "last_reported": times, "available": 1})
    with read_records(status=frame, timezone="UTC") as records:
        rejected = records.quality.query("action == 'rejected'")
        assert records.connection.execute("SELECT count(*) FROM status").fetchone() == (199,)
    assert rejected[["reason", "rows"]].to_numpy().tolist() == [["impossible time", 1]]


def test_milliseconds_of_trips_and_weather_are_read() -> None:
    trips = pd.DataFrame({"started_at": [1_600_000_000_000], "ended_at": [1_600_000_600], "start_station_id": "a"})
    weather = pd.DataFrame({"time": [1_600_000_000_000], "rain": [0.5]})
    with read_records(trips, weather=weather, timezone="UTC") as records:
        start, end = datetime(2020, 9, 13, 12, 26, 40), datetime(2020, 9, 13, 12, 36, 40)
        assert records.connection.execute("SELECT started_at, ended_at FROM trips").fetchall() == [(start, end)]
        assert records.connection.execute('SELECT "at" FROM weather').fetchall() == [
            (datetime(2020, 9, 13, 12, 26, 40),)
        ]


FLAGS = {
    "true": [True, False],
    "numbers": [1, 0],
    "floats": [1.0, 0.0],
    "floats as text": ["1.0", "0.0"],
    "spaces": [" TRUE ", " false "],
    "words": ["yes", "N"],
}


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS.keys())
def test_flags_are_read_however_they_are_written(flags: list[object]) -> None:
    table = pd.DataFrame({"station": "a", "last_reported": [1_600_000_000, 1_600_000_060], "available": 3})
    with read_records(status=table.assign(is_renting=flags), timezone="UTC") as records:
        found = records.connection.execute("SELECT renting FROM status ORDER BY second").fetchall()
    assert found == [(True,), (False,)]


@pytest.mark.parametrize("missing", [None, "", "nan", float("nan")])
def test_a_flag_that_is_missing_counts_as_true_and_is_counted(missing: object) -> None:
    table = pd.DataFrame({"station": "a", "last_reported": [1_600_000_000, 1_600_000_060], "available": 3})
    flags = pd.Series([missing, 0.0 if isinstance(missing, float) else "0"])
    with read_records(status=table.assign(is_renting=flags), timezone="UTC") as records:
        found = records.connection.execute("SELECT renting FROM status ORDER BY second").fetchall()
        reasons = records.quality.set_index("reason")["rows"].to_dict()
    assert found == [(True,), (False,)]
    assert reasons["missing flag"] == 1


@pytest.mark.parametrize(("header", "name"), [("num_docks_available", "docks"), ("num_bikes_disabled", "disabled")])
def test_docks_and_disabled_vehicles_that_cannot_be_read_are_left_blank_and_counted(header: str, name: str) -> None:
    given = ["4", "abc", "3.5", "99999999999", "", "nan"]
    table = pd.DataFrame({"station": "a", "last_reported": range(1_600_000_000, 1_600_000_006), "available": 3})
    with read_records(status=table.assign(**{header: given}), timezone="UTC") as records:
        found = records.connection.execute(f"SELECT {name} FROM status ORDER BY second").fetchall()
        reasons = records.quality.set_index("reason")["rows"].to_dict()
    assert found == [(4,), (None,), (None,), (None,), (None,), (None,)]
    assert reasons["unreadable docks" if name == "docks" else "unreadable disabled vehicles"] == 3


@pytest.mark.parametrize("flag", ["closed", "off", "2", "nein"])
def test_a_record_with_a_flag_that_cannot_be_read_is_rejected_and_counted(flag: str) -> None:
    table = pd.DataFrame({"station": "a", "last_reported": range(1_600_000_000, 1_600_000_020), "available": 3})
    with read_records(status=table.assign(is_renting=["true"] * 19 + [flag]), timezone="UTC") as records:
        quality = records.quality
        assert quality[quality["reason"] == "unreadable flag"]["rows"].to_list() == [1]
        assert records.connection.execute("SELECT count(*) FROM status").fetchall() == [(19,)]
    with pytest.raises(InputError, match="unreadable flag: 20"):
        read_records(status=table.assign(is_renting=flag), timezone="UTC")


@pytest.mark.parametrize("flag", [2, -1, 2.0, 0.5, -1.0], ids=repr)
def test_a_flag_that_is_another_number_than_0_and_1_cannot_be_read(tmp_path: Path, flag: float) -> None:
    table = pd.DataFrame({"station": "a", "last_reported": range(1_600_000_000, 1_600_000_020), "available": 3})
    path = tmp_path / "status.parquet"
    table.assign(is_renting=[1] * 10 + [0] * 9 + [flag]).to_parquet(path)
    with read_records(status=path, timezone="UTC") as records:
        reasons = records.quality.set_index("reason")["rows"].to_dict()
        found = records.connection.execute("SELECT renting, count(*) FROM status GROUP BY 1 ORDER BY 1").fetchall()
    assert reasons["unreadable flag"] == 1
    assert found == [(False, 9), (True, 10)]


def test_true_and_false_are_no_numbers_of_vehicles() -> None:
    """A column `available` may tell whether a station is in service."""
    table = pd.DataFrame({"station": "a", "last_reported": range(1_600_000_000, 1_600_000_020), "available": True})
    with pytest.raises(InputError, match="missing or unreadable count: 20"):
        read_records(status=table, timezone="UTC")
    table["num_bikes_available"] = 3
    with read_records(status=table, timezone="UTC", mapping={"available": "num_bikes_available"}) as records:
        assert records.connection.execute("SELECT sum(available) FROM status").fetchall() == [(60,)]
