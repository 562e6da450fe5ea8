"""Triangular factorisations straight from LAPACK.

``np.linalg.cholesky`` is three times slower than ``dpotrf`` here, and LAPACK's ``dtrtri`` half as fast as its
recursion by halves, which spends its time in matrix products. Matrices are Fortran-ordered and lower: only the lower
triangle of the input is read, and the upper one of a factor is zero.
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

# What is tried, as shares of the mean diagonal, when a covariance matrix is not numerically positive definite.
_JITTERS = (1e-12, 1e-10, 1e-8, 1e-6)
_SMALL = 48  # rows up to which a triangle is inverted by `dtrtri` itself


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Work with one BLAS thread, unless an environment variable such as ``OPENBLAS_NUM_THREADS`` says how many.

    Hundreds of calls on matrices of a few hundred rows leave threads waiting for each other: with two threads fits were
    1.6 (n = 1,500) to 190 times (n = 300) as slow as with one on a machine whose two processors were busy.
    """
    if any(name in os.environ for name in _THREADS):
        yield
        return
    with threadpool_limits(limits=1, user_api="blas"):
        yield


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
    """``L⁻¹ B`` (or ``L⁻ᵀ B``) for a lower triangular L and a matrix or vector B."""
    if B.size == 0:
        return np.array(B, dtype=float, order="F")
    if B.ndim == 1:
        return np.asarray(dtrsv(L, B, lower=1, trans=int(transposed)))
    return np.asarray(dtrsm(1.0, L, B, lower=1, trans_a=int(transposed)))


def inverse_from_cholesky(L: Array) -> Array:
    """Lower triangle of ``(L Lᵀ)⁻¹``; the upper one is zero."""
    return gram_of_lower(inverse_lower(L))


def gram_of_lower(L: Array) -> Array:
    """Lower triangle of ``LᵀL``, in the place of L; the upper one stays as it is."""
    return np.asarray(dlauum(L, lower=1, overwrite_c=1)[0]) if L.size else L


def inverse_lower(L: Array, out: Array | None = None) -> Array:
    """``L⁻¹`` of a lower triangular L; the upper triangle is zero. `out`: where to put it, itself zero there."""
    n = len(L)
    if n == 0:
        return L.copy()
    if n <= _SMALL:
        inverse, info = dtrtri(L, lower=1)
        if info:
            raise NumericalError(f"a triangular matrix is singular at row {info}")
        return np.asarray(inverse)
    h = n // 2
    return join_inverse(inverse_lower(L[:h, :h]), L[h:, :h].T, inverse_lower(L[h:, h:]), out)


def join_inverse(first: Array, C: Array, last: Array, out: Array | None = None) -> Array:
    """The inverse of ``[[A, 0], [Cᵀ, B]]`` from ``first = A⁻¹`` and ``last = B⁻¹``: ``−B⁻¹CᵀA⁻¹`` joins them.

    `out` is where to put it, zero above the diagonal.
    """
    h, n = len(first), len(first) + len(last)
    inverse = np.zeros((n, n), order="F") if out is None else out
    inverse[:h, :h], inverse[h:, h:] = first, last
    if C.size:
        inverse[h:, :h] = dtrmm(-1.0, last, dtrmm(1.0, first, C, trans_a=1, lower=1), side=1, trans_a=1, lower=1).T
    return inverse


def log_det(L: Array) -> float:
    """Log determinant of ``L Lᵀ``."""
    return float(2.0 * np.log(np.diag(L)).sum())


def sample_gaussian(mean: Array, cov: Array, size: int, rng: np.random.Generator) -> Array:
    """Draws from ``N(mean, cov)``, shape ``(size, n)``; eigenvalues below zero are rounding and count as zero."""
    values, vectors = eigh(cov)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return mean + rng.standard_normal((size, len(mean))) @ root.T
