"""Scales of data, from which open hyper-parameters are filled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unmet._typing import Array

__all__ = ["Scales", "scales_of"]


@dataclass(frozen=True)
class Scales:
    """Scales of data, from which open hyper-parameters and bounds are filled.

    Attributes
    ----------
    variance : float or None
        Variance of the outputs, in the units of the kernel. None fixes open variances at 1.
    spread, range, spacing : array of shape (d,)
        Per column of the inputs: standard deviation, range, and median gap between distinct values.
    """

    variance: float | None
    spread: Array
    range: Array
    spacing: Array


def scales_of(X: Array, variance: float) -> Scales:
    """Return the scales of inputs X and of outputs with the given variance.

    Parameters
    ----------
    X : array of shape (n, d)
        Inputs.
    variance : float
        Variance of the outputs.

    Returns
    -------
    Scales
    """
    spacing = np.array([_typical_spacing(X[:, c]) for c in range(X.shape[1])])
    return Scales(variance, np.asarray(X.std(axis=0)), np.ptp(X, axis=0), spacing)


def _typical_spacing(x: Array) -> float:
    """Return the median distance between neighbouring distinct values; 1 if there is only one value."""
    gaps = np.diff(np.unique(x))
    return float(np.median(gaps)) if gaps.size else 1.0
