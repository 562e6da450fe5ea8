"""The score of both estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import r2_score

from unmet._exceptions import InputError
from unmet._typing import Array
from unmet.estimators.labels import sides, vector

__all__ = ["r2_on_exact_rows"]


def r2_on_exact_rows(
    y: Any, expected: Array, sample_weight: Any, censored: Any, lower: Any = None, upper: Any = None
) -> float:
    """Return R² of the expected values over the rows that are not censored, by label or by bounds.

    Parameters
    ----------
    y : array-like of shape (n,)
        Observed values.
    expected : array of shape (n,)
        Predicted means.
    sample_weight : array-like of shape (n,) or None
        Weights of the rows.
    censored, lower, upper : array-like of shape (n,) or None
        Labels and bounds as in `fit`.
    """
    y = np.asarray(y)
    if len(y) != len(expected):
        raise InputError(f"y must have one value per row of X; got {len(y)} for {len(expected)} rows.")
    keep = sides(censored, len(y)) == 0
    for bound, name in ((lower, "lower"), (upper, "upper")):
        if bound is not None:
            keep &= ~np.isfinite(vector(bound, len(y), name))
    if not keep.any():
        raise InputError(f"All {len(y)} rows are censored, and R² needs exact rows. Use unmet.metrics.nlpd instead.")
    weight = None if sample_weight is None else np.asarray(sample_weight)[keep]
    return float(r2_score(y[keep], expected[keep], sample_weight=weight))
