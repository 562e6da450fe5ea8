"""Beta distributions of shares, and the grid of cells on which shares live."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import special

from unmet._exceptions import InputError
from unmet._parameters import LogNormal, Parameter, one_number, parameter_from_dict, parameter_to_dict
from unmet._typing import Array

__all__ = ["BOUNDS", "PRIOR", "Beta", "Cells", "Masses", "cells", "held", "masses"]

BOUNDS = (1e-2, 1e3)
"""Of α, β and the odds of a label."""
PRIOR = LogNormal(1.0, 2.0)
"""Of the same, where they are learnt."""

_POINTS = 12  # of the Gauss–Legendre rule of a cell
_TERMS = 24  # of the series of the first and the last cell


def held(given: float | Parameter, name: str) -> Parameter:
    """A number as a hyper-parameter that is held there; a `Parameter` as it is."""
    checked = one_number(given, name)
    return checked if isinstance(given, Parameter) else Parameter(checked.array[0], fixed=True)


@dataclass(frozen=True)
class Beta:
    """A beta distribution of shares.

    Parameters
    ----------
    alpha, beta : float or Parameter
        A number holds the parameter there; a `Parameter` is learnt from its value, with its bounds and prior.

    Examples
    --------
    >>> Beta(1, 1).mean, round(Beta(1, 1).sd, 3)
    (0.5, 0.289)
    """

    alpha: float | Parameter = field(default_factory=lambda: Parameter(1.0, bounds=BOUNDS, prior=PRIOR))
    beta: float | Parameter = field(default_factory=lambda: Parameter(1.0, bounds=BOUNDS, prior=PRIOR))

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            object.__setattr__(self, name, held(getattr(self, name), name).filled(1.0, BOUNDS))
            # Narrower than the cells of shares, or nearly all in the first and the last: there the sums are not exact.
            value = float(getattr(self, name).array[0])
            if not BOUNDS[0] <= round(value, 9) <= BOUNDS[1]:  # a learnt one may end at its bound
                raise InputError(f"{name}: expected {BOUNDS[0]:g} to {BOUNDS[1]:g}; got {value:g}.")

    @property
    def parameters(self) -> dict[str, Parameter]:
        """α and β by the names that a fitted model gives them."""
        assert isinstance(self.alpha, Parameter)
        assert isinstance(self.beta, Parameter)
        return {"share_alpha": self.alpha, "share_beta": self.beta}

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able description."""
        return {name: parameter_to_dict(p) for name, p in self.parameters.items()}

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Self:
        """The distribution that `to_dict` described."""
        return cls(*(parameter_from_dict(description[name]) for name in ("share_alpha", "share_beta")))

    @property
    def values(self) -> tuple[float, float]:
        """α and β as numbers."""
        alpha, beta = (float(p.array[0]) for p in self.parameters.values())
        return alpha, beta

    @property
    def mean(self) -> float:
        """Expected share."""
        alpha, beta = self.values
        return alpha / (alpha + beta)

    @property
    def sd(self) -> float:
        """Standard deviation of the share."""
        alpha, beta = self.values
        return float(np.sqrt(alpha * beta / (alpha + beta + 1)) / (alpha + beta))


class Cells(NamedTuple):
    """The grid of shares: edges ``sin²(πj/2K)``, so that shares near 0 and 1 are told apart from 0 and 1.

    The last three are Gauss–Legendre rules of the cells between the first and the last, shape (K - 2, points): log x,
    log(1 - x), and the log weights of ``x^α (1 - x)^β``.
    """

    edges: Array
    nodes: Array
    half_widths: Array
    log_x: Array
    log_rest: Array
    log_weights: Array


class Masses(NamedTuple):
    """Log probabilities of the cells, shape (K,), and their derivatives by log α and log β, shape (2, K)."""

    log_mass: Array
    by_log: Array


def cells(count: int) -> Cells:
    """A grid of that many cells, at least three."""
    edges = np.sin(0.5 * np.pi * np.arange(count + 1) / count) ** 2
    points, weights = np.polynomial.legendre.leggauss(_POINTS)
    half = 0.25 * np.pi / count
    angle = half * (2 * np.arange(1, count - 1)[:, None] + 1 + points)
    log_x, log_rest = 2 * np.log(np.sin(angle)), 2 * np.log(np.cos(angle))
    # With x = sin²(angle), dx/(x (1 - x)) = 2/(sin cos) d(angle).
    log_weights = np.log(2 * half * weights) - 0.5 * (log_x + log_rest)
    return Cells(edges, 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges), log_x, log_rest, log_weights)


def masses(alpha: float, beta: float, grid: Cells) -> Masses:
    """Probabilities of the cells under Beta(α, β), at least 1e-300.

    Cells have the same width as angles, in which the density is smooth; the first and the last, where it may not be,
    are summed as series. Where a probability exceeds 1e-16 of the largest, its relative error is below 1e-9 for α and
    β between 0.01 and 1,000. ``d log(mass)/dα = E[log x | cell] - E[log x]``, and the same with 1 - x for β.
    """
    joint = alpha * grid.log_x + beta * grid.log_rest + grid.log_weights
    top = joint.max(axis=1)
    joint = np.exp(joint - top[:, None])
    total = joint.sum(axis=1)
    means = [np.einsum("kp,kp->k", joint, log) / total for log in (grid.log_x, grid.log_rest)]
    width = float(grid.edges[1])
    first, last = _first_cell(alpha, beta, width), _first_cell(beta, alpha, width)[[0, 2, 1]]
    inner = np.array([top + np.log(total), *means])
    log_mass, log_x, log_rest = np.concatenate([first[:, None], inner, last[:, None]], axis=1)
    log_mass -= special.betaln(alpha, beta)
    by_alpha = alpha * (log_x - special.digamma(alpha) + special.digamma(alpha + beta))
    by_beta = beta * (log_rest - special.digamma(beta) + special.digamma(alpha + beta))
    least = np.log(1e-300)
    return Masses(np.maximum(log_mass, least), np.where(log_mass > least, np.array([by_alpha, by_beta]), 0.0))


def _first_cell(alpha: float, beta: float, width: float) -> Array:
    """Log of the integral of ``x^(α-1) (1-x)^(β-1)`` from 0 to `width`, and means of log x and log(1-x) there.

    ``(1 - x)^(β-1)`` is a series in x, so moments ``E[x^i]`` are ratios of sums, and log(1-x) a sum of moments. The
    terms fall like ``(width β)^j/j!``.
    """
    j = np.arange(1, _TERMS)
    terms = np.append(1.0, np.cumprod(width * (j - beta) / j))
    inverse = 1.0 / (alpha + np.arange(_TERMS)[:, None] + np.arange(_TERMS))
    sums = inverse @ terms
    log_x = np.log(width) - inverse[0] ** 2 @ terms / sums[0]
    log_rest = -(width**j / j) @ sums[1:] / sums[0]
    return np.array([alpha * np.log(width) + np.log(sums[0]), log_x, log_rest])
