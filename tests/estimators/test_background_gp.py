"""`CensoredGP` on counts with a background: against MCMC, between engines, known truth, storage, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.special import ndtr
from sklearn.model_selection import cross_val_score

from oracles.ess import count_log_likelihood, elliptical_slice
from unmet import CensoredGP, InputError
from unmet.kernels import Constant, SquaredExponential

ENGINES = ["dense", "lowrank"]
KERNEL = SquaredExponential(1.0, 1.5) + Constant(0.5)


def problem(dispersion: float, n: int = 24, seed: int = 4) -> dict[str, np.ndarray]:
    """A rate that dips to 0.2 in places where up to three come from elsewhere."""
    rng = np.random.default_rng(seed)
    X = np.linspace(0, 10, n)[:, None]
    exposure = np.where(rng.random(n) < 0.4, rng.uniform(0.1, 1, n), 1.0)
    background = np.where(rng.random(n) < 0.7, rng.uniform(0, 3, n), 0.0)
    mu = exposure * np.exp(0.3 + 2 * np.sin(X[:, 0])) + background
    if dispersion:
        mu = mu * rng.gamma(1 / dispersion, dispersion, size=n)
    y = rng.poisson(mu).astype(float)
    return {"X": X, "y": y, "exposure": exposure, "background": background, "censored": (rng.random(n) < 0.3) & (y > 0)}


def quick(dispersion: float, **settings: Any) -> CensoredGP:
    """A model at given hyper-parameters."""
    name, own = ("poisson", None) if dispersion == 0 else ("negative-binomial", dispersion)
    given = {"kernel": KERNEL, "optimizer": None, "normalize_y": False, **settings}
    return CensoredGP(likelihood=name, dispersion=own, **given)  # type: ignore[arg-type]


def latent(gp: CensoredGP, X: Any) -> tuple[np.ndarray, np.ndarray]:
    median, upper = np.log(gp.predict_quantiles(X, [0.5, ndtr(1.0)], kind="latent")).T
    return median, upper - median


@pytest.mark.parametrize("cut", [False, True], ids=["exact", "censored"])
@pytest.mark.parametrize("dispersion", [0.0, 0.5], ids=["poisson", "negative binomial"])
def test_posteriors_agree_with_mcmc(dispersion: float, cut: bool) -> None:
    data = problem(dispersion)
    data["censored"] &= cut
    mcmc = elliptical_slice(
        KERNEL(data["X"]),
        count_log_likelihood(data["y"], data["censored"], data["exposure"], dispersion, data["background"]),
        chains=80,
        burn_in=200,
        steps=800,
        rng=np.random.default_rng(0),
    )
    assert (mcmc.mean_error < 0.06 * mcmc.sd).all()
    for engine in ENGINES:
        gp = quick(dispersion, inference=engine).fit(**data)
        mean, sd = latent(gp, data["X"])
        assert gp.converged_
        # EP's own error: tilted densities are skewed towards small rates where the background may explain the count.
        assert (np.abs(mean - mcmc.mean) < 4.5 * mcmc.mean_error + 0.02 * mcmc.sd).all()
        assert (np.abs(sd - mcmc.sd) < 4.5 * mcmc.sd_error + 0.02 * mcmc.sd).all()


@pytest.mark.parametrize("dispersion", [0.0, 0.3])
@pytest.mark.parametrize("engine", ENGINES)
def test_the_gradient_is_that_of_the_evidence_also_where_a_precision_is_negative(
    engine: str, dispersion: float
) -> None:
    data = problem(dispersion, n=40)
    data["y"][5] += 40  # far more than expected: own riders or walkers?
    data["background"][5] = 20.0
    gp = quick(dispersion, inference=engine).fit(**data)
    assert (gp._inference.sites.tau < 0).any()
    theta, step = gp.theta_ + 0.05, 1e-4
    _, gradient = gp.log_marginal_likelihood(theta, eval_gradient=True)
    numerical = [
        (gp.log_marginal_likelihood(theta + step * e) - gp.log_marginal_likelihood(theta - step * e)) / (2 * step)
        for e in np.eye(theta.size)
    ]
    np.testing.assert_allclose(gradient, numerical, rtol=1e-4, atol=1e-4)


def test_no_background_is_the_same_as_none() -> None:
    data = problem(0.0)
    data["background"] = np.zeros(len(data["y"]))
    without = {name: values for name, values in data.items() if name != "background"}
    a, b = quick(0.0).fit(**data), quick(0.0).fit(**without)  # both dense
    assert a.log_marginal_likelihood_ == b.log_marginal_likelihood_
    np.testing.assert_array_equal(a.predict(data["X"]), b.predict(data["X"]))


@pytest.mark.slow
def test_known_truth_is_unbiased_with_its_background_and_biased_without() -> None:
    rng = np.random.default_rng(1)
    X = np.linspace(0, 20, 1200)[:, None]
    truth = np.exp(0.5 + np.sin(X[:, 0]))
    background = np.where(np.sin(3 * X[:, 0]) > 0, 1.5, 0.0)
    y = rng.poisson(truth + background).astype(float)
    gp = CensoredGP(KERNEL, likelihood="poisson").fit(X, y, background=background)
    mean, sd = gp.predict(X, return_std=True)
    assert mean.mean() == pytest.approx(truth.mean(), rel=0.03)
    assert np.mean(np.abs(mean - truth) < 2 * sd) > 0.85
    ignored = CensoredGP(KERNEL, likelihood="poisson").fit(X, y).predict(X)
    assert ignored.mean() > 1.25 * truth.mean()
    assert gp.score(X, y, background=background) > gp.score(X, y) + 0.1


def test_a_saved_model_keeps_its_background(tmp_path: Path) -> None:
    data = problem(0.5)
    gp = quick(0.5).fit(**data)
    gp.save(tmp_path / "model")
    again = CensoredGP.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(data["X"]), gp.predict(data["X"]))
    assert again.log_marginal_likelihood_ == gp.log_marginal_likelihood_


def test_background_is_routed_through_cross_validation() -> None:
    data = problem(0.0, n=60)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = {"background": True, "exposure": True}
        gp = quick(0.0).set_fit_request(**routed).set_score_request(**routed)
        params = {"background": data["background"], "exposure": data["exposure"]}
        scores = cross_val_score(gp, data["X"], data["y"], cv=3, params=params)
    assert np.isfinite(scores).all()


def test_what_is_no_background_is_refused_by_name_and_index() -> None:
    data = problem(0.0)
    with pytest.raises(InputError, match="background needs a count likelihood"):
        CensoredGP().fit(data["X"], data["y"], background=data["background"])
    with pytest.raises(InputError, match="takes no background"):
        quick(0.0, censoring="share").fit(**{**data, "censored": None})
    with pytest.raises(InputError, match="background must have one value per row"):
        quick(0.0).fit(data["X"], data["y"], background=np.ones(3))
    frame = pd.DataFrame({"x": data["X"][:, 0]}, index=pd.Index(range(100, 124), name="bin"))
    with pytest.raises(InputError, match=r"index label 102"):
        quick(0.0).fit(frame, data["y"], background=np.where(np.arange(24) == 2, -1.0, 0.0))
    other = pd.Series(data["background"], index=frame.index[::-1])
    with pytest.raises(InputError, match="background has the rows of X in another order"):
        quick(0.0).fit(frame, data["y"], background=other)
