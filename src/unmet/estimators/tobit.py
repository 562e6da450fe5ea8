"""`TobitRegressor`: the linear Tobit model by maximum likelihood, with standard errors."""

from __future__ import annotations

import os
import warnings
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from unmet._exceptions import ConvergenceWarning, InputError, UninformativeWarning
from unmet._numbers import read_switch, refuse_other_order
from unmet._typing import Array, BoolArray
from unmet.estimators._identified import endless_direction, undetermined
from unmet.estimators._score import r2_on_exact_rows
from unmet.estimators._storage import finite_array, finite_number, names_in, read_archive, restoring, write_archive
from unmet.estimators._tobit import TobitFit, fit_tobit, size_of
from unmet.estimators.inputs import (
    KINDS,
    all_or_nothing,
    choice,
    probabilities,
    read_rows,
    read_table,
    whole_number,
)
from unmet.likelihoods.base import Observations

__all__ = ["TobitRegressor"]


class TobitRegressor(RegressorMixin, BaseEstimator):
    """Linear regression with censored observations (Tobin 1958; paper eqs. 1–5).

    Parameters
    ----------
    fit_intercept : bool
        Whether to include an intercept.
    max_iter : int
        Most Newton steps.

    Attributes
    ----------
    coef_, intercept_, scale_ : array, float, float
        Slopes, intercept, and standard deviation of the noise.
    coef_se_, intercept_se_, scale_se_ : array, float, float
        Standard errors from the observed information; infinite for columns that repeat each other.
    covariance_ : array of shape (d + 2, d + 2)
        Covariance of slopes, intercept and scale, from the observed information.
    log_likelihood_ : float
        Log-likelihood at the maximum.
    n_iter_ : int
        Newton steps used.
    converged_ : bool
        Whether the likelihood has a maximum, and Newton's method found it.

    See Also
    --------
    CensoredGP : Gaussian process regression with censored observations.

    References
    ----------
    Tobin (1958), "Estimation of relationships for limited dependent variables".
    Olsen (1978), "Note on the uniqueness of the maximum likelihood estimator for the Tobit model".

    Examples
    --------
    >>> import numpy as np
    >>> from unmet import TobitRegressor
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(0, 10, size=(500, 1))
    >>> wanted = 3 + 2 * x[:, 0] + rng.normal(size=500)
    >>> tobit = TobitRegressor().fit(x, np.minimum(wanted, 15), censored=wanted > 15)
    >>> tobit.coef_.round(1)
    array([2.])
    """

    def __init__(self, *, fit_intercept: bool = True, max_iter: int = 100) -> None:
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any = None, censored: Any = None, *, lower: Any = None, upper: Any = None) -> Self:
        """Fit by maximum likelihood.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Inputs.
        y : array-like of shape (n,), optional
            Observed values. May be left out if every row has `lower` or `upper`.
        censored : array-like of shape (n,), optional
            True or +1: the true value is at least y. −1: at most y. False or 0: exactly y.
        lower, upper : array-like of shape (n,), optional
            Bounds of the true value; NaN for no bound. Rows with neither are exact at y.

        Returns
        -------
        self
        """
        read_switch(self.fit_intercept, "fit_intercept")
        whole_number("max_iter", self.max_iter, 1)
        with all_or_nothing(self):
            X, obs = read_rows(self, X, y, censored, lower, upper)
            _refuse_one_sided(obs)
            centre, spread = _centre_and_spread(X, self.fit_intercept)
            design = (X - centre) / spread
            if self.fit_intercept:
                design = np.column_stack([design, np.ones(len(X))])
            # A level far larger than the spread would cost digits of the slopes.
            level = _level(obs) if self.fit_intercept else 0.0
            centred = Observations(obs.lower - level, obs.upper - level)
            fit = fit_tobit(design, centred, max_iter=self.max_iter)
            size = size_of(centred)
            endless = endless_direction(design, Observations(centred.lower / size, centred.upper / size))
            back = self._back(centre, spread)
            sizes = np.sqrt(np.mean(np.square(X), axis=0))
            repeated = undetermined(design, back, np.append(np.where(sizes > 0, sizes, 1.0), 1.0))
            self._keep(fit, back, level, repeated)
            # About the centre, where it loses no digits however far that is from 0; finite also for repeated columns.
            self._centre, self._covariance = centre, self._propagated(fit, self._back(np.zeros_like(centre), spread))
            self.converged_ = fit.converged and endless is None
        self._warn(fit, endless, repeated)
        return self

    def _back(self, centre: Array, spread: Array) -> Array:
        """Return the linear map from coefficients of the centred and scaled design to slopes and intercept."""
        d = centre.size
        back = np.zeros((d + 1, d + self.fit_intercept))
        back[:d, :d] = np.diag(1.0 / spread)
        if self.fit_intercept:
            back[d, :d], back[d, d] = -centre / spread, 1.0
        return back

    def _propagated(self, fit: TobitFit, back: Array) -> Array:
        """Return the covariance of slopes, intercept and scale, by the map from those of the design."""
        whole = np.zeros((len(back) + 1, back.shape[1] + 1))
        whole[:-1, :-1], whole[-1, -1] = back, 1.0
        return np.asarray(whole @ fit.covariance @ whole.T)

    def _keep(self, fit: TobitFit, back: Array, level: float, repeated: BoolArray) -> None:
        d = len(back) - 1
        estimate = back @ fit.coef
        self.covariance_ = self._propagated(fit, back)
        lost = np.flatnonzero(repeated)
        self.covariance_[lost, lost] = np.inf
        errors = np.sqrt(np.maximum(np.diag(self.covariance_), 0.0))
        self.coef_, self.intercept_, self.scale_ = estimate[:d], level + float(estimate[d]), fit.scale
        self.coef_se_, self.intercept_se_, self.scale_se_ = errors[:d], float(errors[d]), float(errors[-1])
        self.log_likelihood_, self.n_iter_ = fit.log_likelihood, fit.iterations

    def _warn(self, fit: TobitFit, endless: Array | None, repeated: BoolArray) -> None:
        if repeated.any():
            relation = "repeat each other" if repeated.sum() > 1 else "is 0 throughout"
            warnings.warn(
                f"{self._names(repeated)} {relation}: predictions are valid, but these coefficients are not identified "
                "and have infinite standard errors. Leave out columns until none can be computed from the others.",
                UninformativeWarning,
                stacklevel=3,
            )
        if endless is not None and endless[-1] < 1e-6:  # γ stays finite: only coefficients diverge
            columns = np.abs(endless[:-1]) > 1e-6
            problem = f"{self._names(columns)} separate rows that are bounded on one side only: coefficients diverge"
        elif endless is not None:
            problem = "the model fits the rows exactly: the scale goes to 0"
        else:
            problem = "Newton's method did not converge"
        if not self.converged_:
            warnings.warn(
                f"Found no maximum of the Tobit likelihood after {fit.iterations} steps (scale {fit.scale:.3g}): "
                f"{problem}. Try: 1. fewer columns than exact rows; 2. leave out columns that repeat each other, or "
                "that are nonzero on censored rows only; 3. a larger max_iter.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _names(self, columns: BoolArray) -> str:
        """Return the names of the columns, and last the intercept, for a sentence."""
        d = self.n_features_in_
        names = [repr(n) for n in getattr(self, "feature_names_in_", range(d))]
        which = [names[i] for i in np.flatnonzero(columns[:d])]
        words = f"column{'s' if len(which) > 1 else ''} {', '.join(which)}" if which else ""
        return " and ".join(filter(None, [words, "the intercept" if columns[d:].any() else ""]))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the expected uncensored value.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Inputs.
        return_std : bool
            Whether to return its standard error as well. See `predict_quantiles` for a new observation.

        Returns
        -------
        mean : array of shape (n,)
        std : array of shape (n,), if `return_std`
        """
        check_is_fitted(self)
        read_switch(return_std, "return_std")
        table = read_table(self, X, reset=False)
        mean = np.asarray(table @ self.coef_ + self.intercept_)
        if not return_std:
            return mean
        rows = np.column_stack([table - self._centre, np.ones(len(table))])
        variance = np.sum((rows @ self._covariance[:-1, :-1]) * rows, axis=1)
        return mean, np.sqrt(np.maximum(variance, 0.0))

    def predict_quantiles(self, X: Any, q: Any = (0.05, 0.5, 0.95), kind: str = "demand") -> Array:
        """Predict quantiles, with the uncertainty of the coefficients (but not that of the scale).

        Parameters and result are those of `CensoredGP.predict_quantiles`; "latent" is the expectation.
        """
        levels = probabilities(q)
        choice("kind", kind, KINDS)
        mean, std = self.predict(X, return_std=True)
        if kind == "demand":
            std = np.hypot(std, self.scale_)
        quantiles = mean[:, None] + np.outer(std, ndtri(levels))
        return quantiles if levels.ndim else quantiles[:, 0]

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, censored: Any = None, *, lower: Any = None, upper: Any = None
    ) -> float:
        """Return R² of the predicted mean over the exact rows.

        Parameters
        ----------
        X, y : array-like
            Inputs and observed values.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows.
        censored, lower, upper : array-like of shape (n,), optional
            Labels and bounds as in `fit`. Censored rows are left out.

        Returns
        -------
        float
        """
        refuse_other_order(X, y=y, censored=censored, lower=lower, upper=upper, sample_weight=sample_weight)
        return r2_on_exact_rows(y, self.predict(X), sample_weight, censored, lower, upper)

    def summary(self) -> pd.DataFrame:
        """Return estimates, standard errors, z values and 95 % intervals, one row per coefficient."""
        check_is_fitted(self)
        names = list(getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)]))
        estimate, error = list(self.coef_), list(self.coef_se_)
        if self.fit_intercept:
            names, estimate, error = (
                [*names, "intercept"],
                [*estimate, self.intercept_],
                [*error, self.intercept_se_],
            )
        names, estimate, error = [*names, "scale"], [*estimate, self.scale_], [*error, self.scale_se_]
        table = pd.DataFrame({"estimate": estimate, "se": error}, index=names)
        with np.errstate(divide="ignore", invalid="ignore"):
            table["z"] = table["estimate"] / table["se"]
        table["p"] = 2 * ndtr(-table["z"].abs())
        table["low"] = table["estimate"] - 1.959964 * table["se"]
        table["high"] = table["estimate"] + 1.959964 * table["se"]
        return table

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file of arrays and JSON. `load` reads it.

        Parameters
        ----------
        path : path
            The file to write.
        """
        check_is_fitted(self)
        header = {
            "estimator": type(self).__name__,
            "settings": self.get_params(),
            "fitted": {name: getattr(self, name) for name in _NUMBERS},
            "feature_names_in": list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None,
        }
        write_archive(path, header, {name: getattr(self, name) for name in _ARRAYS})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model written by `save`. Raises `FileFormatError` if the file is damaged or not such a model.

        Parameters
        ----------
        path : path
            The file to read.

        Returns
        -------
        TobitRegressor
        """
        header, arrays = read_archive(path)
        with restoring(path, header, cls.__name__):
            tobit = cls(**header["settings"])
            for name in _NUMBERS:
                value = header["fitted"][name]
                if isinstance(value, bool) != (name == "converged_"):
                    raise InputError(f"{name}: expected {'true or false' if name == 'converged_' else 'a number'}")
                if not isinstance(value, int | float) or (isinstance(value, int) and abs(value) > _LARGEST):
                    raise InputError(f"{name}: expected a number, got {value!r:.60}")
                setattr(tobit, name, value)
            for name in ("intercept_", "scale_"):
                finite_number(header["fitted"][name], name)
            arrays.setdefault("_centre", np.zeros_like(arrays["coef_"]))  # of earlier versions
            for name in _ARRAYS:
                setattr(tobit, name, arrays[name])
            for name in ("coef_", "_centre"):
                finite_array(arrays, name)
            d = tobit.n_features_in_
            for name in _ARRAYS:
                shape = (d + 2, d + 2) if "covariance" in name else (d,)
                if arrays[name].shape != shape:
                    raise InputError(f"{name}: expected an array of shape {shape}, got {arrays[name].shape}")
            if (names := names_in(header, tobit.n_features_in_)) is not None:
                tobit.feature_names_in_ = names
        return tobit


# Fitted attributes that a file contains.
_NUMBERS = (
    *("intercept_", "scale_", "intercept_se_", "scale_se_"),
    *("log_likelihood_", "n_iter_", "converged_", "n_features_in_"),
)
_ARRAYS = ("coef_", "coef_se_", "covariance_", "_covariance", "_centre")
_LARGEST = 2**53  # whole number: a larger one in a file may not fit into a float


def _level(obs: Observations) -> float:
    return float(np.median(np.concatenate([obs.lower[np.isfinite(obs.lower)], obs.upper[np.isfinite(obs.upper)]])))


def _centre_and_spread(X: Array, shift: bool) -> tuple[Array, Array]:
    """Return centre and spread of the columns. Scaled by them, Newton's equations are well conditioned in any units."""
    centre = X.mean(axis=0) if shift else np.zeros(X.shape[1])
    spread = np.sqrt(np.mean(np.square(X - centre), axis=0))
    return centre, np.where(spread > 0, spread, 1.0)


def _refuse_one_sided(obs: Observations) -> None:
    """Raise `InputError` if all rows are censored to the same side, because the likelihood then grows without bound."""
    bounded_above, bounded_below = np.isfinite(obs.upper), np.isfinite(obs.lower)
    if not (bounded_above.any() and bounded_below.any()):
        side = "from above" if bounded_below.any() else "from below"
        raise InputError(
            f"All {len(obs)} rows are censored {side}, so nothing bounds the fit on the other side. "
            "Give exact rows, or rows censored on both sides."
        )
