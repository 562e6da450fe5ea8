"""Truncated normals against arithmetic of 150 digits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.truncated import truncated_normal
from unmet._normal import log_pdf, truncated_above, truncated_between

NEAR = np.concatenate([np.linspace(-30, 30, 121), [4.999, 5.0, 5.001, -1e-9, 1e-9]])
FAR = np.concatenate([np.logspace(np.log10(30), 6, 12), -np.logspace(np.log10(30), 6, 6)])


def relative_errors(got, a: float, b: float) -> tuple[float, float, float]:
    """Errors of log mass, mean and variance; the mean's in units of itself and of the spread."""
    log_mass, mean, var = truncated_normal(a, b)
    return (
        float(abs(float(got.log_mass) - log_mass) / max(abs(log_mass), 1)),
        float(abs(float(got.mean) - mean) / (abs(mean) + var**0.5)),
        float(abs(float(got.var) - var) / var),
    )


def one(cut):
    return type(cut)(*(v.item() for v in cut))


@pytest.mark.parametrize("t", NEAR)
def test_a_lower_cut_is_right_to_twelve_digits_near_the_centre(t: float) -> None:
    assert max(relative_errors(one(truncated_above(np.array([t]))), t, np.inf)) < 1e-12


@pytest.mark.parametrize("t", FAR)
def test_a_lower_cut_is_right_in_the_far_tails(t: float) -> None:
    assert max(relative_errors(one(truncated_above(np.array([t]))), t, np.inf)) < 1e-12


@pytest.mark.parametrize("t", [1e3, 1e4, 1e5, 1e6])
def test_the_variance_beyond_a_far_cut_is_positive_where_the_textbook_formula_is_not(t: float) -> None:
    var = truncated_above(np.array([t])).var[0]
    assert var == pytest.approx(1 / t**2 - 6 / t**4, rel=1e-10)  # its asymptotic series


def test_a_cut_far_below_the_mass_changes_nothing() -> None:
    log_mass, mean, var = truncated_above(np.array([-40.0, -1e6]))
    np.testing.assert_allclose(log_mass, 0, atol=1e-300)
    np.testing.assert_allclose(mean, 0, atol=1e-300)
    assert var.tolist() == [1.0, 1.0]


WIDTHS = [1e-9, 1e-4, 0.1, 1.0, 3.9, 4.1, 8.0, 100.0, np.inf]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("near", [0.0, 1e-3, 0.5, 3.0, 5.0, 12.0, 30.0, 1e3, 1e6])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_interval_on_one_side_is_right_from_narrow_to_wide(near: float, width: float, sign: int) -> None:
    a, b = sorted((sign * near, sign * (near + width)))
    if a == b:
        pytest.skip("the interval is narrower than double precision can tell")
    assert max(relative_errors(one(truncated_between(np.array([a]), np.array([b]))), a, b)) < 1e-10


ENDS = [1e-9, 0.3, 2.0, 7.0, 30.0, 1e4, np.inf]


@pytest.mark.parametrize(("a", "b"), [(-low, high) for low in ENDS for high in ENDS if np.isfinite(min(low, high))])
def test_an_interval_about_zero_is_right(a: float, b: float) -> None:
    log_mass, mean, var = truncated_normal(a, b)
    got = one(truncated_between(np.array([a]), np.array([b])))
    assert got.log_mass == pytest.approx(float(log_mass), rel=1e-12, abs=1e-300)
    assert got.mean == pytest.approx(float(mean), abs=1e-12 * float(var) ** 0.5)
    assert got.var == pytest.approx(float(var), rel=1e-11)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    size=st.floats(-3, 6),
    sign=st.sampled_from([-1.0, 1.0]),
    log_width=st.floats(-9, 4),
)
def test_any_interval_is_right(size: float, sign: float, log_width: float) -> None:
    a = sign * 10**size
    b = a + 10**log_width
    if a < b:
        assert max(relative_errors(one(truncated_between(np.array([a]), np.array([b]))), a, b)) < 1e-9


@settings(max_examples=300, deadline=None, derandomize=True)
@given(a=st.floats(-1e6, 1e6), width=st.floats(1e-12, 1e7))
def test_moments_of_any_interval_keep_to_their_laws(a: float, width: float) -> None:
    b = a + width
    if not a < b:
        return
    cut = one(truncated_between(np.array([a]), np.array([b])))
    mirrored = one(truncated_between(np.array([-b]), np.array([-a])))
    assert cut.log_mass <= 0
    assert a <= cut.mean <= b
    # Cutting a log-concave density never spreads it; EP's site precision 1 − var must not turn negative.
    assert 0 < cut.var <= min(1.0, (b - a) ** 2 / 4 * (1 + 1e-12))
    assert mirrored == (cut.log_mass, -cut.mean, cut.var)


def test_the_variance_never_exceeds_one_where_the_cut_is_far_from_the_mass() -> None:
    rng = np.random.default_rng(0)
    low, high = -(10 ** rng.uniform(0.3, 1.5, 20_000)), 10 ** rng.uniform(0.3, 1.5, 20_000)
    assert truncated_between(low, high).var.max() <= 1.0
    assert truncated_above(np.linspace(-40, 0, 20_001)).var.max() <= 1.0


def test_rows_do_not_influence_each_other() -> None:
    a = np.array([-np.inf, -2.0, 0.0, 5.0, 1e5, -1e5])
    b = np.array([0.5, np.inf, 1e-8, 30.0, np.inf, -1e5 + 1e-3])
    together = truncated_between(a, b)
    for i in range(a.size):
        assert one(truncated_between(a[i : i + 1], b[i : i + 1])) == tuple(v[i] for v in together)


def test_a_cut_from_below_is_an_interval_without_an_upper_end() -> None:
    t = np.array([-9.0, -1.0, 0.0, 3.0, 80.0])
    for direct, as_interval in zip(truncated_above(t), truncated_between(t, np.full(5, np.inf)), strict=True):
        np.testing.assert_allclose(direct, as_interval, rtol=1e-12, atol=1e-15)


def test_nothing_is_changed_in_the_callers_arrays() -> None:
    a, b = np.array([3.0, -1.0]), np.array([4.0, 2.0])
    truncated_between(a, b)
    assert a.tolist() == [3.0, -1.0]
    assert b.tolist() == [4.0, 2.0]


def test_log_density_at_a_few_points() -> None:
    np.testing.assert_allclose(log_pdf(np.array([0.0, 2.0])), [-0.9189385332046727, -2.9189385332046727])
