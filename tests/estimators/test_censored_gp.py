"""`CensoredGP`: what it recovers, what it refuses, units, limits, and other software."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from unmet import CensoredGP, ConvergenceWarning, InputError, UninformativeWarning
from unmet.kernels import Constant, Kernel, Linear, LogNormal, Matern, Parameter, Periodic, SquaredExponential


def wave(n: int = 60, seed: int = 0, cap: float = 6.0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, observed, labels and truth: a sine wave about 5 whose crests are cut at `cap`."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 12, n))
    truth = 5 + 2 * np.sin(x)
    y = truth + rng.normal(scale=0.2, size=n)
    return x[:, None], np.minimum(y, cap), y > cap, truth


X, Y, CENSORED, TRUTH = wave()


class TestWhatItRecovers:
    def test_modelled_censoring_is_nearer_the_truth_than_ignoring_or_dropping(self) -> None:
        X, y, censored, truth = wave(150)
        rmse = {
            how: np.sqrt(
                np.mean((CensoredGP(censoring=how).fit(X, y, censored=censored).predict(X) - truth)[censored] ** 2)
            )
            for how in ("model", "drop", "ignore")
        }
        assert rmse["model"] < 0.6 * min(rmse["drop"], rmse["ignore"])

    def test_dropping_is_fitting_without_the_censored_rows(self) -> None:
        dropped = CensoredGP(censoring="drop").fit(X, Y, censored=CENSORED)
        without = CensoredGP().fit(X[~CENSORED], Y[~CENSORED])
        np.testing.assert_array_equal(dropped.predict(X), without.predict(X))

    def test_ignoring_is_fitting_without_the_labels(self) -> None:
        ignored = CensoredGP(censoring="ignore").fit(X, Y, censored=CENSORED)
        np.testing.assert_array_equal(ignored.predict(X), CensoredGP().fit(X, Y).predict(X))

    def test_labels_may_be_bool_or_sides_of_any_dtype(self) -> None:
        expected = CensoredGP().fit(X, Y, censored=CENSORED).predict(X)
        as_int = CENSORED.astype(int)
        for labels in (as_int, as_int.astype(object), CENSORED.tolist(), pd.Series(CENSORED), as_int.astype(np.int8)):
            np.testing.assert_array_equal(CensoredGP().fit(X, Y, censored=labels).predict(X), expected)

    def test_censoring_from_below_is_the_mirror_image(self) -> None:
        up = CensoredGP().fit(X, Y, censored=CENSORED)
        down = CensoredGP().fit(X, -Y, censored=-CENSORED.astype(int))
        np.testing.assert_allclose(up.predict(X), -down.predict(X), atol=1e-5)
        assert up.log_marginal_likelihood_ == pytest.approx(down.log_marginal_likelihood_, abs=1e-6)

    def test_bounds_say_the_same_as_labels(self) -> None:
        by_label = CensoredGP().fit(X, Y, censored=CENSORED)
        lower = np.where(CENSORED, Y, np.nan)
        by_bound = CensoredGP().fit(X, Y, lower=lower)
        np.testing.assert_array_equal(by_label.predict(X), by_bound.predict(X))
        by_both = CensoredGP().fit(X, lower=Y, upper=np.where(CENSORED, np.inf, Y))
        np.testing.assert_array_equal(by_label.predict(X), by_both.predict(X))

    def test_intervals_tell_more_together_than_their_middles_do(self) -> None:
        lower, upper = np.floor(TRUTH), np.ceil(TRUTH)
        gp = CensoredGP().fit(X, lower=lower, upper=upper)
        by_middle = np.abs(0.5 * (lower + upper) - TRUTH).mean()
        assert np.abs(gp.predict(X) - TRUTH).mean() < 0.7 * by_middle

    def test_standardisation_is_not_fooled_by_censored_values(self) -> None:
        rng = np.random.default_rng(1)
        y = rng.normal(10.0, 3.0, 4000)
        cap = 10.0  # half of all rows
        gp = CensoredGP(SquaredExponential(1.0, 1.0), noise_variance=1.0, optimizer=None)
        few = slice(0, 400)
        gp.fit(rng.uniform(size=(4000, 1))[few], np.minimum(y, cap)[few], censored=(y > cap)[few])
        assert gp.y_mean_ == pytest.approx(10.0, abs=0.5)
        assert gp.y_scale_ == pytest.approx(3.0, abs=0.4)

    def test_how_wrong_the_censored_values_are_does_not_move_the_scale_much(self) -> None:
        """A censored row only says "at least": told far too little, it must not drag the mean down with it."""
        gp = CensoredGP(SquaredExponential(1.0, 1.0), noise_variance=1.0, optimizer=None)
        exact_only = gp.fit(X[~CENSORED], Y[~CENSORED])
        mean, scale = exact_only.y_mean_, exact_only.y_scale_
        gp.fit(X, np.where(CENSORED, -1e3, Y), censored=CENSORED)
        assert gp.y_mean_ == pytest.approx(mean, abs=0.05 * scale)
        assert gp.y_scale_ == pytest.approx(scale, rel=0.05)


class TestAgainstScikitLearn:
    """With nothing censored and normalize_y=False, evidence and predictions are those of any GP software."""

    kernel = SquaredExponential(1.5, 1.2) + Constant(20.0)
    theirs = sk.ConstantKernel(1.5) * sk.RBF(1.2) + sk.ConstantKernel(20.0) + sk.WhiteKernel(0.3)

    def test_evidence_gradient_and_predictions(self) -> None:
        mine = CensoredGP(self.kernel, noise_variance=0.3, optimizer=None, normalize_y=False).fit(X, Y)
        other = GaussianProcessRegressor(self.theirs, optimizer=None, alpha=0.0).fit(X, Y)
        value, gradient = mine.log_marginal_likelihood(eval_gradient=True)
        theirs, their_gradient = other.log_marginal_likelihood(other.kernel_.theta, eval_gradient=True)
        assert mine.log_marginal_likelihood_ == pytest.approx(theirs, rel=1e-10)
        assert value == mine.log_marginal_likelihood_
        np.testing.assert_allclose(gradient, their_gradient, rtol=1e-7)
        new = np.linspace(-2, 14, 11)[:, None]
        mean, std = mine.predict(new, return_std=True)
        their_mean, their_std = other.predict(new, return_std=True)
        np.testing.assert_allclose(mean, their_mean, atol=1e-8)
        np.testing.assert_allclose(std, np.sqrt(their_std**2 - 0.3), atol=1e-7)  # theirs is of a new observation

    def test_the_evidence_reached_is_at_least_theirs(self) -> None:
        mine = CensoredGP(self.kernel, noise_variance=0.3, normalize_y=False).fit(X, Y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other = GaussianProcessRegressor(self.theirs, alpha=0.0, n_restarts_optimizer=3, random_state=0).fit(X, Y)
        assert mine.log_marginal_likelihood_ > other.log_marginal_likelihood_value_ - 0.01

    def test_standardising_changes_the_units_of_the_model_and_not_of_the_evidence(self) -> None:
        plain = CensoredGP(SquaredExponential(2.0, 1.2), noise_variance=0.3, optimizer=None, normalize_y=False)
        plain.fit(X, Y - Y.mean())
        scale = Y.std()
        scaled = CensoredGP(SquaredExponential(2.0 / scale**2, 1.2), noise_variance=0.3 / scale**2, optimizer=None)
        scaled.fit(X, Y)
        assert scaled.log_marginal_likelihood_ == pytest.approx(plain.log_marginal_likelihood_, rel=1e-10)
        np.testing.assert_allclose(scaled.predict(X), plain.predict(X) + Y.mean(), rtol=1e-9)


class TestUnits:
    """The same data in other units give the same answer in those units."""

    @pytest.mark.parametrize("unit", [1e-12, 1e-3, 1e12])
    def test_of_y(self, unit: float) -> None:
        base = CensoredGP().fit(X, Y, censored=CENSORED)
        scaled = CensoredGP().fit(X, Y * unit, censored=CENSORED)
        np.testing.assert_allclose(scaled.predict(X) / unit, base.predict(X), rtol=1e-5)
        np.testing.assert_allclose(
            scaled.predict(X, return_std=True)[1] / unit, base.predict(X, return_std=True)[1], rtol=1e-3
        )
        per_row = np.log(unit) * (~CENSORED).sum()
        assert scaled.log_marginal_likelihood_ + per_row == pytest.approx(base.log_marginal_likelihood_, abs=1e-3)

    @pytest.mark.parametrize("unit", [1e-12, 1e-3, 1e12])
    def test_of_x(self, unit: float) -> None:
        base, scaled = (
            CensoredGP().fit(X, Y, censored=CENSORED),
            CensoredGP().fit(X * unit, Y, censored=CENSORED),
        )
        np.testing.assert_allclose(scaled.predict(X * unit), base.predict(X), rtol=1e-5)
        assert scaled.log_marginal_likelihood_ == pytest.approx(base.log_marginal_likelihood_, abs=1e-3)

    def test_of_y_without_standardising(self) -> None:
        """Open values then start from the scale of y."""
        flat = Y - Y.mean()
        base = CensoredGP(normalize_y=False).fit(X, flat, censored=CENSORED)
        scaled = CensoredGP(normalize_y=False).fit(X, flat * 1e6, censored=CENSORED)
        np.testing.assert_allclose(scaled.predict(X) / 1e6, base.predict(X), atol=1e-4)

    def test_a_shift_of_x_or_y_shifts_nothing_else(self) -> None:
        base = CensoredGP().fit(X, Y, censored=CENSORED)
        shifted = CensoredGP().fit(X + 1e6, Y + 1e6, censored=CENSORED)
        np.testing.assert_allclose(shifted.predict(X + 1e6) - 1e6, base.predict(X), atol=1e-4)

    def test_of_one_column_among_several(self) -> None:
        rng = np.random.default_rng(2)
        wide = np.column_stack([X[:, 0], rng.normal(size=len(X))])
        units = np.array([1e9, 1e-9])
        base, scaled = CensoredGP().fit(wide, Y), CensoredGP().fit(wide * units, Y)
        np.testing.assert_allclose(scaled.predict(wide * units), base.predict(wide), rtol=1e-4)


class TestSmallAndOddData:
    def test_one_row(self) -> None:
        gp = CensoredGP().fit([[1.0]], [5.0])
        assert gp.predict([[1.0]])[0] == pytest.approx(5.0)
        assert np.isfinite(gp.predict([[2.0]], return_std=True)[1]).all()

    def test_one_censored_row(self) -> None:
        gp = CensoredGP(optimizer=None).fit([[1.0]], [5.0], censored=[True])
        assert gp.predict([[1.0]])[0] > 5.0

    @pytest.mark.parametrize("side", [1, -1])
    def test_all_rows_censored(self, side: int) -> None:
        with pytest.warns(UninformativeWarning, match="no maximum"):  # nothing bounds the truth on the other side
            gp = CensoredGP().fit(X, Y, censored=np.full(len(X), side))
        mean, std = gp.predict(X, return_std=True)
        assert np.isfinite(mean).all()
        assert np.isfinite(std).all()
        assert (side * (mean - Y)).mean() > 0

    @pytest.mark.parametrize("value", [0.0, 5.0, -1e12, 1e-12])
    def test_constant_y(self, value: float) -> None:
        gp = CensoredGP().fit(X, np.full(len(X), value))
        np.testing.assert_allclose(gp.predict(X), value, rtol=1e-6, atol=1e-15)

    def test_a_constant_column_is_harmless(self) -> None:
        padded = np.column_stack([X, np.full(len(X), 7.0)])
        np.testing.assert_allclose(
            CensoredGP().fit(padded, Y).predict(padded), CensoredGP().fit(X, Y).predict(X), rtol=0.02
        )

    def test_repeated_inputs(self) -> None:
        twice = np.repeat(X, 2, axis=0)
        gp = CensoredGP().fit(twice, np.repeat(Y, 2), censored=np.repeat(CENSORED, 2))
        assert np.isfinite(gp.predict(X)).all()

    @pytest.mark.parametrize(
        "convert",
        [
            lambda a: np.round(a * 10).astype(np.int64),
            lambda a: (a * 1.0).astype(object),
            lambda a: a.astype(np.float32),
            lambda a: a.tolist(),
        ],
        ids=["int", "object", "float32", "list"],
    )
    def test_other_dtypes(self, convert: Callable[[np.ndarray], object]) -> None:
        x, y = convert(X), convert(Y)
        gp = CensoredGP().fit(x, y, censored=CENSORED)
        expected = CensoredGP().fit(np.asarray(x, dtype=float), np.asarray(y, dtype=float), censored=CENSORED)
        np.testing.assert_array_equal(gp.predict(x), expected.predict(np.asarray(x, dtype=float)))

    def test_the_callers_arrays_are_left_alone(self) -> None:
        x, y, c = X.copy(), Y.copy(), CENSORED.copy()
        CensoredGP().fit(x, y, censored=c).predict(x)
        np.testing.assert_array_equal(x, X)
        np.testing.assert_array_equal(y, Y)
        np.testing.assert_array_equal(c, CENSORED)


class TestFrames:
    frame = pd.DataFrame({"t": X[:, 0], "rain": np.cos(X[:, 0])}, index=np.arange(len(X)) + 100)

    def test_kernels_find_their_columns_by_name(self) -> None:
        kernel = SquaredExponential(columns="t") + Linear(columns="rain")
        named = CensoredGP(kernel).fit(self.frame, pd.Series(Y), censored=pd.Series(CENSORED))
        by_position = CensoredGP(SquaredExponential(columns=0) + Linear(columns=1))
        by_position.fit(self.frame.to_numpy(), Y, censored=CENSORED)
        np.testing.assert_array_equal(named.predict(self.frame), by_position.predict(self.frame.to_numpy()))

    def test_an_unknown_column_is_refused(self) -> None:
        with pytest.raises(InputError, match="no column 'snow'; the inputs have t, rain"):
            CensoredGP(SquaredExponential(columns="snow")).fit(self.frame, Y)

    def test_columns_in_another_order_are_refused(self) -> None:
        gp = CensoredGP(optimizer=None).fit(self.frame, Y)
        with pytest.raises(ValueError, match="feature names"):
            gp.predict(self.frame[["rain", "t"]])


HUGE = X.copy()
HUGE[3] = np.inf
HOLED = X.copy()
HOLED[3] = np.nan


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda gp: gp.fit(HOLED, Y), "NaN"),
        (lambda gp: gp.fit(HUGE, Y), "infinity"),
        (
            lambda gp: gp.fit(X, np.where(np.arange(60) == 3, np.nan, Y)),
            r"y must not contain NaN.*row 3 is nan.*lower=",
        ),
        (lambda gp: gp.fit(X, np.where(np.arange(60) == 3, np.inf, Y)), r"y must not contain NaN.*row 3 is inf"),
        (lambda gp: gp.fit(X, Y[:-1]), r"y must have one value per row of X; got 59 for 60 rows"),
        (lambda gp: gp.fit(X, Y, censored=CENSORED[:-1]), r"one label per row of X; got shape \(59,\) for 60"),
        (lambda gp: gp.fit(X, Y, censored=CENSORED[:, None]), r"one label per row of X; got shape \(60, 1\)"),
        (lambda gp: gp.fit(X, Y, censored=True), r"one label per row of X; got shape \(\)"),
        (lambda gp: gp.fit(X, Y, censored=np.full(60, 2)), r"True/False, or −1 .*row 0 is .*2.*60 such rows"),
        (lambda gp: gp.fit(X, Y, censored=np.full(60, 0.5)), r"True/False, or −1 .*row 0 is .*0\.5"),
        (lambda gp: gp.fit(X, Y, censored=np.full(60, np.nan)), r"True/False, or −1 .*row 0 is .*nan"),
        (lambda gp: gp.fit(X, Y, censored=np.full(60, "yes")), r"censored must be True/False.*row 0 is .*yes"),
        (lambda gp: gp.fit(X, Y, censored=np.full(60, None)), r"censored must be True/False.*row 0 is None"),
        (lambda gp: gp.fit(X, lower=Y + 1, upper=Y), r"lower must not exceed upper; row 0 has"),
        (lambda gp: gp.fit(X, Y, lower=Y[:3]), r"lower must have one value per row of X; got 3 for 60"),
        (lambda gp: gp.fit(X, Y, lower=np.full(60, np.inf)), r"lower must not be \+infinity; row 0"),
        (lambda gp: gp.fit(X, Y, upper=np.full(60, -np.inf)), r"upper must not be −infinity; row 0"),
        (lambda gp: gp.fit(X, lower=np.full(60, np.nan)), r"Rows without .* need an observed y; row 0 has none"),
        (lambda gp: gp.fit(X, Y, censored=CENSORED, lower=Y), "either censored= or lower=/upper=, not both"),
        (lambda gp: gp.fit(X), r"y is None\. Give y, or lower= and upper="),
        (lambda gp: gp.fit(X, np.full(60, "three")), "y must be numbers"),
        (lambda gp: gp.fit(np.empty((0, 1)), []), "at least one row; got shape"),
        (lambda gp: gp.fit(X[:, 0], Y), "2D"),
        (lambda gp: gp.fit(X, Y).predict(np.zeros((2, 3))), "3 features"),
        (lambda gp: gp.set_params(kernel="rbf").fit(X, Y), "kernel must be one of unmet.kernels, or None; got 'rbf'"),
        (lambda gp: gp.set_params(censoring="maybe").fit(X, Y), "one of model, drop, ignore, share, auto; got 'maybe'"),
        (
            lambda gp: gp.set_params(optimizer="bfgs").fit(X, Y),
            "optimizer must be one of lbfgs, scoring, adam, None; got 'bfgs'",
        ),
        (lambda gp: gp.set_params(noise_variance=0.0).fit(X, Y), r"noise_variance.*positive, finite number.*got 0\.0"),
        (lambda gp: gp.set_params(noise_variance=-1.0).fit(X, Y), r"noise_variance.*positive, finite"),
        (lambda gp: gp.set_params(noise_variance=1e-320).fit(X, Y), r"noise_variance.*positive, finite"),
        (lambda gp: gp.set_params(noise_variance=[1.0, 2.0]).fit(X, Y), "noise_variance.*one number"),
        (lambda gp: gp.set_params(n_restarts=-1).fit(X, Y), "n_restarts must be a whole number of 0 or more"),
        (
            lambda gp: gp.set_params(censoring="drop").fit(X, Y, censored=np.ones(60)),
            "leaves no rows: all 60 are censored",
        ),
        (
            lambda gp: gp.set_params(kernel=SquaredExponential(Parameter(5.0, bounds=(0.1, 1.0)))).fit(X, Y),
            r"5\.0 lies outside its bounds",
        ),
        (lambda gp: gp.fit(X, Y).predict_quantiles(X, q=[0.0, 0.5]), "probabilities between 0 and 1; got"),
        (lambda gp: gp.fit(X, Y).predict_quantiles(X, q=95), "probabilities between 0 and 1; got 95"),
        (lambda gp: gp.fit(X, Y).predict_quantiles(X, kind="noisy"), "kind must be one of demand, latent; got 'noisy'"),
        (lambda gp: gp.fit(X, Y).sample(X, kind="noisy"), "kind must be one of demand, latent"),
        (lambda gp: gp.fit(X, Y).sample(X, size=-1), "size must be a whole number of 0 or more; got -1"),
        (lambda gp: gp.fit(X, Y).predict(X, return_std=True, return_cov=True), "not both"),
        (
            lambda gp: gp.fit(X, Y).log_marginal_likelihood([1.0]),
            r"theta must be 3 finite numbers \(.*variance.*\); got",
        ),
    ],
)
def test_bad_input_is_refused_with_what_was_expected_and_what_came(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(CensoredGP(max_iter=2, kernel=SquaredExponential(1.0, 1.0)).set_params(optimizer=None))


class TestPredictions:
    gp = CensoredGP().fit(X, Y, censored=CENSORED)
    new = np.linspace(-1, 13, 30)[:, None]

    def test_std_is_the_root_of_the_covariances_diagonal(self) -> None:
        mean, std = self.gp.predict(self.new, return_std=True)
        mean2, cov = self.gp.predict(self.new, return_cov=True)
        np.testing.assert_allclose(mean, mean2, rtol=1e-12)
        np.testing.assert_allclose(std**2, np.diag(cov), rtol=1e-8)
        np.testing.assert_array_equal(mean, self.gp.predict(self.new))

    def test_quantiles_are_normal_with_or_without_noise(self) -> None:
        mean, std = self.gp.predict(self.new, return_std=True)
        q = [0.05, 0.5, 0.95]
        latent = self.gp.predict_quantiles(self.new, q, kind="latent")
        assert latent.shape == (30, 3)
        np.testing.assert_allclose(latent, norm.ppf(q, mean[:, None], std[:, None]), rtol=1e-9)
        noisy = np.sqrt(std**2 + self.gp.noise_variance_ * self.gp.y_scale_**2)
        demand = self.gp.predict_quantiles(self.new, q)
        np.testing.assert_allclose(demand, norm.ppf(q, mean[:, None], noisy[:, None]), rtol=1e-9)
        np.testing.assert_allclose(self.gp.predict_quantiles(self.new, 0.95), demand[:, 2])

    def test_samples_have_the_posteriors_moments(self) -> None:
        mean, cov = self.gp.predict(self.new, return_cov=True)
        draws = self.gp.sample(self.new, size=4000, random_state=0)
        assert draws.shape == (4000, 30)
        sd = np.sqrt(np.diag(cov))
        np.testing.assert_allclose(draws.mean(axis=0), mean, atol=5 * sd.max() / np.sqrt(4000))
        np.testing.assert_allclose(np.cov(draws.T), cov, atol=0.1 * sd.max() ** 2)
        demand = self.gp.sample(self.new, size=4000, kind="demand", random_state=0)
        noise = self.gp.noise_variance_ * self.gp.y_scale_**2
        np.testing.assert_allclose(demand.var(axis=0), sd**2 + noise, rtol=0.12)

    def test_samples_follow_their_seed(self) -> None:
        one, same, other = (self.gp.sample(self.new, random_state=s) for s in (1, 1, 2))
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, other)

    def test_the_score_leaves_out_censored_rows_when_told(self) -> None:
        assert self.gp.score(X, Y, censored=CENSORED) > self.gp.score(X, Y)

    def test_the_evidence_method_agrees_with_the_attribute_and_its_gradient_vanishes_at_the_optimum(self) -> None:
        value, gradient = self.gp.log_marginal_likelihood(eval_gradient=True)
        assert value == pytest.approx(self.gp.log_marginal_likelihood_, abs=1e-7)
        assert np.abs(gradient).max() < 0.02
        lower = self.gp.log_marginal_likelihood(self.gp.theta_ + 0.3)
        assert lower < value


class TestSearch:
    def test_without_an_optimiser_everything_stays_as_given(self) -> None:
        kernel = SquaredExponential(0.7, 3.3) + Periodic(6.1, 0.2, 1.7)
        gp = CensoredGP(kernel, noise_variance=0.123, optimizer=None).fit(X, Y, censored=CENSORED)
        assert [leaf.value("variance") for leaf in gp.kernel_.leaves()] == [0.7, 0.2]
        assert [leaf.value("lengthscale") for leaf in gp.kernel_.leaves()] == [3.3, 1.7]
        assert gp.kernel_.leaves()[1].value("period") == 6.1
        assert gp.noise_variance_ == 0.123
        assert gp.converged_
        assert gp.kernel is kernel

    def test_fixed_hyper_parameters_do_not_move(self) -> None:
        kernel = SquaredExponential(lengthscale=Parameter(2.5, fixed=True))
        gp = CensoredGP(kernel, noise_variance=Parameter(0.05, fixed=True)).fit(X, Y, censored=CENSORED)
        assert gp.kernel_.leaves()[0].value("lengthscale") == 2.5
        assert gp.noise_variance_ == 0.05
        assert gp.theta_.size == 1

    def test_bounds_are_kept(self) -> None:
        kernel = SquaredExponential(lengthscale=Parameter(0.3, bounds=(0.2, 0.4)))
        gp = CensoredGP(kernel).fit(X, Y, censored=CENSORED)
        assert 0.2 * (1 - 1e-9) <= gp.kernel_.leaves()[0].value("lengthscale") <= 0.4 * (1 + 1e-9)

    def test_a_prior_pulls_a_hyper_parameter_towards_itself(self) -> None:
        free = CensoredGP().fit(X, Y).kernel_.leaves()[0].value("lengthscale")[0]
        prior = LogNormal(median=10 * free, sd=0.01)
        believed = CensoredGP(SquaredExponential(lengthscale=Parameter(prior=prior))).fit(X, Y)
        assert believed.kernel_.leaves()[0].value("lengthscale") == pytest.approx(10 * free, rel=0.1)
        # The evidence reported is the data's, without the prior.
        assert believed.log_marginal_likelihood_ == pytest.approx(believed.log_marginal_likelihood(), abs=1e-7)

    def test_adam_finds_what_lbfgs_finds(self) -> None:
        by = {o: CensoredGP(optimizer=o).fit(X, Y, censored=CENSORED) for o in ("lbfgs", "adam")}
        assert by["adam"].log_marginal_likelihood_ == pytest.approx(by["lbfgs"].log_marginal_likelihood_, abs=0.05)

    def test_restarts_follow_their_seed_and_never_make_it_worse(self) -> None:
        kernel = Matern(nu=1.5)
        alone = CensoredGP(kernel).fit(X, Y, censored=CENSORED)
        a, b = (CensoredGP(kernel, n_restarts=2, random_state=7).fit(X, Y, censored=CENSORED) for _ in range(2))
        assert a.optimum_ is not None
        assert a.optimum_.reached == b.optimum_.reached
        assert len(a.optimum_.reached) == 3
        np.testing.assert_array_equal(a.predict(X), b.predict(X))
        assert a.log_marginal_likelihood_ >= alone.log_marginal_likelihood_ - 1e-6

    def test_starts_all_over_the_place_reach_the_same_evidence(self) -> None:
        reached = [
            CensoredGP(SquaredExponential(v, ell), noise_variance=s)
            .fit(X, Y, censored=CENSORED)
            .log_marginal_likelihood_
            for v, ell, s in [(1.0, 1.0, 0.1), (10.0, 3.0, 0.01), (0.1, 0.5, 0.5)]
        ]
        assert np.ptp(reached) < 0.1

    def test_a_fit_that_does_not_converge_says_so_and_what_to_try(self) -> None:
        with pytest.warns(ConvergenceWarning, match=r"did not converge.*Try in turn: 1\..*2\..*3\."):
            gp = CensoredGP(SquaredExponential(0.01, 0.3), max_iter=1).fit(X, Y, censored=CENSORED)
        assert not gp.converged_
        assert np.isfinite(gp.predict(X)).all()

    @pytest.mark.parametrize("kernel", [SquaredExponential() + Periodic(6.28), Matern(nu=0.8) * Linear()])
    def test_lags_of_a_fixed_x_are_found_once_per_fit(self, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
        from unmet.kernels import pairs

        calls = []
        find = pairs._find_lags
        monkeypatch.setattr(pairs, "_find_lags", lambda X: calls.append(1) or find(X))
        gp = CensoredGP(kernel, max_iter=3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            gp.fit(X, Y, censored=CENSORED)
        assert gp.n_iter_ > 2
        assert len(calls) == 1

    def test_fitting_again_forgets_the_first_fit(self) -> None:
        gp = CensoredGP().fit(X[:20] * 3, Y[:20] + 9)
        fresh = CensoredGP().fit(X, Y, censored=CENSORED)
        np.testing.assert_array_equal(gp.fit(X, Y, censored=CENSORED).predict(X), fresh.predict(X))


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson", "negative-binomial"])
def test_learnt_parameters_are_kept_for_other_rows(likelihood: str) -> None:
    values = Y if likelihood == "gaussian" else np.rint(np.abs(Y))
    half = CensoredGP(likelihood=likelihood, inference="lowrank", n_features=300).fit(X[::2], values[::2])
    copy = half.with_learnt_parameters()
    assert not hasattr(copy, "kernel_")
    assert copy.get_params() == half.get_params() | {
        "kernel": half.kernel_,
        "optimizer": None,
        "noise_variance": getattr(half, "noise_variance_", None),
        "dispersion": getattr(half, "dispersion_", None),
    }
    whole = copy.fit(X, values)
    assert whole.ep_converged_
    assert whole.optimum_ is None
    np.testing.assert_array_equal(whole.theta_, half.theta_)
