"""Exact GP and EP with full matrices: against the exact evidence, sequential EP, MCMC and central differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from oracles.mcmc import gibbs_posterior
from oracles.problems import draw_problem
from oracles.sequential_ep import sequential_ep
from unmet._parameters import Parameter
from unmet.inference.dense import DensePosterior, infer, prepare
from unmet.inference.ep import Sites
from unmet.inference.result import Inference
from unmet.kernels import Constant, Kernel, Linear, Matern, Periodic, SquaredExponential, White
from unmet.likelihoods import Gaussian, Observations

SE = SquaredExponential(1.3, 1.5)
MATERN = Matern(1.1, 2.0, nu=1.5)
PERIODIC = Periodic(3.7, 0.9, 1.1)


def solve(
    kernel: Kernel, noise: float, X: np.ndarray, obs: Observations, start: Sites | None = None, **options: float
) -> Inference:
    likelihood = Gaussian(noise)
    return infer(kernel.resolved(None, X.shape[1]), likelihood, prepare(X, obs, likelihood), start, **options)  # type: ignore[arg-type]


def exact_posterior(K: np.ndarray, noise: float, y: np.ndarray, K_new: np.ndarray, cross: np.ndarray):
    """The textbook, with inverses."""
    inverse = np.linalg.inv(K + noise * np.eye(len(K)))
    return cross.T @ inverse @ y, K_new - cross.T @ inverse @ cross


class TestNothingCensored:
    @pytest.mark.parametrize("kernel", [SE, MATERN, PERIODIC, SE + Linear(0.2) + White(0.1), SE * PERIODIC])
    def test_evidence_and_posterior_are_the_textbooks(self, kernel: Kernel) -> None:
        X, obs = draw_problem(kernel, 0.1, 25, 0.0, seed=0)
        result = solve(kernel, 0.1, X, obs)
        K = kernel(X)
        expected = multivariate_normal(np.zeros(25), K + 0.1 * np.eye(25)).logpdf(obs.lower)
        assert result.log_z == pytest.approx(expected, rel=1e-10)
        assert result.info.converged
        assert result.info.jitter == 0
        new = np.linspace(-1, 11, 7)[:, None]
        mean, cov = exact_posterior(K, 0.1, obs.lower, kernel(new), kernel(X, new))
        got_mean, got_cov = result.posterior.joint(new)
        np.testing.assert_allclose(got_mean, mean, atol=1e-9)
        np.testing.assert_allclose(got_cov, cov, atol=1e-9)

    def test_intervals_that_shrink_to_points_give_the_exact_evidence(self) -> None:
        """EP, all sites, no conditioning: its evidence over the widths is the density."""
        X, obs = draw_problem(SE, 0.2, 30, 0.0, seed=1)
        half = 1e-6
        narrow = Observations(obs.lower - half, obs.upper + half)
        by_ep, exact = solve(SE, 0.2, X, narrow), solve(SE, 0.2, X, obs)
        assert by_ep.log_z - np.log(narrow.upper - narrow.lower).sum() == pytest.approx(exact.log_z, abs=1e-8)
        new = np.linspace(0, 10, 5)[:, None]
        for got, expected in zip(by_ep.posterior.marginals(new), exact.posterior.marginals(new), strict=True):
            np.testing.assert_allclose(got, expected, atol=1e-8)
        assert by_ep.gradient is not None
        assert exact.gradient is not None
        np.testing.assert_allclose(by_ep.gradient, exact.gradient, atol=1e-6)

    def test_gaussian_sites_by_ep_equal_the_exact_evidence(self) -> None:
        """The same likelihood, but treated as one EP does not know to be Gaussian."""

        class Unrecognised(Gaussian):
            def exact_sites(self, obs: Observations):
                return np.zeros(len(obs), dtype=bool), np.zeros(len(obs)), np.zeros(len(obs))

        X, obs = draw_problem(SE, 0.2, 40, 0.0, seed=2)
        likelihood = Unrecognised(0.2)
        kernel = SE.resolved(None, 1)
        by_ep = infer(kernel, likelihood, prepare(X, obs, likelihood))
        exact = solve(SE, 0.2, X, obs)
        assert by_ep.info.converged
        assert by_ep.log_z == pytest.approx(exact.log_z, abs=1e-9)
        np.testing.assert_allclose(by_ep.gradient, exact.gradient, atol=1e-8)


SMALL = [
    pytest.param(SE, 0.1, 15, 0.4, "tobit", id="SE, tobit"),
    pytest.param(SE, 0.3, 15, 0.9, "labels", id="SE, 90 % from above"),
    pytest.param(MATERN, 0.05, 18, 0.5, "mixed", id="Matern, mixed"),
    pytest.param(PERIODIC, 0.2, 15, 1.0, "mixed", id="periodic, all censored"),
    pytest.param(SE + PERIODIC, 1.0, 15, 0.6, "mixed", id="sum, mixed"),
]


@pytest.mark.parametrize(("kernel", "noise", "n", "share", "kind"), SMALL)
def test_sequential_ep_has_the_same_fixed_point(kernel: Kernel, noise: float, n: int, share: float, kind: str) -> None:
    X, obs = draw_problem(kernel, noise, n, share, seed=3, kind=kind)
    oracle = sequential_ep(kernel(X), obs.lower, obs.upper, noise)
    result = solve(kernel, noise, X, obs, tol=1e-11)
    assert result.log_z == pytest.approx(oracle.log_z, abs=1e-8)
    mean, var = result.posterior.marginals(X)
    np.testing.assert_allclose(mean, oracle.mean, atol=1e-7)
    np.testing.assert_allclose(var, np.diag(oracle.cov), atol=1e-7)
    np.testing.assert_allclose(result.posterior.joint(X)[1], oracle.cov, atol=1e-7)


@pytest.mark.parametrize(
    ("kernel", "noise", "n", "share", "kind"),
    [
        pytest.param(SE, 0.5, 30, 0.3, "tobit", id="SE, tobit"),
        pytest.param(MATERN, 0.3, 30, 0.6, "labels", id="Matern, labels"),
        pytest.param(PERIODIC + Constant(0.5), 0.2, 25, 0.9, "mixed", id="periodic, 90 % mixed"),
    ],
)
def test_the_posterior_agrees_with_mcmc_within_monte_carlo_error(
    kernel: Kernel, noise: float, n: int, share: float, kind: str
) -> None:
    X, obs = draw_problem(kernel, noise, n, share, seed=4, kind=kind)
    truth = gibbs_posterior(kernel(X), obs.lower, obs.upper, noise, seed=5)
    mean, var = solve(kernel, noise, X, obs).posterior.marginals(X)
    # The chains are long enough to tell: their error is a few hundredths of what they measure.
    assert (truth.mean_error / truth.sd).max() < 0.03
    assert (truth.sd_error / truth.sd).max() < 0.03
    assert (np.abs(mean - truth.mean) / truth.mean_error).max() < 4
    assert (np.abs(np.sqrt(var) - truth.sd) / truth.sd_error).max() < 4


@pytest.mark.parametrize(("copies", "least"), [(2, 0.9), (4, 0.84), (10, 0.76)])
def test_ep_is_overconfident_where_bounds_repeat_each_other(copies: int, least: float) -> None:
    """A known limit of EP itself: several rows at one input, all told the same lower bound.

    Its mean stays within a few hundredths of a posterior sd, but its sd is short (here by up to a quarter).
    """
    noise, bound = 0.1, -0.25
    x = np.zeros((copies, 1))
    seen = Observations(np.full(copies, bound), np.full(copies, np.inf))
    mean, var = solve(SE, noise, x, seen).posterior.marginals(x[:1])
    f = np.linspace(-6, 10, 100_001)
    weight = np.exp(norm.logpdf(f, scale=np.sqrt(1.3)) + copies * norm.logcdf((f - bound) / np.sqrt(noise)))
    weight /= weight.sum()
    true_mean = weight @ f
    true_sd = np.sqrt(weight @ (f - true_mean) ** 2)
    assert abs(mean[0] - true_mean) < 0.02 * true_sd
    assert least * true_sd < np.sqrt(var[0]) < 0.95 * true_sd


EVERY_KERNEL = [
    SE,
    SquaredExponential(1.3, [1.5, 3.0]),
    Matern(1.1, 2.0, nu=0.5),
    Matern(1.1, [2.0, 4.0], nu=1.5),
    Matern(1.1, 2.0, nu=2.5),
    Matern(1.1, 2.0, nu=0.8),
    PERIODIC,
    Linear(0.3) + Constant(0.5),
    Linear([0.3, 0.1]),
    SE + White(0.2),
    SE * PERIODIC + Matern(0.5, 1.0, columns=1),
]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("kernel", EVERY_KERNEL, ids=repr)
def test_the_gradient_equals_central_differences(kernel: Kernel, share: float) -> None:
    X, obs = draw_problem(kernel, 0.3, 30, share, seed=6, width=2)
    likelihood = Gaussian(0.3)
    problem = prepare(X, obs, likelihood)
    resolved = kernel.resolved(None, 2)
    theta = np.append(resolved.theta, likelihood.theta)

    def evidence(at: np.ndarray) -> float:
        k = resolved.with_theta(at[:-1])
        return infer(k, likelihood.with_theta(at[-1:]), problem, gradient=False, tol=1e-12).log_z

    got = infer(resolved, likelihood, problem, tol=1e-12).gradient
    assert got is not None
    h = 1e-4
    numeric = np.array(
        [
            (8 * (evidence(theta + e) - evidence(theta - e)) - (evidence(theta + 2 * e) - evidence(theta - 2 * e)))
            / (12 * h)
            for e in h * np.eye(theta.size)
        ]
    )
    np.testing.assert_allclose(got, numeric, rtol=1e-6, atol=1e-6 * np.abs(numeric).max())


def test_fixed_hyper_parameters_have_no_gradient() -> None:
    kernel = SquaredExponential(Parameter(1.0, fixed=True), 1.5)
    X, obs = draw_problem(kernel, 0.3, 12, 0.3, seed=7)
    likelihood = Gaussian(Parameter(0.3, fixed=True))
    all_free = solve(SquaredExponential(1.0, 1.5), 0.3, X, obs)
    result = infer(kernel.resolved(None, 1), likelihood, prepare(X, obs, likelihood))
    assert result.gradient is not None
    assert all_free.gradient is not None
    np.testing.assert_allclose(result.gradient, all_free.gradient[1:2], rtol=1e-10)


class TestWarmStart:
    X, obs = draw_problem(SE, 0.1, 60, 0.5, seed=8)

    def test_it_changes_the_work_and_not_the_result(self) -> None:
        cold = solve(SE, 0.1, self.X, self.obs)
        elsewhere = solve(SquaredExponential(3.0, 0.5), 0.5, self.X, self.obs)
        warm = solve(SE, 0.1, self.X, self.obs, elsewhere.sites)
        assert warm.log_z == pytest.approx(cold.log_z, abs=1e-7)
        np.testing.assert_allclose(warm.gradient, cold.gradient, atol=1e-5)
        again = solve(SE, 0.1, self.X, self.obs, cold.sites)
        assert again.info.sweeps <= 2
        assert cold.info.sweeps > 3

    def test_it_is_not_remembered(self) -> None:
        first = solve(SE, 0.1, self.X, self.obs)
        solve(SquaredExponential(3.0, 0.5), 0.5, self.X, self.obs, first.sites)
        assert solve(SE, 0.1, self.X, self.obs).log_z == first.log_z

    def test_it_is_not_written_to(self) -> None:
        start = solve(SE, 0.1, self.X, self.obs).sites
        before = start.tau.copy(), start.nu.copy()
        solve(SquaredExponential(3.0, 0.5), 0.5, self.X, self.obs, start)
        np.testing.assert_array_equal(start.tau, before[0])
        np.testing.assert_array_equal(start.nu, before[1])


class TestLimits:
    X, obs = draw_problem(SE, 0.1, 30, 0.4, seed=9)

    def test_a_bound_out_of_reach_is_no_observation(self) -> None:
        """Rows known to exceed −1e9 have sites of precision zero, and weigh nothing."""
        free = ~self.obs.exact
        lower, upper = np.where(free, -1e9, self.obs.lower), np.where(free, np.inf, self.obs.upper)
        result = solve(SE, 0.1, self.X, Observations(lower, upper))
        dropped = solve(SE, 0.1, self.X[~free], self.obs[~free])
        np.testing.assert_array_equal(result.sites.tau, 0.0)
        assert result.log_z == pytest.approx(dropped.log_z, abs=1e-10)
        new = np.linspace(0, 10, 9)[:, None]
        for got, expected in zip(result.posterior.marginals(new), dropped.posterior.marginals(new), strict=True):
            np.testing.assert_allclose(got, expected, atol=1e-10)
        np.testing.assert_allclose(result.gradient, dropped.gradient, atol=1e-9)

    def test_a_bound_infinitely_far_is_no_observation(self) -> None:
        free = ~self.obs.exact
        lower, upper = np.where(free, -np.inf, self.obs.lower), np.where(free, np.inf, self.obs.upper)
        result = solve(SE, 0.1, self.X, Observations(lower, upper))
        assert result.log_z == pytest.approx(solve(SE, 0.1, self.X[~free], self.obs[~free]).log_z, abs=1e-10)

    def test_the_evidence_of_one_censored_row_is_a_normal_tail(self) -> None:
        obs = Observations(np.array([0.7]), np.array([np.inf]))
        result = solve(SquaredExponential(2.0, 1.0), 0.5, np.zeros((1, 1)), obs)
        assert result.log_z == pytest.approx(norm.logsf(0.7 / np.sqrt(2.5)), rel=1e-12)

    def test_a_censored_value_pulls_the_mean_towards_its_side_and_narrows_it(self) -> None:
        x = np.zeros((1, 1))
        mean, var = solve(SE, 0.1, x, Observations(np.array([1.0]), np.array([np.inf]))).posterior.marginals(x)
        assert mean[0] > 0
        assert 0 < var[0] < 1.3

    def test_the_order_of_rows_does_not_matter(self) -> None:
        shuffled = np.random.default_rng(0).permutation(30)
        a, b = solve(SE, 0.1, self.X, self.obs), solve(SE, 0.1, self.X[shuffled], self.obs[shuffled])
        assert a.log_z == pytest.approx(b.log_z, abs=1e-9)
        np.testing.assert_allclose(a.gradient, b.gradient, atol=1e-7)

    def test_mirrored_data_have_a_mirrored_posterior(self) -> None:
        a = solve(SE, 0.1, self.X, self.obs)
        b = solve(SE, 0.1, self.X, Observations(-self.obs.upper, -self.obs.lower))
        assert a.log_z == pytest.approx(b.log_z, abs=1e-9)
        np.testing.assert_allclose(a.posterior.marginals(self.X)[0], -b.posterior.marginals(self.X)[0], atol=1e-7)

    def test_marginals_are_the_diagonal_of_the_joint(self) -> None:
        posterior = solve(SE, 0.1, self.X, self.obs).posterior
        assert isinstance(posterior, DensePosterior)
        mean, var = posterior.marginals(self.X)
        joint_mean, cov = posterior.joint(self.X)
        np.testing.assert_allclose(mean, joint_mean, atol=1e-12)
        np.testing.assert_allclose(var, np.diag(cov), atol=1e-12)

    def test_giving_up_early_is_reported(self) -> None:
        info = solve(SE, 0.1, self.X, self.obs, max_sweeps=2).info
        assert not info.converged
        assert info.sweeps == 2
        assert info.residual > 1e-8


def check_sane(result: Inference) -> None:
    assert result.info.converged
    assert np.isfinite(result.log_z)
    assert result.gradient is not None
    assert np.isfinite(result.gradient).all()
    assert (result.sites.tau >= 0).all()


@pytest.mark.parametrize("kind", ["tobit", "labels", "mixed"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("noise", [1e-4, 1e-2, 1.0, 1e2])
@pytest.mark.parametrize(
    "kernel",
    [SquaredExponential(1.0, 1.0), Matern(1.0, 1.0, nu=0.5), Matern(1.0, 1.0), Periodic(3.0, 1.0, 1.0)],
    ids=repr,
)
def test_ep_converges_on_the_stress_set(kernel: Kernel, noise: float, share: float, kind: str) -> None:
    X, obs = draw_problem(kernel, noise, 120, share, seed=10, kind=kind, duplicates=True)
    check_sane(solve(kernel, noise, X, obs))
    # And away from the truth, where a search for hyper-parameters starts.
    wrong = kernel.with_theta(kernel.theta + np.linspace(2.0, -1.0, kernel.theta.size))
    check_sane(solve(wrong, 10 * noise, X, obs))


@pytest.mark.parametrize(
    ("kernel", "noise", "share", "kind"),
    [
        (SquaredExponential(1.0, 1.0), 1e-2, 1.0, "mixed"),
        (SquaredExponential(1.0, 1.0), 1e-2, 0.3, "tobit"),
        (Matern(1.0, 1.0, nu=1.5), 1e-1, 0.9, "mixed"),
        (Periodic(3.0, 1.0, 1.0), 1.0, 0.5, "tobit"),
    ],
)
def test_ep_converges_on_a_thousand_rows(kernel: Kernel, noise: float, share: float, kind: str) -> None:
    X, obs = draw_problem(kernel, noise, 1000, share, seed=11, kind=kind, duplicates=True)
    check_sane(solve(kernel, noise, X, obs))


def test_the_evidence_is_finite_at_any_hyper_parameters() -> None:
    """Sequential implementations that keep exp(log Ẑ) underflow on many of these."""
    rng = np.random.default_rng(12)
    for trial in range(300):
        n = int(rng.integers(1, 25))
        kernel = (SE, MATERN, PERIODIC)[trial % 3]
        X, obs = draw_problem(kernel, 0.5, n, rng.choice([0.2, 0.6, 1.0]), seed=trial, duplicates=trial % 2 == 0)
        at = kernel.with_theta(rng.normal(scale=3.0, size=kernel.theta.size))
        result = solve(at, 10 ** rng.uniform(-6, 3), X, obs)
        assert np.isfinite(result.log_z), (trial, at)
        assert result.gradient is not None
        assert np.isfinite(result.gradient).all(), (trial, at)


def test_contradicting_bounds_are_a_surprise_and_not_a_failure() -> None:
    """One input, known to lie above 1000 and below −1000 with little noise."""
    obs = Observations(np.array([1e3, -np.inf]), np.array([np.inf, -1e3]))
    result = solve(SE, 1e-3, np.zeros((2, 1)), obs)
    check_sane(result)
    assert result.log_z < -1e5


@pytest.mark.parametrize("noise", [1e-6, 1e-8, 1e-10])
def test_sites_far_sharper_than_the_prior_keep_their_digits(noise: float) -> None:
    """Cavities are differences of near equals there: 1 − τσ² lost all digits, and its sign."""
    X, obs = draw_problem(SE, 1e-2, 12, 1.0, seed=13)
    result = solve(SE, noise, X, obs)
    assert np.isfinite(result.log_z)
    nearly_none = solve(SE, 1e-5, X, obs)
    # With hardly any noise, how little of it there is does not matter.
    assert result.log_z == pytest.approx(nearly_none.log_z, abs=0.05)
    for got, expected in zip(result.posterior.marginals(X), nearly_none.posterior.marginals(X), strict=True):
        np.testing.assert_allclose(got, expected, atol=0.01)
