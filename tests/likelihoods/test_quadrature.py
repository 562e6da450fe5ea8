import numpy as np
import pytest
from scipy import special, stats

from oracles.brute_force import tilted_on_a_grid
from unmet import InputError
from unmet._exceptions import NumericalError
from unmet.likelihoods.base import Observations
from unmet.likelihoods.quadrature import QuadratureLikelihood


def at(*y):
    y = np.array(y, dtype=float)
    return Observations(y, y)


@pytest.mark.parametrize(
    ("noise", "y", "mean", "var"), [(1e-12, 3, 0, 2), (1e-4, -2, 1, 0.3), (1, 0.1, 0, 1e-8), (1e6, 40, -10, 1e3)]
)
def test_a_gaussian_has_its_closed_form_at_any_sharpness(noise, y, mean, var):
    likelihood = QuadratureLikelihood(lambda obs, f: stats.norm.logpdf(obs.lower, f, np.sqrt(noise)))
    got = likelihood.tilted(at(y), np.array([float(mean)]), np.array([float(var)]))
    assert got.log_z[0] == pytest.approx(stats.norm.logpdf(y, mean, np.sqrt(noise + var)), rel=1e-9)
    assert got.d1[0] == pytest.approx((y - mean) / (noise + var), rel=1e-6)
    assert got.shrink[0] == pytest.approx(noise / (noise + var), rel=1e-6)


def test_a_probit_has_its_closed_form_in_both_tails():
    mean, var = np.array([-25.0, -3.0, 0.0, 2.0, 30.0]), np.array([0.5, 1e-8, 10.0, 1e4, 1.0])
    likelihood = QuadratureLikelihood(lambda obs, f: special.log_ndtr(f))
    got = likelihood.tilted(at(*np.zeros(5)), mean, var)
    z = mean / np.sqrt(1 + var)
    np.testing.assert_allclose(got.log_z, special.log_ndtr(z), rtol=1e-8, atol=1e-9)
    ratio = np.exp(stats.norm.logpdf(z) - special.log_ndtr(z))
    np.testing.assert_allclose(got.d1, ratio / np.sqrt(1 + var), rtol=1e-6, atol=1e-9)


def test_two_peaks_are_both_integrated():
    def two_peaks(obs, f):
        return np.logaddexp(stats.norm.logpdf(f, -2, 0.3), stats.norm.logpdf(f, 3, 0.8))

    got = QuadratureLikelihood(two_peaks).tilted(at(0.0), np.zeros(1), np.full(1, 4.0))
    parts = stats.norm.pdf([-2, 3], 0, np.sqrt(4 + np.array([0.3, 0.8]) ** 2))
    assert got.log_z[0] == pytest.approx(np.log(parts.sum()), abs=1e-8)
    assert got.shrink[0] > 1  # uncertainty grows where an observation leaves two possibilities


def test_a_heavy_tailed_likelihood_equals_a_very_fine_grid():
    def student(obs, f):
        return stats.t.logpdf(obs.lower - f, 3)

    for y, mean, var in ((0.0, 0.5, 0.01), (3.0, 0.0, 1.0), (20.0, 0.0, 25.0)):
        got = QuadratureLikelihood(student).tilted(at(y), np.array([mean]), np.array([var]))
        log_z, offset, spread = tilted_on_a_grid(lambda f, y=y: stats.t.logpdf(y - f, 3), mean, var)
        assert got.log_z[0] == pytest.approx(log_z, abs=1e-7)
        assert got.d1[0] * var == pytest.approx(offset, rel=1e-6)
        assert got.shrink[0] * var == pytest.approx(spread, rel=1e-6)


def test_it_has_the_members_that_inference_asks_for():
    likelihood = QuadratureLikelihood(
        lambda obs, f: stats.norm.logpdf(obs.lower, f),
        moments=lambda f: (f**2, np.ones_like(f)),
        sampler=lambda f, rng: f + rng.standard_normal(f.shape),
    )
    obs = at(1.0, 2.0)
    assert likelihood.theta.size == 0
    assert likelihood.bounds.shape == (0, 2)
    assert likelihood.with_theta(likelihood.theta) is likelihood
    assert not likelihood.exact_sites(obs)[0].any()
    assert likelihood.tilted(obs, np.zeros(2), np.ones(2)).d_theta.shape == (2, 0)
    mean, var = likelihood.predict(np.array([1.0]), np.array([4.0]))
    assert mean[0] == pytest.approx(5.0)  # E[f²]
    assert var[0] == pytest.approx(1 + 2 * 16 + 4 * 4)  # 1 + Var[f²]
    assert likelihood.rate_moments(np.array([1.0]), np.array([4.0]))[1][0] == pytest.approx(48.0)
    assert likelihood.sample(np.zeros(3), np.random.default_rng(0)).shape == (3,)


def test_what_a_log_likelihood_alone_cannot_say_is_refused():
    likelihood = QuadratureLikelihood(lambda obs, f: -0.5 * f**2)
    for ask in (
        lambda: likelihood.predict(np.zeros(1), np.ones(1)),
        lambda: likelihood.sample(np.zeros(1), np.random.default_rng(0)),
        lambda: likelihood.quantile(np.zeros(1), np.ones(1), np.array([0.5])),
        lambda: likelihood.rate_covariance(np.zeros(1), np.ones((1, 1))),
    ):
        with pytest.raises(InputError):
            ask()


def test_an_impossible_observation_and_an_unbounded_likelihood_are_refused():
    impossible = QuadratureLikelihood(lambda obs, f: np.full(f.shape, -np.inf))
    with pytest.raises(NumericalError, match="nowhere finite"):
        impossible.tilted(at(1.0), np.zeros(1), np.ones(1))
