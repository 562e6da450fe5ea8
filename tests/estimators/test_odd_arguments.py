"""What strangers give: each refusal says what was expected, what came and what to do; a failed fit changes nothing."""

from __future__ import annotations

import os
import stat
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import DataConversionWarning

from unmet import CensoredGP, InputError, TobitRegressor
from unmet._exceptions import UninformativeWarning
from unmet._parameters import Parameter
from unmet.kernels import SquaredExponential
from unmet.mobility.records import read_records
from unmet.mobility.runs.result import read_run
from unmet.report.source import open_run
from unmet.simulate.city import check_folder

X = np.linspace(0, 10, 30)[:, None]
Y = np.sin(X[:, 0]) + 5
BOTH = pytest.mark.parametrize("estimator", [CensoredGP(optimizer=None), TobitRegressor()], ids=["gp", "tobit"])


@pytest.fixture(scope="module")
def gp() -> CensoredGP:
    return CensoredGP().fit(X, Y)


@pytest.mark.parametrize("size", ["many", 2.5, -1, True, None, [3]])
def test_a_number_of_draws_is_a_whole_number(gp: CensoredGP, size: object) -> None:
    with pytest.raises(InputError, match=r"size must be a whole number of 0 or more; got"):
        gp.sample(X, size=size)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["n_restarts", "max_iter", "n_features"])
@pytest.mark.parametrize("value", ["a", 2.5, -1, True])
def test_settings_that_count_are_whole_numbers(name: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"{name} must be a whole number of (0|1) or more; got"):
        CensoredGP(**{name: value}).fit(X, Y)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["a", 0, 2.5])
def test_newton_steps_are_a_whole_number(value: object) -> None:
    with pytest.raises(InputError, match=r"max_iter must be a whole number of 1 or more; got"):
        TobitRegressor(max_iter=value).fit(X, Y)  # type: ignore[arg-type]


def test_numpys_whole_numbers_are_whole_numbers(gp: CensoredGP) -> None:
    assert gp.sample(X, size=np.int64(2)).shape == (2, 30)  # type: ignore[arg-type]
    CensoredGP(max_iter=np.int32(5), optimizer=None).fit(X, Y)  # type: ignore[arg-type]


def test_an_unknown_optimizer_is_refused_even_where_nothing_is_to_be_optimised() -> None:
    with pytest.raises(InputError, match=r"optimizer must be one of lbfgs, scoring, adam, None; got 'bfgs'"):
        CensoredGP(optimizer="bfgs").fit(X, Y)  # type: ignore[arg-type]


def test_switches_are_true_or_false() -> None:
    with pytest.raises(InputError, match=r"normalize_y must be True or False; got 'no'"):
        CensoredGP(normalize_y="no").fit(X, Y)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"fit_intercept must be True or False; got 'no'"):
        TobitRegressor(fit_intercept="no").fit(X, Y)  # type: ignore[arg-type]


def test_probabilities_and_hyperparameters_are_numbers(gp: CensoredGP) -> None:
    with pytest.raises(InputError, match=r"q must be one or several probabilities between 0 and 1; got 'median'"):
        gp.predict_quantiles(X, q="median")
    with pytest.raises(InputError, match=r"theta must be 3 finite numbers .*SquaredExponential.lengthscale.*; got"):
        gp.log_marginal_likelihood(["a", "b", "c"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"theta must be 3 finite numbers"):
        gp.log_marginal_likelihood(np.full(3, np.nan))


@BOTH
def test_a_column_named_twice_is_refused(estimator: CensoredGP | TobitRegressor) -> None:
    frame = pd.DataFrame(np.column_stack([X, X**2, X**3]), columns=["rain", "wind", "rain"])
    with pytest.raises(InputError, match=r"Column names must differ; 'rain' occurs 2 times\. Rename"):
        estimator.fit(frame, Y)


def test_a_kernel_refuses_a_column_named_twice() -> None:
    frame = pd.DataFrame(np.column_stack([X, X**2]), columns=["rain", "rain"])
    with pytest.raises(InputError, match=r"Column names must differ; 'rain' occurs 2 times"):
        SquaredExponential(1.0, 1.0, columns="rain")(frame)


class TestNotANumber:
    @BOTH
    def test_x_names_the_column_and_the_row(self, estimator: CensoredGP | TobitRegressor) -> None:
        frame = pd.DataFrame({"t": X[:, 0], "rain": X[:, 0] ** 2})
        frame.loc[[3, 7], "rain"] = np.nan
        with pytest.raises(
            InputError,
            match=r"must not contain NaN or infinity; column 'rain', row 3 is nan \(2 such values.*Drop such rows",
        ):
            estimator.fit(frame, Y)

    def test_predictions_too(self, gp: CensoredGP) -> None:
        bad = X.copy()
        bad[4] = np.inf
        with pytest.raises(InputError, match=r"must not contain NaN or infinity; column 0, row 4 .*\(1 such values"):
            gp.predict(bad)

    @BOTH
    def test_y_names_the_row(self, estimator: CensoredGP | TobitRegressor) -> None:
        bad = Y.copy()
        bad[[4, 5]] = np.inf, np.nan
        with pytest.raises(InputError, match=r"y must not contain NaN or infinity; row 4 is inf \(2 such rows"):
            estimator.fit(X, bad)


class TestSizes:
    """Squares must fit a double."""

    @BOTH
    @pytest.mark.parametrize("unit", [1e200, 1e-200])
    def test_numbers_whose_squares_are_none_are_refused(
        self, estimator: CensoredGP | TobitRegressor, unit: float
    ) -> None:
        with pytest.raises(InputError, match=r"y must be 0 or between 1e-150 and 1e\+150 in size; .* Change its units"):
            estimator.fit(X, Y * unit)
        with pytest.raises(InputError, match=r"X must be 0 or between 1e-150 and 1e\+150 in size; column 0"):
            estimator.fit(X * unit, Y)
        with pytest.raises(InputError, match=r"upper must be 0 or between 1e-150 and 1e\+150 in size"):
            estimator.fit(X, lower=np.zeros(30), upper=Y * unit)

    @BOTH
    @pytest.mark.parametrize("unit", [1e140, 1e-140])
    def test_whatever_else_is_only_another_unit(self, estimator: CensoredGP | TobitRegressor, unit: float) -> None:
        expected = estimator.fit(X, Y, censored=Y > 5.5).predict(X)
        got = estimator.fit(X * unit, Y * unit, censored=Y > 5.5).predict(X * unit)
        np.testing.assert_allclose(got / unit, expected, rtol=1e-6)

    def test_counts_too_large_to_need_a_count_model_are_refused(self) -> None:
        with pytest.raises(InputError, match=r"Counts must be at most 1e\+07; row 0 has 5e\+12.*likelihood=.gaussian"):
            CensoredGP(likelihood="poisson").fit(X, np.rint(Y * 1e12))


class TestAFailedFit:
    @BOTH
    def test_leaves_the_model_as_it_was(self, estimator: CensoredGP | TobitRegressor) -> None:
        estimator.fit(pd.DataFrame(X, columns=["t"]), Y)
        before = estimator.predict(pd.DataFrame(X, columns=["t"]))
        with pytest.raises(InputError):
            estimator.fit(np.ones((30, 4)), Y, censored=["maybe"] * 30)
        assert estimator.n_features_in_ == 1
        np.testing.assert_array_equal(estimator.predict(pd.DataFrame(X, columns=["t"])), before)

    def test_leaves_an_unfitted_model_unfitted(self) -> None:
        gp = CensoredGP()
        with pytest.raises(InputError):
            gp.fit(X, Y, censored=["maybe"] * 30)
        assert not hasattr(gp, "n_features_in_")

    def test_a_new_fit_forgets_what_only_the_old_one_had(self) -> None:
        gp = CensoredGP(optimizer=None).fit(X, Y)
        assert hasattr(gp, "noise_variance_")
        gp.set_params(likelihood="poisson").fit(X, np.rint(Y))
        assert not hasattr(gp, "noise_variance_")


class TestScoringCounts:
    def test_what_was_seen_is_compared_with_rate_times_exposure(self) -> None:
        rng = np.random.default_rng(0)
        a = rng.uniform(0.2, 1.0, 30)
        y = rng.poisson(a * np.exp(np.sin(X[:, 0]) + 3))
        gp = CensoredGP(likelihood="poisson").fit(X, y, exposure=a)
        expected = 1 - np.sum((y - a * gp.predict(X)) ** 2) / np.sum((y - y.mean()) ** 2)
        assert gp.score(X, y, exposure=a) == pytest.approx(expected)

    def test_bins_that_were_never_open_do_not_count(self) -> None:
        a = np.where(np.arange(30) < 5, 0.0, 1.0)
        y = np.where(a > 0, np.rint(3 * Y), 0.0)
        gp = CensoredGP(likelihood="poisson").fit(X, y, exposure=a)
        assert gp.score(X, y, exposure=a) == pytest.approx(gp.score(X[5:], y[5:]))

    def test_exposure_of_a_gaussian_is_refused(self, gp: CensoredGP) -> None:
        with pytest.raises(InputError, match="exposure needs a count likelihood"):
            gp.score(X, Y, exposure=np.ones(30))


@pytest.mark.skipif(os.name != "posix", reason="file modes are of POSIX systems")
def test_a_saved_file_may_be_read_by_whom_the_umask_says(gp: CensoredGP, tmp_path) -> None:
    before = os.umask(0o027)
    try:
        gp.save(tmp_path / "model")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o640


class TestTobitCannotTell:
    """Coefficients that the data do not determine."""

    rng = np.random.default_rng(0)
    noisy = Y + rng.normal(size=30)

    def test_columns_that_repeat_each_other_are_named(self) -> None:
        frame = pd.DataFrame({"km": X[:, 0], "miles": X[:, 0] / 1.609, "rain": np.cos(X[:, 0])})
        with pytest.warns(UserWarning, match=r"columns 'km', 'miles' .*repeat each other.*Leave out"):
            fit = TobitRegressor().fit(frame, self.noisy)
        assert np.isinf(fit.coef_se_[:2]).all()
        one = TobitRegressor().fit(frame[["km", "rain"]], self.noisy)
        assert fit.coef_se_[2] == pytest.approx(one.coef_se_[1], rel=1e-6)
        np.testing.assert_allclose(fit.predict(frame), one.predict(frame[["km", "rain"]]), rtol=1e-6)

    def test_a_constant_column_repeats_the_intercept(self) -> None:
        with pytest.warns(UserWarning, match=r"column 1 and the intercept repeat"):
            fit = TobitRegressor().fit(np.column_stack([X, np.ones(30)]), self.noisy)
        assert np.isfinite(fit.coef_se_[0])
        assert np.isinf([fit.coef_se_[1], fit.intercept_se_]).all()

    def test_a_column_of_zeros_takes_nothing_from_the_intercept(self) -> None:
        with pytest.warns(UserWarning, match=r"column 1 is 0 throughout"):
            fit = TobitRegressor().fit(np.column_stack([X, np.zeros(30)]), self.noisy)
        assert np.isfinite([fit.coef_se_[0], fit.intercept_se_]).all()

    def test_a_level_far_from_zero_is_no_repetition(self) -> None:
        TobitRegressor().fit(X + 1e8, self.noisy)  # warnings are errors

    def test_a_column_that_is_set_on_censored_rows_only_runs_away(self) -> None:
        censored = Y > 5.5
        design = np.column_stack([X[:, 0], censored])
        with pytest.warns(UserWarning, match=r"no maximum.*column 1.*leave out"):
            fit = TobitRegressor().fit(design, np.minimum(self.noisy, 5.5), censored=censored)
        assert not fit.converged_

    def test_rows_all_censored_that_a_line_keeps_apart(self) -> None:
        side = np.where(X[:, 0] > 5, 1, -1)
        with pytest.warns(UserWarning, match="no maximum"):
            fit = TobitRegressor().fit(X, X[:, 0], censored=side)
        assert not fit.converged_

    def test_rows_all_censored_that_overlap_are_fitted(self) -> None:
        rng = np.random.default_rng(1)
        truth = 2 * X[:, 0] + rng.normal(size=30) * 3
        at = truth + rng.normal(size=30)  # each told only above or below a point near it
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fit = TobitRegressor().fit(X, at, censored=np.where(truth > at, 1, -1))
        assert fit.converged_
        assert fit.coef_[0] == pytest.approx(2, abs=1)


class TestAsAStranger:
    def test_bounds_the_wrong_way_round_are_named_as_such(self) -> None:
        with pytest.raises(InputError, match=r"lower must not exceed upper; row 0 has .*30 such rows"):
            CensoredGP().fit(X, Y, lower=Y + 1, upper=Y - 1)

    @pytest.mark.parametrize(
        "labels", [np.array(["0", "1"] * 15), ["1"] * 30, np.array(["0", True] * 15, dtype=object)]
    )
    def test_words_are_no_labels_even_if_they_spell_numbers(self, labels: object) -> None:
        with pytest.raises(InputError, match=r"censored must be True/False.*row 0 is"):
            CensoredGP().fit(X, Y, censored=labels)

    @BOTH
    def test_no_rows_no_columns_and_no_table_are_refused(self, estimator: CensoredGP | TobitRegressor) -> None:
        with pytest.raises(InputError, match=r"X must have at least one row; got shape \(0, 1\)"):
            estimator.fit(X[:0], Y[:0])
        with pytest.raises(InputError, match=r"0 feature\(s\)"):
            estimator.fit(X[:, :0], Y)
        with pytest.raises(InputError, match=r"Expected 2D array"):
            estimator.fit(X[:, 0], Y)

    @pytest.mark.parametrize("columns", [1.5, True, {"rain": 1}, [0, None], b"rain"])
    def test_columns_are_positions_or_names(self, columns: object) -> None:
        with pytest.raises(InputError, match=r"SquaredExponential: columns must be positions or names"):
            SquaredExponential(columns=columns)  # type: ignore[arg-type]

    def test_a_place_where_nothing_can_be_saved_is_named(self, gp: CensoredGP, tmp_path) -> None:
        with pytest.raises(InputError, match=r"there is no folder .*nowhere\. Create it first"):
            gp.save(tmp_path / "nowhere" / "model")
        with pytest.raises(InputError, match=r"is a folder\. Give the name of a file"):
            gp.save(tmp_path)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("estimator", [CensoredGP, TobitRegressor])
@pytest.mark.parametrize("given", [np.array, pd.Series], ids=["array", "Series"])
def test_bounds_are_read_and_never_written(estimator, given):
    x = np.linspace(0, 1, 12)
    y = 1 + x + 0.1 * np.cos(40 * x)
    low, high = np.full(12, np.nan), np.full(12, np.nan)
    low[3], high[7] = y[3] - 0.2, y[7] + 0.2
    lower, upper = given(low), given(high)
    fitted = estimator().fit(x[:, None], y, lower=lower, upper=upper)
    assert np.array_equal(lower, low, equal_nan=True)
    assert np.array_equal(upper, high, equal_nan=True)
    again = estimator().fit(x[:, None], y, lower=low, upper=high)
    assert np.allclose(fitted.predict(x[:, None]), again.predict(x[:, None]))


def test_a_label_that_is_missing_is_the_one_named():
    labels = pd.Series([True, False, True, False], dtype="boolean")
    labels[2] = pd.NA
    with pytest.raises(InputError, match=r"row 2 is <NA> \(1 such rows"):
        CensoredGP().fit(np.arange(4.0)[:, None], np.arange(4.0), censored=labels)


@pytest.mark.parametrize("estimator", [CensoredGP, TobitRegressor])
def test_a_score_leaves_out_rows_known_by_bounds(estimator):
    x = np.linspace(0, 1, 12)[:, None]
    y = 1 + x[:, 0] + 0.1 * np.cos(40 * x[:, 0])
    lower = np.where(np.arange(12) == 4, y - 0.3, np.nan)
    fitted = estimator().fit(x, y, lower=lower)
    seen = np.where(np.isnan(lower), y, np.nan)
    rest = np.arange(12) != 4
    assert fitted.score(x, seen, lower=lower) == pytest.approx(fitted.score(x[rest], y[rest]))


def test_rows_that_only_say_above_or_below_tell_no_scale():
    x = np.linspace(0, 1, 40)[:, None]
    above = np.sin(6 * x[:, 0]) > 0
    with pytest.warns(UninformativeWarning, match="None of the 40 rows is exact"):
        gp = CensoredGP().fit(x, np.where(above, 0.3, -0.3), censored=np.where(above, 1, -1))
    mean = gp.predict(x)
    assert np.abs(mean).max() < 3
    assert (mean[above] > 0).mean() > 0.9


MASK = np.arange(30) == 3
NOT_REAL = {
    "masked": (np.ma.masked_array(Y, MASK), r"has 1 masked values\. Drop their rows, or fill them in"),
    "complex": (Y + 1j, r"Complex data not supported: .* must be real numbers; got complex128"),
    "times": (np.arange(30).astype("m8[s]"), r"must be numbers; got (durations|dates or times)"),
    "records": (np.zeros(30, dtype=[("a", "f8")]), r"must be numbers; got records of several fields"),
    "huge": ([10**400] * 30, r"int too large to convert to float|row 0 is 1000000"),
}


@BOTH
@pytest.mark.parametrize("kind", NOT_REAL)
@pytest.mark.parametrize("name", ["X", "y", "censored", "lower", "upper"])
def test_values_that_are_not_real_numbers_are_refused(
    estimator: CensoredGP | TobitRegressor, name: str, kind: str
) -> None:
    value, message = NOT_REAL[kind]
    if name == "X":
        value = np.reshape(value, (-1, 1)) if kind != "masked" else np.ma.masked_array(Y[:, None], MASK[:, None])
    with pytest.raises(InputError, match=message):
        estimator.fit(**{"X": X, "y": Y, name: value})
    if name == "X":
        with pytest.raises(InputError, match=message):
            estimator.fit(X, Y).predict(value)


def test_an_array_that_masks_nothing_is_an_array() -> None:
    plain, masked = (TobitRegressor().fit(X, y) for y in (Y, np.ma.masked_array(Y, np.zeros(30))))
    assert plain.coef_ == masked.coef_


@pytest.mark.parametrize("name", ["censored", "censored_probability"])
def test_masked_labels_of_shares_are_refused(name: str) -> None:
    labels = np.ma.masked_array(np.sign(X[:, 0] - 5) > 0, MASK)
    with pytest.raises(InputError, match=rf"{name} has 1 masked values"):
        CensoredGP(censoring="share").fit(X, Y, **{name: labels})


@BOTH
@pytest.mark.parametrize("kind", ["masked", "complex", "times", "records"])
@pytest.mark.parametrize("name", ["y", "sample_weight"])
def test_scores_of_values_that_are_not_real_numbers_are_refused(
    estimator: CensoredGP | TobitRegressor, name: str, kind: str
) -> None:
    value, message = NOT_REAL[kind]
    with pytest.raises(InputError, match=message):
        estimator.fit(X, Y).score(**{"X": X, "y": Y, name: value})


@BOTH
def test_weights_of_a_score_are_one_per_row_and_none_negative(estimator: CensoredGP | TobitRegressor) -> None:
    fitted = estimator.fit(X, Y)
    for weight in (np.ones(35), np.ones((30, 1)), -np.ones(30), np.zeros(30), np.full(30, np.nan), ["a"] * 30):
        with pytest.raises(InputError, match="sample_weight must"):
            fitted.score(X, Y, weight)
    assert fitted.score(X, Y[:, None]) == fitted.score(X, Y, np.ones(30))


@pytest.mark.parametrize("censoring", ["model", "drop", "ignore", "share"])
def test_true_values_of_a_column_are_those_of_its_vector(censoring: Any) -> None:
    high = np.abs(Y) > 0.8 * np.abs(Y).max()
    gp = CensoredGP(censoring=censoring, optimizer=None).fit(X, Y, high)
    with pytest.warns(DataConversionWarning):
        column = gp.predict_truth(X, Y[:, None], high)
    pd.testing.assert_frame_equal(column, gp.predict_truth(X, Y, high))


@pytest.mark.parametrize("given", ["no", 1, None, [False]])
def test_arguments_that_switch_something_are_true_or_false(gp: CensoredGP, given: Any, tmp_path: Any) -> None:
    x, tobit = X, TobitRegressor().fit(X, Y)
    calls = [
        lambda: gp.predict(x, return_std=given),
        lambda: gp.predict(x, return_cov=given),
        lambda: gp.log_marginal_likelihood(eval_gradient=given),
        lambda: tobit.predict(x, return_std=given),
        lambda: Parameter(1.0, fixed=given),
        lambda: Parameter(per_column=given),
        lambda: read_run(tmp_path, trust=given),
        lambda: open_run(tmp_path, trust=given).__enter__(),
        lambda: read_records(pd.DataFrame(), timezone="UTC", force=given),
        lambda: check_folder(tmp_path, overwrite=given),
    ]
    for call in calls:
        with pytest.raises(InputError, match="must be True or False"):
            call()
