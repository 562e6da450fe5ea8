from __future__ import annotations

import json
from typing import Any

import pytest
from feed_server import NOON, Reply, document, information, status

from unmet.collect.documents import parse_document
from unmet.collect.history import TABLES
from unmet.collect.memory import INFORMATION, STATUS, Memory, Seen


def see(memory: Memory, reply: Reply, at: float = NOON, feed: str = STATUS) -> Seen:
    return memory.see(feed, parse_document(reply.body), at, reply.body.decode())


def changes(seen: Seen, table: str = "changes") -> list[dict[str, Any]]:
    return [dict(zip(TABLES[table], row, strict=True)) for row in seen.tables[table]]


def test_only_what_changed_is_written() -> None:
    memory = Memory()
    assert len(changes(see(memory, status({"a": 3, "b": 5})))) == 2
    assert changes(see(memory, status({"a": 3, "b": 5}))) == []
    (row,) = changes(see(memory, status({"a": 3, "b": 4}, NOON + 60), NOON + 61))
    assert (row["station_id"], row["poll_time"], row["last_updated"]) == ("b", NOON + 61, NOON + 60)
    assert (row["num_bikes_available"], row["left_feed"], row["restated"]) == (4, False, False)


def test_a_station_that_leaves_gets_a_closing_record_and_may_come_back() -> None:
    memory = Memory()
    see(memory, status({"a": 3, "b": 5}))
    (row,) = changes(see(memory, status({"a": 3}), NOON + 60))
    assert (row["station_id"], row["num_bikes_available"], row["left_feed"]) == ("b", 5, True)
    assert (row["is_installed"], row["is_renting"], row["is_returning"]) == (False, False, False)
    assert changes(see(memory, status({"a": 3}), NOON + 120)) == []
    (row,) = changes(see(memory, status({"a": 3, "b": 5}), NOON + 180))
    assert (row["station_id"], row["left_feed"], row["is_installed"]) == ("b", False, True)


def test_a_station_that_cannot_be_read_is_closed_until_it_can_be_read_again() -> None:
    """It kept its last number before: a station without a number for a day was out of stock if that was 0."""
    memory = Memory()
    see(memory, status({"a": 3, "b": 0}))
    seen = see(memory, status({"a": 3, "b": 2.5}), NOON + 60)  # type: ignore[dict-item]
    assert (seen.rows, seen.unreadable) == (1, 1)
    (row,) = changes(seen)
    assert (row["station_id"], row["is_installed"], row["is_renting"], row["left_feed"]) == ("b", False, False, True)
    assert changes(see(memory, status({"a": 3, "b": 2.5}), NOON + 120)) == []  # type: ignore[dict-item]
    (row,) = changes(see(memory, status({"a": 3, "b": 0}), NOON + 180))
    assert (row["station_id"], row["is_installed"], row["left_feed"]) == ("b", True, False)


def test_new_ids_in_every_document_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unmet.collect.memory.MOST_ROWS", 50)
    memory = Memory()
    left = 0
    for poll in range(40):
        names = [f"{poll}-{i}" for i in range(10)]
        seen = see(memory, status({**dict.fromkeys(names, 3), "b": 2.5}, NOON + poll), NOON + poll)  # type: ignore[dict-item]
        left += sum(row["left_feed"] for row in changes(seen))
        bikes = [{"bike_id": name, "lat": 1.0, "lon": 2.0} for name in names]
        see(memory, document({"bikes": [*bikes, {"bike_id": "b", "lat": "x"}]}), feed="free_bike_status")
        see(memory, information(*names), feed=INFORMATION)
        assert max(map(len, (memory._states, memory._vehicles, memory._infos))) <= 60
    assert left >= 300  # and their leaving is written


def test_a_quiet_station_that_reports_is_written_once_an_hour_and_a_dead_one_is_not() -> None:
    memory = Memory()
    written = [
        changes(see(memory, status({"a": 3}, at, reported=at if alive else NOON), at))
        for alive in (True, False)
        for at in [NOON + 600 * i for i in range(13)]
    ]
    assert [len(rows) for rows in written[:13]] == [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    assert sum(map(len, written[13:])) == 0


def test_the_first_document_of_a_day_restates_all_and_says_so() -> None:
    memory = Memory()
    see(memory, status({"a": 3, "b": 5, "c": 1}))
    see(memory, information("a", "b"), feed=INFORMATION)
    memory.begin_day()
    rows = changes(see(memory, status({"a": 3, "b": 4}), NOON + 86_400))
    assert [(r["station_id"], r["restated"], r["left_feed"]) for r in rows] == [
        ("a", True, False),
        ("b", False, False),
        ("c", False, True),
    ]
    assert changes(see(memory, status({"a": 3, "b": 4}))) == []
    assert len(changes(see(memory, information("a", "b"), feed=INFORMATION), "stations")) == 2
    assert changes(see(memory, information("a", "b"), feed=INFORMATION), "stations") == []


def test_replaying_what_was_written_restores_the_memory() -> None:
    memory, restored = Memory(), Memory()
    memory.begin_day()
    restored.begin_day()
    documents = [status({"a": 3, "b": 5}), status({"a": 2}), status({"a": 2, "b": 5})]
    for at, reply in enumerate(documents):
        frame = json.loads(json.dumps(see(memory, reply, NOON + at).tables))
        restored.replay(frame)
    for reply in (documents[-1], documents[0]):
        assert see(restored, reply).tables == see(memory, reply).tables


def test_vehicles_are_written_when_they_move_and_when_they_leave() -> None:
    def fleet(**vehicles: float) -> Reply:
        rows = [
            {"bike_id": n, "lat": lat, "lon": 10.0, "is_reserved": 0, "is_disabled": 0} for n, lat in vehicles.items()
        ]
        return document({"bikes": rows})

    memory = Memory()
    assert len(changes(see(memory, fleet(x=1.0, y=2.0), feed="free_bike_status"), "vehicles")) == 2
    rows = changes(see(memory, fleet(x=1.5), feed="free_bike_status"), "vehicles")
    assert [(r["vehicle_id"], r["lat"], r["left_feed"]) for r in rows] == [("x", 1.5, False), ("y", 2.0, True)]


def test_documents_that_are_no_table_are_kept_as_they_came() -> None:
    reply = document({"vehicle_types": [{"vehicle_type_id": "é"}]})
    (row,) = changes(see(Memory(), reply, feed="vehicle_types"), "documents")
    assert row == {"feed": "vehicle_types", "poll_time": NOON, "text": reply.body.decode()}
