"""Silence, standstill and coverage at their limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unmet.mobility.supply.cadence import REGULAR, Cadence, Intervals, usual_intervals
from unmet.mobility.supply.coverage import outside_coverage
from unmet.mobility.supply.polls import Polls
from unmet.mobility.supply.silence import (
    Feed,
    expected_events,
    far_apart,
    repeat_daily,
    silent_stretches,
    standstills,
)
from unmet.mobility.supply.spells import silent_gaps

DAY = 1440
NONE = np.empty((0, 2), dtype=np.int64)


def feed(records, *, shut=0, stations=4, polled=False, moves=None, first=0):
    records = np.asarray(records, dtype=np.int64)
    moves = records if moves is None else np.asarray(moves, dtype=np.int64)
    many = np.full(len(records), stations)
    heard = np.flatnonzero(records)
    looks = Intervals(len(records))
    looks.add(heard[:-1], np.diff(heard))
    minutes, near = usual_intervals(looks)
    cadence = Cadence(minutes, near >= REGULAR, np.full(len(minutes), polled))
    return Feed(first, records, moves, moves > 0, many, np.full(len(records), shut), cadence)


def days(n, per_minute):
    """A feed of `n` days with as many records in each minute of a day as `per_minute` says."""
    return np.tile(np.asarray(per_minute, dtype=np.int64), n)


def test_what_is_expected_is_the_lower_quartile_of_the_same_hour_around():
    counts = np.zeros((20, 24, 60), dtype=np.int64)
    counts[:, 8, 0] = np.arange(20) * 6  # 8 o'clock grows from day to day
    counts[:, 9, 0] = 1  # every day lives
    total, unknown = expected_events(counts.reshape(-1), 0)
    assert unknown[-1] == 0
    of_hour = total[10 * DAY + 9 * 60] - total[10 * DAY + 8 * 60]
    others = sorted(i * 6 for i in range(20) if i != 10)
    assert of_hour == pytest.approx(others[19 // 4])


@pytest.mark.parametrize(("rate", "is_silent"), [(2, True), (1, False)])
def test_a_silence_counts_when_more_than_sixty_records_were_expected_in_it(rate, is_silent):
    records = days(20, [rate] * DAY)
    records[10 * DAY + 600 : 10 * DAY + 650] = 0  # 50 minutes
    found = silent_stretches(feed(records))
    assert found.tolist() == ([[10 * DAY + 600, 10 * DAY + 650]] if is_silent else [])


def test_a_quiet_night_is_no_outage_but_the_same_silence_by_day_is():
    per_minute = np.r_[np.zeros(360, dtype=int), np.full(DAY - 360, 3)]
    per_minute[::100] = 1
    records = days(20, per_minute)
    records[10 * DAY + 1 : 10 * DAY + 300] = 0
    assert len(silent_stretches(feed(records))) == 0
    records[12 * DAY + 601 : 12 * DAY + 900] = 0
    assert silent_stretches(feed(records)).tolist() == [[12 * DAY + 601, 12 * DAY + 900]]


def test_half_an_hour_is_no_silence():
    records = days(20, [9] * DAY)
    records[10 * DAY + 600 : 10 * DAY + 629] = 0
    assert len(silent_stretches(feed(records))) == 0
    records[10 * DAY + 629] = 0
    assert len(silent_stretches(feed(records))) == 1


def test_a_closed_system_has_nothing_to_say():
    records = days(20, [9] * DAY)
    records[10 * DAY : 11 * DAY] = 0
    assert len(silent_stretches(feed(records, shut=1))) == 1
    assert len(silent_stretches(feed(records, shut=2))) == 0


def test_outages_less_than_half_an_hour_apart_are_one():
    records = days(20, [9] * DAY)
    records[10 * DAY : 10 * DAY + 200] = 0
    records[10 * DAY + 229 : 10 * DAY + 400] = 0
    assert silent_stretches(feed(records)).tolist() == [[10 * DAY, 10 * DAY + 400]]
    records[10 * DAY + 229] = 9
    assert len(silent_stretches(feed(records))) == 2


def test_an_outage_of_a_month_is_silent_to_its_middle():
    records = days(80, [9] * DAY)
    records[20 * DAY : 60 * DAY] = 0
    assert silent_stretches(feed(records)).tolist() == [[20 * DAY, 60 * DAY]]


def test_polls_are_missed_by_their_own_clock():
    records = np.zeros(3000, dtype=np.int64)
    records[::60] = 4
    records[600:780] = 0  # polls at 600, 660 and 720 are missing: four hours between two
    assert silent_stretches(feed(records, polled=True)).tolist() == [[541, 780]]
    records[720] = 4  # two missing: three intervals
    assert len(silent_stretches(feed(records, polled=True))) == 0


def test_a_standstill_is_judged_without_the_minutes_of_an_outage():
    moves = days(20, [2] * DAY)
    moves[10 * DAY + 600 : 10 * DAY + 640] = 0  # 80 expected
    given = feed(days(20, [9] * DAY), moves=moves)
    assert standstills(given, NONE)[0].tolist() == [[10 * DAY + 600, 10 * DAY + 640]]
    outage = np.array([[10 * DAY + 600, 10 * DAY + 611]])
    assert len(standstills(given, outage)[0]) == 0  # 58 are left


def test_without_a_week_of_history_nothing_is_called_a_standstill():
    moves = days(5, [9] * DAY)
    moves[2 * DAY + 600 : 2 * DAY + 900] = 0
    assert len(standstills(feed(days(5, [9] * DAY), moves=moves), NONE)[0]) == 0


def test_a_trip_in_the_middle_ends_a_standstill():
    moves = days(20, [2] * DAY)
    moves[10 * DAY + 600 : 10 * DAY + 650] = 0
    given = feed(days(20, [9] * DAY), moves=moves)
    given.moving[10 * DAY + 625] = True
    assert len(standstills(given, NONE)[0]) == 0


@pytest.mark.parametrize(("share", "is_silent"), [(0.31, True), (0.30, False)])
def test_a_station_is_silent_when_more_than_thirty_of_its_records_are_missing(share, is_silent):
    given = feed(np.ones(200))
    found = silent_gaps(np.array([0]), np.array([10]), np.array([111]), given, np.array([share]))
    assert found.tolist() == [is_silent]  # a hundred records of the others lie between


def test_trips_cover_what_lies_between_two_of_them_no_more_than_a_week_apart():
    at = np.array([100, 100 + 7 * DAY, 101 + 14 * DAY])
    assert outside_coverage(at, 0, 20 * DAY).tolist() == [
        [0, 100],
        [101 + 7 * DAY, 101 + 14 * DAY],
        [102 + 14 * DAY, 20 * DAY + 1],
    ]
    assert outside_coverage(np.empty(0, dtype=np.int64), 5, 9).tolist() == [[5, 10]]


@pytest.mark.parametrize("length", [2, 3, 5, 20])
def test_a_quiet_night_is_no_outage_however_few_days_there_are(length):
    per_minute = np.zeros(DAY, dtype=int)
    per_minute[360:] = 3
    per_minute[:360:45] = 1  # at night a record every three quarters of an hour
    records = days(length, per_minute)
    records[DAY + 46 : DAY + 300] = 0
    assert len(silent_stretches(feed(records))) == 0
    records[DAY + 601 : DAY + 700] = 0
    assert silent_stretches(feed(records)).tolist() == [[DAY + 601, DAY + 700]]


def test_a_standstill_without_records_is_unknown_and_joins_the_silence_beside_it():
    moves = days(20, [2] * DAY)
    moves[10 * DAY + 600 : 10 * DAY + 700] = 0
    records = days(20, [9] * DAY)
    records[10 * DAY + 650 : 10 * DAY + 700] = 0
    records[10 * DAY + 660] = 1  # the collector starts again, and hears little
    outage = np.array([[10 * DAY + 590, 10 * DAY + 650]])
    closed, silent = standstills(feed(records, moves=moves), outage)
    assert closed.tolist() == []
    assert silent.tolist() == [[10 * DAY + 590, 10 * DAY + 700]]
    records[10 * DAY + 650 : 10 * DAY + 700] = 1  # a ninth of what is usual: it lives
    closed, silent = standstills(feed(records, moves=moves), outage)
    assert closed.tolist() == [[10 * DAY + 600, 10 * DAY + 700]]
    assert silent.tolist() == outage.tolist()


def test_a_system_known_by_its_trips_alone_stands_still_when_nobody_rides():
    moves = days(20, [2] * DAY)
    moves[10 * DAY + 600 : 10 * DAY + 700] = 0
    closed, silent = standstills(feed(np.zeros(20 * DAY), moves=moves), NONE)
    assert closed.tolist() == [[10 * DAY + 600, 10 * DAY + 700]]
    assert len(silent) == 0


def test_known_polls_tell_a_quiet_feed_from_one_that_nobody_looked_at() -> None:
    records = days(14, [2] * DAY)
    records[10 * DAY : 10 * DAY + 600] = 0  # 1,200 expected records
    every = np.arange(len(records), dtype=np.int64)
    looked = replace(feed(records), polls=Polls(every, every))
    assert len(silent_stretches(feed(records))) == 1
    assert len(silent_stretches(looked)) == 0
    stale = replace(feed(records), polls=Polls(every, every[records > 0]))  # polled, but the publisher was dead
    assert silent_stretches(stale).tolist() == [[10 * DAY, 10 * DAY + 600]]
    some = every[(every < 3 * DAY + 100) | (every >= 3 * DAY + 105)]  # four minutes and more without a poll
    assert silent_stretches(replace(feed(records), polls=Polls(some, some))).tolist() == [
        [3 * DAY + 100, 3 * DAY + 105]
    ]
    three = every[(every < 3 * DAY + 100) | (every >= 3 * DAY + 102)]
    assert len(silent_stretches(replace(feed(records), polls=Polls(three, three)))) == 0


def test_a_standstill_in_a_feed_that_was_looked_at_is_a_closure_however_few_its_records() -> None:
    moves = days(14, [2] * DAY)
    moves[10 * DAY + 600 : 10 * DAY + 900] = 0
    given = feed(moves.copy(), moves=moves)  # a log of changes: what does not move is not recorded
    every = np.arange(len(moves), dtype=np.int64)
    assert standstills(given, NONE)[0].tolist() == []
    closed, silent = standstills(replace(given, polls=Polls(every, every)), NONE)
    assert (closed.tolist(), silent.tolist()) == ([[10 * DAY + 600, 10 * DAY + 900]], [])


@pytest.mark.parametrize(
    ("length", "gaps", "repeats"),
    [
        (14, [4, 5, 6], False),  # three outages of one fault
        (60, [4, 5, 6], False),
        (25, [4, 5, 6, 7, 8, 9], False),  # less than a week
        (14, range(4, 11), True),
        (60, range(45, 60), True),  # from some day on
        (14, [2, 3, 9, 10], True),  # at weekends
        (4, range(4), True),  # a short record, every day
        (6, [2, 3, 4], False),
        (60, [4, 20, 40], False),  # too few
    ],
)
def test_a_gap_repeats_if_it_is_at_the_same_time_of_many_days_over_a_week_or_the_whole_record(length, gaps, repeats):
    records = days(length, [2] * DAY)
    for day in gaps:
        records[day * DAY + 600 : day * DAY + 700] = 0
    of_feed = feed(records, polled=True, first=7 * DAY + 123)
    silent = silent_stretches(of_feed)
    assert len(silent) == len(gaps)
    assert repeat_daily(silent, of_feed).tolist() == [repeats] * len(gaps)
    whole = np.array([[of_feed.first, of_feed.last + 1]])
    assert len(far_apart(of_feed, whole)) == (len(gaps) if repeats else 0)


def test_a_gap_that_repeats_is_one_when_clocks_are_changed_too():
    records = days(14, [2] * DAY)
    for day in range(14):
        hour = 10 if day < 4 else 9
        records[day * DAY + 60 * hour : day * DAY + 60 * hour + 50] = 0
    of_feed = feed(records, polled=True)
    silent = silent_stretches(of_feed)
    assert len(silent) == 14
    assert repeat_daily(silent, of_feed).all()
