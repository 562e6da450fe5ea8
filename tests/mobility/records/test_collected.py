from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from feed_server import NOON, FeedServer, JumpingClock, Reply, document, information, status

from unmet._exceptions import FileFormatError, InputError
from unmet.collect import System, collect
from unmet.mobility.panel import build_panel
from unmet.mobility.records import read_records
from unmet.mobility.records.files import expand
from unmet.mobility.records.opening import read_opening_hours

DAY = 86_400.0
UTC = "Etc/UTC"


class Feed:
    """A feed of stations ``a`` (empties at noon + 1 h) and ``b`` (never changes), that fails in given minutes."""

    def __init__(self, server: FeedServer, fails: range = range(0)) -> None:
        self.server, self.clock, self.fails = server, JumpingClock(), fails

    def answer(self, _: Any) -> Reply:
        minute = (self.clock.moment - NOON) / 60
        if self.fails.start <= minute < self.fails.stop:
            return Reply(400)
        return status({"a": 0 if 60 <= minute < 90 else 4, "b": 7}, self.clock.moment, reported=NOON, ttl=300)

    def collect(self, out: Path, hours: float, name: str = "city", feeds: tuple[str, ...] = ()) -> Path:
        self.server.list_feeds("station_status", "station_information", *feeds)
        self.server.routes |= {"/station_status": self.answer, "/station_information": information("a", "b")}
        system = System(name, f"{self.server.url}/gbfs.json")
        asyncio.run(collect([system], out, clock=self.clock, until=self.clock.moment + hours * 3600))
        return out


@pytest.fixture
def server() -> Iterator[FeedServer]:
    with FeedServer() as serving:
        yield serving


def panel(folder: Path, zone: str = "b", **options: Any) -> pd.DataFrame:
    """The panel of one zone, without the last bin: what comes after the last poll is unknown."""
    made = build_panel(status=folder, timezone=UTC, every="15min", **options).panel
    return made[made["zone"] == zone].set_index("start_local").iloc[:-1]


def test_a_history_is_read_as_status_stations_and_polls(server: FeedServer, tmp_path: Path) -> None:
    folder = Feed(server).collect(tmp_path / "feeds", 2.0)
    with read_records(status=folder, timezone=UTC) as records:
        assert records.tables == {"stations", "status", "polls"}
        stations = records.connection.sql("SELECT station, name, capacity FROM stations ORDER BY ix").fetchall()
        assert stations == [("a", "Street a", 20), ("b", "Street b", 20)]
        rows = records.connection.sql("SELECT station, available FROM status ORDER BY rn").fetchall()
        assert rows == [("a", 4), ("b", 7), ("a", 0), ("a", 4)]
        assert records.connection.sql("SELECT count(*), sum(fresh::INT) FROM polls").fetchall() == [(25, 25)]


def test_trips_find_the_stations_of_the_history_by_any_id(server: FeedServer, tmp_path: Path) -> None:
    folder = Feed(server).collect(tmp_path / "feeds", 1.0)
    trips = pd.DataFrame(
        {"started_at": ["2025-10-09 12:10"], "ended_at": ["2025-10-09 12:20"], "start_station_id": ["S1"]}
    )
    with read_records(trips, folder, timezone=UTC) as records:
        assert records.connection.sql("SELECT start_station FROM trips").fetchall() == [("b",)]


def test_a_quiet_feed_that_was_looked_at_is_no_outage_and_a_gap_in_polls_is_one(
    server: FeedServer, tmp_path: Path
) -> None:
    looked = panel(Feed(server).collect(tmp_path / "looked", 4.0))
    assert looked["unknown_minutes"].sum() == 0
    # From 13:30 nothing changes any more. Nobody looked from 13:55 to 14:20 or a little later.
    unseen = panel(Feed(server, fails=range(120, 140)).collect(tmp_path / "unseen", 4.0))
    lost = unseen["unknown_minutes"]
    assert 20 <= lost.sum() <= 35
    assert lost[lost > 0].index.min() == pd.Timestamp("2025-10-09 13:45")
    assert unseen["available_minutes"].iloc[-4:].tolist() == looked["available_minutes"].iloc[-4:].tolist()


def test_a_single_failed_poll_is_no_outage(server: FeedServer, tmp_path: Path) -> None:
    assert panel(Feed(server, fails=range(120, 122)).collect(tmp_path / "x", 4.0))["unknown_minutes"].sum() == 0


def test_days_restate_nothing_and_a_missing_day_is_bridged(server: FeedServer, tmp_path: Path) -> None:
    feed = Feed(server)
    for _ in range(3):
        feed.collect(tmp_path / "feeds", 1 / 60)
        feed.clock.moment += DAY
    folder = tmp_path / "feeds" / "city"

    def counts() -> list[tuple[str, int]]:
        with read_records(status=folder, timezone=UTC) as records:
            return records.connection.sql("SELECT station, count(*) FROM status GROUP BY 1 ORDER BY 1").fetchall()

    assert counts() == [("a", 1), ("b", 1)]
    feed.clock.moment += DAY
    feed.collect(tmp_path / "feeds", 1 / 60)
    assert counts() == [("a", 2), ("b", 2)]


def test_a_station_that_left_is_closed(server: FeedServer, tmp_path: Path) -> None:
    feed = Feed(server)
    feed.collect(tmp_path / "feeds", 1.0)
    feed.answer = lambda _: status({"a": 4}, feed.clock.moment, reported=NOON)  # type: ignore[method-assign]
    feed.collect(tmp_path / "feeds", 1.0)
    minutes = panel(tmp_path / "feeds")["closed_minutes"]
    assert minutes.loc[:"2025-10-09 12:45"].sum() == 0
    assert (minutes.loc["2025-10-09 13:15":"2025-10-09 13:45"] == 15).all()


def test_a_folder_of_several_systems_asks_for_one(server: FeedServer, tmp_path: Path) -> None:
    for name in ("oslo", "bergen"):
        Feed(server).collect(tmp_path / "feeds", 1 / 60, name)
    with pytest.raises(InputError, match=r"contains 2 systems\. Name the one to read: .*feeds/bergen, .*feeds/oslo"):
        read_records(status=tmp_path / "feeds", timezone=UTC)
    with read_records(status=[str(tmp_path / "feeds" / "oslo")], timezone=UTC) as records:
        assert "polls" in records.tables


def test_the_files_of_a_history_are_listed_for_whoever_compares_their_content(
    server: FeedServer, tmp_path: Path
) -> None:
    feed = Feed(server)
    feed.collect(tmp_path / "feeds", 1 / 60)
    feed.clock.moment += DAY
    feed.collect(tmp_path / "feeds", 1 / 60)
    names = [path.name for path in expand(tmp_path / "feeds", "status")]
    assert names == ["changes.parquet", "documents.parquet", "polls.parquet", "stations.parquet", "2025-10-10.segment"]


def test_a_history_joins_an_older_log(server: FeedServer, tmp_path: Path) -> None:
    folder = Feed(server).collect(tmp_path / "feeds", 1.0)
    older = tmp_path / "older.csv"
    older.write_text("station_id,last_reported,num_bikes_available\na,2025-10-08 12:00,2\n")
    with read_records(status=[folder, older], timezone=UTC) as records:
        rows = records.connection.sql("""SELECT available FROM status WHERE station = 'a' ORDER BY "at" """).fetchall()
    assert rows == [(2,), (4,)]


@pytest.mark.slow
@pytest.mark.parametrize(("hours", "files"), [(2.0, "open/*.segment"), (14.0, "days/*/changes.parquet")])
def test_a_damaged_history_is_refused(server: FeedServer, tmp_path: Path, hours: float, files: str) -> None:
    folder = Feed(server).collect(tmp_path / "feeds", hours) / "city"  # from noon on
    build_panel(status=folder, timezone=UTC)
    damaged = next(folder.glob(files))
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 4
    damaged.write_bytes(content)
    with pytest.raises(FileFormatError, match=rf"{damaged.name}: was damaged or changed since it was collected"):
        build_panel(status=folder, timezone=UTC)


def test_half_characters_and_too_many_rows_of_a_feed_do_not_spoil_its_history(
    server: FeedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Feed(server)
    feed.collect(tmp_path / "feeds", 0.2)
    monkeypatch.setattr("unmet.collect.documents.MOST_ROWS", 2)
    for bikes in ({"half \ud800": 3}, {"a": 1, "b": 1, "c": 1}):
        monkeypatch.setattr(feed, "answer", lambda _, bikes=bikes: status(bikes, feed.clock.moment, reported=NOON))
        feed.collect(tmp_path / "feeds", 0.2)
    with read_records(status=tmp_path / "feeds", timezone=UTC) as records:
        assert records.connection.sql("SELECT DISTINCT station FROM status ORDER BY 1").fetchall() == [("a",), ("b",)]


def test_the_opening_hours_of_a_history_are_those_it_published_last(server: FeedServer, tmp_path: Path) -> None:
    feed = Feed(server)
    hours = [{"user_types": ["member"], "days": ["tue"], "start_time": "06:00:00", "end_time": "22:00:00"}]
    calendar = [{"start_month": 4, "start_day": 1, "end_month": 10, "end_day": 31}]
    server.routes |= {
        "/system_hours": document({"rental_hours": hours}),
        "/system_calendar": document({"calendars": calendar}),
    }
    folder = feed.collect(tmp_path / "feeds", 1.0, feeds=("system_hours", "system_calendar"))
    found = read_opening_hours(str(folder))
    assert found.week.sum() == 16 * 60
    assert found.seasons == ((((0, 4, 1), (0, 10, 31)),),)


def test_a_history_without_opening_hours_says_so(server: FeedServer, tmp_path: Path) -> None:
    folder = Feed(server).collect(tmp_path / "feeds", 1.0)
    with pytest.raises(InputError, match="has no system_hours, system_calendar or opening_hours"):
        read_opening_hours(str(folder))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="with one system"):
        read_opening_hours(str(tmp_path / "empty"))


def counts_of_type(folder: Path, kind: str) -> list[tuple[str, int]]:
    with read_records(status=folder, timezone=UTC, vehicle_type=kind) as records:
        return records.connection.sql("SELECT station, available FROM status ORDER BY rn").fetchall()


def test_vehicles_of_one_type_of_a_history(server: FeedServer, tmp_path: Path) -> None:
    """Station a: two e-bikes and one classic bike, from noon + 30 min on the classic one alone; b: classic bikes."""
    feed = Feed(server)

    def answer(_: Any) -> Reply:
        electric = 2 if feed.clock.moment < NOON + 1800 else 0
        by_type = {"a": {"e'1": electric, "b1": 1}, "b": {"b1": 7}}
        counts = [
            {
                "station_id": station,
                "vehicle_types_available": [{"vehicle_type_id": t, "count": n} for t, n in types.items()],
                "is_installed": True,
                "is_renting": True,
                "is_returning": True,
                "last_reported": NOON,
            }
            for station, types in by_type.items()
        ]
        return document({"stations": counts}, updated=feed.clock.moment, ttl=300)

    feed.answer = answer  # type: ignore[method-assign]
    kinds = {"e'1": "electric_assist", "b1": "human"}
    types = [{"vehicle_type_id": name, "propulsion_type": kind} for name, kind in kinds.items()]
    server.routes["/vehicle_types"] = document({"vehicle_types": types})
    folder = feed.collect(tmp_path / "feeds", 1.0, feeds=("vehicle_types",))
    electric = [("a", 2), ("b", 0), ("a", 0)]
    assert counts_of_type(folder, "electric") == counts_of_type(folder, "e'1") == electric
    assert counts_of_type(folder, "classic") == [("a", 1), ("b", 7), ("a", 1)]
    with pytest.raises(InputError, match=r"has no vehicle of type 'scooter'. Types in it: b1, e'1"):
        counts_of_type(folder, "scooter")
    assert panel(folder, "a", vehicle_type="electric")["stockout_minutes"].tolist() == [0, 0, 14]


def test_a_history_without_types_says_so(server: FeedServer, tmp_path: Path) -> None:
    folder = Feed(server).collect(tmp_path / "feeds", 1.0)
    with pytest.raises(InputError, match="its feed does not count vehicles by type"):
        counts_of_type(folder, "electric")
    server.routes["/vehicle_types"] = document({"vehicle_types": 5})
    folder = Feed(server).collect(tmp_path / "others", 1.0, feeds=("vehicle_types",))
    with pytest.raises(InputError, match="its feed does not count vehicles by type"):
        counts_of_type(folder, "electric")
