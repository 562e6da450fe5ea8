"""EP over a Gaussian process in space and time, linear in the number of steps: a Kalman filter and smoother.

``f = offset + Φ z_t + e`` at step t, with one row of Φ per place; each of the m components of z is a stationary
Ornstein–Uhlenbeck process of variance 1, ``z_t = ρ z_{t−1} + √(1 − ρ²) ε`` (Hartikainen & Särkkä 2010). Their spatial
covariance is ``Φ Φᵀ``. ``e`` is independent from row to row, with the variance d that components leave out (as in the
FITC approximation, Snelson & Ghahramani 2006). It is integrated out: a site ``(τ, ν)`` of f is one of ``f − e`` with
``(τ, ν)/(1 + dτ)``. A step costs ``O(places · m² + m³)``, and memory is one m × m matrix a step.

Naming: ``m⁻, P⁻`` mean and covariance of z before the sites of a step, ``m, P`` after them, ``ms, Ps`` after all;
``Λ = Φᵀ T Φ`` and ``r = Φᵀ(ν − T f⁻)`` collect the sites of a step, where ``f⁻ = offset + Φ m⁻``; ``kept = 1 + dτ``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from unmet._exceptions import NumericalError
from unmet._typing import Array, IntArray
from unmet.inference.ep import Marginals, Sites

__all__ = ["Filtered", "Gradient", "StateSpace"]

_IMPROPER = "the sites leave no posterior: their precisions are too negative"


@dataclass(frozen=True)
class Filtered(Marginals):
    """Marginals at the rows, with the filter that they came by.

    Attributes
    ----------
    everywhere, spread : arrays of shape (places, steps)
        Posterior mean and variance of ``Φ z`` at all places and steps.
    means, covariances : arrays of shapes (steps, m) and (steps, m, m)
        Of z after the sites of each step (not smoothed).
    """

    everywhere: Array = field(kw_only=True)
    spread: Array = field(kw_only=True)
    means: Array = field(kw_only=True)
    covariances: Array = field(kw_only=True)


@dataclass(frozen=True)
class Gradient:
    """The log of the integral of the prior times given sites, and its derivatives.

    Attributes
    ----------
    log_normaliser : float
        The log of the integral.
    features, decay, offset : arrays of the shapes of these
        Derivatives by them.
    """

    log_normaliser: float
    features: Array
    decay: Array
    offset: Array


@dataclass(frozen=True)
class StateSpace:
    """Components that live through the steps, seen at places through features; an `Engine` of EP.

    Parameters
    ----------
    features : array of shape (places, m)
        ``Φ``: what each component contributes to f at each place.
    decay : array of shape (m,)
        ``ρ``: correlation of each component between one step and the next, 0 ≤ ρ < 1.
    step, place : integer arrays of shape (n,)
        Of each row; steps must not fall. There may be steps without rows.
    offset : array of shape (n,)
        Prior mean of f at each row.
    steps : int
        How many there are.
    own : float or array of shape (n,)
        ``d``: variance of f at each row that no component has.
    """

    features: Array
    decay: Array
    step: IntArray
    place: IntArray
    offset: Array
    steps: int
    own: Array | float = 0.0

    @cached_property
    def _starts(self) -> IntArray:
        """First row of each step, and one behind the last."""
        return np.searchsorted(self.step, np.arange(self.steps + 1))

    def marginals(self, sites: Sites) -> Filtered:
        """The posterior under the given sites."""
        kept, within, log_own = self._of_components(sites)
        means, covariances, log_normaliser = self._filter(within)
        shape = self.steps, len(self.features)
        mean, var = np.empty(shape), np.empty(shape)
        for t, m_s, P_s, _ in self._smooth(means, covariances):
            mean[t] = self.features @ m_s
            var[t] = np.einsum("ij,ij->i", self.features @ P_s, self.features)
        at = self.step, self.place
        return Filtered(
            (self.offset + mean[at] + self.own * sites.nu) / kept,
            self.own / kept + var[at] / kept**2,
            log_normaliser + log_own,
            everywhere=mean.T,
            spread=var.T,
            means=means,
            covariances=covariances,
        )

    def gradient(self, sites: Sites) -> Gradient:
        """The log of the integral of the prior times the given sites, with its derivatives.

        By Fisher's identity they are posterior means of those of ``log p(z) + Σ (ν f − ½ τ f²)``: of ``(ν − τ f) z`` by
        a row of Φ, and of the transitions' ``−½ log q − (z_t − ρ z_{t−1})²/(2q)``, ``q = 1 − ρ²``, by ρ.
        """
        _, sites, log_own = self._of_components(sites)
        means, covariances, log_normaliser = self._filter(sites)
        features, offset = np.zeros_like(self.features), np.empty(len(self.step))
        now, cross = np.zeros(len(self.decay)), np.zeros(len(self.decay))  # Σ E z_t², Σ E z_t z_{t−1}
        first = last = after = np.zeros(len(self.decay))
        P_after = covariances[-1]
        for t, m_s, P_s, gain in self._smooth(means, covariances):
            rows = slice(self._starts[t], self._starts[t + 1])
            place, tau = self.place[rows], sites.tau[rows]
            phi = self.features[place]
            offset[rows] = sites.nu[rows] - tau * (self.offset[rows] + phi @ m_s)
            np.add.at(features, place, np.multiply.outer(offset[rows], m_s) - tau[:, None] * (phi @ P_s))
            square = m_s**2 + np.diag(P_s)
            now += square
            if gain is None:
                last = square
            else:
                cross += after * m_s + np.einsum("jk,jk->k", gain, P_after)
            first, after, P_after = square, m_s, P_s
        rho, q = self.decay, 1 - self.decay**2
        before, ahead = now - last, now - first  # sums over z_{t−1} and z_t
        errors = ahead - 2 * rho * cross + rho**2 * before
        decay = (self.steps - 1) * rho / q + (cross - rho * before) / q - rho * errors / q**2
        return Gradient(log_normaliser + log_own, features, decay, offset)

    def covariance(self, posterior: Filtered, first: IntArray, second: IntArray, step: IntArray) -> Array:
        """Posterior covariance of ``Φ z`` between two places at a step, for pairs in any order."""
        order = np.argsort(step, kind="stable")
        starts = np.searchsorted(step[order], np.arange(self.steps + 1))
        found = np.empty(len(step))
        for t, _, P_s, _ in self._smooth(posterior.means, posterior.covariances):
            rows = order[starts[t] : starts[t + 1]]
            found[rows] = np.einsum("ij,ij->i", self.features[first[rows]] @ P_s, self.features[second[rows]])
        return found

    def moved(self, posterior: Marginals, sites: Sites) -> None:
        """Not here: another pass costs as much as the moments."""

    def _of_components(self, sites: Sites) -> tuple[Array | float, Sites, float]:
        """``1 + dτ``, the sites of ``offset + Φ z``, and the log of the integral over e beyond those sites."""
        if not np.any(self.own):
            return 1.0, sites, 0.0
        kept = 1 + self.own * sites.tau
        if not (kept > 0).all():
            raise NumericalError(_IMPROPER)
        log_own = float(np.sum(self.own * sites.nu**2 / kept - np.log(kept)))
        return kept, Sites(sites.tau / kept, sites.nu / kept), 0.5 * log_own

    def _filter(self, sites: Sites) -> tuple[Array, Array, float]:
        """``m`` and ``P`` of each step, and the log of the integral of prior times sites."""
        size = len(self.decay)
        mean, cov = np.zeros(size), np.eye(size)
        means, covariances = np.empty((self.steps, size)), np.empty((self.steps, size, size))
        fade, fresh = np.multiply.outer(self.decay, self.decay), np.diag(1 - self.decay**2)
        log_normaliser = 0.0
        for t in range(self.steps):
            if t:
                mean, cov = self.decay * mean, fade * cov + fresh
            rows = slice(self._starts[t], self._starts[t + 1])
            if rows.stop > rows.start:
                phi, tau, nu = self.features[self.place[rows]], sites.tau[rows], sites.nu[rows]
                before = self.offset[rows] + phi @ mean
                scaled = phi * tau[:, None]
                pull = phi.T @ (nu - tau * before)
                log_normaliser += float(before @ (nu - 0.5 * tau * before))
                cov, half_log_det = _updated(cov, scaled.T @ phi)
                shift = cov @ pull
                log_normaliser += 0.5 * float(pull @ shift) - half_log_det
                mean = mean + shift
            means[t], covariances[t] = mean, cov
        return means, covariances, log_normaliser

    def _smooth(self, means: Array, covariances: Array) -> Iterator[tuple[int, Array, Array, Array | None]]:
        """Yield ``t, ms, Ps, Gᵀ`` from the last step, which has no G, to the first (Rauch, Tung & Striebel 1965)."""
        fade, fresh = np.multiply.outer(self.decay, self.decay), np.diag(1 - self.decay**2)
        m_s, P_s = means[-1], covariances[-1]
        yield self.steps - 1, m_s, P_s, None
        for t in range(self.steps - 2, -1, -1):
            P = covariances[t]
            ahead = fade * P + fresh
            gain = _gain(ahead, self.decay[:, None] * P)  # Gᵀ
            m_s = means[t] + (m_s - self.decay * means[t]) @ gain
            P_s = P + gain.T @ (P_s - ahead) @ gain
            yield t, m_s, P_s, gain

    def sample(self, posterior: Filtered, size: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Joint draws of z given the sites of the posterior, shape ``(steps, size, m)`` (float32).

        Backwards: given ``z_{t+1}``, z at t has mean ``m + G(z_{t+1} − ρ m)`` and covariance ``P − G P⁻ Gᵀ``.
        """
        means, covariances = posterior.means, posterior.covariances
        fade, fresh = np.multiply.outer(self.decay, self.decay), np.diag(1 - self.decay**2)
        draws = np.empty((self.steps, size, len(self.decay)), dtype=np.float32)
        now = means[-1] + rng.standard_normal((size, len(self.decay))) @ _factor(covariances[-1]).T
        draws[-1] = now
        for t in range(self.steps - 2, -1, -1):
            P = covariances[t]
            ahead = fade * P + fresh
            gain = _gain(ahead, self.decay[:, None] * P)
            rest = P - gain.T @ ahead @ gain
            noise = rng.standard_normal(now.shape) @ _factor(rest).T
            now = means[t] + (now - self.decay * means[t]) @ gain + noise
            draws[t] = now
        return draws


def _updated(cov: Array, precision: Array) -> tuple[Array, float]:
    """``(P⁻¹ + Λ)⁻¹`` and ``½ log |I + P Λ|``, without inverting P."""
    root = _factor(cov)
    inner = root.T @ precision @ root
    inner.flat[:: len(inner) + 1] += 1.0
    L, info = dpotrf(inner, lower=1, clean=1)
    if info:
        raise NumericalError(_IMPROPER)
    W, _ = dtrtrs(L, root.T, lower=1)
    return W.T @ W, float(np.log(np.diag(L)).sum())


def _factor(cov: Array) -> Array:
    """Lower Cholesky factor; a hair is added to the diagonal where rounding made it negative."""
    L, info = dpotrf(cov, lower=1, clean=1)
    if info:
        bumped = cov + 1e-10 * np.eye(len(cov))
        L, info = dpotrf(bumped, lower=1, clean=1)
        if info:
            raise NumericalError("a covariance of the state is not positive definite in double precision")
    return np.asarray(L)


def _gain(ahead: Array, cross: Array) -> Array:
    """``ahead⁻¹ cross``."""
    L, info = dpotrf(ahead, lower=1, clean=1)
    if info:
        raise NumericalError("a covariance of the state is not positive definite in double precision")
    solved, _ = dpotrs(L, cross, lower=1)
    return np.asarray(solved)
