"""Days of a recorded city, ridden again from other levels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unmet import InputError
from unmet.execution import serially
from unmet.mobility.planning.riding import Habits
from unmet.pipeline import RunSettings
from unmet.pipeline.decisions import compare_decisions
from unmet.pipeline.worlds import Replay, recorded_world, simulated_world
from unmet.simulate import simulate_city

DAY = "2024-03-05"
ZONES = pd.DataFrame({"zone": ["a", "b"], "lat": [40.0, 40.02], "lon": -74.0, "capacity": [5.0, np.nan]})
TRIPS = pd.DataFrame(
    {
        "origin": [0, 0, 1, 0],
        "destination": [1, 1, 0, -1],
        "started": pd.to_datetime([f"{DAY} 08:00", f"{DAY} 08:10", f"{DAY} 12:00", "2024-03-06 07:00"]),
        "hours": [0.2, 0.2, 0.2, np.nan],
    }
)


def replay(lost: float = 0.0) -> Replay:
    supply = pd.DataFrame(
        [[3.0, np.nan], [np.nan, np.nan], [1.0, 2.0]],
        index=pd.to_datetime(["2024-03-04 22:00", f"{DAY} 00:00", f"{DAY} 01:00"]),
    )
    hours = pd.DataFrame({"zone": [0], "start_local": pd.to_datetime([f"{DAY} 09:00"]), "hours": 1.0, "lost": lost})
    hours = hours.assign(observed=0, walked_on=0.0, walked_in=0.0)
    return Replay(ZONES, supply, hours, TRIPS, Habits())


def test_the_trips_of_a_day_ride_again():
    riders = replay().riders(DAY)
    assert riders.origin.tolist() == [0, 0, 1]
    assert riders.time.tolist() == pytest.approx([8.0, 8 + 1 / 6, 12.0])
    found = replay().outcome(DAY, np.array([1, 0]))
    assert (found.wanted, found.no_bike, found.no_dock) == (3, 1, 0)  # the first bike serves the trip at noon
    assert replay().outcome(DAY, np.array([2, 0])).turned_away == 0


def test_riders_that_the_records_lost_ride_as_recorded_ones_do():
    many = replay(lost=200.0)
    riders = many.riders(DAY)
    added = (riders.time >= 9) & (riders.time < 10)
    assert added.sum() == len(riders) - 3 == pytest.approx(200, abs=45)
    assert set(riders.origin[added]) == {0}
    assert (riders.hours[added] > 100).mean() == pytest.approx(1 / 3, abs=0.1)  # one of three trips has no known end
    assert np.array_equal(riders.time, many.riders(DAY).time)


def test_riders_who_walked_in_come_to_the_station_that_was_empty_first():
    """Of 400 trips at b in an hour a quarter walked there: a, near by and empty, is the only place they can be from."""
    zones = pd.DataFrame({"zone": ["a", "b", "far"], "lat": [40.0, 40.001, 40.1], "lon": -74.0, "capacity": 500.0})
    at = pd.to_datetime([f"{DAY} 08:00"] * 3)
    bins = pd.DataFrame({"zone": [0, 1, 2], "start_local": at, "hours": 1.0, "observed": [0, 400, 0], "lost": 0.0})
    bins = bins.assign(walked_on=[100.0, 0.0, 50.0], walked_in=[0.0, 100.0, 0.0])
    trips = pd.DataFrame(
        {"origin": 1, "destination": 2, "started": pd.Timestamp(f"{DAY} 08:30"), "hours": 0.1}, range(400)
    )
    late = trips.assign(started=pd.Timestamp(f"{DAY} 09:30"))
    habits = Habits((0.0, 300.0, 700.0), (0.5, 0.2, 0.0), breakage=0.5)
    riders = Replay(zones, pd.DataFrame(), bins, pd.concat([trips, late]), habits).riders(DAY)
    early = riders.time < 9
    assert (riders.origin[early] == 0).sum() == pytest.approx(100, abs=30)
    assert set(riders.origin[early]) == {0, 1}
    assert set(riders.origin[~early]) == {1}
    assert riders.breaks.mean() == pytest.approx(0.5, abs=0.06)


def test_riders_who_rode_on_wanted_the_full_station():
    """Of 400 trips to b in an hour a quarter had found a, next to it, full."""
    zones = pd.DataFrame({"zone": ["a", "b", "far"], "lat": [40.0, 40.001, 40.1], "lon": -74.0, "capacity": 500.0})
    at = pd.to_datetime([f"{DAY} 09:00"] * 3)
    bins = pd.DataFrame({"zone": [0, 1, 2], "start_local": at, "hours": 1.0, "observed": [0, 400, 0], "lost": 0.0})
    bins = bins.assign(walked_on=[100.0, 0.0, 50.0], walked_in=[0.0, 100.0, 0.0])
    trips = pd.DataFrame({"origin": 2, "destination": 1, "hours": 0.5}, range(400))
    trips["started"] = pd.Timestamp(f"{DAY} 08:45")
    habits = Habits((0.0, 300.0, 700.0), (0.5, 0.2, 0.0))
    riders = Replay(zones, pd.DataFrame(), bins.iloc[:0], trips, habits, (bins, habits)).riders(DAY)
    assert (riders.destination == 0).sum() == pytest.approx(100, abs=30)
    assert set(riders.destination) == {0, 1}
    assert set(riders.origin) == {2}


def test_a_trip_without_a_known_end_takes_its_bike_away():
    riders = replay().riders("2024-03-06")
    assert riders.hours.tolist() == [1000.0]


def test_a_day_begins_with_the_last_known_levels():
    assert replay().levels(DAY).tolist() == [3, 0]


def test_zones_of_several_stations_are_not_replayed(tmp_path):
    with pytest.raises(InputError, match="stations"):
        recorded_world(RunSettings(timezone="UTC", zones="h3:9"), tmp_path)


def test_records_of_a_simulated_city_want_what_was_wanted_there(tmp_path):
    city = simulate_city(3, 17, seed=2, demand=30.0)
    folder = city.save(tmp_path / "city")
    settings = RunSettings(
        trips=(f"{folder}/trips.parquet",), status=(f"{folder}/status.parquet",), stations=(f"{folder}/stations.csv",),
        timezone=city.settings.timezone,
    )  # fmt: skip
    world = recorded_world(settings, tmp_path, recover="weekly-mean", executor=serially)
    known = simulated_world(city)
    assert world.days == known.days
    assert world.stations == known.stations
    days = world.days[-7:]
    assert world.levels(days[0]) == pytest.approx(known.levels(days[0]), abs=3)
    served, wanted = (sum(w.wanted(day) for day in days) for w in (world, known))
    assert served.sum() == pytest.approx(wanted.sum(), rel=0.15)
    found = compare_decisions(world, models=["weekly-mean"], held_out=1, draws=20, executor=serially)
    assert found.days["wanted"].nunique() == 1
    assert found.summary().set_index("model").loc["weekly-mean", "accuracy_error"] < 0.6
