"""Targets, fleets, docks and chargers against brute force."""

from __future__ import annotations

from itertools import product
from math import factorial

import numpy as np
import pytest

from unmet import InputError
from unmet.decisions import (
    allocate_fleet,
    erlang_loss,
    expected_lost,
    expected_lost_at_chargers,
    fleet_curve,
    move_docks,
    rebalance,
    target_level,
    value_of_a_dock,
    value_of_bikes,
)


def random_station(generator, capacity):
    mu, lam = generator.gamma(1.0, 2.0, (2, 3))
    return expected_lost(mu, lam, capacity).cost()


def every_allocation(costs, bikes):
    for levels in product(*(range(len(c)) for c in costs)):
        if sum(levels) == bikes:
            yield np.array(levels), sum(c[s] for c, s in zip(costs, levels, strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_a_fleet_is_placed_as_brute_force_would(seed):
    generator = np.random.default_rng(seed)
    costs = [random_station(generator, c) for c in (3, 5, 4, 2)]
    for bikes, found in zip(range(15), fleet_curve(costs, range(15)), strict=True):
        assert found.cost == pytest.approx(min(cost for _, cost in every_allocation(costs, bikes)), rel=1e-12)
        assert found.levels.sum() == bikes
        assert sum(c[s] for c, s in zip(costs, found.levels, strict=True)) == pytest.approx(found.cost)
    assert allocate_fleet(costs, 7).levels.tolist() == fleet_curve(costs, [7])[0].levels.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_the_first_moves_are_the_best_set_of_that_size(seed):
    generator = np.random.default_rng(100 + seed)
    costs = [random_station(generator, c) for c in (4, 5, 4, 3)]
    start = np.array([generator.integers(0, len(c)) for c in costs])
    before = sum(c[s] for c, s in zip(costs, start, strict=True))
    moves = rebalance(costs, start)
    assert all(m.gain > 0 for m in moves)
    assert np.all(np.diff([m.gain for m in moves]) <= 1e-12)
    for most in range(len(moves) + 3):
        reachable = [
            cost for levels, cost in every_allocation(costs, start.sum()) if np.abs(levels - start).sum() <= 2 * most
        ]
        gained = sum(m.gain for m in rebalance(costs, start, most))
        assert before - gained == pytest.approx(min(reachable), abs=1e-10)


def test_costs_that_are_convex_up_to_rounding_move_no_bike_from_a_station_to_itself():
    assert rebalance([[0.0, 1e-10, 0.0]], [1], most_moves=3) == []
    between = rebalance([[0.0, 1e-10, 0.0, 0.0], [0.0, 0.0, 1e-10, 1.0]], [1, 2], most_moves=3)
    assert all(move.source != move.target for move in between)
    # Quiet hours and a large penalty: the differences of costs are rounding where a level hardly matters.
    for seed in range(20):
        generator = np.random.default_rng(seed)
        busy = generator.random((4, 2, 12)) < 0.5
        rates = busy * generator.gamma(0.3, generator.choice([0.01, 1.0, 20.0], (4, 2, 1)), (4, 2, 12))
        costs = [expected_lost(*rates[i], 40).cost(no_bike=1e6) for i in range(4)]
        moves = rebalance(costs, generator.integers(0, 41, 4), most_moves=200)
        assert len(moves) < 161
        assert np.all(np.diff([move.gain for move in moves]) <= 0)


def test_costs_that_are_not_convex_are_refused():
    with pytest.raises(InputError, match="station 1: the cost is not convex"):
        allocate_fleet([[1.0, 0.5, 0.2], [1.0, 0.9, 0.1]], 2)
    with pytest.raises(InputError, match="expected 0 to the 4 docks"):
        allocate_fleet([[1.0, 0.5, 0.2], [1.0, 0.4, 0.1]], 5)
    with pytest.raises(InputError, match="station 0 has 3 bikes"):
        rebalance([[1.0, 0.5, 0.2]], [3])


@pytest.mark.parametrize("seed", range(4))
def test_docks_move_as_brute_force_would(seed):
    generator = np.random.default_rng(200 + seed)
    rates = generator.gamma(1.0, 2.0, (3, 2, 3))
    capacities, bikes = [3, 5, 4], 6

    def cost(station, capacity):
        return expected_lost(*rates[station], capacity).cost()

    layouts = move_docks(cost, capacities, bikes, most_docks=3)
    for moved, layout in enumerate(layouts):
        assert layout.capacities.sum() == 12
        assert layout.levels.sum() == bikes
        options = [
            allocate_fleet([cost(i, c) for i, c in enumerate(docks)], bikes).cost
            for docks in product(range(13), repeat=3)
            if sum(docks) == 12 and np.abs(np.array(docks) - capacities).sum() <= 2 * moved
        ]
        assert layout.cost == pytest.approx(min(options), rel=1e-10)
        at_levels = sum(
            cost(i, int(c))[s] for i, (c, s) in enumerate(zip(layout.capacities, layout.levels, strict=True))
        )
        assert at_levels == pytest.approx(layout.cost, rel=1e-10)


def test_the_target_is_the_minimum_of_the_mean_and_its_band_has_no_holes():
    generator = np.random.default_rng(7)
    cost = np.stack([random_station(generator, 10) for _ in range(30)])
    mean = cost.mean(axis=0)
    target = target_level(cost, tolerance=0.3)
    assert target.level == mean.argmin()
    assert target.cost == mean.min()
    assert np.array_equal(np.flatnonzero(mean <= mean.min() + 0.3), np.arange(target.low, target.high + 1))
    with pytest.raises(InputError, match="tolerance"):
        target_level(cost, tolerance=-1.0)


def test_values_of_bikes_and_docks_are_differences_of_costs():
    mu, lam = [1.0, 6.0], [4.0, 2.0]
    cost, larger = expected_lost(mu, lam, 6).cost(2.0, 1.0), expected_lost(mu, lam, 7).cost(2.0, 1.0)
    np.testing.assert_allclose(value_of_bikes(cost), cost[:-1] - cost[1:])
    gain = value_of_a_dock(mu, lam, 6, no_bike=2.0, no_dock=1.0)
    np.testing.assert_allclose(gain, cost - larger[:-1])
    assert (gain >= 0).all()


@pytest.mark.parametrize("load", [0.0, 0.3, 4.0, 80.0])
def test_erlang_loss_equals_its_definition(load):
    shares = erlang_loss(load, 12)
    for c in range(13):
        terms = [load**k / factorial(k) for k in range(c + 1)]
        assert shares[c] == pytest.approx(terms[-1] / sum(terms), rel=1e-12)
    lost = expected_lost_at_chargers([2.0, 3.0], 0.5, 4)
    np.testing.assert_allclose(lost[1], 3.0 * erlang_loss(1.5, 4))


def test_erlang_loss_is_the_share_lost_in_a_simulation():
    generator = np.random.default_rng(9)
    arrivals = np.cumsum(generator.exponential(1 / 4.0, 60_000))
    free_at, lost = np.zeros(3), 0
    for at in arrivals:
        first = free_at.argmin()
        if free_at[first] > at:
            lost += 1
        else:
            free_at[first] = at + generator.gamma(4.0, 0.125)  # mean half an hour; the shape does not matter
    assert lost / len(arrivals) == pytest.approx(erlang_loss(2.0, 3)[3], abs=0.01)
