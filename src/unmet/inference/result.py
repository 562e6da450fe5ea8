"""What inference gives back, whatever the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from unmet._typing import Array
from unmet.inference.ep import Sites

__all__ = ["Inference", "Info", "Posterior"]


class Posterior(Protocol):
    """A Gaussian process again: what is known of f after the observations."""

    def marginals(self, X: Array) -> tuple[Array, Array]:
        """Means and variances of f at X."""
        ...

    def joint(self, X: Array) -> tuple[Array, Array]:
        """Mean and covariance matrix of f at X."""
        ...

    def sample(self, X: Array, size: int, rng: np.random.Generator) -> Array:
        """Joint draws of f at X, shape (size, n)."""
        ...


@dataclass(frozen=True)
class Info:
    """How inference went.

    Attributes
    ----------
    converged : bool
        Whether EP's sites stand still.
    sweeps : int
        Sweeps over the sites that it took.
    residual : float
        Last movement of a site, in units of the posterior.
    jitter : float
        What had to be added to the diagonal of the covariance matrix: 0 nearly always.
    """

    converged: bool
    sweeps: int
    residual: float
    jitter: float


@dataclass(frozen=True)
class Inference:
    """Posterior, log evidence and gradient together (by kernel's, then likelihood's theta), and how it went."""

    posterior: Posterior
    log_z: float
    gradient: Array | None
    sites: Sites
    info: Info
