"""How many features a kernel needs: chosen from its length-scales and the range of the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from unmet._exceptions import InputError
from unmet._typing import Array
from unmet.inference.bases import Eigenfunctions, Explicit, Harmonics, Inducing
from unmet.inference.features import Block, ProductBlock, SumBlock
from unmet.kernels.base import Kernel, Product, Sum
from unmet.kernels.periodic import Periodic
from unmet.kernels.stationary import Lagged, Stationary
from unmet.kernels.structured import Constant, Linear, White

__all__ = ["block_from_dict", "plan"]


def plan(kernel: Kernel, X: Array, *, left_out: float, budget: int) -> Block:
    """Choose features for a kernel so that at most a given share of its prior variance is left out.

    Parameters
    ----------
    kernel : Kernel
        Resolved to column positions, with the hyper-parameters to plan for.
    X : array of shape (n, d)
        Training inputs.
    left_out : float
        Share of each part's variance that may be missed.
    budget : int
        Most features in all; where it does not suffice the plan takes what it can, and its `left_out` says so.
    """
    target = left_out
    block = _plan(kernel, X, target, budget)
    while block.size > budget and target < 0.5:  # coarser for all parts alike, until it fits
        target *= 2.0
        block = _plan(kernel, X, target, budget)
    if block.size > budget:
        raise InputError(
            f"{block.size} features are needed for {kernel!r} even at half of its variance, and {budget} are allowed; "
            "raise n_features, use longer length-scales, or inference='dense'"
        )
    return block


def _plan(kernel: Kernel, X: Array, target: float, budget: int) -> Block:
    if isinstance(kernel, Sum):
        return SumBlock(_plan(kernel.left, X, target, budget), _plan(kernel.right, X, target, budget))
    if isinstance(kernel, Product):
        return ProductBlock(_plan(kernel.left, X, target, budget), _plan(kernel.right, X, target, budget))
    if isinstance(kernel, White):
        raise InputError(
            "White has no low-rank features: leave it out (the likelihood has its own noise or dispersion), "
            "or use inference='dense'"
        )
    if isinstance(kernel, Constant):
        return Explicit(1)
    if isinstance(kernel, Linear):
        return Explicit(len(kernel._at))
    if isinstance(kernel, Periodic) and len(kernel._at) == 1:
        return _harmonics(kernel, target)
    if isinstance(kernel, Stationary) and len(kernel._at) <= 2:
        return _eigenfunctions(kernel, X, target)
    assert isinstance(kernel, Lagged)
    return _inducing(kernel, X, target, budget)


def _harmonics(kernel: Periodic, target: float) -> Harmonics:
    most = 10 + int(10.0 / kernel._one("lengthscale"))
    shares = np.exp(kernel.log_harmonics(most)[0] - np.log(kernel._one("variance")))
    enough = np.flatnonzero(1.0 - np.cumsum(shares) <= target)
    return Harmonics(int(enough[0]) if enough.size else most)


def _eigenfunctions(kernel: Stationary, X: Array, target: float) -> Eigenfunctions:
    columns = X[:, list(kernel._at)]
    lengths = np.broadcast_to(kernel.parameters["lengthscale"].array, (columns.shape[1],))
    low, high = columns.min(axis=0), columns.max(axis=0)
    half = 0.5 * (high - low) + _padding(kernel, target) * lengths
    # Twice the frequencies where length-scales may move: a search must be able to see that shorter ones fit better.
    headroom = 1.0 if kernel.parameters["lengthscale"].fixed else 2.0
    reach = headroom * kernel.spectral_reach(target / columns.shape[1]) / lengths
    counts = np.maximum(1, np.ceil(2 * half / np.pi * reach - 0.5)).astype(int)
    return Eigenfunctions(*(tuple(v.tolist()) for v in (low, high, half, counts)))


def _padding(kernel: Stationary, target: float) -> float:
    """How far, in length-scales, the box reaches beyond the data, so that what its walls mirror is not seen inside."""
    distance = np.linspace(0.5, 20.0, 400)  # to the mirror image, twice the padding
    unseen = np.flatnonzero(kernel._shape(np.square(distance)) <= target)
    return 0.5 * float(distance[unseen[0]] if unseen.size else distance[-1])


def _inducing(kernel: Lagged, X: Array, target: float, budget: int) -> Inducing:
    """Greedy choice by pivoted Cholesky: the next point is the one least explained so far (Fine & Scheinberg 2001)."""
    residual = kernel.diag(X)
    total = residual.sum()
    rows: list[Array] = []
    chosen: list[int] = []
    while len(chosen) < min(budget, len(X)) and residual.sum() > target * total:
        pivot = int(np.argmax(residual))
        row = kernel._cross(X[[pivot]], X)[0]
        for previous in rows:
            row = row - previous[pivot] * previous
        row = row / np.sqrt(residual[pivot])
        rows.append(row)
        chosen.append(pivot)
        residual = np.maximum(residual - np.square(row), 0.0)
    sample = X[np.linspace(0, len(X) - 1, min(len(X), 500)).astype(int)]
    return Inducing(_nested(X[chosen]), _nested(sample))


def _nested(points: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in points.tolist())


def block_from_dict(description: dict[str, Any]) -> Block:
    """Read back what `Block.to_dict` wrote."""
    kind = description["block"]
    if kind in ("sum", "product"):
        left, right = block_from_dict(description["left"]), block_from_dict(description["right"])
        return (SumBlock if kind == "sum" else ProductBlock)(left, right)
    rest = {k: v for k, v in description.items() if k != "block"}
    if kind == "explicit":
        return Explicit(**rest)
    if kind == "harmonics":
        return Harmonics(**rest)
    if kind == "eigenfunctions":
        return Eigenfunctions(**{k: tuple(v) for k, v in rest.items()})
    if kind == "inducing":
        return Inducing(**{k: tuple(tuple(row) for row in v) for k, v in rest.items()})
    raise InputError(f"unknown features {kind!r}")
