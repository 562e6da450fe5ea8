"""Held-out bins: bias and coverage of counts with known means; nothing of the bins reaches the estimate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_joint import simulated

from unmet.mobility.models.held_out import HeldOut, find_held_out, measure
from unmet.mobility.models.joint import join_city
from unmet.mobility.models.joint_city import JointCity
from unmet.mobility.runs.totals import ZoneDraws

DAY, FULL = np.arange(4000) // 40, np.ones(4000)


def counts(seed: int, dispersion: float = 0.2) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Counts, draws of their means (which are known), and a generator."""
    rng = np.random.default_rng(seed)
    mean = rng.uniform(0.5, 8.0, len(DAY))
    truth = rng.poisson(mean * rng.gamma(1 / dispersion, dispersion, len(DAY))).astype(float)
    return truth, np.tile(mean, (200, 1)), rng


def test_right_predictions_are_found_right() -> None:
    found = [measure(truth, expected, FULL, 0.2, DAY, rng) for truth, expected, rng in map(counts, range(8))]
    assert np.mean([h.bias for h in found]) == pytest.approx(0.0, abs=0.01)
    assert np.std([h.bias for h in found]) == pytest.approx(np.mean([h.bias_se for h in found]), rel=0.6)
    assert np.mean([h.coverage for h in found]) == pytest.approx(0.9, abs=0.01)
    assert np.mean([h.error == 0.0 for h in found]) > 0.7
    assert np.mean([h.spread == 1.0 for h in found]) > 0.7


def test_predictions_that_are_too_high_or_too_sure_are_found_out() -> None:
    truth, expected, rng = counts(1)
    high = measure(truth, 1.1 * expected, FULL, 0.2, DAY, rng)
    assert high.bias == pytest.approx(0.1, abs=0.03)
    assert high.error == high.bias
    sure = measure(truth, expected, FULL, 0.0, DAY, rng)
    assert sure.coverage < 0.85
    assert 1.1 < sure.spread < 2.0


def test_too_few_bins_tell_nothing() -> None:
    truth, expected, rng = counts(2)
    assert measure(truth[:20], expected[:, :20], FULL[:20], 0.2, DAY[:20], rng) is None
    assert measure(np.zeros(100), expected[:, :100], FULL[:100], 0.2, DAY[:100], rng) is None


def test_some_bins_with_supply_are_held_out_the_same_every_time() -> None:
    observed, exposure = np.ones(5000), np.where(np.arange(5000) % 2, 0.3, 0.0)
    observed[::3] = np.nan
    hidden = find_held_out("a", observed, exposure, seed=0)
    assert (exposure[hidden] > 0).all()
    assert np.isfinite(observed[hidden]).all()
    assert hidden.sum() == pytest.approx(0.03 * 1667, rel=0.4)
    np.testing.assert_array_equal(hidden, find_held_out("a", observed, exposure, seed=0))
    assert (hidden != find_held_out("b", observed, exposure, seed=0)).any()


def test_stations_that_run_out_do_not_look_biased() -> None:
    """Riders of known rate come to five vehicles until none is left: bins that never ran out had fewer riders."""
    rng = np.random.default_rng(0)
    gaps = rng.exponential(1 / 6.0, (20_000, 5)).cumsum(axis=1)
    taken, exposure = (gaps < 1).sum(axis=1).astype(float), np.minimum(gaps[:, -1], 1.0)
    expected, day = np.tile(6.0 * exposure, (50, 1)), np.arange(20_000) // 24
    found = measure(taken, expected, exposure, 1e-9, day, rng)
    assert abs(found.bias) < 2 * found.bias_se + 0.005
    full = exposure == 1.0
    assert expected[0, full].sum() / taken[full].sum() > 1.5  # what a choice by stock would call a bias


@pytest.mark.slow
def test_nothing_of_the_held_out_counts_reaches_the_city(tmp_path) -> None:
    table, _, _, _ = simulated(3, zones=10, bins=300)
    hidden = np.array(
        [find_held_out(z, table.observed[i], table.exposure[i], 0, 0.1) for i, z in enumerate(table.zones)]
    )
    found = join_city(table, draws=20, hidden=hidden)
    other = replace(table, observed=np.where(hidden, table.observed + 50, table.observed))
    changed = join_city(other, draws=20, hidden=hidden)
    np.testing.assert_array_equal(found.shock_mean, changed.shock_mean)
    np.testing.assert_array_equal(found.walking.theta, changed.walking.theta)
    assert abs(found.held_out.bias) < 4 * found.held_out.bias_se + 0.05
    assert changed.held_out.bias < -0.5
    found.save(tmp_path / "joint.npz")
    assert JointCity.load(tmp_path / "joint.npz").held_out == found.held_out


def test_widened_totals_keep_their_mean_and_add_the_error_of_all_zones() -> None:
    rng = np.random.default_rng(0)
    draws = [ZoneDraws.by_itself(np.full(168, 9.0), rng.normal(100.0, 3.0, (168, 4000))) for _ in range(2)]
    both = draws[0].widened(0.1, 2.0) + draws[1].widened(0.1, 2.0)
    assert both.lost.mean() == pytest.approx(200.0, rel=1e-3)
    expected = np.hypot(0.1 * 200.0, np.sqrt(2) * 2 * 3.0)  # the error is that of all zones, the spread each zone's own
    assert both.lost.std(axis=1).mean() == pytest.approx(expected, rel=0.02)


def test_the_rule_for_widening() -> None:
    assert HeldOut(1000, 0.03, 0.02, 0.9).error == 0.0
    assert HeldOut(1000, -0.05, 0.02, 0.9).error == 0.05
    assert HeldOut(1000, 0.0, 0.02, 0.885).spread == 1.0
    assert HeldOut(1000, 0.0, 0.02, 0.8).spread == pytest.approx(1.6449 / 1.2816, rel=1e-3)
