"""The interface of likelihoods, and the observations they are evaluated on.

Naming: ``m, v`` are mean and variance of a Gaussian over one latent value f (in EP, the cavity).
``log_z = log ∫ p(observation | f) N(f | m, v) df``; ``d1, d2`` are its derivatives by m (R&W section 3.6).
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
    """Row numbers by kind of observation: exact, lower bound only, upper bound only, both bounds, no bound."""

    exact: IntArray
    at_least: IntArray
    at_most: IntArray
    between: IntArray
    unknown: IntArray


def refuse_reversed(lower: Array, upper: Array) -> None:
    """Raise `InputError` if a lower bound exceeds its upper bound. NaN stands for no bound."""
    bad = np.flatnonzero(lower > upper)
    if bad.size:
        i = int(bad[0])
        raise InputError(
            f"lower must not exceed upper; row {i} has {lower[i]} > {upper[i]} ({bad.size} such rows in all). "
            "Swap or correct the bounds.",
            row=i,
        )


@dataclass(frozen=True)
class Observations:
    """Observations as bounds: the true value of each lies in ``[lower, upper]``.

    Censoring is part of the data, not of the model. A row is exact where ``lower == upper``, censored from above
    (the true value is at least the observed one) where ``upper`` is infinite, censored from below where ``lower`` is
    infinite, and interval-censored otherwise.

    Parameters
    ----------
    lower, upper : array of shape (n,)
        Bounds of the true value.
    exposure : array of shape (n,), optional
        Fraction of the bin in which demand could be served, 0…1 (counts only). None means 1 everywhere.
    background : array of shape (n,), optional
        Expected number of counts in the row that are not of this demand, at least 0 (counts only). None means 0.

    Examples
    --------
    >>> obs = Observations(np.array([2.0, 5.0]), np.array([2.0, np.inf]))  # exactly 2; at least 5
    >>> obs.exact
    array([ True, False])
    """

    lower: Array
    upper: Array
    exposure: Array | None = None
    background: Array | None = None

    def __post_init__(self) -> None:
        if self.lower.shape != self.upper.shape or self.lower.ndim != 1:
            raise InputError(
                f"lower and upper must be two vectors of one length; got {self.lower.shape}, {self.upper.shape}."
            )
        if not (self.lower <= self.upper).all():
            refuse_reversed(self.lower, self.upper)
            row = int(np.flatnonzero(np.isnan(self.lower) | np.isnan(self.upper))[0])
            raise InputError(f"Bounds must not be NaN; row {row} has one. Use −inf or inf for no bound.", row=row)

    def __len__(self) -> int:
        return self.lower.size

    @cached_property
    def exact(self) -> BoolArray:
        """Mask of the rows whose value is exact."""
        return self.lower == self.upper

    @cached_property
    def kinds(self) -> Kinds:
        """Row numbers of each kind. Cached, because EP uses them in every sweep."""
        low, high = np.isfinite(self.lower), np.isfinite(self.upper)
        rows = (self.exact & low, low & ~high, high & ~low, low & high & ~self.exact, ~low & ~high)
        return Kinds(*(np.flatnonzero(each) for each in rows))

    def __getitem__(self, rows: BoolArray | slice | np.ndarray) -> Observations:
        """Return the observations of the given rows."""
        exposure = None if self.exposure is None else self.exposure[rows]
        background = None if self.background is None else self.background[rows]
        return Observations(self.lower[rows], self.upper[rows], exposure, background)


@dataclass(frozen=True)
class Tilted:
    """``log ∫ p(obs | f) N(f | m, v) df`` per observation, and its derivatives, as EP uses them.

    Attributes
    ----------
    log_z : array of shape (n,)
        The log of the integral. The integral itself may underflow and is never formed.
    d1, d2 : array of shape (n,)
        First and second derivative of `log_z` by ``m``.
    shrink : array of shape (n,)
        ``1 + v·d2``, the ratio of tilted to cavity variance. Positive. Computed without the cancellation that
        the formula has where the likelihood is much sharper than the cavity.
    d_theta : array of shape (n, p)
        Derivatives of `log_z` by the likelihood's free log hyper-parameters.
    """

    log_z: Array
    d1: Array
    d2: Array
    shrink: Array
    d_theta: Array


class Likelihood(Protocol):
    """The distribution of an observation given its latent value f. Immutable; hyper-parameters are in log space.

    See Also
    --------
    unmet.likelihoods.quadrature.QuadratureLikelihood : A likelihood defined by its logarithm only.
    """

    @property
    def theta(self) -> Array:
        """Logs of the free hyper-parameters."""
        ...

    @property
    def bounds(self) -> Array:
        """Bounds of `theta`, one row each."""
        ...

    def with_theta(self, theta: Array) -> Likelihood:
        """Return the likelihood at other hyper-parameters."""
        ...

    def log_prior(self) -> tuple[float, Array]:
        """Return the log prior density of `theta`, and its gradient."""
        ...

    def exact_sites(self, obs: Observations) -> tuple[BoolArray, Array, Array]:
        """Return the rows whose likelihood is Gaussian in f, and its natural parameters ``(τ, ν)`` (0 in other rows).

        Inference conditions on these rows exactly and runs EP on the others.
        """
        ...

    def tilted(self, obs: Observations, mean: Array, var: Array) -> Tilted:
        """Compute the moments of ``p(obs | f) N(f | mean, var)``."""
        ...

    def rate(self, f: Array) -> Array:
        """Return the expected demand of a full bin given latent values: f itself, or its inverse link."""
        ...

    def rate_moments(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Return mean and variance of `rate` for ``f ~ N(mean, var)``."""
        ...

    def rate_covariance(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """Return mean and covariance matrix of `rate` for ``f ~ N(mean, cov)``."""
        ...

    def predict(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Return mean and variance of uncensored demand in a full bin for ``f ~ N(mean, var)``."""
        ...

    def quantile(self, mean: Array, var: Array, q: Array) -> Array:
        """Return quantiles of uncensored demand in a full bin, shape ``(len(q), n)``."""
        ...

    def sample(self, f: Array, rng: np.random.Generator) -> Array:
        """Draw uncensored demand in full bins, given latent values."""
        ...
