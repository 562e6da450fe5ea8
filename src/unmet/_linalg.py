"""Triangular factorisations by direct calls of LAPACK.

``np.linalg.cholesky`` is three times slower than ``dpotrf`` here. LAPACK's ``dtrtri`` is half as fast as recursion on
halves, which spends its time in matrix products. Matrices are Fortran-ordered and lower triangular: only the lower
triangle of the input is read, and the upper triangle of a factor is zero.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from scipy.linalg import eigh
from scipy.linalg.blas import dtrmm, dtrsm, dtrsv
from scipy.linalg.lapack import dlauum, dpotrf, dtrtri
from threadpoolctl import threadpool_limits

from unmet._exceptions import NumericalError
from unmet._typing import Array

__all__ = [
    "cholesky",
    "cholesky_jittered",
    "gram_of_lower",
    "inverse_from_cholesky",
    "inverse_lower",
    "join_inverse",
    "log_det",
    "one_blas_thread",
    "sample_gaussian",
    "solve_lower",
]

_THREADS = tuple(f"{library}_NUM_THREADS" for library in ("OMP", "OPENBLAS", "MKL", "BLIS"))

# Jitters that are tried if a covariance matrix is not numerically positive definite, as fractions of the mean diagonal.
_JITTERS = (1e-12, 1e-10, 1e-8, 1e-6)
_SMALL = 48  # rows up to which a triangle is inverted by `dtrtri` itself


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Use one BLAS thread, unless an environment variable such as ``OPENBLAS_NUM_THREADS`` sets their number.

    Hundreds of calls on matrices of a few hundred rows leave threads waiting for each other. On a machine whose two
    processors were busy, fits with two threads were 1.6 (n = 1,500) to 190 times (n = 300) as slow as with one.
    """
    if any(name in os.environ for name in _THREADS):
        yield
        return
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def cholesky(A: Array, *, overwrite: bool = False) -> Array:
    """Return the lower Cholesky factor of a matrix that is positive definite by construction.

    Parameters
    ----------
    A : array of shape (n, n)
        The matrix.
    overwrite : bool
        Whether A may be overwritten.
    """
    L, info = dpotrf(A, lower=1, clean=1, overwrite_a=overwrite)
    if info:
        raise NumericalError(
            f"A {len(A)} × {len(A)} matrix is not positive definite in double precision (leading minor {info}). "
            "Check the hyper-parameters and the scale of the data."
        )
    return np.asarray(L)


def cholesky_jittered(A: Array) -> tuple[Array, float]:
    """Return the lower Cholesky factor, and the jitter that was added to the diagonal: 0 almost always.

    The caller must report the jitter.
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
        f"A {len(A)} × {len(A)} covariance matrix is not positive definite even with {_JITTERS[-1]:g} of its mean "
        "diagonal added. Raise the noise variance, or check the inputs for values that are not finite."
    )


def solve_lower(L: Array, B: Array, *, transposed: bool = False) -> Array:
    """Return ``L⁻¹ B`` (or ``L⁻ᵀ B`` if `transposed`) for a lower triangular L and a matrix or vector B."""
    if B.size == 0:
        return np.array(B, dtype=float, order="F")
    if B.ndim == 1:
        return np.asarray(dtrsv(L, B, lower=1, trans=int(transposed)))
    return np.asarray(dtrsm(1.0, L, B, lower=1, trans_a=int(transposed)))


def inverse_from_cholesky(L: Array) -> Array:
    """Return the lower triangle of ``(L Lᵀ)⁻¹``; the upper triangle is zero."""
    return gram_of_lower(inverse_lower(L))


def gram_of_lower(L: Array) -> Array:
    """Return the lower triangle of ``LᵀL``. Overwrites L; its upper triangle is unchanged."""
    return np.asarray(dlauum(L, lower=1, overwrite_c=1)[0]) if L.size else L


def inverse_lower(L: Array, out: Array | None = None) -> Array:
    """Return ``L⁻¹`` of a lower triangular L; the upper triangle is zero.

    Parameters
    ----------
    L : array of shape (n, n)
        The matrix.
    out : array of shape (n, n), optional
        Array for the result, with zeros above the diagonal.
    """
    n = len(L)
    if n == 0:
        return L.copy()
    if n <= _SMALL:
        inverse, info = dtrtri(L, lower=1)
        if info:
            raise NumericalError(f"A triangular matrix is singular at row {info}. Check the hyper-parameters.")
        return np.asarray(inverse)
    h = n // 2
    return join_inverse(inverse_lower(L[:h, :h]), L[h:, :h].T, inverse_lower(L[h:, h:]), out)


def join_inverse(first: Array, C: Array, last: Array, out: Array | None = None) -> Array:
    """Return the inverse of ``[[A, 0], [Cᵀ, B]]`` from ``first = A⁻¹`` and ``last = B⁻¹``.

    The block that joins them is ``−B⁻¹CᵀA⁻¹``.

    Parameters
    ----------
    first, C, last : arrays of shapes (a, a), (a, b) and (b, b)
        ``A⁻¹``, ``C`` and ``B⁻¹``.
    out : array of shape (a + b, a + b), optional
        Array for the result, with zeros above the diagonal.
    """
    h, n = len(first), len(first) + len(last)
    inverse = np.zeros((n, n), order="F") if out is None else out
    inverse[:h, :h], inverse[h:, h:] = first, last
    if C.size:
        inverse[h:, :h] = dtrmm(-1.0, last, dtrmm(1.0, first, C, trans_a=1, lower=1), side=1, trans_a=1, lower=1).T
    return inverse


def log_det(L: Array) -> float:
    """Return the log determinant of ``L Lᵀ``."""
    return float(2.0 * np.log(np.diag(L)).sum())


def sample_gaussian(mean: Array, cov: Array, size: int, rng: np.random.Generator) -> Array:
    """Draw from ``N(mean, cov)``; shape ``(size, n)``. Negative eigenvalues are rounding errors and count as zero."""
    values, vectors = eigh(cov)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return mean + rng.standard_normal((size, len(mean))) @ root.T
