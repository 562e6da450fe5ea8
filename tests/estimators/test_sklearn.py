"""The estimators among scikit-learn's tools: its own checks, metadata routing, grids and pipelines."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from unmet import CensoredGP, TobitRegressor
from unmet.kernels import Matern, SquaredExponential


@parametrize_with_checks([CensoredGP(), TobitRegressor()])
def test_scikit_learns_own_checks(estimator, check) -> None:
    check(estimator)


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def capped_line(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, observed, labels and truth: a line cut at its upper third."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, size=(n, 1))
    truth = 2 * X[:, 0] + 1
    y = truth + rng.normal(scale=0.3, size=n)
    cap = 14.0
    return X, np.minimum(y, cap), y > cap, truth


ESTIMATORS = [CensoredGP(), TobitRegressor()]


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
class TestRouting:
    def test_cross_val_predict_hands_each_fold_its_labels(self, estimator) -> None:
        X, y, censored, truth = capped_line()
        folds = KFold(5, shuffle=True, random_state=0)
        told = cross_val_predict(
            clone(estimator).set_fit_request(censored=True), X, y, cv=folds, params={"censored": censored}
        )
        untold = cross_val_predict(clone(estimator).set_fit_request(censored=True), X, y, cv=folds)
        by_hand = np.empty_like(y)
        for train, test in folds.split(X):
            by_hand[test] = clone(estimator).fit(X[train], y[train], censored=censored[train]).predict(X[test])
        np.testing.assert_allclose(told, by_hand)
        assert np.mean((told - truth)[censored] ** 2) < 0.2 * np.mean((untold - truth)[censored] ** 2)

    def test_a_pipeline_passes_them_through(self, estimator) -> None:
        X, y, censored, _ = capped_line()
        pipeline = make_pipeline(StandardScaler(), clone(estimator).set_fit_request(censored=True))
        pipeline.fit(X, y, censored=censored)
        direct = clone(estimator).fit(StandardScaler().fit_transform(X), y, censored=censored)
        np.testing.assert_allclose(pipeline.predict(X), direct.predict(StandardScaler().fit_transform(X)))

    def test_scores_can_be_asked_for_exact_rows_only(self, estimator) -> None:
        X, y, censored, _ = capped_line()
        asked = clone(estimator).set_fit_request(censored=True).set_score_request(censored=True)
        scores = cross_val_score(asked, X, y, cv=3, params={"censored": censored})
        assert (scores > 0.95).all()


@pytest.mark.usefixtures("routing")
def test_grid_search_chooses_a_kernel_with_labels() -> None:
    X, y, censored, _ = capped_line(40)
    estimator = CensoredGP(max_iter=50).set_fit_request(censored=True).set_score_request(censored=True)
    kernels = [SquaredExponential(), Matern(nu=0.5)]
    search = GridSearchCV(make_pipeline(StandardScaler(), estimator), {"censoredgp__kernel": kernels}, cv=3)
    search.fit(X, y, censored=censored)
    assert search.best_params_["censoredgp__kernel"] == kernels[0]  # a line is smooth
    assert search.predict(X).shape == y.shape


def test_parameters_are_kept_as_given_and_cloned() -> None:
    kernel = Matern(nu=1.5)
    gp = CensoredGP(kernel, noise_variance=0.2, censoring="drop", n_restarts=2, random_state=3)
    assert gp.get_params()["kernel"] is kernel
    assert clone(gp).get_params() == gp.get_params()
