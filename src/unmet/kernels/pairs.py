"""All pairs of a fixed set of inputs: the part of a kernel matrix that does not change with hyper-parameters.

Stationary kernels depend on inputs only through the lags ``|x_i − x_j|``, column by column. On gridded inputs (time,
hour, weekday) the n² pairs have few distinct lags: 640 quarter-hours with hour and weekday have about 2,500 of
them, not 205,000. Lags are computed once per fit. ``exp`` and ``sin`` are then evaluated on the distinct ones only and
spread over the matrix by one gather; gradients are collected by one scatter-add.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from unmet._typing import Array, IntArray

__all__ = ["Lags", "Pairs", "Values", "Weights"]

# Lags that differ by less than this fraction of their column's range are one lag: 0.3 − 0.2 and 0.2 − 0.1.
_SAME_LAG = 1e-13


@dataclass(frozen=True, eq=False)
class Lags:
    """The distinct lags between rows, and the number of the lag of each pair.

    Attributes
    ----------
    distances : tuple of arrays of shape (m,)
        Per column, the absolute difference of each distinct lag.
    index : array of shape (n, n)
        Row of `distances` that belongs to each pair; symmetric.
    """

    distances: tuple[Array, ...]
    index: IntArray


@dataclass(frozen=True, eq=False)
class Values:
    """A kernel on all pairs: one number, one per lag (if `lags` is given), or the whole matrix."""

    array: Array
    lags: Lags | None = None

    def matrix(self, n: int) -> Array:
        """Return the n × n matrix."""
        if self.lags is not None:
            return np.take(self.array, self.lags.index)
        return np.broadcast_to(self.array, (n, n)) if self.array.ndim == 0 else self.array

    def combine(self, other: Values, operation: Callable[[Array, Array], Array]) -> Values:
        """Apply an element-wise operation, on lags if both operands have the same ones."""
        if self.array.ndim == 0 or other.array.ndim == 0 or self.lags is other.lags:
            return Values(operation(self.array, other.array), self.lags or other.lags)
        n = len(self.lags.index) if self.lags is not None else len(self.array)
        return Values(operation(self.matrix(n), other.matrix(n)))


class Weights:
    """The matrix F of a contraction ``Σij Fij ∂Kij/∂θ``. Sums over the pairs of each lag are computed when needed."""

    def __init__(self, full: Array | None = None, *, parent: Weights | None = None, factor: Values | None = None):
        self._full = full
        self._parent = parent
        self._factor = factor
        self._on: list[tuple[Lags, Array]] = []

    @property
    def full(self) -> Array:
        """The whole matrix."""
        if self._full is None:
            assert self._parent is not None
            assert self._factor is not None
            full = self._parent.full
            self._full = full * self._factor.matrix(len(full))
        return self._full

    def on(self, lags: Lags) -> Array:
        """Return the sums of F over the pairs of each lag."""
        for seen, collected in self._on:
            if seen is lags:
                return collected
        if self._parent is not None and self._factor is not None and self._spreads_from(lags):
            collected = self._parent.on(lags) * self._factor.array
        else:
            # The index is symmetric, so the memory order of F does not matter.
            flat = self.full.ravel(order="K")
            size = lags.distances[0].size
            collected = np.asarray(np.bincount(lags.index.ravel(), weights=flat, minlength=size), dtype=float)
        self._on.append((lags, collected))
        return collected

    def _spreads_from(self, lags: Lags) -> bool:
        assert self._factor is not None
        return self._factor.array.ndim == 0 or self._factor.lags is lags

    def times(self, factor: Values) -> Weights:
        """Return ``F ∘ K₂``, the weights of the first factor of a product ``K₁ ∘ K₂``."""
        return Weights(parent=self, factor=factor)


@dataclass(frozen=True, eq=False)
class Pairs:
    """All pairs of the rows of X. Lags are computed once for each set of columns that a kernel uses."""

    X: Array
    _lags: dict[tuple[int, ...], Lags] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.X)

    def lags(self, columns: tuple[int, ...]) -> Lags:
        """Return the distinct lags over the given columns."""
        if columns not in self._lags:
            self._lags[columns] = _find_lags(self.X[:, list(columns)])
        return self._lags[columns]


def _find_lags(X: Array) -> Lags:
    n, d = X.shape
    rows, cols = np.tril_indices(n)
    if _off_grid(X):
        codes = first = np.arange(rows.size)
    else:
        codes = _codes([np.abs(X[rows, c] - X[cols, c]) for c in range(d)])
        first = np.empty(int(codes.max(initial=-1)) + 1, dtype=np.intp)
        first[codes[::-1]] = np.arange(codes.size - 1, -1, -1)
    index = np.empty((n, n), dtype=np.intp)
    index[rows, cols] = codes
    index[cols, rows] = codes
    distances = tuple(np.abs(X[rows[first], c] - X[cols[first], c]) for c in range(d))
    return Lags(distances, index)


def _codes(lags: list[Array]) -> IntArray:
    """Return a number for each distinct combination of lags; `lags` has one array per column."""
    codes = np.zeros(lags[0].size, dtype=np.int64)
    for c, lag in enumerate(lags):
        step = _SAME_LAG * max(float(lag.max(initial=0.0)), np.finfo(float).tiny / _SAME_LAG)
        column_codes, uniques = pd.factorize(np.rint(lag / step))
        # Codes stay below n², so their product with the number of uniques fits 64 bits for any n that fits memory.
        codes = pd.factorize(codes * len(uniques) + column_codes)[0] if c else column_codes
    return codes


def _off_grid(X: Array) -> bool:
    """Return whether hardly any two pairs share a lag, judged by a few rows.

    The search for shared lags is skipped then.
    """
    probes = np.unique(np.linspace(0, len(X) - 1, 4).astype(int))
    codes = _codes([np.abs(np.subtract.outer(X[probes, c], X[:, c])).ravel() for c in range(X.shape[1])])
    return bool(codes.max() + 1 > 0.9 * codes.size)
