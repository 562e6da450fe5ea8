"""`CensoredGP`: the paper's three models, and counts with exposure, as one scikit-learn estimator."""

from __future__ import annotations

import os
from typing import Any, Literal, Self

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from unmet._exceptions import InputError
from unmet._linalg import one_blas_thread
from unmet._parameters import Parameter
from unmet._typing import Array
from unmet.estimators._frames import naming_rows, refuse_other_order
from unmet.estimators._inputs import (
    KINDS,
    all_or_nothing,
    choice,
    numbers,
    probabilities,
    read_rows,
    read_table,
    switch,
    whole_number,
)
from unmet.estimators._labels import as_asked, bounded_both_ways, with_exposure
from unmet.estimators._likelihoods import COUNTS, LIKELIHOODS
from unmet.estimators._model import Model, search
from unmet.estimators._saved_gp import describe, restore
from unmet.estimators._score import r2_on_exact_rows
from unmet.estimators._start import starting_model
from unmet.estimators._storage import read_archive, write_archive
from unmet.estimators._trouble import warn_of_trouble
from unmet.evidence import Optimum
from unmet.inference.ep import Sites
from unmet.kernels import Kernel
from unmet.likelihoods.base import Observations
from unmet.likelihoods.counts import NegativeBinomial
from unmet.likelihoods.gaussian import Gaussian

__all__ = ["CensoredGP"]

_CENSORING = ("model", "drop", "ignore")
_INFERENCE = ("auto", "dense", "lowrank")
_OPTIMIZERS = ("lbfgs", "adam", None)
_FEATURES = 400  # default of n_features


class CensoredGP(RegressorMixin, BaseEstimator):
    """Gaussian process regression with censored observations (paper section 3.4).

    Parameters
    ----------
    kernel : Kernel, optional
        Covariance function. The default is `SquaredExponential` with one length-scale per column, plus a `Constant` for
        the level. Open hyper-parameters get their starting values and bounds from the data.
    likelihood : {"gaussian", "poisson", "negative-binomial"}
        Gaussian noise (the paper's), or counts with a log link, which may have exposure.
    noise_variance : float or Parameter, optional
        Gaussian: starting value of the variance of the observation noise. None means a tenth of the data's variance.
    dispersion : float or Parameter, optional
        Negative binomial: starting value of the dispersion, by default 0.1. The variance is ``λ + dispersion·λ²``.
    censoring : {"model", "drop", "ignore"}
        "model" is the paper's CGP. "drop" leaves censored rows out (NCGP-A). "ignore" treats them as exact (NCGP).
    optimizer : {"lbfgs", "adam"} or None
        Optimiser of the evidence. None keeps the hyper-parameters as given.
    n_restarts : int
        Number of additional random starts of the optimiser.
    normalize_y : bool
        Whether to work on ``(y − y_mean_)/y_scale_``, with moments of a normal fitted with regard to censoring.
        `kernel` and `noise_variance` are then in those units; with False they are in the units of y. For counts, True
        means that f varies around the log of the mean rate instead of 0.
    inference : {"auto", "dense", "lowrank"}
        "dense" uses full covariance matrices, "lowrank" features in weight space. "auto" is dense up to 2,000 rows
        without background.
    n_features : int, optional
        Most features of low-rank inference, by default 400. The number used depends on the length-scales.
    max_iter : int
        Iterations of the optimiser per start.
    random_state : int, RandomState or None
        Seed of the restarts.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel at its learnt hyper-parameters.
    noise_variance_, dispersion_ : float
        The likelihood's learnt hyper-parameter, in the units of the argument. Only the one that the likelihood has.
    log_marginal_likelihood_ : float
        Log evidence of the data in the units of y (EP's approximation if rows are censored).
    converged_ : bool
        Whether the optimiser and EP converged.
    ep_converged_ : bool
        Whether EP converged at the final hyper-parameters.
    optimum_ : Optimum or None
        Diagnostics of the search: evaluations, value reached by each start, message.
    features_ : DataFrame or None
        Low-rank features: kernel, kind, count and fraction of the prior variance left out. None if dense.
    n_iter_ : int
        Evaluations of the evidence.
    y_mean_, y_scale_ : float
        Mean and scale by which y was standardised: 0 and 1 if it was not.

    See Also
    --------
    TobitRegressor : Linear regression with censored observations.

    Notes
    -----
    `fit` uses one BLAS thread. Small matrices gain nothing from more threads, and lose much on a busy machine. Set
    ``OPENBLAS_NUM_THREADS`` (or ``MKL_``, ``OMP_``) before Python starts to use another number.

    Censored rows are handled by expectation propagation (EP). Where one-sided bounds repeat each other at nearly the
    same input and nothing else bounds f there, its mean is right (to 2 % of a standard deviation) but its standard
    deviation is too small: by up to a tenth for two equal bounds at one input, a sixth for four, a quarter for ten.
    Bands over long stretches without an exact row are too narrow by that much.

    Examples
    --------
    >>> import numpy as np
    >>> from unmet import CensoredGP
    >>> x = np.linspace(0, 10, 60)[:, None]
    >>> demand = 5 + 2 * np.sin(x[:, 0])
    >>> supply = 6.0
    >>> gp = CensoredGP().fit(x, np.minimum(demand, supply), censored=demand > supply)
    >>> bool(gp.predict([[7.85]])[0] > supply)  # the peak was never observed
    True
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        likelihood: Literal["gaussian", "poisson", "negative-binomial"] = "gaussian",
        noise_variance: float | Parameter | None = None,
        dispersion: float | Parameter | None = None,
        censoring: Literal["model", "drop", "ignore"] = "model",
        optimizer: Literal["lbfgs", "adam"] | None = "lbfgs",
        n_restarts: int = 0,
        normalize_y: bool = True,
        inference: Literal["auto", "dense", "lowrank"] = "auto",
        n_features: int | None = None,
        max_iter: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.likelihood = likelihood
        self.noise_variance = noise_variance
        self.dispersion = dispersion
        self.censoring = censoring
        self.optimizer = optimizer
        self.n_restarts = n_restarts
        self.normalize_y = normalize_y
        self.inference = inference
        self.n_features = n_features
        self.max_iter = max_iter
        self.random_state = random_state

    # ------------------------------------------------------------------ fitting

    def fit(
        self,
        X: Any,
        y: Any = None,
        censored: Any = None,
        *,
        lower: Any = None,
        upper: Any = None,
        exposure: Any = None,
        background: Any = None,
    ) -> Self:
        """Learn hyper-parameters and compute the posterior.

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
        exposure : array-like of shape (n,), optional
            Counts only: fraction of the bin in which demand could be served, 0…1. Rows with exposure 0 carry no
            information.
        background : array-like of shape (n,), optional
            Counts only: expected number of counts in the row that are not of this demand (riders who come from a
            neighbour that ran out, stray light, false alarms), at least 0. The mean is then
            ``exposure·rate + background``. Predictions and draws are of the rate, without background.

        Returns
        -------
        self
        """
        self._check_settings()
        with one_blas_thread(), all_or_nothing(self):
            table, obs = read_rows(self, X, y, censored, lower, upper)
            refuse_other_order(X, y=y, exposure=exposure, background=background)
            counts = self.likelihood in COUNTS
            with naming_rows(X, y, exposure, background):
                obs = with_exposure(obs, exposure, background, counts=counts)
            model, as_given, (self.y_mean_, self.y_scale_) = starting_model(
                self, *as_asked(table, obs, self.censoring, counts=counts), budget=self._budget()
            )
            optimum = None
            if self.optimizer is not None and model.theta.size and bounded_both_ways(model.obs):
                model, optimum = search(
                    model,
                    as_given,
                    optimizer=self.optimizer,
                    n_restarts=self.n_restarts,
                    max_iter=self.max_iter,
                    budget=self._budget(),
                    rng=np.random.default_rng(check_random_state(self.random_state).randint(2**31)),
                )
            self._keep(model, optimum, None if optimum is None else optimum.state)
            self.kernel_ = model.kernel.with_columns_of(as_given if self.kernel is None else self.kernel)
        warn_of_trouble(model, self._inference.info, optimum, converged=self.converged_)
        return self

    def _check_settings(self) -> None:
        if self.kernel is not None and not isinstance(self.kernel, Kernel):
            raise InputError(f"kernel must be one of unmet.kernels, or None; got {self.kernel!r}.")
        choice("likelihood", self.likelihood, LIKELIHOODS)
        choice("censoring", self.censoring, _CENSORING)
        choice("inference", self.inference, _INFERENCE)
        choice("optimizer", self.optimizer, _OPTIMIZERS)
        switch("normalize_y", self.normalize_y)
        whole_number("n_restarts", self.n_restarts, 0)
        whole_number("max_iter", self.max_iter, 1)
        whole_number("n_features", self._budget(), 1)

    def _budget(self) -> int:
        return _FEATURES if self.n_features is None else self.n_features

    def _keep(self, model: Model, optimum: Optimum[Sites] | None, sites: Sites | None) -> None:
        self._model = model
        self._inference = model.infer(model.theta, sites, gradient=False)
        self.kernel_ = model.kernel
        if isinstance(model.likelihood, Gaussian):
            self.noise_variance_ = model.likelihood.noise_variance
        elif isinstance(model.likelihood, NegativeBinomial):
            self.dispersion_ = float(np.exp(model.likelihood.log_dispersion))
        self.features_ = model.features()
        self.log_marginal_likelihood_ = self._inference.log_z + self._log_jacobian()
        self.optimum_ = optimum
        self.n_iter_ = 1 if optimum is None else optimum.evaluations
        self.ep_converged_ = self._inference.info.converged
        self.converged_ = self.ep_converged_ and (optimum is None or optimum.converged)

    def _log_jacobian(self) -> float:
        """Return the term that turns densities of standardised exact values into densities of y. 0 for counts."""
        return -float(np.log(self.y_scale_) * self._model.obs.exact.sum())

    # --------------------------------------------------------------- prediction

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
        if return_std and return_cov:
            raise InputError("Set return_std or return_cov, not both.")
        if return_cov:
            inputs = self._inputs(X)
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
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
        f = self._inference.posterior.sample(inputs, size, rng)
        likelihood = self._model.likelihood
        return self.y_mean_ + self.y_scale_ * (likelihood.sample(f, rng) if kind == "demand" else likelihood.rate(f))

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        censored: Any = None,
        exposure: Any = None,
        *,
        lower: Any = None,
        upper: Any = None,
        background: Any = None,
    ) -> float:
        """Return R² of the expected observation: the predicted mean; for counts, ``exposure·rate + background``.

        Parameters
        ----------
        X, y : array-like
            Inputs and observed values.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows.
        censored : array-like of shape (n,), optional
            Labels as in `fit`. Censored rows are left out.
        exposure : array-like of shape (n,), optional
            Exposure as in `fit`. Rows with exposure 0 are left out.
        lower, upper : array-like of shape (n,), optional
            Bounds as in `fit`. Rows with a bound are left out, and y may be NaN there.
        background : array-like of shape (n,), optional
            Background as in `fit`.

        Returns
        -------
        float
        """
        refuse_other_order(
            X, y=y, censored=censored, exposure=exposure, lower=lower, upper=upper, background=background
        )
        expected = self.predict(X)
        if exposure is not None or background is not None:
            seen = Observations(np.zeros(len(expected)), np.zeros(len(expected)))
            seen = with_exposure(seen, exposure, background, counts=self.likelihood in COUNTS)
            if seen.exposure is not None:
                expected = expected * seen.exposure
                open_ = (seen.exposure > 0).astype(float)
                sample_weight = open_ if sample_weight is None else open_ * np.asarray(sample_weight)
            if seen.background is not None:
                expected = expected + seen.background
        return r2_on_exact_rows(y, expected, sample_weight, censored, lower, upper)

    def log_marginal_likelihood(self, theta: Array | None = None, eval_gradient: bool = False) -> Any:
        """Return the log evidence of the training data, in the units of y, at the fitted or other hyper-parameters.

        Parameters
        ----------
        theta : array, optional
            Logs of the kernel's free hyper-parameters, then of the likelihood's.
        eval_gradient : bool
            Whether to return the gradient by theta as well.

        Returns
        -------
        value : float
        gradient : array, if `eval_gradient`
        """
        check_is_fitted(self)
        at = self._model.theta if theta is None else numbers(theta)
        if at is None or at.shape != self._model.theta.shape or not np.isfinite(at).all():
            names = ", ".join([*self._model.kernel.theta_names, f"{self.likelihood} likelihood's own"])
            raise InputError(f"theta must be {self._model.theta.size} finite numbers ({names}); got {theta!r}.")
        result = self._model.infer(at, self._inference.sites, gradient=eval_gradient)
        value = result.log_z + self._log_jacobian()
        return (value, result.gradient) if eval_gradient else value

    @property
    def theta_(self) -> Array:
        """Logs of the learnt hyper-parameters: the kernel's, then the likelihood's."""
        check_is_fitted(self)
        return self._model.theta

    def with_learnt_parameters(self) -> Self:
        """Return an unfitted copy that starts at the learnt hyper-parameters and keeps them (`optimizer` is None).

        Use it to learn hyper-parameters on some rows and to compute the posterior on all of them.

        Examples
        --------
        >>> import numpy as np
        >>> from unmet import CensoredGP
        >>> x = np.linspace(0, 10, 60)[:, None]
        >>> y = np.sin(x[:, 0])
        >>> gp = CensoredGP().fit(x[::2], y[::2]).with_learnt_parameters().fit(x, y)
        >>> gp.optimum_ is None
        True
        """
        check_is_fitted(self)
        own = ("noise_variance", "dispersion")
        learnt = {name: getattr(self, f"{name}_") for name in own if hasattr(self, f"{name}_")}
        return type(self)(**{**self.get_params(deep=False), **learnt, "kernel": self.kernel_, "optimizer": None})

    # ------------------------------------------------------------------ storage

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file of arrays and JSON. `load` reads it.

        Parameters
        ----------
        path : path
            The file to write.
        """
        check_is_fitted(self)
        write_archive(path, *describe(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model written by `save`. Raises `FileFormatError` if the file is damaged or not such a model.

        Parameters
        ----------
        path : path
            The file to read.

        Returns
        -------
        CensoredGP
        """
        with one_blas_thread():  # as in `fit`: the last digits depend on the number of threads
            return restore(cls, path, *read_archive(path))
