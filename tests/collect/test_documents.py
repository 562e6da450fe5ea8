from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmet._exceptions import FileFormatError
from unmet.collect.documents import (
    Document,
    LastRead,
    feed_addresses,
    parse_document,
    station_infos,
    station_states,
    vehicles,
)
from unmet.mobility.records.gbfs import read_station_information, read_station_status

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["station_id", "count", "name", "lat", "is_renting", "x"]), inner, max_size=4)
    ),
    max_leaves=10,
)


def of(*stations: dict[str, Any]) -> Document:
    return Document(None, 0.0, {"stations": list(stations)})


@pytest.mark.data
def test_fixtures_are_read_as_the_reader_of_documents_reads_them(data_dir: Path) -> None:
    compared = 0
    for path in sorted((data_dir / "fixtures" / "gbfs").glob("*/station_*.json")):
        if "schemas" in path.parts:
            continue
        document = parse_document(path.read_bytes())
        if path.name.startswith("station_status"):
            rows, unreadable, _ = station_states(document)
            reference = read_station_status(path)
            assert list(rows) == list(dict.fromkeys(reference.station))
            states = [state for state, _ in rows.values()]
            assert [s.available for s in states] == reference.available
            assert [s.disabled for s in states] == reference.disabled
            assert [s.docks for s in states] == reference.docks
            assert [s.renting for s in states] == reference.renting
            assert document.updated == reference.at[0]
        else:
            infos, unreadable, _ = station_infos(document)
            _, listed = read_station_information(path)
            assert [(i.name, i.lat, i.lon, i.capacity) for i in infos.values()] == [
                (r["name"], r["lat"], r["lon"], r["capacity"]) for r in listed
            ]
        assert unreadable == 0
        compared += 1
    assert compared >= 10


@pytest.mark.data
def test_vehicle_fixtures_are_read(data_dir: Path) -> None:
    for path in sorted((data_dir / "fixtures" / "gbfs").glob("entur*/*bike_status*.json")):
        rows, unreadable, _ = vehicles(parse_document(path.read_bytes()))
        assert rows
        assert unreadable == 0 or "error" in path.name


def test_times_are_seconds_milliseconds_or_text() -> None:
    for written in (1_760_011_200, 1_760_011_200_000, "2025-10-09T12:00:00Z", "2025-10-09T14:00:00+02:00"):
        body = json.dumps({"last_updated": written, "data": {}}).encode()
        assert parse_document(body).updated == 1_760_011_200.0
    for wrong in ("2025-10-09T12:00:00", "soon", True, -3, 1e300, None, [1]):
        assert parse_document(json.dumps({"last_updated": wrong, "data": {}}).encode()).updated is None


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b'{"data": []}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_document_is_refused(body: bytes) -> None:
    with pytest.raises(FileFormatError):
        parse_document(body)


def test_feeds_are_found_with_and_without_languages() -> None:
    feeds = [{"name": "station_status", "url": "u"}, {"name": 3, "url": "v"}, "x", {"name": "y"}]
    for data in ({"feeds": feeds}, {"en": {"feeds": feeds}}, {"nb": {"feeds": feeds}}):
        assert feed_addresses(Document(None, 0.0, data)) == {"station_status": "u"}
    with pytest.raises(FileFormatError, match="no list of feeds"):
        feed_addresses(Document(None, 0.0, {"stations": []}))


def test_counts_by_type_stand_in_for_a_missing_total_and_are_kept() -> None:
    types = [{"vehicle_type_id": "e", "count": 2}, {"vehicle_type_id": "b", "count": 3}]
    rows, *_ = station_states(of({"station_id": "a", "vehicle_types_available": types}))
    state, reported = rows["a"]
    assert (state.available, state.types, reported) == (5, '{"b": 3, "e": 2}', None)
    assert (state.installed, state.renting, state.returning) == (None, None, None)


def test_numbers_are_kept_as_published_and_odd_stations_counted() -> None:
    good = {"station_id": 7, "num_bikes_available": -1, "num_docks_available": -2, "is_renting": 0}
    bad: list[Any] = [
        {"station_id": "x"},
        {"station_id": None, "num_bikes_available": 1},
        {"station_id": " ", "num_bikes_available": 1},
        {"station_id": True, "num_bikes_available": 1},
        {"station_id": "x", "num_bikes_available": 1.5},
        {"station_id": "x", "num_bikes_available": 10**9},
        {"station_id": "x", "num_bikes_available": "3"},
        {"station_id": "x", "num_bikes_available": 3, "is_renting": "yes"},
        "x",
        None,
    ]
    rows, unreadable, _ = station_states(of(good, *bad))
    assert list(rows) == ["7"]
    assert (rows["7"][0].available, rows["7"][0].docks, rows["7"][0].renting) == (-1, -2, False)
    assert unreadable == len(bad)


@given(st.lists(JSON, max_size=4))
def test_no_content_of_a_list_raises(rows: list[Any]) -> None:
    for read, key in ((station_states, "stations"), (station_infos, "stations"), (vehicles, "bikes")):
        found, unreadable, repeated = read(Document(None, 0.0, {key: rows}))
        assert len(found) + unreadable + len(repeated) == len(rows)


STATION = st.fixed_dictionaries(
    {"station_id": st.sampled_from("abc"), "num_bikes_available": st.sampled_from([0, 1, 1.0, "1", None])},
    optional={"is_renting": st.booleans(), "last_reported": st.sampled_from([1e9, 2e9])},
)


@given(st.lists(st.lists(STATION, max_size=4), max_size=5))
def test_stations_that_did_not_change_are_read_as_if_for_the_first_time(documents: list[list[Any]]) -> None:
    last: LastRead[Any] = []
    for stations in documents:
        document = Document(None, 0.0, {"stations": stations})
        assert station_states(document, last) == station_states(document)


def test_of_a_station_that_is_listed_twice_the_last_is_kept_and_it_is_named() -> None:
    counts = {"a": [3, 4, 5], " a": [6], "b": [1], 7: [1], "7": [2]}
    stations = [{"station_id": name, "num_bikes_available": n} for name, all_ in counts.items() for n in all_]
    rows, unreadable, repeated = station_states(of(*stations, {"station_id": "b"}))
    assert {name: state.available for name, (state, _) in rows.items()} == {"a": 6, "b": 1, "7": 2}
    assert (unreadable, repeated) == (1, ["a", "a", "a", "7"])


def test_a_list_of_another_kind_is_named_as_such():
    """The error expected a list 'stations' and found 'stations'."""
    with pytest.raises(FileFormatError, match="expected a list 'stations' in 'data'; it is of another kind"):
        station_states(Document(None, 0.0, {"stations": "none"}))
    with pytest.raises(FileFormatError, match=r"expected a list 'stations' in 'data'; found \['bikes'\]"):
        station_states(Document(None, 0.0, {"bikes": []}))


def test_electric_vehicles_above_all_say_nothing_of_the_others() -> None:
    rows, *_ = station_states(of({"station_id": "a", "num_bikes_available": 1, "num_ebikes_available": 2}))
    assert rows["a"][0].types is None


def test_a_type_that_is_listed_twice_is_added_up() -> None:
    types = [{"vehicle_type_id": "e", "count": 2}, {"vehicle_type_id": "e", "count": 3}]
    rows, *_ = station_states(of({"station_id": "a", "vehicle_types_available": types}))
    assert (rows["a"][0].available, json.loads(rows["a"][0].types or "")) == (5, {"e": 5})


def test_a_document_of_many_values_is_refused_before_it_is_parsed(monkeypatch):
    monkeypatch.setattr("unmet.collect.documents.MOST_VALUES", 1000)
    start = b'{"last_updated": 1600000000, "ttl": 0, "data": {"stations": []}, "more": '
    with pytest.raises(FileFormatError, match="more than 1,000 values"):
        parse_document(start + b"[" + b"[]," * 600 + b"[]]}")
    assert parse_document(start + b'"' + b"[]," * 600 + b'"}').data == {"stations": []}  # a text is one value
