from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unmet._exceptions import FileFormatError, InputError
from unmet.mobility.records import read_records
from unmet.mobility.records.gbfs import read_station_information, read_station_status


def status_document(**changes: Any) -> dict[str, Any]:
    station = {
        "station_id": "a",
        "num_bikes_available": 3,
        "num_docks_available": 5,
        "is_installed": 1,
        "is_renting": 1,
        "is_returning": 1,
        "last_reported": 1_600_000_000,
    }
    station.update(changes)
    return {"last_updated": 1_600_000_010, "ttl": 10, "data": {"stations": [station]}}


def write(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


@pytest.mark.data
def test_every_fixture_parses_or_is_refused_with_its_path_and_field(data_dir: Path) -> None:
    parsed = 0
    for path in sorted((data_dir / "fixtures" / "gbfs").rglob("*.json")):
        for reader, word in ((read_station_status, "status"), (read_station_information, "information")):
            if path.name.startswith(f"station_{word}") and "schemas" not in path.parts:
                reader(path)
                parsed += 1
            elif not path.name.startswith("station_") or "schemas" in path.parts:
                with pytest.raises(FileFormatError, match="data") as caught:
                    reader(path)
                assert str(caught.value).startswith(f"{path}: data")
    assert parsed >= 10


@pytest.mark.data
def test_the_real_feeds_parse(data_dir: Path) -> None:
    folder = data_dir / "fixtures" / "gbfs_real"
    status = folder / "citibike_2019-07-05_station_status.json.gz"
    assert len(read_station_status(status).station) == 845
    for name, count in (
        ("2019-07-05_station_information", 845),
        ("station_information_20201028230711", 1200),
    ):
        assert len(read_station_information(folder / f"citibike_{name}.json.gz")[1]) == count
    assert len(read_station_information(folder / "citibike_station_information_20240623034809.json.gz")[1]) == 2213
    stations = folder / "citibike_2019-07-05_station_information.json.gz"
    with read_records(status=status, stations=stations, timezone="America/New_York") as records:
        assert records.connection.execute('SELECT count(*), count(DISTINCT "at") FROM status').fetchall() == [(845, 1)]
        assert records.connection.execute("SELECT count(*) FROM stations WHERE lat > 40").fetchall() == [(845,)]


def test_versions_say_the_same_in_their_own_words(tmp_path: Path) -> None:
    old = read_station_status(write(tmp_path / "1.json", status_document()))
    new = status_document(
        is_installed=True, is_renting=True, num_vehicles_available=3, last_reported="2020-09-13T12:26:40Z"
    )
    del new["data"]["stations"][0]["num_bikes_available"]
    new["last_updated"] = "2020-09-13T14:26:50+02:00"
    assert read_station_status(write(tmp_path / "3.json", new)) == old
    assert old.at == [1_600_000_010.0]
    milliseconds = set_in(status_document(last_reported=1_600_000_000_000), "last_updated", 1_600_000_010_000)
    assert read_station_status(write(tmp_path / "ms.json", milliseconds)) == old


def test_a_flag_that_a_document_leaves_out_counts_as_true_and_is_counted(tmp_path: Path) -> None:
    document = status_document(is_returning=None)
    del document["data"]["stations"][0]["is_renting"]
    with read_records(status=write(tmp_path / "station_status.json", document), timezone="UTC") as records:
        assert records.connection.execute("SELECT renting, accepting FROM status").fetchall() == [(True, True)]
        assert records.quality.set_index("reason")["rows"]["missing flag"] == 1


def set_in(document: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    document[key] = value
    return document


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (status_document(num_bikes_available="3"), "data.stations[0].num_bikes_available"),
        (status_document(num_bikes_available=None), "data.stations[0].num_bikes_available"),
        (status_document(num_bikes_available=True), "data.stations[0].num_bikes_available"),
        (status_document(num_bikes_available=1e300), "data.stations[0].num_bikes_available"),
        (status_document(num_docks_available=[1]), "data.stations[0].num_docks_available"),
        (status_document(is_renting="yes"), "data.stations[0].is_renting"),
        (status_document(is_installed=2), "data.stations[0].is_installed"),
        (status_document(station_id=None), "data.stations[0].station_id"),
        (status_document(station_id={}), "data.stations[0].station_id"),
        (status_document(last_reported="noon"), "data.stations[0].last_reported"),
        (status_document(last_reported="2020-01-01T00:00:00"), "data.stations[0].last_reported"),
        (set_in(status_document(), "last_updated", 1_600_000_010_000_000), "last_updated"),
        (set_in(status_document(), "last_updated", float("nan")), "last_updated"),
        (set_in(status_document(), "data", []), "data"),
        (set_in(status_document(), "data", {"bikes": []}), "data.stations"),
        (set_in(status_document(), "data", {"stations": [7]}), "data.stations[0]"),
        ([], "(the document)"),
    ],
)
def test_a_wrong_field_is_refused_by_name(tmp_path: Path, document: Any, field: str) -> None:
    path = write(tmp_path / "status.json", document)
    with pytest.raises(FileFormatError) as caught:
        read_records(status=path, timezone="UTC")
    assert str(caught.value).startswith(f"{path}: {field} ")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-9],
        lambda text: b"",
        lambda text: b"   ",
        lambda text: b"\xff\xfe\x00garbage",
        lambda text: b"[" * 100_000,
        lambda text: gzip.compress(text)[:-20],
        lambda text: b"\x1f\x8b",
    ],
)
def test_a_spoilt_document_is_refused_by_path(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "status.json"
    path.write_bytes(spoil(json.dumps(status_document()).encode()))
    with pytest.raises(FileFormatError, match=r"status\.json"):
        read_records(status=path, timezone="UTC")


def test_a_folder_of_snapshots_is_read_in_one_go_and_a_repeated_poll_counted(tmp_path: Path) -> None:
    for i in range(5):
        document = set_in(status_document(num_bikes_available=i), "last_updated", 1_600_000_000 + 60 * (i // 2))
        raw = json.dumps(document).encode()
        (tmp_path / f"station_status_{i}.json.gz").write_bytes(gzip.compress(raw))
    (tmp_path / "system_alerts.json").write_text("{}")  # another feed beside it is passed over
    with read_records(status=tmp_path, timezone="UTC", max_rejected=0.5) as records:
        found = records.connection.execute('SELECT epoch("at"), available FROM status ORDER BY 1').fetchall()
        duplicates = records.quality.query("reason == 'duplicate'")["rows"].to_list()
    assert found == [(1_600_000_000, 1), (1_600_000_060, 3), (1_600_000_120, 4)]  # the last of each second
    assert duplicates == [2]


def test_a_station_silent_for_a_day_while_others_report_is_stale(tmp_path: Path) -> None:
    document = status_document()
    station = document["data"]["stations"][0]
    document["data"]["stations"] = [
        station,
        {**station, "station_id": "dead", "last_reported": 1_599_900_000},
        {**station, "station_id": "closed", "last_reported": 0, "is_installed": 0, "is_renting": 0},
        *({**station, "station_id": str(i)} for i in range(10)),
    ]
    with read_records(status=write(tmp_path / "s.json", document), timezone="UTC") as records:
        names = {n for (n,) in records.connection.execute("SELECT station FROM status").fetchall()}
        assert records.quality.query("reason == 'stale report'")["rows"].to_list() == [1]
    assert "dead" not in names
    assert {"a", "closed"} <= names


def test_a_station_whose_clock_is_ahead_does_not_make_the_others_stale(tmp_path: Path) -> None:
    document = status_document()
    station = document["data"]["stations"][0]
    document["data"]["stations"] = [station, {**station, "station_id": "ahead", "last_reported": 1_700_000_000}]
    with read_records(status=write(tmp_path / "s.json", document), timezone="UTC") as records:
        names = {n for (n,) in records.connection.execute("SELECT station FROM status").fetchall()}
    assert names == {"a", "ahead"}


def test_a_last_reported_that_stands_still_while_numbers_change_is_not_stale(tmp_path: Path) -> None:
    for i in range(8):
        document = set_in(status_document(last_reported=1_600_000_000 + 60 * i), "last_updated", 1_600_000_010 + 60 * i)
        station = document["data"]["stations"][0]
        for name, number in (("stuck clock", i % 4), ("dead", 2), ("fetched", 3 * (i < 4))):
            frozen = {"station_id": name, "num_bikes_available": number, "last_reported": 1_500_000_000}
            document["data"]["stations"].append({**station, **frozen})
        write(tmp_path / f"{i}.json", document)
    with read_records(status=tmp_path, timezone="UTC", max_rejected=0.6) as records:
        counts = records.connection.execute("SELECT station, count(*) FROM status GROUP BY 1 ORDER BY 1").fetchall()
        noted = records.quality.query("reason == 'last_reported stands still'").iloc[0]
        rejected = records.quality.query("reason == 'stale report'")["rows"].to_list()
    assert counts == [("a", 8), ("stuck clock", 8)]
    assert rejected == [16]  # a workshop may have fetched the vehicles of one
    assert (noted["rows"], noted["action"]) == (8, "noted")
    assert "stuck clock" in noted["detail"]


def test_a_station_without_a_number_is_left_out_and_the_others_are_read(tmp_path: Path) -> None:
    document = status_document(is_renting=None)
    station = document["data"]["stations"][0]
    document["data"]["stations"] = [
        *({**station, "station_id": str(i)} for i in range(9)),
        {**station, "station_id": "none", "num_bikes_available": None},
    ]
    with read_records(status=write(tmp_path / "s.json", document), timezone="UTC") as records:
        assert records.connection.execute("SELECT count(*) FROM status WHERE renting").fetchall() == [(9,)]
        assert records.quality.query("reason == 'missing or unreadable count'")["rows"].to_list() == [1]


def test_an_unreadable_document_among_many_is_passed_over_only_by_force(tmp_path: Path) -> None:
    for i in range(9):
        write(tmp_path / f"{i}.json", set_in(status_document(), "last_updated", 1_600_000_000 + i))
    (tmp_path / "cut.json").write_text('{"data"')
    with pytest.raises(FileFormatError, match=r"cut\.json"):
        read_records(status=tmp_path, timezone="UTC")
    with read_records(status=tmp_path, timezone="UTC", force=True) as records:
        row = records.quality.query("reason == 'unreadable document'").iloc[0]
        assert (row["rows"], row["action"]) == (1, "rejected")
        assert "cut.json" in row["detail"]


def test_a_folder_of_other_documents_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "gbfs.json", {"last_updated": 1, "data": {"en": {"feeds": []}}})
    with pytest.raises(InputError, match=r"data\.stations should be a list; this is not a station_status document"):
        read_records(status=tmp_path, timezone="UTC")
