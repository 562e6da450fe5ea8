from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unmet._exceptions import FileFormatError, InputError
from unmet.mobility.records import read_records
from unmet.mobility.records.headers import SOURCES, Headers, is_staff, more_headers


@pytest.mark.data
def test_every_header_in_the_fixtures_is_recognised(data_dir: Path) -> None:
    files = sorted((data_dir / "fixtures" / "trip_headers").glob("*.csv"))
    assert len(files) > 15
    for path in files:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            header = next(csv.reader(stream))
        source = "stations" if "stations" in path.name else "trips"
        found = Headers().match(source, header, str(path))
        if source == "stations":
            assert set(found) == {"station", "name", "lat", "lon", "capacity"}
        else:
            assert {"started_at", "ended_at"} <= set(found)
            assert {"start_station", "end_station"} <= set(found) or {
                "start_lat",
                "start_lon",
                "end_lat",
            } <= set(found)


@pytest.mark.data
def test_every_file_with_rows_in_the_fixtures_is_read_without_a_rejected_row(data_dir: Path) -> None:
    zones = {"divvy": "America/Chicago"}
    for path in sorted((data_dir / "fixtures" / "trip_headers").glob("*.csv")):
        if "stations" in path.name:
            continue
        rows = len(path.read_text().strip().splitlines()) - 1
        zone = next((z for word, z in zones.items() if word in path.name), "America/New_York")
        with read_records(path, timezone=zone) as records:
            assert records.connection.execute("SELECT count(*) FROM trips").fetchall() == [(rows,)], path


def test_capital_bikeshare_has_the_number_for_id_and_the_other_column_for_name() -> None:
    header = ["Start date", "Start station number", "Start station", "End station number", "End station"]
    found = Headers().match("trips", header, "x.csv")
    assert found["start_station"] == "Start station number"
    assert found["start_station_name"] == "Start station"


def test_unknown_headers_get_an_error_that_shows_them_and_how_to_map() -> None:
    frame = pd.DataFrame({"abfahrt": ["2021-01-01 10:00"], "ort": ["a"]})
    with pytest.raises(FileFormatError) as caught:
        read_records(frame, timezone="Europe/Berlin")
    message = str(caught.value)
    assert "'abfahrt', 'ort'" in message
    assert "--map started_at=THEIR_COLUMN" in message


def test_any_file_can_be_mapped() -> None:
    frame = pd.DataFrame({"abfahrt": ["2021-01-01 10:00"], "ort \"'; DROP": ["a"]})
    mapping = {"started_at": "abfahrt", "start_station": "ort \"'; DROP"}
    with read_records(frame, timezone="Europe/Berlin", mapping=mapping) as records:
        assert records.connection.execute("SELECT start_station FROM trips").fetchall() == [("a",)]


def test_a_mapping_goes_before_what_was_recognised() -> None:
    frame = pd.DataFrame(
        {"started_at": ["2021-01-01 10:00"], "real_start": ["2021-01-01 12:00"], "start_station_id": [1]}
    )
    with read_records(frame, timezone="UTC", mapping={"started_at": "real_start"}) as records:
        assert "12:00" in str(records.connection.execute("SELECT started_at::VARCHAR FROM trips").fetchall())


@pytest.mark.parametrize(
    "mapping", [{"started_at": "nope"}, {"colour": "started_at"}, {"status.started_at": "started_at"}]
)
def test_a_mapping_that_leads_nowhere_is_refused(mapping: dict[str, str]) -> None:
    frame = pd.DataFrame({"started_at": ["2021-01-01 10:00"], "start_station_id": [1]})
    with pytest.raises(InputError, match="mapping"):
        read_records(frame, timezone="UTC", mapping=mapping)


def test_one_source_can_be_mapped_apart_from_another() -> None:
    status = pd.DataFrame({"stop": ["a"], "when": ["2021-01-01 10:00"], "available": [1]})
    stations = pd.DataFrame({"code": ["a"], "stop": ["x"]})
    mapping = {"status.station": "stop", "stations.station": "code", "at": "when"}
    with read_records(status=status, stations=stations, timezone="UTC", mapping=mapping) as records:
        assert records.connection.execute("SELECT station FROM status").fetchall() == [("a",)]


@pytest.mark.parametrize(
    ("name", "staff"),
    [
        ("JCBS Depot", True),
        ("NYCBS DEPOT - DELANCEY", True),
        ("8D OPS 02", True),
        ("HUBBARD ST BIKE CHECKING (LBS-WH-TEST)", True),
        ("Staff", True),
        ("TEST", True),
        ("Depot Pl & Main St", False),
        ("Contest Hall", False),
        ("Subscriber", False),
        ("Grove St PATH", False),
        ("Protest Ave", False),
    ],
)
def test_staff_and_test_names_are_told_from_streets(name: str, staff: bool) -> None:
    assert is_staff(name) is staff


CHECKOUTS = pd.DataFrame(
    {"Checkout Time": ["2021-06-01 08:00"], "Return Time": ["2021-06-01 08:10"], "Checkout Kiosk": ["a"]}
)


def test_headers_of_ones_own_are_recognised_without_case_and_punctuation() -> None:
    headers = {"started_at": "checkout_time", "trips.ended_at": ["Returned", "RETURN TIME"]}
    headers |= {"start_station": "checkoutkiosk"}
    with read_records(CHECKOUTS, timezone="UTC", headers=headers) as records:
        assert records.connection.execute("SELECT start_station, hour(ended_at) FROM trips").fetchall() == [("a", 8)]


def test_headers_of_ones_own_are_tried_before_the_known_ones_and_after_the_mapping() -> None:
    frame = CHECKOUTS.assign(started_at="2021-06-01 01:00", clock="2021-06-01 02:00", start_station_id="b")
    hour = "SELECT hour(started_at) FROM trips"
    with read_records(frame, timezone="UTC", headers={"started_at": "Checkout Time"}) as records:
        assert records.connection.execute(hour).fetchall() == [(8,)]
    given = {"headers": {"started_at": "Checkout Time"}, "mapping": {"started_at": "clock"}}
    with read_records(frame, timezone="UTC", **given) as records:
        assert records.connection.execute(hour).fetchall() == [(2,)]


def test_headers_that_no_file_has_are_no_error_but_those_of_an_unknown_field_are() -> None:
    frame = pd.DataFrame({"started_at": ["2021-06-01 08:00"], "start_station_id": ["a"]})
    read_records(frame, timezone="UTC", headers={"started_at": "Checkout Time"}).close()
    with pytest.raises(InputError, match="headers: there is no field 'checkout'"):
        read_records(frame, timezone="UTC", headers={"checkout": "Checkout Time"})


def test_the_known_headers_stay_as_they_are() -> None:
    before = {name: dict(source.variants) for name, source in SOURCES.items()}
    assert more_headers({"at": "polled"})["weather"].variants["at"][0] == "polled"
    assert {name: dict(source.variants) for name, source in SOURCES.items()} == before


@pytest.mark.parametrize(
    "pair", [("started_at", "started_at"), ("Started_At", "started_at"), ("start time", "Start_Time")]
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_header_that_occurs_twice_must_be_chosen_whatever_its_case(tmp_path: Path, pair, ending) -> None:
    first, second = ["2021-07-01 06:00:00", "2021-07-01 07:00:00"], ["2021-07-01 08:00:00", "2021-07-01 09:00:00"]
    path = tmp_path / f"trips.{ending}"
    columns = [pa.array(values) for values in (first, second, ["a", "b"])]
    table = pa.Table.from_arrays(columns, names=[*pair, "start_station_id"])
    if ending == "parquet":
        pq.write_table(table, path)
    else:
        rows = zip([pair[0], *first], [pair[1], *second], ["start_station_id", "a", "b"], strict=True)
        path.write_text("".join(f"{','.join(row)}\n" for row in rows))
    with pytest.raises(FileFormatError, match="several columns could be started_at of trips") as refused:
        read_records(trips=path, timezone="UTC")
    chosen = str(refused.value).partition('--map "')[2].partition('"')[0].partition("=")[2]
    with read_records(trips=path, timezone="UTC", mapping={"started_at": chosen}) as records:
        assert records.connection.execute("SELECT hour(started_at) FROM trips ORDER BY 1").fetchall() == [(6,), (7,)]


def test_an_optional_field_is_not_left_out_because_its_header_occurs_twice() -> None:
    found = ["station_id", "last_reported", "num_bikes_available", "is_renting", "Is Renting"]
    with pytest.raises(FileFormatError, match="several columns could be renting of status: 'is_renting', 'Is Renting'"):
        Headers().match("status", found, "status.csv")
    chosen = Headers({"renting": "Is Renting"}).match("status", found, "status.csv")
    assert chosen["renting"] == "Is Renting"
