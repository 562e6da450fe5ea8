"""Predictions of a fitted `CensoredGP` at any inputs: mean, spread, quantiles and draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from unmet._exceptions import InputError
from unmet._memory import check_memory
from unmet._numbers import read_switch
from unmet._typing import Array
from unmet.estimators._model import Model
from unmet.estimators.inputs import KINDS, choice, probabilities, read_table, whole_number
from unmet.inference.result import Inference

__all__ = ["Predictions", "check_draws"]


class Predictions(BaseEstimator):
    """Methods of `CensoredGP` that predict the demand at given inputs."""

    y_mean_: float
    y_scale_: float
    _model: Model
    _inference: Inference

    def _inputs(self, X: Any) -> Array:
        check_is_fitted(self)
        return read_table(self, X, reset=False)

    def _marginals(self, X: Any) -> tuple[Array, Array]:
        inputs = self._inputs(X)
        mean, var = self._inference.posterior.marginals(inputs)
        return mean, np.maximum(var, 0.0)  # a negative variance is rounding error

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Predict the latent demand: the posterior mean of f in the units of y; for counts, of the rate of a full bin.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Inputs.
        return_std, return_cov : bool
            Whether to return the posterior standard deviation, or the covariance matrix, of the latent demand as well.
            See `predict_quantiles` for those of a new observation.

        Returns
        -------
        mean : array of shape (n,)
        std : array of shape (n,), if `return_std`
        cov : array of shape (n, n), if `return_cov`
        """
        if read_switch(return_std, "return_std") and read_switch(return_cov, "return_cov"):
            raise InputError("Set return_std or return_cov, not both.")
        if read_switch(return_cov, "return_cov"):
            inputs = self._inputs(X)
            _check_joint(len(inputs), "Use return_std=True, or predict fewer points at a time.")
            mean, cov = self._model.likelihood.rate_covariance(*self._inference.posterior.joint(inputs))
            return self.y_mean_ + self.y_scale_ * mean, self.y_scale_**2 * cov
        mean, var = self._marginals(X)
        mean, var = self._model.likelihood.rate_moments(mean, var)
        mean = self.y_mean_ + self.y_scale_ * mean
        return (mean, self.y_scale_ * np.sqrt(var)) if return_std else mean

    def predict_quantiles(self, X: Any, q: Any = (0.05, 0.5, 0.95), kind: str = "demand") -> Array:
        """Predict quantiles, in the units of y.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Inputs.
        q : float or sequence of float
            Probabilities, between 0 and 1.
        kind : {"demand", "latent"}
            "demand" is a new, uncensored observation (whole numbers for counts). "latent" is f (for counts, the rate).

        Returns
        -------
        array of shape (n,) for one probability, else (n, len(q))
        """
        levels = probabilities(q)
        choice("kind", kind, KINDS)
        mean, var = self._marginals(X)
        flat = np.atleast_1d(levels)
        if kind == "demand":
            quantiles = self._model.likelihood.quantile(mean, var, flat)
        else:
            quantiles = self._model.likelihood.rate(mean + np.sqrt(var) * ndtri(flat)[:, None])
        result = self.y_mean_ + self.y_scale_ * quantiles.T
        return result if levels.ndim else result[:, 0]

    def sample(self, X: Any, size: int = 1, kind: str = "latent", random_state: Any = None) -> Array:
        """Draw from the joint posterior, in the units of y.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Inputs.
        size : int
            Number of draws.
        kind : {"latent", "demand"}
            "latent" draws functions f (for counts, rates). "demand" draws new, uncensored observations (for counts,
            whole numbers).
        random_state : int, RandomState or None
            Seed.

        Returns
        -------
        array of shape (size, n)
        """
        choice("kind", kind, KINDS)
        whole_number("size", size, 0)
        inputs = self._inputs(X)
        if self._model.block is None:
            _check_joint(len(inputs), 'Draw fewer points at a time, or fit with inference="lowrank".')
        check_draws(size, len(inputs))
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
        f = self._inference.posterior.sample(inputs, size, rng)
        likelihood = self._model.likelihood
        return self.y_mean_ + self.y_scale_ * (likelihood.sample(f, rng) if kind == "demand" else likelihood.rate(f))


def check_draws(size: int, points: int) -> None:
    """Refuse more draws than memory has room for: normal numbers, functions and their rates."""
    check_memory(3 * int(size) * points, f"{size:,} draws of {points:,} points", "Draw fewer at a time.")


def _check_joint(points: int, instead: str) -> None:
    """Refuse a covariance of more points than memory has room for: 4.3 matrices at its peak, measured."""
    check_memory(9 * points**2 // 2, f"The joint posterior of {points:,} points", instead)
