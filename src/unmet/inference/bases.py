"""Basis functions of single kernels. `unmet.inference.features` has a table of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from unmet._linalg import cholesky_jittered, solve_lower
from unmet._typing import Array, BoolArray
from unmet.inference.features import LeafBlock, Memo, row_products, stretches
from unmet.kernels.base import Leaf
from unmet.kernels.pairs import Pairs, Weights
from unmet.kernels.periodic import Periodic
from unmet.kernels.stationary import Lagged, Stationary
from unmet.kernels.structured import Constant, Linear

__all__ = ["RIDGE", "Eigenfunctions", "Explicit", "Harmonics", "Inducing"]

# Outside the range of the data, f is predicted from its values at anchor points inside. One column: `_ANCHORS` points
# from each end, denser towards it (slope and curvature at the end determine how a smooth f continues). They reach
# `_FARTHEST` length-scales from the end; the first one is at `_NEAREST` of that distance.
_ANCHORS, _NEAREST, _FARTHEST = 24, 0.005, 6.0
# Two columns: a grid over the whole range, also denser towards its ends (Chebyshev points), with `_GRID` steps plus
# `_GRID_PER_LENGTH` per length-scale, at most `_GRID_MOST` per column.
_GRID, _GRID_PER_LENGTH, _GRID_MOST = 8, 2.0, 40
# Fractions of the prior variance added to the diagonal of covariances of anchors and of inducing points. Features give
# f at the anchors only up to the variance they leave out, and extrapolation must not amplify that error.
_ANCHOR_RIDGE, RIDGE = 1e-6, 1e-9


@dataclass(frozen=True)
class Explicit(LeafBlock):
    """Features of `Constant` (ones) and `Linear` (the columns themselves)."""

    columns: int
    kind = "explicit"

    @property
    def size(self) -> int:
        return self.columns

    def _basis(self, kernel: Constant | Linear, X: Array) -> Array:
        return X[:, list(kernel._at)] if isinstance(kernel, Linear) else np.ones((len(X), 1))

    def log_spectrum(self, kernel: Constant | Linear) -> Array:
        return np.log(np.broadcast_to(kernel.parameters["variance"].array, (self.columns,)))

    def slopes(self, kernel: Leaf) -> Array:
        free = kernel.theta.size
        return np.eye(self.columns) if free == self.columns else np.ones((self.columns, free))

    def to_dict(self) -> dict[str, Any]:
        return {"block": "explicit", "columns": self.columns}


@dataclass(frozen=True)
class Harmonics(LeafBlock):
    """Features of `Periodic` on one column: 1, then cos and sin of 1…count cycles per period."""

    count: int
    kind = "harmonics"

    @property
    def size(self) -> int:
        return 2 * self.count + 1

    def _angles(self, kernel: Periodic, X: Array) -> Array:
        return np.multiply.outer(2 * np.pi / kernel._one("period") * X[:, kernel._at[0]], np.arange(1, self.count + 1))

    def _basis(self, kernel: Periodic, X: Array) -> Array:
        angles = self._angles(kernel, X)
        return np.concatenate([np.ones((len(X), 1)), np.cos(angles), np.sin(angles)], axis=1)

    def log_spectrum(self, kernel: Periodic) -> Array:
        log_s, _ = kernel.log_harmonics(self.count)
        return np.concatenate([log_s, log_s[1:]])

    def moves(self, kernel: Leaf) -> bool:
        return not kernel.parameters["period"].fixed

    def slopes(self, kernel: Periodic) -> Array:
        _, slope = kernel.log_harmonics(self.count)
        ones, by_length = np.ones((1, self.size)), np.concatenate([slope, slope[1:]])[None]
        rows = {"period": 0.0 * ones, "variance": ones, "lengthscale": by_length}
        return kernel._free(rows).reshape(-1, self.size).T

    def contract(self, kernel: Periodic, X: Array, by_log_s: Array, by_phi: Array | None, memo: Memo) -> Array:
        gradient = super().contract(kernel, X, by_log_s, by_phi, memo)
        if by_phi is None or not self.moves(kernel):
            return gradient
        angles = self._angles(kernel, X)  # d angle/d log period = −angle
        by_cos, by_sin = by_phi[:, 1 : self.count + 1], by_phi[:, self.count + 1 :]
        by_period = np.sum(angles * (by_cos * np.sin(angles) - by_sin * np.cos(angles)))
        none = np.zeros(1)
        return np.asarray(gradient + kernel._free({"period": by_period + none, "variance": none, "lengthscale": none}))

    def left_out(self, kernel: Periodic) -> float:
        kept = np.exp(kernel.log_harmonics(self.count)[0] - np.log(kernel._one("variance"))).sum()
        return max(0.0, 1.0 - float(kept))

    def to_dict(self) -> dict[str, Any]:
        return {"block": "harmonics", "count": self.count}


@dataclass(frozen=True)
class Eigenfunctions(LeafBlock):
    """Features of a stationary kernel on one or two columns: sines that vanish at the walls of a box around the data.

    Attributes
    ----------
    low, high : tuple of float
        Range of the data, per column.
    half : tuple of float
        Half the width of the box, per column.
    counts : tuple of int
        Number of functions per column.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    half: tuple[float, ...]
    counts: tuple[int, ...]
    kind = "eigenfunctions"

    @property
    def size(self) -> int:
        return math.prod(self.counts)

    def _frequencies(self) -> list[Array]:
        """Return the angular frequency of every feature, per column."""
        per_column = [np.pi * np.arange(1, m + 1) / (2 * h) for m, h in zip(self.counts, self.half, strict=True)]
        return [grid.ravel() for grid in np.meshgrid(*per_column, indexing="ij")]

    def _lengths(self, kernel: Stationary) -> Array:
        return np.broadcast_to(kernel.parameters["lengthscale"].array, (len(self.counts),))

    def log_spectrum(self, kernel: Stationary) -> Array:
        lengths = self._lengths(kernel)
        u = sum(np.square(ell * w) for ell, w in zip(lengths, self._frequencies(), strict=True))
        log_g, _ = kernel.log_spectral(np.asarray(u), len(self.counts))
        return np.log(kernel._one("variance")) + np.log(lengths).sum() + log_g

    def slopes(self, kernel: Stationary) -> Array:
        squares = [np.square(ell * w) for ell, w in zip(self._lengths(kernel), self._frequencies(), strict=True)]
        _, slope = kernel.log_spectral(np.asarray(sum(squares)), len(self.counts))
        by_length = np.array([1.0 + 2.0 * s * slope for s in squares])
        each = kernel.parameters["lengthscale"].array.size > 1
        rows = {
            "variance": np.ones((1, self.size)),
            "lengthscale": by_length if each else by_length.sum(axis=0, keepdims=True),
        }
        return kernel._free(rows).reshape(-1, self.size).T

    def _inside(self, kernel: Leaf, X: Array) -> BoolArray:
        columns = X[:, list(kernel._at)]
        return np.asarray(((columns >= self.low) & (columns <= self.high)).all(axis=1))

    def _sines(self, columns: Array) -> Array:
        features = np.ones((len(columns), 1))
        for c, (m, h) in enumerate(zip(self.counts, self.half, strict=True)):
            centre = 0.5 * (self.low[c] + self.high[c])
            angle = np.multiply.outer(np.pi / (2 * h) * (columns[:, c] - centre + h), np.arange(1, m + 1))
            features = row_products(features, np.sin(angle) / np.sqrt(h))
        return features

    def _anchors(self, kernel: Stationary) -> Array:
        """Return points inside the range from which f outside is predicted."""
        grids = []
        for a, b, ell in zip(self.low, self.high, self._lengths(kernel), strict=True):
            if len(self.counts) == 1:
                reach = np.concatenate([[0.0], np.geomspace(_NEAREST, 1.0, _ANCHORS - 1)]) * min(_FARTHEST * ell, b - a)
                grids.append(np.unique(np.concatenate([a + reach, b - reach])))
            else:
                steps = min(_GRID + int(_GRID_PER_LENGTH * (b - a) / ell), _GRID_MOST)
                grids.append(np.unique(a + (b - a) * np.square(np.sin(0.5 * np.pi * np.arange(steps + 1) / steps))))
        return np.stack([g.ravel() for g in np.meshgrid(*grids, indexing="ij")], axis=1)

    def _from_anchors(self, kernel: Stationary, outside: Array) -> Array:
        """Return features outside the range: those at the anchors times ``K_oa (K_aa + ridge)⁻¹``."""
        points = self._anchors(kernel)
        anchors = np.zeros((len(points), outside.shape[1]))
        anchors[:, list(kernel._at)] = points
        L = _root(kernel, anchors, _ANCHOR_RIDGE)
        W = solve_lower(L, np.asfortranarray(kernel._cross(anchors, outside)))
        return solve_lower(L, W, transposed=True).T @ self._sines(points)

    def _basis(self, kernel: Stationary, X: Array) -> Array:
        inside = self._inside(kernel, X)
        if inside.all():
            return self._sines(X[:, list(kernel._at)])
        features = np.empty((len(X), self.size))
        features[inside] = self._sines(X[inside][:, list(kernel._at)])
        features[~inside] = self._from_anchors(kernel, X[~inside])
        return features

    def residual(self, kernel: Stationary, X: Array, full: bool) -> Array:
        result = np.zeros((len(X), len(X)) if full else len(X))
        outside = ~self._inside(kernel, X)
        if outside.any():
            scaled = self._from_anchors(kernel, X[outside]) * np.exp(0.5 * self.log_spectrum(kernel))
            result[np.ix_(outside, outside) if full else outside] = _unexplained(kernel, X[outside], scaled, full)
        return result

    def left_out(self, kernel: Stationary) -> float:
        """Return the variance of frequencies beyond the last function, plus the variance that the walls reflect."""
        beyond = walls = 0.0
        for ell, m, h, a, b in zip(self._lengths(kernel), self.counts, self.half, self.low, self.high, strict=True):
            beyond += kernel.spectral_tail(float(ell) * np.pi * (m + 0.5) / (2 * h))
            gap = 2 * (h - 0.5 * (b - a)) / float(ell)
            walls += float(kernel._shape(np.array([gap**2]))[0])
        return min(1.0, beyond + walls)

    def to_dict(self) -> dict[str, Any]:
        return {"block": "eigenfunctions", "low": self.low, "high": self.high, "half": self.half, "counts": self.counts}


def _root(kernel: Lagged, points: Array, ridge: float) -> Array:
    """Return the Cholesky factor of the covariance at anchors or inducing points, with a ridge on the diagonal."""
    K = kernel._cross(points, points) + ridge * kernel._one("variance") * np.eye(len(points))
    return cholesky_jittered(np.asfortranarray(K))[0]


def _unexplained(kernel: Lagged, X: Array, scaled: Array, full: bool) -> Array:
    """Return ``K − ΨΨᵀ`` or its diagonal. With it, predictions have the prior variance that features do not explain."""
    if full:
        return kernel._cross(X, X) - scaled @ scaled.T
    return np.maximum(kernel.diag(X) - np.einsum("ij,ij->i", scaled, scaled), 0.0)


@dataclass(frozen=True)
class Inducing(LeafBlock):
    """Features of any kernel of lags: a subset of the inputs (Nyström; Quiñonero-Candela & Rasmussen 2005, DTC).

    Attributes
    ----------
    points : tuple of tuple of float
        Inducing points.
    trace : tuple of tuple of float
        Sample of the training inputs on which the unexplained variance is measured.
    """

    points: tuple[tuple[float, ...], ...]
    trace: tuple[tuple[float, ...], ...]
    kind = "inducing points"

    @property
    def size(self) -> int:
        return len(self.points)

    def _parts(self, kernel: Lagged, X: Array) -> tuple[Array, Array, Array]:
        """Return the points, the Cholesky factor L of their covariance, and ``L⁻¹ K_zx``."""
        Z = np.asarray(self.points)
        L = _root(kernel, Z, RIDGE)
        cross = np.empty((len(Z), len(X)), order="F")
        for rows in stretches(len(X)):
            cross[:, rows] = kernel._cross(Z, X[rows])
        return Z, L, solve_lower(L, cross)

    def _basis(self, kernel: Lagged, X: Array) -> Array:
        return self._parts(kernel, X)[2].T

    def log_spectrum(self, kernel: Lagged) -> Array:
        return np.zeros(self.size)

    def slopes(self, kernel: Lagged) -> Array:
        return np.zeros((self.size, kernel.theta.size))

    def moves(self, kernel: Leaf) -> bool:
        return kernel.theta.size > 0

    def contract(self, kernel: Lagged, X: Array, by_log_s: Array, by_phi: Array | None, memo: Memo) -> Array:
        if by_phi is None or not self.moves(kernel):
            return np.empty(0)
        # With Q = K_xz K_zz⁻¹ K_zx and Φ = K_xz L⁻ᵀ: dQ contracted is <G L⁻¹, dK_xz> − ½ <L⁻ᵀ ΦᵀG L⁻¹, dK_zz>.
        Z, L, phi_t = self._parts(kernel, X)
        by_cross = solve_lower(L, np.asfortranarray(by_phi.T), transposed=True).T
        by_square = solve_lower(L, np.asfortranarray(phi_t @ by_cross), transposed=True)
        result = -0.5 * kernel.contract(Pairs(Z), Weights(by_square))
        for rows in stretches(len(X)):
            result = result + kernel.contract_cross(X[rows], Z, by_cross[rows])
        return result

    def residual(self, kernel: Lagged, X: Array, full: bool) -> Array:
        return _unexplained(kernel, X, self._basis(kernel, X), full)

    def left_out(self, kernel: Lagged) -> float:
        """Return the mean fraction of the prior variance that is not explained, over a sample of training inputs."""
        sample = np.asarray(self.trace)
        return float(np.mean(self.residual(kernel, sample, full=False)) / kernel._one("variance"))

    def to_dict(self) -> dict[str, Any]:
        return {"block": "inducing", "points": self.points, "trace": self.trace}
