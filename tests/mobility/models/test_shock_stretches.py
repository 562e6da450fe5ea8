"""EP in stretches against EP in one piece."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unmet.inference.ep import Sites
from unmet.inference.statespace import StateSpace
from unmet.likelihoods.base import Observations
from unmet.mobility.models import shock_stretches
from unmet.mobility.models.shock_stretches import Pairs, smooth_counts
from unmet.spreading import in_turn, spread_over_processes

STEPS, PLACES = 400, 4


def counted(own: float = 0.0) -> tuple[StateSpace, Observations]:
    """Counts of four places and 400 steps, some of them not seen, with walkers; shocks last for three steps."""
    rng = np.random.default_rng(7)
    features = rng.normal(0, 0.4, (PLACES, 3))
    decay = np.exp(-1 / np.array([3.0, 2.0, 2.0]))
    step, place = np.nonzero(rng.random((STEPS, PLACES)) < 0.9)
    space = StateSpace(features, decay, step, place, rng.normal(0.5, 0.3, len(step)), STEPS, np.full(len(step), own))
    y = rng.poisson(2.0, len(step)).astype(float)
    return space, Observations(y, y, rng.uniform(0.2, 1, len(step)), background=rng.uniform(0, 0.5, len(step)))


def every_pair(seed: int) -> Pairs:
    """Pairs at many steps, in no order."""
    rng = np.random.default_rng(seed)
    return Pairs(rng.integers(0, PLACES, 500), rng.integers(0, PLACES, 500), rng.integers(0, STEPS, 500))


@pytest.mark.parametrize("own", [0.0, 0.05])
@pytest.mark.parametrize("dispersion", [0.0, 0.1])
def test_stretches_have_the_posterior_of_one_piece(own: float, dispersion: float, monkeypatch) -> None:
    monkeypatch.setattr(shock_stretches, "_TOLERANCE", 1e-9)
    monkeypatch.setattr(shock_stretches, "_SWEEPS", 100)
    space, obs = counted(own)
    pairs = every_pair(1)
    whole = smooth_counts(space, obs, dispersion, pairs=pairs)
    monkeypatch.setattr(shock_stretches, "_LEAST_STEPS", 90)
    monkeypatch.setattr(shock_stretches, "_MARGIN", 3.0)  # e⁻³ is seen, so the margin matters
    assert len(shock_stretches._bounds(space)) > 3
    near = smooth_counts(space, obs, dispersion, pairs=pairs)
    monkeypatch.setattr(shock_stretches, "_MARGIN", 8.0)
    parts = smooth_counts(space, obs, dispersion, pairs=pairs)
    assert len(shock_stretches._bounds(space)) > 2

    def furthest(found: shock_stretches.Smoothed, name: str) -> float:
        return float(np.abs(getattr(found.filtered, name) - getattr(whole.filtered, name)).max())

    for name in ("mean", "var", "everywhere", "spread", "means", "covariances"):
        assert furthest(parts, name) < 1e-4, name
        assert furthest(parts, name) < furthest(near, name), name
    np.testing.assert_allclose(parts.sites.tau, whole.sites.tau, atol=1e-4)
    np.testing.assert_allclose(parts.sites.nu, whole.sites.nu, atol=1e-4)
    np.testing.assert_allclose(parts.shared, whole.shared, atol=1e-4)
    expected = space.covariance(whole.filtered, pairs.first, pairs.second, pairs.step)
    np.testing.assert_allclose(whole.shared, expected, atol=1e-12)


def test_processes_change_no_digit_and_a_start_is_used(monkeypatch) -> None:
    monkeypatch.setattr(shock_stretches, "_LEAST_STEPS", 90)
    space, obs = counted()
    here = smooth_counts(space, obs, 0.1, pairs=every_pair(2), spread=in_turn)
    with spread_over_processes(2) as spread:
        there = smooth_counts(space, obs, 0.1, pairs=every_pair(2), spread=spread)
    for name in ("mean", "var", "everywhere", "spread", "means", "covariances"):
        np.testing.assert_array_equal(getattr(here.filtered, name), getattr(there.filtered, name))
    np.testing.assert_array_equal(here.shared, there.shared)
    again = smooth_counts(space, obs, 0.1, Sites(here.sites.tau, here.sites.nu))
    np.testing.assert_allclose(again.filtered.mean, here.filtered.mean, atol=2e-3)


def test_shocks_that_last_for_long_are_estimated_in_one_piece() -> None:
    short = replace(counted()[0], steps=3000)
    lasting = replace(short, decay=np.full(3, np.exp(-1 / 100)))
    assert shock_stretches._bounds(lasting) == [0, 3000]
    assert shock_stretches._bounds(short) == [0, 1000, 2000, 3000]
