from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from feed_server import NOON, FeedServer, JumpingClock, Reply, Request, document, information, packed, status

from unmet._exceptions import InputError, MissingExtraError
from unmet._storage.parquet import read_parquet
from unmet.collect import Clock, Collected, CollectorSettings, System, SystemHistory, collect
from unmet.collect.history import day_of
from unmet.collect.summary import summarise

DAY = 86_400.0


class City:
    """A server, a clock and a folder."""

    def __init__(self, server: FeedServer, folder: Path) -> None:
        self.server, self.folder, self.clock = server, folder, JumpingClock()
        self.bikes = {"a": 3, "b": 5}
        self.notes: list[str] = []
        server.list_feeds("station_status", "station_information")
        server.routes |= {
            "/station_status": lambda _: status(self.bikes, self.clock.moment),
            "/station_information": lambda _: information(*self.bikes, updated=self.clock.moment),
        }

    def collect(self, seconds: float = 600.0, **options: Any) -> Collected:
        """Collect for some seconds of the city's clock."""
        settings = CollectorSettings(timeout=options.pop("timeout", 20.0), most_bytes=100_000)
        headers = options.pop("headers", {})
        work = collect(
            [System("city", f"{self.server.url}/gbfs.json", headers)],
            self.folder,
            settings=settings,
            clock=self.clock,
            until=self.clock.moment + seconds,
            note=self.notes.append,
            **options,
        )
        return asyncio.run(work)["city"]

    @property
    def history(self) -> SystemHistory:
        return SystemHistory(self.folder / "city")

    def table(self, name: str) -> pd.DataFrame:
        scratch = self.folder.parent / "scratch"
        scratch.mkdir(exist_ok=True)
        files = self.history.files(name, scratch)
        return pd.concat([read_parquet(path) for path in files], ignore_index=True) if files else pd.DataFrame()

    def polls(self, feed: str = "station_status") -> pd.DataFrame:
        polls = self.table("polls")
        return polls[polls["feed"] == feed].reset_index(drop=True)

    def asked(self, path: str = "/station_status") -> list[Request]:
        return [request for request in self.server.requests if request.path == path]


@pytest.fixture
def city(tmp_path: Path) -> Iterator[City]:
    with FeedServer() as server:
        yield City(server, tmp_path / "feeds")


def test_every_minute_is_polled_once_and_changes_are_kept(city: City) -> None:
    def moving(_: Request) -> Reply:
        city.bikes["a"] = int((city.clock.moment - NOON) // 120)
        return packed(status(city.bikes, city.clock.moment))

    city.server.routes["/station_status"] = moving
    collected = city.collect(600.0)
    polls = city.polls()
    assert len(polls) == len(city.asked()) == 11  # at once, and at ten ticks
    assert (polls["poll_time"].diff().dt.total_seconds()[2:] == 60).all()
    assert polls["error"].isna().all()
    assert (polls["http_status"] == 200).all()
    assert (polls["rows"] == 2).all()
    assert (polls["ttl"] == 60).all()
    changes = city.table("changes")
    assert changes[changes["station_id"] == "a"]["num_bikes_available"].tolist() == [0, 1, 2, 3, 4]
    assert changes[changes["station_id"] == "b"]["num_bikes_available"].tolist() == [5]
    assert collected == Collected(polls=13, failed=0, changes=9)
    assert polls["changes"].sum() == 6
    assert city.table("stations")["name"].tolist() == ["Street a", "Street b"]
    assert json.loads(city.table("stations")["fields"][0]) == {"short_name": "S0"}
    assert city.notes == []


def test_requests_name_the_program_and_its_contact(city: City) -> None:
    system = System("city", f"{city.server.url}/gbfs.json")
    settings = CollectorSettings(contact="ops@example.com")
    asyncio.run(collect([system], city.folder, settings=settings, clock=city.clock, once=True))
    agents = {request.headers["User-Agent"] for request in city.server.requests}
    assert len(agents) == 1
    agent = agents.pop()
    assert agent.startswith("unmet/")
    assert "ops@example.com" in agent


def test_a_304_is_a_successful_poll(city: City) -> None:
    whole = status(city.bikes, NOON, ETag='"v1"')
    city.server.routes["/station_status"] = lambda r: Reply(304) if "If-None-Match" in r.headers else whole
    city.collect(300.0)
    polls = city.polls()
    assert polls["http_status"].tolist() == [200, 304, 304, 304, 304, 304]
    assert polls["error"].isna().all()
    assert polls["rows"].isna().tolist() == [False, *[True] * 5]
    assert len(city.table("changes")) == 2


def test_a_new_day_begins_whole_although_nothing_changed(city: City) -> None:
    whole = status(city.bikes, NOON, ETag='"v1"')
    city.server.routes["/station_status"] = lambda r: Reply(304) if "If-None-Match" in r.headers else whole
    city.clock.moment = NOON + DAY / 2 - 180
    city.collect(360.0)
    assert city.history.finished_days() == [day_of(NOON)]
    assert city.history.open_days() == [day_of(NOON + DAY)]
    changes = city.table("changes")
    assert changes["poll_time"].dt.day.tolist() == [9, 9, 10, 10]
    assert changes["restated"].tolist() == [False, False, True, True]
    assert city.table("stations")["valid_from"].dt.day.tolist() == [9, 9, 10, 10]
    assert city.table("documents")["poll_time"].dt.day.tolist() == [9, 10]
    assert len(city.polls()) == len(city.asked())


def test_stations_that_come_and_go_are_closed_and_opened_also_over_night_and_a_restart(city: City) -> None:
    city.server.routes["/station_status"] = lambda _: status(city.bikes, city.clock.moment, reported=NOON)
    city.collect(120.0)
    city.bikes = {"a": 3}
    city.clock.moment = NOON + DAY  # down over midnight
    city.collect(120.0)
    city.bikes = {"a": 3, "b": 1}
    city.collect(120.0)
    changes = city.table("changes")
    of_b = changes[changes["station_id"] == "b"]
    assert of_b["left_feed"].tolist() == [False, True, False]
    assert of_b["is_installed"].tolist() == [True, False, True]
    assert changes[changes["station_id"] == "a"]["restated"].tolist() == [False, True]
    # Once more, with the day of the last records finished by then.
    city.history.finish(day_of(NOON + DAY))
    city.bikes = {"b": 1}
    city.clock.moment = NOON + 4 * DAY
    city.collect(60.0)
    changes = city.table("changes")
    assert changes[changes["station_id"] == "a"]["left_feed"].tolist() == [False, False, True]
    assert changes[changes["station_id"] == "b"]["restated"].tolist() == [False, False, False, True]


def test_the_server_is_left_in_peace_when_it_asks_for_that(city: City) -> None:
    answers = iter([Reply(429, b"", {"Retry-After": "300"}), Reply(500)])
    city.server.routes["/station_status"] = lambda _: next(answers, status(city.bikes, city.clock.moment))
    city.collect(900.0)
    polls = city.polls()
    assert polls["http_status"].tolist()[:3] == [429, 500, 200]
    assert polls["error"].tolist()[:2] == ["HTTP 429", "HTTP 500"]
    waits = polls["poll_time"].diff().dt.total_seconds()
    assert 300 <= waits[1] <= 360
    assert waits[2] == 120  # 60 to 120 s after the second failure, at a tick
    assert (waits[3:] == 60).all()
    assert city.notes == [
        "city: station_status: HTTP 429.",
        "city: station_status: answers again, after 2 failed polls.",
    ]


def test_a_station_that_is_listed_twice_is_counted_and_named_once(city: City) -> None:
    content = json.loads(status(city.bikes, NOON).body)
    again = dict(content["data"]["stations"][0], num_bikes_available=9)
    content["data"]["stations"].append(again)
    city.server.routes["/station_status"] = lambda _: Reply(200, json.dumps(content).encode())
    city.collect(150.0)
    assert set(city.polls()["unreadable"]) == {1}
    changes = city.table("changes")
    assert changes[["station_id", "num_bikes_available", "left_feed"]].to_numpy().tolist() == [
        ["a", 9, False],
        ["b", 5, False],
    ]
    assert city.notes == [
        "city: station_status has several entries with the same id, such as 'a' (ids: 1): the last one is kept."
    ]
    assert summarise(city.history, city.clock.moment).unreadable == 1


def test_one_document_of_a_far_future_does_not_make_all_later_ones_old(city: City) -> None:
    moments = iter([city.clock.moment + 70 * 365 * DAY])
    city.server.routes["/station_status"] = lambda _: status(city.bikes, next(moments, city.clock.moment))
    city.collect(200.0)
    polls = city.polls()
    assert polls["error"].isna().all()
    assert polls["last_updated"].isna().tolist() == [True, *[False] * (len(polls) - 1)]
    assert city.notes == []


def test_answers_that_cannot_be_used_are_polls_with_an_error_and_lose_nothing(city: City) -> None:
    good = status(city.bikes)
    bad = {
        "not a whole JSON document": Reply(200, good.body[:-10]),
        "RemoteProtocolError": Reply(200, good.body, cut=10),
        "expected an object": Reply(200, b"[1, 2]"),
        "expected a list": document({"bikes": []}),
        "no answer in time": Reply(stall=True),
        "larger than 100,000": Reply(200, b"[" * 200_000),
        "recursion": Reply(200, b"[" * 90_000),
        "can't decode byte 0xed": Reply(200, good.body.replace(b'"a"', b'"\xed\xa0\x80"')),  # half a character
        "can't decode byte 0xff": Reply(200, good.body.decode().replace('"a"', '"\\ud800"').encode("utf-16")),
        "more than 5 redirects": Reply(302, b"", {"Location": "/station_status"}),
        "not http or https": Reply(302, b"", {"Location": "file:///etc/passwd"}),
    }
    for reply in bad.values():
        city.server.routes["/station_status"] = reply
        city.collect(1.0, once=True, timeout=0.5 if reply.stall else 20.0)
    city.server.routes["/station_status"] = good
    city.collect(1.0, once=True)
    errors = city.polls()["error"].tolist()
    assert len(errors) == len(bad) + 1
    for expected, found in zip(bad, errors, strict=False):
        assert expected in found
    assert errors[-1] is None or pd.isna(errors[-1])
    assert len(city.table("changes")) == 2


def test_a_list_of_feeds_that_could_not_be_kept_is_not_used(city: City) -> None:
    good = city.server.routes["/gbfs.json"]
    assert isinstance(good, Reply)
    city.server.routes["/gbfs.json"] = Reply(200, good.body.decode().encode("utf-16"))
    city.collect(60.0)
    assert not city.asked()
    city.server.routes["/gbfs.json"] = Reply(200, b"\xef\xbb\xbf" + good.body)
    city.collect(600.0)
    asked = len(city.asked())
    city.server.routes["/gbfs.json"] = Reply(503)
    city.collect(60.0)  # the list is taken up from the history
    assert len(city.asked()) > asked > 0


def test_a_document_with_more_news_than_a_frame_holds_is_a_failed_poll_and_forgotten(
    city: City, monkeypatch: pytest.MonkeyPatch
) -> None:
    city.collect(1.0, once=True)
    city.bikes = {f"s{i}": 1 for i in range(50)}
    with monkeypatch.context() as limited:
        limited.setattr("unmet.collect.segments.MOST_VALUES", 100_500)
        city.collect(1.0, once=True)
    assert "too much to be kept" in city.polls()["error"].iloc[-1]
    city.bikes = {"a": 3, "c": 1}
    city.collect(1.0, once=True)
    changes = city.table("changes").query("not restated").iloc[2:]
    assert sorted(zip(changes["station_id"], changes["left_feed"], strict=True)) == [("b", True), ("c", False)]


def test_an_older_document_from_a_cache_is_not_used(city: City) -> None:
    def flapping(_: Request) -> Reply:
        minute = (city.clock.moment - NOON) // 60
        old = minute % 3 == 2
        return status({"a": 1 if old else 4, "b": 5}, NOON if old else city.clock.moment)

    city.server.routes["/station_status"] = flapping
    city.collect(1200.0)
    changes = city.table("changes")
    assert changes[changes["station_id"] == "a"]["num_bikes_available"].tolist() == [4]
    assert city.polls()["error"].dropna().str.startswith("last_updated went back by").sum() == 6  # minutes 2, 5 ... 17


def test_a_clock_that_the_publisher_set_back_is_believed_in_the_end(city: City) -> None:
    city.collect(120.0)
    back = NOON - 7200 - city.clock.moment
    city.bikes = {"a": 0, "b": 5}
    city.server.routes["/station_status"] = lambda _: status(city.bikes, city.clock.moment + back)
    city.collect(3600.0)
    assert city.polls()["error"].isna().tolist()[-20:] == [True] * 20
    assert city.table("changes")["num_bikes_available"].tolist() == [3, 5, 0]


def test_a_feed_whose_time_stands_still_is_reported_once(city: City) -> None:
    city.server.routes["/station_status"] = status(city.bikes, NOON)
    city.collect(2400.0)
    (note,) = city.notes
    assert note.startswith("city: station_status answers, but its last_updated has not changed for 3")
    assert city.polls()["error"].isna().all()


def test_secrets_go_to_their_origin_only_and_are_written_nowhere(city: City) -> None:
    with FeedServer() as other:
        other.routes["/station_information"] = information("a")
        listed = [
            {"name": "station_status", "url": f"{city.server.url}/station_status"},
            {"name": "station_information", "url": f"{other.url}/station_information"},
            {"name": "vehicle_types", "url": "file:///etc/passwd"},
            {"name": "system_hours", "url": "http://127.0.0.1:99999/"},
        ]
        city.server.routes["/gbfs.json"] = document({"feeds": listed})
        city.collect(120.0, headers={"Authorization": "Bearer hush-hush"})
        assert {request.headers.get("Authorization") for request in city.server.requests} == {"Bearer hush-hush"}
        assert [request.headers.get("Authorization") for request in other.requests] == [None]
    errors = city.table("polls").dropna(subset="error").groupby("feed")["error"].first()
    assert errors["vehicle_types"] == "the address is not http or https"
    assert "system_hours" in errors
    everything = b"".join(path.read_bytes() for path in city.folder.rglob("*") if path.is_file())
    assert b"hush" not in everything + city.table("polls").to_csv().encode() + "".join(city.notes).encode()


def test_vehicles_are_kept_beside_stations_and_neither_starves_the_other(city: City) -> None:
    city.server.list_feeds("station_status", "vehicle_status", "free_bike_status")
    vehicles = [{"vehicle_id": "v", "lat": 1.0, "lon": 2.0, "is_reserved": False, "is_disabled": False}]
    city.server.routes["/vehicle_status"] = lambda _: document({"vehicles": vehicles}, city.clock.moment)
    city.collect(600.0)
    assert len(city.polls("station_status")) == len(city.polls("vehicle_status")) == 11
    assert len(city.polls("free_bike_status")) == 0
    assert city.table("vehicles")["lat"].tolist() == [1.0]


def test_once_polls_the_present_and_what_is_daily_only_if_it_was_not_read_today(city: City) -> None:
    for _ in range(3):
        city.collect(1.0, once=True)
        city.clock.moment += 300
    assert len(city.polls()) == 3
    assert len(city.polls("station_information")) == len(city.polls("gbfs")) == 1
    city.clock.moment += DAY
    city.collect(1.0, once=True)
    assert len(city.polls("station_information")) == len(city.polls("gbfs")) == 2


def test_a_collector_that_starts_again_keeps_to_its_ticks_and_repeats_nothing(city: City) -> None:
    for _ in range(4):
        city.collect(150.0)
    polls = city.polls()
    assert not polls["poll_time"].duplicated().any()
    assert (polls["poll_time"].diff().dt.total_seconds()[2:] >= 60).all()
    assert len(city.table("changes")) == 2
    assert len(city.polls("gbfs")) == 1


def test_polls_one_by_one_are_conditional_and_use_no_older_document(city: City) -> None:
    """As cron polls: every poll is a process of its own."""

    def answer(request: Request) -> Reply:
        minute = (city.clock.moment - NOON) // 60
        if minute == 10:
            return status({"a": 0, "b": 0}, NOON - 60, ETag='"old"')  # from a cache
        tag = f'"{minute // 10}"'
        same = request.headers.get("If-None-Match") == tag
        return Reply(304, headers={"ETag": tag}) if same else status(city.bikes, NOON + minute // 10 * 600, ETag=tag)

    city.server.routes["/station_status"] = answer
    city.clock.moment = NOON + 300
    for _ in range(5):
        city.collect(1.0, once=True)
        city.clock.moment += 150
    polls = city.polls()
    assert polls["http_status"].tolist() == [200, 304, 200, 200, 304]
    assert polls["error"].isna().tolist() == [True, True, False, True, True]
    assert city.table("changes")["num_bikes_available"].tolist() == [3, 5]


def test_polls_one_by_one_report_a_dead_publisher_once_and_believe_a_clock_that_was_set_back(city: City) -> None:
    city.server.routes["/station_status"] = status(city.bikes, NOON)
    for _ in range(10):
        city.collect(1.0, once=True)
        city.clock.moment += 300
    (note,) = city.notes
    assert "has not changed for 35 minutes" in note
    city.server.routes["/station_status"] = lambda _: status({"a": 1}, city.clock.moment - 7200)
    for _ in range(8):
        city.collect(1.0, once=True)
        city.clock.moment += 300
    assert city.polls()["error"].isna().tolist()[-8:] == [False] * 6 + [True] * 2
    assert city.notes[1:-1] == ["city: station_status: last_updated went back by 4200 s."]
    assert city.notes[-1] == "city: station_status: answers again, after 6 failed polls."


def test_a_restart_keeps_to_the_ttl(city: City) -> None:
    city.server.routes["/station_status"] = lambda _: status(city.bikes, city.clock.moment, ttl=900)
    for _ in range(6):
        city.collect(300.0)
    assert len(city.polls()) <= 3


def test_a_restart_keeps_to_the_waits_after_failures(city: City) -> None:
    city.server.routes["/station_status"] = Reply(503)
    for _ in range(12):
        city.collect(300.0)
    assert 4 <= len(city.polls()) <= 10


def test_a_kill_before_the_first_document_of_a_day_forgets_neither_feeds_nor_stations(city: City) -> None:
    city.collect(60.0)
    city.clock.moment += DAY
    city.server.routes |= {"/gbfs.json": Reply(503), "/station_status": Reply(503)}
    city.collect(1.0, once=True)  # finishes the first day
    city.collect(1.0, once=True)
    del city.bikes["a"]
    city.server.routes["/station_status"] = lambda _: status(city.bikes, city.clock.moment)
    city.clock.moment += 900
    city.collect(60.0)
    last = city.table("changes").iloc[-2:].set_index("station_id")
    assert last["left_feed"].to_dict() == {"a": True, "b": False}


def test_stop_ends_a_single_round_too(city: City) -> None:
    async def stopped() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def answer(_: Request) -> Reply:
            loop.call_soon_threadsafe(stop.set)
            return status(city.bikes)

        city.server.routes["/station_status"] = answer
        system = System("city", f"{city.server.url}/gbfs.json")
        await collect([system], city.folder, clock=city.clock, once=True, stop=stop)

    asyncio.run(stopped())
    assert len(city.polls()) == 1
    assert city.polls("station_information").empty


def test_the_list_of_feeds_is_remembered_while_it_cannot_be_read(city: City) -> None:
    city.collect(60.0)
    city.server.routes["/gbfs.json"] = Reply(503)
    city.clock.moment += DAY
    city.collect(300.0)
    assert len(city.polls()) >= 6


def test_a_feed_without_stations_or_vehicles_is_noted(city: City) -> None:
    city.server.list_feeds("system_information")
    city.server.routes["/system_information"] = document({"system_id": "x"})
    city.collect(60.0)
    assert city.notes == ["city: gbfs.json lists neither station_status nor a feed of vehicles."]


def test_stop_ends_it_when_the_poll_under_way_is_written(city: City) -> None:
    async def stopped() -> dict[str, Collected]:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def answer(_: Request) -> Reply:
            loop.call_soon_threadsafe(stop.set)
            return status(city.bikes)

        city.server.routes["/station_status"] = answer
        system = System("city", f"{city.server.url}/gbfs.json")
        return await collect([system], city.folder, clock=city.clock, stop=stop)

    asyncio.run(stopped())
    assert len(city.polls()) == 1
    assert len(city.table("changes")) == 2


def test_a_second_collector_on_the_same_folder_is_refused(city: City) -> None:
    refused: list[str] = []

    async def both() -> None:
        stop = asyncio.Event()
        system = System("city", f"{city.server.url}/gbfs.json")
        first = asyncio.create_task(collect([system], city.folder, clock=Clock(), stop=stop))
        while not (city.folder / "city" / "open").exists():
            await asyncio.sleep(0)
        try:
            await collect([system], city.folder, clock=city.clock, once=True)
        except InputError as error:
            refused.append(str(error))
        stop.set()
        await first

    asyncio.run(both())
    assert len(refused) == 1
    assert "another run is using this folder" in refused[0]


def test_a_clock_behind_the_records_is_refused(city: City) -> None:
    city.collect(60.0)
    city.clock.moment -= DAY
    with pytest.raises(InputError, match="has records of 2025-10-09, but this machine's clock is at 2025-10-08"):
        city.collect(60.0)
    city.clock.moment += 2 * DAY
    city.collect(60.0)
    city.clock.moment -= DAY  # the same day, but it is finished
    with pytest.raises(InputError, match="Set the clock right"):
        city.collect(60.0)


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("..", "http://x/"),
        ("a/b", "http://x/"),
        ("", "http://x/"),
        ("a", "ftp://x/"),
        ("a", "gbfs.json"),
        ("a", "http://x:99999/"),
    ],
)
def test_names_that_are_no_folder_and_addresses_that_are_none_are_refused(name: str, address: str) -> None:
    with pytest.raises(InputError, match="expected"):
        System(name, address)


def test_two_systems_of_one_name_are_refused(city: City) -> None:
    system = System("city", f"{city.server.url}/gbfs.json")
    with pytest.raises(InputError, match="the same name"):
        asyncio.run(collect([system, system], city.folder))


def test_a_disk_that_is_full_ends_it_with_the_reason(city: City, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("unmet.collect.segments.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        city.collect(60.0)


def test_without_httpx_the_extra_is_named(city: City, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(MissingExtraError, match=r"unmet\[collect\]"):
        city.collect(60.0)


def test_several_systems_share_one_process(tmp_path: Path) -> None:
    with FeedServer() as server:
        systems = []
        for i in range(5):
            server.list_feeds("station_status", prefix=f"/{i}")
            server.routes[f"/{i}/station_status"] = status({f"s{i}": i})
            systems.append(System(f"city{i}", f"{server.url}/{i}/gbfs.json"))
        counts = asyncio.run(collect(systems, tmp_path, once=True, clock=JumpingClock()))
    assert {name: count.polls for name, count in counts.items()} == {f"city{i}": 2 for i in range(5)}


@pytest.mark.data
def test_real_documents_of_all_versions_are_collected(data_dir: Path, tmp_path: Path) -> None:
    with FeedServer() as server:
        folder = data_dir / "fixtures" / "gbfs"
        systems, versions = [], ("v1.0", "v1.1", "v2.0", "v2.1", "v2.3", "v3.0")
        for version in versions:
            files = {path.stem: path for path in (folder / f"entur_{version}").glob("*.json")}
            server.list_feeds(*files, prefix=f"/{version}")
            server.routes |= {
                f"/{version}/{name}": Reply(200, path.read_bytes()) for name, path in files.items() if name != "gbfs"
            }
            systems.append(System(version, f"{server.url}/{version}/gbfs.json"))
        real = folder.parent / "gbfs_real"
        server.list_feeds("station_status", "station_information", prefix="/real")
        for feed in ("station_status", "station_information"):
            content = (real / f"citibike_2019-07-05_{feed}.json.gz").read_bytes()
            server.routes[f"/real/{feed}"] = Reply(200, content, {"Content-Encoding": "gzip"})
        systems.append(System("real", f"{server.url}/real/gbfs.json"))
        counts = asyncio.run(collect(systems, tmp_path, once=True, clock=JumpingClock()))
    assert all(count.failed == 0 for count in counts.values()), counts
    changes = read_parquet(SystemHistory(tmp_path / "real").files("changes", tmp_path)[0])
    assert len(changes) == 845
    assert changes["num_bikes_available"].between(0, 200).all()
    stations = read_parquet(SystemHistory(tmp_path / "real").files("stations", tmp_path)[0])
    assert len(stations) == 845
    v3 = read_parquet(SystemHistory(tmp_path / "v3.0").files("changes", tmp_path)[0])
    assert len(v3) >= 1


def test_a_validator_that_cannot_be_sent_back_does_not_stop_the_feed(city: City) -> None:
    city.server.routes["/station_status"] = lambda _: status(city.bikes, city.clock.moment, ETag='"caf\xe9"')
    city.collect(600.0)
    assert city.polls()["error"].isna().all()
