"""Sequential EP for GP regression with censored observations, as the book has it: slow, plain, one site at a time.

Rasmussen & Williams algorithm 3.5, with sites on every row (exact rows too), textbook truncated moments and a full
recomputation of the posterior from sites after each update. Shares no code with `unmet`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import norm

__all__ = ["SequentialEP", "sequential_ep"]


class SequentialEP(NamedTuple):
    """Posterior mean and covariance at the training rows, and EP's log evidence."""

    mean: np.ndarray
    cov: np.ndarray
    log_z: float


def sequential_ep(
    K: np.ndarray, lower: np.ndarray, upper: np.ndarray, noise: float, sweeps: int = 300, tol: float = 1e-11
) -> SequentialEP:
    """EP under the prior N(0, K) and noise variance `noise`; rows with lower == upper are exact."""
    n = len(K)
    exact = lower == upper
    tau = np.where(exact, 1 / noise, 0.0)
    nu = np.where(exact, np.where(exact, lower, 0.0) / noise, 0.0)
    log_c = np.zeros(n)  # log Ẑ of each site's last update
    cavity = np.zeros((n, 2))
    for _ in range(sweeps):
        moved = 0.0
        for i in np.flatnonzero(~exact):
            mean, cov = _posterior(K, tau, nu)
            s2 = cov[i, i]
            v = 1 / (1 / s2 - tau[i])
            m = v * (mean[i] / s2 - nu[i])
            log_z, new_mean, new_var = _tilted(lower[i], upper[i], m, v, noise)
            new_tau = 1 / new_var - 1 / v
            new_nu = new_mean / new_var - m / v
            moved = max(moved, abs(new_tau - tau[i]) * s2, abs(new_nu - nu[i]) * np.sqrt(s2))
            tau[i], nu[i] = new_tau, new_nu
            log_c[i], cavity[i] = log_z, (m, v)
        if moved < tol:
            break
    else:
        raise AssertionError(f"sequential EP still moves by {moved:.1g}")
    mean, cov = _posterior(K, tau, nu)
    return SequentialEP(mean, cov, _log_evidence(K, tau, nu, exact, lower, noise, log_c, cavity))


def _posterior(K: np.ndarray, tau: np.ndarray, nu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    cov = np.linalg.solve(np.eye(len(K)) + K * tau, K)  # (K⁻¹ + diag τ)⁻¹
    return cov @ nu, cov


def _tilted(lower: float, upper: float, m: float, v: float, noise: float) -> tuple[float, float, float]:
    """Log mass, mean and variance of f given that f + noise lies between the bounds."""
    s = np.sqrt(v + noise)
    a, b = (lower - m) / s, (upper - m) / s
    mass = norm.sf(a) - norm.sf(b) if a > 0 else norm.cdf(b) - norm.cdf(a)
    pa, pb = norm.pdf(a), norm.pdf(b)
    x_mean = (pa - pb) / mass
    x_var = 1 + ((a * pa if np.isfinite(a) else 0.0) - (b * pb if np.isfinite(b) else 0.0)) / mass - x_mean**2
    gain = v / s
    return float(np.log(mass)), m + gain * x_mean, v - gain**2 + gain**2 * x_var


def _log_evidence(
    K: np.ndarray,
    tau: np.ndarray,
    nu: np.ndarray,
    exact: np.ndarray,
    y: np.ndarray,
    noise: float,
    log_c: np.ndarray,
    cavity: np.ndarray,
) -> float:
    """``log ∫ N(f | 0, K) Π sites``, each site scaled to integrate against its cavity as the truth does."""
    n = len(K)
    _, log_det = np.linalg.slogdet(np.eye(n) + K * tau)
    mean, _ = _posterior(K, tau, nu)
    total = -0.5 * log_det + 0.5 * nu @ mean
    for i in range(n):
        if exact[i]:
            total += -0.5 * np.log(2 * np.pi * noise) - 0.5 * y[i] ** 2 / noise
        else:
            m, v = cavity[i]
            precision = 1 / v + tau[i]
            unscaled = -0.5 * np.log(v * precision) + 0.5 * ((m / v + nu[i]) ** 2 / precision - m**2 / v)
            total += log_c[i] - unscaled
    return float(total)
