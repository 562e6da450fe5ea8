"""The start of a `CensoredGP` fit: units of y, and hyper-parameters from the scales of the data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from unmet._parameters import Parameter
from unmet._typing import Array
from unmet.estimators._likelihoods import log_level
from unmet.estimators._model import LEFT_OUT, Model
from unmet.estimators._tobit import normal_moments
from unmet.inference.planning import plan
from unmet.kernels import Constant, Kernel, SquaredExponential
from unmet.kernels.scales import scales_of
from unmet.likelihoods.base import Likelihood, Observations

if TYPE_CHECKING:
    from unmet.estimators.censored_gp import CensoredGP

__all__ = ["standardised", "starting_model"]

_DENSE_ROWS = 2000  # inference="auto" is dense up to this many rows


def starting_model(
    gp: CensoredGP, likelihood: Likelihood, X: Array, obs: Observations, *, budget: int
) -> tuple[Model, Kernel, tuple[float, float]]:
    """Return the model at its starting values, the kernel as given (columns by position), and mean and scale of y.

    Parameters
    ----------
    gp : CensoredGP
        Its settings, and the names of its columns.
    likelihood : Likelihood
        As given: open hyper-parameters are taken from the data.
    X, obs : array of shape (n, d), Observations
        The data.
    budget : int
        Most features of low-rank inference.

    Returns
    -------
    model : Model
    as_given : Kernel
    units : tuple of two floats
    """
    y_mean, y_scale, variance, level, level_variance = 0.0, 1.0, 1.0, 0.0, 1.0
    if likelihood.units == "log rate":
        level = log_level(_not_short(obs)) if gp.normalize_y else 0.0
        level_variance += log_level(_not_short(obs)) ** 2 - level**2
    elif likelihood.units == "y" and gp.normalize_y:
        y_mean, y_scale = normal_moments(_not_short(obs))
        obs = standardised(obs, y_mean, y_scale)
    elif likelihood.units == "y":
        mean, spread = normal_moments(_not_short(obs))
        variance, level_variance = spread**2, spread**2 + mean**2
    given = gp.kernel if gp.kernel is not None else _default_kernel(level_variance)
    names = list(gp.feature_names_in_) if hasattr(gp, "feature_names_in_") else None
    as_given = given.resolved(names, X.shape[1])
    likelihood = likelihood.filled(variance=variance, level=level, zero=-y_mean / y_scale)
    kernel = as_given.filled(scales_of(X, variance))
    if gp.inference == "dense" or (gp.inference == "auto" and len(X) <= _DENSE_ROWS):
        return Model.dense(kernel, likelihood, X, obs), as_given, (y_mean, y_scale)
    block = plan(kernel, X, left_out=LEFT_OUT, budget=budget)
    return Model.lowrank(kernel, likelihood, X, obs, block), as_given, (y_mean, y_scale)


def standardised(obs: Observations, mean: float, scale: float) -> Observations:
    """The observations in units in which `mean` is 0 and `scale` is 1."""
    return replace(obs, lower=(obs.lower - mean) / scale, upper=(obs.upper - mean) / scale)


def _not_short(obs: Observations) -> Observations:
    """The rows that are not labelled as shares of the truth, if these have a spread; else all."""
    if obs.short is None:
        return obs
    exact = obs.short == 0
    return obs[exact] if exact.any() and np.ptp(obs.lower[exact]) > 0 else obs


def _default_kernel(level_variance: float) -> Kernel:
    """Return a kernel with one length-scale per column and a level, so that bands include the uncertainty of the level.

    The variance of the level is fixed: the evidence of one level for one series would always shrink it to zero.
    """
    return SquaredExponential(lengthscale="per column") + Constant(Parameter(level_variance, fixed=True))
