"""The log-rate at rows that a model has learnt from, by the other rows alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmet._typing import Array, IntArray
from unmet.estimators.censored_gp import CensoredGP

__all__ = ["left_out_log_rate"]


def left_out_log_rate(gp: CensoredGP, X: Any, rows: IntArray, group: NDArray[Any]) -> tuple[Array, Array, Array]:
    """Mean and variance of the log-rate at X, for each row without the training rows of its group.

    The third array is the covariance of each row with the next one of its group; NaN for the last one.

    EP's cavity of a whole group: with the posterior ``N(μ, Σ)`` at its rows and their sites ``(T, ν)``, it has the
    covariance ``(I − ΣT)⁻¹ Σ`` and the mean ``(I − ΣT)⁻¹ (μ − Σν)``. Hyper-parameters and the sites of the other rows
    stay as they are, so it takes no other fit.

    Parameters
    ----------
    gp : CensoredGP
        A fitted model of counts.
    X : array-like or DataFrame of shape (n, d)
        Inputs, with those that it was fitted to.
    rows : integer array
        Positions in X of the training rows, in their order.
    group : array of shape (n,)
        Group of each row of X.

    Examples
    --------
    A count that nobody else saw moves the estimate only where it is used:

    >>> x, y = np.arange(20.0)[:, None], np.full(20, 3.0)
    >>> y[10] = 30.0
    >>> gp = CensoredGP(likelihood="poisson", optimizer=None).fit(x, y)
    >>> mean, *_ = left_out_log_rate(gp, x, np.arange(20), np.arange(20))
    >>> bool(mean[10] < np.log(gp.predict(x[10:11]))[0])
    True
    """
    inputs, posterior, sites = gp._inputs(X), gp._inference.posterior, gp._inference.sites
    tau, nu = np.zeros(len(inputs)), np.zeros(len(inputs))
    tau[rows], nu[rows] = sites.tau, sites.nu
    mean, var, ahead = np.empty(len(inputs)), np.empty(len(inputs)), np.full(len(inputs), np.nan)
    for one in np.unique(group):
        at = np.flatnonzero(group == one)
        mu, cov = posterior.joint(inputs[at])
        inner = np.eye(len(at)) - cov * tau[at]
        solved = np.linalg.solve(inner, np.column_stack([cov, mu - cov @ nu[at]]))
        mean[at], var[at], ahead[at[:-1]] = solved[:, -1], np.diagonal(solved), np.diagonal(solved, 1)[: len(at) - 1]
    likelihood = gp._model.likelihood
    return np.log(likelihood.rate(mean)), var, ahead
