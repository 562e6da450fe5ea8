"""Worth of listed vehicles where looks are far apart, against the process itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import expm

from unmet.mobility.supply.between_broken import Breaking, Looks
from unmet.mobility.supply.between_worth import Worth, find_worth
from unmet.mobility.supply.between_worth import _expected_falls as expected_falls
from unmet.mobility.supply.timeline import AMPLE

TAKEN, BROUGHT, MINUTES, VAN = 0.6, 0.55, 30.0, 5


def falls_of_riders(first: int) -> float:
    """Falls expected of a process without broken vehicles, given that fewer than a van moves have changed."""
    size = 60
    rate = np.diag(np.full(size - 1, BROUGHT), 1) + np.diag(np.full(size - 1, TAKEN), -1)
    chance = expm(rate - np.diag(rate.sum(axis=1)))[first]
    change = first - np.arange(size)
    chance = np.where(np.abs(change) < VAN, chance, 0.0)
    return float(chance @ np.maximum(change, 0) / chance.sum())


def ridden_city(number: int, breakage: float, refused: float) -> Looks:
    """Looks at a station whose vehicles break, and are mended as the model has it; some last vehicles are refused."""
    rng = np.random.default_rng(3)
    listed, sound, broken = [2], 2, 0
    for _ in range(number):
        for is_brought in rng.random(rng.poisson(TAKEN + BROUGHT)) < BROUGHT / (TAKEN + BROUGHT):
            stays = not is_brought and sound == 1 and rng.random() < refused
            sound = max(sound + (1 if is_brought else -1) * (not stays), 0)
        if broken and rng.random() < -np.expm1(-1e-3 * MINUTES):
            sound, broken = sound + broken * (rng.random() < 0.5), 0
        broken = min(broken + rng.poisson(breakage * BROUGHT), 3)
        listed.append(sound + broken)
    first, second = np.array(listed[:-1]), np.array(listed[1:])
    rates = (np.full(number, value) for value in (MINUTES, TAKEN, BROUGHT))
    return Looks(np.arange(number) == 0, *rates, first, second, np.abs(first - second) >= VAN)


def test_falls_are_those_of_the_process():
    first = np.arange(1, AMPLE)
    rates = (np.full(len(first), value) for value in (MINUTES, TAKEN, BROUGHT))
    looks = Looks(first > 0, *rates, first, first, first < 0)
    found = expected_falls(looks, Breaking(0.0, 1e-3), VAN)
    exact = np.array([[falls_of_riders(n - k) if n >= k else 0.0 for k in range(2)] for n in first])
    assert found[:, 0] == pytest.approx(exact[:, 0], rel=0.02)  # the tables are interpolated
    no_sound = found[0, 1]
    assert no_sound < 0.05  # one listed, and that is broken


def test_curve_is_one_with_the_model():
    looks = ridden_city(40_000, 0.02, 0.05)
    worth = find_worth(looks, Breaking(0.02, 1e-3), VAN)
    assert worth.listed[1] < 0.8
    assert worth.listed[1] < worth.listed[2] < worth.listed[3]
    assert worth.usable[1:] == pytest.approx(1.0, abs=0.06)
    assert find_worth(looks, None, VAN).correction[1] < worth.correction[1] - 0.05


def test_correction_makes_up_for_last_vehicles_that_are_refused():
    looks = ridden_city(40_000, 0.0, 0.5)
    worth = find_worth(looks, None, VAN)
    assert worth.correction[1] < 0.92
    assert worth.listed[1] < worth.usable[1] - 0.1
    assert worth.usable[3:] == pytest.approx(1.0, abs=0.06)
    assert np.all(worth.correction[3:] == 1.0)


def test_chance_is_corrected_by_the_numbers_at_both_looks():
    ones = np.ones(AMPLE)
    worth = Worth(ones, ones, np.array([1.0, 0.8, 0.9, 1.0, 1.0]))
    first, second = np.array([1, 1, 2, 0, 9, 30]), np.array([1, 2, 0, 0, 9, 1])
    chance = np.array([1.0, 0.5, 0.6, 0.0, 1.0, 1.0])
    assert worth.corrected(chance, first, second) == pytest.approx([0.8, 0.425, 0.57, 0.0, 1.0, 0.9])
    assert Worth(ones, ones, 1.2 * ones).corrected(ones, ones.astype(int), ones.astype(int)).max() == 1.0
