"""One set of hyper-parameters for several data sets, from the sum of their evidences.

A single data set may carry little information about a variance or a length-scale. Many similar ones carry enough
together, and each then needs no search of its own (empirical Bayes over data sets).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unmet._exceptions import InputError
from unmet._linalg import one_blas_thread
from unmet._typing import Array
from unmet.estimators._model import SEARCH_TOL, Model, planned_better
from unmet.estimators._share import Given
from unmet.evidence import Evaluation, Optimum, maximise
from unmet.inference.ep import Sites
from unmet.spreading import Spread, in_turn

if TYPE_CHECKING:
    from unmet.estimators.censored_gp import CensoredGP

__all__ = ["Together", "learn_together", "with_data"]

_ROUNDS = 2
_States = tuple[Sites | None, ...]
# Step of the finite difference for the curvature in the likelihood's own hyper-parameter.
_DIFFERENCE = 0.05


@dataclass(frozen=True)
class Together:
    """Hyper-parameters learnt from several data sets.

    Attributes
    ----------
    model : Model
        The first model, at the hyper-parameters that fit all data sets best.
    optimum : Optimum
        Diagnostics of the search.
    likelihood_sd : float
        Standard deviation of the log of the likelihood's hyper-parameter, given the kernel's. 0 if the likelihood has
        no free hyper-parameter, or if the data do not bound it.
    """

    model: Model
    optimum: Optimum[_States]
    likelihood_sd: float


def with_data(gp: CensoredGP, X: Any, y: Any, *, exposure: Any = None) -> CensoredGP:
    """Give a model its data for `learn_together`. Unlike `CensoredGP.fit` it computes no posterior, so it is fast.

    Examples
    --------
    >>> from unmet.estimators import CensoredGP
    >>> gps = [with_data(CensoredGP(likelihood="poisson"), [[0.0], [1.0], [2.0]], y) for y in ([1, 2, 4], [2, 2, 3])]
    >>> learn_together(gps).optimum.converged
    True
    """
    return gp._set_data(Given(X, y, exposure=exposure))


def learn_together(
    fitted: Sequence[CensoredGP], *, max_iter: int = 1000, least_gain: float = 0.0, spread: Spread = in_turn
) -> Together:
    """Maximise the sum of the log evidences of several models, plus their log prior, counted once.

    Parameters
    ----------
    fitted : sequence of CensoredGP
        Models fitted to their data, or `with_data`, with the same kernel and likelihood. The search starts at the
        hyper-parameters of the first one.
    max_iter : int
        Iterations of the optimiser each time that low-rank features are planned.
    least_gain : float
        Stop when an iteration gains less than this, in nats of all data sets together.
    spread : callable
        Where evidences are evaluated: see `unmet.spreading`. They are added in the order of `fitted`, so it changes no
        digit.

    Returns
    -------
    Together
    """
    models = [gp._model for gp in fitted]
    if not models or any(model.kernel.theta_names != models[0].kernel.theta_names for model in models):
        raise InputError("Hyper-parameters are learnt together from one or more models that have the same ones.")
    budgets = [gp._budget() for gp in fitted]
    theta = models[0].theta
    with one_blas_thread():
        for _ in range(_ROUNDS):
            objective = _Sum(tuple(models), spread(_infer, models))
            optimum = maximise(
                objective, [theta], models[0].bounds, optimizer="scoring", max_iter=max_iter, least_gain=least_gain
            )
            theta = optimum.theta
            models = [model.with_theta(theta) for model in models]
            again = [planned_better(model, budget) for model, budget in zip(models, budgets, strict=True)]
            if not any(again):
                break
            models = [better or model for better, model in zip(again, models, strict=True)]
        return Together(models[0], optimum, _likelihood_sd(objective, optimum))


def _likelihood_sd(objective: _Sum, optimum: Optimum[_States]) -> float:
    """Return the standard deviation by Laplace's method: the second derivative is a difference of gradients."""
    if not objective.models[0].likelihood.theta.size:
        return 0.0
    low, high = objective.models[0].bounds[-1]
    at = np.clip(optimum.theta[-1] + np.array([-_DIFFERENCE, _DIFFERENCE]), low, high)
    slopes = [objective(np.append(optimum.theta[:-1], value), optimum.state).gradient[-1] for value in at]
    curvature = (slopes[0] - slopes[1]) / (at[1] - at[0])
    return float(1 / np.sqrt(curvature)) if curvature > 0 else 0.0


@dataclass(frozen=True)
class _Sum:
    """The objective, as `unmet.evidence.maximise` expects it. Each model has its own warm start."""

    models: tuple[Model, ...]
    infer_all: Callable[[Sequence[tuple[Array, Sites | None]]], list[_Inferred]]

    def __call__(self, theta: Array, states: _States | None) -> Evaluation[_States]:
        value, gradient = self.models[0].log_prior(theta)
        after = []
        information: Array | None = self.models[0].prior_information()
        for found in self.infer_all([(theta, sites) for sites in states or (None,) * len(self.models)]):
            value, gradient = value + found.log_z, gradient + found.gradient
            if information is not None:
                information = None if found.information is None else information + found.information
            after.append(found.sites)
        return Evaluation(value, gradient, tuple(after), information=information)


class _Inferred(NamedTuple):
    """The part of an `Inference` that the search needs."""

    log_z: float
    gradient: Array
    sites: Sites
    information: Array | None


def _infer(model: Model, at: tuple[Array, Sites | None]) -> _Inferred:
    with one_blas_thread():
        result = model.infer(*at, tol=SEARCH_TOL)
    assert result.gradient is not None
    return _Inferred(result.log_z, result.gradient, result.sites, result.information)
