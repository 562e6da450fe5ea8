"""`CensoredGP`: the paper's three models, and counts with exposure, as one scikit-learn estimator."""

from __future__ import annotations

import os
import warnings
from typing import Any, Literal, Self

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from unmet._exceptions import ConvergenceWarning, InputError, NumericalWarning
from unmet._parameters import Parameter
from unmet._typing import Array
from unmet.estimators._labels import as_asked, bounded_both_ways, observations, with_exposure
from unmet.estimators._likelihoods import COUNTS, LIKELIHOODS, log_level, make_likelihood
from unmet.estimators._model import LEFT_OUT, Model, search
from unmet.estimators._saved_gp import describe, restore
from unmet.estimators._score import ScoredOnExactRows
from unmet.estimators._storage import read_archive, write_archive
from unmet.estimators._tobit import normal_moments
from unmet.evidence import Optimum
from unmet.inference.ep import Sites
from unmet.inference.planning import plan
from unmet.kernels import Constant, Kernel, SquaredExponential
from unmet.kernels.base import scales_of
from unmet.likelihoods.base import Observations
from unmet.likelihoods.counts import NegativeBinomial
from unmet.likelihoods.gaussian import Gaussian

__all__ = ["CensoredGP"]

_CENSORING = ("model", "drop", "ignore")
_INFERENCE = ("auto", "dense", "lowrank")
_DENSE_ROWS = 2000  # "auto" is dense up to here
_FEATURES = 400  # most features where the user sets no number


class CensoredGP(ScoredOnExactRows, BaseEstimator):
    """Gaussian process regression in which some observations are only bounds (paper section 3.4).

    Parameters
    ----------
    kernel : Kernel, optional
        Covariance function; by default `SquaredExponential` with one length-scale per column, plus a `Constant` for the
        level. Hyper-parameters left open take their start and bounds from the data.
    likelihood : {"gaussian", "poisson", "negative-binomial"}
        Gaussian noise (the paper's); or counts with a log link, which may have exposure.
    noise_variance : float or Parameter, optional
        Gaussian: variance of the observation noise, a start for the optimiser; None takes a tenth of the data's.
    dispersion : float or Parameter, optional
        Negative binomial: variance beyond Poisson, ``λ + dispersion·λ²``; a start, by default 0.1.
    censoring : {"model", "drop", "ignore"}
        "model" is the paper's CGP; "drop" leaves censored rows out (NCGP-A); "ignore" takes them as exact (NCGP).
    optimizer : {"lbfgs", "adam"} or None
        How the evidence is maximised; None keeps hyper-parameters as given.
    n_restarts : int
        Further random starts of the optimiser.
    normalize_y : bool
        Work on ``(y − y_mean_)/y_scale_``, from a normal fitted with regard to censoring; `kernel` and
        `noise_variance` are then in those units. With False they are in y's own. For counts, f then varies about
        the log of the mean rate rather than about 0.
    inference : {"auto", "dense", "lowrank"}
        Full covariance matrices, features in weight space, or (auto) dense up to 2,000 rows.
    n_features : int, optional
        Most features of low-rank inference, by default 400; as many are used as the length-scales need.
    max_iter : int
        Iterations of the optimiser per start.
    random_state : int, RandomState or None
        Seed of the restarts.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel at its learnt hyper-parameters.
    noise_variance_, dispersion_ : float
        The likelihood's learnt hyper-parameter, in the units of the argument; only the one that it has.
    log_marginal_likelihood_ : float
        Log evidence of the data in y's own units (EP's where rows are censored).
    converged_ : bool
        Whether the optimiser and EP converged.
    optimum_ : Optimum or None
        How the search went: evaluations, value reached by each start, message.
    features_ : DataFrame or None
        Low-rank features: kernel, kind, count and the share of the prior variance left out; None where dense.
    n_iter_ : int
        Evaluations of the evidence.
    y_mean_, y_scale_ : float
        What y was standardised with: 0 and 1 if not.

    Examples
    --------
    >>> import numpy as np
    >>> from unmet import CensoredGP
    >>> x = np.linspace(0, 10, 60)[:, None]
    >>> demand = 5 + 2 * np.sin(x[:, 0])
    >>> supply = 6.0
    >>> gp = CensoredGP().fit(x, np.minimum(demand, supply), censored=demand > supply)
    >>> bool(gp.predict([[7.85]])[0] > supply)  # the peak was never seen
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
    ) -> Self:
        """Fit hyper-parameters and posterior.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Inputs.
        y : array-like of shape (n,), optional
            Observed values; may be left out where `lower` and `upper` tell all.
        censored : array-like of shape (n,), optional
            True, or +1: the truth is at least y; −1: at most y; False, or 0: exactly y.
        lower, upper : array-like of shape (n,), optional
            Bounds of the truth, NaN for none; rows with neither are exact at y.
        exposure : array-like of shape (n,), optional
            Counts only: share of the bin in which demand could be served, 0…1. Rows with exposure 0 say nothing.
        """
        self._check_settings()
        X = validate_data(self, X, dtype=np.float64)
        if y is None and lower is None and upper is None:
            raise InputError("fit requires y to be passed, but the target y is None; or give lower= and upper=")
        y = None if y is None else column_or_1d(y, warn=True)
        counts = self.likelihood in COUNTS
        obs = with_exposure(observations(len(X), y, censored, lower, upper), exposure, counts=counts)
        model, as_given = self._start(*as_asked(X, obs, self.censoring, counts=counts))
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
        self._report()
        return self

    def _check_settings(self) -> None:
        if self.kernel is not None and not isinstance(self.kernel, Kernel):
            raise InputError(f"kernel must be one of unmet.kernels, or None; got {self.kernel!r}")
        for name, value, allowed in (
            ("likelihood", self.likelihood, LIKELIHOODS),
            ("censoring", self.censoring, _CENSORING),
            ("inference", self.inference, _INFERENCE),
        ):
            if value not in allowed:
                raise InputError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
        for name, number, least in (
            ("n_restarts", self.n_restarts, 0),
            ("max_iter", self.max_iter, 1),
            ("n_features", self._budget(), 1),
        ):
            if number < least:
                raise InputError(f"{name} must be {least} or more; got {number}")

    def _budget(self) -> int:
        return _FEATURES if self.n_features is None else self.n_features

    def _start(self, X: Array, obs: Observations) -> tuple[Model, Kernel]:
        """The model at its starting values, and the kernel as it was given, columns by position."""
        self.y_mean_, self.y_scale_, variance, level = 0.0, 1.0, 1.0, 0.0
        level_variance = 1.0
        if self.likelihood in COUNTS:
            level = log_level(obs) if self.normalize_y else 0.0
            level_variance += log_level(obs) ** 2 - level**2
        elif self.normalize_y:
            self.y_mean_, self.y_scale_ = normal_moments(obs)
            obs = Observations((obs.lower - self.y_mean_) / self.y_scale_, (obs.upper - self.y_mean_) / self.y_scale_)
        else:
            mean, spread = normal_moments(obs)
            variance, level_variance = spread**2, spread**2 + mean**2
        given = self.kernel if self.kernel is not None else _default_kernel(level_variance)
        names = list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        as_given = given.resolved(names, X.shape[1])
        likelihood = make_likelihood(
            self.likelihood, self.noise_variance, self.dispersion, variance=variance, level=level
        )
        kernel = as_given.filled(scales_of(X, variance))
        if self.inference == "dense" or (self.inference == "auto" and len(X) <= _DENSE_ROWS):
            return Model.dense(kernel, likelihood, X, obs), as_given
        block = plan(kernel, X, left_out=LEFT_OUT, budget=self._budget())
        return Model.lowrank(kernel, likelihood, X, obs, block), as_given

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
        self.converged_ = self._inference.info.converged and (optimum is None or optimum.converged)

    def _log_jacobian(self) -> float:
        """Turns densities of standardised exact values into densities of y; counts are not standardised."""
        return -float(np.log(self.y_scale_) * self._model.obs.exact.sum())

    def _report(self) -> None:
        info, block = self._inference.info, self._model.block
        if info.jitter:
            warnings.warn(
                f"{info.jitter:.1g} was added to the diagonal of the covariance matrix, which was not positive "
                "definite in double precision. Raise noise_variance or its lower bound if that matters.",
                NumericalWarning,
                stacklevel=3,
            )
        missed = 0.0 if block is None else block.left_out(self._model.kernel)
        if block is not None and missed > 10 * LEFT_OUT:
            warnings.warn(
                f"{block.size} features leave out {missed:.1%} of the prior variance of a kernel (see features_). "
                "Raise n_features, use a smoother kernel, or inference='dense'.",
                NumericalWarning,
                stacklevel=3,
            )
        if not self.converged_:
            optimiser = "converged" if self.optimum_ is None or self.optimum_.converged else self.optimum_.message
            warnings.warn(
                f"the fit did not converge (optimiser: {optimiser}; EP: last movement {info.residual:.1g} after "
                f"{info.sweeps} sweeps). Try in turn: 1. n_restarts=3; 2. a larger max_iter; 3. a larger starting or "
                "lower bound of noise_variance; 4. tighter bounds, or priors, on the hyper-parameters.",
                ConvergenceWarning,
                stacklevel=3,
            )

    # --------------------------------------------------------------- prediction

    def _inputs(self, X: Any) -> Array:
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    def _marginals(self, X: Any) -> tuple[Array, Array]:
        inputs = self._inputs(X)
        mean, var = self._inference.posterior.marginals(inputs)
        return mean, np.maximum(var, 0.0)  # below zero is rounding: f is known there to all digits

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """The latent demand: posterior mean of f, in y's units; for counts of the rate of a full bin.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Where to predict.
        return_std, return_cov : bool
            Also give the posterior standard deviation, or the covariance matrix, of the same (not of a new
            observation: see `predict_quantiles`).
        """
        if return_std and return_cov:
            raise InputError("ask for return_std or return_cov, not both")
        if return_cov:
            inputs = self._inputs(X)
            mean, cov = self._model.likelihood.rate_covariance(*self._inference.posterior.joint(inputs))
            return self.y_mean_ + self.y_scale_ * mean, self.y_scale_**2 * cov
        mean, var = self._marginals(X)
        mean, var = self._model.likelihood.rate_moments(mean, var)
        mean = self.y_mean_ + self.y_scale_ * mean
        return (mean, self.y_scale_ * np.sqrt(var)) if return_std else mean

    def predict_quantiles(self, X: Any, q: Any = (0.05, 0.5, 0.95), kind: str = "demand") -> Array:
        """Quantiles, in y's units.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Where to predict.
        q : float or sequence of float
            Probabilities, between 0 and 1.
        kind : {"demand", "latent"}
            Of a new, uncensored observation (whole numbers for counts), or of the latent f (for counts, the rate).

        Returns
        -------
        array of shape (n,) for one probability, else (n, len(q))
        """
        levels = np.asarray(q, dtype=float)
        if levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
            raise InputError(f"q must be one or several probabilities between 0 and 1; got {q!r}")
        _check_kind(kind)
        mean, var = self._marginals(X)
        flat = np.atleast_1d(levels)
        if kind == "demand":
            quantiles = self._model.likelihood.quantile(mean, var, flat)
        else:
            quantiles = self._model.likelihood.rate(mean + np.sqrt(var) * ndtri(flat)[:, None])
        result = self.y_mean_ + self.y_scale_ * quantiles.T
        return result if levels.ndim else result[:, 0]

    def sample(self, X: Any, size: int = 1, kind: str = "latent", random_state: Any = None) -> Array:
        """Draws from the joint posterior, shape ``(size, n)``, in y's units.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Where to draw.
        size : int
            Number of draws.
        kind : {"latent", "demand"}
            Functions f (for counts, rates), or new uncensored observations (for counts, whole numbers).
        random_state : int, RandomState or None
            Seed.
        """
        _check_kind(kind)
        if size < 0:
            raise InputError(f"size must be 0 or more draws; got {size!r}")
        inputs = self._inputs(X)
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
        f = self._inference.posterior.sample(inputs, size, rng)
        likelihood = self._model.likelihood
        return self.y_mean_ + self.y_scale_ * (likelihood.sample(f, rng) if kind == "demand" else likelihood.rate(f))

    def log_marginal_likelihood(self, theta: Array | None = None, eval_gradient: bool = False) -> Any:
        """Log evidence of the training data, in y's own units, at the fitted or other hyper-parameters.

        Parameters
        ----------
        theta : array, optional
            Logarithms of the kernel's free hyper-parameters and, last, of the likelihood's.
        eval_gradient : bool
            Also give the gradient by theta.
        """
        check_is_fitted(self)
        at = self._model.theta if theta is None else np.asarray(theta, dtype=float)
        if at.shape != self._model.theta.shape:
            names = ", ".join([*self._model.kernel.theta_names, f"{self.likelihood} likelihood's own"])
            raise InputError(f"theta must have {self._model.theta.size} values ({names}); got shape {at.shape}")
        result = self._model.infer(at, self._inference.sites, gradient=eval_gradient)
        value = result.log_z + self._log_jacobian()
        return (value, result.gradient) if eval_gradient else value

    @property
    def theta_(self) -> Array:
        """Logarithms of the learnt hyper-parameters: the kernel's, then the likelihood's."""
        check_is_fitted(self)
        return self._model.theta

    # ------------------------------------------------------------------ storage

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file of arrays and JSON; `load` reads it back."""
        check_is_fitted(self)
        write_archive(path, *describe(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model written by `save`; refuses a damaged or foreign file."""
        return restore(cls, path, *read_archive(path))


def _check_kind(kind: str) -> None:
    if kind not in ("demand", "latent"):
        raise InputError(f"kind must be 'demand' or 'latent'; got {kind!r}")


def _default_kernel(level_variance: float) -> Kernel:
    """One length-scale per column, and a level of its own, so that the bands hold what is not known of the level.

    The level's variance is held: the evidence of one level for one series would always shrink it to nothing.
    """
    return SquaredExponential(lengthscale="per column") + Constant(Parameter(level_variance, fixed=True))
