"""Planning of features: their number, from the kernel's length-scales and the range of the data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq

from unmet._exceptions import InputError
from unmet._typing import Array, IntArray
from unmet.inference.bases import RIDGE, Eigenfunctions, Explicit, Harmonics, Inducing
from unmet.inference.features import Block, ProductBlock, SumBlock
from unmet.kernels.base import Kernel, Product, Sum
from unmet.kernels.periodic import Periodic
from unmet.kernels.stationary import Lagged, Stationary
from unmet.kernels.structured import Constant, Linear, White

__all__ = ["block_from_dict", "plan"]

# A search must be able to find that shorter length-scales fit better. Where length-scales are free, features are
# planned for length-scales down to half of those given, or as close to that as the budget allows.
_MARGINS = (2.0, 1.4, 1.0)
# Largest fraction of the variance that a plan may leave out.
_COARSEST = 0.5
# Inducing points are chosen among this many rows.
_CANDIDATES = 2000


def plan(kernel: Kernel, X: Array, *, left_out: float, budget: int) -> Block:
    """Choose features for a kernel so that at most a given fraction of its prior variance is left out.

    Parameters
    ----------
    kernel : Kernel
        Kernel resolved to column positions, with the hyper-parameters to plan for.
    X : array of shape (n, d)
        Training inputs.
    left_out : float
        Fraction of each part's variance that may be left out.
    budget : int
        Most features in total. If it is too small, the plan leaves out more, and its `left_out` reports how much.

    Returns
    -------
    Block
    """
    for margin in _MARGINS:
        block = _plan(kernel, X, _Aim(left_out, margin, budget))
        if block.size <= budget:
            return block
    aim = _Aim(left_out, _MARGINS[-1], budget)
    while (block := _plan(kernel, X, aim)).size > budget:
        others = _plan(kernel, X, replace(aim, points=1)).size
        if others <= (budget if aim.left_out >= _COARSEST else budget // 2):  # inducing points use the rest
            aim = replace(aim, points=9 * aim.points // 10)
        elif aim.left_out < _COARSEST:  # coarser for all parts equally
            aim = replace(aim, left_out=min(1.3 * aim.left_out, _COARSEST))
        else:
            raise InputError(
                f"{block.size} features are needed for {kernel!r} even with {block.left_out(kernel):.0%} of its "
                f"variance left out, but only {budget} are allowed. Raise n_features, use longer length-scales, or "
                "use inference='dense'."
            )
    return block


@dataclass(frozen=True)
class _Aim:
    """Target of a plan for each part of a kernel: fraction left out, margin of length-scales, most inducing points."""

    left_out: float
    margin: float
    points: int


def _plan(kernel: Kernel, X: Array, aim: _Aim) -> Block:
    if isinstance(kernel, Sum):
        return SumBlock(_plan(kernel.left, X, aim), _plan(kernel.right, X, aim))
    if isinstance(kernel, Product):
        return ProductBlock(_plan(kernel.left, X, aim), _plan(kernel.right, X, aim))
    if isinstance(kernel, White):
        raise InputError(
            "White has no low-rank features. Leave it out (the likelihood has its own noise or dispersion), "
            "or use inference='dense'."
        )
    if isinstance(kernel, Constant):
        return Explicit(1)
    if isinstance(kernel, Linear):
        return Explicit(len(kernel._at))
    if isinstance(kernel, Periodic) and len(kernel._at) == 1:
        return _harmonics(kernel, aim)
    if isinstance(kernel, Stationary) and len(kernel._at) <= 2:
        return _eigenfunctions(kernel, X, aim)
    assert isinstance(kernel, Lagged)
    return _inducing(kernel, X, aim)


def _margin(kernel: Lagged, aim: _Aim) -> float:
    return 1.0 if kernel.parameters["lengthscale"].fixed else aim.margin


def _harmonics(kernel: Periodic, aim: _Aim) -> Harmonics:
    most = 10 + int(10.0 / kernel._one("lengthscale"))
    shares = np.exp(kernel.log_harmonics(most)[0] - np.log(kernel._one("variance")))
    enough = np.flatnonzero(1.0 - np.cumsum(shares) <= aim.left_out)
    # The number needed is inversely proportional to the length-scale.
    return Harmonics(int(_margin(kernel, aim) * (enough[0] if enough.size else most)))


def _eigenfunctions(kernel: Stationary, X: Array, aim: _Aim) -> Eigenfunctions:
    columns = X[:, list(kernel._at)]
    lengths = np.broadcast_to(kernel.parameters["lengthscale"].array, (columns.shape[1],))
    low, high = columns.min(axis=0), columns.max(axis=0)
    share = 0.5 * aim.left_out / columns.shape[1]  # half for reflection at the walls, half for omitted frequencies
    half = 0.5 * (high - low) + 0.5 * _distance(kernel, share) * lengths  # a mirror image is twice as far as the wall
    reach = _margin(kernel, aim) * kernel.spectral_reach(share) / lengths
    counts = np.maximum(1, np.ceil(2 * half / np.pi * reach - 0.5)).astype(int)
    return Eigenfunctions(*(tuple(v.tolist()) for v in (low, high, half, counts)))


def _distance(kernel: Stationary, correlation: float) -> float:
    """Return the distance, in length-scales, at which the correlation falls to a given value."""
    return float(brentq(lambda r: float(kernel._shape(np.array([r**2]))[0]) - correlation, 0.0, 1e4))


def _inducing(kernel: Lagged, X: Array, aim: _Aim) -> Inducing:
    """Choose points greedily by pivoted Cholesky: the next one is the least explained (Fine & Scheinberg 2001)."""
    candidates = X[_spread(len(X), _CANDIDATES)]
    residual = kernel.diag(candidates)
    enough = aim.left_out * residual.sum()
    nothing = RIDGE * residual.max()
    rows = np.empty((min(aim.points, len(candidates)), len(candidates)))
    chosen: list[int] = []
    while len(chosen) < len(rows) and residual.sum() > enough and residual.max() > nothing:
        k, pivot = len(chosen), int(np.argmax(residual))
        row = kernel._cross(candidates[[pivot]], candidates)[0] - rows[:k, pivot] @ rows[:k]
        rows[k] = row / np.sqrt(residual[pivot])
        chosen.append(pivot)
        residual = np.maximum(residual - np.square(rows[k]), 0.0)
    return Inducing(_nested(candidates[chosen]), _nested(X[_spread(len(X), 500)]))


def _spread(n: int, most: int) -> IntArray:
    """Return at most `most` of n row numbers, evenly spread."""
    return np.linspace(0, n - 1, min(n, most)).astype(int)


def _nested(points: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in points.tolist())


def block_from_dict(description: dict[str, Any]) -> Block:
    """Read the description written by `Block.to_dict`.

    Parameters
    ----------
    description : dict
        The JSON-able description.

    Returns
    -------
    Block
    """
    kind = description["block"]
    if kind in ("sum", "product"):
        left, right = block_from_dict(description["left"]), block_from_dict(description["right"])
        return (SumBlock if kind == "sum" else ProductBlock)(left, right)
    rest = {k: v for k, v in description.items() if k != "block"}
    if kind == "explicit":
        _check_counts("columns", rest["columns"])
        return Explicit(**rest)
    if kind == "harmonics":
        _check_counts("count", rest["count"], least=0)
        return Harmonics(**rest)
    if kind == "eigenfunctions":
        box = Eigenfunctions(**{k: tuple(v) for k, v in rest.items()})
        _check_counts("counts", *box.counts)
        sides = np.array([box.low, box.high, box.half], dtype=float)
        if sides.shape != (3, len(box.counts)) or not np.isfinite(sides).all() or not (sides[2] > 0).all():
            raise InputError("features: expected low, high and a positive half for each of counts")
        return box
    if kind == "inducing":
        return Inducing(**{k: tuple(tuple(row) for row in v) for k, v in rest.items()})
    raise InputError(f"Unknown kind of features: {kind!r}.")


def _check_counts(name: str, *counts: Any, least: int = 1) -> None:
    """Raise `InputError` if numbers of features, of which there is at least one, are not whole or too small."""
    if not counts or any(type(count) is not int or count < least for count in counts):
        raise InputError(f"features: {name}: expected whole numbers of at least {least}, got {counts!r:.60}")
