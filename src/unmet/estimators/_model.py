"""A kernel, a likelihood and data as one function of ``theta``: what the optimiser climbs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from unmet._typing import Array
from unmet.evidence import Evaluation
from unmet.inference import dense
from unmet.inference.ep import Sites
from unmet.inference.result import Inference
from unmet.kernels.base import Kernel
from unmet.likelihoods.base import Observations
from unmet.likelihoods.gaussian import Gaussian

__all__ = ["Model"]


@dataclass(frozen=True)
class Model:
    """Kernel (resolved to column positions) and likelihood on data; theta is the kernel's, then the likelihood's."""

    kernel: Kernel
    likelihood: Gaussian
    X: Array
    obs: Observations
    problem: dense.DenseProblem = field(repr=False)

    @classmethod
    def of(cls, kernel: Kernel, likelihood: Gaussian, X: Array, obs: Observations) -> Model:
        """The model with what does not change with hyper-parameters worked out once."""
        return cls(kernel, likelihood, X, obs, dense.prepare(X, obs, likelihood))

    @cached_property
    def theta(self) -> Array:
        """Logarithms of all free hyper-parameters."""
        return np.concatenate([self.kernel.theta, self.likelihood.theta])

    @cached_property
    def bounds(self) -> Array:
        """Bounds of `theta`, one row each."""
        return np.concatenate([self.kernel.bounds, self.likelihood.bounds])

    @property
    def theta_names(self) -> list[str]:
        """What each element of `theta` is."""
        return self.kernel.theta_names + ["noise_variance"] * self.likelihood.theta.size

    def with_theta(self, theta: Array) -> Model:
        """The same data under other hyper-parameters."""
        k = self.kernel.theta.size
        return replace(self, kernel=self.kernel.with_theta(theta[:k]), likelihood=self.likelihood.with_theta(theta[k:]))

    def infer(self, theta: Array, start: Sites | None = None, *, gradient: bool = True) -> Inference:
        """Posterior, evidence and gradient at theta."""
        at = self.with_theta(theta)
        return dense.infer(at.kernel, at.likelihood, self.problem, start, gradient=gradient)

    def log_prior(self, theta: Array) -> tuple[float, Array]:
        """Log prior density of the hyper-parameters, and its gradient."""
        at = self.with_theta(theta)
        (a, ga), (b, gb) = at.kernel.log_prior(), at.likelihood.log_prior()
        return a + b, np.concatenate([ga, gb])

    def objective(self, theta: Array, start: Sites | None) -> Evaluation[Sites]:
        """Log evidence plus log prior, as `unmet.evidence.maximise` wants it."""
        result = self.infer(theta, start)
        value, slope = self.log_prior(theta)
        assert result.gradient is not None
        return Evaluation(result.log_z + value, result.gradient + slope, result.sites)
