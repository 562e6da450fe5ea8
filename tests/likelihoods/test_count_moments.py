"""Which rule serves which row of counts, and that rows at the edge of the narrow ones are as accurate as others."""

from __future__ import annotations

import numpy as np
import pytest

from unmet.likelihoods._background import BackgroundCurve
from unmet.likelihoods._count_curves import CountCurve
from unmet.likelihoods._count_moments import _concave_tilted, _is_narrow, _narrow_tilted, count_tilted


def rows(
    dispersion: float, *, background: bool, seed: int = 0
) -> tuple[CountCurve | BackgroundCurve, np.ndarray, np.ndarray]:
    """Counts near their means and far from them, in cavities from very narrow to wide."""
    rng = np.random.default_rng(seed)
    n = 20_000
    own = np.exp(rng.uniform(-8, 5, n))
    near = rng.poisson(own * np.exp(rng.normal(0, 0.5, n)))
    y = np.where(rng.random(n) < 0.5, near, rng.integers(0, 60, n)).astype(float)
    curve = CountCurve(y, dispersion, at_least=False)
    var = np.exp(rng.uniform(np.log(1e-8), np.log(0.6), n))
    return BackgroundCurve(curve, np.exp(rng.uniform(-5, 3, n))) if background else curve, np.log(own), var


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("dispersion", [0.0, 1e-3, 0.1, 2.0])
def test_narrow_rows_equal_sixty_four_nodes(dispersion: float, background: bool) -> None:
    curve, mean, var = rows(dispersion, background=background)
    narrow = np.flatnonzero(_is_narrow(curve, mean, var))
    assert 0.2 < len(narrow) / len(mean) < 0.9
    curve, mean, var = curve[narrow], mean[narrow], var[narrow]
    got = _narrow_tilted(curve, mean, var, 1 if dispersion else 0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    f = mean + np.multiply.outer(nodes, np.sqrt(var))
    at = curve(f)
    top = at.value.max(axis=0)
    weight = weights[:, None] / weights.sum() * np.exp(at.value - top)
    z = weight.sum(axis=0)
    weight /= z
    d1 = (weight * at.slope).sum(axis=0)
    d2 = (weight * (at.curvature + (at.slope - d1) ** 2)).sum(axis=0)
    np.testing.assert_allclose(got.log_z, top + np.log(z), rtol=1e-12, atol=1e-7)
    np.testing.assert_allclose(got.d1 * np.sqrt(var), d1 * np.sqrt(var), atol=1e-7)
    np.testing.assert_allclose(got.d2 * var, d2 * var, atol=1e-7)
    np.testing.assert_allclose(got.shrink, 1 + var * d2, atol=1e-7)
    if dispersion:
        by_theta = (weight * curve.by_log_dispersion(f)).sum(axis=0)
        np.testing.assert_allclose(got.d_theta[:, 0], by_theta, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("dispersion", [0.0, 0.1])
def test_both_rules_agree_on_both_sides_of_the_edge(dispersion: float) -> None:
    curve, mean, var = rows(dispersion, background=False, seed=1)
    edge = np.flatnonzero(_is_narrow(curve, mean, var) & ~_is_narrow(curve, mean, 1.3 * var))
    assert len(edge) > 250
    for factor in (1.0, 1.3):
        v = factor * var[edge]
        chosen = count_tilted(curve[edge], mean[edge], v, 0)
        about_the_mode = _concave_tilted(curve[edge], mean[edge], v, 0)
        np.testing.assert_allclose(chosen.log_z, about_the_mode.log_z, atol=2e-7)
        np.testing.assert_allclose(chosen.d1 * np.sqrt(v), about_the_mode.d1 * np.sqrt(v), atol=2e-7)
        np.testing.assert_allclose(chosen.shrink, about_the_mode.shrink, atol=1e-6)


def test_bounds_and_wide_cavities_are_never_narrow() -> None:
    mean, var = np.zeros(3), np.array([0.01, 0.2, 0.01])
    assert not _is_narrow(CountCurve(np.ones(3), 0.0, at_least=True), mean, var).any()
    exact = CountCurve(np.array([1.0, 1.0, 30.0]), 0.0, at_least=False)
    np.testing.assert_array_equal(_is_narrow(exact, mean, var), [True, False, False])
    assert not _is_narrow(exact, np.full(3, 800.0), np.full(3, 1e-307)).any()  # far beyond what a double holds
