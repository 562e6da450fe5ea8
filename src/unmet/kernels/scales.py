"""The scales of data, from which kernels take what was left open."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unmet._typing import Array

__all__ = ["Scales", "scales_of"]


@dataclass(frozen=True)
class Scales:
    """The scales of data, from which open hyper-parameters and bounds are taken.

    Attributes
    ----------
    variance : float or None
        Variance of the outputs, on the scale the kernel works on; None holds open variances at 1.
    spread, range, spacing : array of shape (d,)
        Per column of the inputs: standard deviation, range, and median gap between distinct values.
    """

    variance: float | None
    spread: Array
    range: Array
    spacing: Array


def scales_of(X: Array, variance: float) -> Scales:
    """Scales of inputs X and of outputs with the given variance."""
    spacing = np.array([_typical_spacing(X[:, c]) for c in range(X.shape[1])])
    return Scales(variance, np.asarray(X.std(axis=0)), np.ptp(X, axis=0), spacing)


def _typical_spacing(x: Array) -> float:
    """Median distance between neighbouring distinct values; 1 where there is only one."""
    gaps = np.diff(np.unique(x))
    return float(np.median(gaps)) if gaps.size else 1.0
