"""Beta distributions of shares, and the grid of cells on which shares live."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import special

from unmet._parameters import LogNormal, Parameter, one_number, parameter_from_dict, parameter_to_dict
from unmet._typing import Array

__all__ = ["BOUNDS", "PRIOR", "Beta", "Cells", "cells", "held", "log_masses"]

BOUNDS = (1e-2, 1e3)
"""Of α, β and the odds of a label."""
PRIOR = LogNormal(1.0, 2.0)
"""Of the same, where they are learnt."""


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
    """The grid of shares: edges ``sin²(πj/2K)``, so that shares near 0 and 1 are told apart from 0 and 1."""

    edges: Array
    nodes: Array
    half_widths: Array


def cells(count: int) -> Cells:
    """A grid of that many cells."""
    edges = np.sin(0.5 * np.pi * np.arange(count + 1) / count) ** 2
    return Cells(edges, 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges))


def log_masses(alpha: float, beta: float, edges: Array) -> Array:
    """Log probabilities of the cells under Beta(α, β), each by the shorter tail; at least log 1e-300."""
    # Each edge is needed on one side of the median only, and the incomplete beta function is most of the cost.
    median = max(int(np.searchsorted(edges, special.betaincinv(alpha, beta, 0.5))), 1)
    below, above = special.betainc(alpha, beta, edges[:median]), special.betaincc(alpha, beta, edges[median - 1 :])
    mass = np.concatenate([np.diff(below), -np.diff(above)])
    return np.log(np.maximum(mass, 1e-300))
