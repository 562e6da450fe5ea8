"""The walking curve learnt from counts that it made; slopes against differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import poisson
from walking_cities import TRUE, city, turned_away

from unmet.mobility.models.walking import DEFAULT_WALKING, NO_WALKING, Walking, Walks
from unmet.mobility.models.walking_learning import Absorbed, _Counts, learn_walking


def small_city() -> tuple[Walks, np.ndarray, np.ndarray, np.ndarray, Absorbed]:
    """Walks, pickups, own riders, riders who find a zone empty, and what fits had absorbed."""
    walks, exposure, _ = city(6, zones=12, bins=60, shares=True)
    rng = np.random.default_rng(2)
    rate = rng.uniform(0.2, 4, exposure.shape)
    y = rng.poisson(exposure * rate + walks.background(TRUE, rate)).astype(float)
    y[3, :20] = np.nan
    group = np.add.outer(2 * np.arange(12), np.arange(60) % 2)
    own = exposure * rate
    absorbed = Absorbed.by(group, 24, own, 0.3 * walks.background(TRUE, rate), np.isfinite(y))
    return walks, y, own, turned_away(walks, rate), absorbed


def differences(function: Callable[[np.ndarray], float], at: np.ndarray, step: float = 1e-4) -> np.ndarray:
    """Central differences."""
    return np.array([function(at + e) - function(at - e) for e in step * np.eye(len(at))]) / (2 * step)


def test_slopes_of_chances_are_their_differences() -> None:
    walks, *_ = small_city()
    weight = np.random.default_rng(0).normal(size=len(walks))
    for theta in (TRUE.theta, DEFAULT_WALKING.theta, TRUE.theta + 3):
        found = walks.slope(Walking(theta), weight)
        by_step = differences(lambda t: float(weight @ walks.chances(Walking(t))), theta)
        np.testing.assert_allclose(found, by_step, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dispersion", [0.0, 0.1])
@pytest.mark.parametrize("levels", [False, True])
def test_slopes_of_the_likelihood_are_its_differences(dispersion: float, levels: bool) -> None:
    walks, y, own, riders, absorbed = small_city()
    counts = _Counts.of(walks, y, own, riders, dispersion, absorbed if levels else None)
    value, found = counts.log_likelihood(TRUE)
    by_step = differences(lambda t: counts.log_likelihood(Walking(t))[0], TRUE.theta)
    np.testing.assert_allclose(found, by_step, rtol=1e-5, atol=1e-5)
    assert not counts.log_likelihood(NO_WALKING)[1].size
    assert np.isfinite(value)


@pytest.mark.parametrize("dispersion", [0.0, 0.2])
def test_the_curve_is_learnt_with_honest_errors(dispersion: float) -> None:
    scores = []
    for seed in range(6):
        walks, exposure, _ = city(seed)
        rng = np.random.default_rng([seed, 7])
        true = Walking(DEFAULT_WALKING.theta + 0.35 * rng.standard_normal(5))  # drawn from the prior
        rate = rng.uniform(0.5, 6, exposure.shape)
        mean = exposure * rate + walks.background(true, rate)
        shape = rng.gamma(1 / dispersion, dispersion, mean.shape) if dispersion else 1.0
        y = rng.poisson(mean * shape).astype(float)
        learnt = learn_walking(walks, y, exposure * rate, turned_away(walks, rate), dispersion=dispersion)
        assert (np.diff(learnt.values) < 0).all()
        scores.append((learnt.values - true.values)[:-1] / learnt.sd()[:-1])
    assert np.abs(np.mean(scores)) < 0.6
    assert 0.5 < np.std(scores) < 1.6


def test_few_records_leave_the_prior_and_many_do_not() -> None:
    walks, exposure, _ = city(1, bins=2)
    rate = np.full(exposure.shape, 0.01)
    nothing = learn_walking(walks, np.zeros(exposure.shape), exposure * rate, turned_away(walks, rate))
    np.testing.assert_allclose(nothing.values, DEFAULT_WALKING.values, atol=0.03)
    assert (nothing.sd()[:2] > 0.05).all()
    walks, exposure, _ = city(1, bins=2000)
    rate = np.full(exposure.shape, 5.0)
    y = np.random.default_rng(0).poisson(exposure * rate).astype(float)  # nobody walks
    assert not learn_walking(walks, y, exposure * rate, turned_away(walks, rate)).values.any()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 1.0])
def test_nobody_walks_if_that_is_more_probable_than_all_curves_together(share: float) -> None:
    """The evidence of the curves by brute force: the mean of the likelihood over draws of the prior."""
    walks, exposure, _ = city(5, bins=60)
    rate = np.full(exposure.shape, 2.0)
    rng = np.random.default_rng(4)
    y = rng.poisson(exposure * rate + share * walks.background(DEFAULT_WALKING, rate)).astype(float)

    def log_likelihood(walking: Walking) -> float:
        mean = exposure * rate + walks.background(walking, rate)
        reached = np.zeros(exposure.shape, dtype=bool)
        reached[walks.target, walks.bin] = True
        return float(poisson.logpmf(y, np.maximum(mean, 1e-9))[reached].sum())

    theta = DEFAULT_WALKING.theta + 0.35 * rng.standard_normal((4000, 5))
    curves = logsumexp([log_likelihood(Walking(one)) for one in theta]) - np.log(len(theta))
    odds = log_likelihood(NO_WALKING) + np.log(0.1 / 0.9) - curves
    assert abs(odds) > 0.3, "too close to tell from draws: choose another city"
    learnt = learn_walking(walks, y, exposure * rate, turned_away(walks, rate))
    assert (learnt.theta.size == 0) == (odds > 0)


def test_missing_counts_are_left_out() -> None:
    walks, exposure, _ = city(2, bins=50)
    rate = np.full(exposure.shape, 3.0)
    y = np.random.default_rng(0).poisson(exposure * rate + walks.background(TRUE, rate)).astype(float)
    y[:, 25:] = np.nan
    early = walks.bin < 25
    columns = (walks.source, walks.target, walks.bin, walks.distance, walks.out, walks.available)
    first = Walks(*(c[early] for c in columns))
    half = learn_walking(first, y, exposure * rate, turned_away(first, rate))
    whole = learn_walking(walks, y, exposure * rate, turned_away(walks, rate))
    np.testing.assert_allclose(whole.theta, half.theta, atol=1e-2)


def test_walkers_that_a_fit_took_for_own_riders_are_found() -> None:
    walks, exposure, _ = city(3, bins=1500)
    rng = np.random.default_rng(1)
    rate = np.repeat(rng.uniform(2, 6, (len(exposure), 1)), exposure.shape[1], axis=1)
    walkers = walks.background(TRUE, rate)
    y = rng.poisson(exposure * rate + walkers).astype(float)
    # A fit without any background: the walkers of a zone are spread over all of its bins.
    zone = np.repeat(np.arange(len(exposure))[:, None], exposure.shape[1], axis=1)
    own = exposure * rate * (1 + walkers.sum(axis=1) / (exposure * rate).sum(axis=1))[:, None]
    absorbed = Absorbed.by(zone, len(exposure), own, np.zeros(own.shape), np.ones(own.shape, dtype=bool))
    np.testing.assert_allclose(absorbed.level(walkers), ((exposure * rate).sum(axis=1) + 5) / (own.sum(axis=1) + 5))
    riders = turned_away(walks, rate)
    learnt = learn_walking(walks, y, own, riders, absorbed=absorbed)
    found = walks.background(learnt, rate).sum() / walkers.sum()
    assert found == pytest.approx(1.0, abs=0.05)
    believed = walks.background(learn_walking(walks, y, own, riders), rate).sum() / walkers.sum()
    assert believed < 0.95  # without it they stay own riders
