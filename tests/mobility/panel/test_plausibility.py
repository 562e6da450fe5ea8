"""The plausibility gate against a slow reading of its rules."""

from __future__ import annotations

import random

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmet._exceptions import InputError
from unmet.mobility.panel.plausibility import (
    Implausible,
    disbelieved_stations,
    find_implausible,
    kept_zones,
    mark_carried,
)
from unmet.mobility.supply.silence import StationActivity

LAG, DAY = 10, 1440


def slow_unseen(runs, pickups, returns, within, open_minutes, width):
    """Whether a station's trips start without a vehicle too often, and their share; one minute after the other."""
    inside = {m for b, e in runs for m in range(max(b, within[0]) + LAG, min(e, within[1]) - LAG)}
    here = [m for m in pickups if within[0] <= m < within[1]]
    without = [m for m in here if m in inside]
    excess = 0
    for window in {m // width for m in without}:
        taken = sum(m // width == window for m in without)
        brought = sum(m // width in (window - 1, window) for m in returns)
        excess += max(taken - brought, 0)
    if not here or excess < 10 or excess < 0.03 * len(here):
        return False, 0.0
    fast = len(without) * max(open_minutes - len(inside), 0) >= 0.35 * (len(here) - len(without)) * len(inside)
    return fast, len(without) / len(here)


def slow_cut(begin, end, silent):
    """The stretches of a run outside the silent ones."""
    for b, e in silent:
        if begin < b and end > b:
            yield begin, b
        if end > b:
            begin = max(begin, e)
    if begin < end:
        yield begin, end


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([3.0, 30.0]), st.sampled_from([(0, 3 * DAY), (500, 3000)]))
def test_trips_without_a_vehicle_are_those_of_the_slow_reading(seed, cadence, within):
    rng = random.Random(seed)
    runs: list[tuple[int, int, int]] = []
    pickups: list[tuple[int, int]] = []
    returns: list[tuple[int, int]] = []
    for station in range(3):
        minute = 0
        while (minute := minute + rng.randrange(20, 900)) < 3 * DAY - 10:
            end = min(minute + rng.randrange(5, 700), 3 * DAY)
            runs.append((station, minute, end))
            minute = end
        for events, most in ((pickups, 120), (returns, 60)):
            events += [(station, rng.randrange(3 * DAY)) for _ in range(rng.randrange(most))]
    owner, begin, end = (np.array([run[i] for run in runs], dtype=np.int64) for i in range(3))
    full = np.full(3, 3 * DAY, dtype=np.int64)
    some = np.full(3, 10_000, dtype=np.int64)
    open_within = np.full(3, within[1] - within[0], dtype=np.int64)
    activity = StationActivity(
        np.ones(3), full * 0, full, some, full, within, some * 0 + 60, open_within, owner, begin, end, cadence
    )
    keys = [np.array(sorted((s << 32) + 60 * m for s, m in events), dtype=np.int64) for events in (pickups, returns)]
    edges = np.sort(np.array(rng.sample(range(3 * DAY), 2 * rng.choice([0, 1, 6])), dtype=np.int64))
    silent = edges.reshape(-1, 2)
    found = {one.place: one for one in find_implausible(activity, *keys, silent) if one.check == "unseen"}
    width = max(LAG, int(cadence) + 1)
    for station in range(3):
        own = [[m for s, m in events if s == station] for events in (pickups, returns)]
        stretches = [piece for s, b, e in runs if s == station for piece in slow_cut(b, e, silent.tolist())]
        is_odd, share = slow_unseen(stretches, *own, within, within[1] - within[0], width)
        assert (station in found) == is_odd
        if is_odd:
            assert found[station].share == pytest.approx(share)


def test_names_and_ids_of_zones_can_be_kept():
    zones = pd.DataFrame({"zone": ["a", "b"], "name": ["Alpha St", "Beta St"]})
    assert kept_zones(None, zones) == set()
    assert kept_zones("all", zones) == {"a", "b"}
    assert kept_zones("Beta St, a", zones) == {"a", "b"}
    with pytest.raises(InputError, match="no zone is 'c'"):
        kept_zones("c", zones)


def test_a_zone_is_carried_by_plausible_stations_with_most_of_its_pickups():
    zone = np.array([0, 0, 1, 1, 2, 3, 3])
    falls = np.array([9, 5, 5, 9, 7, 4, 4])
    none = np.zeros(7, dtype=np.int64)
    activity = StationActivity(np.ones(7), none, none, none, none, (0, 1), falls, none, none, none, none, 5.0)
    found = [Implausible(place, "empty", 0.9) for place in (0, 2, 4, 5)] + [Implausible(6, "unseen", 0.5)]
    marked = mark_carried(found, zone, activity, none[:0])
    # Zone 0 is mostly the doubted one; zone 2 has no other station; zone 3 is doubted altogether.
    assert [one.carried for one in marked] == [False, True, False, False, False]
    assert disbelieved_stations(marked).tolist() == [2, 6]
    trips = np.sort(np.array([1] * 8 + [3, 5, 6]) << 32)  # with trips, these count
    assert [one.carried for one in mark_carried(found, zone, activity, trips)] == [True, True, False, False, False]


def test_a_name_to_keep_may_have_a_comma():
    zones = pd.DataFrame({"zone": ["a", "b", "c"], "name": ["Corner, 5 Ave", "Corner", "5 Ave"]})
    assert kept_zones("Corner, 5 Ave", zones) == {"a"}
    assert kept_zones("5 Ave,Corner", zones) == {"b", "c"}
    with pytest.raises(InputError, match="no zone is '6 Ave'"):
        kept_zones("Corner, 6 Ave", zones)
