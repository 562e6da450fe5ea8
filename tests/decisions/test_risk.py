"""Time out of stock: against the matrix exponential and the expected lost riders."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import expm

from unmet import InputError
from unmet.decisions import expected_lost, time_out

rng = np.random.default_rng(4)


def generator(mu: float, lam: float, capacity: int) -> np.ndarray:
    matrix = np.zeros((capacity + 1, capacity + 1))
    for level in range(capacity + 1):
        if level < capacity:
            matrix[level, level + 1] = lam
        if level > 0:
            matrix[level, level - 1] = mu
        matrix[level, level] = -matrix[level].sum()
    return matrix


@pytest.mark.parametrize("hours", [0.25, 1.0, 12.0])
def test_shares_are_those_of_the_matrix_exponential(hours):
    capacity, start = 5, 2
    mu, lam = rng.uniform(0, 8, 4), rng.uniform(0, 8, 4)
    found = time_out(mu[None, None], lam[None, None], [capacity], [start], hours=hours)
    chance = np.eye(capacity + 1)[start]
    for k in range(4):
        # The block matrix [[Q, I], [0, 0]] has the integral of e^{Qt} in its upper right corner (Van Loan 1978).
        block = np.zeros((2 * capacity + 2, 2 * capacity + 2))
        block[: capacity + 1, : capacity + 1] = generator(mu[k], lam[k], capacity)
        block[: capacity + 1, capacity + 1 :] = np.eye(capacity + 1)
        power = expm(block * hours)
        spent = chance @ power[: capacity + 1, capacity + 1 :] / hours
        chance = chance @ power[: capacity + 1, : capacity + 1]
        assert found.empty[0, 0, k] == pytest.approx(spent[0], abs=1e-9)
        assert found.full[0, 0, k] == pytest.approx(spent[-1], abs=1e-9)


def test_stations_of_all_sizes_lose_the_riders_that_the_dissatisfaction_function_gives():
    capacity, start = np.array([3, 12, 1]), np.array([0, 7, 1])
    mu, lam = rng.uniform(0, 5, (2, 3, 4, 6))
    found = time_out(mu, lam, capacity, start)
    for i in range(3):
        lost = expected_lost(mu[i], lam[i], int(capacity[i]))
        assert (mu[i] * found.empty[i]).sum(axis=-1) == pytest.approx(lost.rentals[:, start[i]], rel=1e-8)
        assert (lam[i] * found.full[i]).sum(axis=-1) == pytest.approx(lost.returns[:, start[i]], rel=1e-8)


def test_nothing_happens_without_riders():
    found = time_out(np.zeros((2, 1, 2)), np.zeros((2, 1, 2)), [4, 4], [0, 2])
    assert found.empty[:, 0].tolist() == pytest.approx(np.array([[1.0, 1.0], [0.0, 0.0]]))


def test_a_level_above_the_capacity_is_refused():
    with pytest.raises(InputError, match="start: expected levels from 0 to the capacity"):
        time_out(np.zeros((1, 1, 1)), np.zeros((1, 1, 1)), [4], [5])
