"""Shares of Gaussian values: the mixture against integrals over the share, its derivatives, and its limits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from unmet import InputError
from unmet._parameters import Parameter
from unmet.likelihoods import Gaussian, Observations
from unmet.likelihoods.beta import Beta, cells, masses
from unmet.likelihoods.share import SharedGaussian

FREE = {"bounds": (1e-2, 1e3)}


def rows(y, short) -> Observations:
    y = np.atleast_1d(np.asarray(y, dtype=float))
    return Observations(y, y, short=np.broadcast_to(np.asarray(short, dtype=float), y.shape).copy())


def likelihood(alpha=2.0, beta=1.5, noise=0.1, odds=0.7, **settings) -> SharedGaussian:
    share = Beta(Parameter(alpha, **FREE), Parameter(beta, **FREE))
    return SharedGaussian(Gaussian(Parameter(noise, **FREE)), share, Parameter(odds, **FREE), **settings)


def density_of_a_share(y, m, v, alpha, beta, rounding) -> float:
    """``∫ Beta(a) N(y | a m, a² v + rounding²) da``, by the trapezoidal rule over the logit of a."""
    t = np.linspace(-60, 60, 400_001)
    log_a, log_rest = -np.logaddexp(0, -t), -np.logaddexp(0, t)
    log_weight = alpha * log_a + beta * log_rest - special.betaln(alpha, beta)
    a = np.exp(log_a)
    return np.trapezoid(np.exp(log_weight) * stats.norm.pdf(y, a * m, np.sqrt(a**2 * v + rounding**2)), t)


@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (0.3, 0.3), (20, 1), (0.5, 20), (40, 40)])
@pytest.mark.parametrize(("y", "mean", "var"), [(1.0, 3.0, 0.5), (-2.0, -2.5, 1.0), (0.2, 3.0, 0.2), (1.5, 1.0, 4.0)])
def test_the_evidence_of_one_row_is_the_integral_over_its_share(alpha, beta, y, mean, var) -> None:
    got = likelihood(alpha, beta, rounding=0.05).tilted(rows(y, 1.0), np.array([mean]), np.array([var]))
    expected = density_of_a_share(y, mean, var + 0.1, alpha, beta, 0.05)
    assert got.log_z[0] == pytest.approx(np.log(expected), abs=0.015)  # the width of the cells, felt in far tails


@pytest.mark.parametrize("short", [1.0, 0.3, np.nan])
@pytest.mark.parametrize("signed", [True, False])
def test_derivatives_are_those_of_the_evidence(short, signed) -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(1, 1, 40)
    if not signed:
        y = np.where(np.arange(40) < 20, -0.5, np.abs(y))  # labelled zeros, and values above
    obs = rows(y, short)
    mean, var = rng.normal(2 if signed else 0, 1, 40), rng.uniform(0.05, 2, 40)
    at = likelihood(zero=-0.5, signed=signed)
    got, h = at.tilted(obs, mean, var), 1e-4
    up, down = (at.tilted(obs, mean + s * h, var) for s in (1, -1))
    np.testing.assert_allclose(got.d1, (up.log_z - down.log_z) / (2 * h), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got.d2, (up.d1 - down.d1) / (2 * h), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got.shrink, 1 + var * got.d2, rtol=1e-9)
    assert at.theta_names == ("noise_variance", "share_alpha", "share_beta", "label_odds")
    for i in range(4):
        step = h * np.eye(4)[i]
        up, down = (at.with_theta(at.theta + s * step).tilted(obs, mean, var) for s in (1, -1))
        np.testing.assert_allclose(got.d_theta[:, i], (up.log_z - down.log_z) / (2 * h), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("alpha", "beta"), [(0.01, 0.01), (1, 1), (1e3, 1e3), (1e3, 0.01), (0.01, 1e3)])
def test_masses_are_probabilities(alpha, beta) -> None:
    mass = np.exp(masses(alpha, beta, cells(200)).log_mass)
    assert mass.sum() == pytest.approx(1, abs=1e-12)
    assert (mass @ cells(200).nodes) == pytest.approx(alpha / (alpha + beta), abs=5e-4)


def log_masses_by_tails(log_alpha, log_beta, edges) -> np.ndarray:
    """Differences of the incomplete beta function, each in the shorter tail."""
    alpha, beta = np.exp(log_alpha), np.exp(log_beta)
    below, above = special.betainc(alpha, beta, edges), special.betaincc(alpha, beta, edges)
    return np.log(np.maximum(np.where(below[1:] < 0.5, np.diff(below), -np.diff(above)), 1e-300))


@pytest.mark.parametrize("count", [48, 200])
@pytest.mark.parametrize("alpha", [0.01, 0.5, 3.0, 56.0, 1e3])
@pytest.mark.parametrize("beta", [0.01, 1.0, 7.3, 1e3])
def test_masses_and_their_derivatives_are_those_of_the_incomplete_beta_function(count, alpha, beta) -> None:
    grid, at, h = cells(count), np.log([alpha, beta]), 1e-3
    got, expected = masses(alpha, beta, grid), log_masses_by_tails(*at, grid.edges)
    seen = expected > expected.max() - 37
    np.testing.assert_allclose(got.log_mass[seen], expected[seen], rtol=0, atol=1e-9)
    for i, step in enumerate(h * np.eye(2)):
        far, near = (
            log_masses_by_tails(*(at + k * step), grid.edges) - log_masses_by_tails(*(at - k * step), grid.edges)
            for k in (2, 1)
        )
        slope = (8 * near - far) / (12 * h)
        np.testing.assert_allclose(got.by_log[i][seen], slope[seen], rtol=1e-7, atol=1e-7)


def test_a_share_of_one_is_an_exact_row_and_of_zero_says_nothing() -> None:
    mean, var = np.array([2.0]), np.array([0.5])
    exact = Gaussian(0.1).tilted(Observations(np.array([1.5]), np.array([1.5])), mean, var)
    whole = likelihood(1e3, 1e-2).tilted(rows(1.5, 1.0), mean, var)
    assert whole.log_z[0] == pytest.approx(exact.log_z[0], abs=0.01)
    assert whole.d1[0] == pytest.approx(exact.d1[0], abs=0.01)
    nothing = likelihood(1e-2, 1e3).tilted(rows(0.0, 1.0), mean, var)
    assert abs(nothing.d1[0]) < 1e-2
    assert nothing.shrink[0] == pytest.approx(1, abs=1e-2)


def test_signed_values_need_no_side() -> None:
    m, v = np.array([3.0, -3.0]), np.full(2, 0.5)
    got = likelihood().tilted(rows([1.0, -1.0], 1.0), m, v)
    assert got.log_z[0] == pytest.approx(got.log_z[1], abs=1e-12)
    assert got.d1[0] == pytest.approx(-got.d1[1], abs=1e-12)


def test_the_density_of_what_is_seen_integrates_to_one() -> None:
    """Of a mixture on a grid too: nothing that small shares are smoothed by may add mass."""
    y = np.linspace(-4, 12, 40_001)
    for alpha, beta in ((1, 1), (0.1, 5), (5, 0.1)):
        t = likelihood(alpha, beta, rounding=0.02).tilted(rows(y, 1.0), np.full(y.size, 3.0), np.full(y.size, 0.4))
        assert np.trapezoid(np.exp(t.log_z), y) == pytest.approx(1, abs=0.01)


def test_the_posterior_of_share_and_value_is_that_of_brute_force() -> None:
    y, m, v, noise, rounding = 1.2, 3.0, 0.4, 0.1, 0.03
    got = likelihood(2, 1.5, noise, rounding=rounding).moments(rows(y, 1.0), np.array([m]), np.array([v]))
    a, value = np.linspace(5e-4, 1, 3000)[:, None], np.linspace(-1, 7, 3000)
    p = stats.beta.pdf(np.minimum(a, 1 - 1e-9), 2, 1.5) * stats.norm.pdf(value, m, np.sqrt(v + noise))
    p = p * stats.norm.pdf(y, a * value, rounding)
    p /= p.sum()
    for name, x in (("share", a), ("value", value)):
        mean = (p * x).sum()
        assert getattr(got, name)[0] == pytest.approx(mean, abs=2e-3)
        assert getattr(got, f"{name}_sd")[0] == pytest.approx(np.sqrt((p * (x - mean) ** 2).sum()), rel=0.01)


@pytest.mark.parametrize("mean", [-1.0, 0.5, 3.0])
def test_a_labelled_zero_of_a_truth_that_is_not_negative_is_a_bound(mean) -> None:
    m, v, noise, rounding = np.array([mean]), np.array([0.4]), 0.1, 0.03
    got = likelihood(0.5, 4, noise, rounding=rounding, signed=False)
    a, value = np.linspace(5e-5, 1, 5000)[:, None], np.linspace(-5, 7, 1200)
    p = stats.beta.pdf(np.minimum(a, 1 - 1e-9), 0.5, 4) * stats.norm.pdf(value, mean, np.sqrt(0.4 + noise))
    p = p * stats.norm.pdf(0.0, a * value, rounding)
    chance = p[:, value > 0].sum() / p.sum()
    p = np.where(value > 0, p, 0.0)
    moments = got.moments(rows(0.0, 1.0), m, v)
    for name, x in (("share", a), ("value", value)):
        expected = (p * x).sum() / p.sum()
        assert getattr(moments, name)[0] == pytest.approx(expected, abs=5e-3)
        sd = np.sqrt((p * (x - expected) ** 2).sum() / p.sum())
        assert getattr(moments, f"{name}_sd")[0] == pytest.approx(sd, rel=0.03)
    log_z = got.tilted(rows(0.0, 1.0), m, v).log_z[0]
    other = likelihood(0.5, 4, noise, rounding=rounding).tilted(rows(0.0, 1.0), m, v).log_z[0]
    assert log_z - other == pytest.approx(np.log(chance), abs=0.02)


def test_values_above_zero_are_no_bounds() -> None:
    obs, m, v = rows([0.5, 2.0], 1.0), np.array([-1.0, 3.0]), np.full(2, 0.5)
    got, other = (likelihood(signed=signed).tilted(obs, m, v) for signed in (False, True))
    np.testing.assert_array_equal(got.log_z, other.log_z)
    np.testing.assert_array_equal(got.d_theta, other.d_theta)


def test_a_number_is_held_and_a_parameter_is_learnt() -> None:
    held = SharedGaussian(Gaussian(0.1), Beta(1, 1), Parameter(1.0, fixed=True))
    assert held.theta_names == ("noise_variance",)
    assert Beta(1, Parameter(3.0, fixed=True)).mean == 0.25
    with pytest.raises(InputError, match="positive"):
        Beta(-1, 1)


@pytest.mark.parametrize(("alpha", "beta"), [(1e4, 1e4), (1.0, 1e3 + 0.01), (1e-3, 1.0)])
def test_shares_that_the_grid_cannot_tell_apart_are_refused(alpha: float, beta: float) -> None:
    with pytest.raises(InputError, match=r"expected 0\.01 to 1000; got"):
        Beta(alpha, beta)
    assert Beta(np.exp(np.log(1e3)), np.exp(np.log(1e-2))).mean == pytest.approx(1.0, abs=1e-4)
