"""The result of inference, common to all engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from unmet._typing import Array
from unmet.inference.ep import Sites

__all__ = ["Inference", "Info", "Posterior"]


class Posterior(Protocol):
    """The posterior of f given the observations: again a Gaussian process."""

    def marginals(self, X: Array) -> tuple[Array, Array]:
        """Return means and variances of f at X."""
        ...

    def joint(self, X: Array) -> tuple[Array, Array]:
        """Return mean and covariance matrix of f at X."""
        ...

    def sample(self, X: Array, size: int, rng: np.random.Generator) -> Array:
        """Draw f jointly at X; shape (size, n)."""
        ...


@dataclass(frozen=True)
class Info:
    """Diagnostics of one inference.

    Attributes
    ----------
    converged : bool
        Whether EP's sites converged.
    sweeps : int
        Number of sweeps over the sites.
    residual : float
        Last movement of a site, in units of the posterior.
    jitter : float
        Value added to the diagonal of the covariance matrix; 0 almost always.
    """

    converged: bool
    sweeps: int
    residual: float
    jitter: float


@dataclass(frozen=True)
class Inference:
    """Posterior, log evidence, its gradient (by the kernel's theta, then the likelihood's), sites and diagnostics.

    `information` is the Fisher information of the hyper-parameters, an approximation of minus the evidence's second
    derivatives; None where it is not computed.
    """

    posterior: Posterior
    log_z: float
    gradient: Array | None
    sites: Sites
    info: Info
    information: Array | None = None
