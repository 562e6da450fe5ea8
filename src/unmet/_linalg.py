"""Triangular factorisations straight from LAPACK.

``np.linalg.cholesky`` is three times slower than ``dpotrf`` here. Matrices are Fortran-ordered and lower: only the
lower triangle of the input is read, and the upper one of a factor is zero.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf, dpotri, dtrtri

from unmet._exceptions import NumericalError
from unmet._typing import Array

__all__ = [
    "cholesky",
    "cholesky_jittered",
    "inverse_from_cholesky",
    "inverse_lower",
    "log_det",
    "sample_gaussian",
    "solve_lower",
]

# What is tried, as shares of the mean diagonal, when a covariance matrix is not numerically positive definite.
_JITTERS = (1e-12, 1e-10, 1e-8, 1e-6)


def cholesky(A: Array, *, overwrite: bool = False) -> Array:
    """Lower Cholesky factor of a matrix that is positive definite by construction; may be put in its place."""
    L, info = dpotrf(A, lower=1, clean=1, overwrite_a=overwrite)
    if info:
        raise NumericalError(
            f"a {len(A)} × {len(A)} matrix is not positive definite in double precision (leading minor {info})"
        )
    return np.asarray(L)


def cholesky_jittered(A: Array) -> tuple[Array, float]:
    """Lower Cholesky factor and the jitter that had to be added to the diagonal for it: 0 nearly always.

    Whoever calls this reports the jitter; none is added in silence.
    """
    L, info = dpotrf(A, lower=1, clean=1)
    if not info:
        return np.asarray(L), 0.0
    scale = float(np.mean(np.diag(A)))
    for share in _JITTERS:
        jitter = share * scale
        L, info = dpotrf(A + jitter * np.eye(len(A)), lower=1, clean=1)
        if not info:
            return np.asarray(L), jitter
    raise NumericalError(
        f"a {len(A)} × {len(A)} covariance matrix is not positive definite even with {_JITTERS[-1]:g} of its mean "
        "diagonal added. Raise the noise variance, or check the inputs for values that are not finite"
    )


def solve_lower(L: Array, B: Array, *, transposed: bool = False) -> Array:
    """``L⁻¹ B`` (or ``L⁻ᵀ B``) for a lower triangular L."""
    if B.size == 0:
        return np.array(B, dtype=float, order="F")
    columns = B if B.ndim == 2 else B[:, None]
    X = np.asarray(dtrsm(1.0, L, columns, lower=1, trans_a=int(transposed)))
    return X if B.ndim == 2 else X[:, 0]


def inverse_from_cholesky(L: Array) -> Array:
    """Lower triangle of ``(L Lᵀ)⁻¹``; the upper one is zero."""
    if L.size == 0:
        return L.copy()
    inverse, info = dpotri(L, lower=1)
    if info:
        raise NumericalError(f"a Cholesky factor is singular at row {info}")
    return np.asarray(inverse)


def inverse_lower(L: Array) -> Array:
    """``L⁻¹`` of a lower triangular L."""
    if L.size == 0:
        return L.copy()
    inverse, info = dtrtri(L, lower=1)
    if info:
        raise NumericalError(f"a triangular matrix is singular at row {info}")
    return np.asarray(inverse)


def log_det(L: Array) -> float:
    """Log determinant of ``L Lᵀ``."""
    return float(2.0 * np.log(np.diag(L)).sum())


def sample_gaussian(mean: Array, cov: Array, size: int, rng: np.random.Generator) -> Array:
    """Draws from ``N(mean, cov)``, shape ``(size, n)``; eigenvalues below zero are rounding and count as zero."""
    values, vectors = eigh(cov)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return mean + rng.standard_normal((size, len(mean))) @ root.T
