"""`CensoredGP(censoring="share")`: labels that mislead, are missing or are probabilities."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.utils.estimator_checks import parametrize_with_checks

from oracles.shares import gibbs_shares
from unmet import CensoredGP, InputError, UninformativeWarning
from unmet.estimators import _model
from unmet.evidence import maximise
from unmet.inference import dense
from unmet.kernels import Constant, Parameter, SquaredExponential
from unmet.likelihoods import Beta, Gaussian, Observations
from unmet.likelihoods.share import SharedGaussian

SHARES = {"near 0": (0.5, 20.0), "near 1": (20.0, 0.5), "spread": (1.0, 1.0), "bimodal": (0.2, 0.2)}


def labelled(n=80, share=(4.0, 4.0), fraction=0.4, noise=0.05, seed=0, level=3.0):
    """Inputs, truth, what was seen and labels."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0, 10, n))[:, None]
    truth = level + np.sin(X[:, 0]) + np.sqrt(noise) * rng.normal(size=n)
    label = rng.random(n) < fraction
    return X, truth, np.where(label, rng.beta(*share, n) * truth, truth), label


@parametrize_with_checks([CensoredGP(censoring="share")])
def test_scikit_learns_own_checks(estimator, check) -> None:
    check(estimator)


@pytest.mark.parametrize(("level", "side"), [(3.0, 1), (-3.0, -1)])
def test_the_share_is_learnt_and_the_truth_recovered(level: float, side: int) -> None:
    X, truth, y, label = labelled(level=level, share=(8.0, 8.0))
    gp = CensoredGP(censoring="share").fit(X, y, censored=label * side)
    assert gp.converged_
    assert gp.share_.mean == pytest.approx(0.5, abs=0.06)
    assert gp.share_.mean == pytest.approx(gp.share_.alpha / (gp.share_.alpha + gp.share_.beta))
    assert gp.share_.sd == pytest.approx(0.12, abs=0.04)
    rmse = np.sqrt(np.mean((gp.predict(X) - level - np.sin(X[:, 0])) ** 2))
    assert rmse < 0.12
    found = gp.predict_share(X, y, label)
    assert (found["share"][~label] == 1).all()
    np.testing.assert_allclose(found["value"][~label], y[~label])
    z = (found["value"] - truth)[label] / found["value_sd"][label]
    assert np.abs(z).max() < 4
    assert np.mean(np.abs(z) < 1.645) > 0.75


def test_labelled_zeros_are_bounds_unless_some_value_is_negative(tmp_path: Path) -> None:
    X = np.arange(12.0)[:, None]
    y = np.array([6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0, 0, 0, 0, 0, 0])
    label = np.arange(12) >= 6
    settings = {"optimizer": None, "noise_variance": 0.01, "normalize_y": False, "share": Beta(0.01, 10)}
    gps = [CensoredGP(SquaredExponential(9.0, 4.0), censoring=c, **settings) for c in ("drop", "model", "share")]
    drop, model, share = (gp.fit(X, y, label).predict(X[label]) for gp in gps)
    assert drop.min() < -0.3
    np.testing.assert_allclose(share, model, atol=0.05)
    gps[2].save(tmp_path / "gp")
    np.testing.assert_array_equal(CensoredGP.load(tmp_path / "gp").predict(X[label]), share)
    assert (gps[2].predict_share(X, y, label)["value"] > 0).sum() == 12
    X, y, label = np.append(X, [[99.0]], axis=0), np.append(y, -5.0), np.append(label, False)
    np.testing.assert_allclose(gps[2].fit(X, y, label).predict(X[label]), drop, atol=0.1)


def test_rows_of_the_fit_are_not_counted_twice() -> None:
    X, _, y, label = labelled(n=25)
    gp = CensoredGP(censoring="share").fit(X, y, label)
    i = int(np.flatnonzero(label)[3])
    rest = np.arange(25) != i
    scale = gp.y_scale_**2
    kernel = SquaredExponential(
        gp.kernel_.leaves()[0].parameters["variance"].array[0] * scale,
        gp.kernel_.leaves()[0].parameters["lengthscale"].array[0],
    )
    without = CensoredGP(
        kernel + Constant(scale),
        censoring="share",
        optimizer=None,
        normalize_y=False,
        noise_variance=gp.noise_variance_ * scale,
        share=Beta(gp.share_.alpha, gp.share_.beta),
    )
    same = CensoredGP(**{**without.get_params(), "kernel": kernel + Constant(scale)})
    without.fit(X[rest], y[rest], label[rest])
    same.fit(X, y, label)
    ours = same.predict_share(X[[i]], y[[i]], label[[i]])
    left_out = without.predict_share(X[[i]], y[[i]], label[[i]])
    np.testing.assert_allclose(ours[["share", "value"]], left_out[["share", "value"]], rtol=0.01)


@pytest.mark.parametrize("inference", ["dense", "lowrank"])
def test_the_gradient_is_that_of_the_evidence(inference: str) -> None:
    X, _, y, label = labelled(n=40)
    unknown = np.where(np.arange(40) % 3 == 0, np.nan, label.astype(float))
    gp = CensoredGP(SquaredExponential(1.0, 1.5), censoring="share", inference=inference, n_features=60, max_iter=3)
    with pytest.warns(sklearn.exceptions.ConvergenceWarning):
        gp.fit(X, y, unknown)
    value, gradient = gp.log_marginal_likelihood(gp.theta_, eval_gradient=True)
    assert np.isfinite(value)
    for i in range(gp.theta_.size):
        step = 1e-4 * np.eye(gp.theta_.size)[i]
        up, down = (gp.log_marginal_likelihood(gp.theta_ + s * step) for s in (1, -1))
        assert gradient[i] == pytest.approx((up - down) / 2e-4, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    ("share", "level", "noise", "seed"),
    [((1.0, 1.0), 0.0, 0.05, 1), ((0.4, 0.4), 2.0, 0.05, 2), ((6.0, 2.0), 2.0, 0.2, 3)],
)
def test_the_posterior_is_that_of_mcmc_which_samples_the_shares_too(share, level, noise, seed) -> None:
    n, rounding = 16, 0.02
    X, _, y, label = labelled(n=n, share=share, fraction=0.5, noise=noise, seed=seed, level=level)
    kernel = (SquaredExponential(1.0, 1.5) + Constant(1.0 + level**2)).resolved(None, 1)
    short = np.where(label, 1.0, 0.0)
    short[np.flatnonzero(label)[0]] = 0.5  # one label that is only likely
    oracle, _ = gibbs_shares(kernel(X), y, short, noise, *share, rounding, seed=0, chains=40, burn_in=30, sweeps=60)
    likelihood = SharedGaussian(Gaussian(noise), Beta(*share), Parameter(1.0, fixed=True), rounding=rounding)
    obs = Observations(y, y, short=short)
    result = dense.infer(kernel, likelihood, dense.prepare(X, obs, likelihood))
    mean, var = result.posterior.marginals(X)
    assert result.info.converged
    assert (np.abs(mean - oracle.mean) < 0.1 * oracle.sd + 4 * oracle.mean_error).all()
    assert (np.abs(np.sqrt(var) - oracle.sd) < 0.12 * oracle.sd + 4 * oracle.sd_error).all()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_evidence_is_that_of_brute_force(n: int) -> None:
    X = np.linspace(0, 1, 3)[:n, None]
    y, share, noise, rounding = np.array([1.0, 1.8, 2.4])[:n], (2.0, 1.5), 0.1, 0.1
    kernel = (SquaredExponential(0.5, 1.0) + Constant(4.0)).resolved(None, 1)
    obs = Observations(y, y, short=np.ones(n))
    likelihood = SharedGaussian(Gaussian(noise), Beta(*share), Parameter(1.0, fixed=True), rounding=rounding)
    got = dense.infer(kernel, likelihood, dense.prepare(X, obs, likelihood)).log_z
    from scipy import stats

    edges = np.linspace(0, 1, 101)
    mass, nodes = np.diff(stats.beta.cdf(edges, *share)), 0.5 * (edges[1:] + edges[:-1])
    total = 0.0
    K = kernel(X) + noise * np.eye(n)
    if n == 3:
        mass, nodes = mass.reshape(50, 2).sum(axis=1), nodes.reshape(50, 2).mean(axis=1)
    grid = np.stack(np.meshgrid(*[nodes] * n, indexing="ij"), axis=-1).reshape(-1, n)
    weight = np.prod(np.stack(np.meshgrid(*[mass] * n, indexing="ij"), axis=-1).reshape(-1, n), axis=1)
    C = grid[:, :, None] * K * grid[:, None, :] + rounding**2 * np.eye(n)
    quad = np.einsum("i,cij,j->c", y, np.linalg.inv(C), y)
    density = np.exp(-0.5 * (quad + np.linalg.slogdet(C)[1] + n * np.log(2 * np.pi)))
    total = float(weight @ density)
    assert got == pytest.approx(np.log(total), abs=0.005 if n == 1 else 0.05)


def stress(n: int, noises) -> list[str]:
    """Settings in which EP does not converge."""
    failed = []
    for level, fraction, (kind, share), noise, wrong in product(
        (0.0, 3.0), (0.1, 0.5, 0.9), SHARES.items(), noises, (False, True)
    ):
        rng = np.random.default_rng(0)
        X = np.sort(rng.uniform(0, 10, n))[:, None]
        kernel = SquaredExponential(1.0, 1.0).resolved(None, 1)
        f = level + np.linalg.cholesky(kernel(X) + 1e-8 * np.eye(n)) @ rng.normal(size=n)
        label = rng.random(n) < fraction
        y = (f + np.sqrt(noise) * rng.normal(size=n)) * np.where(label, rng.beta(*share, n), 1.0) - level
        likelihood = SharedGaussian(
            Gaussian(noise), Beta(1, 1) if wrong else Beta(*share), Parameter(1.0, fixed=True), zero=-level
        )
        obs = Observations(y, y, short=label.astype(float))
        result = dense.infer(kernel, likelihood, dense.prepare(X, obs, likelihood), gradient=False)
        if not result.info.converged:
            failed.append(f"{n} {level} {fraction} {kind} {noise} {wrong}: {result.info}")
    return failed


def test_ep_converges_on_hard_mixtures() -> None:
    assert not stress(40, (1e-3, 0.1, 10.0))


@pytest.mark.slow
@pytest.mark.parametrize("n", [200, 1000])
def test_ep_converges_on_hard_mixtures_of_many_rows(n: int) -> None:
    assert not stress(n, (1e-3, 0.1, 10.0))


def test_the_search_starts_with_the_kernel_of_the_rows_without_a_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a kernel far off, the share would be learnt to suit it."""
    X, _, y, label = labelled(share=(2.0, 8.0))
    far = SquaredExponential(1.0, 40.0)
    begun = []

    def recording(objective, starts, *args, **settings):
        begun.append(starts[0])
        return maximise(objective, starts, *args, **settings)

    monkeypatch.setattr(_model, "maximise", recording)
    gp = CensoredGP(far, censoring="share").fit(X, y, label)
    exact = CensoredGP(far, censoring="drop").fit(X, y, label)
    assert len(begun) == 3  # exact rows, all rows; the other model
    np.testing.assert_allclose(begun[1][:3], exact.theta_, atol=0.05)
    assert gp.share_.mean == pytest.approx(0.2, abs=0.06)


class TestUnknownLabels:
    @pytest.mark.parametrize("missing", [np.nan, None, pd.NA])
    def test_a_label_may_be_missing(self, missing) -> None:
        X, _, y, label = labelled(share=(4.0, 6.0))
        known = [missing if i % 2 else bool(value) for i, value in enumerate(label)]
        gp = CensoredGP(censoring="share").fit(X, y, known)
        assert gp.share_.mean == pytest.approx(0.4, abs=0.1)
        unknown = np.arange(len(y)) % 2 == 1
        p = gp.label_probability_
        np.testing.assert_array_equal(p[~unknown], label[~unknown].astype(float))
        assert p[unknown & label].mean() > 0.8
        assert p[unknown & ~label].mean() < 0.2

    def test_all_labels_may_be_missing(self) -> None:
        X, _, y, label = labelled(share=(4.0, 6.0), fraction=0.3)
        gp = CensoredGP(censoring="share").fit(X, y, np.full(len(y), np.nan))
        naive = CensoredGP(censoring="ignore").fit(X, y)
        error, naive_error = (np.sqrt(np.mean((m.predict(X) - 3 - np.sin(X[:, 0])) ** 2)) for m in (gp, naive))
        assert error < 0.4 * naive_error
        assert gp.label_probability_[label].mean() > 0.8

    def test_noise_that_grows_with_the_level_is_not_taken_for_shares(self) -> None:
        """That most rows are short of a higher level would explain it too: with free odds the error is three times."""
        rng = np.random.default_rng(0)
        X = np.sort(rng.uniform(0, 10, 80))[:, None]
        f = 5 * np.exp(0.8 * np.sin(X[:, 0]))
        y = np.where(rng.random(80) < 1 / 3, 0.7, 1.0) * f * rng.gamma(20, 1 / 20, 80)
        gp = CensoredGP(censoring="share").fit(X, y, np.full(80, np.nan))
        naive = CensoredGP(censoring="ignore").fit(X, y)
        error, naive_error = (np.sqrt(np.mean((m.predict(X) - f) ** 2)) for m in (gp, naive))
        assert error < 0.8 * naive_error
        assert gp.label_odds_ == pytest.approx(0.5, rel=0.1)

    def test_without_any_label_the_better_of_two_searches_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One begins at the kernel given, one at the kernel of all rows, as if none were short."""
        X, _, y, label = labelled(share=(4.0, 6.0), fraction=0.3)
        kernel = SquaredExponential(1.0, 1.0)
        begun = []

        def recording(objective, starts, *args, **settings):
            begun.append(starts)
            return maximise(objective, starts, *args, **settings)

        monkeypatch.setattr(_model, "maximise", recording)
        gp = CensoredGP(kernel, censoring="share").fit(X, y, np.full(len(y), np.nan))
        naive = CensoredGP(kernel, censoring="ignore").fit(X, y)
        (first, second) = sorted(begun[1], key=lambda start: np.abs(start[:3] - naive.theta_).max())
        np.testing.assert_allclose(first[:3], naive.theta_, atol=0.05)
        np.testing.assert_allclose(second[:2], kernel.theta)
        assert gp.optimum_.value == max(gp.optimum_.reached)
        begun.clear()
        CensoredGP(kernel, censoring="share").fit(X, y, np.where(np.arange(len(y)) % 2 == 0, np.nan, label))
        assert [len(starts) for starts in begun] == [1]

    @pytest.mark.parametrize("given", ["missing", "probability"])
    def test_with_some_labels_missing_the_search_starts_from_the_kernel_as_given(self, given: str, monkeypatch) -> None:
        """The few rows known to be exact teach a kernel that is a worse start."""
        X, _, y, label = labelled(n=60, share=(4.0, 6.0), fraction=0.3)
        kernel = SquaredExponential(1.0, 1.0)
        begun = []

        def recording(objective, starts, *args, **settings):
            begun.append(starts)
            return maximise(objective, starts, *args, **settings)

        monkeypatch.setattr(_model, "maximise", recording)
        gp, unknown = CensoredGP(kernel, censoring="share", normalize_y=False), np.arange(60) % 2 == 0
        if given == "missing":
            gp.fit(X, y, np.where(unknown, np.nan, label))
        else:
            gp.fit(X, y, censored_probability=np.where(unknown, 0.3, label))
        ((start,),) = begun
        np.testing.assert_allclose(start[:2], kernel.theta)
        begun.clear()
        gp.fit(X, y, label)
        assert len(begun) == 2  # where all labels are known, exact rows teach first

    def test_a_probability_is_used_as_it_is(self) -> None:
        X, _, y, label = labelled()
        sure = CensoredGP(censoring="share", optimizer=None).fit(X, y, censored_probability=label.astype(float))
        same = CensoredGP(censoring="share", optimizer=None).fit(X, y, label)
        np.testing.assert_allclose(sure.predict(X), same.predict(X))
        doubtful = CensoredGP(censoring="share").fit(X, y, censored_probability=np.where(label, 0.6, 0.05))
        assert doubtful.label_probability_[label].mean() > 0.8
        with pytest.raises(InputError, match=r"between 0 and 1; row 0 is 2\.0"):
            CensoredGP(censoring="share").fit(X, y, censored_probability=np.full(len(y), 2.0))
        with pytest.raises(InputError, match="not both"):
            CensoredGP(censoring="share").fit(X, y, label, censored_probability=label.astype(float))

    def test_learnt_odds_are_carried_to_other_rows_and_to_files(self, tmp_path: Path) -> None:
        X, _, y, label = labelled(n=60, share=(4.0, 6.0), fraction=0.3)
        unknown = np.where(np.arange(60) % 2 == 0, np.nan, label)
        gp = CensoredGP(censoring="share", max_iter=20).fit(X, y, unknown)
        again = gp.with_learnt_parameters()
        assert again.label_odds == pytest.approx(gp.label_odds_)
        again.fit(X, y, unknown)
        np.testing.assert_allclose(again.label_probability_, gp.label_probability_, atol=1e-6)
        again.save(tmp_path / "model.unmet")
        loaded = CensoredGP.load(tmp_path / "model.unmet")
        assert loaded.label_odds == again.label_odds
        np.testing.assert_allclose(loaded.label_probability_, again.label_probability_, atol=1e-6)

    def test_known_labels_are_the_prior_of_the_odds_of_missing_ones(self) -> None:
        """In this noise a value hardly tells whether its row is short: odds 0.42 with a prior about one."""
        X, _, y, label = labelled(share=(14.0, 6.0), fraction=0.25, noise=1.0, level=4.0, seed=3)
        unknown = np.where(np.arange(80) % 2 == 0, np.nan, label)
        odds = label[1::2].sum() / (~label[1::2]).sum()
        gp = CensoredGP(censoring="share").fit(X, y, unknown)
        assert gp.label_odds_ == pytest.approx(odds, rel=0.1)

    def test_labels_of_one_kind_say_nothing_of_missing_ones(self) -> None:
        X, _, y, label = labelled(share=(4.0, 6.0), fraction=0.3)
        only_short = np.where(label & (np.arange(80) % 2 == 0), 1.0, np.nan)
        gp = CensoredGP(censoring="share").fit(X, y, only_short)
        assert gp.label_probability_[~label].mean() < 0.2

    def test_odds_given_as_a_number_are_held(self) -> None:
        X, _, y, label = labelled(n=40, share=(4.0, 6.0), fraction=0.3)
        unknown = np.where(np.arange(40) % 2 == 0, np.nan, label)
        gp = CensoredGP(censoring="share", label_odds=0.25, max_iter=5)
        with pytest.warns(sklearn.exceptions.ConvergenceWarning):
            gp.fit(X, y, unknown)
        assert gp.label_odds_ == 0.25
        with pytest.raises(InputError, match="label_odds"):
            CensoredGP(censoring="share", label_odds=-1.0).fit(X, y, unknown)

    def test_other_models_refuse_it(self) -> None:
        X, _, y, _label = labelled(n=20)
        with pytest.raises(InputError, match="needs censoring='share'"):
            CensoredGP().fit(X, y, censored_probability=np.zeros(20))
        with pytest.raises(InputError, match="True/False"):
            CensoredGP().fit(X, y, np.full(20, np.nan))
        with pytest.raises(InputError, match="labels, not bounds"):
            CensoredGP(censoring="share").fit(X, y, upper=y)


def test_a_saved_model_is_the_same(tmp_path: Path) -> None:
    X, _, y, label = labelled()
    unknown = np.where(np.arange(len(y)) % 4 == 0, np.nan, label.astype(float))
    gp = CensoredGP(censoring="share", share=Beta(2, Parameter(1.0))).fit(X, y, unknown)
    gp.save(tmp_path / "model")
    again = CensoredGP.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict(X), gp.predict(X), rtol=1e-7)
    assert again.share_ == gp.share_
    assert again.share == gp.share
    assert again.share_.alpha == 2
    np.testing.assert_allclose(again.label_probability_, gp.label_probability_, atol=1e-6)
    pd.testing.assert_frame_equal(again.predict_share(X, y, unknown), gp.predict_share(X, y, unknown), rtol=1e-5)


def test_folds_get_their_labels_by_metadata_routing() -> None:
    X, _, y, label = labelled(n=50)
    folds = KFold(3, shuffle=True, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        gp = CensoredGP(censoring="share", optimizer=None).set_fit_request(censored=True)
        told = cross_val_predict(gp, X, y, cv=folds, params={"censored": label})
    train, test = next(folds.split(X))
    by_hand = CensoredGP(censoring="share", optimizer=None).fit(X[train], y[train], label[train]).predict(X[test])
    np.testing.assert_allclose(told[test], by_hand)


def test_all_rows_labelled_is_said_to_be_not_identified() -> None:
    X, _, y, _label = labelled(n=30)
    with pytest.warns(UninformativeWarning, match="nothing tells the share from the level"):
        CensoredGP(censoring="share", optimizer=None).fit(X, y, np.ones(30))
    CensoredGP(censoring="share", optimizer=None, share=Beta(1, 1)).fit(X, y, np.ones(30))


def test_a_search_never_ends_where_ep_did_not_converge(monkeypatch: pytest.MonkeyPatch) -> None:

    from unmet.estimators import _model

    X, _, y, label = labelled(n=30)
    honest = CensoredGP(censoring="share").fit(X, y, label)
    edge = float(honest.theta_[1]) - 0.3  # EP "fails", with a splendid evidence, beyond this length-scale
    infer = _model.dense.infer

    def failing(kernel, likelihood, problem, start=None, **settings):
        result = infer(kernel, likelihood, problem, start, **settings)
        if np.log(kernel.leaves()[0].parameters["lengthscale"].array[0]) <= edge:
            return result
        return replace(result, log_z=1e6, info=replace(result.info, converged=False))

    monkeypatch.setattr(_model.dense, "infer", failing)
    gp = CensoredGP(SquaredExponential(1.0, 0.5) + Constant(1.0), censoring="share").fit(X, y, label)
    assert np.log(gp.kernel_.leaves()[0].parameters["lengthscale"].array[0]) <= edge
    assert gp.optimum_.value < 1e5
