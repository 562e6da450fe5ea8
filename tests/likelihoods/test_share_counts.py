"""Shares of counts: against integration over the share, finite differences, and draws; and the whole fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from unmet import CensoredGP
from unmet._parameters import Parameter
from unmet.kernels import SquaredExponential
from unmet.likelihoods import NegativeBinomial, Observations, Poisson
from unmet.likelihoods.beta import Beta
from unmet.likelihoods.share_counts import SharedCounts

FREE = {"bounds": (1e-2, 1e3)}


def rows(y, short, exposure=1.0) -> Observations:
    y = np.atleast_1d(np.asarray(y, dtype=float))
    return Observations(y, y, np.full(y.shape, exposure), np.broadcast_to(np.asarray(short, float), y.shape).copy())


def log_mixture(y: float, alpha: float, beta: float, dispersion: float, exposure: float):
    """``log ∫ Beta(a) p(y | a exposure e^f) da`` by 4,000 cells of equal probability."""
    a = stats.beta.ppf((np.arange(4000) + 0.5) / 4000, alpha, beta)

    def log_likelihood(f):
        mu = np.multiply.outer(a, exposure * np.exp(f))
        if dispersion:
            p = stats.nbinom.logpmf(y, 1 / dispersion, 1 / (1 + dispersion * mu))
        else:
            p = stats.poisson.logpmf(y, mu)
        return special.logsumexp(p, axis=0) - np.log(4000)

    return log_likelihood


@pytest.mark.parametrize("dispersion", [0.0, 0.2])
@pytest.mark.parametrize(("y", "alpha", "beta", "exposure"), [(3, 1, 1, 1.0), (0, 2, 2, 0.5), (25, 5, 2, 1.0)])
def test_moments_are_those_of_the_integral_over_the_share(dispersion, y, alpha, beta, exposure) -> None:
    base = NegativeBinomial(dispersion) if dispersion else Poisson()
    got = SharedCounts(base, Beta(alpha, beta)).tilted(rows(y, 1.0, exposure), np.array([2.0]), np.array([0.5]))
    f = np.linspace(-3, 7, 601)
    log_p = log_mixture(y, alpha, beta, dispersion, exposure)(f) + stats.norm.logpdf(f, 2.0, np.sqrt(0.5))
    p = np.exp(log_p - log_p.max())
    mean = (p * f).sum() / p.sum()
    var = (p * (f - mean) ** 2).sum() / p.sum()
    log_z = log_p.max() + np.log(p.sum() * (f[1] - f[0]))
    assert got.log_z[0] == pytest.approx(log_z, abs=5e-3)
    assert 2.0 + 0.5 * got.d1[0] == pytest.approx(mean, abs=5e-3)
    assert 0.5 * got.shrink[0] == pytest.approx(var, rel=0.01)


def test_derivatives_are_those_of_the_evidence() -> None:
    at = SharedCounts(
        NegativeBinomial(Parameter(0.2, **FREE)),
        Beta(Parameter(2.0, **FREE), Parameter(1.5, **FREE)),
        Parameter(0.7, **FREE),
    )
    obs = rows([0, 3, 7, 12, 5, 2], [1, 1, 0, np.nan, 0.3, np.nan])
    mean, var, h = np.linspace(0.5, 2.5, 6), np.linspace(0.1, 1, 6), 1e-3
    got = at.tilted(obs, mean, var)
    up, down = (at.tilted(obs, mean + s * h, var).log_z for s in (1, -1))
    np.testing.assert_allclose(got.d1, (up - down) / (2 * h), rtol=1e-4, atol=1e-5)
    for i in range(4):
        step = h * np.eye(4)[i]
        up, down = (at.with_theta(at.theta + s * step).tilted(obs, mean, var).log_z for s in (1, -1))
        np.testing.assert_allclose(got.d_theta[:, i], (up - down) / (2 * h), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dispersion", [0.0, 0.3])
def test_what_was_lost_is_what_draws_say(dispersion: float) -> None:
    rng, n = np.random.default_rng(0), 2_000_000
    a, f = rng.beta(2, 2, n), rng.normal(2.0, np.sqrt(0.3), n)
    rate = np.exp(f) * (rng.gamma(1 / dispersion, dispersion, n) if dispersion else 1.0)
    seen, lost = rng.poisson(a * rate), rng.poisson((1 - a) * rate)
    base = NegativeBinomial(dispersion) if dispersion else Poisson()
    for y in (2, 6):
        at = seen == y
        got = SharedCounts(base, Beta(2, 2)).moments(rows(y, 1.0), np.array([2.0]), np.array([0.3]))
        assert got.share[0] == pytest.approx(a[at].mean(), abs=0.01)
        assert got.value[0] == pytest.approx(y + lost[at].mean(), rel=0.02)
        assert got.value_sd[0] == pytest.approx(lost[at].std(), rel=0.05)


@pytest.mark.parametrize("inference", ["dense", "lowrank"])
def test_the_share_of_counts_is_learnt_saved_and_loaded(inference: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X = np.linspace(0, 10, 150)[:, None]
    rate = np.exp(2.5 + 0.6 * np.sin(X[:, 0]))
    label = rng.random(150) < 0.4
    y = rng.poisson(rate * np.where(label, rng.beta(6, 6, 150), 1.0))
    kernel = SquaredExponential(0.3, 1.5)
    gp = CensoredGP(kernel, likelihood="poisson", censoring="share", inference=inference).fit(X, y, label)
    assert gp.converged_
    assert gp.share_.mean == pytest.approx(0.5, abs=0.08)
    ours, naive = (
        np.sqrt(np.mean((m.predict(X) - rate) ** 2))
        for m in (gp, CensoredGP(kernel, likelihood="poisson", censoring="ignore").fit(X, y))
    )
    assert ours < 0.5 * naive
    gp.save(tmp_path / "model")
    again = CensoredGP.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict(X), gp.predict(X), rtol=1e-6)
    found = gp.predict_share(X, y, label)
    assert (found["value"] >= y - 1e-9).all()
    assert found["value"][label].sum() == pytest.approx(rate[label].sum(), rel=0.1)
