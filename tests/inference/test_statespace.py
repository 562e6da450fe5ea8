"""The state-space engine against the same Gaussian process as one matrix; EP on it against MCMC; draws; cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oracles.ess import count_log_likelihood, elliptical_slice
from unmet import NumericalError
from unmet.inference.ep import Sites, expectation_propagation
from unmet.inference.statespace import StateSpace
from unmet.likelihoods.base import Observations
from unmet.likelihoods.counts import Poisson


def problem(
    seed: int = 0, places: int = 4, steps: int = 9, m: int = 3, *, own: bool = False
) -> tuple[StateSpace, np.ndarray]:
    """A ragged record in which one step has no row, and the prior covariance of its rows."""
    rng = np.random.default_rng(seed)
    phi, decay = rng.normal(size=(places, m)), rng.uniform(0.0, 0.95, m)
    seen = rng.random((steps, places)) < 0.67
    seen[3] = False
    step, place = np.nonzero(seen)
    space = StateSpace(phi, decay, step, place, rng.normal(size=len(step)), steps)
    lag = np.abs(np.subtract.outer(step, step))
    K = sum(np.multiply.outer(phi[place, k], phi[place, k]) * decay[k] ** lag for k in range(m))
    if own:
        variances = rng.uniform(0.0, 1.0, len(step))
        space, K = replace(space, own=variances), K + np.diag(variances)
    return space, np.asarray(K)


@pytest.mark.parametrize("own", [False, True], ids=["components alone", "own variances"])
@pytest.mark.parametrize("negative", [False, True], ids=["positive", "some negative precisions"])
def test_marginals_and_normaliser_equal_those_of_one_matrix(negative: bool, own: bool) -> None:
    space, K = problem(own=own)
    rng = np.random.default_rng(1)
    n = len(K)
    tau, nu = rng.uniform(0.2, 3, n), rng.normal(size=n)
    if negative:
        tau[::5] = -0.02
    got = space.marginals(Sites(tau, nu))
    # Rows outnumber components, so K is singular: N(μ, K) times sites by way of (I + K T)⁻¹.
    inner = np.linalg.inv(np.eye(n) + K * tau)
    mean = space.offset + inner @ K @ (nu - tau * space.offset)
    np.testing.assert_allclose(got.mean, mean, atol=1e-9)
    np.testing.assert_allclose(got.var, np.diag(inner @ K), rtol=1e-8, atol=1e-10)
    pull = nu - tau * space.offset
    _, log_det = np.linalg.slogdet(np.eye(n) + K * tau)
    log_z = -0.5 * log_det + 0.5 * pull @ inner @ K @ pull + space.offset @ (nu - 0.5 * tau * space.offset)
    assert got.log_normaliser == pytest.approx(log_z, rel=1e-9)


def test_everywhere_contains_the_rows_and_the_prior_far_from_them() -> None:
    space, K = problem()
    posterior = space.marginals(Sites(np.full(len(K), 2.0), np.ones(len(K))))
    mean, var = posterior.everywhere, posterior.spread
    np.testing.assert_allclose(mean[space.place, space.step] + space.offset, posterior.mean, atol=1e-10)
    np.testing.assert_allclose(var[space.place, space.step], posterior.var, atol=1e-10)
    silent = space.marginals(Sites(np.zeros(len(K)), np.zeros(len(K))))
    np.testing.assert_allclose(
        silent.spread, np.repeat(np.sum(space.features**2, axis=1)[:, None], space.steps, axis=1)
    )


def test_covariances_of_places_equal_those_of_one_matrix() -> None:
    space, K = problem()
    rng = np.random.default_rng(6)
    tau, nu = rng.uniform(0.2, 3, len(K)), rng.normal(size=len(K))
    posterior = space.marginals(Sites(tau, nu))
    whole = np.linalg.inv(np.eye(len(K)) + K * tau) @ K
    first, second = np.nonzero(np.equal.outer(space.step, space.step))
    order = rng.permutation(len(first))
    first, second = first[order], second[order]
    got = space.covariance(posterior, space.place[first], space.place[second], space.step[first])
    np.testing.assert_allclose(got, whole[first, second], atol=1e-10)


def test_draws_have_the_posterior_mean_and_covariance_across_places_and_steps() -> None:
    space, K = problem()
    rng = np.random.default_rng(2)
    tau, nu = rng.uniform(0.2, 3, len(K)), rng.normal(size=len(K))
    posterior = space.marginals(Sites(tau, nu))
    z = space.sample(posterior, 20_000, np.random.default_rng(3))
    f = np.einsum("rsm,rm->sr", z[space.step], space.features[space.place]) + space.offset
    inner = np.linalg.inv(np.eye(len(K)) + K * tau)
    np.testing.assert_allclose(f.mean(axis=0), posterior.mean, atol=5 * np.sqrt(posterior.var / 20_000).max())
    np.testing.assert_allclose(np.cov(f.T), inner @ K, atol=0.06)


def test_ep_agrees_with_mcmc() -> None:
    space, K = problem(seed=5, places=3, steps=8)
    rng = np.random.default_rng(4)
    f = rng.multivariate_normal(space.offset, K, method="eigh")
    y = rng.poisson(np.exp(f)).astype(float)
    exact = count_log_likelihood(y, np.zeros(len(y), dtype=bool), np.ones(len(y)), 0.0)
    mcmc = elliptical_slice(
        K, lambda h: exact(h + space.offset), chains=80, burn_in=300, steps=1500, rng=np.random.default_rng(0)
    )
    ep = expectation_propagation(space, Poisson(), Observations(y, y))
    assert ep.converged
    assert (np.abs(ep.posterior.mean - space.offset - mcmc.mean) < 4.5 * mcmc.mean_error + 0.02 * mcmc.sd).all()
    assert (np.abs(np.sqrt(ep.posterior.var) - mcmc.sd) < 4.5 * mcmc.sd_error + 0.02 * mcmc.sd).all()


@pytest.mark.parametrize("own", [False, True], ids=["components alone", "own variances"])
def test_gradients_equal_finite_differences(own: bool) -> None:
    space, K = problem(own=own)
    rng = np.random.default_rng(7)
    tau, nu = rng.uniform(0.2, 3, len(K)), rng.normal(size=len(K))
    tau[::5] = -0.02
    sites = Sites(tau, nu)
    got = space.gradient(sites)
    assert got.log_normaliser == space.marginals(sites).log_normaliser
    for name in ("features", "decay", "offset"):
        values = getattr(space, name)
        for at in np.ndindex(values.shape):
            step = np.zeros(values.shape)
            step[at] = 1e-5
            up, down = (
                replace(space, **{name: values + sign * step}).marginals(sites).log_normaliser for sign in (1, -1)
            )
            assert getattr(got, name)[at] == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-7), (name, at)


@pytest.mark.parametrize("own", [False, True], ids=["components alone", "own variances"])
def test_precisions_too_negative_for_a_posterior_are_refused(own: bool) -> None:
    space, K = problem(own=own)
    with pytest.raises(NumericalError, match="too negative"):
        space.marginals(Sites(np.full(len(K), -50.0), np.zeros(len(K))))
