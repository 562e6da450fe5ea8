"""The user dissatisfaction function against closed forms, the matrix exponential and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import expm
from scipy.stats import poisson

from unmet import InputError
from unmet.decisions import expected_cost, expected_level, expected_lost, with_day_factor

DAY_RENTALS = [0.2] * 6 + [1, 4, 8, 5, 2, 2, 2.5, 2.5, 2, 2, 2.5, 4, 3, 2, 1, 0.8, 0.5, 0.3]
DAY_RETURNS = [0.2] * 6 + [0.5, 1, 2, 2, 2, 2, 2.5, 2.5, 2, 2.5, 4, 8, 5, 3, 2, 1, 0.6, 0.4]

rates = st.lists(st.tuples(st.floats(0, 12), st.floats(0, 12)), min_size=1, max_size=4)


def by_matrix_exponential(mu, lam, capacity, hours=1.0):
    """Lost rentals and returns by start level: the integral of the chain's path, from one augmented generator."""
    levels = capacity + 1
    value = np.zeros((levels, 2))
    for m, r in zip(reversed(mu), reversed(lam), strict=True):
        generator = np.zeros((levels, levels))
        for s in range(levels):
            if s < capacity:
                generator[s, s + 1] += r
            if s > 0:
                generator[s, s - 1] += m
            generator[s, s] = -generator[s].sum()
        cost = np.zeros((levels, 2))
        cost[0, 0], cost[-1, 1] = m, r
        whole = np.zeros((levels + 2, levels + 2))
        whole[:levels, :levels], whole[:levels, levels:] = generator, cost
        power = expm(whole * hours)
        value = power[:levels, :levels] @ value + power[:levels, levels:]
    return value


def test_a_published_day_has_its_published_costs():
    cost = expected_lost(DAY_RENTALS, DAY_RETURNS, 20).cost()
    assert cost[[0, 10, 17, 20]] == pytest.approx([17.5577, 8.0483, 4.5534, 5.3872], abs=5e-5)
    assert cost.argmin() == 17
    exact = by_matrix_exponential(DAY_RENTALS, DAY_RETURNS, 20).sum(axis=1)
    np.testing.assert_allclose(cost, exact, rtol=1e-11)


@pytest.mark.parametrize("capacity", [0, 1, 7, 60])
@pytest.mark.parametrize("hours", [0.25, 1.0, 24.0])
def test_lost_riders_equal_the_matrix_exponential(capacity, hours):
    mu, lam = [3.0, 0.0, 8.0], [1.0, 2.0, 0.0]
    lost = expected_lost(mu, lam, capacity, hours=hours)
    exact = by_matrix_exponential(mu, lam, capacity, hours)
    np.testing.assert_allclose(lost.rentals, exact[:, 0], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(lost.returns, exact[:, 1], rtol=1e-9, atol=1e-11)


def test_without_returns_the_loss_is_the_excess_of_poisson_demand():
    lost = expected_lost([2.0, 3.5], [0.0, 0.0], 9)
    counts = np.arange(200)
    expected = [np.sum(np.maximum(counts - s, 0) * poisson.pmf(counts, 5.5)) for s in range(10)]
    np.testing.assert_allclose(lost.rentals, expected, rtol=1e-12)
    assert not lost.returns.any()


def test_the_long_run_loss_is_that_of_the_stationary_chain():
    lam, mu, capacity = 2.0, 3.0, 8
    rho = lam / mu
    stationary = mu * (1 - rho) / (1 - rho ** (capacity + 1))
    assert stationary == pytest.approx(1.0267070, abs=5e-8)
    long, longer = (expected_lost([mu], [lam], capacity, hours=h).rentals for h in (400.0, 800.0))
    np.testing.assert_allclose((longer - long) / 400.0, stationary, rtol=1e-7)


def test_busy_intervals_are_cut_in_pieces_without_a_seam():
    whole = expected_lost([900.0], [700.0], 15)
    pieces = expected_lost([900.0] * 8, [700.0] * 8, 15, hours=1 / 8)
    np.testing.assert_allclose(whole.rentals, pieces.rentals, rtol=1e-10)
    np.testing.assert_allclose(whole.returns, pieces.returns, rtol=1e-8)


@settings(max_examples=60, deadline=None)
@given(rates, st.integers(0, 12))
def test_the_cost_is_convex_and_mirrors_itself(pairs, capacity):
    mu, lam = np.array(pairs).T
    lost, mirrored = expected_lost(mu, lam, capacity), expected_lost(lam, mu, capacity)
    np.testing.assert_allclose(lost.rentals, mirrored.returns[::-1], rtol=1e-10, atol=1e-12)
    for part in (lost.rentals, lost.returns):
        assert np.diff(part, 2).min(initial=0.0) >= -1e-10
    assert (np.diff(lost.rentals) <= 1e-12).all()
    assert (np.diff(lost.returns) >= -1e-12).all()


@settings(max_examples=60, deadline=None)
@given(rates, st.integers(0, 12))
def test_bikes_are_conserved(pairs, capacity):
    mu, lam = np.array(pairs).T
    lost = expected_lost(mu, lam, capacity)
    end = np.arange(capacity + 1) + lam.sum() - lost.returns - mu.sum() + lost.rentals
    np.testing.assert_allclose(expected_level(mu, lam, capacity), end, rtol=1e-9, atol=1e-9)


def test_a_simulated_station_loses_what_is_expected():
    generator = np.random.default_rng(5)
    mu, lam, capacity, paths = [4.0, 1.0], [1.0, 5.0], 5, 40_000
    levels = np.full(paths, 3)
    lost = np.zeros((paths, 2))
    for m, r in zip(mu, lam, strict=True):
        events = generator.poisson(m + r, paths)
        for step in range(events.max()):
            live = step < events
            returned = generator.random(paths) < r / (m + r)
            lost[:, 0] += live & ~returned & (levels == 0)
            lost[:, 1] += live & returned & (levels == capacity)
            levels = np.where(live, np.clip(levels + np.where(returned, 1, -1), 0, capacity), levels)
    expected = expected_lost(mu, lam, capacity)
    errors = lost.std(axis=0) / np.sqrt(paths)
    assert abs(lost[:, 0].mean() - expected.rentals[3]) < 4 * errors[0]
    assert abs(lost[:, 1].mean() - expected.returns[3]) < 4 * errors[1]


def test_scenarios_are_computed_as_if_alone_and_mean_rates_understate_the_loss():
    generator = np.random.default_rng(11)
    mu = with_day_factor(np.tile(DAY_RENTALS, (2000, 1)), 0.09, generator)
    lam = with_day_factor(np.tile(DAY_RETURNS, (2000, 1)), 0.09, generator)
    together = expected_lost(mu.reshape(40, 50, 24), lam.reshape(40, 50, 24), 20)
    alone = expected_lost(mu[77], lam[77], 20)
    np.testing.assert_allclose(together.rentals[1, 27], alone.rentals, rtol=1e-12)
    assert together.rentals.shape == (40, 50, 21)
    mean_cost = together.cost().mean(axis=(0, 1)).min()
    assert mean_cost > 1.1 * expected_lost(DAY_RENTALS, DAY_RETURNS, 20).cost().min()


def test_a_day_factor_has_mean_one_and_the_variance_asked_for():
    factors = with_day_factor(np.ones((200_000, 1)), 0.25, np.random.default_rng(3))
    assert factors.mean() == pytest.approx(1.0, abs=0.005)
    assert factors.var() == pytest.approx(0.25, rel=0.02)
    assert with_day_factor([1.0, 2.0], 0.0, np.random.default_rng(0)).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("hours", [1.0, 200.0])
def test_the_cost_alone_is_that_of_both_losses(hours):
    many = np.outer([0.5, 1.0, 3.0], DAY_RENTALS), np.outer([2.0, 0.1, 3.0], DAY_RETURNS)
    alone = expected_cost(*many, 9, no_bike=2.0, no_dock=0.7, hours=hours, broken=2)
    np.testing.assert_allclose(alone, expected_lost(*many, 9, hours=hours, broken=2).cost(2.0, 0.7), rtol=1e-12)


def test_broken_bikes_take_docks():
    some, smaller = expected_lost([3.0], [2.0], 10, broken=4), expected_lost([3.0], [2.0], 6)
    np.testing.assert_array_equal(some.rentals, smaller.rentals)


@pytest.mark.parametrize(
    ("arguments", "more", "match"),
    [
        (([1.0], [1.0, 2.0], 3), {}, "one shape"),
        (([-1.0], [1.0], 3), {}, "rentals: expected finite rates"),
        (([1.0], [np.nan], 3), {}, "returns: expected finite rates"),
        (([1.0], [1.0], 3), {"hours": 0.0}, "hours"),
        (([1.0], [1.0], 3), {"broken": 4}, "broken"),
    ],
)
def test_wrong_arguments_are_named(arguments, more, match):
    with pytest.raises(InputError, match=match):
        expected_lost(*arguments, **more)
