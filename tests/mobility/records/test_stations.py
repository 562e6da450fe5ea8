from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from unmet._exceptions import FileFormatError, InputError
from unmet.mobility.records import read_records
from unmet.mobility.records.stations import check_not_swapped

STATUS = pd.DataFrame({"station_id": ["a"], "at": ["2021-01-01 00:00"], "available": [1]})


def frame(**columns: list[object]) -> pd.DataFrame:
    return pd.DataFrame(columns)


def test_every_id_column_is_tried_and_what_matched_is_reported() -> None:
    stations = frame(
        station_id=["a", "b"],
        legacy_id=["3184", "3185"],
        short_name=["JC002", "JC003"],
        region_id=["70", "70"],
    )
    trips = frame(started_at=["2021-01-01 08:00"] * 6, start_station_id=["3184", "3185", "JC002", "jc003", "a", "70"])
    with read_records(trips, stations=stations, timezone="America/New_York", force=True) as records:
        found = records.connection.execute("SELECT start_station, count(*) FROM trips GROUP BY 1 ORDER BY 1").fetchall()
        detail = records.quality.query("reason == 'station ids matched'")["detail"].to_list()
        assert records.quality.query("reason == 'unknown station'")["rows"].to_list() == [1]  # a region is no station
    assert found == [("a", 3), ("b", 2)]
    assert detail == ["legacy_id: 2, short_name: 2, station: 1"]


def test_running_numbers_are_ids_only_where_a_file_names_them() -> None:
    stations = frame(station_ix=[0, 1, 2], station_id=["a", "b", "c"], legacy_id=["1", "2", "77"])
    status = frame(station_ix=[0, 1, 2], last_reported=[1_600_000_000] * 3, available=[10, 11, 12])
    trips = frame(started_at=["2021-01-01 08:00"] * 3, start_station_id=["1", "2", "0"])
    with read_records(trips, status, stations, timezone="UTC", force=True) as records:
        by_status = records.connection.execute("SELECT available, station FROM status ORDER BY 1").fetchall()
        by_trips = records.connection.execute("SELECT start_station FROM trips ORDER BY 1").fetchall()
    assert by_status == [(10, "a"), (11, "b"), (12, "c")]
    assert by_trips == [("a",), ("b",)]  # by legacy_id; 0 is nobody's


def test_ids_that_a_spreadsheet_made_floats_still_match() -> None:
    stations = frame(station_id=["3184", "5470.10"], name=["x", "y"])
    trips = frame(started_at=["2021-01-01 08:00"] * 3, start_station_id=[3184.0, 5470.1, float("nan")])
    with read_records(trips, stations=stations, timezone="UTC", force=True) as records:
        found = records.connection.execute("SELECT start_station FROM trips ORDER BY 1").fetchall()
        assert records.quality.query("reason == 'missing station'")["rows"].to_list() == [1]
    assert found == [("3184",), ("5470.10",)]


def test_without_a_table_stations_come_from_the_files_with_their_places() -> None:
    trips = frame(
        started_at=["2021-01-01 08:00"] * 3,
        start_station_id=["b", "b", "c"],
        start_station_name=["Bee", "Bee", "Sea"],
        start_lat=[40.0, 42.0, 40.5],
        start_lng=[-74.0, -74.2, -74.1],
        end_station_id=["d", None, "b"],
    )
    with read_records(trips, STATUS, timezone="America/New_York", force=True) as records:
        found = records.connection.execute("SELECT station, name, lat, ix FROM stations ORDER BY ix").fetchall()
    assert [f[:3] for f in found] == [
        ("b", "Bee", 41.0),
        ("c", "Sea", 40.5),
        ("d", None, None),
        ("a", None, None),
    ]
    assert [f[3] for f in found] == [0, 1, 2, 3]


@pytest.mark.parametrize("timezone", ["America/New_York", "Europe/Helsinki", "Asia/Tokyo", "Australia/Melbourne"])
def test_swapped_coordinates_are_refused_and_right_ones_are_not(timezone: str) -> None:
    lat, lon = {"A": (40.7, -74.0), "H": (60.2, 24.9), "T": (35.7, 139.7), "M": (-37.8, 144.9)}[
        timezone.split("/")[1][0].replace("N", "A")
    ]
    right = frame(station_id=["a"], lat=[lat], lon=[lon])
    read_records(status=STATUS, stations=right, timezone=timezone).close()
    with pytest.raises(FileFormatError, match="swapped"):
        read_records(status=STATUS, stations=right.rename(columns={"lat": "lon", "lon": "lat"}), timezone=timezone)
    trips = frame(started_at=["2021-01-01"], start_station_id=["a"], start_lat=[lon], start_lng=[lat])
    with pytest.raises(FileFormatError, match="swapped"):
        read_records(trips, timezone=timezone)


@pytest.mark.parametrize(
    ("lat", "lon", "timezone"), [(1.87, -157.4, "Pacific/Kiritimati"), (-13.83, -171.77, "Pacific/Apia")]
)
def test_east_of_the_date_line_a_longitude_is_near_its_time_zone(lat: float, lon: float, timezone: str) -> None:
    check_not_swapped(lat, lon, timezone, "stations.csv", {}, [])


def test_a_wrong_time_zone_is_named_first() -> None:
    with pytest.raises(FileFormatError, match=r"far from Asia/Kathmandu. Correct the time zone \(--timezone\), or if"):
        check_not_swapped(40.72, -74.04, "Asia/Kathmandu", "stations.csv", {}, [])
    with pytest.raises(FileFormatError, match="seem to be swapped"):
        check_not_swapped(-174.0, 40.7, "America/New_York", "stations.csv", {}, [])


def test_a_latitude_beyond_all_numbers_is_not_called_swapped() -> None:
    for lat, lon in ((1e308, -74.0), (40.0, 181.0), (4_500_000.0, 580_000.0)):
        with pytest.raises(FileFormatError, match=r"these are no degrees") as error:
            check_not_swapped(lat, lon, "America/New_York", "stations.csv", {}, [])
        assert "swap" not in str(error.value)


def test_single_bad_places_are_mended_or_left_blank_and_counted() -> None:
    stations = frame(
        station_id=["a", "b", "c", "d", "e"],
        lat=[40.7, 40.8, -74.0, 0.0, "north"],
        lon=[-74.0, -74.1, 40.7, 0.0, -74.0],
    ).astype({"lat": "str"})
    with read_records(status=STATUS, stations=stations, timezone="America/New_York") as records:
        found = records.connection.execute("SELECT lat, lon FROM stations ORDER BY station").fetchall()
        reasons = records.quality.query("source == 'stations'").set_index("reason")["rows"].to_dict()
    assert found == [(40.7, -74.0), (40.8, -74.1), (40.7, -74.0), (None, None), (None, None)]
    assert reasons["swapped latitude and longitude"] == 1
    assert reasons["impossible coordinates"] == 1
    assert reasons["missing or unreadable coordinates"] == 1


def test_capacities_that_are_no_number_of_docks_are_left_blank_and_counted() -> None:
    given = ["20", "21.0", "", "-3", "37.5", "many", "1e300", "2000000000"]
    stations = frame(station_id=list("abcdefgh"), capacity=given)
    with read_records(status=STATUS, stations=stations, timezone="America/New_York") as records:
        found = records.connection.execute("SELECT capacity FROM stations ORDER BY station").fetchall()
        reasons = records.quality.query("source == 'stations'").set_index("reason")["rows"].to_dict()
    assert [row[0] for row in found] == [20, 21, None, None, None, None, None, None]
    assert reasons["impossible capacity"] == 5


def test_of_several_documents_the_last_written_holds_and_a_move_is_noted(tmp_path: Path) -> None:
    for name, updated, lat in (("z", 100, 40.70), ("y", 300, 40.72), ("x", 200, 40.71)):
        station = {"station_id": "a", "name": name, "lat": lat, "lon": -74.0, "capacity": 20}
        document = {"last_updated": updated, "data": {"stations": [station]}}
        (tmp_path / f"station_information_{name}.json").write_text(json.dumps(document))
    with read_records(status=STATUS, stations=tmp_path, timezone="America/New_York") as records:
        assert records.connection.execute("SELECT name, lat FROM stations").fetchall() == [("y", 40.72)]
        moved = records.quality.query("reason == 'station moved'").iloc[0]
    assert moved["rows"] == 1
    assert "a by 1,112 m" in moved["detail"]


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_more_rows_of_stations_than_the_memory_allows_are_refused(tmp_path, kind):
    trips = tmp_path / "trips.csv"
    trips.write_text("started_at,start_station_id\n2021-07-01 08:00,s1\n")
    if kind == "csv":
        (tmp_path / "stations.csv").write_text("station_id\n" + "s1\n" * 50_001)
        given = tmp_path / "stations.csv"
    else:
        given = tmp_path / "documents"
        given.mkdir()
        stations = ",".join(f'{{"station_id":"{i}"}}' for i in range(25_001))
        for i in range(2):
            (given / f"{i}.json").write_text(f'{{"data":{{"stations":[{stations}]}}}}')
    with pytest.raises(InputError, match=r"rows of stations or more do not fit into the memory limit.*--memory"):
        read_records(trips, stations=given, timezone="UTC", memory="100MB")


def test_rows_with_more_fields_than_headers_are_not_read_shifted(tmp_path: Path) -> None:
    """Decimal commas in a file with commas."""
    path = tmp_path / "stations.csv"
    path.write_text("station_id,name,lat,lon,capacity\na,Ash,40,7,-74.0,32\nb,Birch,40,8,-74.1,16\n")
    with pytest.raises(InputError, match="malformed line: 2"):
        read_records(status=STATUS, stations=path, timezone="America/New_York")
