"""Kernels of the distance between inputs: squared exponential and Matérn (paper eqs. 7 and 9; R&W section 4.2)."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, Self

import numpy as np
from scipy.special import gammaln, kve
from scipy.stats import norm
from scipy.stats import t as student_t

from unmet._exceptions import InputError
from unmet._parameters import Parameter
from unmet._typing import Array
from unmet.kernels.base import Columns, Given, Leaf
from unmet.kernels.pairs import Pairs, Values, Weights
from unmet.kernels.scales import Scales

__all__ = ["Lagged", "Matern", "SquaredExponential", "Stationary"]


class Lagged(Leaf):
    """A kernel that depends on two inputs only through their lags ``|x_c − z_c|``, column by column."""

    _one_per_column = ("lengthscale",)

    @abstractmethod
    def _at_lags(self, distances: Sequence[Array]) -> Array:
        """Return the kernel at given lags, one array per column."""

    @abstractmethod
    def _gradients(self, distances: Sequence[Array], weights: Array) -> dict[str, Array]:
        """Return derivatives by each log hyper-parameter, summed over lags with weights."""

    def diag(self, X: Array) -> Array:
        return np.full(len(X), self._one("variance"))

    def _cross(self, X: Array, Z: Array) -> Array:
        return self._at_lags([np.abs(np.subtract.outer(X[:, c], Z[:, c])) for c in self._at])

    def contract_cross(self, X: Array, Z: Array, weights: Array) -> Array:
        """Return ``Σij weights_ij ∂K(X, Z)ij/∂theta``."""
        distances = [np.abs(np.subtract.outer(X[:, c], Z[:, c])).ravel() for c in self._at]
        return self._free(self._gradients(distances, weights.ravel()))

    def _free(self, gradients: dict[str, Array]) -> Array:
        free = [np.atleast_1d(gradients[name]) for name, p in self._parameters.items() if not p.fixed]
        return np.concatenate(free) if free else np.empty(0)

    def on(self, pairs: Pairs) -> Values:
        lags = pairs.lags(self._at)
        return Values(self._at_lags(lags.distances), lags)

    def contract(self, pairs: Pairs, weights: Weights) -> Array:
        lags = pairs.lags(self._at)
        return self._free(self._gradients(lags.distances, weights.on(lags)))

    def _fill(self, name: str, parameter: Parameter, scales: Scales) -> Parameter:
        if name != "lengthscale":
            return super()._fill(name, parameter, scales)
        columns = list(self._at)
        spread, span, gap = scales.spread[columns], scales.range[columns], scales.spacing[columns]
        span, gap = (
            np.where(span > 0, span, 1.0),
            np.where(span > 0, gap, 1.0),
        )  # a constant column has no scale
        if isinstance(parameter.value, tuple) or parameter.per_column:
            each = np.stack([0.2 * gap, 100.0 * span], axis=1)
            starts = 0.5 * np.sqrt(len(columns)) * np.where(spread > 0, spread, 1.0)
            return parameter.filled(tuple(starts), tuple((float(a), float(b)) for a, b in each))
        start = 0.5 * float(np.sqrt(np.square(spread).sum())) or 1.0
        return parameter.filled(start, (0.2 * float(gap.min()), 100.0 * float(np.sqrt(np.square(span).sum()))))


class Stationary(Lagged):
    """A function of the scaled distance ``r² = Σ_c (x_c − z_c)²/ℓ_c²``."""

    @abstractmethod
    def _shape(self, r2: Array) -> Array:
        """Return the correlation at squared distance r²."""

    @abstractmethod
    def _slope(self, r2: Array) -> Array:
        """Return ``−(dρ/dr)/r``; 0 at r = 0 if it is infinite there. ``∂ρ/∂log ℓ_c = slope · (x_c − z_c)²/ℓ_c²``."""

    @abstractmethod
    def log_spectral(self, u: Array, dim: int) -> tuple[Array, Array]:
        """Return the log spectral density, and its slope, at ``u = |ω|²`` in `dim` dimensions.

        This is the density for unit variance and length-scales. With length-scales ℓ the density at ω is ``Π ℓ_c``
        times this at ``u = Σ ℓ_c² ω_c²``.
        """

    @abstractmethod
    def spectral_tail(self, frequency: float) -> float:
        """Return the fraction of the variance beyond a frequency, in one dimension and for unit length-scale."""

    @abstractmethod
    def spectral_reach(self, share: float) -> float:
        """Return the frequency beyond which a given fraction of the variance lies: the inverse of `spectral_tail`."""

    def _squares(self, distances: Sequence[Array]) -> Iterator[Array]:
        lengths = np.broadcast_to(self._parameters["lengthscale"].array, (len(distances),))
        return (np.square(d / ell) for d, ell in zip(distances, lengths, strict=True))

    def _at_lags(self, distances: Sequence[Array]) -> Array:
        return self._one("variance") * self._shape(_total(self._squares(distances)))

    def _gradients(self, distances: Sequence[Array], weights: Array) -> dict[str, Array]:
        r2 = _total(self._squares(distances))
        weights = self._one("variance") * weights
        by_length = weights * self._slope(r2)
        per_column = self._parameters["lengthscale"].array.size > 1
        return {
            "variance": np.array(weights @ self._shape(r2)),
            "lengthscale": np.array([by_length @ s for s in (self._squares(distances) if per_column else [r2])]),
        }


def _total(terms: Iterable[Array]) -> Array:
    """Return the sum. At most two terms are in memory if they are generated one by one."""
    return functools.reduce(np.add, terms)


class SquaredExponential(Stationary):
    """``variance · exp(−r²/2)``: very smooth functions (paper eq. 7).

    Parameters
    ----------
    variance, lengthscale : float, sequence (lengthscale: one per column), Parameter or None
        Hyper-parameters. None takes them from the data at fit; ``lengthscale="per column"`` takes one per column.
    columns : int, str or sequence of these, optional
        Columns to use, by position or name; None for all.

    Examples
    --------
    >>> SquaredExponential(variance=1.0, lengthscale=2.0, columns="t")
    SquaredExponential(variance=1.0, lengthscale=2.0, columns='t')
    """

    def __init__(self, variance: Given = None, lengthscale: Given = None, *, columns: Columns = None) -> None:
        super().__init__({"variance": variance, "lengthscale": lengthscale}, columns)

    def _shape(self, r2: Array) -> Array:
        return np.exp(-0.5 * r2)

    _slope = _shape

    def log_spectral(self, u: Array, dim: int) -> tuple[Array, Array]:
        # R&W eq. 4.12 with angular frequencies: (2π)^(D/2) exp(−u/2)
        return 0.5 * dim * np.log(2 * np.pi) - 0.5 * u, np.full_like(u, -0.5)

    def spectral_tail(self, frequency: float) -> float:
        return float(2 * norm.sf(frequency))

    def spectral_reach(self, share: float) -> float:
        return float(norm.isf(share / 2))


class Matern(Stationary):
    """The Matérn family: rough (``nu=0.5``) to smooth functions (paper eq. 9; R&W eq. 4.14).

    Uses closed forms for ν = 0.5, 1.5, 2.5, and the Bessel formula for any other ν in (0, 50], accurate to 1e-10.

    Parameters
    ----------
    variance, lengthscale : float, sequence (lengthscale: one per column), Parameter or None
        Hyper-parameters. None takes them from the data at fit; ``lengthscale="per column"`` takes one per column.
    nu : float
        Smoothness. It is not learnt.
    columns : int, str or sequence of these, optional
        Columns to use, by position or name; None for all.

    Examples
    --------
    >>> Matern(variance=1.0, lengthscale=1.0, nu=0.5)([[0.0]], [[1.0]]).round(4)
    array([[0.3679]])
    """

    def __init__(
        self, variance: Given = None, lengthscale: Given = None, *, nu: float = 2.5, columns: Columns = None
    ) -> None:
        super().__init__({"variance": variance, "lengthscale": lengthscale}, columns)
        given: object = nu
        if isinstance(given, bool) or not isinstance(given, Real):
            raise InputError(f"Matern: nu must be a number in (0, 50]; got {nu!r:.60}.")
        if not 0 < nu <= 50:
            raise InputError(
                f"Matern: nu must lie in (0, 50]; got {nu}. Use SquaredExponential, its limit, for larger ones."
            )
        self.nu = float(nu)

    def _extra(self) -> dict[str, Any]:
        return {"nu": self.nu}

    def _rebuilt(self, parameters: Mapping[str, Parameter], columns: tuple[int | str, ...] | None) -> Self:
        return type(self)(**parameters, nu=self.nu, columns=columns)

    def _shape(self, r2: Array) -> Array:
        z = np.sqrt(2 * self.nu * r2)
        if self.nu == 0.5:
            return np.exp(-z)
        if self.nu == 1.5:
            return (1 + z) * np.exp(-z)
        if self.nu == 2.5:
            return (1 + z + z**2 / 3) * np.exp(-z)
        return _bessel_shape(self.nu, z)

    def _slope(self, r2: Array) -> Array:
        z = np.sqrt(2 * self.nu * r2)
        if self.nu == 0.5:
            r = np.where(r2 > 0, np.sqrt(r2), np.inf)
            return np.exp(-z) / r
        if self.nu == 1.5:
            return 3 * np.exp(-z)
        if self.nu == 2.5:
            return 5 / 3 * (1 + z) * np.exp(-z)
        # d/dz z^ν K_ν(z) = −z^ν K_{ν−1}(z) (Abramowitz & Stegun 9.6.28)
        return _bessel_slope(self.nu, z)

    def log_spectral(self, u: Array, dim: int) -> tuple[Array, Array]:
        # R&W eq. 4.15 with angular frequencies
        nu, power = self.nu, self.nu + 0.5 * dim
        constant = 0.5 * dim * np.log(4 * np.pi) + gammaln(power) - gammaln(nu) + nu * np.log(2 * nu)
        return constant - power * np.log(2 * nu + u), -power / (2 * nu + u)

    # In one dimension the spectral density of a Matérn kernel is Student's t with 2ν degrees of freedom.
    def spectral_tail(self, frequency: float) -> float:
        return float(2 * student_t.sf(frequency, 2 * self.nu))

    def spectral_reach(self, share: float) -> float:
        return float(student_t.isf(share / 2, 2 * self.nu))


def _log_bessel(nu: float, z: Array) -> Array:
    """Return ``log K_ν(z)``. kve is NaN from z = 1e9 on, where ``−z`` alone makes a Matérn function zero."""
    return np.log(kve(nu, np.minimum(z, 1e6))) - z


def _bessel_shape(nu: float, z: Array) -> Array:
    """Return ``2^(1−ν)/Γ(ν) z^ν K_ν(z)``; 1 at z = 0."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        log_k = _log_bessel(nu, z)
        value = np.exp((1 - nu) * np.log(2) - gammaln(nu) + nu * np.log(z) + log_k)
    # Where K_ν overflows, z is so small that the first terms of the power series suffice: 1 − z²/(4(ν−1)) + …
    near = ~np.isfinite(log_k)
    if nu <= 2:
        return np.where(near, 1.0, value)
    x = np.where(near, z, 0.0)
    return np.where(near, 1 - x**2 / (4 * (nu - 1)) + x**4 / (32 * (nu - 1) * (nu - 2)), value)


def _bessel_slope(nu: float, z: Array) -> Array:
    """Return ``−(dρ/dr)/r = 2ν · 2^(1−ν)/Γ(ν) z^(ν−1) K_{ν−1}(z)``; 0 at z = 0 if it is infinite there (ν ≤ 1)."""
    if nu > 1:  # a Matérn function with ν − 1
        return nu / (nu - 1) * _bessel_shape(nu - 1, z)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_k = _log_bessel(1 - nu, z)  # K_{−a} = K_a
        value = 2 * nu * np.exp((1 - nu) * np.log(2) - gammaln(nu) + (nu - 1) * np.log(z) + log_k)
    return np.where(z > 0, value, 0.0)
