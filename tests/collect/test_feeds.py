from __future__ import annotations

import random

from feed_server import NOON

from unmet.collect.documents import Document
from unmet.collect.feeds import DAY, CollectorSettings, Feed, next_tick
from unmet.collect.requests import Answer

SETTINGS = CollectorSettings()
OK, WRONG = Answer(200, b"{}"), Answer(200, b"[")


def plan(feed: Feed, at: float, answer: Answer = OK, seed: int = 0) -> float:
    feed.plan(at, answer, answer is not OK, SETTINGS, random.Random(seed))
    return feed.due - at


def test_polls_keep_to_the_ticks_of_a_fixed_clock_however_late_they_are() -> None:
    feed = Feed("station_status", "http://x", phase=7.0)
    at = next_tick(NOON, 60.0, 7.0)
    for lateness in (0.0, 0.3, 59.0, 0.0):
        plan(feed, at + lateness)
        assert feed.due == at + 60
        at += 60
    plan(feed, at + 130)  # two ticks were missed; they are not made up for
    assert feed.due == at + 180
    plan(feed, feed.due - 0.001)  # a sleep that ended a moment early
    assert feed.due == at + 240


def test_the_ttl_makes_intervals_longer_up_to_an_hour_and_never_shorter() -> None:
    for ttl, interval in ((0.0, 60), (30.0, 60), (300.0, 300), (5e8, 3600)):
        feed = Feed("station_status", "http://x", ttl=ttl)
        assert plan(feed, NOON) == interval


def test_failures_back_off_with_jitter_up_to_the_longest_and_stop_when_the_feed_answers() -> None:
    feed = Feed("station_status", "http://x")
    at, waits = NOON, []
    for i in range(12):
        waits.append(plan(feed, at, Answer(503, error="HTTP 503"), seed=i))
        at = feed.due
    assert waits[0] == 60
    assert 450 <= max(waits) <= 960
    assert len(set(waits[5:])) > 1
    assert plan(feed, at) == 60


def test_retry_after_is_kept_and_has_a_limit() -> None:
    feed = Feed("station_status", "http://x")
    assert plan(feed, NOON, Answer(429, retry_after=1000.0, error="HTTP 429")) == 1020
    assert 0 <= plan(feed, NOON + 1020, Answer(429, retry_after=1e12, error="HTTP 429")) - DAY <= 60


def test_a_wrong_document_is_polled_at_the_usual_pace() -> None:
    feed = Feed("station_status", "http://x")
    assert [plan(feed, NOON + 60 * i, WRONG) for i in range(10)] == [60.0] * 10


def test_what_is_read_once_a_day_is_due_at_midnight_and_sooner_after_a_failure() -> None:
    feed = Feed("vehicle_types", "http://x", daily=True)
    assert plan(feed, NOON, Answer(None, error="no answer")) == 60
    assert plan(feed, NOON + 60) == DAY / 2 - 60


def test_an_older_document_is_refused_until_the_publisher_means_it() -> None:
    feed = Feed("station_status", "http://x")
    feed.accept(Document(NOON, 60.0, {}), OK, NOON)
    older = Document(NOON - 500, 60.0, {})
    assert feed.refuse(older, NOON + 60, SETTINGS) == "last_updated went back by 500 s"
    assert feed.refuse(Document(NOON, 60.0, {}), NOON + 120, SETTINGS) is None
    assert feed.refuse(older, NOON + 180, SETTINGS) is not None
    assert feed.refuse(older, NOON + 180 + SETTINGS.dead_after, SETTINGS) is None
    feed.accept(older, OK, NOON + 3000)
    assert feed.updated == NOON - 500


def test_a_publisher_is_dead_when_its_time_stands_still_and_only_then() -> None:
    feed = Feed("station_status", "http://x")
    feed.accept(Document(NOON, 60.0, {}), OK, NOON)
    assert not feed.is_dead(NOON + 1800, SETTINGS)
    assert feed.is_dead(NOON + 1801, SETTINGS)
    feed.accept(Document(NOON + 1, 60.0, {}), OK, NOON + 1802)
    assert not feed.is_dead(NOON + 1900, SETTINGS)
    slow = Feed("station_status", "http://x")
    slow.accept(Document(NOON, 600.0, {}), OK, NOON)
    assert not slow.is_dead(NOON + 3000, SETTINGS)  # five intervals of its own
    without = Feed("station_status", "http://x")
    without.accept(Document(None, 60.0, {}), OK, NOON)
    assert not without.is_dead(NOON + 1e6, SETTINGS)
