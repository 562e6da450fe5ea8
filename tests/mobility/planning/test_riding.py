"""Totals of a plan from simulated riders."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unmet.decisions import expected_lost
from unmet.mobility.planning import Levels, PlanOptions, choose_period, make_plan
from unmet.mobility.planning.rates import StationRates
from unmet.mobility.planning.riding import Habits, network_of, ride_plan

ZONES = pd.DataFrame(
    {"zone": ["a", "b"], "name": ["A", "B"], "lat": [40.0, 40.001], "lon": -74.0, "capacity": [9.0, 400.0]}
).assign(status="ok")


def plan_of(rentals, now, **options):
    bins = pd.DataFrame({"start_local": pd.date_range("2024-01-01", periods=336, freq="h"), "minutes": 60})
    shape = (2, 300, 6)
    rates = StationRates(
        np.arange(2),
        np.broadcast_to(np.array(rentals)[:, None, None], shape),
        np.broadcast_to(np.array([0.0, 1.0])[:, None, None], shape),
        1.0,
    )
    levels = Levels(np.array(now, dtype=float), np.zeros(2, dtype=np.intp), "of a test")
    period = choose_period(bins.assign(future=False), hours=6)
    return make_plan(ZONES, rates, levels, period, PlanOptions(least_gain=0.0, **options))


def test_without_returns_and_walkers_totals_are_those_of_the_stations():
    plan = plan_of([2.0, 0.0], [4, 200], moves=3)
    totals = ride_plan(plan, ZONES, Habits()).totals
    for name in ("now", "planned"):
        level = getattr(plan.stations[0], name)
        lost = expected_lost([2.0] * 6, [0.0] * 6, 9).rentals[level]
        assert totals["no_bike"][name] == pytest.approx(lost, abs=0.5)  # three standard errors
    assert totals["mean"]["gain"] == pytest.approx(totals["mean"]["now"] - totals["mean"]["planned"])
    assert (totals["no_dock"] == 0).all()


def test_walkers_take_the_bikes_of_others():
    plan = plan_of([30.0, 8.0], [0, 3], moves=0)
    none, all_walk = (
        ride_plan(plan, ZONES, Habits(metres=(0.0,), walk=(w,))).totals["no_bike"]["now"] for w in (0.0, 1.0)
    )
    assert none > 6 * 30.0 - 5  # nobody at A finds a bike
    assert all_walk > none + 2


def test_bikes_that_break_are_missing_later():
    plan = plan_of([0.0, 8.0], [0, 12], moves=0)
    fine, breaking = (ride_plan(plan, ZONES, Habits(breakage=p)).totals["no_bike"]["now"] for p in (0.0, 0.5))
    assert breaking > fine + 3


def test_riders_turned_away_in_areas_add_up_scenario_by_scenario():
    plan = plan_of([2.0, 8.0], [4, 3], moves=2)
    both = ride_plan(plan, ZONES.assign(area=["North", "South"]), Habits())
    assert [*both.area_totals] == ["North", "South"]
    for column in ("no_bike", "no_dock", "mean"):
        sums = sum(own[column] for own in both.area_totals.values())
        assert sums.to_dict() == pytest.approx(both.totals[column].to_dict())
    one = ride_plan(plan, ZONES.assign(area=["North", None]), Habits())
    assert [*one.area_totals] == ["North"]
    one_area = ride_plan(plan, ZONES.assign(area="City"), Habits()).area_totals["City"]
    assert one_area.equals(both.totals)


def test_nobody_walks_to_a_station_of_unknown_position():
    unknown = ZONES.assign(lat=[40.0, np.nan])
    network = network_of(unknown, np.array([9, 9]), Habits((0.0, 700.0), (0.5, 0.5)))
    assert network.walk[0, 1] == network.walk[1, 0] == 0.0
    assert np.isfinite(network.km).all()
