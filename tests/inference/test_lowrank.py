"""Low-rank inference against the dense engine, finite differences and plain formulas."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from unmet import CensoredGP, InputError, NumericalWarning
from unmet.inference import dense, lowrank
from unmet.inference.features import Block
from unmet.inference.planning import block_from_dict, plan
from unmet.inference.result import Inference
from unmet.kernels import Constant, Kernel, Linear, Matern, Parameter, Periodic, SquaredExponential, White
from unmet.likelihoods import Gaussian, Likelihood, NegativeBinomial, Observations, Poisson

N = 300


@dataclass(frozen=True)
class Data:
    X: np.ndarray
    gaussian: Observations
    counts: Observations

    def seen_by(self, likelihood: Likelihood) -> Observations:
        return self.gaussian if isinstance(likelihood, Gaussian) else self.counts


def make_data(n: int = N, seed: int = 0) -> Data:
    """Three columns (time, two others), a third of the rows censored, counts with exposure."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0, 10, n))
    X = np.column_stack([t, rng.uniform(0, 3, n), 0.7 * rng.normal(size=n)])
    f = np.sin(t) + 0.3 * X[:, 1]
    y = f + 0.3 * rng.normal(size=n)
    cut = rng.random(n) < 0.3
    count = rng.poisson(np.exp(f)).astype(float)
    return Data(
        X,
        Observations(np.where(cut, y - 0.2, y), np.where(cut, np.inf, y)),
        Observations(count, np.where(cut & (count > 0), np.inf, count), rng.uniform(0.1, 1.0, n)),
    )


DATA = make_data()
LIKELIHOODS = {"gaussian": Gaussian(0.1), "poisson": Poisson(), "negative binomial": NegativeBinomial(0.2)}


def fixed(value: float) -> Parameter:
    return Parameter(value, fixed=True)


SMOOTH: dict[str, Kernel] = {
    "squared exponential": SquaredExponential(1.0, 1.5, columns=0),
    "squared exponential of two columns": SquaredExponential(1.0, [2.0, 1.5], columns=[0, 1]),
    "squared exponential of three columns": SquaredExponential(1.0, [2.0, 2.0, 2.0]),
    "matern 5/2": Matern(1.0, 2.0, nu=2.5, columns=0),
    "periodic": Periodic(3.0, 1.0, 0.8, columns=0),
    "periodic of two columns": Periodic(3.0, 1.0, [1.0, 1.5], columns=[0, 1]),
    "linear and constant": Linear(0.5) + Constant(1.0),
    "linear with a variance per column": Linear([0.5, 0.1, 1.0]),
    "sum": SquaredExponential(1.0, 2.0, columns=0) + Periodic(3.0, 0.5, 1.0, columns=0) + Linear(0.2, columns=1),
    "pattern that drifts": SquaredExponential(1.0, 3.0, columns=0) * Periodic(3.0, 1.0, 1.0, columns=0),
    "slope that drifts": Linear(0.5, columns=1) * SquaredExponential(1.0, 2.0, columns=0),
    "product with a sum": Matern(0.5, 9.0, columns=0) * (Periodic(3.0, 1.0, 2.0, columns=0) + Constant(0.5)),
    "inducing points in a product": SquaredExponential(0.5, [2.0, 2.0, 2.0]) * Linear(0.5, columns=1),
    "inducing points in a sum": SquaredExponential(0.5, 3.0) + Periodic(3.0, 1.0, 1.0, columns=0),
}


def at_columns(kernel: Kernel, X: np.ndarray) -> Kernel:
    return kernel.resolved(None, X.shape[1])


def densely(kernel: Kernel, likelihood: Likelihood, data: Data, gradient: bool = False) -> Inference:
    obs = data.seen_by(likelihood)
    kernel = at_columns(kernel, data.X)
    return dense.infer(kernel, likelihood, dense.prepare(data.X, obs, likelihood), gradient=gradient)


def by_features(kernel: Kernel, likelihood: Likelihood, data: Data, block: Block, gradient: bool = False) -> Inference:
    obs = data.seen_by(likelihood)
    kernel = at_columns(kernel, data.X)
    return lowrank.infer(kernel, likelihood, lowrank.prepare(data.X, obs, likelihood, block), gradient=gradient)


def planned(kernel: Kernel, X: np.ndarray, left_out: float, budget: int = 1500) -> Block:
    return plan(at_columns(kernel, X), X, left_out=left_out, budget=budget)


def same_posterior(few: Inference, full: Inference, X: np.ndarray, tol: float = 1e-2) -> None:
    """Means within `tol` of a posterior sd, standard deviations to a relative `tol`."""
    (mean, var), (mean_full, var_full) = few.posterior.marginals(X), full.posterior.marginals(X)
    assert (
        np.abs(mean - mean_full).max() < tol * np.sqrt(var_full).min()
        or (np.abs(mean - mean_full) < tol * np.sqrt(var_full)).all()
    )
    np.testing.assert_allclose(np.sqrt(var), np.sqrt(var_full), rtol=tol)


# --------------------------------------------------------------------------------------------- towards dense


@pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
@pytest.mark.parametrize("kernel", SMOOTH.values(), ids=SMOOTH)
def test_enough_features_give_the_dense_answer(kernel: Kernel, likelihood: Likelihood) -> None:
    full = densely(kernel, likelihood, DATA)
    few = by_features(kernel, likelihood, DATA, planned(kernel, DATA.X, 1e-7))
    assert few.info.converged
    assert few.log_z == pytest.approx(full.log_z, abs=1e-3)
    same_posterior(few, full, DATA.X)


@pytest.mark.parametrize("kernel", SMOOTH.values(), ids=SMOOTH)
def test_the_plan_leaves_out_what_was_asked_for(kernel: Kernel) -> None:
    kernel = at_columns(kernel, DATA.X)
    for target in (1e-1, 1e-3, 1e-5):
        assert plan(kernel, DATA.X, left_out=target, budget=1500).left_out(kernel) <= 2 * target  # two parts: a product


@pytest.mark.parametrize("nu", [0.5, 1.5])
def test_rough_kernels_converge_at_their_rate_and_say_what_is_left_out(nu: float) -> None:
    """Beyond frequency ω a Matérn kernel has ω^(−2ν) of its variance: four times the features, 4^(−2ν) of the error."""
    kernel, likelihood = at_columns(Matern(1.0, fixed(2.0), nu=nu, columns=0), DATA.X), Gaussian(0.1)
    full = densely(kernel, likelihood, DATA)
    errors, reported, sizes = [], [], []
    box = planned(kernel, DATA.X, 1e-9, budget=10**9).to_dict()
    for count in (120, 480, 1920):
        block = block_from_dict({**box, "counts": (count,)})
        prior = block.phi(kernel, DATA.X) ** 2 @ np.exp(block.log_spectrum(kernel))
        missed = float(np.mean(1.0 - prior))
        assert missed <= 1.1 * block.left_out(kernel)  # the bound holds
        assert missed >= 0.3 * block.left_out(kernel) - 1e-3  # and is not idle
        errors.append(abs(by_features(kernel, likelihood, DATA, block).log_z - full.log_z))
        reported.append(block.left_out(kernel))
        sizes.append(block.size)
    assert sizes == [120, 480, 1920]
    rate = 4 ** (2 * nu)
    np.testing.assert_allclose(np.array(reported[:-1]) / np.array(reported[1:]), rate, rtol=0.1)
    assert errors[0] > errors[1] > errors[2]
    assert 0.4 * rate**2 < errors[0] / errors[2] < 3.0 * rate**2


def test_without_censoring_it_is_the_textbook_formula() -> None:
    """R&W algorithm 2.1, written with plain inverses."""
    kernel = at_columns(SMOOTH["sum"], DATA.X)
    y = DATA.gaussian.lower
    likelihood, obs = Gaussian(0.3), Observations(y, y)
    block = plan(kernel, DATA.X, left_out=1e-9, budget=400)
    result = lowrank.infer(kernel, likelihood, lowrank.prepare(DATA.X, obs, likelihood, block))
    K = kernel(DATA.X)
    inverse = np.linalg.inv(K + 0.3 * np.eye(N))
    log_z = stats.multivariate_normal(np.zeros(N), K + 0.3 * np.eye(N)).logpdf(y)
    assert result.log_z == pytest.approx(log_z, abs=1e-5)
    mean, var = result.posterior.marginals(DATA.X)
    np.testing.assert_allclose(mean, K @ inverse @ y, atol=1e-5)
    np.testing.assert_allclose(var, np.diag(K - K @ inverse @ K), atol=1e-6)


# --------------------------------------------------------------------------------------------- gradient

MOVING: dict[str, Kernel] = {
    "harmonics": Periodic(fixed(3.0), 1.0, 0.8, columns=0),
    "harmonics with a free period": Periodic(3.0, 1.0, 0.8, columns=0),
    "eigenfunctions": SquaredExponential(1.0, 1.5, columns=0),
    "eigenfunctions of two columns": Matern(1.0, [3.0, 2.0], nu=2.5, columns=[0, 1]),
    "eigenfunctions of two columns, one length": SquaredExponential(1.0, 2.5, columns=[0, 1]),
    "explicit": Linear([0.5, 0.1, 1.0]) + Constant(1.0),
    "explicit, one slope": Linear(0.3),
    "inducing points": SquaredExponential(1.0, [2.0, 2.5, 2.0]),
    "inducing points, periodic": Periodic(3.0, 1.0, [1.0, 1.5], columns=[0, 1]),
    "inducing points, held": SquaredExponential(fixed(1.0), fixed(2.0)) + Constant(1.0),
    "drifting pattern, period held": Matern(1.0, 3.0, columns=0) * Periodic(fixed(3.0), fixed(1.0), 1.0, columns=0),
    "drifting pattern, period free": SquaredExponential(1.0, 3.0, columns=0)
    * Periodic(3.0, fixed(1.0), 1.0, columns=0),
    "inducing points times harmonics": SquaredExponential(0.5, 3.0) * Periodic(3.0, fixed(1.0), 1.5, columns=0),
    "everything": SquaredExponential(0.5, 3.0) + Periodic(3.0, 0.4, 1.0, columns=0) + Linear(0.2, columns=1),
}


@pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
@pytest.mark.parametrize("kernel", MOVING.values(), ids=MOVING)
def test_the_gradient_is_that_of_the_evidence(kernel: Kernel, likelihood: Likelihood) -> None:
    """Against central differences with the plan of features held, as the search sees it."""
    data = make_data(60)
    kernel = at_columns(kernel, data.X)
    block = planned(kernel, data.X, 1e-2)
    problem = lowrank.prepare(data.X, data.seen_by(likelihood), likelihood, block)
    k = kernel.theta.size
    theta = np.concatenate([kernel.theta, likelihood.theta])

    def at(theta: np.ndarray, gradient: bool) -> Inference:
        model = kernel.with_theta(theta[:k]), likelihood.with_theta(theta[k:])
        return lowrank.infer(*model, problem, gradient=gradient, tol=1e-11)

    step = 1e-4
    numerical = [
        (at(theta + step * e, False).log_z - at(theta - step * e, False).log_z) / (2 * step) for e in np.eye(theta.size)
    ]
    gradient = at(theta, True).gradient
    assert gradient is not None
    np.testing.assert_allclose(gradient, numerical, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("kernel", MOVING.values(), ids=MOVING)
def test_slopes_are_those_of_the_spectrum(kernel: Kernel) -> None:
    kernel = at_columns(kernel, DATA.X)
    block = planned(kernel, DATA.X, 1e-2)
    step = 1e-5
    numerical = [
        (
            block.log_spectrum(kernel.with_theta(kernel.theta + d))
            - block.log_spectrum(kernel.with_theta(kernel.theta - d))
        )
        / (2 * step)
        for d in step * np.eye(kernel.theta.size)
    ]
    expected = np.array(numerical).reshape(kernel.theta.size, block.size).T
    np.testing.assert_allclose(block.slopes(kernel), expected, rtol=1e-6, atol=1e-8)


def test_the_information_is_that_of_the_model_with_sites_as_data() -> None:
    """R&W eq. 5.9 with matrices of all rows."""
    kernel = Matern(1.0, 3.0, columns=0) * Periodic(fixed(3.0), fixed(1.0), 1.0, columns=0) + Linear(0.2, columns=1)
    kernel, likelihood = at_columns(kernel, DATA.X), NegativeBinomial(0.2)
    block = planned(kernel, DATA.X, 1e-2)
    result = by_features(kernel, likelihood, DATA, block, gradient=True)
    assert result.information is not None
    phi, D = block.phi(kernel, DATA.X), block.slopes(kernel)
    S = np.exp(block.log_spectrum(kernel))
    seen = result.sites.tau > 1e-9
    inverse = np.linalg.inv((phi[seen] * S) @ phi[seen].T + np.diag(1 / result.sites.tau[seen]))
    moved = [inverse @ (phi[seen] * (S * D[:, k])) @ phi[seen].T for k in range(kernel.theta.size)]
    expected = [[0.5 * np.trace(a @ b) for b in moved] for a in moved]
    k = kernel.theta.size
    np.testing.assert_allclose(result.information[:k, :k], expected, rtol=1e-4, atol=1e-6)
    assert not result.information[:k, k:].any()
    assert result.information[k, k] > 0


@pytest.mark.parametrize(
    ("kernel", "likelihood"),
    [(SMOOTH["periodic"], Poisson()), (SMOOTH["squared exponential"], Gaussian(0.1))],
    ids=["a basis that moves", "rows that are Gaussian"],
)
def test_the_information_is_not_computed_where_it_has_other_terms(kernel: Kernel, likelihood: Likelihood) -> None:
    result = by_features(kernel, likelihood, DATA, planned(kernel, DATA.X, 1e-2), gradient=True)
    assert result.information is None


def test_scoring_finds_the_maximum_of_quasi_newton_in_fewer_evaluations() -> None:
    rng = np.random.default_rng(5)
    t = np.linspace(0, 28, 28 * 24)
    rate = np.exp(1.0 + np.sin(2 * np.pi * t) + 0.3 * np.sin(t / 3))
    y = rng.poisson(rate * rng.gamma(5.0, 0.2, t.size)).astype(float)
    kernel = Periodic(fixed(1.0), 0.3, 1.0, columns=0) + SquaredExponential(0.3, 2.0, columns=0)
    settings = {"likelihood": "negative-binomial", "inference": "lowrank"}
    few, many = (CensoredGP(kernel, optimizer=o, **settings).fit(t[:, None], y) for o in ("scoring", "lbfgs"))
    assert few.log_marginal_likelihood_ == pytest.approx(many.log_marginal_likelihood_, abs=0.01)
    assert few.n_iter_ < many.n_iter_ / 2


# --------------------------------------------------------------------------------------------- prediction


@pytest.mark.parametrize(
    "kernel",
    [
        SquaredExponential(1.0, 1.5),
        SquaredExponential(1.0, 20.0),
        Matern(1.0, 2.0, nu=2.5),
        Matern(1.0, 20.0, nu=2.5),
        Matern(1.0, 2.0, nu=1.5),
        Periodic(3.0, 1.0, 0.8),
        SquaredExponential(1.0, 3.0) * Periodic(3.0, 1.0, 1.0),
        SquaredExponential(1.0, 3.0) + Periodic(3.0, 1.0, 1.0) + Linear(0.1),
    ],
    ids=repr,
)
def test_outside_the_data_it_goes_on_as_the_dense_posterior_does(kernel: Kernel) -> None:
    data = DATA
    one = Data(data.X[:, :1], data.gaussian, data.counts)
    beyond = np.concatenate([np.linspace(-8, 0, 30), np.linspace(4, 18, 50)])[:, None]
    likelihood = Gaussian(0.1)
    full = densely(kernel, likelihood, one)
    few = by_features(kernel, likelihood, one, planned(kernel, one.X, 1e-5))
    (mean, cov), (mean_full, cov_full) = few.posterior.joint(beyond), full.posterior.joint(beyond)
    sd = np.sqrt(np.diag(cov_full))
    np.testing.assert_allclose(mean / sd, mean_full / sd, atol=2e-2)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)) / sd, 1.0, atol=1e-2)
    np.testing.assert_allclose(cov / np.outer(sd, sd), cov_full / np.outer(sd, sd), atol=2e-2)
    assert np.linalg.eigvalsh(cov)[0] > -1e-10


def test_outside_in_one_column_only_it_still_knows_its_neighbours() -> None:
    """The range of the second column is many length-scales long: what lies beside its middle must be seen."""
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.uniform(0, 2, N), rng.uniform(0, 30, N)])
    y = np.sin(X[:, 1]) + X[:, 0]
    data = Data(X, Observations(y, y), Observations(y, y))
    kernel, likelihood = SquaredExponential(1.0, fixed(2.0)), Gaussian(0.05)
    beside = np.column_stack([np.full(40, 2.3), np.linspace(-1, 31, 40)])
    full = densely(kernel, likelihood, data)
    few = by_features(kernel, likelihood, data, planned(kernel, X, 1e-3))
    same_posterior(few, full, beside, tol=0.05)


def test_far_outside_the_prior_returns_and_what_repeats_goes_on() -> None:
    slow, pattern = SquaredExponential(0.7, 1.0), Periodic(fixed(2.5), 1.0, 1.0)
    data = Data(DATA.X[:, :1], DATA.gaussian, DATA.counts)
    likelihood = NegativeBinomial(0.1)
    far = np.array([[60.0], [-45.0]])
    trend = by_features(slow, likelihood, data, planned(slow, data.X, 1e-5)).posterior
    mean, var = trend.marginals(far)
    np.testing.assert_allclose(mean, 0.0, atol=1e-6)
    np.testing.assert_allclose(var, 0.7, rtol=1e-6)
    both = by_features(slow + pattern, likelihood, data, planned(slow + pattern, data.X, 1e-5)).posterior
    week = np.linspace(60.0, 62.5, 11)[:, None]
    mean, var = both.marginals(week)
    np.testing.assert_allclose(both.marginals(week + 2.5)[0], mean, atol=1e-9)
    assert np.ptp(mean) > 0.05
    assert (var < 0.7 + 0.9).all()  # the pattern is known there


@pytest.mark.parametrize("name", ["squared exponential", "pattern that drifts", "inducing points in a sum", "sum"])
def test_joint_marginals_and_draws_agree(name: str) -> None:
    kernel, likelihood = SMOOTH[name], Poisson()
    posterior = by_features(kernel, likelihood, DATA, planned(kernel, DATA.X, 1e-3)).posterior
    rng = np.random.default_rng(5)
    X = DATA.X[rng.permutation(N)[:12]]
    X[:4, 0] += np.array([11.0, -11.0, 3.0, 20.0])  # some of them outside
    mean, cov = posterior.joint(X)
    assert np.linalg.eigvalsh(cov)[0] > -1e-10
    alone, var = posterior.marginals(X)
    np.testing.assert_allclose(alone, mean, atol=1e-12)
    np.testing.assert_allclose(var, np.diag(cov), rtol=1e-9)
    draws = posterior.sample(X, 40_000, rng)
    assert draws.shape == (40_000, 12)
    sd = np.sqrt(var)
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / sd, 0.0, atol=5 / np.sqrt(40_000))
    scaled = np.cov(draws.T) / np.outer(sd, sd)
    np.testing.assert_allclose(scaled, cov / np.outer(sd, sd), atol=6 * np.sqrt(2 / 40_000))


def test_a_row_is_predicted_the_same_whoever_stands_beside_it() -> None:
    kernel = SMOOTH["pattern that drifts"]
    posterior = by_features(kernel, Poisson(), DATA, planned(kernel, DATA.X, 1e-3)).posterior
    X = DATA.X[:5] + np.array([9.0, 0.0, 0.0])
    together = posterior.marginals(X)
    for i in range(5):
        np.testing.assert_allclose([p[0] for p in posterior.marginals(X[i : i + 1])], [p[i] for p in together])


# --------------------------------------------------------------------------------------------- plans


@pytest.mark.parametrize("kernel", SMOOTH.values(), ids=SMOOTH)
def test_a_plan_survives_being_written_and_read(kernel: Kernel) -> None:
    block = planned(kernel, DATA.X, 1e-3)
    again = block_from_dict(json.loads(json.dumps(block.to_dict())))
    resolved = at_columns(kernel, DATA.X)
    assert again.size == block.size
    np.testing.assert_array_equal(again.phi(resolved, DATA.X), block.phi(resolved, DATA.X))
    np.testing.assert_array_equal(again.log_spectrum(resolved), block.log_spectrum(resolved))
    assert again.left_out(resolved) == block.left_out(resolved)


def test_unknown_features_are_refused() -> None:
    with pytest.raises(InputError, match="wavelets"):
        block_from_dict({"block": "wavelets"})


@pytest.mark.parametrize("budget", [20, 60, 200, 600])
@pytest.mark.parametrize(
    "kernel",
    [
        SMOOTH["sum"],
        SquaredExponential(1.0, 0.5),
        SquaredExponential(1.0, 0.5) + Periodic(3.0, 1.0, 0.5, columns=0),
        SquaredExponential(1.0, 0.5) + SquaredExponential(1.0, 0.3, columns=[0, 1, 2]) + Linear(1.0),
        Matern(1.0, 1.0, nu=0.5, columns=0),
    ],
    ids=["sum", "points", "points and harmonics", "points twice", "rough"],
)
def test_a_plan_keeps_to_its_budget_and_uses_it(kernel: Kernel, budget: int) -> None:
    kernel = at_columns(kernel, DATA.X)
    block = plan(kernel, DATA.X, left_out=1e-4, budget=budget)
    assert block.size <= budget
    assert block.left_out(kernel) <= 2e-4 or block.size >= 0.7 * min(budget, N)


def test_a_hopeless_budget_is_refused_with_what_is_needed() -> None:
    kernel = at_columns(SquaredExponential(1.0, 0.05, columns=0), DATA.X)
    with pytest.raises(InputError, match=r"features are needed .* 10 are allowed\. Raise n_features"):
        plan(kernel, DATA.X, left_out=1e-3, budget=10)


@pytest.mark.parametrize("kernel", [White(0.1) + SquaredExponential(), SquaredExponential() * White()])
def test_white_noise_is_refused_with_a_way_out(kernel: Kernel) -> None:
    with pytest.raises(InputError, match=r"White has no low-rank features\. Leave it out"):
        CensoredGP(kernel, inference="lowrank").fit(DATA.X, DATA.gaussian.lower)


def test_a_constant_column_is_no_obstacle() -> None:
    X = np.column_stack([DATA.X[:, 0], np.full(N, 3.0)])
    data = Data(X, DATA.gaussian, DATA.counts)
    for kernel in (
        SquaredExponential(1.0, [2.0, 1.0]),
        SquaredExponential(1.0, 2.0, columns=0) + SquaredExponential(0.5, 1.0, columns=1),
    ):
        few = by_features(kernel, Poisson(), data, planned(kernel, X, 1e-6))
        full = densely(kernel, Poisson(), data)
        assert few.log_z == pytest.approx(full.log_z, abs=1e-3)
        same_posterior(few, full, X + np.array([0.0, 0.5]))


def test_held_length_scales_need_fewer_features_than_free_ones() -> None:
    free, held = SquaredExponential(1.0, 0.5, columns=0), SquaredExponential(1.0, fixed(0.5), columns=0)
    assert planned(held, DATA.X, 1e-3).size <= 0.6 * planned(free, DATA.X, 1e-3).size


# --------------------------------------------------------------------------------------------- through the estimator


def test_too_few_features_are_reported() -> None:
    X, y = DATA.X[:, :1], DATA.gaussian.lower
    kernel = SquaredExponential(1.0, fixed(0.3))
    with pytest.warns(NumericalWarning, match=r"2\d features leave out .*% of the prior variance .* Raise n_features"):
        gp = CensoredGP(kernel, inference="lowrank", n_features=25, optimizer=None).fit(X, y)
    assert gp.features_ is not None
    assert 20 <= gp.features_["count"].sum() <= 25
    assert gp.features_["left_out"].iloc[0] > 0.01
    enough = CensoredGP(kernel, inference="lowrank", optimizer=None).fit(X, y)
    assert enough.features_ is not None
    assert enough.features_["left_out"].iloc[0] <= 1e-3


def test_a_search_into_length_scales_too_short_for_its_features_ends_with_a_warning_not_an_error() -> None:
    rng = np.random.default_rng(0)
    X = np.arange(400.0)[:, None]
    y = np.linalg.cholesky(Matern(1.0, 3.0, nu=0.5)(X)) @ rng.normal(size=400)
    kernel = Matern(1.0, 50.0, nu=0.5)
    with pytest.warns(NumericalWarning, match="Raise n_features"):
        gp = CensoredGP(kernel, inference="lowrank", n_features=60, noise_variance=Parameter(0.01, fixed=True)).fit(
            X, y
        )
    assert np.isfinite(gp.predict(X)).all()


def test_a_daily_rhythm_is_found_with_a_weekly_kernel_left_open() -> None:
    """Harmonics for the starting length-scale alone would not hold a daily cycle: it must be looked for."""
    rng = np.random.default_rng(1)
    t = np.arange(4 * 168.0)[:, None]
    rate = np.exp(1 + 1.2 * np.sin(2 * np.pi * t[:, 0] / 24) + 0.6 * np.sin(4 * np.pi * t[:, 0] / 24))
    y = rng.poisson(rate)
    kernel = Periodic(fixed(168.0)) + SquaredExponential(0.1, Parameter(200.0, bounds=(100.0, 1e4)))
    few = CensoredGP(kernel, likelihood="poisson", inference="lowrank").fit(t, y)
    assert np.corrcoef(np.log(few.predict(t)), np.log(rate))[0, 1] > 0.97


def test_a_given_length_scale_half_a_decade_too_long_does_not_blind_the_search() -> None:
    rng = np.random.default_rng(1)
    t = np.arange(4 * 168.0)[:, None]
    rate = np.exp(1 + 1.2 * np.sin(2 * np.pi * t[:, 0] / 24))
    kernel = Periodic(fixed(168.0), 1.0, 1.0)
    few = CensoredGP(kernel, likelihood="poisson", inference="lowrank").fit(t, rng.poisson(rate))
    assert np.corrcoef(np.log(few.predict(t)), np.log(rate))[0, 1] > 0.97


def test_auto_is_dense_for_two_thousand_rows_and_low_rank_beyond() -> None:
    rng = np.random.default_rng(2)
    X = np.linspace(0, 10, 2001)[:, None]
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=2001)
    settings = {"kernel": SquaredExponential(1.0, 1.0), "noise_variance": 0.1, "optimizer": None}
    assert CensoredGP(**settings).fit(X, y).features_ is not None
    assert CensoredGP(**settings).fit(X[::4], y[::4]).features_ is None


# --------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize(
    "kernel",
    [
        Periodic(fixed(168.0), 1.0, 0.25, columns=0) + SquaredExponential(0.5, 700.0, columns=0),
        Periodic(168.0, 1.0, 0.25, columns=0) + SquaredExponential(0.5, 700.0, columns=0),
        Periodic(24.0, 1.0, 1.0, columns=0) * SquaredExponential(fixed(1.0), 1500.0, columns=0),
        SquaredExponential(1.0, 1.8, columns=[1, 2, 3]),
    ],
    ids=["harmonics", "free period", "drifting pattern", "inducing points"],
)
def test_memory_stays_within_six_arrays_of_features(kernel: Kernel) -> None:
    n = 8760
    rng = np.random.default_rng(0)
    X = np.column_stack([np.arange(float(n)), rng.normal(size=(n, 3))])
    y = rng.poisson(np.exp(np.sin(2 * np.pi * X[:, 0] / 24))).astype(float)
    kernel = at_columns(kernel, X)
    likelihood = NegativeBinomial(0.1)
    block = plan(kernel, X, left_out=1e-3, budget=140)
    assert 80 <= block.size <= 140
    problem = lowrank.prepare(X, Observations(y, y, rng.uniform(0.2, 1.0, n)), likelihood, block)
    tracemalloc.start()
    try:
        lowrank.infer(kernel, likelihood, problem, max_sweeps=3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 6 * n * block.size * 8
