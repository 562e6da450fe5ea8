"""What a likelihood promises to inference, and the observations it speaks of.

Naming: ``m, v`` are mean and variance of a Gaussian over one latent value f (in EP, the cavity);
``log_z = log ∫ p(observation | f) N(f | m, v) df``; ``d1, d2`` its derivatives by m (R&W section 3.6).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from unmet._exceptions import InputError
from unmet._typing import Array, BoolArray, IntArray

__all__ = ["Kinds", "Likelihood", "Observations", "Tilted", "refuse_reversed"]


class Kinds(NamedTuple):
    """Rows by what is known of them: the value, a lower bound only, an upper one only, both, or nothing."""

    exact: IntArray
    at_least: IntArray
    at_most: IntArray
    between: IntArray
    unknown: IntArray


def refuse_reversed(lower: Array, upper: Array) -> None:
    """Refuse bounds the wrong way round; NaN is none."""
    bad = np.flatnonzero(lower > upper)
    if bad.size:
        i = int(bad[0])
        raise InputError(
            f"lower must not exceed upper; row {i} has {lower[i]} > {upper[i]} ({bad.size} such rows in all). "
            "Exchange or correct them"
        )


@dataclass(frozen=True)
class Observations:
    """What is known of each observation: demand lies in ``[lower, upper]``.

    Censoring is data, never model state: exact where ``lower == upper``, censored from above (demand
    is at least what was seen) where ``upper`` is infinite, from below where ``lower`` is, else an interval.

    Parameters
    ----------
    lower, upper : array of shape (n,)
        Bounds of the true value.
    exposure : array of shape (n,), optional
        Share of the bin in which demand could be served, 0…1 (counts only). None means 1 everywhere.
    background : array of shape (n,), optional
        Expected number of counts in the row that are not of this demand, at least 0 (counts only). None means 0.
    """

    lower: Array
    upper: Array
    exposure: Array | None = None
    background: Array | None = None

    def __post_init__(self) -> None:
        if self.lower.shape != self.upper.shape or self.lower.ndim != 1:
            raise InputError(
                f"lower and upper must be two vectors of one length; got {self.lower.shape}, {self.upper.shape}"
            )
        if not (self.lower <= self.upper).all():
            refuse_reversed(self.lower, self.upper)
            row = np.flatnonzero(np.isnan(self.lower) | np.isnan(self.upper))[0]
            raise InputError(f"bounds must not be NaN, as in row {row}; use −inf and inf where there are none")

    def __len__(self) -> int:
        return self.lower.size

    @cached_property
    def exact(self) -> BoolArray:
        """Rows whose value is known exactly."""
        return self.lower == self.upper

    @cached_property
    def kinds(self) -> Kinds:
        """Numbers of the rows of each kind; EP asks for them in every sweep."""
        low, high = np.isfinite(self.lower), np.isfinite(self.upper)
        rows = (self.exact & low, low & ~high, high & ~low, low & high & ~self.exact, ~low & ~high)
        return Kinds(*(np.flatnonzero(each) for each in rows))

    def __getitem__(self, rows: BoolArray | slice | np.ndarray) -> Observations:
        """The same for some of the rows."""
        exposure = None if self.exposure is None else self.exposure[rows]
        background = None if self.background is None else self.background[rows]
        return Observations(self.lower[rows], self.upper[rows], exposure, background)


@dataclass(frozen=True)
class Tilted:
    """``log ∫ p(obs | f) N(f | m, v) df`` per observation, and what EP needs of it.

    Attributes
    ----------
    log_z : array of shape (n,)
        The logarithm of the integral, never its exponential.
    d1, d2 : array of shape (n,)
        First and second derivative of `log_z` by ``m``.
    shrink : array of shape (n,)
        ``1 + v·d2``, the ratio of tilted to cavity variance, computed without the cancellation that
        the formula suffers where the likelihood is much sharper than the cavity. Positive.
    d_theta : array of shape (n, p)
        Derivatives of `log_z` by the likelihood's free log hyper-parameters.
    """

    log_z: Array
    d1: Array
    d2: Array
    shrink: Array
    d_theta: Array


class Likelihood(Protocol):
    """How observations depend on the latent value f; immutable, hyper-parameters in log space."""

    @property
    def theta(self) -> Array:
        """Logarithms of the free hyper-parameters."""
        ...

    @property
    def bounds(self) -> Array:
        """Bounds of `theta`, one row each."""
        ...

    def with_theta(self, theta: Array) -> Likelihood:
        """The same likelihood at other hyper-parameters."""
        ...

    def log_prior(self) -> tuple[float, Array]:
        """Log prior density of `theta`, and its gradient."""
        ...

    def exact_sites(self, obs: Observations) -> tuple[BoolArray, Array, Array]:
        """Rows whose likelihood is Gaussian in f, with its natural parameters ``(τ, ν)`` there (else 0).

        Inference conditions on these exactly and runs EP on the others.
        """
        ...

    def tilted(self, obs: Observations, mean: Array, var: Array) -> Tilted:
        """Moments of ``p(obs | f) N(f | mean, var)``."""
        ...

    def rate(self, f: Array) -> Array:
        """The expected demand of a full bin given latent values: f itself, or its inverse link."""
        ...

    def rate_moments(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Mean and variance of `rate` where ``f ~ N(mean, var)``."""
        ...

    def rate_covariance(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """Mean and covariance matrix of `rate` where ``f ~ N(mean, cov)``."""
        ...

    def predict(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Mean and variance of uncensored, fully exposed demand where ``f ~ N(mean, var)``."""
        ...

    def quantile(self, mean: Array, var: Array, q: Array) -> Array:
        """Quantiles of the same demand, shape ``(len(q), n)``."""
        ...

    def sample(self, f: Array, rng: np.random.Generator) -> Array:
        """Demand drawn given latent values."""
        ...
