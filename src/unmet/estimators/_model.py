"""A kernel, a likelihood and data as one function of ``theta``, and the search for its maximum."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._memory import check_memory
from unmet._typing import Array, BoolArray
from unmet.evidence import Evaluation, Optimizer, Optimum, maximise, random_starts
from unmet.inference import dense, lowrank
from unmet.inference.ep import Sites
from unmet.inference.features import Block
from unmet.inference.planning import plan
from unmet.inference.result import Inference
from unmet.kernels.base import Kernel, Leaf
from unmet.kernels.periodic import Periodic
from unmet.kernels.stationary import Stationary
from unmet.likelihoods.base import Likelihood, Observations
from unmet.likelihoods.share import Shared

__all__ = ["LEFT_OUT", "SEARCH_TOL", "Model", "planned_better", "search"]

# Fraction of each kernel's prior variance that low-rank features may leave out before they are planned again.
LEFT_OUT = 1e-3
_ROUNDS = 4
# EP's tolerance during a search. The evidence is stationary in the sites, so its error is 1e-8 there; that of its
# gradient is 1e-3.
SEARCH_TOL = 1e-5
# Open length-scales start at the best of these multiples of the data's spread. Starting ten times too long is the
# most common cause of a poor local maximum.
_LENGTHS_TRIED = (1.0, 0.3, 0.1, 0.03)

# Rows without a label that can teach a kernel.
_ENOUGH_ROWS = 10
_NO_RESTARTS = np.random.default_rng(0)

# Matrices of all rows that a fit holds at its peak: 7 to 9, measured with 1,500 rows.
_DENSE_MATRICES = 9


@dataclass(frozen=True)
class Model:
    """Kernel (resolved to column positions) and likelihood on data. theta is the kernel's, then the likelihood's."""

    kernel: Kernel
    likelihood: Likelihood
    X: Array
    obs: Observations
    problem: dense.DenseProblem | lowrank.LowRankProblem = field(repr=False)

    @classmethod
    def dense(cls, kernel: Kernel, likelihood: Likelihood, X: Array, obs: Observations) -> Model:
        """Return a model with full covariance matrices."""
        n = len(X)
        check_memory(
            _DENSE_MATRICES * n**2, f"Dense inference with {n:,} rows", 'Use inference="lowrank" or fewer rows.'
        )
        return cls(kernel, likelihood, X, obs, dense.prepare(X, obs, likelihood))

    @classmethod
    def lowrank(cls, kernel: Kernel, likelihood: Likelihood, X: Array, obs: Observations, block: Block) -> Model:
        """Return a model with the features planned in `block`."""
        n, m = len(X), block.size
        what = f"Low-rank inference with {n:,} rows and {m:,} features"
        check_memory(4 * n * m + 4 * m**2, what, "Lower n_features, or use fewer rows.")
        return cls(kernel, likelihood, X, obs, lowrank.prepare(X, obs, likelihood, block))

    @property
    def block(self) -> Block | None:
        """The plan of features; None if inference is dense."""
        return self.problem.block if isinstance(self.problem, lowrank.LowRankProblem) else None

    @cached_property
    def theta(self) -> Array:
        """Logs of all free hyper-parameters."""
        return np.concatenate([self.kernel.theta, self.likelihood.theta])

    @cached_property
    def bounds(self) -> Array:
        """Bounds of `theta`, one row each."""
        return np.concatenate([self.kernel.bounds, self.likelihood.bounds])

    def with_theta(self, theta: Array) -> Model:
        """Return the model at other hyper-parameters, on the same data."""
        k = self.kernel.theta.size
        return replace(self, kernel=self.kernel.with_theta(theta[:k]), likelihood=self.likelihood.with_theta(theta[k:]))

    def planned_for(self, theta: Array, budget: int) -> Model:
        """Return the model at theta, with features planned for it if inference is low rank."""
        at = self.with_theta(theta)
        if self.block is None:
            return at
        block = plan(at.kernel, self.X, left_out=LEFT_OUT, budget=budget)
        return Model.lowrank(at.kernel, at.likelihood, self.X, self.obs, block)

    def infer(self, theta: Array, start: Sites | None = None, *, gradient: bool = True, tol: float = 1e-8) -> Inference:
        """Compute posterior, evidence and gradient at theta."""
        at = self.with_theta(theta)
        if isinstance(self.problem, dense.DenseProblem):
            return dense.infer(at.kernel, at.likelihood, self.problem, start, gradient=gradient, tol=tol)
        return lowrank.infer(at.kernel, at.likelihood, self.problem, start, gradient=gradient, tol=tol)

    def log_prior(self, theta: Array) -> tuple[float, Array]:
        """Return the log prior density of the hyper-parameters, and its gradient."""
        at = self.with_theta(theta)
        (a, ga), (b, gb) = at.kernel.log_prior(), at.likelihood.log_prior()
        return a + b, np.concatenate([ga, gb])

    def prior_information(self) -> Array:
        """Return minus the second derivatives of the log prior, which is quadratic: a difference is exact."""
        theta = self.theta
        return np.diag(self.log_prior(theta)[1] - self.log_prior(theta + 1.0)[1])

    def objective(self, theta: Array, start: Sites | None) -> Evaluation[Sites]:
        """Return log evidence plus log prior, as `unmet.evidence.maximise` expects it."""
        result = self.infer(theta, start, tol=SEARCH_TOL)
        value, slope = self.log_prior(theta)
        assert result.gradient is not None
        information = None if result.information is None else result.information + self.prior_information()
        return Evaluation(
            result.log_z + value, result.gradient + slope, result.sites, result.info.converged, information
        )

    def features(self) -> pd.DataFrame | None:
        """Return the features of each part of the kernel and the fraction of its variance they miss; None if dense."""
        return None if self.block is None else pd.DataFrame(self.block.describe(self.kernel))


def search(
    model: Model,
    as_given: Kernel,
    *,
    optimizer: Optimizer,
    n_restarts: int,
    max_iter: int,
    budget: int,
    rng: np.random.Generator,
) -> tuple[Model, Optimum[Sites]]:
    """Maximise the evidence. Low-rank features are planned again until they fit the length-scales found.

    Parameters
    ----------
    model : Model
        The model at its starting values.
    as_given : Kernel
        The kernel as given by the user. Its open length-scales may be moved to a better start.
    optimizer, n_restarts, max_iter : str, int, int
        See `unmet.evidence.maximise`.
    budget : int
        Most features.
    rng : Generator
        Generator of the random starts.

    Returns
    -------
    model : Model
        The model at the maximum.
    optimum : Optimum
        Diagnostics of the search.
    """
    # The likelihood's start first: length-scales that suit a wrong one may be far from all good ones.
    begun = [_best_lengths(_best_start(model), as_given, budget)]
    if (taught := _taught(model, as_given, optimizer, max_iter, budget)) is not None:
        begun = sorted([*begun, _best_start(taught)], key=lambda tried: -tried.value)
        if _known_exact(model.obs).sum() >= _ENOUGH_ROWS:
            begun = begun[:1]
    model = begun[0].model
    starts = [*(tried.model.theta for tried in begun), *random_starts(model.theta, model.bounds, n_restarts, rng)]
    climb = partial(maximise, optimizer=optimizer, max_iter=max_iter, measure_curvature=model.block is None)
    evaluations = 0
    for _ in range(_ROUNDS):
        optimum = climb(model.objective, starts, model.bounds)
        evaluations += optimum.evaluations
        model = model.with_theta(optimum.theta)
        again = planned_better(model, budget)
        if again is None:
            break
        model, starts = again, [again.theta]
    return model, replace(optimum, evaluations=evaluations)


class _Tried(NamedTuple):
    """A start of the search, and its log evidence plus log prior; −∞ where it was not computed."""

    model: Model
    value: float


def _best_start(model: Model) -> _Tried:
    """The model at the one of its likelihood's starts that has the highest evidence."""
    best, best_value, sites = model, -np.inf, None
    for likelihood in model.likelihood.starts():
        tried = replace(model, likelihood=likelihood)
        result = tried.infer(tried.theta, sites, gradient=False, tol=SEARCH_TOL)
        value, sites = result.log_z + tried.log_prior(tried.theta)[0], result.sites
        if result.info.converged and value > best_value:
            best, best_value = tried, value
    return _Tried(best, best_value)


def _known_exact(obs: Observations) -> BoolArray:
    """Rows that are known to have no label."""
    return np.ones(len(obs), dtype=bool) if obs.short is None else obs.short == 0


def _taught(model: Model, as_given: Kernel, optimizer: Optimizer, max_iter: int, budget: int) -> Model | None:
    """The model with kernel and noise learnt on rows without a label; None where these are no better start.

    Kernel and share have to suit each other. A search from a wrong kernel ends at a peak near it; these rows tell the
    kernel whatever the share is, at a tenth of the cost. Where some labels are not known, the rows known to have none
    are few, and the kernel that they teach is a worse start than the one that was given. Where hardly any are, those
    that may have none teach instead. Some of them are short, so this kernel may be further off than the given one.
    """
    likelihood, short = model.likelihood, model.obs.short
    if not (isinstance(likelihood, Shared) and likelihood.starts()) or short is None:
        return None
    exact = _known_exact(model.obs)
    if exact.sum() < _ENOUGH_ROWS:
        exact = short != 1
    elif not np.isin(short, (0.0, 1.0)).all():
        return None
    if exact.sum() < _ENOUGH_ROWS or not np.ptp(model.obs.lower[exact]) > 0:
        return None
    X, obs = model.X[exact], replace(model.obs[exact], short=None)
    if model.block is None:
        part = Model.dense(model.kernel, likelihood.base, X, obs)
    else:
        part = Model.lowrank(model.kernel, likelihood.base, X, obs, model.block)
    if not part.theta.size:
        return None
    part, _ = search(
        part, as_given, optimizer=optimizer, n_restarts=0, max_iter=max_iter, budget=budget, rng=_NO_RESTARTS
    )
    taught = replace(model, kernel=part.kernel, likelihood=replace(likelihood, base=part.likelihood))
    return taught.planned_for(taught.theta, budget)


def planned_better(model: Model, budget: int) -> Model | None:
    """Return the model with features planned for its current theta; None if they suffice or cannot be improved."""
    if model.block is None or model.block.left_out(model.kernel) <= 1.5 * LEFT_OUT:
        return None
    try:
        again = model.planned_for(model.theta, budget)
    except InputError:  # length-scales too short for the budget
        return None
    assert again.block is not None
    return again if again.block.left_out(again.kernel) < 0.9 * model.block.left_out(model.kernel) else None


def _best_lengths(begun: _Tried, as_given: Kernel, budget: int) -> _Tried:
    """Return the start at the best of a few multiples of the open length-scales.

    Periodic kernels come first, so that the other kernels do not explain what repeats.
    """
    for kind in (Periodic, Stationary):
        begun = _best_lengths_of(kind, begun, as_given, budget)
    return begun


def _best_lengths_of(kind: type[Leaf], begun: _Tried, as_given: Kernel, budget: int) -> _Tried:
    model = begun.model
    movable = np.concatenate(
        [
            np.full(p.theta.size, isinstance(leaf, kind) and name == "lengthscale" and given.is_open)
            for leaf, before in zip(model.kernel.leaves(), as_given.leaves(), strict=True)
            for (name, p), given in zip(leaf.parameters.items(), before.parameters.values(), strict=True)
        ]
        + [np.zeros(model.likelihood.theta.size)]
    )
    if not movable.any():
        return begun
    low, high = model.bounds.T
    best, best_value, sites = model, -np.inf, None
    for factor in _LENGTHS_TRIED:
        theta = np.clip(model.theta + np.log(factor) * movable, low, high)
        try:
            tried = model.planned_for(theta, budget)
        except InputError:  # length-scales too short for the budget
            continue
        result = tried.infer(theta, sites, gradient=False)
        value, sites = result.log_z + tried.log_prior(theta)[0], result.sites
        if result.info.converged and value > best_value:
            best, best_value = tried, value
    return _Tried(best, best_value)
