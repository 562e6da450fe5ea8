"""Starts of EP change how long it takes, never where it ends; and moved means are means."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oracles.problems import draw_problem
from unmet.inference.dense import _Conditioned, infer, prepare
from unmet.inference.ep import Sites
from unmet.kernels import Matern, SquaredExponential
from unmet.likelihoods import Gaussian

KERNEL = SquaredExponential(1.3, 1.5).resolved(None, 1)


def engine(n: int = 12) -> tuple[_Conditioned, np.random.Generator]:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, size=(n, 1))
    return _Conditioned(rng.normal(size=n), KERNEL(x), (np.zeros((n, n)), np.zeros((n, n)))), rng


def test_means_moved_to_sites_of_the_same_precisions_are_exact() -> None:
    prior, rng = engine()
    tau = rng.gamma(1.0, size=12)
    here = prior.marginals(Sites(tau, rng.normal(size=12)))
    there = Sites(tau, rng.normal(size=12))
    moved = prior.moved(here, there)
    assert moved is not None
    expected = prior.marginals(there)
    np.testing.assert_allclose(moved.mean, expected.mean, rtol=1e-9)
    np.testing.assert_allclose(moved.alpha, expected.alpha, rtol=1e-9)


def test_means_moved_a_little_are_right_to_second_order() -> None:
    prior, rng = engine()
    tau, nu, d_tau, d_nu = rng.gamma(1.0, size=12), *rng.normal(size=(3, 12))
    errors = []
    for step in (1e-2, 1e-3):
        here, there = prior.marginals(Sites(tau, nu)), Sites(tau + step * tau * d_tau, nu + step * d_nu)
        moved = prior.moved(here, there)
        assert moved is not None
        errors.append(np.abs(moved.mean - prior.marginals(there).mean).max())
    assert errors[1] < 0.02 * errors[0]


def test_sites_that_say_nothing_leave_the_prior() -> None:
    prior, _ = engine()
    nothing = Sites(np.zeros(12), np.zeros(12))
    got = prior.marginals(nothing)
    np.testing.assert_array_equal(got.mean, prior.mean)
    np.testing.assert_array_equal(got.var, np.diag(prior.cov))
    assert got.log_normaliser == 0
    assert prior.moved(got, nothing) is None


@pytest.mark.parametrize("tau", [0.0, 1e-300, 1e-9])
def test_shifts_without_precision_are_the_limit_of_small_ones(tau: float) -> None:
    prior, rng = engine()
    nu = rng.normal(size=12)
    got = prior.marginals(Sites(np.full(12, tau), nu))
    np.testing.assert_allclose(got.mean, prior.mean + prior.cov @ nu, rtol=1e-6)
    np.testing.assert_allclose(got.var, np.diag(prior.cov), rtol=1e-6)
    assert got.log_normaliser == pytest.approx(nu @ prior.mean + 0.5 * nu @ prior.cov @ nu, rel=1e-6)


class TestWarmStarts:
    likelihood = Gaussian(0.1)

    def problem(self):
        X, obs = draw_problem(KERNEL, 0.1, 120, 0.4, seed=3, kind="tobit")
        return prepare(X, obs, self.likelihood)

    def near(self) -> SquaredExponential:
        return SquaredExponential(1.4, 1.55).resolved(None, 1)

    def test_what_is_carried_on_saves_sweeps_and_changes_no_result(self) -> None:
        problem = self.problem()
        start = infer(KERNEL, self.likelihood, problem).sites
        assert start.secants is not None
        cold = infer(self.near(), self.likelihood, problem)
        bare = infer(self.near(), self.likelihood, problem, replace(start, secants=None))
        full = infer(self.near(), self.likelihood, problem, start)
        assert full.info.sweeps <= bare.info.sweeps < cold.info.sweeps
        for other in (bare, full):
            assert other.log_z == pytest.approx(cold.log_z, abs=1e-10)
            np.testing.assert_allclose(other.gradient, cold.gradient, atol=1e-5)
            np.testing.assert_allclose(other.sites.tau, cold.sites.tau, atol=1e-6)

    def test_secants_of_quite_another_model_do_no_harm(self) -> None:
        problem = self.problem()
        foreign = infer(Matern(30.0, 0.2, nu=0.5).resolved(None, 1), self.likelihood, problem).sites
        far = infer(KERNEL, self.likelihood, problem, foreign)
        assert far.info.converged
        assert far.log_z == pytest.approx(infer(KERNEL, self.likelihood, problem).log_z, abs=1e-10)

    def test_secants_that_are_all_zero_are_nothing(self) -> None:
        problem = self.problem()
        sites = infer(KERNEL, self.likelihood, problem).sites
        assert sites.secants is not None
        idle = replace(sites, secants=np.zeros_like(sites.secants))
        assert infer(self.near(), self.likelihood, problem, idle).info.converged
