"""Rates of stations: what other hours of a station say of an hour."""

from __future__ import annotations

import numpy as np
import pytest

from unmet.mobility.supply import usual_rates
from unmet.mobility.supply.usual_rates import Memory


def counts(seed: int, spread: float, hours: int = 3000, stations: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Pickups and those expected, where demand moves by `spread` about what is expected and back in four hours."""
    rng = np.random.default_rng(seed)
    decay = np.exp(-1 / 4)
    level = np.zeros((stations, hours))
    for t in range(1, hours):
        level[:, t] = decay * level[:, t - 1] + spread * np.sqrt(1 - decay**2) * rng.standard_normal(stations)
    expected = rng.uniform(1, 4, (stations, hours))
    taken = rng.poisson(expected * np.exp(level - spread**2 / 2))
    return taken.astype(np.float32), expected.astype(np.float32)


@pytest.mark.parametrize("itself", [True, False])
def test_hours_are_weighted_by_their_distance(itself: bool) -> None:
    rng = np.random.default_rng(0)
    taken, expected = rng.poisson(2.0, (3, 40)), rng.uniform(1, 3, (3, 40))
    distance = np.abs(np.subtract.outer(np.arange(40), np.arange(40)))
    weight = np.exp(-distance / 5.0) - (0 if itself else np.eye(40))
    found = Memory(10.0, 5.0).factor(taken, expected, itself)
    np.testing.assert_allclose(found, (taken @ weight + 10) / (expected @ weight + 10), rtol=1e-5)


def test_no_memory_says_that_every_hour_is_as_usual() -> None:
    assert (Memory().factor(np.zeros((2, 5)), np.ones((2, 5))) == 1).all()


def test_memory_is_learnt_where_demand_moves_and_only_there() -> None:
    assert usual_rates._learn_memory(*counts(1, 0.4)).pickups <= 20
    assert usual_rates._learn_memory(*counts(2, 0.0)).pickups >= 80


def test_the_hours_around_an_hour_tell_its_pickups() -> None:
    taken, expected = counts(3, 0.4)
    rest = usual_rates._learn_memory(taken, expected).factor(taken, expected, itself=False)
    assert np.sum((taken - rest * expected) ** 2 / expected) < 0.9 * np.sum((taken - expected) ** 2 / expected)
