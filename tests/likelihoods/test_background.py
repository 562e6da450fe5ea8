"""Counts with a background: against a plain fine grid, differences, and the limits of no and of much background."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from unmet import InputError
from unmet.likelihoods._background import BackgroundCurve
from unmet.likelihoods._count_curves import CountCurve
from unmet.likelihoods.base import Observations
from unmet.likelihoods.counts import NegativeBinomial, Poisson

kinds = pytest.mark.parametrize("censored", [False, True], ids=["exact", "censored"])
likelihoods = pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(0.1), NegativeBinomial(5.0)], ids=str)


def problem(censored, n=120, seed=3):
    """Counts of all sizes, with cavities from narrow to broad, near what the count says and far from it."""
    rng = np.random.default_rng([seed, censored])
    y = np.floor(10 ** rng.uniform(0, 2.5, n)) - (0 if censored else 1)
    s, a, var = 10 ** rng.uniform(-3, 2, n), 10 ** rng.uniform(-2, 0, n), 10 ** rng.uniform(-4, 1.5, n)
    mean = np.log(np.maximum(y - s, 0.3) / a) + 3 * np.sqrt(var) * rng.standard_normal(n)
    return Observations(y, np.where(censored, np.inf, y), a, background=s), np.clip(mean, -20, 15), var


def on_a_grid(likelihood, obs, mean, var):
    """log_z, mean and variance by the trapezoidal rule on 20,001 points over all that has mass: SciPy's counts."""
    dispersion = getattr(likelihood, "log_dispersion", None)
    f = np.linspace(min(mean - 12 * np.sqrt(var), mean - 1), max(mean + 12 * np.sqrt(var), mean + 1), 20_001)
    mu = obs.exposure[0] * np.exp(f) + obs.background[0]
    if dispersion is None:
        law = stats.poisson(mu)
    else:
        r = np.exp(-dispersion)
        law = stats.nbinom(r, r / (r + mu))
    y = obs.lower[0]
    log_p = law.logpmf(y) if obs.exact[0] else law.logsf(y - 1)
    g = log_p - 0.5 * (f - mean) ** 2 / var
    w = np.exp(g - g.max())
    centre = (w * f).sum() / w.sum()
    spread = (w * (f - centre) ** 2).sum() / w.sum()
    return g.max() + np.log(w.sum() * (f[1] - f[0])) - 0.5 * np.log(2 * np.pi * var), centre, spread


@kinds
@likelihoods
def test_tilted_moments_equal_a_very_fine_grid_of_scipys_counts(likelihood, censored):
    obs, mean, var = problem(censored, n=60)
    got = likelihood.tilted(obs, mean, var)
    curve = BackgroundCurve(CountCurve(obs.lower, 0.0, censored), obs.background)
    concave = curve.concave_with(var)
    assert concave.any()
    assert not concave.all()  # both rules are used
    assert (got.shrink > 1).any()  # and some rows widen their cavity
    for i in range(len(obs)):
        log_z, centre, spread = on_a_grid(likelihood, obs[i : i + 1], mean[i], var[i])
        assert got.log_z[i] == pytest.approx(log_z, rel=1e-6, abs=1e-6)
        assert mean[i] + var[i] * got.d1[i] == pytest.approx(centre, abs=1e-5 * np.sqrt(spread))
        assert got.shrink[i] == pytest.approx(spread / var[i], rel=1e-5)
        assert got.d2[i] == pytest.approx((got.shrink[i] - 1) / var[i], rel=1e-6, abs=1e-5 / var[i])


def test_two_separate_peaks_are_both_integrated():
    # Own demand 6 standard deviations below what the count needs: as likely as that all thirty came from elsewhere.
    obs = Observations(np.array([30.0]), np.array([30.0]), np.ones(1), background=np.array([8.0]))
    mean, var = np.array([-4.3]), np.array([1.6])
    got = Poisson().tilted(obs, mean, var)
    log_z, centre, spread = on_a_grid(Poisson(), obs, mean[0], var[0])
    assert spread > 4  # both have mass
    assert got.log_z[0] == pytest.approx(log_z, rel=1e-8)
    assert mean[0] + var[0] * got.d1[0] == pytest.approx(centre, rel=1e-6)
    assert got.shrink[0] * var[0] == pytest.approx(spread, rel=1e-6)


@kinds
@likelihoods
def test_derivatives_equal_finite_differences(likelihood, censored):
    obs, mean, var = problem(censored, n=60, seed=8)
    got, h = likelihood.tilted(obs, mean, var), 1e-3 * np.sqrt(var)
    up, down = (likelihood.tilted(obs, mean + s * h, var) for s in (1, -1))
    np.testing.assert_allclose(got.d1 * h, (up.log_z - down.log_z) / 2, rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(got.d2 * h, (up.d1 - down.d1) / 2, rtol=1e-3, atol=1e-6)
    slope, curvature = likelihood.derivatives(obs, mean)
    value = [likelihood.log_likelihood(obs, mean + s * 1e-4) for s in (1, 0, -1)]
    np.testing.assert_allclose(slope, (value[0] - value[2]) / 2e-4, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(curvature, (value[0] - 2 * value[1] + value[2]) / 1e-8, rtol=1e-3, atol=1e-3)
    for k in range(likelihood.theta.size):
        up, down = (likelihood.with_theta(likelihood.theta + s * 1e-3).tilted(obs, mean, var) for s in (1, -1))
        np.testing.assert_allclose(got.d_theta[:, k], (up.log_z - down.log_z) / 2e-3, rtol=1e-4, atol=1e-5)


@kinds
@likelihoods
def test_no_background_changes_nothing_and_much_says_nothing(likelihood, censored):
    obs, mean, var = problem(censored)
    plain = likelihood.tilted(Observations(obs.lower, obs.upper, obs.exposure), mean, var)
    none = likelihood.tilted(Observations(obs.lower, obs.upper, obs.exposure, background=np.zeros(len(obs))), mean, var)
    little = likelihood.tilted(
        Observations(obs.lower, obs.upper, obs.exposure, background=np.full(len(obs), 1e-14)), mean, var
    )
    np.testing.assert_array_equal(none.d1, plain.d1)
    near = mean + 4 * np.sqrt(var) > -15  # elsewhere 1e-14 is more than the own rate
    np.testing.assert_allclose(little.log_z[near], plain.log_z[near], rtol=1e-5, atol=1e-5)
    y = np.array([1e6])  # as many as are expected from elsewhere: one more or less of one's own cannot be seen
    much = likelihood.tilted(Observations(y, y, background=y), np.zeros(1), np.full(1, 0.5))
    np.testing.assert_allclose(much.shrink, 1, atol=1e-5)


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from([0.0, 0.1, 5.0]),
    st.integers(0, 2000),
    st.booleans(),
    st.floats(-6, 3).map(lambda e: 10.0**e),
    st.floats(-15, 15),
)
def test_the_bound_of_the_curvature_holds(dispersion, y, censored, s, u):
    curve = BackgroundCurve(CountCurve(np.array([float(max(y, censored))]), dispersion, censored), np.array([s]))
    curvature = float(curve(np.array([u])).curvature[0])
    if curvature > 1e-9:
        assert not curve.concave_with(np.array([1.0001 / curvature]))[0]


def test_riders_from_elsewhere_may_come_while_there_is_no_exposure():
    obs = Observations(np.array([2.0]), np.array([2.0]), np.zeros(1), background=np.ones(1))
    assert Poisson().tilted(obs, np.zeros(1), np.ones(1)).shrink[0] == 1
    with pytest.raises(InputError, match="must be 0 where exposure is 0"):
        Poisson().validate(Observations(obs.lower, obs.upper, np.zeros(1), background=np.zeros(1)))


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_what_is_no_background_is_refused(bad):
    obs = Observations(np.ones(2), np.ones(2), background=np.array([0.0, bad]))
    with pytest.raises(InputError, match="Background must be finite and at least 0: row 1"):
        Poisson().validate(obs)
