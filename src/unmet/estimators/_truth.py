"""True values and shares of rows that were observed, by a fitted `CensoredGP`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from unmet._exceptions import InputError
from unmet._typing import Array
from unmet.estimators._model import Model
from unmet.estimators._predictions import check_draws
from unmet.estimators._share import Given, read_given, shares_of, without_own_sites
from unmet.estimators._start import standardised
from unmet.estimators.inputs import read_rows, whole_number
from unmet.inference.result import Inference
from unmet.likelihoods.base import Observations
from unmet.likelihoods.share import Shared
from unmet.likelihoods.share_counts import SharedCounts

__all__ = ["Truths"]


class Truths(BaseEstimator):
    """Methods of `CensoredGP` that estimate what was behind an observed row."""

    censoring: str
    censoring_: str
    y_mean_: float
    y_scale_: float
    _model: Model
    _inference: Inference

    def predict_share(
        self, X: Any, y: Any, censored: Any = None, *, censored_probability: Any = None, exposure: Any = None
    ) -> pd.DataFrame:
        """Posterior of each row's share and of its true value, given its y and label (``censoring="share"``).

        Parameters
        ----------
        X, y, censored, censored_probability, exposure : array-like
            As of `fit`. Rows that the model was fitted on (the same X, y and label) are recognised, and are not
            counted twice.

        Returns
        -------
        DataFrame
            One row per row of X: ``share`` and ``share_sd``; ``value`` and ``value_sd``, mean and standard deviation
            of the true value in y's units; ``label_probability``, how likely the row is short.
        """
        check_is_fitted(self)
        if not isinstance(self._model.likelihood, Shared):
            raise InputError(f"predict_share needs a model with censoring='share'; this one has {self.censoring_!r}")
        given = Given(X, y, censored, exposure=exposure, probability=censored_probability)
        inputs, obs = read_given(self, self._model.likelihood, given, reset=False)
        return self._shares(inputs, standardised(obs, self.y_mean_, self.y_scale_))

    def predict_truth(self, X: Any, y: Any, censored: Any = None) -> pd.DataFrame:
        """Posterior of each row's true value, given its y and label (Gaussian values).

        Parameters
        ----------
        X, y, censored : array-like
            As of `fit`. Rows that the model was fitted on are recognised, and are not counted twice.

        Returns
        -------
        DataFrame
            ``value`` and ``value_sd``, mean and standard deviation of the true value in y's units. An exact row is its
            own true value, and so is every row where labels are ignored; where labelled rows are dropped, theirs is
            predicted from the others.
        """
        check_is_fitted(self)
        likelihood = self._model.likelihood
        if isinstance(likelihood, Shared):
            return self.predict_share(X, y, censored)[["value", "value_sd"]]
        if likelihood.units != "y":
            raise InputError("predict_truth is defined for Gaussian values, and for counts with censoring='share'.")
        table, obs = read_rows(self, X, y, censored, None, None, reset=False)
        if self.censoring_ == "ignore":
            return pd.DataFrame({"value": np.where(np.isfinite(obs.lower), obs.lower, obs.upper), "value_sd": 0.0})
        if self.censoring_ == "drop":
            free = ~obs.exact
            obs = replace(obs, lower=np.where(free, -np.inf, obs.lower), upper=np.where(free, np.inf, obs.upper))
        obs = standardised(obs, self.y_mean_, self.y_scale_)
        mean, var = self._inference.posterior.marginals(table)
        mean, var = without_own_sites(self._model, self._inference.sites, table, obs, mean, np.maximum(var, 0.0))
        # y* ~ N(mean, total) cut to its bounds: E[y*] = m + total·d1, Var[y*] = total (1 + total·d2).
        tilted, total = likelihood.tilted(obs, mean, var), likelihood.predict(mean, var)[1]
        spread = total * np.maximum(1.0 + total * tilted.d2, 0.0)
        value = self.y_mean_ + self.y_scale_ * (mean + total * tilted.d1)
        return pd.DataFrame({"value": value, "value_sd": self.y_scale_ * np.sqrt(spread)})

    def _shares(self, X: Array, obs: Observations) -> pd.DataFrame:
        likelihood = self._model.likelihood
        assert isinstance(likelihood, Shared)
        mean, var = self._inference.posterior.marginals(X)
        cavity = without_own_sites(self._model, self._inference.sites, X, obs, mean, np.maximum(var, 0.0))
        return shares_of(likelihood, obs, *cavity, self.y_mean_, self.y_scale_)

    def sample_truth(
        self,
        X: Any,
        y: Any,
        censored: Any = None,
        size: int = 1,
        *,
        censored_probability: Any = None,
        exposure: Any = None,
        random_state: Any = None,
    ) -> Array:
        """Draw true values of observed rows jointly, given their y and labels (counts with ``censoring="share"``).

        Parameters
        ----------
        X, y, censored, censored_probability, exposure : array-like
            Rows of the fit.
        size : int
            Number of draws.
        random_state : int, RandomState or None
            Seed.

        Returns
        -------
        array of shape (size, n)
            Whole numbers, never below y.
        """
        check_is_fitted(self)
        whole_number("size", size, 0)
        likelihood = self._model.likelihood
        if not isinstance(likelihood, SharedCounts):
            raise InputError("sample_truth needs a count likelihood and censoring='share'.")
        given = Given(X, y, censored, exposure=exposure, probability=censored_probability)
        inputs, obs = read_given(self, likelihood, given, reset=False)
        check_draws(size, len(inputs))
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
        f = self._inference.posterior.sample(inputs, size, rng)
        return obs.lower + likelihood.sample_lost(obs, f, rng)
