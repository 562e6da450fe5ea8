"""One set of hyper-parameters for several data sets: what each tells of them adds up.

A data set alone may say little of a variance or a length-scale. Many that are alike say it together, and each then
needs no search of its own (empirical Bayes over data sets).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unmet._exceptions import InputError
from unmet._linalg import one_blas_thread
from unmet._typing import Array
from unmet.estimators._model import LEFT_OUT, SEARCH_TOL, Model
from unmet.evidence import Evaluation, Optimum, maximise
from unmet.inference.ep import Sites

if TYPE_CHECKING:
    from unmet.estimators.censored_gp import CensoredGP

__all__ = ["learn_together"]

_ROUNDS = 2
_States = tuple[Sites | None, ...]


def learn_together(fitted: Sequence[CensoredGP], *, max_iter: int = 1000) -> tuple[Model, Optimum[_States]]:
    """Maximise the sum of the log evidences of several models, plus their prior, counted once.

    Parameters
    ----------
    fitted : sequence of CensoredGP
        Fitted to their data with the same kernel and likelihood; the search starts at the first one's
        hyper-parameters.
    max_iter : int
        Iterations of the optimiser each time that low-rank features are planned.

    Returns
    -------
    Model, Optimum
        The first model at the hyper-parameters that suit all best, and how the search went.
    """
    models = [gp._model for gp in fitted]
    if not models or any(model.kernel.theta_names != models[0].kernel.theta_names for model in models):
        raise InputError("hyper-parameters can be learnt together by one or more models that have the same ones")
    budgets = [gp._budget() for gp in fitted]
    theta = models[0].theta
    with one_blas_thread():
        for _ in range(_ROUNDS):
            objective = _Sum(tuple(models))
            optimum = maximise(objective, [theta], models[0].bounds, max_iter=max_iter)
            theta = optimum.theta
            models = [model.with_theta(theta) for model in models]
            short = [m.block is not None and m.block.left_out(m.kernel) > 1.5 * LEFT_OUT for m in models]
            if not any(short):
                break
            models = [m.planned_for(theta, budget) for m, budget in zip(models, budgets, strict=True)]
    return models[0], optimum


@dataclass(frozen=True)
class _Sum:
    """The objective, as `unmet.evidence.maximise` wants it; each model has a warm start of its own."""

    models: tuple[Model, ...]

    def __call__(self, theta: Array, states: _States | None) -> Evaluation[_States]:
        value, gradient = self.models[0].log_prior(theta)
        after = []
        for model, sites in zip(self.models, states or (None,) * len(self.models), strict=True):
            result = model.infer(theta, sites, tol=SEARCH_TOL)
            assert result.gradient is not None
            value, gradient = value + result.log_z, gradient + result.gradient
            after.append(result.sites)
        return Evaluation(value, gradient, tuple(after))
