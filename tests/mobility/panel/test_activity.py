"""Activity and pauses of a system against readings of single minutes."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from unmet.execution import serially
from unmet.mobility.panel.activity import Activity, find_pauses, watch_status, watch_trips
from unmet.mobility.panel.groups import Workers, make_groups
from unmet.mobility.panel.options import PanelOptions
from unmet.mobility.panel.trip_counts import TripCounts
from unmet.mobility.records.read import read_records
from unmet.mobility.supply.cadence import REGULAR, Cadence, Intervals, usual_intervals
from unmet.mobility.supply.polls import Polls
from unmet.mobility.supply.silence import Feed, StationActivity
from unmet.mobility.supply.states import FAR_APART, FEED_SILENT, OUTSIDE_HOURS, STANDSTILL
from unmet.mobility.supply.status_log import sort_status
from unmet.simulate import simulate_city

ZONE, DAY, WEEK = "America/New_York", 1440, 7 * 1440
OPTIONS = PanelOptions(timezone=ZONE)


def minutes(stretches) -> list[int]:
    """Every minute of some stretches, as often as they contain it."""
    return sorted(m for begin, end in np.asarray(stretches).tolist() for m in range(begin, end))


def minutes_of(pauses, reason) -> list[int]:
    return minutes([[o.begin, o.end] for o in pauses.overrides if o.reason == reason])


def trips_at(starts) -> TripCounts:
    starts = np.unique(np.asarray(starts, dtype=np.int64))
    nothing = np.zeros((1, 1), dtype=np.int32)
    return TripCounts(nothing, nothing, None, len(starts), starts, starts)


def feed(records, *, moves=None, shut=0, polled=True) -> Feed:
    records = np.asarray(records, dtype=np.int64)
    heard = np.flatnonzero(records)
    looks = Intervals(len(records))
    looks.add(heard[:-1], np.diff(heard))
    usual, near = usual_intervals(looks)
    cadence = Cadence(usual, near >= REGULAR, np.full(len(usual), polled))
    moves = records if moves is None else moves
    stations, closed = np.full(len(records), 4), np.full(len(records), shut)
    return Feed(0, records, moves, moves > 0, stations, closed, cadence)


def stations() -> StationActivity:
    """Activity of no station: pauses depend on whether there is a status, not on its stations."""
    none = np.empty(0, dtype=np.int64)
    return StationActivity(none.astype(float), *[none] * 4, (0, 0), *[none] * 5, 1.0)


def test_without_status_the_holes_are_the_minutes_that_no_two_trips_a_week_apart_enclose():
    rng = np.random.default_rng(1)
    starts = np.concatenate([first + rng.integers(0, 2 * DAY, 30) for first in (500, 4 * DAY, 15 * DAY, 40 * DAY)])
    period = 0, 43 * DAY
    found = watch_trips(trips_at(starts), period)
    at = sorted(set(starts.tolist()))
    covered = {m for a, b in pairwise(at) if b - a <= WEEK for m in range(a, b + 1)}
    assert minutes(found.holes) == [m for m in range(*period) if m not in covered]
    assert found.has_trips
    assert found.stations is None
    assert len(found.silent) == len(found.missing) == 0
    moved = [found.feed.first + i for i in np.flatnonzero(found.feed.moves)]
    assert moved == at


@pytest.fixture(scope="module")
def city():
    return simulate_city(8, 16, seed=3, realistic=True, feed_gaps=1, timezone=ZONE)


@pytest.fixture(scope="module")
def log(city, tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    with read_records(None, city.status, city.stations, timezone=ZONE, keep_duplicates=True) as records:
        return sort_status(records.connection, [*range(8)], [*range(8)], folder, 1 << 30, len(city.status))


def starts_of(city) -> np.ndarray:
    local = pd.to_datetime(city.trips["started_at"]).dt.tz_localize(ZONE, ambiguous=False)
    return (local.dt.tz_convert("UTC").dt.tz_localize(None).astype("M8[s]").astype(np.int64) // 60).to_numpy()


def test_with_status_the_holes_are_the_uncovered_minutes_and_those_of_missing_trips(city, log):
    groups = make_groups(Workers(), 8, log.group, log.records)
    every = starts_of(city)
    period = log.first_minute - 300, log.last_minute + 200
    lost = log.first_minute + 8 * DAY, log.first_minute + 11 * DAY
    starts = every[(every < lost[0]) | (every >= lost[1])]
    found = watch_status(log, None, trips_at(starts), period, 8, groups)
    before, after = starts[starts < lost[0]].max(), starts[starts >= lost[1]].min()
    assert minutes(found.missing) == [*range(before + 1, after)]
    outside = [m for m in range(*period) if not starts.min() <= m <= starts.max()]
    assert minutes(found.holes) == sorted(outside + minutes(found.missing))
    assert (np.diff(found.holes.ravel()) > 0).all()  # in order and apart
    inside = starts[(starts >= log.first_minute) & (starts <= log.last_minute)]
    assert found.feed.moving[inside - log.first_minute].all()
    assert len(found.silent) > 0
    assert found.has_trips
    complete = watch_status(log, None, trips_at(every), period, 8, groups)
    assert len(complete.missing) == 0


def test_without_trips_the_whole_period_is_a_hole(log):
    groups = make_groups(Workers(), 8, log.group, log.records)
    period = log.first_minute + 100, log.last_minute - 50
    found = watch_status(log, None, None, period, 8, groups)
    assert found.holes.tolist() == [[*period]]
    assert not found.has_trips
    assert len(found.missing) == 0
    assert found.stations.within == (log.first_minute, log.last_minute + 1)


def test_stations_are_compared_in_the_time_that_trips_and_period_share(city, log):
    groups = make_groups(Workers(), 8, log.group, log.records)
    starts = starts_of(city)
    for period in ((starts[0] - 90, starts[-1] + 80), (starts.min() + DAY, starts.max() - 2 * DAY)):
        both = set(range(*period)) & set(range(starts.min(), starts.max() + 1))
        found = watch_status(log, None, trips_at(starts), period, 8, groups)
        assert found.stations.within == (min(both), max(both) + 1)


@pytest.mark.parametrize(("apart", "parts"), [(20, 3), (300, 0)])
def test_the_activity_does_not_depend_on_the_groups(tmp_path, apart, parts):
    """With three records of each station in a minute the groups are counted apart; with few records, at once."""
    rng = np.random.default_rng(2)
    seconds = np.tile(np.arange(0, 5 * 3600, apart), 6)
    status = pd.DataFrame(
        {
            "station_id": np.repeat([*"abcdef"], len(seconds) // 6),
            "last_reported": pd.Timestamp("2024-03-04 12:00", tz="UTC") + pd.to_timedelta(seconds, unit="s"),
            "num_bikes_available": rng.integers(0, 4, len(seconds)),
        }
    )
    with read_records(None, status, None, timezone=ZONE, keep_duplicates=True) as records:
        log = sort_status(records.connection, [*range(6)], [*range(6)], tmp_path, 1 << 30, len(status))
    begun = []

    def counting(function, items, jobs):
        for item, outcome in serially(function, items, jobs):
            begun.append(item)
            yield item, outcome

    period = log.first_minute, log.last_minute + 1
    whole, in_parts = (
        watch_status(log, None, None, period, 8, make_groups(workers, 6, log.group, log.records))
        for workers in (Workers(), Workers(counting, groups=3))
    )
    assert len(begun) == parts
    for one, other in ((whole.feed, in_parts.feed), (whole.stations, in_parts.stations)):
        for field in fields(one):
            if field.name != "cadence":
                np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), field.name)


def test_the_polls_are_kept_and_say_what_is_silent(log):
    groups = make_groups(Workers(), 8, log.group, log.records)
    period = log.first_minute, log.last_minute + 1
    polled = np.arange(*period)
    gap = period[0] + 3 * DAY, period[0] + 3 * DAY + 90
    polled = polled[(polled < gap[0]) | (polled >= gap[1])]
    polls = Polls(polled, polled)
    found = watch_status(log, polls, None, period, 8, groups)
    assert found.feed.polls is polls
    assert set(minutes(found.silent)) == set(range(*gap))


def test_every_pause_has_its_reason_minute_by_minute():
    """Ten days of records in every minute: an outage of five hours, and a closure of five hours on another day."""
    records = np.full(10 * DAY, 3)
    moves = records.copy()
    outage, closure = (4 * DAY + 600, 4 * DAY + 900), (7 * DAY + 600, 7 * DAY + 900)
    records[slice(*outage)] = moves[slice(*outage)] = moves[slice(*closure)] = 0
    one = feed(records, moves=moves)
    holes = np.array([[0, 10 * DAY]])
    found = find_pauses(Activity(one, holes, True, stations(), np.array([outage])), OPTIONS, (0, 10 * DAY), ZONE)
    assert minutes_of(found, FEED_SILENT) == minutes(found.silent) == [*range(*outage)]
    assert minutes_of(found, STANDSTILL) == minutes(found.closures) == [*range(*closure)]
    assert len(found.overrides) == 2


@pytest.mark.parametrize(
    ("has_status", "has_trips", "supply", "is_found"),
    [
        (True, True, "usable", True),
        (True, False, "listed", True),
        (True, False, "usable", False),  # what could have happened between two looks is known
        (False, True, "usable", False),  # no pickup is inferred
    ],
)
def test_evenings_with_few_looks_are_pauses_where_pickups_are_inferred_and_looks_not_bridged(
    has_status, has_trips, supply, is_found
):
    records = np.full((12, DAY), 3)
    records[:, 18 * 60 :] = 0
    records[:, 18 * 60 :: 40] = 3
    one, hole = feed(records.reshape(-1)), (2 * DAY, 7 * DAY)
    activity = Activity(one, np.array([hole]), has_trips, stations() if has_status else None)
    options = replace(OPTIONS, supply=supply)
    found = find_pauses(activity, options, (0, 12 * DAY), ZONE)
    evenings = {m for m in range(*hole) if m % DAY > 18 * 60} if is_found else set()
    assert set(minutes_of(found, FAR_APART)) == set(minutes(found.silent)) == evenings
    assert len(minutes(found.silent)) == len(evenings)  # joined: no minute twice


def test_a_gap_at_the_same_time_of_many_days_is_no_outage():
    records = np.full((12, DAY), 3)
    records[:, 120:240] = 0
    gaps = np.array([[d * DAY + 120, d * DAY + 240] for d in range(12)])
    single = np.array([[5 * DAY + 800, 5 * DAY + 1000]])
    silent = np.concatenate([gaps[:6], single, gaps[6:]])
    records[5, 800:1000] = 0
    one = feed(records.reshape(-1))
    found = find_pauses(Activity(one, single[:0], True, None, silent), OPTIONS, (0, 12 * DAY), ZONE)
    assert minutes_of(found, FAR_APART) == minutes(gaps)
    assert minutes_of(found, FEED_SILENT) == minutes(single)
    assert minutes(found.silent) == minutes(silent)


def test_opening_hours_are_those_of_the_wall_clock_and_add_nothing_to_the_silence():
    """Over the night in which clocks go forward."""
    begin = int(datetime(2024, 3, 9, 3, 10, tzinfo=UTC).timestamp()) // 60
    period = begin, begin + 3 * DAY
    activity = watch_trips(trips_at(np.arange(*period, 7)), period)
    found = find_pauses(activity, replace(OPTIONS, hours="06:00-23:00"), period, ZONE)
    hour = {m: datetime.fromtimestamp(60 * m, ZoneInfo(ZONE)).hour for m in range(*period)}
    assert minutes_of(found, OUTSIDE_HOURS) == [m for m in range(*period) if not 6 <= hour[m] < 23]
    assert len(found.silent) == 0
    assert {o.reason for o in found.overrides} == {OUTSIDE_HOURS}
