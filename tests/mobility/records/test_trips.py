"""Trips against a plain Python reading of the same rows."""

from __future__ import annotations

import csv
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmet._exceptions import InputError
from unmet.mobility.records import read_records

NEW_YORK = ZoneInfo("America/New_York")
HEADER = ["ride_id", "started_at", "ended_at", "start_station_id", "end_station_id", "start_lat", "start_lng"]
STATIONS = ["station_id,short_name,name", "alpha,A1,First", "beta,B2,Second", "gamma,C3,Third"]
CANON = {"alpha": "alpha", "A1": "alpha", "First": "alpha", "beta": "beta", "B2": "beta"}
CANON |= {"gamma": "gamma", "C3": "gamma"}


def instants(local: datetime) -> list[datetime]:
    """Every UTC instant at which the clock showed (or, in a gap, would have shown) this."""
    found = []
    for fold in (0, 1):
        instant = local.replace(tzinfo=NEW_YORK, fold=fold).astimezone(UTC).replace(tzinfo=None)
        found.append(instant)
    back = [i.replace(tzinfo=UTC).astimezone(NEW_YORK).replace(tzinfo=None) for i in found]
    if back[0] == local and back[1] == local and found[0] != found[1]:
        return found  # came twice
    return found[:1]


def reference(rows: list[list[str]]) -> tuple[list[tuple[object, ...]], Counter[str]]:
    """Accepted trips and the count of rejected rows by reason."""
    accepted: list[tuple[object, ...]] = []
    rejected: Counter[str] = Counter()
    seen: dict[str, tuple[datetime, str]] = {}
    others: set[tuple[str, datetime, str]] = set()
    for trip_id, start_text, end_text, start_id, end_id, lat, lon in rows:
        if not start_text:
            rejected["missing time"] += 1
            continue
        starts = instants(datetime.fromisoformat(start_text))
        ends = instants(datetime.fromisoformat(end_text)) if end_text[:3] == "202" else []  # or no end at all
        if not datetime(1990, 1, 1) <= starts[0] <= datetime(2100, 1, 1):
            rejected["impossible time"] += 1
            continue
        start, end = starts[0], ends[0] if ends else None
        if ends:
            if start_text[:13] == "2020-03-08 02" and end_text[:13] != "2020-03-08 02" and ends[0] < start:
                starts = [start - timedelta(hours=1)]  # an hour that did not exist, moved back
            pairs = [(e - s, s, e) for s in starts for e in ends if e >= s]
            if not pairs:
                rejected["end before start"] += 1
                continue
            _, start, end = min(pairs)  # the shortest, and of equals the first
        if not start_id and not (lat and lon):
            rejected["missing station"] += 1
            continue
        if "depot" in start_id.lower() or "depot" in end_id.lower():
            rejected["staff and test trips"] += 1
            continue
        if start_id and start_id not in CANON:
            rejected["unknown station"] += 1
            continue
        if trip_id and trip_id in seen:
            apart, same_place = abs(start - seen[trip_id][0]), start_id == seen[trip_id][1]
            if apart > timedelta(minutes=1) and same_place and apart <= timedelta(days=1):
                rejected["conflicting trip id"] += 1
                continue
            if apart <= timedelta(minutes=1) or (trip_id, start, start_id) in others:
                rejected["duplicate"] += 1
                continue
            others.add((trip_id, start, start_id))
        seen.setdefault(trip_id, (start, start_id))
        accepted.append((trip_id or None, start, end, CANON.get(start_id), CANON.get(end_id)))
    return accepted, rejected


# Whole minutes around the spring and autumn changes of 2020, and some that no record can have.
moments = st.one_of(
    st.integers(0, 300).map(lambda m: datetime(2020, 3, 8) + timedelta(minutes=m)),
    st.integers(0, 300).map(lambda m: datetime(2020, 11, 1) + timedelta(minutes=m)),
    st.sampled_from([datetime(1970, 1, 1), datetime(2200, 5, 5)]),
).map(lambda t: t.isoformat(" "))
trip = st.tuples(
    st.sampled_from(["", *(f"T{i}" for i in range(8))]),
    st.one_of(st.just(""), moments, moments, moments),
    st.one_of(st.just(""), moments, moments, moments),
    st.sampled_from(["", "alpha", "A1", "First", "beta", "B2", "gamma", "nowhere", "JCBS Depot"]),
    st.sampled_from(["", "alpha", "beta", "C3", "elsewhere", "JCBS Depot"]),
    st.sampled_from(["", "40.7"]),
    st.sampled_from(["", "-74.0"]),
).map(list)


def write(path: Path, rows: list[list[str]]) -> Path:
    with path.open("w", newline="") as out:
        csv.writer(out).writerows([HEADER, *rows])
    return path


@settings(max_examples=30, deadline=None)
@given(st.lists(trip, min_size=1, max_size=40), st.integers(0, 40))
def test_accepted_and_rejected_trips_are_those_of_a_plain_reading(rows: list[list[str]], cut: int) -> None:
    with TemporaryDirectory() as folder:
        home = Path(folder)
        stations = home / "stations.csv"
        stations.write_text("\n".join(STATIONS) + "\n")
        files = [write(home / "1.csv", rows[:cut]), write(home / "2.csv", rows[cut:])]
        with read_records(files, stations=stations, timezone="America/New_York", force=True) as records:
            found = records.connection.execute(
                "SELECT trip_id, started_at, ended_at, start_station, end_station FROM trips"
            ).fetchall()
            quality = records.quality
    accepted, rejected = reference(rows)
    assert Counter(found) == Counter(accepted)
    counted = quality[quality["action"] == "rejected"].set_index("reason")["rows"].to_dict()
    assert counted == dict(rejected)
    assert quality.loc[quality["reason"] == "read", "rows"].to_list()[-1] == len(rows)


def frame(**columns: list[object]) -> pd.DataFrame:
    return pd.DataFrame(columns)


def test_a_duplicate_is_told_by_the_bike_where_there_is_no_trip_id() -> None:
    trips = frame(
        starttime=["2020-01-01 08:00"] * 4,
        from_station_id=[1, 1, 2, 1],
        bikeid=[7, 7, 7, 8],
    )
    with read_records(trips, timezone="UTC", force=True) as records:
        assert records.connection.execute("SELECT count(*) FROM trips").fetchall() == [(3,)]


def test_trips_that_share_an_id_and_nothing_else_are_different_trips() -> None:
    """Ids that begin anew each year, or are of two operators. All but the first were left out as duplicates."""
    trips = frame(
        ride_id=["1", "2", "1", "2", "1"],
        started_at=["2020-01-01 08:00", "2020-01-01 09:00", "2021-01-01 10:00", "2020-01-01 12:00", "2021-01-01 10:00"],
        start_station_id=["a", "b", "a", "c", "a"],
    )
    with read_records(trips, timezone="UTC", force=True) as records:
        found = records.connection.execute("SELECT trip_id, start_station FROM trips").fetchall()
        quality = records.quality.set_index("reason")
    assert sorted(found) == [("1", "a"), ("1", "a"), ("2", "b"), ("2", "c")]
    assert quality.loc["trip id of another trip", ["action", "rows"]].tolist() == ["noted", 2]
    assert quality.loc["duplicate", ["action", "rows"]].tolist() == ["rejected", 1]  # the last row is the third


def test_a_trip_whose_start_was_corrected_or_rounded_counts_once() -> None:
    trips = frame(
        ride_id=["1", "1", "2", "2"],
        started_at=["2020-01-01 08:00", "2020-01-01 08:20", "2020-01-01 09:00:31", "2020-01-01 09:01"],
        start_station_id=["a", "a", "b", "Second"],
    )
    with read_records(trips, timezone="UTC", force=True) as records:
        found = records.connection.execute("SELECT trip_id, started_at FROM trips ORDER BY 1").fetchall()
        rejected = records.quality.query("action == 'rejected'").set_index("reason")["rows"].to_dict()
    assert [(trip, f"{at:%H:%M:%S}") for trip, at in found] == [("1", "08:00:00"), ("2", "09:00:31")]
    assert rejected == {"conflicting trip id": 1, "duplicate": 1}


def test_equal_rows_without_any_id_may_be_two_riders_and_stay() -> None:
    trips = frame(starttime=["2020-01-01 08:00"] * 3, from_station_id=[1, 1, 1])
    with read_records(trips, timezone="UTC") as records:
        assert records.connection.execute("SELECT count(*) FROM trips").fetchall() == [(3,)]
        noted = records.quality.query("reason == 'no trip or bike id'")
        assert noted["rows"].to_list() == [3]


def without_ids(trips: int, days: int = 3, minutes: int = 1) -> pd.DataFrame:
    """Trips whose times are rounded to some minutes."""
    rng = np.random.default_rng(1)
    start = pd.Timestamp("2020-01-01") + pd.to_timedelta(
        rng.integers(0, 1440 * days, trips) // minutes * minutes, "min"
    )
    ends = start + pd.to_timedelta(rng.integers(1, 30, trips) // minutes * minutes, "min")
    stations = rng.integers(0, 3, (2, trips))
    return frame(starttime=start, stoptime=ends, from_station_id=stations[0], to_station_id=stations[1])


@pytest.mark.parametrize("minutes", [1, 60])
@pytest.mark.parametrize("times", [2, 3])
def test_trips_without_ids_that_were_given_several_times_count_once(minutes: int, times: int) -> None:
    trips = without_ids(600, minutes=minutes)
    copies = pd.concat([trips] * times)
    found = [counts(source) for source in (trips, copies, copies.sample(frac=1, random_state=0))]
    assert found[1] == found[2] == found[0]
    with pytest.raises(InputError, match=r"copy of a whole day: .*on 3 days every trip occurs several times"):
        read_records(copies, timezone="UTC")


def counts(trips: pd.DataFrame) -> Counter[tuple[object, ...]]:
    with read_records(trips, timezone="UTC", force=True) as records:
        rows = records.connection.execute("SELECT started_at, ended_at, start_station, end_station FROM trips")
        return Counter(rows.fetchall())


def test_days_in_two_files_without_ids_count_once_and_other_days_stay() -> None:
    trips = without_ids(600)
    overlap = trips[trips["starttime"] >= "2020-01-02"]
    again = overlap[overlap["starttime"] < "2020-01-03"]
    with read_records(pd.concat([trips, again]), timezone="UTC", force=True) as records:
        assert records.connection.execute("SELECT count(*) FROM trips").fetchall() == [(600,)]
        copies = records.quality.query("reason == 'copy of a whole day'")
    assert copies["rows"].to_list() == [len(again)]


def test_a_local_day_in_two_files_without_ids_counts_once() -> None:
    trips = without_ids(600)
    day = trips["starttime"].dt.normalize()
    with read_records(
        pd.concat([trips, trips[day == "2020-01-02"]]), timezone="America/New_York", force=True
    ) as records:
        assert records.connection.execute("SELECT count(*) FROM trips").fetchall() == [(600,)]


def test_a_copy_without_ids_of_trips_with_ids_counts_once() -> None:
    trips = without_ids(100)
    ids = pd.Series([f"t{i}" for i in range(100)])
    with read_records(pd.concat([trips, trips.assign(ride_id=ids)]), timezone="UTC", force=True) as records:
        found = records.connection.execute("SELECT count(*), count(trip_id) FROM trips").fetchall()
    assert found == [(100, 100)]


def test_a_trip_that_starts_before_and_ends_within_the_doubled_hour_ends_the_first_time() -> None:
    trips = frame(
        started_at=["2020-11-01 00:50", "2020-11-01 01:50", "2020-11-01 01:50"],
        ended_at=["2020-11-01 01:10", "2020-11-01 01:05", "2020-11-01 02:05"],
        start_station_id=["a", "b", "c"],
    )
    with read_records(trips, timezone="America/New_York") as records:
        rows = records.connection.execute("SELECT start_station, started_at, ended_at FROM trips").fetchall()
        found = {s: (a.strftime("%H:%M"), b.strftime("%H:%M")) for s, a, b in rows}
        assert records.quality.query("reason == 'hour that came twice'")["rows"].to_list() == [3]
    # 01:50 is 05:50 UTC the first time and 06:50 the second.
    assert found == {"a": ("04:50", "05:10"), "b": ("05:50", "06:05"), "c": ("06:50", "07:05")}


def test_an_hour_that_did_not_exist_is_repaired_and_counted() -> None:
    trips = frame(started_at=["2020-03-08 02:30"], ended_at=["2020-03-08 02:50"], start_station_id=["a"])
    with read_records(trips, timezone="America/New_York") as records:
        times = records.connection.execute("SELECT started_at, ended_at FROM trips").fetchall()
        assert times == [(datetime(2020, 3, 8, 7, 30), datetime(2020, 3, 8, 7, 50))]
        row = records.quality.query("reason == 'hour that did not exist'").iloc[0]
        assert (row["action"], row["rows"]) == ("repaired", 1)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2021-07-01 08:00:00", "12:00:00"),
        ("2021-07-01T08:00:00", "12:00:00"),
        ("2021-07-01 08:00", "12:00:00"),
        ("7/1/2021 8:00", "12:00:00"),
        ("7/1/2021 8:00:05", "12:00:05"),
        ("07/01/2021 08:00:05 PM", "00:00:05"),
        ("2021-07-01 08:00:00.5000", "12:00:00.500000"),
        ("2021-07-01T08:00:00Z", "08:00:00"),
        ("2021-07-01T08:00:00+02:00", "06:00:00"),
        ("2021-07-01 08:00:00-05", "13:00:00"),
        ("2021-07-01 08:00:00 UTC", "08:00:00"),
        ("2021-07-01 08:00:00 Europe/London", "07:00:00"),
        ("1625126400", "08:00:00"),
        (" 2021-07-01 08:00 ", "12:00:00"),
    ],
)
def test_times_are_read_as_written(text: str, utc: str) -> None:
    order = "mdy" if "/" in text else None
    trips = frame(started_at=[text], start_station_id=["a"])
    with read_records(trips, timezone="America/New_York", date_order=order) as records:
        found = records.connection.execute("SELECT started_at FROM trips").fetchall()
    assert [str(t.time()) for (t,) in found] == [utc]


@pytest.mark.parametrize("zone", ["BST", "AST", "CST", "IST", "NST", "EST", "EST5EDT"])
def test_abbreviations_of_time_zones_are_no_times(zone: str) -> None:
    """BST is the time of London and of Bangladesh, CST that of Chicago, Havana and Shanghai."""
    trips = frame(started_at=[f"2021-07-01 08:00:00 {zone}", "2021-07-01 08:00"], start_station_id=["a", "a"])
    with read_records(trips, timezone="Europe/London", force=True) as records:
        assert records.quality.query("reason == 'impossible time'")["rows"].to_list() == [1]


@pytest.mark.parametrize("text", ["yesterday", "2021-13-01 00:00", "2021-02-30 10:00", "0", "-5", "1e300", "25:00"])
def test_what_is_no_time_is_rejected_as_impossible(text: str) -> None:
    trips = frame(started_at=[text, "2021-07-01 08:00"], start_station_id=["a", "a"])
    with read_records(trips, timezone="America/New_York", force=True) as records:
        assert records.connection.execute("SELECT count(*) FROM trips").fetchall() == [(1,)]
        assert records.quality.query("reason == 'impossible time'")["rows"].to_list() == [1]


def test_coordinates_outside_the_world_are_left_blank_and_counted() -> None:
    trips = frame(
        started_at=["2021-07-01 08:00"] * 5,
        start_lat=[40.7, 0.0, 140.7, 40.7, 40.7],
        start_lng=[-74.0, 0.0, -74.0, -74.0, -74.0],
        start_station_id=["a", "b", "c", "d", "e"],
    )
    with read_records(trips, timezone="America/New_York") as records:
        found = records.connection.execute("SELECT start_station, start_lat FROM trips ORDER BY 1").fetchall()
        assert found == [("a", 40.7), ("b", None), ("c", None), ("d", 40.7), ("e", 40.7)]
        assert records.quality.query("reason == 'impossible coordinates'")["rows"].to_list() == [2]


def test_trips_without_stations_are_placed_by_their_coordinates() -> None:
    trips = frame(tpep_pickup_datetime=["2015-01-01 00:00"], pickup_latitude=[40.7], pickup_longitude=[-73.9])
    with read_records(trips, timezone="America/New_York") as records:
        assert records.connection.execute("SELECT start_station, start_lat FROM trips").fetchall() == [(None, 40.7)]


def test_staff_are_told_by_rider_type_and_by_the_station() -> None:
    trips = frame(
        started_at=["2021-07-01 08:00"] * 4,
        start_station_id=["a", "a", "a", "9"],
        end_station_id=["a", "a", "9", "a"],
        start_station_name=["Main St", "Main St", "Main St", "NYCBS Depot"],
        end_station_name=["Main St", "Main St", "NYCBS Depot", "Main St"],
        usertype=["member", "Staff", "member", "member"],
    )
    with read_records(trips, timezone="America/New_York", force=True) as records:
        assert records.connection.execute("SELECT count(*) FROM trips").fetchall() == [(1,)]
        assert records.quality.query("reason == 'staff and test trips'")["rows"].to_list() == [3]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(moments, moments, st.booleans()), min_size=1, max_size=6))
def test_the_span_of_the_trips_is_that_of_the_accepted_ones(rows: list[tuple[str, str, bool]]) -> None:
    trips = pd.DataFrame(
        {
            "ride_id": [str(i) for i in range(len(rows))],
            "started_at": [min(row[:2]) for row in rows],
            "ended_at": [max(row[:2]) if row[2] else None for row in rows],
            "start_station_id": "a",
        }
    )
    with read_records(trips, timezone="America/New_York", force=True) as records:
        found = records.connection.execute("SELECT * FROM trip_span").fetchall()
        expected = records.connection.execute("SELECT min(started_at), max(started_at), max(ended_at) FROM trips")
        assert found == expected.fetchall()
