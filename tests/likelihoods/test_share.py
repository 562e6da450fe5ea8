"""Shares of Gaussian values: the mixture against integrals over the share, its derivatives, and its limits."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy import integrate, special, stats

from unmet import InputError
from unmet._parameters import Parameter
from unmet.likelihoods import Gaussian, Observations
from unmet.likelihoods.beta import Beta, cells, log_masses
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
def test_derivatives_are_those_of_the_evidence(short) -> None:
    rng = np.random.default_rng(0)
    obs = rows(rng.normal(1, 1, 40), short)
    mean, var = rng.normal(2, 1, 40), rng.uniform(0.05, 2, 40)
    at = likelihood(zero=-0.5)
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
    mass = np.exp(log_masses(alpha, beta, cells(200).edges))
    assert mass.sum() == pytest.approx(1, abs=1e-12)
    assert (mass @ cells(200).nodes) == pytest.approx(alpha / (alpha + beta), abs=5e-4)


@pytest.mark.parametrize(("alpha", "beta"), [(2.5, 2.5), (60, 3), (0.4, 9)])
def test_masses_of_both_tails_are_integrals_of_the_density(alpha, beta) -> None:
    grid = cells(200).edges
    got = log_masses(alpha, beta, grid)
    for k in (1, 30, 99, 100, 101, 170, 198):
        # relative to the mass itself, so that far tails count as much
        of_it = partial(lambda x, log_mass: np.exp(stats.beta.logpdf(x, alpha, beta) - log_mass), log_mass=got[k])
        assert integrate.quad(of_it, grid[k], grid[k + 1])[0] == pytest.approx(1, rel=1e-8)


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


def test_a_number_is_held_and_a_parameter_is_learnt() -> None:
    held = SharedGaussian(Gaussian(0.1), Beta(1, 1), Parameter(1.0, fixed=True))
    assert held.theta_names == ("noise_variance",)
    assert Beta(1, Parameter(3.0, fixed=True)).mean == 0.25
    with pytest.raises(InputError, match="positive"):
        Beta(-1, 1)
