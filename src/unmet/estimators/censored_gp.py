"""`CensoredGP`: the paper's three models as one scikit-learn estimator."""

from __future__ import annotations

import os
import warnings
from typing import Any, Literal, Self

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from unmet._exceptions import ConvergenceWarning, FileFormatError, InputError, NumericalWarning
from unmet._linalg import sample_gaussian
from unmet._parameters import Parameter, as_parameter, parameter_from_dict, parameter_to_dict
from unmet._typing import Array
from unmet.estimators._labels import observations
from unmet.estimators._model import Model
from unmet.estimators._score import ScoredOnExactRows
from unmet.estimators._storage import read_archive, write_archive
from unmet.estimators._tobit import normal_moments
from unmet.evidence import Optimum, maximise, random_starts
from unmet.inference.ep import Sites
from unmet.kernels import Kernel, SquaredExponential, kernel_from_dict
from unmet.kernels.base import scales_of
from unmet.kernels.stationary import Stationary
from unmet.likelihoods.base import Observations
from unmet.likelihoods.gaussian import Gaussian

__all__ = ["CensoredGP"]

_CENSORING = ("model", "drop", "ignore")
# Open length-scales start at the best of these multiples of the data's spread: one decade too long is the usual trap.
_LENGTHS_TRIED = (1.0, 0.3, 0.1, 0.03)
_NOISE_START, _NOISE_BOUNDS = 0.1, (1e-6, 10.0)


class CensoredGP(ScoredOnExactRows, BaseEstimator):
    """Gaussian process regression in which some observations are only bounds (paper section 3.4).

    Parameters
    ----------
    kernel : Kernel, optional
        Covariance function; by default `SquaredExponential` with one length-scale per column. Hyper-parameters left
        open take their start and bounds from the data.
    noise_variance : float or Parameter, optional
        Variance of the observation noise: a start for the optimiser; None takes a tenth of the data's variance.
    censoring : {"model", "drop", "ignore"}
        "model" is the paper's CGP; "drop" leaves censored rows out (NCGP-A); "ignore" takes them as exact (NCGP).
    optimizer : {"lbfgs", "adam"} or None
        How the evidence is maximised; None keeps hyper-parameters as given.
    n_restarts : int
        Further random starts of the optimiser.
    normalize_y : bool
        Work on ``(y − y_mean_)/y_scale_``, from a normal fitted with regard to censoring; `kernel` and
        `noise_variance` are then in those units. With False they are in y's own.
    max_iter : int
        Iterations of the optimiser per start.
    random_state : int, RandomState or None
        Seed of the restarts.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel at its learnt hyper-parameters.
    noise_variance_ : float
        The learnt noise variance, in the units of `noise_variance`.
    log_marginal_likelihood_ : float
        Log evidence of the data in y's own units (EP's where rows are censored).
    converged_ : bool
        Whether the optimiser and EP converged.
    optimum_ : Optimum or None
        How the search went: evaluations, value reached by each start, message.
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
        noise_variance: float | Parameter | None = None,
        censoring: Literal["model", "drop", "ignore"] = "model",
        optimizer: Literal["lbfgs", "adam"] | None = "lbfgs",
        n_restarts: int = 0,
        normalize_y: bool = True,
        max_iter: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.noise_variance = noise_variance
        self.censoring = censoring
        self.optimizer = optimizer
        self.n_restarts = n_restarts
        self.normalize_y = normalize_y
        self.max_iter = max_iter
        self.random_state = random_state

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any = None, censored: Any = None, *, lower: Any = None, upper: Any = None) -> Self:
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
        """
        self._check_settings()
        X = validate_data(self, X, dtype=np.float64)
        if y is None and lower is None and upper is None:
            raise InputError("fit requires y to be passed, but the target y is None; or give lower= and upper=")
        y = None if y is None else column_or_1d(y, warn=True)
        obs = observations(len(X), y, censored, lower, upper)
        X, obs = self._as_asked(X, obs)
        self.y_mean_, self.y_scale_ = normal_moments(obs) if self.normalize_y else (0.0, 1.0)
        obs = _standardised(obs, self.y_mean_, self.y_scale_)
        spread = 1.0 if self.normalize_y else normal_moments(obs)[1] ** 2
        given = self.kernel if self.kernel is not None else SquaredExponential(lengthscale="per column")
        names = list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        resolved = given.resolved(names, X.shape[1])
        kernel = resolved.filled(scales_of(X, spread))
        noise = as_parameter(self.noise_variance).filled(
            _NOISE_START * spread, (_NOISE_BOUNDS[0] * spread, _NOISE_BOUNDS[1] * spread)
        )
        model = Model.of(kernel, Gaussian(noise), X, obs)
        theta, sites = self._search(model, resolved)
        self._keep(model, theta, sites)
        self._report()
        return self

    def _check_settings(self) -> None:
        if self.kernel is not None and not isinstance(self.kernel, Kernel):
            raise InputError(f"kernel must be one of unmet.kernels, or None; got {self.kernel!r}")
        if self.censoring not in _CENSORING:
            raise InputError(f"censoring must be one of {', '.join(_CENSORING)}; got {self.censoring!r}")
        if self.n_restarts < 0 or self.max_iter < 1:
            raise InputError(
                f"n_restarts must be 0 or more and max_iter 1 or more; got {self.n_restarts} and {self.max_iter}"
            )

    def _as_asked(self, X: Array, obs: Observations) -> tuple[Array, Observations]:
        """Rows as the `censoring` setting wants them: all, exact ones only, or all taken for exact."""
        if self.censoring == "drop":
            if not obs.exact.any():
                raise InputError(f"censoring='drop' leaves no rows: all {len(obs)} are censored. Use censoring='model'")
            return X[obs.exact], obs[obs.exact]
        if self.censoring == "ignore":
            low = np.where(np.isfinite(obs.lower), obs.lower, obs.upper)
            high = np.where(np.isfinite(obs.upper), obs.upper, obs.lower)
            middle = 0.5 * (low + high)
            return X, Observations(middle, middle)
        return X, obs

    def _search(self, model: Model, as_given: Kernel) -> tuple[Array, Sites | None]:
        self.optimum_: Optimum[Sites] | None = None
        if self.optimizer is None or model.theta.size == 0:
            return model.theta, None
        start = _best_lengths(model, as_given)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        starts = [start, *random_starts(start, model.bounds, self.n_restarts, rng)]
        self.optimum_ = maximise(
            model.objective, starts, model.bounds, optimizer=self.optimizer, max_iter=self.max_iter
        )
        return self.optimum_.theta, self.optimum_.state

    def _keep(self, model: Model, theta: Array, sites: Sites | None) -> None:
        self._model = model.with_theta(theta)
        self._inference = self._model.infer(theta, sites, gradient=False)
        self.kernel_ = self._model.kernel
        self.noise_variance_ = self._model.likelihood.noise_variance
        self.log_marginal_likelihood_ = self._inference.log_z + self._log_jacobian()
        self.n_iter_ = 1 if self.optimum_ is None else self.optimum_.evaluations
        self.converged_ = self._inference.info.converged and (self.optimum_ is None or self.optimum_.converged)

    def _log_jacobian(self) -> float:
        """Turns densities of standardised exact values into densities of y."""
        return -float(np.log(self.y_scale_) * self._model.obs.exact.sum())

    def _report(self) -> None:
        info = self._inference.info
        if info.jitter:
            warnings.warn(
                f"{info.jitter:.1g} was added to the diagonal of the covariance matrix, which was not positive "
                "definite in double precision. Raise noise_variance or its lower bound if that matters.",
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

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """The latent demand: posterior mean of f, in y's units.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Where to predict.
        return_std, return_cov : bool
            Also give the posterior standard deviation, or the covariance matrix, of f (not of a new observation:
            see `predict_quantiles`).
        """
        if return_std and return_cov:
            raise InputError("ask for return_std or return_cov, not both")
        inputs = self._inputs(X)
        if return_cov:
            mean, cov = self._inference.posterior.joint(inputs)
            return self.y_mean_ + self.y_scale_ * mean, self.y_scale_**2 * cov
        mean, var = self._marginals(inputs)
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
            Of a new, uncensored observation, or of the latent f.

        Returns
        -------
        array of shape (n,) for one probability, else (n, len(q))
        """
        levels = np.asarray(q, dtype=float)
        if levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
            raise InputError(f"q must be one or several probabilities between 0 and 1; got {q!r}")
        _check_kind(kind)
        mean, var = self._marginals(self._inputs(X))
        flat = np.atleast_1d(levels)
        if kind == "demand":
            quantiles = self._model.likelihood.quantile(mean, var, flat)
        else:
            quantiles = mean + np.sqrt(var) * ndtri(flat)[:, None]
        result = self.y_mean_ + self.y_scale_ * quantiles.T
        return result if levels.ndim else result[:, 0]

    def _marginals(self, inputs: Array) -> tuple[Array, Array]:
        mean, var = self._inference.posterior.marginals(inputs)
        return mean, np.maximum(var, 0.0)  # below zero is rounding: f is known there to all digits

    def sample(self, X: Any, size: int = 1, kind: str = "latent", random_state: Any = None) -> Array:
        """Draws from the joint posterior, shape ``(size, n)``, in y's units.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Where to draw.
        size : int
            Number of draws.
        kind : {"latent", "demand"}
            Functions f, or new uncensored observations.
        random_state : int, RandomState or None
            Seed.
        """
        _check_kind(kind)
        mean, cov = self._inference.posterior.joint(self._inputs(X))
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
        draws = sample_gaussian(mean, cov, size, rng)
        if kind == "demand":
            draws = self._model.likelihood.sample(draws, rng)
        return self.y_mean_ + self.y_scale_ * draws

    def log_marginal_likelihood(self, theta: Array | None = None, eval_gradient: bool = False) -> Any:
        """Log evidence of the training data, in y's own units, at the fitted or other hyper-parameters.

        Parameters
        ----------
        theta : array, optional
            Logarithms of the kernel's free hyper-parameters and, last, of the noise variance.
        eval_gradient : bool
            Also give the gradient by theta.
        """
        check_is_fitted(self)
        at = self._model.theta if theta is None else np.asarray(theta, dtype=float)
        if at.shape != self._model.theta.shape:
            raise InputError(
                f"theta must have {self._model.theta.size} values "
                f"({', '.join(self._model.theta_names)}); got shape {at.shape}"
            )
        result = self._model.infer(at, self._inference.sites, gradient=eval_gradient)
        value = result.log_z + self._log_jacobian()
        return (value, result.gradient) if eval_gradient else value

    @property
    def theta_(self) -> Array:
        """Logarithms of the learnt hyper-parameters: the kernel's, then the noise variance."""
        check_is_fitted(self)
        return self._model.theta

    # ------------------------------------------------------------------ storage

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file of arrays and JSON; `load` reads it back."""
        check_is_fitted(self)
        settings = {k: v for k, v in self.get_params(deep=False).items() if k != "random_state"}
        settings["kernel"] = None if self.kernel is None else self.kernel.to_dict()
        if isinstance(self.noise_variance, Parameter):
            settings["noise_variance"] = parameter_to_dict(self.noise_variance)
        header = {
            "estimator": type(self).__name__,
            "settings": settings,
            "kernel": self.kernel_.to_dict(),
            "noise_variance": parameter_to_dict(self._model.likelihood.parameter),
            "y_mean": self.y_mean_,
            "y_scale": self.y_scale_,
            "converged": self.converged_,
            "n_features_in": self.n_features_in_,
            "feature_names_in": list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None,
        }
        model, sites = self._model, self._inference.sites
        arrays = {
            "X": model.X,
            "lower": model.obs.lower,
            "upper": model.obs.upper,
            "tau": sites.tau,
            "nu": sites.nu,
        }
        write_archive(path, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model written by `save`; refuses a damaged or foreign file."""
        header, arrays = read_archive(path)
        if header.get("estimator") != cls.__name__:
            raise FileFormatError(f"{path}: holds a {header.get('estimator')}, not a {cls.__name__}")
        settings = dict(header["settings"])
        settings["kernel"] = None if settings["kernel"] is None else kernel_from_dict(settings["kernel"])
        if isinstance(settings["noise_variance"], dict):
            settings["noise_variance"] = parameter_from_dict(settings["noise_variance"])
        gp = cls(**settings)
        gp.n_features_in_ = header["n_features_in"]
        if header["feature_names_in"] is not None:
            gp.feature_names_in_ = np.array(header["feature_names_in"], dtype=object)
        gp.y_mean_, gp.y_scale_, gp.optimum_ = header["y_mean"], header["y_scale"], None
        noise = Gaussian(parameter_from_dict(header["noise_variance"]))
        obs = Observations(arrays["lower"], arrays["upper"])
        model = Model.of(kernel_from_dict(header["kernel"]), noise, arrays["X"], obs)
        gp._keep(model, model.theta, Sites(arrays["tau"], arrays["nu"]))
        gp.converged_ = header["converged"]
        return gp


def _check_kind(kind: str) -> None:
    if kind not in ("demand", "latent"):
        raise InputError(f"kind must be 'demand' or 'latent'; got {kind!r}")


def _standardised(obs: Observations, mean: float, scale: float) -> Observations:
    return Observations((obs.lower - mean) / scale, (obs.upper - mean) / scale)


def _best_lengths(model: Model, as_given: Kernel) -> Array:
    """The start of the search: of a few multiples of the length-scales that were left open, the best."""
    movable = np.concatenate(
        [
            np.full(p.theta.size, isinstance(leaf, Stationary) and name == "lengthscale" and given.is_open)
            for leaf, before in zip(model.kernel.leaves(), as_given.leaves(), strict=True)
            for (name, p), given in zip(leaf.parameters.items(), before.parameters.values(), strict=True)
        ]
        + [np.zeros(model.likelihood.theta.size)]
    )
    if not movable.any():
        return model.theta
    low, high = model.bounds.T
    tried = [np.clip(model.theta + np.log(factor) * movable, low, high) for factor in _LENGTHS_TRIED]
    return max(tried, key=lambda theta: model.infer(theta, gradient=False).log_z + model.log_prior(theta)[0])
