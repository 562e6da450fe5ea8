"""Kernels with explicit features: constant, linear and white noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from unmet._parameters import Parameter
from unmet._typing import Array
from unmet.kernels.base import Columns, Given, Leaf
from unmet.kernels.pairs import Pairs, Values, Weights
from unmet.kernels.scales import Scales

__all__ = ["Constant", "Linear", "White"]


class _Everywhere(Leaf):
    """A kernel that uses no column."""

    def __init__(self, variance: Given = None, *, columns: Columns = None) -> None:
        super().__init__({"variance": variance}, None)

    def resolved(self, names: Sequence[str] | None, width: int) -> Self:
        return self

    def diag(self, X: Array) -> Array:
        return np.full(len(X), self._one("variance"))


class Constant(_Everywhere):
    """``variance`` for every pair: an unknown level.

    Parameters
    ----------
    variance : float, Parameter or None
        Prior variance of the level. None takes it from the data at fit.

    Examples
    --------
    >>> Constant(2.0)([[0.0], [5.0]])
    array([[2., 2.],
           [2., 2.]])
    """

    def _cross(self, X: Array, Z: Array) -> Array:
        return np.full((len(X), len(Z)), self._one("variance"))

    def on(self, pairs: Pairs) -> Values:
        return Values(np.array(self._one("variance")))

    def contract(self, pairs: Pairs, weights: Weights) -> Array:
        return np.full(self.theta.size, self._one("variance") * weights.full.sum())


class White(_Everywhere):
    """``variance`` on the diagonal only: noise that belongs to the function, not to the observation.

    Two different rows with equal inputs are uncorrelated. So are training rows and predicted rows.

    Parameters
    ----------
    variance : float, Parameter or None
        Variance of the noise. None takes it from the data at fit.

    Examples
    --------
    >>> White(0.5)([[0.0], [0.0]])
    array([[0.5, 0. ],
           [0. , 0.5]])
    """

    def _cross(self, X: Array, Z: Array) -> Array:
        return np.zeros((len(X), len(Z)))

    def on(self, pairs: Pairs) -> Values:
        return Values(np.diag(np.full(len(pairs), self._one("variance"))))

    def contract(self, pairs: Pairs, weights: Weights) -> Array:
        return np.full(self.theta.size, self._one("variance") * np.trace(weights.full))


class Linear(Leaf):
    """``Σ_c variance_c · x_c · z_c``: straight lines through the origin. Add `Constant` for a level.

    Parameters
    ----------
    variance : float, sequence (one per column), Parameter or None
        Prior variance of the slopes. None takes it from the data at fit; ``"per column"`` takes one per column.
    columns : int, str or sequence of these, optional
        Columns to use, by position or name; None for all.

    Examples
    --------
    >>> Linear(variance=0.5)([[1.0], [2.0]])
    array([[0.5, 1. ],
           [1. , 2. ]])
    """

    _one_per_column = ("variance",)

    def __init__(self, variance: Given = None, *, columns: Columns = None) -> None:
        super().__init__({"variance": variance}, columns)

    def _fill(self, name: str, parameter: Parameter, scales: Scales) -> Parameter:
        extents = np.square(scales.range[list(self._at)])
        variance = 1.0 if scales.variance is None else scales.variance
        if isinstance(parameter.value, tuple) or parameter.per_column:
            slopes = variance / (extents.size * np.where(extents > 0, extents, 1.0))
            return parameter.filled(tuple(slopes), tuple((1e-8 * s, 1e4 * s) for s in slopes))
        slope = variance / (float(extents.sum()) or 1.0)
        return parameter.filled(slope, (1e-8 * slope, 1e4 * slope))

    def _scaled(self, X: Array) -> Array:
        return X[:, list(self._at)] * np.sqrt(self._parameters["variance"].array)

    def diag(self, X: Array) -> Array:
        return np.square(self._scaled(X)).sum(axis=1)

    def _cross(self, X: Array, Z: Array) -> Array:
        return self._scaled(X) @ self._scaled(Z).T

    def on(self, pairs: Pairs) -> Values:
        return Values(self._cross(pairs.X, pairs.X))

    def contract(self, pairs: Pairs, weights: Weights) -> Array:
        scaled = self._scaled(pairs.X)
        per_column = np.einsum("ic,ic->c", scaled, weights.full @ scaled)
        free = self._parameters["variance"]
        return per_column if free.theta.size > 1 else np.full(free.theta.size, per_column.sum())
