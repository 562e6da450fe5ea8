"""The paper's three models and the learnt share, fitted and cross-validated in the same way in every experiment."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

from unmet._exceptions import ConvergenceWarning, NumericalWarning
from unmet._typing import Array, BoolArray
from unmet.estimators import CensoredGP, label_probability
from unmet.kernels import Kernel
from unmet.metrics import coverage, r2, rmse

__all__ = ["MODELS", "RECOVERED", "TITLES", "Cost", "cross_validate", "fit", "recovered_rows", "score_rows"]

MODELS: dict[str, Literal["ignore", "drop", "model", "share"]] = {
    "ncgp": "ignore",
    "ncgp-a": "drop",
    "cgp": "model",
    "share": "share",
}
"""The paper's names of the models, and their `censoring` setting."""
TITLES = {"ncgp": "NCGP", "ncgp-a": "NCGP-A", "cgp": "CGP", "share": "CGP, learnt share"}
RECOVERED = "recovered"
"""Subset of the scores of true values of labelled rows that were part of the fit, given what was seen of them."""


@dataclass
class Cost:
    """Cost of fits: CPU seconds, number of fits, number not converged, number with jitter."""

    seconds: float = 0.0
    fits: int = 0
    unconverged: int = 0
    jittered: int = 0

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of both."""
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def as_dict(self) -> dict[str, float]:
        """Return the cost as it is stored with the result of a cell."""
        return {
            "seconds": round(self.seconds, 3),
            "fits": self.fits,
            "unconverged": self.unconverged,
            "jittered": self.jittered,
        }


def fit(
    model: str, starts: Kernel | Sequence[Kernel], X: Array, y: Array, label: Any, cost: Cost, **settings: Any
) -> CensoredGP:
    """Fit one of the paper's models and add its cost. A fit that did not converge is counted and kept.

    Parameters
    ----------
    model : str
        A name of `MODELS`.
    starts : Kernel or sequence of Kernel
        Starting kernels. The fit with the highest evidence is returned. The learnt share searches once, from the fit
        of its rows without a label that has the highest evidence.
    X, y, label : arrays
        The censored data.
    cost : Cost
        The cost to add to.
    settings
        Further settings of `CensoredGP`.

    Returns
    -------
    CensoredGP
    """
    began = time.process_time()
    best: CensoredGP | None = None
    kernels = [starts] if isinstance(starts, Kernel) else starts
    exact = np.asarray(label) == 0
    if model == "share" and len(kernels) > 1 and exact.any():
        # Searches of a share start at the kernel of these rows anyway, and each costs three times as much as theirs.
        without = fit("ncgp", kernels, X[exact], y[exact], label[exact], Cost(), **settings)
        kernels, settings = [without.kernel_], {**settings, "noise_variance": without.noise_variance_}
    for kernel in kernels:
        gp = CensoredGP(kernel, censoring=MODELS[model], **settings)
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            gp.fit(X, y, **_given_labels(gp, X, label))
        if best is None or gp.log_marginal_likelihood_ > best.log_marginal_likelihood_:
            best, caught = gp, noted
    assert best is not None, "no start"
    cost.seconds += time.process_time() - began
    cost.fits += 1
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            cost.unconverged += 1
        elif issubclass(warning.category, NumericalWarning):
            cost.jittered += 1
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return best


def _given_labels(gp: CensoredGP, X: Array, label: Any) -> dict[str, Any]:
    """Labels as a fit is given them; where some are missing and others tell, how likely these rows are labelled."""
    known = np.abs(label[~np.isnan(label)])
    if known.size < len(label) and known.any() and not known.all():
        return {"censored_probability": label_probability(X, label, gp.kernel)}
    return {"censored": label}


@dataclass
class Held:
    """Predictions for held-out rows, and for the same rows with other inputs if given."""

    mean: Array
    mean_otherwise: Array
    cost: Cost = field(default_factory=Cost)


def cross_validate(
    model: str,
    starts: Kernel | Sequence[Kernel],
    X: Array,
    y: Array,
    label: Any,
    folds: Sequence[Array],
    *,
    X_otherwise: Array | None = None,
    warm_start: bool = False,
    **settings: Any,
) -> Held:
    """Predict each fold from a fit of all others.

    Parameters
    ----------
    model, starts, settings
        As in `fit`.
    X, y, label : arrays
        The censored data.
    folds : sequence of arrays of int
        Rows of each fold.
    X_otherwise : array, optional
        Other inputs at which held-out rows are predicted as well.
    warm_start : bool
        Whether to start each fold's hyper-parameters at the fit of the whole series instead of the common starts. The
        held-out rows then influence the start of the search through the hyper-parameters.

    Returns
    -------
    Held
    """
    held = Held(np.full(len(y), np.nan), np.full(len(y), np.nan))
    if warm_start:
        whole = fit(model, starts, X, y, label, held.cost, **settings)
        starts, settings = whole.kernel_, {**settings, "noise_variance": whole.noise_variance_}
    for fold in folds:
        train = np.ones(len(y), dtype=bool)
        train[fold] = False
        gp = fit(model, starts, X[train], y[train], label[train], held.cost, **settings)
        held.mean[fold] = gp.predict(X[fold])
        if X_otherwise is not None:
            held.mean_otherwise[fold] = gp.predict(X_otherwise[fold])
    return held


def recovered_rows(
    gp: CensoredGP, X: Array, y: Array, label: Any, truth: Array, labelled: BoolArray, **columns: Any
) -> list[dict[str, Any]]:
    """RMSE, and coverage of 95 % intervals, of ``E[y* | y, label]`` on labelled rows of the fit itself."""
    if not labelled.any():
        return []
    found = (gp.predict_share if gp.censoring == "share" else gp.predict_truth)(X, y, **_given_labels(gp, X, label))
    value, half = found["value"].to_numpy(), 1.96 * found["value_sd"].to_numpy()
    scores = {
        "rmse": rmse(truth, value, where=labelled),
        "coverage": coverage(truth, value - half, value + half, where=labelled),
    }
    return [{**columns, "subset": RECOVERED, "metric": k, "value": v} for k, v in scores.items()]


def score_rows(truth: Array, mean: Array, censored: BoolArray, **columns: Any) -> list[dict[str, Any]]:
    """Return RMSE and R² on all rows, on censored rows and on non-censored rows (paper appendix A.1)."""
    subsets = {"all": np.ones(len(truth), dtype=bool), "non-censored": ~censored, "censored": censored}
    return [
        {**columns, "subset": subset, "metric": metric.__name__, "value": metric(truth, mean, where=rows)}
        for subset, rows in subsets.items()
        if rows.sum() > 1 and np.ptp(truth[rows]) > 0
        for metric in (rmse, r2)
    ]
