"""`TobitRegressor` against least squares, brute-force optimisation, numerical Hessians and simulation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from unmet import ConvergenceWarning, InputError, TobitRegressor, UninformativeWarning
from unmet.estimators._tobit import normal_moments
from unmet.likelihoods import Observations


def draw(n: int = 200, seed: int = 0, kind: str = "above"):
    """Inputs and what is known of a noisy plane: (X, lower, upper)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) * [1.0, 5.0] + [0.0, 20.0]
    y = 3 + X @ [2.0, -0.5] + 1.5 * rng.normal(size=n)
    high, low = np.quantile(y, 0.7), np.quantile(y, 0.2)
    if kind == "none":
        return X, y, y
    if kind == "above":
        return X, np.minimum(y, high), np.where(y > high, np.inf, y)
    if kind == "both":
        return X, np.where(y < low, -np.inf, np.minimum(y, high)), np.where(y > high, np.inf, np.maximum(y, low))
    return X, np.floor(y), np.floor(y) + 1  # intervals


def log_likelihood(params: np.ndarray, X: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> float:
    """Slopes, level and log sd; each row's probability from its definition."""
    mean, sd = X @ params[:2] + params[2], np.exp(params[3])
    a, b = (lower - mean) / sd, (upper - mean) / sd
    exact = lower == upper
    with np.errstate(divide="ignore"):
        in_between = np.log(ndtr(b) - ndtr(a))
    kinds = [exact, np.isinf(upper), np.isinf(lower)]
    values = [-0.5 * a**2 - 0.5 * np.log(2 * np.pi) - np.log(sd), log_ndtr(-a), log_ndtr(b)]
    return float(np.select(kinds, values, in_between).sum())


KINDS = ["none", "above", "both", "intervals"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_other_point_is_more_likely(kind: str) -> None:
    X, lower, upper = draw(80, kind=kind)
    fit = TobitRegressor().fit(X, lower=lower, upper=upper)
    at = np.array([*fit.coef_, fit.intercept_, np.log(fit.scale_)])
    assert fit.log_likelihood_ == pytest.approx(log_likelihood(at, X, lower, upper), rel=1e-9)
    brute = minimize(
        lambda p: -log_likelihood(p, X, lower, upper),
        at + np.array([0.1, 0.01, 0.3, 0.2]),
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-11, "maxiter": 4000, "maxfev": 4000},
    )
    assert fit.log_likelihood_ >= -brute.fun - 1e-8
    np.testing.assert_allclose(at, brute.x, rtol=1e-3)
    assert fit.converged_


def test_without_censoring_it_is_least_squares() -> None:
    X, y, _ = draw(kind="none")
    fit = TobitRegressor().fit(X, y)
    design = np.column_stack([X, np.ones(len(X))])
    beta, *_ = np.linalg.lstsq(design, y, rcond=None)
    np.testing.assert_allclose([*fit.coef_, fit.intercept_], beta, rtol=1e-9)
    sigma = np.sqrt(np.mean((y - design @ beta) ** 2))  # maximum likelihood, not n − p
    assert fit.scale_ == pytest.approx(sigma, rel=1e-9)
    errors = sigma * np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
    np.testing.assert_allclose([*fit.coef_se_, fit.intercept_se_], errors, rtol=1e-8)
    assert fit.scale_se_ == pytest.approx(sigma / np.sqrt(2 * len(y)), rel=1e-8)


def test_without_an_intercept_it_goes_through_the_origin() -> None:
    X, y, _ = draw(kind="none")
    fit = TobitRegressor(fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(fit.coef_, np.linalg.lstsq(X, y, rcond=None)[0], rtol=1e-9)
    assert fit.intercept_ == 0.0
    assert fit.intercept_se_ == 0.0
    assert list(fit.summary().index) == ["x0", "x1", "scale"]


@pytest.mark.parametrize("kind", KINDS)
def test_standard_errors_come_from_the_curvature_of_the_likelihood(kind: str) -> None:
    X, lower, upper = draw(120, seed=1, kind=kind)
    fit = TobitRegressor().fit(X, lower=lower, upper=upper)
    at = np.array([*fit.coef_, fit.intercept_, np.log(fit.scale_)])
    step = 1e-3 * np.array([1.0, 0.1, 1.0, 1.0])
    hessian = np.empty((4, 4))
    for i in range(4):
        for j in range(4):
            a, b = np.eye(4)[i] * step, np.eye(4)[j] * step
            corners = [log_likelihood(at + s * a + t * b, X, lower, upper) * s * t for s in (1, -1) for t in (1, -1)]
            hessian[i, j] = sum(corners) / (4 * step[i] * step[j])
    errors = np.sqrt(np.diag(np.linalg.inv(-hessian)))
    np.testing.assert_allclose([*fit.coef_se_, fit.intercept_se_], errors[:3], rtol=1e-3)
    assert fit.scale_se_ == pytest.approx(errors[3] * fit.scale_, rel=1e-3)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """200 simulated samples, half of their rows censored: 95 % intervals, within three binomial errors."""
    rng = np.random.default_rng(2)
    hits = np.zeros(3)
    runs = 200
    for _ in range(runs):
        x = rng.uniform(-1, 1, size=(150, 1))
        y = 1 + 2 * x[:, 0] + rng.normal(size=150)
        table = TobitRegressor().fit(x, np.minimum(y, 1.0), censored=y > 1.0).summary()
        hits += (table["low"] < [2.0, 1.0, 1.0]) & (table["high"] > [2.0, 1.0, 1.0])
    assert (np.abs(hits / runs - 0.95) < 3 * np.sqrt(0.95 * 0.05 / runs)).all(), hits / runs


def test_ignoring_the_labels_would_flatten_the_slope() -> None:
    X, lower, upper = draw(2000)
    told, untold = TobitRegressor().fit(X, lower=lower, upper=upper), TobitRegressor().fit(X, lower)
    np.testing.assert_allclose(told.coef_, [2.0, -0.5], atol=0.12)
    assert abs(untold.coef_[0]) < 0.9 * abs(told.coef_[0])


@pytest.mark.parametrize("unit", [1e-12, 1e-3, 1e12])
def test_units_of_x_and_y_only_change_the_units(unit: float) -> None:
    X, lower, upper = draw(150)
    base = TobitRegressor().fit(X, lower=lower, upper=upper)
    of_y = TobitRegressor().fit(X, lower=lower * unit, upper=upper * unit)
    np.testing.assert_allclose(of_y.coef_ / unit, base.coef_, rtol=1e-6)
    np.testing.assert_allclose(of_y.coef_se_ / unit, base.coef_se_, rtol=1e-6)
    assert of_y.scale_ / unit == pytest.approx(base.scale_, rel=1e-6)
    exact = (lower == upper).sum()
    assert of_y.log_likelihood_ == pytest.approx(base.log_likelihood_ - exact * np.log(unit), rel=1e-6)
    of_x = TobitRegressor().fit(X * unit, lower=lower, upper=upper)
    np.testing.assert_allclose(of_x.coef_ * unit, base.coef_, rtol=1e-6)
    assert of_x.log_likelihood_ == pytest.approx(base.log_likelihood_, rel=1e-9)


def test_a_large_offset_of_y_moves_only_the_level() -> None:
    X, lower, upper = draw(150)
    base = TobitRegressor().fit(X, lower=lower, upper=upper)
    moved = TobitRegressor().fit(X, lower=lower + 1e6, upper=upper + 1e6)
    np.testing.assert_allclose(moved.coef_, base.coef_, rtol=1e-6)
    assert moved.intercept_ - 1e6 == pytest.approx(base.intercept_, abs=1e-4)
    assert moved.scale_ == pytest.approx(base.scale_, rel=1e-6)
    assert moved.converged_


def test_the_summary_reads_like_a_regression_table() -> None:
    X, lower, upper = draw()
    frame = pd.DataFrame(X, columns=["rain", "temp"])
    table = TobitRegressor().fit(frame, lower=lower, upper=upper).summary()
    assert list(table.index) == ["rain", "temp", "intercept", "scale"]
    assert {"estimate", "se", "z", "p", "low", "high"} <= set(table.columns)
    np.testing.assert_allclose(table["p"], 2 * norm.sf(np.abs(table["z"])), atol=1e-15)


def test_predictions_are_of_the_uncensored_value() -> None:
    X, lower, upper = draw()
    fit = TobitRegressor().fit(X, lower=lower, upper=upper)
    np.testing.assert_allclose(fit.predict(X), X @ fit.coef_ + fit.intercept_)
    assert fit.predict(X).max() > lower.max()


@pytest.mark.parametrize("side", [1, -1])
def test_all_rows_censored_to_one_side_are_refused(side: int) -> None:
    X, lower, _ = draw()
    with pytest.raises(InputError, match=r"All 200 rows are censored from (above|below), so nothing bounds"):
        TobitRegressor().fit(X, lower, censored=np.full(200, side))


def test_a_perfect_fit_has_no_maximum_and_says_so() -> None:
    x = np.arange(5.0)[:, None]
    with pytest.warns(ConvergenceWarning, match=r"Try: 1\..*2\..*3\."):
        fit = TobitRegressor().fit(x, 2 * x[:, 0] + 1)
    assert not fit.converged_
    np.testing.assert_allclose(fit.predict(x), 2 * x[:, 0] + 1, atol=1e-6)


def test_too_few_steps_are_reported() -> None:
    X, lower, upper = draw()
    with pytest.warns(ConvergenceWarning, match="after 1 steps"):
        fit = TobitRegressor(max_iter=1).fit(X, lower=lower, upper=upper)
    assert not fit.converged_


def test_repeated_columns_share_their_slope() -> None:
    X, lower, upper = draw()
    doubled = np.column_stack([X, X[:, 0]])
    base = TobitRegressor().fit(X, lower=lower, upper=upper)
    with pytest.warns(UninformativeWarning, match="columns 0, 2 repeat each other"):
        both = TobitRegressor().fit(doubled, lower=lower, upper=upper)
    np.testing.assert_allclose(both.predict(doubled), base.predict(X), rtol=1e-6)


class TestMomentsOfCensoredData:
    """What the outputs of a GP are standardised with."""

    def test_exact_data_have_their_mean_and_standard_deviation(self) -> None:
        y = np.random.default_rng(0).normal(5, 2, 50)
        assert normal_moments(Observations(y, y)) == pytest.approx((y.mean(), y.std()))

    @pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
    def test_censored_values_do_not_fool_them(self, share: float) -> None:
        y = np.random.default_rng(1).normal(5, 2, 3000)
        cap = np.quantile(y, 1 - share)
        mean, sd = normal_moments(Observations(np.minimum(y, cap), np.where(y > cap, np.inf, y)))
        assert mean == pytest.approx(5, abs=0.3)
        assert sd == pytest.approx(2, abs=0.25)

    @pytest.mark.parametrize("unit", [1e-12, 1e12])
    def test_they_move_with_the_units(self, unit: float) -> None:
        y = np.random.default_rng(2).normal(5, 2, 100)
        obs = Observations(np.minimum(y, 6), np.where(y > 6, np.inf, y))
        scaled = Observations(obs.lower * unit, obs.upper * unit)
        assert normal_moments(scaled) == pytest.approx(tuple(unit * m for m in normal_moments(obs)), rel=1e-6)

    def test_all_to_one_side_have_to_do_with_the_bounds(self) -> None:
        low = np.array([1.0, 2.0, 3.0])
        assert normal_moments(Observations(low, np.full(3, np.inf))) == pytest.approx((2.0, low.std()))

    @pytest.mark.parametrize("value", [0.0, 7.0, -1e12, 1e-12])
    def test_one_value_repeated_has_a_scale_that_can_be_divided_by(self, value: float) -> None:
        mean, scale = normal_moments(Observations(np.full(4, value), np.full(4, value)))
        assert mean == pytest.approx(value)
        assert scale > 0


def test_without_censoring_standard_errors_of_predictions_are_those_of_least_squares():
    X, y, _ = draw(kind="none")
    new = np.array([[0.0, 20.0], [3.0, 35.0], [-1.0, 0.0]])
    mean, std = TobitRegressor().fit(X, y).predict(new, return_std=True)
    design, at = (np.column_stack([Z, np.ones(len(Z))]) for Z in (X, new))
    coef, rest, *_ = np.linalg.lstsq(design, y)
    inverse = np.linalg.inv(design.T @ design) * rest[0] / len(y)  # maximum likelihood divides by n
    np.testing.assert_allclose(mean, at @ coef, rtol=1e-8)
    np.testing.assert_allclose(std, np.sqrt(np.diag(at @ inverse @ at.T)), rtol=1e-6)


@pytest.mark.parametrize("kind", ["above", "both"])
def test_quantiles_of_new_observations_cover_as_many_as_they_say(kind):
    X, lower, upper = draw(n=400, kind=kind)
    tobit = TobitRegressor().fit(X, lower=lower, upper=upper)
    rng = np.random.default_rng(9)
    new = rng.normal(size=(20_000, 2)) * [1.0, 5.0] + [0.0, 20.0]
    truth = 3 + new @ [2.0, -0.5] + 1.5 * rng.normal(size=len(new))
    levels = [0.05, 0.5, 0.95]
    quantiles = tobit.predict_quantiles(new, levels)
    assert quantiles.shape == (len(new), 3)
    np.testing.assert_allclose((truth[:, None] < quantiles).mean(axis=0), levels, atol=0.03)
    np.testing.assert_array_equal(tobit.predict_quantiles(new, 0.95), quantiles[:, 2])


def test_latent_quantiles_cover_the_true_plane_over_many_data_sets():
    at, inside = np.array([[1.0, 30.0]]), 0
    for seed in range(200):
        X, lower, upper = draw(n=80, seed=seed)
        low, high = TobitRegressor().fit(X, lower=lower, upper=upper).predict_quantiles(at, (0.05, 0.95), "latent")[0]
        inside += low < 3 + at[0] @ [2.0, -0.5] < high
    assert 165 <= inside <= 194  # 180 expected; four standard deviations are 17


def test_columns_that_repeat_each_other_leave_predictions_their_errors():
    X, y, _ = draw(kind="none")
    once = TobitRegressor().fit(X, y)
    with pytest.warns(UninformativeWarning):
        twice = TobitRegressor().fit(np.column_stack([X, X[:, 0]]), y)
    doubled = np.column_stack([X, X[:, 0]])
    for got, expected in zip(twice.predict(doubled, return_std=True), once.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_odd_quantiles_are_refused_in_words():
    X, y, _ = draw(kind="none")
    tobit = TobitRegressor().fit(X, y)
    with pytest.raises(InputError, match="q must be one or several probabilities"):
        tobit.predict_quantiles(X, q=1.0)
    with pytest.raises(InputError, match="kind must be one of demand, latent"):
        tobit.predict_quantiles(X, kind="noisy")


@pytest.mark.parametrize("shift", [1e4, 1e6, 1e8, 1e10])
def test_standard_errors_do_not_depend_on_where_the_columns_lie(shift, tmp_path):
    generator = np.random.default_rng(0)
    X = np.round(generator.normal(size=(60, 2)), 3)
    truth = X @ [1.0, 2.0] + 3.0 + generator.normal(size=60)
    plain = TobitRegressor().fit(X, np.minimum(truth, 4.0), truth > 4.0)
    far = TobitRegressor().fit(X + shift, np.minimum(truth, 4.0), truth > 4.0)
    far.save(tmp_path / "far")
    for fitted in (far, TobitRegressor.load(tmp_path / "far")):
        mean, std = fitted.predict(X + shift, return_std=True)
        np.testing.assert_allclose(mean, plain.predict(X), rtol=0, atol=1e-15 * shift + 1e-9)
        np.testing.assert_allclose(std, plain.predict(X, return_std=True)[1], rtol=1e-12 * shift**0.5 + 1e-6)
