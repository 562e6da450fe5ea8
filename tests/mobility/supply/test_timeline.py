"""Timelines, steps and the chance to be served, on small records that can be checked by hand."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest

from unmet.mobility.panel.usable import Timelines
from unmet.mobility.supply.cadence import Cadence
from unmet.mobility.supply.served import Served, combine_served
from unmet.mobility.supply.silence import Feed
from unmet.mobility.supply.spells import Spells
from unmet.mobility.supply.states import EMPTY, NOT_RENTING, SILENT, VEHICLES
from unmet.mobility.supply.status_log import StatusRecords
from unmet.mobility.supply.timeline import LONGEST_STEP, UNKNOWN, Events, find_timeline, status_events, to_steps


def spells_of(*rows: tuple[int, int, int, int, int]) -> Spells:
    """Spells from rows of (owner, begin, end, reason, supply)."""
    return Spells(*(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)))


def events_of(*rows: tuple[int, int, int, int]) -> Events:
    """Events from rows of (station, minute, pickups, returned)."""
    station, minute, pickups, returned = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    none = np.zeros(len(station), dtype=np.int64)
    return Events(station, 60 * minute, pickups, returned, none, none > 0)


def test_trips_of_a_minute_are_in_the_order_of_their_seconds():
    """A vehicle comes to an empty station and is taken within a minute; the next is taken before another comes."""
    spells = spells_of((0, 0, 9, EMPTY, 0))
    moments = {130: (0, 1), 150: (1, 0), 190: (0, 1), 310: (1, 0), 320: (0, 1)}
    second, (taken, brought) = np.array(list(moments)), np.array(list(moments.values())).T
    none = np.zeros(5, dtype=np.int64)
    found = find_timeline(spells, Events(none, second, taken, brought, none, none > 0))
    rows = list(zip(found.begin, found.end, found.listed, found.pickups, found.returned, strict=True))
    assert rows == [
        (0, 3, 0, 0, 1),
        (3, 3, 1, 1, 0),
        (3, 4, 0, 0, 1),
        (4, 6, 1, 1, 0),
        (6, 6, 0, 0, 1),
        (6, 9, 1, 0, 0),
    ]
    steps = to_steps(found).steps
    assert steps.minutes.tolist() == [3, 0, 1, 2, 0, 3]
    assert steps.pickups[steps.listed == 1].sum() == 2


@pytest.mark.parametrize(("second", "left"), [(150, 2), (170, 1)])
def test_a_trip_in_the_minute_of_a_record_is_in_it_only_if_it_came_before(second, left):
    """A record of second 160 shows two vehicles and is in force from minute 3 on; one is taken before it or after."""
    spells = replace(spells_of((0, 0, 3, VEHICLES, 3), (0, 3, 9, VEHICLES, 2)), early=np.array([0, 20]))
    one, none = np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    found = find_timeline(spells, Events(none, second + one, one, none, none, none > 0))
    assert found.listed[-1] == left
    assert found.pickups.sum() == 1


@pytest.mark.parametrize("late", [0, 30])
def test_clocks_agree_if_seconds_explain_the_changes_of_the_feed(late):
    """Records every 100 seconds at a station that loses a vehicle now and then; trips carry a time 30 seconds later."""
    rng = np.random.default_rng(4)
    taken = np.sort(rng.choice(60_000, 300, replace=False))
    second = np.arange(0, 60_000, 100)
    available = 400 - np.searchsorted(taken, second)
    n, origin = len(second), 0
    zero = np.zeros(n, dtype=np.int64)
    full = np.full(n, 5, dtype=np.int8)
    records = StatusRecords(
        zero,
        -(-second // 60),
        second.astype(np.int32),
        origin,
        available.astype(np.int16),
        zero.astype(np.int16),
        full,
        np.full(n, VEHICLES, dtype=np.int8),
        np.arange(n) == 0,
    )
    nothing = np.empty(0, dtype=np.int64)
    source = Timelines(None, None, None, None, None, 8, taken + late, nothing, nothing.reshape(0, 2), (0, 1000))  # type: ignore[arg-type]
    exact, rounded = source.explained(records)
    assert (exact > rounded) == (late == 0)


def test_between_two_records_the_listed_number_follows_the_trips():
    spells = spells_of((0, 0, 30, VEHICLES, 2), (0, 30, 60, EMPTY, 0), (0, 60, 90, NOT_RENTING, 0))
    found = find_timeline(spells, events_of((0, 10, 1, 0), (0, 20, 1, 0), (0, 45, 0, 1)))
    rows = list(zip(found.begin, found.end, found.listed, found.shown, found.pickups, found.returned, strict=True))
    assert rows == [
        (0, 10, 2, True, 1, 0),
        (10, 20, 1, True, 1, 0),
        (20, 30, 0, True, 0, 0),
        (30, 45, 0, False, 0, 1),
        (45, 60, 1, False, 0, 0),
        (60, 90, UNKNOWN, False, 0, 0),
    ]


def test_records_that_repeat_each_other_are_one_stretch_and_stations_stay_apart():
    spells = spells_of((0, 0, 5, VEHICLES, 3), (0, 5, 9, VEHICLES, 3), (1, 4, 9, VEHICLES, 3))
    found = find_timeline(spells, events_of((1, 2, 1, 0), (0, 400, 1, 0)))  # before and after all records
    assert list(zip(found.station, found.begin, found.end, strict=True)) == [(0, 0, 9), (1, 4, 9)]
    assert found.pickups.sum() == 0


def test_a_record_that_repeats_the_one_before_counts_if_something_happened_between_them():
    spells = spells_of((0, 0, 5, VEHICLES, 3), (0, 5, 9, VEHICLES, 3), (0, 9, 12, VEHICLES, 3))
    found = find_timeline(spells, events_of((0, 2, 1, 0), (0, 9, 0, 1)))
    rows = list(zip(found.begin, found.end, found.listed, found.pickups, found.returned, strict=True))
    assert rows == [(0, 2, 3, 1, 0), (2, 5, 2, 0, 0), (5, 9, 3, 0, 1), (9, 12, 3, 0, 0)]


@pytest.mark.parametrize("seed", range(5))
def test_looks_at_which_nothing_has_changed_change_nothing(seed):
    rng = np.random.default_rng(seed)
    whole, cut, events = [], [], []
    for station in range(3):
        edges = np.sort(rng.choice(2000, 120, replace=False))
        for begin, end in itertools.pairwise(edges):
            listed = int(rng.integers(0, 5))
            row = (VEHICLES if listed else EMPTY, listed)
            moment = int(rng.integers(begin, end)) + 1
            is_quiet = rng.random() < 0.5
            events += [] if is_quiet else [(station, moment, int(listed > 0), 1)]
            first = end if is_quiet else moment - 1  # looks before the event, which repeat the record
            looks = np.unique(np.append(rng.integers(begin, max(first, begin + 1), 3), begin))
            whole.append((station, begin, end, *row))
            cut += [(station, b, e, *row) for b, e in itertools.pairwise([*looks.tolist(), end])]
    plain, looked = (find_timeline(spells_of(*rows), events_of(*events)) for rows in (whole, cut))
    for field in fields(plain):
        np.testing.assert_array_equal(getattr(looked, field.name), getattr(plain, field.name))


def test_steps_keep_all_minutes_and_events():
    rng = np.random.default_rng(1)
    rows, events = [], []
    for station in range(3):
        at = 0
        while at < 5000:
            length = int(rng.integers(1, 700))
            listed = int(rng.integers(0, 9))
            rows.append((station, at, at + length, VEHICLES if listed else EMPTY, listed))
            events += [(station, int(at + 1 + rng.integers(0, length)), 0, 1) for _ in range(rng.integers(0, 3))]
            at += length
    timeline = find_timeline(spells_of(*rows), events_of(*events))
    cut = to_steps(timeline)
    for station in range(3):
        own = cut.steps.station == station
        assert cut.steps.minutes[own].sum() == (timeline.end - timeline.begin)[timeline.station == station].sum()
    assert cut.steps.returned.sum() == timeline.returned.sum() == len(events)
    assert (cut.end - cut.begin)[cut.scarce].max() <= LONGEST_STEP
    few = (timeline.listed > 0) & (timeline.listed < 5)
    assert (cut.end - cut.begin)[cut.scarce].sum() == (timeline.end - timeline.begin)[few].sum()


@pytest.mark.parametrize("seed", range(5))
def test_a_zone_serves_unless_none_of_its_stations_does(seed):
    """Against a loop over minutes and stations."""
    rng = np.random.default_rng(seed)
    rows, pieces = [], []
    for station in range(4):
        at = 0
        while at < 60:
            length = min(int(rng.integers(1, 15)), 60 - at)
            reason = int(rng.choice([VEHICLES, EMPTY, SILENT, NOT_RENTING], p=[0.5, 0.3, 0.1, 0.1]))
            rows.append((station, at, at + length, reason, int(reason == VEHICLES)))
            if reason in (VEHICLES, EMPTY) and rng.random() < 0.7:
                pieces.append((station, at, at + length, rng.random(), reason == VEHICLES))
            at += length
    zone = np.array([0, 0, 1, 1])
    owner, begin, end, chance, shown = (np.array(column) for column in zip(*pieces, strict=True))
    found = combine_served(Served(owner, begin, end, chance, shown), spells_of(*rows), zone)
    for number in (0, 1):
        for minute in range(60):
            states = [r for r in rows if zone[r[0]] == number and r[1] <= minute < r[2]]
            shows = any(r[3] == VEHICLES for r in states)
            missed = 1.0
            for r in states:
                own = [p for p in pieces if p[0] == r[0] and p[1] <= minute < p[2]]
                missed *= 1 - own[0][3] if own else 1.0 - (r[3] == VEHICLES)
            if not shows and any(r[3] == SILENT for r in states):
                missed = 1.0
            here = (found.owner == number) & (found.begin <= minute) & (minute < found.end)
            assert here.sum() <= 1
            expected = 1 - missed
            assert (found.chance[here][0] if here.any() else float(shows)) == pytest.approx(expected, abs=2e-4)
            if here.any():
                assert found.shown[here][0] == shows


@pytest.mark.parametrize("covered", [True, False])
def test_a_van_is_what_trips_do_not_explain(covered):
    """Records of (minute, listed, disabled): six trips; a van with five that finds two broken; a find without a van."""
    minute, listed, disabled = np.array([(0, 9, 0), (60, 3, 0), (120, 6, 2), (180, 5, 3), (240, 5, 3)]).T
    n = len(minute)
    records = StatusRecords(
        np.zeros(n, dtype=np.int64),
        minute,
        (minute * 60).astype(np.int32),
        0,
        listed.astype(np.int16),
        disabled.astype(np.int16),
        np.full(n, 5, dtype=np.int8),
        np.full(n, VEHICLES, dtype=np.int8),
        np.arange(n) == 0,
    )
    ones = (np.arange(300) % 60 == 0).astype(np.int64)
    always = np.ones(5, dtype=bool)
    feed = Feed(0, ones, ones, ones > 0, ones, 0 * ones, Cadence(np.full(5, 60.0), always, always))
    found = status_events(
        records,
        feed,
        np.ones(1),
        np.empty((0, 2), dtype=np.int64),
        8,
        lambda minutes: np.full(len(minutes), covered),
        lambda station, after, until: np.where(until == 60, -6, 0),
    )
    seen = {
        (int(-(-m // 60)), int(d), bool(v))
        for m, d, v in zip(found.moment, found.disabled, found.visited, strict=True)
        if d or v
    }
    assert seen == ({(120, 2, True), (180, 1, False)} if covered else {(180, 1, False)})
    assert found.pickups.sum() == (0 if covered else 6)
