import numpy as np
import pytest

from unmet.censoring import censor_random
from unmet.estimators import CensoredGP
from unmet.experiments._fits import MODELS, RECOVERED, Cost, cross_validate, fit, recovered_rows, score_rows
from unmet.kernels import Periodic, SquaredExponential
from unmet.metrics import r2, rmse

x = np.linspace(0, 6, 40)
y = 5 + np.sin(x) + 0.1 * np.random.default_rng(3).normal(size=40)
X = x[:, None]
NONE = np.zeros(40, dtype=int)
FOLDS = np.array_split(np.arange(40), 4)


def test_with_no_label_set_all_models_predict_the_same():
    kernel = SquaredExponential() + Periodic(period=6.0)
    one = {m: fit(m, kernel, X, y, NONE, Cost()).predict(X, return_std=True) for m in MODELS}
    for model in ("ncgp-a", "cgp"):
        np.testing.assert_array_equal(one[model], one["ncgp"])
    np.testing.assert_allclose(one["share"], one["ncgp"], rtol=1e-9)


def test_hidden_values_of_labelled_rows_are_scored():
    rng = np.random.default_rng(0)
    data = censor_random(y, 0.4, 0.2, 0.6, rng)
    rmse = {}
    for model in MODELS:
        gp = fit(model, SquaredExponential(), X, data.y, data.label, Cost())
        rows = recovered_rows(gp, X, data.y, data.label, y, data.censored, model=model)
        assert {(r["subset"], r["metric"], r["model"]) for r in rows} == {
            (RECOVERED, "rmse", model),
            (RECOVERED, "coverage", model),
        }
        rmse[model], covered = (r["value"] for r in rows)
        assert covered == 0 if model == "ncgp" else covered > 0.8
    assert rmse["ncgp"] == np.sqrt(np.mean((data.y - y)[data.censored] ** 2))
    assert max(rmse["ncgp-a"], rmse["cgp"], rmse["share"]) < 0.5 * rmse["ncgp"]
    assert recovered_rows(gp, X, y, NONE, y, NONE == 1) == []


def test_with_labels_the_models_differ():
    data = censor_random(y, 0.4, 0.02, 0.1, np.random.default_rng(0))
    means = [fit(m, SquaredExponential(), X, data.y, data.label, Cost()).predict(X) for m in MODELS]
    assert np.abs(means[0] - means[1]).max() > 0.01
    assert np.abs(means[1] - means[2]).max() > 0.001


def test_held_out_rows_have_no_say_in_their_own_prediction():
    kernel = SquaredExponential(1.0, 1.0)
    before = cross_validate("cgp", kernel, X, y, NONE, FOLDS).mean
    changed = y.copy()
    changed[FOLDS[1]] += 100
    after = cross_validate("cgp", kernel, X, changed, NONE, FOLDS).mean
    np.testing.assert_array_equal(before[FOLDS[1]], after[FOLDS[1]])
    assert np.abs(before[FOLDS[0]] - after[FOLDS[0]]).max() > 1


def test_each_fold_is_predicted_by_a_fit_of_the_others():
    kernel = SquaredExponential(1.0, 1.0)
    held = cross_validate("ncgp", kernel, X, y, NONE, FOLDS)
    rest = np.setdiff1d(np.arange(40), FOLDS[2])
    gp = fit("ncgp", kernel, X[rest], y[rest], NONE[rest], Cost())
    np.testing.assert_array_equal(held.mean[FOLDS[2]], gp.predict(X[FOLDS[2]]))
    assert held.cost.fits == 4


def test_a_warm_start_costs_one_more_fit_and_ends_at_the_same_optimum_here():
    kernel = SquaredExponential(1.0, 1.0)
    cold, warm = (cross_validate("ncgp", kernel, X, y, NONE, FOLDS, warm_start=w) for w in (False, True))
    assert warm.cost.fits == 5
    np.testing.assert_allclose(warm.mean, cold.mean, atol=1e-2)


def test_a_fit_that_does_not_converge_is_counted():
    cost = Cost()
    fit("ncgp", SquaredExponential(1.0, 50.0), X, y, NONE, cost, max_iter=1)
    assert (cost.fits, cost.unconverged) == (1, 1)
    assert cost.seconds > 0


def test_scores_are_the_papers_on_all_censored_and_other_rows():
    censored = np.arange(40) < 10
    mean = y + 0.5 * censored
    rows = {(r["subset"], r["metric"]): r["value"] for r in score_rows(y, mean, censored, model="cgp")}
    assert rows["all", "rmse"] == rmse(y, mean) == pytest.approx(0.25)
    assert rows["censored", "rmse"] == pytest.approx(0.5)
    assert rows["non-censored", "rmse"] == 0
    assert rows["all", "r2"] == r2(y, mean)


def test_a_subset_without_rows_has_no_score():
    rows = score_rows(y, y, NONE.astype(bool))
    assert {r["subset"] for r in rows} == {"all", "non-censored"}


def test_of_several_starts_the_one_that_reaches_the_highest_evidence_is_kept():
    poor, good = SquaredExponential(1.0, 1e-3, columns=0), SquaredExponential(1.0, 1.0, columns=0)
    alone = [fit("ncgp", k, X, y, NONE, Cost()).log_marginal_likelihood_ for k in (poor, good)]
    assert alone[1] > alone[0] + 1, "the starts must end apart for this to be a test"
    for order in ([poor, good], [good, poor]):
        cost = Cost()
        assert fit("ncgp", order, X, y, NONE, cost).log_marginal_likelihood_ == alone[1]
        assert cost.fits == 1


def test_held_out_rows_can_be_predicted_with_other_inputs_from_the_same_fits():
    held = cross_validate("cgp", SquaredExponential(1.0, 1.0), X, y, NONE, FOLDS, X_otherwise=X[::-1])
    other = cross_validate("cgp", SquaredExponential(1.0, 1.0), X, y, NONE, FOLDS, X_otherwise=X)
    np.testing.assert_array_equal(other.mean_otherwise, other.mean)
    np.testing.assert_array_equal(held.mean, other.mean)
    assert np.abs(held.mean_otherwise - held.mean).max() > 0.1


def test_the_learnt_share_searches_once_from_the_best_start_of_rows_without_a_label(monkeypatch):
    poor, good = SquaredExponential(1.0, 1e-3, columns=0), SquaredExponential(1.0, 1.0, columns=0)
    data = censor_random(y, 0.4, 0.2, 0.6, np.random.default_rng(0))
    alone = [fit("share", k, X, data.y, data.label, Cost()).log_marginal_likelihood_ for k in (poor, good)]
    assert alone[1] > alone[0] + 1, "the starts must end apart for this to be a test"
    fitted = []
    whole = CensoredGP.fit
    monkeypatch.setattr(CensoredGP, "fit", lambda gp, *a, **k: fitted.append(gp.censoring) or whole(gp, *a, **k))
    for order in ([poor, good], [good, poor]):
        fitted.clear()
        cost = Cost()
        assert fit("share", order, X, data.y, data.label, cost).log_marginal_likelihood_ > alone[1] - 0.01
        assert fitted.count("share") == 1
        assert cost.fits == 1


def test_missing_labels_are_given_as_probabilities_where_known_ones_tell(monkeypatch):
    given = []
    whole = CensoredGP.fit
    monkeypatch.setattr(CensoredGP, "fit", lambda gp, *a, **k: given.append((gp.censoring, k)) or whole(gp, *a, **k))
    data = censor_random(y, 0.4, 0.2, 0.6, np.random.default_rng(0))
    half = np.where(np.arange(len(y)) % 2 == 0, np.nan, np.abs(data.label))
    gp = fit("share", SquaredExponential(), X, data.y, half, Cost())
    (short,) = (k["censored_probability"] for censoring, k in given if censoring == "share")
    np.testing.assert_array_equal(short[1::2], half[1::2])
    assert ((short[::2] > 0) & (short[::2] < 1)).all()
    # Rows of the fit are recognised: what is not recognised counts twice, and its own sites are not taken out.
    (found,) = (r["value"] for r in recovered_rows(gp, X, data.y, half, y, data.censored) if r["metric"] == "rmse")
    value = gp.predict_share(X, data.y, censored_probability=short)["value"]
    assert found == pytest.approx(rmse(y, value.to_numpy(), where=data.censored))
    for of_one_kind in (np.where(half == 1, np.nan, half), np.full(len(y), np.nan)):
        given.clear()
        fit("share", SquaredExponential(), X, data.y, of_one_kind, Cost(), max_iter=2)
        assert [list(k) for _, k in given] == [["censored"]]
