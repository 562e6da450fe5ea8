"""The paper's three models, fitted and cross-validated the same way in every experiment."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from unmet._exceptions import ConvergenceWarning, NumericalWarning
from unmet._typing import Array, BoolArray
from unmet.estimators import CensoredGP
from unmet.kernels import Kernel
from unmet.metrics import r2, rmse

__all__ = ["MODELS", "TITLES", "Cost", "cross_validate", "fit", "score_rows"]

MODELS: dict[str, Literal["ignore", "drop", "model"]] = {"ncgp": "ignore", "ncgp-a": "drop", "cgp": "model"}
"""The paper's names and what each does with censored rows."""
TITLES = {"ncgp": "NCGP", "ncgp-a": "NCGP-A", "cgp": "CGP"}


@dataclass
class Cost:
    """What fitting has cost: CPU seconds, number of fits, how many did not converge, how many needed jitter."""

    seconds: float = 0.0
    fits: int = 0
    unconverged: int = 0
    jittered: int = 0

    def as_dict(self) -> dict[str, float]:
        """As it is kept with a cell's result."""
        return {
            "seconds": round(self.seconds, 3),
            "fits": self.fits,
            "unconverged": self.unconverged,
            "jittered": self.jittered,
        }


def fit(
    model: str, starts: Kernel | Sequence[Kernel], X: Array, y: Array, label: Any, cost: Cost, **settings: Any
) -> CensoredGP:
    """One of the paper's models, by its name, with what it cost; one that did not converge is counted, not hidden.

    Of several starts the one that reaches the highest evidence is kept.
    """
    began = time.process_time()
    best: CensoredGP | None = None
    for kernel in [starts] if isinstance(starts, Kernel) else starts:
        gp = CensoredGP(kernel, censoring=MODELS[model], **settings)
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            gp.fit(X, y, label)
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


@dataclass
class Held:
    """Predictions for held-out rows, and for the same rows with other inputs where those were asked for."""

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
        Other inputs at which to predict held-out rows too.
    warm_start : bool
        Start each fold's hyper-parameters at the fit of the whole series instead of at the common starts. The
        hyper-parameters, not the data, of the held-out rows then have a say in where the search starts.
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


def score_rows(truth: Array, mean: Array, censored: BoolArray, **columns: Any) -> list[dict[str, Any]]:
    """RMSE and R² on all rows, and apart on those that were and were not censored (paper appendix A.1)."""
    subsets = {"all": np.ones(len(truth), dtype=bool), "non-censored": ~censored, "censored": censored}
    return [
        {**columns, "subset": subset, "metric": metric.__name__, "value": metric(truth, mean, where=rows)}
        for subset, rows in subsets.items()
        if rows.sum() > 1 and np.ptp(truth[rows]) > 0
        for metric in (rmse, r2)
    ]
