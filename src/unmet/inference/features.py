"""Low-rank kernels as features: ``K ≈ Φ diag(S) Φᵀ``, so that ``f = Φb`` with ``b ~ N(0, diag(S))``.

| kernel                               | basis Φ                                  | prior variances S            |
|--------------------------------------|------------------------------------------|------------------------------|
| Periodic, one column                 | cos and sin of 0…J cycles                | scaled Bessel functions      |
| stationary, one or two columns       | Hilbert-space eigenfunctions of a box    | spectral density             |
| Linear, Constant                     | columns, ones                            | their variances              |
| Lagged, other (several columns)      | inducing points, ``K_xz L_z⁻ᵀ``          | 1                            |
| a + b, a × b                         | columns side by side, products of columns| S_a and S_b, their products  |

(Solin & Särkkä 2014 and 2020; Riutort-Mayol et al. 2023.) `unmet.inference.bases` has the bases of single kernels,
`unmet.inference.planning` chooses the number of functions, and this module combines them for sums and products.
A block is a plan: the functions, and the box they live on. It is made once from the inputs and the kernel's
hyper-parameters, and kept while those change. `left_out` returns the fraction of the prior variance that the plan
misses at given hyper-parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from unmet._typing import Array
from unmet.kernels.base import Kernel, Product, Sum

__all__ = ["Block", "LeafBlock", "Memo", "ProductBlock", "SumBlock", "row_products", "stretches"]

Memo = dict[int, Array]
_STRETCH = 1024


class Block(ABC):
    """A plan of features for one kernel, evaluated with that kernel at any hyper-parameters."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of features."""

    @abstractmethod
    def phi(self, kernel: Any, X: Array, memo: Memo | None = None) -> Array:
        """Return basis functions at X, shape (n, size); cached in `memo` if free hyper-parameters do not move them."""

    @abstractmethod
    def log_spectrum(self, kernel: Any) -> Array:
        """Return the logs of the prior variances S."""

    @abstractmethod
    def slopes(self, kernel: Any) -> Array:
        """Return the derivatives of `log_spectrum` by the kernel's theta, shape (size, p)."""

    @abstractmethod
    def contract(self, kernel: Any, X: Array, by_log_s: Array, by_phi: Array | None, memo: Memo) -> Array:
        """Return the gradient by the kernel's theta, from the gradients by log S and, if the basis moves, by Φ."""

    @abstractmethod
    def moves(self, kernel: Any) -> bool:
        """Return whether the basis depends on free hyper-parameters."""

    @abstractmethod
    def residual(self, kernel: Any, X: Array, full: bool) -> Array:
        """Return the prior covariance at X (`full`) or its diagonal that features miss and predictions must add."""

    @abstractmethod
    def left_out(self, kernel: Any) -> float:
        """Return the fraction of the prior variance at the training inputs that the features miss."""

    @abstractmethod
    def describe(self, kernel: Any) -> list[dict[str, Any]]:
        """Return one row per leaf: kernel, kind of features, their number, fraction left out."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description. `unmet.inference.planning.block_from_dict` reads it."""


class LeafBlock(Block):
    """Features of a kernel that is not a sum or product."""

    kind: str

    def moves(self, kernel: Any) -> bool:
        return False

    def residual(self, kernel: Any, X: Array, full: bool) -> Array:
        return np.zeros((len(X), len(X)) if full else len(X))

    def left_out(self, kernel: Any) -> float:
        return 0.0

    def describe(self, kernel: Any) -> list[dict[str, Any]]:
        row = {"kernel": repr(kernel), "features": self.kind, "count": self.size, "left_out": self.left_out(kernel)}
        return [row]

    def contract(self, kernel: Any, X: Array, by_log_s: Array, by_phi: Array | None, memo: Memo) -> Array:
        return by_log_s @ self.slopes(kernel)

    def phi(self, kernel: Any, X: Array, memo: Memo | None = None) -> Array:
        if memo is None or self.moves(kernel):
            return self._basis(kernel, X)
        if id(self) not in memo:
            memo[id(self)] = self._basis(kernel, X)
        return memo[id(self)]

    @abstractmethod
    def _basis(self, kernel: Any, X: Array) -> Array:
        """Return basis functions at X."""


class _PairBlock(Block):
    """Features of a sum or product."""

    def __init__(self, left: Block, right: Block) -> None:
        self.left, self.right = left, right

    def moves(self, kernel: Sum | Product) -> bool:
        return self.left.moves(kernel.left) or self.right.moves(kernel.right)

    def describe(self, kernel: Sum | Product) -> list[dict[str, Any]]:
        return self.left.describe(kernel.left) + self.right.describe(kernel.right)


class SumBlock(_PairBlock):
    """Features of a sum: columns of both parts, side by side."""

    @property
    def size(self) -> int:
        return self.left.size + self.right.size

    def phi(self, kernel: Sum, X: Array, memo: Memo | None = None) -> Array:
        return np.concatenate([self.left.phi(kernel.left, X, memo), self.right.phi(kernel.right, X, memo)], axis=1)

    def log_spectrum(self, kernel: Sum) -> Array:
        return np.concatenate([self.left.log_spectrum(kernel.left), self.right.log_spectrum(kernel.right)])

    def slopes(self, kernel: Sum) -> Array:
        return block_diag(self.left.slopes(kernel.left), self.right.slopes(kernel.right))

    def contract(self, kernel: Sum, X: Array, by_log_s: Array, by_phi: Array | None, memo: Memo) -> Array:
        k = self.left.size
        left, right = (None, None) if by_phi is None else (by_phi[:, :k], by_phi[:, k:])
        return np.concatenate(
            [
                self.left.contract(kernel.left, X, by_log_s[:k], left, memo),
                self.right.contract(kernel.right, X, by_log_s[k:], right, memo),
            ]
        )

    def residual(self, kernel: Sum, X: Array, full: bool) -> Array:
        return self.left.residual(kernel.left, X, full) + self.right.residual(kernel.right, X, full)

    def left_out(self, kernel: Sum) -> float:
        return max(self.left.left_out(kernel.left), self.right.left_out(kernel.right))

    def to_dict(self) -> dict[str, Any]:
        return {"block": "sum", "left": self.left.to_dict(), "right": self.right.to_dict()}


class ProductBlock(_PairBlock):
    """Features of a product: all products of a column of one part and a column of the other."""

    @property
    def size(self) -> int:
        return self.left.size * self.right.size

    def phi(self, kernel: Product, X: Array, memo: Memo | None = None) -> Array:
        if memo is None or self.moves(kernel):
            return row_products(self.left.phi(kernel.left, X, memo), self.right.phi(kernel.right, X, memo))
        if id(self) not in memo:
            memo[id(self)] = row_products(self.left.phi(kernel.left, X), self.right.phi(kernel.right, X))
        return memo[id(self)]

    def log_spectrum(self, kernel: Product) -> Array:
        left, right = self.left.log_spectrum(kernel.left), self.right.log_spectrum(kernel.right)
        return np.add.outer(left, right).ravel()

    def slopes(self, kernel: Product) -> Array:
        left = np.repeat(self.left.slopes(kernel.left), self.right.size, axis=0)
        right = np.tile(self.right.slopes(kernel.right), (self.left.size, 1))
        return np.concatenate([left, right], axis=1)

    def contract(self, kernel: Product, X: Array, by_log_s: Array, by_phi: Array | None, memo: Memo) -> Array:
        shape = (self.left.size, self.right.size)
        table = by_log_s.reshape(shape)
        left = right = None
        if by_phi is not None:
            cube = by_phi.reshape(len(X), *shape)
            left = np.einsum("iab,ib->ia", cube, self.right.phi(kernel.right, X, memo))
            right = np.einsum("iab,ia->ib", cube, self.left.phi(kernel.left, X, memo))
        return np.concatenate(
            [
                self.left.contract(kernel.left, X, table.sum(axis=1), left, memo),
                self.right.contract(kernel.right, X, table.sum(axis=0), right, memo),
            ]
        )

    def residual(self, kernel: Product, X: Array, full: bool) -> Array:
        # (Q₁ + R₁) ∘ (Q₂ + R₂) − Q₁ ∘ Q₂
        pairs = ((self.left, kernel.left), (self.right, kernel.right))
        r1, r2 = (block.residual(part, X, full) for block, part in pairs)
        if not (r1.any() or r2.any()):
            return r1
        q1, q2 = (_explained(block, part, X, full) for block, part in pairs)
        return r1 * q2 + q1 * r2 + r1 * r2

    def left_out(self, kernel: Product) -> float:
        return 1.0 - (1.0 - self.left.left_out(kernel.left)) * (1.0 - self.right.left_out(kernel.right))

    def to_dict(self) -> dict[str, Any]:
        return {"block": "product", "left": self.left.to_dict(), "right": self.right.to_dict()}


def _explained(block: Block, kernel: Kernel, X: Array, full: bool) -> Array:
    scaled = block.phi(kernel, X) * np.exp(0.5 * block.log_spectrum(kernel))
    return scaled @ scaled.T if full else np.einsum("ij,ij->i", scaled, scaled)


def row_products(A: Array, B: Array) -> Array:
    """Return row-wise products of all columns of A with all columns of B.

    Parameters
    ----------
    A, B : arrays of shapes (n, a) and (n, b)
        The factors.

    Returns
    -------
    array of shape (n, a·b)
    """
    return (A[:, :, None] * B[:, None, :]).reshape(len(A), A.shape[1] * B.shape[1])


def stretches(n: int) -> list[slice]:
    """Split n rows into slices that are short enough for their temporary arrays to stay in the cache."""
    return [slice(i, min(i + _STRETCH, n)) for i in range(0, n, _STRETCH)]
