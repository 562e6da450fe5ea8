"""The start of a `CensoredGP` fit: units of y, and hyper-parameters from the scales of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unmet._exceptions import InputError
from unmet._parameters import Parameter
from unmet._typing import Array
from unmet.estimators._likelihoods import COUNTS, log_level, make_likelihood
from unmet.estimators._model import LEFT_OUT, Model
from unmet.estimators._tobit import normal_moments
from unmet.inference.planning import plan
from unmet.kernels import Constant, Kernel, SquaredExponential
from unmet.kernels.scales import scales_of
from unmet.likelihoods.base import Observations

if TYPE_CHECKING:
    from unmet.estimators.censored_gp import CensoredGP

__all__ = ["starting_model"]

_DENSE_ROWS = 2000  # inference="auto" is dense up to this many rows


def starting_model(
    gp: CensoredGP, X: Array, obs: Observations, *, budget: int
) -> tuple[Model, Kernel, tuple[float, float]]:
    """Return the model at its starting values, the kernel as given (columns by position), and mean and scale of y.

    Parameters
    ----------
    gp : CensoredGP
        The estimator, with its settings and the names of its columns.
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
    if gp.likelihood in COUNTS:
        level = log_level(obs) if gp.normalize_y else 0.0
        level_variance += log_level(obs) ** 2 - level**2
    elif gp.normalize_y:
        y_mean, y_scale = normal_moments(obs)
        obs = Observations((obs.lower - y_mean) / y_scale, (obs.upper - y_mean) / y_scale)
    else:
        mean, spread = normal_moments(obs)
        variance, level_variance = spread**2, spread**2 + mean**2
    given = gp.kernel if gp.kernel is not None else _default_kernel(level_variance)
    names = list(gp.feature_names_in_) if hasattr(gp, "feature_names_in_") else None
    as_given = given.resolved(names, X.shape[1])
    likelihood = make_likelihood(gp.likelihood, gp.noise_variance, gp.dispersion, variance=variance, level=level)
    kernel = as_given.filled(scales_of(X, variance))
    # With a background sites may need negative precisions, which the factor of dense inference cannot hold.
    mixed = obs.background is not None and bool((obs.background > 0).any())
    if gp.inference == "dense" and mixed:
        raise InputError("inference='dense' takes no background: use 'auto' or 'lowrank'")
    if gp.inference == "dense" or (gp.inference == "auto" and len(X) <= _DENSE_ROWS and not mixed):
        return Model.dense(kernel, likelihood, X, obs), as_given, (y_mean, y_scale)
    block = plan(kernel, X, left_out=LEFT_OUT, budget=budget)
    return Model.lowrank(kernel, likelihood, X, obs, block), as_given, (y_mean, y_scale)


def _default_kernel(level_variance: float) -> Kernel:
    """Return a kernel with one length-scale per column and a level, so that bands include the uncertainty of the level.

    The variance of the level is fixed: the evidence of one level for one series would always shrink it to zero.
    """
    return SquaredExponential(lengthscale="per column") + Constant(Parameter(level_variance, fixed=True))
