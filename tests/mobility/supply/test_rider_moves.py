"""Vehicles that riders take and bring, against simulated looks with known rates."""

from __future__ import annotations

import numpy as np
import pytest

from unmet.mobility.supply.bridge import MOST, MOVES, RATIOS, log_probabilities, time_at_zero
from unmet.mobility.supply.rider_moves import find_moves, log_likelihoods


def looks(first: int, taken: float, brought: float, number: int, rng: np.random.Generator) -> np.ndarray:
    """Second numbers of many intervals that begin with a number."""
    probability = time_at_zero(taken, brought)[0][first]
    return rng.choice(MOST + 1, number, p=probability / probability.sum())


@pytest.mark.parametrize(("taken", "brought"), [(0.3, 0.3), (4.0, 1.0), (2.0, 5.0)])
def test_rates_are_found_though_counts_stop_at_zero(taken, brought):
    rng = np.random.default_rng(6)
    first = rng.integers(3, 6, 1500)
    second = np.array([looks(n, taken, brought, 1, rng)[0] for n in first])
    likelihood = log_likelihoods(0 * first, first, second, 1)
    found = find_moves(likelihood, np.ones(1), 1.5)
    assert np.exp(found.moves[0]) == pytest.approx(np.sqrt(taken * brought), rel=0.15)
    assert np.exp(found.ratio[0]) == pytest.approx(taken / brought, rel=0.3)


def test_the_likelihood_is_the_sum_over_looks():
    cell, first, second = np.array([1, 0, 1, 1]), np.array([3, 4, 5, 3]), np.array([2, 4, 30, 2])
    expected = np.full((2, len(MOVES), len(RATIOS)), -np.inf)
    for van in (0.003, 0.03, 0.2):
        table = log_probabilities(van)
        one = np.array(
            [sum(table[:, :, first[i], min(second[i], MOST)] for i in np.flatnonzero(cell == c)) for c in (0, 1)]
        )
        expected = np.logaddexp(expected, one)
    assert log_likelihoods(cell, first, second, 2) == pytest.approx(expected)


def test_without_looks_the_prior_is_left():
    found = find_moves(np.zeros((1, len(MOVES), len(RATIOS))), np.array([1.0]), 0.4)
    assert found.moves[0] == pytest.approx(0.0, abs=0.02)
    assert found.variance[0] == pytest.approx(0.16, rel=0.1)
    assert found.ratio[0] == pytest.approx(0.0, abs=1e-9)


def test_vans_are_told_from_riders():
    """A quiet station to which a van comes on every tenth night is quiet."""
    rng = np.random.default_rng(9)
    first = np.full(200, 8)
    second = np.where(rng.random(200) < 0.1, 15, looks(8, 0.05, 0.05, 200, rng))
    found = find_moves(log_likelihoods(0 * first, first, second, 1), np.ones(1), 1.5)
    assert np.exp(found.moves[0]) < 0.12
