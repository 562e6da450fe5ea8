"""The Tobit likelihood against quadrature, and its limits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import norm

from oracles.quadrature import tilted_by_quadrature
from oracles.truncated import truncated_normal
from unmet import InputError
from unmet._parameters import LogNormal, Parameter
from unmet.likelihoods import Gaussian, Observations, Tilted

# lower, upper in units of z: the bound's distance from the cavity mean in predictive standard deviations
SHAPES = {
    "exact": lambda z, s: (z * s, z * s),
    "from above": lambda z, s: (z * s, np.inf),
    "from below": lambda z, s: (-np.inf, z * s),
    "narrow interval": lambda z, s: (z * s - 1e-3 * s, z * s + 1e-3 * s),
    "wide interval": lambda z, s: (z * s - 1.5 * s, z * s + 4 * s),
}


def log_density_of(lower: float, upper: float, noise: float) -> Callable[[np.ndarray], np.ndarray]:
    """Log probability of the observation given f, straight from its definition."""
    sd = np.sqrt(noise)

    def log_density(f: np.ndarray) -> np.ndarray:
        if lower == upper:
            return norm.logpdf(lower, f, sd)
        a, b = (lower - f) / sd, (upper - f) / sd
        a, b = np.where(-b > a, -b, a), np.where(-b > a, -a, b)  # as a difference of two tails
        return log_ndtr(-a) + np.log(-np.expm1(log_ndtr(-b) - log_ndtr(-a)))

    return log_density


def tilted_of(lower: float, upper: float, m: float, v: float, noise: float | Parameter) -> Tilted:
    return Gaussian(noise).tilted(
        Observations(np.array([lower]), np.array([upper])), mean=np.array([m]), var=np.array([v])
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("z", [-30.0, -6.0, -0.7, 0.0, 2.0, 30.0])
@pytest.mark.parametrize(("v", "noise"), [(1.0, 0.3), (4.0, 1e-3), (1e-3, 2.0)])
def test_moments_equal_quadrature(shape: str, z: float, v: float, noise: float) -> None:
    m, s = 0.7, np.sqrt(v + noise)
    lower, upper = SHAPES[shape](z, s)
    lower, upper = lower + m, upper + m
    got = tilted_of(lower, upper, m, v, noise)
    expected = tilted_by_quadrature(log_density_of(lower, upper, noise), m, v)
    np.testing.assert_allclose(got.log_z[0], expected.log_z, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got.d1[0] * s, expected.d1 * s, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got.d2[0] * s**2, expected.d2 * s**2, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got.shrink[0], expected.shrink, rtol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("z", [-30.0, -0.7, 2.0, 30.0])
def test_the_derivative_by_the_noise_equals_differences_of_quadrature(shape: str, z: float) -> None:
    m, v, noise = 0.7, 1.3, 0.4
    lower, upper = SHAPES[shape](z, np.sqrt(v + noise))
    lower, upper = lower + m, upper + m
    h = 1e-3

    def log_z(log_noise: float) -> float:
        return tilted_by_quadrature(log_density_of(lower, upper, np.exp(log_noise)), m, v).log_z

    at = np.log(noise)
    # Fourth-order central difference: its error is far below the tolerance.
    numeric = (8 * (log_z(at + h) - log_z(at - h)) - (log_z(at + 2 * h) - log_z(at - 2 * h))) / (12 * h)
    got = tilted_of(lower, upper, m, v, noise).d_theta
    assert got.shape == (1, 1)
    np.testing.assert_allclose(got[0, 0], numeric, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("z", [1e2, 1e3, 1e4, 1e5, 1e6])
@pytest.mark.parametrize("side", [1, -1])
def test_far_tails_keep_sign_and_six_digits(z: float, side: int) -> None:
    """The bound is z standard deviations beyond the mean: the observation is a great surprise."""
    m, v, noise = 0.3, 2.0, 0.5
    s = np.sqrt(v + noise)
    bound = m + side * z * s
    lower, upper = (bound, np.inf) if side > 0 else (-np.inf, bound)
    got = tilted_of(lower, upper, m, v, noise)
    log_mass, mean, var = truncated_normal(abs(bound - m) / s, np.inf)
    assert got.log_z[0] == pytest.approx(float(log_mass), rel=1e-9)
    assert got.d1[0] == pytest.approx(side * float(mean) / s, rel=1e-9)
    assert got.d2[0] == pytest.approx(float(var - 1) / s**2, rel=1e-9)
    assert got.shrink[0] == pytest.approx(float((noise + v * var) / s**2), rel=1e-9)
    assert got.d_theta[0, 0] == pytest.approx(float(noise * (mean**2 + var - 1) / (2 * s**2)), rel=1e-6)
    assert got.d2[0] < 0 < got.shrink[0]


@pytest.mark.parametrize("z", [40.0, 1e3, 1e6])
@pytest.mark.parametrize("side", [1, -1])
def test_a_bound_far_on_the_safe_side_says_nothing(z: float, side: int) -> None:
    lower, upper = (-z, np.inf) if side > 0 else (-np.inf, z)
    got = tilted_of(lower, upper, 0.0, 0.5, 0.5)
    assert got.log_z[0] == pytest.approx(0.0, abs=1e-300)
    assert got.d1[0] == pytest.approx(0.0, abs=1e-300)
    assert got.d2[0] == 0.0
    assert got.shrink[0] == 1.0


def test_an_interval_without_ends_says_nothing() -> None:
    got = tilted_of(-np.inf, np.inf, 1.0, 2.0, 0.5)
    assert (got.log_z[0], got.d1[0], got.d2[0], got.shrink[0], got.d_theta[0, 0]) == (0, 0, 0, 1, 0)


@pytest.mark.parametrize("z", [-8.0, -1.0, 0.0, 0.5, 6.0])
def test_a_narrow_interval_is_an_exact_observation_times_its_width(z: float) -> None:
    low, high = z - 2.0**-24, z + 2.0**-24  # exact in binary
    narrow, exact = tilted_of(low, high, 0.2, 1.0, 0.3), tilted_of(z, z, 0.2, 1.0, 0.3)
    assert narrow.log_z[0] - np.log(high - low) == pytest.approx(exact.log_z[0], abs=1e-8)
    for name in ("d1", "d2", "shrink", "d_theta"):
        np.testing.assert_allclose(getattr(narrow, name), getattr(exact, name), rtol=1e-8, atol=1e-8)


def test_two_sides_make_a_whole() -> None:
    """Being above or below a bound is certain: the probabilities sum to one, and so do their slopes to zero."""
    above, below = tilted_of(0.4, np.inf, 0.1, 1.0, 0.3), tilted_of(-np.inf, 0.4, 0.1, 1.0, 0.3)
    p, q = np.exp(above.log_z[0]), np.exp(below.log_z[0])
    assert p + q == pytest.approx(1.0, abs=1e-15)
    assert p * above.d1[0] + q * below.d1[0] == pytest.approx(0.0, abs=1e-15)


def test_every_kind_of_row_in_one_call_is_what_it_is_alone() -> None:
    lower = np.array([1.0, 1.0, -np.inf, 0.5, -np.inf])
    upper = np.array([1.0, np.inf, 1.0, 1.5, np.inf])
    m, v = np.linspace(-1, 1, 5), np.linspace(0.5, 2, 5)
    together = Gaussian(0.3).tilted(Observations(lower, upper), m, v)
    for i in range(5):
        alone = tilted_of(lower[i], upper[i], m[i], v[i], 0.3)
        for name in ("log_z", "d1", "d2", "shrink", "d_theta"):
            np.testing.assert_array_equal(getattr(together, name)[i], getattr(alone, name)[0])


def test_a_fixed_noise_has_no_derivative() -> None:
    got = tilted_of(1.0, np.inf, 0.0, 1.0, Parameter(0.3, fixed=True))
    assert got.d_theta.shape == (1, 0)
    assert Gaussian(Parameter(0.3, fixed=True)).theta.size == 0


def test_only_exact_rows_are_gaussian_sites() -> None:
    obs = Observations(np.array([2.0, 2.0, -np.inf, 1.0]), np.array([2.0, np.inf, 2.0, 3.0]))
    exact, tau, nu = Gaussian(0.25).exact_sites(obs)
    assert exact.tolist() == [True, False, False, False]
    assert tau.tolist() == [4.0, 0.0, 0.0, 0.0]
    assert nu.tolist() == [8.0, 0.0, 0.0, 0.0]


def test_demand_predicted_is_latent_plus_noise() -> None:
    likelihood, m, v = Gaussian(0.25), np.array([1.0, 2.0]), np.array([0.5, 1.0])
    mean, var = likelihood.predict(m, v)
    np.testing.assert_array_equal(mean, m)
    np.testing.assert_allclose(var, v + 0.25)
    q = np.array([0.05, 0.5, 0.9])
    np.testing.assert_allclose(likelihood.quantile(m, v, q), norm.ppf(q[:, None], m, np.sqrt(v + 0.25)), rtol=1e-12)
    draws = likelihood.sample(np.zeros((2, 4000)), np.random.default_rng(0))
    assert draws.shape == (2, 4000)
    assert draws.std() == pytest.approx(0.5, rel=0.05)


def test_theta_goes_in_and_out_with_its_prior() -> None:
    likelihood = Gaussian(Parameter(0.3, bounds=(0.1, 1.0), prior=LogNormal(0.5, 1.0)))
    np.testing.assert_allclose(likelihood.bounds, np.log([[0.1, 1.0]]))
    moved = likelihood.with_theta(np.array([np.log(0.7)]))
    assert moved.noise_variance == pytest.approx(0.7)
    assert moved.log_prior()[0] == pytest.approx(norm.logpdf(np.log(0.7), np.log(0.5), 1.0))


class TestObservations:
    def test_lower_above_upper_is_refused_with_its_row(self) -> None:
        with pytest.raises(InputError, match=r"row 1 has 3\.0 > 2\.0 \(1 such rows"):
            Observations(np.array([1.0, 3.0]), np.array([2.0, 2.0]))

    def test_nan_is_refused(self) -> None:
        with pytest.raises(InputError, match="row 0"):
            Observations(np.array([np.nan]), np.array([2.0]))

    def test_two_lengths_are_refused(self) -> None:
        with pytest.raises(InputError, match="one length"):
            Observations(np.zeros(2), np.zeros(3))

    def test_rows_are_picked_with_their_exposure(self) -> None:
        obs = Observations(np.arange(3.0), np.arange(3.0), np.array([1.0, 0.5, 0.2]))
        picked = obs[np.array([False, True, True])]
        assert len(picked) == 2
        assert picked.exposure is not None
        assert picked.exposure.tolist() == [0.5, 0.2]
