"""Kernels against scikit-learn's, and against formulas of the book."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

from unmet.kernels import Linear, Matern, Periodic, SquaredExponential

X = np.random.default_rng(0).normal(size=(15, 2)) * [1.0, 3.0]
X[1] = X[0]


def test_squared_exponential_is_sklearns_rbf() -> None:
    np.testing.assert_allclose(SquaredExponential(2.0, 0.7)(X), 2.0 * sk.RBF(0.7)(X), rtol=1e-12)
    np.testing.assert_allclose(SquaredExponential(1.0, [0.7, 2.0])(X), sk.RBF([0.7, 2.0])(X), rtol=1e-12)


def test_periodic_in_one_column_is_sklearns_exp_sine_squared() -> None:
    mine = Periodic(2.2, 1.0, 0.6, columns=0)(X)
    np.testing.assert_allclose(mine, sk.ExpSineSquared(length_scale=0.6, periodicity=2.2)(X[:, :1]), rtol=1e-10)


def test_periodic_over_columns_is_the_product_over_them() -> None:
    both = Periodic(2.2, 1.0, [0.6, 0.9])(X)
    np.testing.assert_allclose(
        both, Periodic(2.2, 1.0, 0.6, columns=0)(X) * Periodic(2.2, 1.0, 0.9, columns=1)(X), rtol=1e-12
    )


def test_periodic_repeats_after_its_period() -> None:
    k = Periodic(7.0, 1.5, 0.8)
    np.testing.assert_allclose(k(X, X + 7.0), k(X), atol=1e-13)


def test_linear_is_sklearns_dot_product_without_its_constant() -> None:
    np.testing.assert_allclose(Linear(1.0)(X), sk.DotProduct(sigma_0=0.0)(X), rtol=1e-12)


@pytest.mark.parametrize("nu", [0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 3.7, 6.0])
def test_matern_is_sklearns(nu: float) -> None:
    np.testing.assert_allclose(Matern(2.0, 1.3, nu=nu)(X), 2.0 * sk.Matern(1.3, nu=nu)(X), rtol=1e-9)


def bessel(nu: float, r: float) -> float:
    """Rasmussen & Williams eq. 4.14 with 50 digits."""
    with mp.workdps(50):
        z = mp.sqrt(2 * mp.mpf(nu)) * mp.mpf(r)
        return float(2 ** (1 - mp.mpf(nu)) / mp.gamma(nu) * z**nu * mp.besselk(nu, z)) if r else 1.0


@pytest.mark.parametrize("nu", [0.05, 0.3, 0.5, 1.0, 1.3, 1.5, 1.999, 2.0, 2.5, 4.0, 12.0, 50.0])
def test_matern_equals_the_bessel_formula_from_near_to_far(nu: float) -> None:
    r = np.array([0.0, 1e-150, 1e-30, 1e-12, 1e-8, 1e-4, 0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 30.0])
    got = Matern(1.0, 1.0, nu=nu)([[0.0]], r[:, None])[0]
    np.testing.assert_allclose(got, [bessel(nu, v) for v in r], rtol=1e-10)


@pytest.mark.parametrize("nu", [0.5, 0.7, 1.0, 1.5, 2.5, 3.3, 40.0])
def test_matern_vanishes_far_away(nu: float) -> None:
    """SciPy's kve is NaN from 1e9 on."""
    far = np.array([1e3, 1e6, 1e9, 1e12, 1e100])
    k = Matern(1.0, 1.0, nu=nu)
    np.testing.assert_allclose(k([[0.0]], far[:, None])[0], 0.0, atol=1e-100)
    x = np.append(0.0, far)[:, None]
    gradient = k.contract_gradient(x, np.ones((6, 6)))
    assert np.isfinite(gradient).all()
    assert gradient[1] == pytest.approx(0.0, abs=1e-100)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_closed_forms_of_matern_are_the_limit_of_their_neighbours(nu: float) -> None:
    near = Matern(1.0, 1.0, nu=nu + 1e-9)
    np.testing.assert_allclose(Matern(1.0, 1.0, nu=nu)(X), near(X), rtol=1e-7)
    F = np.random.default_rng(1).normal(size=(15, 15))
    np.testing.assert_allclose(
        Matern(1.0, 1.0, nu=nu).contract_gradient(X, F), near.contract_gradient(X, F), rtol=1e-6, atol=1e-8
    )


def test_a_very_smooth_matern_approaches_the_squared_exponential() -> None:
    x = np.linspace(0, 2, 9)[:, None]
    np.testing.assert_allclose(Matern(1.0, 1.0, nu=50.0)(x), SquaredExponential(1.0, 1.0)(x), atol=0.01)
