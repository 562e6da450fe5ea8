"""The interface of likelihoods, and the observations they are evaluated on.

Naming: ``m, v`` are mean and variance of a Gaussian over one latent value f (in EP, the cavity).
``log_z = log ∫ p(observation | f) N(f | m, v) df``; ``d1, d2`` are its derivatives by m (R&W section 3.6).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from unmet._exceptions import InputError
from unmet._parameters import Parameter
from unmet._typing import Array, BoolArray, IntArray

__all__ = ["Kinds", "Likelihood", "Observations", "Tilted", "Units", "refuse_reversed"]

Units = Literal["y", "log rate", "own"]
"""Units of the latent value f: those of y, the logarithm of a rate of counts, or the likelihood's own."""


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
        Share of the bin in which demand could be served, 0…1 (counts only). None means 1 everywhere.
    short : array of shape (n,), optional
        Probability that the row shows only a share of the truth: 0 if it is exact, 1 if it is labelled, NaN if the
        label is not known. Only likelihoods of shares read it. None means 0 everywhere.
    background : array of shape (n,), optional
        Expected number of counts in the row that are not of this demand, at least 0 (counts only). None means 0.
    """

    lower: Array
    upper: Array
    exposure: Array | None = None
    short: Array | None = None
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
        short = None if self.short is None else self.short[rows]
        background = None if self.background is None else self.background[rows]
        return Observations(self.lower[rows], self.upper[rows], exposure, short, background)


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


class Likelihood(ABC):
    """How observations depend on the latent value f; immutable, hyper-parameters in log space.

    Subclass it to add a likelihood; `tilted` and `rate` are required. A subclass that is a frozen dataclass with one
    `Parameter` field per entry of `parameters` needs nothing else to have its hyper-parameters fitted.

    Attributes
    ----------
    units : {"y", "log rate", "own"}
        Units of f. With "y", `CensoredGP` standardises y and refuses an exposure. With "log rate", y are counts, which
        are not standardised, and may have an exposure. With "own", y and the exposure reach the likelihood as given.
    """

    units: ClassVar[Units] = "own"

    # ------------------------------------------------------------ hyper-parameters

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Hyper-parameters by name; a fitted `CensoredGP` has the attribute ``name_`` for each."""
        return {}

    @property
    def theta(self) -> Array:
        """Logarithms of the free hyper-parameters."""
        return np.concatenate([np.empty(0), *(p.theta for p in self.parameters.values())])

    @property
    def theta_names(self) -> tuple[str, ...]:
        """The name of each element of `theta`."""
        return tuple(name for name, p in self.parameters.items() for _ in p.theta)

    @property
    def bounds(self) -> Array:
        """Bounds of `theta`, one row each."""
        return np.concatenate([np.empty((0, 2)), *(p.theta_bounds for p in self.parameters.values())])

    def with_theta(self, theta: Array) -> Self:
        """The same likelihood at other hyper-parameters."""
        sizes = [p.theta.size for p in self.parameters.values()]
        parts = np.split(theta, np.cumsum(sizes)[:-1]) if sizes else []
        return self.with_parameters(
            {name: p.with_theta(part) for (name, p), part in zip(self.parameters.items(), parts, strict=True)}
        )

    def with_parameters(self, parameters: Mapping[str, Parameter]) -> Self:
        """The same likelihood with some of `parameters` replaced."""
        return replace(self, **parameters) if parameters else self  # type: ignore[type-var]

    def log_prior(self) -> tuple[float, Array]:
        """Log prior density of `theta`, and its gradient."""
        each = [p.log_prior() for p in self.parameters.values()]
        return sum(value for value, _ in each), np.concatenate([np.empty(0), *(slope for _, slope in each)])

    def filled(self, *, variance: float, level: float, zero: float = 0.0) -> Self:
        """The same likelihood with open hyper-parameters taken from the data.

        Parameters
        ----------
        variance : float
            Variance of y in the units that f has.
        level : float
            Log of the rate about which f varies; 0 unless `units` is "log rate".
        zero : float
            The value of f at which y is 0; other than 0 where y is standardised.
        """
        return self

    def starts(self) -> Sequence[Self]:
        """The likelihood at other hyper-parameters from which a search may start; the best by evidence is taken."""
        return ()

    # ---------------------------------------------------------------------- files

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able description for model files, which `from_dict` reads."""
        raise InputError(f"{type(self).__name__} has no description for files: define to_dict and from_dict")

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Self:
        """The likelihood that `to_dict` described."""
        raise InputError(f"{cls.__name__} has no description for files: define to_dict and from_dict")

    # ------------------------------------------------------------------ inference

    def validate(self, obs: Observations) -> None:  # noqa: B027  (optional: the default refuses nothing)
        """Refuse observations that this likelihood cannot explain."""

    def exact_sites(self, obs: Observations) -> tuple[BoolArray, Array, Array]:
        """Return the rows whose likelihood is Gaussian in f, and its natural parameters ``(τ, ν)`` (0 in other rows).

        Inference conditions on these exactly and runs EP on the others. By default there are none.
        """
        return np.zeros(len(obs), dtype=bool), np.zeros(len(obs)), np.zeros(len(obs))

    def exact_gradient(self, obs: Observations, alpha: Array, precision: Array) -> Array:
        """Derivatives of the evidence by `theta` through the rows of `exact_sites`, shape (n, p).

        With R the inverse covariance of all rows, a cavity follows from ``α = R y`` and ``R_ii``: ``y − m = α/R``,
        ``v + 1/τ = 1/R`` (R&W eq. 5.12).
        """
        _, tau, nu = self.exact_sites(obs)
        return self.tilted(obs, nu / tau - alpha / precision, 1.0 / precision - 1.0 / tau).d_theta

    @abstractmethod
    def tilted(self, obs: Observations, mean: Array, var: Array) -> Tilted:
        """Moments of ``p(obs | f) N(f | mean, var)``."""

    # ----------------------------------------------------------------- prediction

    @abstractmethod
    def rate(self, f: Array) -> Array:
        """The expected demand of a full bin given latent values: f itself, or its inverse link."""

    def rate_moments(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Mean and variance of `rate` where ``f ~ N(mean, var)``; by default the trapezoidal rule over ±8.5 sd."""
        t = np.linspace(-8.5, 8.5, 171)[:, None]
        weight = np.exp(-0.5 * t**2) / np.exp(-0.5 * t**2).sum()
        rate = self.rate(mean + t * np.sqrt(var))
        expected = (weight * rate).sum(axis=0)
        return expected, (weight * (rate - expected) ** 2).sum(axis=0)

    def rate_covariance(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """Mean and covariance matrix of `rate` where ``f ~ N(mean, cov)``."""
        raise InputError(f"{type(self).__name__} has no covariance of rates: draw with `sample` and take theirs")

    def predict(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Mean and variance of uncensored, fully exposed demand where ``f ~ N(mean, var)``."""
        raise InputError(f"{type(self).__name__} does not define `predict`, the moments of new observations")

    def quantile(self, mean: Array, var: Array, q: Array) -> Array:
        """Quantiles of the same demand, shape ``(len(q), n)``."""
        raise InputError(f"{type(self).__name__} has no quantiles: draw with `sample` and take theirs")

    def sample(self, f: Array, rng: np.random.Generator) -> Array:
        """Demand drawn given latent values."""
        raise InputError(f"{type(self).__name__} does not define `sample`")
