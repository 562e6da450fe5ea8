"""Log-rates by the other groups of rows, against the same Gaussian conditioned on the other rows' sites."""

from __future__ import annotations

import numpy as np
import pytest

from unmet import CensoredGP
from unmet.estimators.left_out import left_out_log_rate
from unmet.kernels import Constant, SquaredExponential


def counts(n: int = 80) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 10, n))
    exposure = rng.uniform(0.2, 1.0, n)
    return x[:, None], rng.poisson(exposure * np.exp(1 + np.sin(x))).astype(float), exposure


KERNEL = SquaredExponential(0.5, 1.0) + Constant(1.0)


@pytest.mark.parametrize("inference", ["dense", "lowrank"])
def test_left_out_rates_equal_the_posterior_given_the_other_sites(inference: str) -> None:
    x, y, exposure = counts()
    rows, group = np.arange(5, 80), np.arange(80) // 11  # the first rows were not learnt from
    gp = CensoredGP(KERNEL, likelihood="poisson", optimizer=None, inference=inference)
    gp.fit(x[rows], y[rows], exposure=exposure[rows])
    mean, var, ahead = left_out_log_rate(gp, x, rows, group)
    sites, level = gp._inference.sites, gp._model.likelihood.log_level
    for one in np.unique(group):
        here, given = np.flatnonzero(group == one), np.flatnonzero(group[rows] != one)
        K = KERNEL(x[rows][given])
        across = KERNEL(x[here], x[rows][given])
        # f | sites ~ K(K + T⁻¹)⁻¹ (ν/τ), written without T⁻¹.
        weights = np.linalg.solve(np.eye(len(given)) + sites.tau[given][:, None] * K, sites.nu[given])
        np.testing.assert_allclose(mean[here], level + across @ weights, atol=2e-3)
        inner = np.linalg.solve(
            np.eye(len(given)) + sites.tau[given][:, None] * K, sites.tau[given][:, None] * across.T
        )
        expected = KERNEL(x[here]) - across @ inner
        np.testing.assert_allclose(var[here], np.diag(expected), atol=2e-3)
        np.testing.assert_allclose(ahead[here][:-1], np.diag(expected, 1), atol=2e-3)
        assert np.isnan(ahead[here][-1])


def test_left_out_rates_are_near_those_of_other_fits() -> None:
    x, y, exposure = counts()
    group = np.arange(80) // 8
    settings = {"likelihood": "poisson", "optimizer": None, "inference": "dense"}
    gp = CensoredGP(KERNEL, **settings).fit(x, y, exposure=exposure)
    mean, var, _ = left_out_log_rate(gp, x, np.arange(80), group)
    for one in np.unique(group):
        others = group != one
        again = CensoredGP(KERNEL, **settings).fit(x[others], y[others], exposure=exposure[others])
        middle, upper = np.log(again.predict_quantiles(x[~others], [0.5, 0.8413447], kind="latent")).T
        # The level about which a fit's rate varies depends on its rows, so the two priors differ slightly.
        assert np.abs(mean[~others] - middle).max() < 0.2 * np.sqrt(var[~others]).min() + 0.02
        np.testing.assert_allclose(np.sqrt(var[~others]), upper - middle, rtol=0.15)


def test_rows_that_no_fit_used_are_predicted_as_usual() -> None:
    x, y, exposure = counts()
    gp = CensoredGP(KERNEL, likelihood="poisson", optimizer=None).fit(x, y, exposure=exposure)
    ahead = np.linspace(11, 14, 7)[:, None]
    mean, *_ = left_out_log_rate(gp, np.vstack([x, ahead]), np.arange(80), np.append(np.arange(80), np.full(7, 99)))
    np.testing.assert_allclose(mean[80:], np.log(gp.predict_quantiles(ahead, [0.5], kind="latent")[:, 0]), rtol=1e-9)
