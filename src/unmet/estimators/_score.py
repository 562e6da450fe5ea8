"""The score of both estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import r2_score

from unmet._exceptions import InputError
from unmet._numbers import read_numbers
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
    n = len(expected)
    values = read_numbers(y, "y")
    values = vector(values[:, 0] if values.shape == (n, 1) else values, n, "y")
    keep = sides(censored, n) == 0
    for bound, name in ((lower, "lower"), (upper, "upper")):
        if bound is not None:
            keep &= ~np.isfinite(vector(bound, n, name))
    if not keep.any():
        raise InputError(f"All {n} rows are censored, and R² needs exact rows. Use unmet.metrics.nlpd instead.")
    weight = None if sample_weight is None else vector(sample_weight, n, "sample_weight")[keep]
    if weight is not None and not ((weight >= 0).all() and 0 < weight.sum() < np.inf):
        raise InputError("sample_weight must be finite and at least 0, and above 0 for some exact row.")
    return float(r2_score(values[keep], expected[keep], sample_weight=weight))
