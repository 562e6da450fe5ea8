"""Plans of three stations, against all plans there are."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest

from unmet import InputError
from unmet.decisions import expected_lost
from unmet.mobility.planning import Levels, PlanOptions, StationRates, choose_period, make_plan
from unmet.mobility.planning.growth import dock_moves, fleet_losses, more_bikes, more_docks

CAPACITIES = [6, 5, 7]
NOW = [0, 5, 4]


@pytest.fixture(scope="module")
def zones() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "zone": ["a", "b", "c"],
            "name": ["A", "B", "C"],
            "lat": [40.0, 40.01, 40.02],
            "lon": [-74.0, -74.0, -74.0],
            "capacity": [float(c) for c in CAPACITIES],
            "status": "ok",
        }
    )


@pytest.fixture(scope="module")
def rates() -> StationRates:
    generator = np.random.default_rng(0)
    rentals = np.array([[2.0, 1.0], [0.2, 1.0], [0.5, 1.5]])[:, None, :] * generator.gamma(4.0, 0.25, (3, 30, 1))
    returns = np.array([[0.3, 0.5], [1.0, 2.0], [1.0, 0.5]])[:, None, :] * generator.gamma(4.0, 0.25, (3, 30, 1))
    return StationRates(np.arange(3), rentals, returns, 3.0)


@pytest.fixture(scope="module")
def period():
    bins = pd.DataFrame({"start_local": pd.date_range("2024-01-01", periods=336, freq="h"), "minutes": 60})
    return choose_period(bins.assign(future=False), hours=6)


def levels(now=NOW, broken=(0, 0, 0)) -> Levels:
    return Levels(np.array(now, dtype=float), np.array(broken), "of a test")


def costs(rates: StationRates) -> list[np.ndarray]:
    return [
        expected_lost(rates.rentals[i], rates.returns[i], c, hours=rates.hours).cost().mean(axis=0)
        for i, c in enumerate(CAPACITIES)
    ]


def best(tables, fleet: int, moves: int | None = None) -> float:
    """The lowest cost of all levels with this fleet that so many moves can reach."""
    found = []
    for chosen in product(*(range(len(t)) for t in tables)):
        moved = sum(max(k - now, 0) for k, now in zip(chosen, NOW, strict=True))
        if sum(chosen) == fleet and (moves is None or moved <= moves):
            found.append(sum(t[k] for t, k in zip(tables, chosen, strict=True)))
    return min(found)


@pytest.mark.parametrize("moves", [0, 1, 2, 4, None])
def test_no_other_plan_with_as_many_moves_turns_fewer_away(zones, rates, period, moves):
    plan = make_plan(zones, rates, levels(), period, PlanOptions(moves=moves, least_gain=0.0))
    assert sum(s.planned for s in plan.stations) == sum(NOW) == plan.fleet
    assert moves is None or plan.moved <= moves
    assert plan.totals["mean"]["planned"] == pytest.approx(best(costs(rates), sum(NOW), moves), abs=1e-9)


def test_the_gain_is_the_difference_and_the_sum_of_its_moves(zones, rates, period):
    plan = make_plan(zones, rates, levels(), period)
    totals = plan.totals
    assert totals["mean"]["gain"] == pytest.approx(totals["mean"]["now"] - totals["mean"]["planned"])
    assert plan.moves["gain_mean"].sum() == pytest.approx(totals["mean"]["gain"])
    assert plan.table["gain_mean"].sum() == pytest.approx(totals["mean"]["gain"])
    assert plan.moves["gain_mean"].is_monotonic_decreasing
    assert plan.moves["sure"].between(0, 1).all()
    assert (plan.moves["gain_q05"] <= plan.moves["gain_mean"]).all()


@pytest.mark.parametrize("fleet", [4, 7, 12])
def test_a_depot_gives_or_takes_what_another_fleet_needs(zones, rates, period, fleet):
    plan = make_plan(zones, rates, levels(), period, PlanOptions(fleet=fleet, least_gain=0.0))
    assert sum(s.planned for s in plan.stations) == fleet
    assert plan.totals["mean"]["planned"] == pytest.approx(best(costs(rates), fleet), abs=1e-9)
    through_depot = plan.moves[(plan.moves["source"] == -1) | (plan.moves["target"] == -1)]
    assert through_depot["bikes"].sum() == abs(fleet - sum(NOW))
    assert through_depot["km"].isna().all()


def test_a_fleet_that_does_not_fit_is_refused(zones, rates, period):
    with pytest.raises(InputError, match="19 vehicles do not fit in the 18"):
        make_plan(zones, rates, levels(), period, PlanOptions(fleet=19))


def test_no_move_gains_less_than_asked(zones, rates, period):
    every = make_plan(zones, rates, levels(), period, PlanOptions(least_gain=0.0))
    some = make_plan(zones, rates, levels(), period, PlanOptions(least_gain=1.0))
    assert 0 < some.moved < every.moved
    assert make_plan(zones, rates, levels(), period, PlanOptions(least_gain=99.0)).moved == 0


def test_vans_drive_as_little_as_they_can(zones, rates, period):
    plan = make_plan(zones, rates, levels(), period, PlanOptions(fleet=sum(NOW)))
    at = zones["lat"].to_numpy()
    sources = [s.number for s in plan.stations for _ in range(s.now - s.planned)]
    targets = [s.number for s in plan.stations for _ in range(s.planned - s.now)]
    least = min(
        sum(abs(at[a] - at[b]) * 111.195 for a, b in zip(sources, order, strict=True))
        for order in set(permutations(targets))
    )
    assert (plan.moves["km"] * plan.moves["bikes"]).sum() == pytest.approx(least)


def test_penalties_move_the_targets(zones, rates, period):
    bikes, docks = (
        make_plan(zones, rates, levels(), period, PlanOptions(no_bike=p, no_dock=h)) for p, h in ((10, 1), (1, 10))
    )
    assert all(a.target >= b.target for a, b in zip(bikes.stations, docks.stations, strict=True))
    assert any(a.target > b.target for a, b in zip(bikes.stations, docks.stations, strict=True))


def test_stations_that_cannot_be_planned_are_named_with_the_reason(zones, rates, period):
    without = zones.assign(capacity=[6.0, np.nan, 7.0])
    plan = make_plan(without, rates, levels([0, 5, np.nan]), period)
    assert plan.left_out == {1: "its number of docks is unknown", 2: "its level is unknown"}
    assert [s.number for s in plan.stations] == [0]
    with pytest.raises(InputError, match="No station can be planned"):
        make_plan(without.assign(capacity=np.nan), rates, levels(), period)


def test_broken_vehicles_take_docks_and_a_valet_more_than_there_are(zones, rates, period):
    plan = make_plan(zones, rates, levels([0, 4, 9], broken=(2, 0, 0)), period)
    a, _, c = plan.stations
    assert (a.docks, a.broken, a.cost.shape[1] - 1) == (6, 2, 4)
    assert c.docks == 9


def test_the_fleet_curve_passes_through_the_best_plan_of_today(zones, rates, period):
    plan = make_plan(zones, rates, levels(), period, PlanOptions(least_gain=0.0))
    curve = fleet_losses(plan).set_index("bikes")
    assert curve["lost_mean"][plan.fleet] == pytest.approx(plan.totals["mean"]["planned"])
    for bikes, lost in curve["lost_mean"].items():
        assert lost == pytest.approx(best(costs(rates), bikes), abs=1e-9)
    assert (curve["lost_q05"] <= curve["lost_mean"]).all()


def test_the_next_bikes_and_docks_are_the_best_ones(zones, rates, period):
    plan = make_plan(zones, rates, levels(), period, PlanOptions(least_gain=0.0))
    tables = costs(rates)
    bikes = more_bikes(plan, 2)
    assert bikes["gain"].sum() == pytest.approx(max(
        plan.totals["mean"]["planned"] - best(tables, plan.fleet + more) for more in (0, 1, 2)
    ))  # fmt: skip
    docks = more_docks(plan, 1)

    def with_dock(i: int) -> float:
        station = plan.stations[i]
        larger = expected_lost(rates.rentals[i], rates.returns[i], station.docks + 1, hours=rates.hours).cost()
        return float(station.cost.mean(axis=0)[station.planned] - larger.mean(axis=0)[station.planned])

    gains = [with_dock(i) for i in range(3)]
    assert docks["number"].tolist() == [int(np.argmax(gains))]
    assert docks["gain"][0] == pytest.approx(max(gains))


def test_moved_docks_keep_their_number_and_gain(zones, rates, period):
    plan = make_plan(zones, rates, levels(), period)
    moved = dock_moves(plan, 2)
    assert moved["docks"].sum() == 0
    assert moved["gain"].nunique() == 1
    assert moved["gain"][0] > 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"fleet": -1}, {"no_bike": -1.0}, {"no_dock": 1e308}, {"least_gain": np.nan}, {"least_gain": np.inf},
        {"scenarios": 5}, {"scenarios": 10**20},
    ],
)  # fmt: skip
def test_impossible_options_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        PlanOptions(**wrong)


@pytest.mark.parametrize(("capacity", "now"), [(2_000_000_000.0, 4), (7.0, 99_999)])
def test_a_claim_of_very_many_docks_or_vehicles_is_left_out_of_the_plan(zones, rates, period, capacity, now) -> None:
    claimed = zones.assign(capacity=[6.0, 5.0, capacity])
    plan = make_plan(claimed, rates, levels([0, 5, now]), period)
    assert [station.number for station in plan.stations] == [0, 1]
    assert "more than 1,000" in plan.left_out[2]
