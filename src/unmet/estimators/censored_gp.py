"""`CensoredGP`: the paper's three models, and counts with exposure, as one scikit-learn estimator."""

from __future__ import annotations

import os
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from unmet._exceptions import InputError
from unmet._linalg import one_blas_thread
from unmet._numbers import read_switch, refuse_other_order
from unmet._parameters import Parameter
from unmet._typing import Array
from unmet.estimators._auto import choose
from unmet.estimators._likelihoods import make_likelihood
from unmet.estimators._model import Model, search
from unmet.estimators._predictions import Predictions
from unmet.estimators._saved_gp import describe, restore
from unmet.estimators._score import r2_on_exact_rows
from unmet.estimators._share import Given, LearntShare, read_given, short_rows, with_shares
from unmet.estimators._start import starting_model
from unmet.estimators._storage import read_archive, write_archive
from unmet.estimators._trouble import warn_of_trouble
from unmet.estimators._truth import Truths
from unmet.estimators.frames import naming_rows
from unmet.estimators.inputs import all_or_nothing, choice, numbers, read_table, whole_number
from unmet.estimators.labels import as_asked, bounded_both_ways, vector, with_exposure
from unmet.evidence import Optimizer, Optimum
from unmet.inference.ep import Sites
from unmet.kernels import Kernel
from unmet.likelihoods.base import Likelihood, Observations
from unmet.likelihoods.beta import Beta
from unmet.likelihoods.share import Shared

__all__ = ["CensoredGP"]

_CENSORING = ("model", "drop", "ignore", "share", "auto")
_INFERENCE = ("auto", "dense", "lowrank")
_OPTIMIZERS = ("lbfgs", "scoring", "adam", None)
_FEATURES = 400  # default of n_features
# EP's tolerance, in posterior standard deviations. Features leave out a thousandth of the prior variance already; the
# looser one takes a third less time.
_TOL, _LOWRANK_TOL = 1e-8, 1e-5


class CensoredGP(Predictions, Truths, RegressorMixin, BaseEstimator):
    """Gaussian process regression with censored observations (paper section 3.4).

    Parameters
    ----------
    kernel : Kernel, optional
        Covariance function; by default `SquaredExponential` with one length-scale per column, plus a `Constant` for the
        level. Hyper-parameters left open take their start and bounds from the data.
    likelihood : {"gaussian", "poisson", "negative-binomial"} or Likelihood
        Gaussian noise (the paper's); or counts with a log link, which may have exposure; or a likelihood of your own
        (see `unmet.likelihoods.Likelihood`).
    noise_variance : float or Parameter, optional
        Gaussian: starting value of the variance of the observation noise. None means a tenth of the data's variance.
    dispersion : float or Parameter, optional
        Negative binomial: variance beyond Poisson, ``λ + dispersion·λ²``; a start, by default 0.1.
    censoring : {"model", "drop", "ignore", "share", "auto"}
        "model" is the paper's CGP; "drop" leaves censored rows out (NCGP-A); "ignore" takes them as exact (NCGP).
        "share" takes a censored row as a share of the truth, ``y = share · y*``, and learns how the share is
        distributed; y must have a true zero, and labels may be missing. "auto" fits all four and takes the one that
        explains the same data best, or "model" where the data cannot tell (see the guide to labels).
    share : Beta, optional
        With ``censoring="share"``: the distribution of the share, held where it is given as numbers; None learns it.
    label_odds : float or Parameter, optional
        With ``censoring="share"``: odds that a row whose label is missing was short, ``π/(1 − π)``. A number holds
        them; None learns them, with the odds of the known labels (without any: 1/2) as their prior.
    optimizer : {"lbfgs", "scoring", "adam"} or None
        Optimiser of the evidence. "scoring" is Fisher scoring: a fraction of the evaluations of "lbfgs" for low-rank
        inference of counts, and the same elsewhere. None keeps the hyper-parameters as given.
    n_restarts : int
        Number of additional random starts of the optimiser.
    normalize_y : bool
        Whether to work on ``(y − y_mean_)/y_scale_``, with moments of a normal fitted with regard to censoring.
        `kernel` and `noise_variance` are then in those units; with False they are in the units of y. For counts, True
        means that f varies around the log of the mean rate instead of 0.
    inference : {"auto", "dense", "lowrank"}
        "dense" uses full covariance matrices, "lowrank" features in weight space. "auto" is dense up to 2,000 rows.
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
        The likelihood's learnt hyper-parameter, in the units of the argument; only the one that it has. A likelihood
        of your own has one such attribute per entry of its `parameters`.
    censoring_ : str
        The setting, or what "auto" has taken; `log_evidence_` has the comparable evidences it went by.
    share_ : LearntShare
        With ``censoring="share"``: α, β, mean and sd of the distribution of the share.
    label_odds_ : float
        With ``censoring="share"``: odds that a row whose label is missing was short; 1 where no label is missing.
    label_probability_ : array of shape (n,)
        With ``censoring="share"``: how likely each row was short, given all data; 0 and 1 where the label was known.
        Counts: without the rows of exposure 0.
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
        likelihood: str | Likelihood = "gaussian",
        noise_variance: float | Parameter | None = None,
        dispersion: float | Parameter | None = None,
        censoring: Literal["model", "drop", "ignore", "share", "auto"] = "model",
        share: Beta | None = None,
        label_odds: float | Parameter | None = None,
        optimizer: Optimizer | None = "lbfgs",
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
        self.share = share
        self.label_odds = label_odds
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
        censored_probability: Any = None,
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
            True, or +1: the truth is at least y; −1: at most y; False, or 0: exactly y. With ``censoring="share"``
            a label may be missing (NaN, None or pd.NA), and the side does not matter.
        lower, upper : array-like of shape (n,), optional
            Bounds of the true value; NaN for no bound. Rows with neither are exact at y.
        exposure : array-like of shape (n,), optional
            Counts only: share of the bin in which demand could be served, 0…1. Rows with exposure 0 say nothing.
        censored_probability : array-like of shape (n,), optional
            With ``censoring="share"``, in place of `censored`: how likely each row is short; NaN where not known.
        background : array-like of shape (n,), optional
            Counts only: expected number of counts in the row that are not of this demand (riders who come from a
            neighbour that ran out, stray light, false alarms), at least 0. The mean is then
            ``exposure·rate + background``. Predictions and draws are of the rate, without background.
        """
        likelihood = self._checked_settings()
        if background is not None and self.censoring not in ("model", "drop", "ignore"):
            raise InputError(f"censoring={self.censoring!r} takes no background; use 'model', 'drop' or 'ignore'")
        if self.censoring == "auto":
            return self._fit_best(X, y, censored, lower, upper, exposure, censored_probability)
        with one_blas_thread(), all_or_nothing(self):
            given = Given(X, y, censored, lower, upper, exposure, censored_probability, background)
            model, as_given = self._starting_model(likelihood, given)
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
            self.censoring_ = self.censoring
        warn_of_trouble(model, self._inference.info, optimum, converged=self.converged_)
        return self

    def _starting_model(self, likelihood: Likelihood, given: Given) -> tuple[Model, Kernel]:
        """Return the model of some data before its search, and its kernel with the columns as given."""
        table, obs = read_given(self, likelihood, given)
        if obs.short is not None:
            likelihood = with_shares(likelihood, self.share, self.label_odds, obs)
        model, as_given, (self.y_mean_, self.y_scale_) = starting_model(
            self, likelihood, *as_asked(table, obs, self.censoring, likelihood), budget=self._budget()
        )
        return model, as_given

    def _set_data(self, given: Given) -> Self:
        """Do what `fit` does before its search: enough for `unmet.estimators.together`."""
        with one_blas_thread(), all_or_nothing(self):
            self._model, _ = self._starting_model(self._checked_settings(), given)
        return self

    def _fit_best(self, X: Any, y: Any, censored: Any, lower: Any, upper: Any, exposure: Any, probability: Any) -> Self:
        if lower is not None or upper is not None:
            raise InputError("censoring='auto' reads labels, not bounds: give censored=, or censoring='model'")
        if y is None:
            raise InputError("fit requires y to be passed, but the target y is None")
        n = len(read_table(self, X, reset=True))
        with naming_rows(X, censored, probability):
            short = short_rows(censored, probability, n)
        rows = {"censored": censored, "censored_probability": probability, "exposure": exposure}
        best = choose(self, X, y, short, **rows)
        with all_or_nothing(self):
            settings = self.get_params(deep=False)
            for name, value in vars(best.fitted).items():
                if name not in settings:
                    setattr(self, name, value)
            self.log_evidence_ = best.log_evidence
        return self

    def _checked_settings(self) -> Likelihood:
        """Refuse settings that are not allowed; the likelihood as asked for."""
        if self.kernel is not None and not isinstance(self.kernel, Kernel):
            raise InputError(f"kernel must be one of unmet.kernels, or None; got {self.kernel!r}")
        choice("censoring", self.censoring, _CENSORING)
        choice("inference", self.inference, _INFERENCE)
        choice("optimizer", self.optimizer, _OPTIMIZERS)
        read_switch(self.normalize_y, "normalize_y")
        whole_number("n_restarts", self.n_restarts, 0)
        whole_number("max_iter", self.max_iter, 1)
        whole_number("n_features", self._budget(), 1)
        return make_likelihood(self.likelihood, noise_variance=self.noise_variance, dispersion=self.dispersion)

    def _budget(self) -> int:
        return _FEATURES if self.n_features is None else self.n_features

    def _keep(self, model: Model, optimum: Optimum[Sites] | None, sites: Sites | None) -> None:
        self._model = model
        tol = _TOL if model.block is None else _LOWRANK_TOL
        self._inference = model.infer(model.theta, sites, gradient=False, tol=tol)
        self.kernel_ = model.kernel
        for name, parameter in model.likelihood.parameters.items():
            setattr(self, f"{name}_", float(parameter.array[0]))
        if isinstance(model.likelihood, Shared):
            share = model.likelihood.share
            self.share_ = LearntShare(*share.values, share.mean, share.sd)
            self.label_probability_ = self._shares(model.X, model.obs)["label_probability"].to_numpy()
        self.features_ = model.features()
        self.log_marginal_likelihood_ = self._inference.log_z + self._log_jacobian()
        self.optimum_ = optimum
        self.n_iter_ = 1 if optimum is None else optimum.evaluations
        self.ep_converged_ = self._inference.info.converged
        self.converged_ = self.ep_converged_ and (optimum is None or optimum.converged)

    def _log_jacobian(self) -> float:
        """Return the term that turns densities of standardised exact values into densities of y. 0 for counts."""
        return -float(np.log(self.y_scale_) * self._model.obs.exact.sum())

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
        rows = {"y": y, "censored": censored, "lower": lower, "upper": upper, "sample_weight": sample_weight}
        refuse_other_order(X, **rows, exposure=exposure, background=background)
        expected = self.predict(X)
        if exposure is not None or background is not None:
            seen = Observations(np.zeros(len(expected)), np.zeros(len(expected)))
            seen = with_exposure(seen, exposure, self._model.likelihood, background)
            if seen.exposure is not None:
                expected = expected * seen.exposure
                weight = 1.0 if sample_weight is None else vector(sample_weight, len(expected), "sample_weight")
                sample_weight = weight * (seen.exposure > 0)
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
        read_switch(eval_gradient, "eval_gradient")
        at = self._model.theta if theta is None else numbers(theta)
        if at is None or at.shape != self._model.theta.shape or not np.isfinite(at).all():
            names = ", ".join([*self._model.kernel.theta_names, *self._model.likelihood.theta_names])
            raise InputError(f"theta must be {self._model.theta.size} finite numbers ({names}); got {theta!r}")
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
        learnt: dict[str, Any] = {name: getattr(self, f"{name}_") for name in own if hasattr(self, f"{name}_")}
        fitted = self._model.likelihood
        if isinstance(self.likelihood, Likelihood):
            learnt = {"likelihood": fitted.base if isinstance(fitted, Shared) else fitted}
        if isinstance(fitted, Shared):
            learnt["share"] = Beta(*fitted.share.values)
            if not fitted.label_odds.fixed:
                learnt["label_odds"] = float(fitted.label_odds.array[0])
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
