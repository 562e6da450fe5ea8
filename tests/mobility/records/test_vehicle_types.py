"""Vehicles and trips of one type."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from unmet._exceptions import FileFormatError, InputError
from unmet.mobility.panel import build_panel
from unmet.mobility.records.gbfs import read_station_status
from unmet.mobility.records.read import read_records

ZONE = "America/New_York"


def status() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "station_id": "a",
            "last_reported": pd.to_datetime(["2021-07-01 08:00", "2021-07-01 08:30", "2021-07-01 09:00"]),
            "num_bikes_available": [3, 2, 2],
            "num_ebikes_available": [1, 0, 2],
            "num_docks_available": [0, 1, 0],
        }
    )


def trips() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "started_at": pd.to_datetime(["2021-07-01 08:10", "2021-07-01 08:20", "2021-07-01 08:50"]),
            "ended_at": pd.to_datetime(["2021-07-01 08:20", "2021-07-01 08:30", "2021-07-01 08:58"]),
            "start_station_id": "a",
            "rideable_type": ["electric_bike", "classic_bike", "classic_bike"],
        }
    )


@pytest.mark.parametrize(("kind", "out", "taken"), [("electric", 30, 1), ("classic", 0, 2), (None, 0, 3)])
def test_a_zone_is_out_when_it_has_none_of_the_type(kind, out, taken):
    result = build_panel(trips(), status(), timezone=ZONE, supply="listed", vehicle_type=kind)
    row = result.panel.iloc[0]
    assert (row["stockout_minutes"], row["observed"]) == (out, taken)
    noted = result.quality[result.quality["reason"] == "other type of vehicle"]["rows"].sum()
    assert noted == 3 - taken


@pytest.mark.parametrize("name", ["electric_bike", "E_BIKE", "e bike", "E-Bike", "City ebike", "Elektro", "e-scooter"])
def test_electric_vehicles_are_told_by_their_usual_names(name):
    given = trips().assign(rideable_type=[name, name, "freebike"])
    assert build_panel(given, status(), timezone=ZONE, vehicle_type="electric").panel["observed"].sum() == 2


def test_records_that_do_not_tell_types_are_refused():
    with pytest.raises(InputError, match=r"num_ebikes_available"):
        build_panel(None, status().drop(columns="num_ebikes_available"), timezone=ZONE, vehicle_type="electric")
    with pytest.raises(InputError, match=r"rideable_type"):
        build_panel(trips().drop(columns="rideable_type"), status(), timezone=ZONE, vehicle_type="electric")
    with pytest.raises(InputError, match=r"expected electric or classic"):
        build_panel(None, status(), timezone=ZONE, vehicle_type="scooter")


def test_types_of_gbfs_documents_are_counted_by_their_id(tmp_path: Path):
    station = {
        "station_id": "a",
        "num_vehicles_available": 5,
        "vehicle_types_available": [{"vehicle_type_id": "e1", "count": 2}, {"vehicle_type_id": "b1", "count": 3}],
        "is_installed": True,
        "is_renting": True,
        "last_reported": "2025-07-01T08:00:00Z",
    }
    document = {"last_updated": "2025-07-01T08:00:01Z", "version": "3.1-RC2", "data": {"stations": [station]}}
    path = tmp_path / "station_status.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    assert read_station_status(path).available == [5]
    assert read_station_status(path, vehicle_type="e1").available == [2]
    assert read_station_status(path, vehicle_type="gone").available == [0]
    with pytest.raises(FileFormatError, match=r"num_ebikes_available is missing; name a vehicle_type_id"):
        read_station_status(path, vehicle_type="electric")
    station["num_ebikes_available"] = 2
    del station["vehicle_types_available"]
    path.write_text(json.dumps(document), encoding="utf-8")
    assert read_station_status(path, vehicle_type="classic").available == [3]
    with pytest.raises(FileFormatError, match=r"vehicle_types_available is missing"):
        read_station_status(path, vehicle_type="e1")


@pytest.mark.parametrize(
    ("listed", "electric"), [(None, 0), (-1, 0), (2, None), (1, 2), (1, -1)], ids=lambda number: str(number)
)
def test_a_record_that_does_not_tell_the_number_of_classic_vehicles_is_rejected(listed, electric):
    numbers = {"num_bikes_available": [3, listed, 2], "num_ebikes_available": [1, electric, 0]}
    with read_records(
        status=status().assign(**numbers), timezone=ZONE, vehicle_type="classic", max_rejected=0.5
    ) as records:
        found = records.connection.execute("SELECT available FROM status ORDER BY rn").fetchall()
    assert found == [(2,), (2,)]
    assert records.quality.query("action == 'rejected'")["rows"].tolist() == [1]


@pytest.mark.parametrize(("listed", "electric"), [(-1, 0), (1, 2), (1, -1)])
def test_a_gbfs_station_that_contradicts_itself_has_no_number_of_classic_vehicles(tmp_path: Path, listed, electric):
    stations = [
        {"station_id": "a", "num_bikes_available": 3, "num_ebikes_available": 1},
        {"station_id": "b", "num_bikes_available": listed, "num_ebikes_available": electric},
    ]
    path = tmp_path / "station_status.json"
    path.write_text(json.dumps({"last_updated": 1_700_000_000, "data": {"stations": stations}}), encoding="utf-8")
    assert read_station_status(path, vehicle_type="classic").available == [2, None]


def test_every_file_of_trips_has_to_tell_types(tmp_path: Path):
    paths = [tmp_path / "first.csv", tmp_path / "second.csv"]
    trips().to_csv(paths[0], index=False)
    trips().drop(columns="rideable_type").to_csv(paths[1], index=False)
    with pytest.raises(InputError, match=r"second\.csv has no column of the type of vehicle"):
        read_records(paths, timezone=ZONE, vehicle_type="electric")


def test_trips_of_unknown_type_are_rejected_and_counted():
    given = trips().assign(rideable_type=["electric_bike", "classic_bike", None])
    with read_records(given, timezone=ZONE, vehicle_type="classic", max_rejected=0.5) as records:
        assert records.connection.execute("SELECT count(*) FROM trips").fetchone() == (1,)
    found = records.quality.set_index("reason")
    assert found.loc["missing type of vehicle", ["action", "rows"]].tolist() == ["rejected", 1]
    assert found.loc["other type of vehicle", ["rows", "share"]].tolist() == [1, 1 / 3]
    with pytest.raises(InputError, match=r"missing type of vehicle: 1"):
        read_records(given, timezone=ZONE, vehicle_type="classic")


def test_free_docks_are_unknown_if_vehicles_of_one_type_are_counted():
    stations = pd.DataFrame({"station_id": ["a"], "capacity": [3]})
    full = status().assign(num_bikes_available=3, num_ebikes_available=1, num_docks_available=0)
    result = build_panel(None, full, stations, timezone=ZONE, supply="listed", vehicle_type="electric")
    assert result.panel["dock_minutes"].isna().all()
