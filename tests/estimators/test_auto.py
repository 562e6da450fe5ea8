"""``censoring="auto"``: what is taken, by which evidences, and where labels are believed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unmet import CensoredGP, InputError
from unmet.experiments._runner import generator
from unmet.experiments.synthetic import draw
from unmet.kernels import SquaredExponential

X = np.linspace(0, 10, 90)[:, None]
KERNEL = SquaredExponential(1.0, 1.0)


def data(seed: int = 0):
    rng = np.random.default_rng(seed)
    truth = 3 + np.sin(X[:, 0]) + 0.2 * rng.normal(size=90)
    return truth, rng.random(90) < 0.4, rng


def test_shares_that_vary_are_taken_for_shares() -> None:
    truth, label, rng = data()
    y = np.where(label, rng.beta(5, 5, 90) * truth, truth)
    gp = CensoredGP(KERNEL, censoring="auto").fit(X, y, label)
    assert gp.censoring_ == "share"
    assert gp.share_.mean == pytest.approx(0.5, abs=0.1)
    assert set(gp.log_evidence_) == {"ignore", "drop", "model", "share"}
    assert max(gp.log_evidence_, key=gp.log_evidence_.get) == "share"
    assert gp.log_evidence_["share"] == pytest.approx(gp.log_marginal_likelihood_)


def test_labels_that_mean_nothing_are_not_believed() -> None:
    truth, label, _ = data()
    gp = CensoredGP(KERNEL, censoring="auto").fit(X, truth, label)
    plain = CensoredGP(KERNEL, censoring="ignore").fit(X, truth)
    np.testing.assert_allclose(gp.predict(X), plain.predict(X), atol=0.03)


def test_values_that_have_nothing_to_do_with_the_truth_are_dropped() -> None:
    truth, label, rng = data()
    gp = CensoredGP(KERNEL, censoring="auto").fit(X, np.where(label, 40 + 0.1 * rng.normal(size=90), truth), label)
    assert gp.censoring_ == "drop"


def test_labels_are_believed_where_whole_stretches_are_labelled() -> None:
    """Stretches of the paper's synthetic data: nothing near them tells what was lost."""
    truth, _, rng = data()
    x = X[:, 0]
    truth = 2 + np.sin(2 * x) / 2 + x / 10 + 0.3 * rng.normal(size=90)
    label = np.sin(2 * x) >= 0
    gp = CensoredGP(KERNEL, censoring="auto").fit(X, truth * np.where(label, rng.uniform(0.7, 0.8, 90), 1), label)
    assert gp.censoring_ == "model"
    assert set(gp.log_evidence_) == {"model"}


@pytest.mark.parametrize("repetition", [20, 33, 94])
def test_labels_are_believed_also_where_exact_rows_alone_look_constant(repetition) -> None:
    """With hyper-parameters of their own, the exact rows of these draws are a constant and noise."""
    sample = draw(0.1, generator(0, "synthetic", repetition))
    x = sample.x[:, None]
    gp = CensoredGP(KERNEL, censoring="auto").fit(x, sample.observed.y, sample.observed.label)
    assert gp.censoring_ == "model"
    assert np.sqrt(np.mean((gp.predict(x) - sample.f) ** 2)) < 0.25  # 0.5 with "ignore", "drop" and "share"


def test_without_labels_nothing_is_censored_and_missing_ones_leave_two_models() -> None:
    truth, label, rng = data()
    assert CensoredGP(KERNEL, censoring="auto").fit(X, truth).censoring_ == "ignore"
    y = np.where(label, rng.beta(5, 5, 90) * truth, truth)
    gp = CensoredGP(KERNEL, censoring="auto").fit(X, y, np.full(90, np.nan))
    assert gp.censoring_ == "share"
    assert set(gp.log_evidence_) == {"ignore", "share"}
    assert gp.label_probability_[label].mean() > 0.8


def test_it_is_saved_as_what_it_has_become(tmp_path: Path) -> None:
    truth, label, rng = data()
    y = np.where(label, rng.beta(5, 5, 90) * truth, truth)
    gp = CensoredGP(KERNEL, censoring="auto").fit(X, y, label)
    gp.save(tmp_path / "model")
    again = CensoredGP.load(tmp_path / "model")
    assert (again.censoring, again.censoring_) == ("auto", "share")
    np.testing.assert_allclose(again.predict(X), gp.predict(X), rtol=1e-7)
    np.testing.assert_allclose(
        again.predict_share(X, y, label)["value"], gp.predict_share(X, y, label)["value"], rtol=1e-6
    )


def test_bounds_are_refused() -> None:
    with pytest.raises(InputError, match="reads labels, not bounds"):
        CensoredGP(censoring="auto").fit(X, X[:, 0], upper=X[:, 0])
