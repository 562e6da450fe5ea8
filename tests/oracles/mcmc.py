"""The exact posterior of a censored GP by Gibbs sampling with data augmentation (Chib 1992). No EP, no `unmet`.

The uncensored values y* are N(0, K + noise·I) cut to what is known of each; given all others, one of them is a
truncated normal, drawn exactly. Given y*, f is Gaussian: its mean and variance are averaged over draws of y* instead of
drawn (Rao-Blackwell). Many independent chains run side by side; the spread of their means gives the Monte Carlo error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

__all__ = ["GibbsPosterior", "gibbs_posterior"]


class GibbsPosterior(NamedTuple):
    """Posterior mean and sd of f at every row, and the Monte Carlo standard errors of both."""

    mean: np.ndarray
    sd: np.ndarray
    mean_error: np.ndarray
    sd_error: np.ndarray


def gibbs_posterior(
    K: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    noise: float,
    *,
    seed: int,
    chains: int = 200,
    burn_in: int = 60,
    sweeps: int = 150,
) -> GibbsPosterior:
    """Posterior of f under the prior N(0, K) and noise variance `noise`; rows with lower == upper are exact."""
    rng = np.random.default_rng(seed)
    n = len(K)
    total = K + noise * np.eye(n)
    precision = np.linalg.inv(total)
    gain = K @ precision  # E[f | y*] = gain y*
    f_var = np.diag(K - gain @ K)
    censored = np.flatnonzero(lower != upper)
    start = np.where(np.isfinite(lower), lower, upper)
    y = np.tile(start, (chains, 1))
    first, second = np.zeros((chains, n)), np.zeros((chains, n))
    for sweep in range(burn_in + sweeps):
        for i in censored:
            sd = 1 / np.sqrt(precision[i, i])
            mean = y[:, i] - (y @ precision[i]) / precision[i, i]
            a, b = (lower[i] - mean) / sd, (upper[i] - mean) / sd
            y[:, i] = mean + sd * _between(a, b, rng.uniform(size=chains))
        if sweep >= burn_in:
            f = y @ gain.T
            first += f / sweeps
            second += f**2 / sweeps
    mean = first.mean(axis=0)
    # Per chain, about the common mean: unbiased batches of the variance.
    var = f_var + second - 2 * mean * first + mean**2
    sd = np.sqrt(var.mean(axis=0))
    return GibbsPosterior(
        mean,
        sd,
        first.std(axis=0, ddof=1) / np.sqrt(chains),
        var.std(axis=0, ddof=1) / np.sqrt(chains) / (2 * sd),
    )


def _between(a: np.ndarray, b: np.ndarray, u: np.ndarray) -> np.ndarray:
    """A standard normal between a and b with distribution function u there: by logs of its upper tail."""
    flip = -b > a
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    log_a, log_b = log_ndtr(-a), log_ndtr(-b)
    x = -ndtri_exp(log_a + np.log1p(u * np.expm1(log_b - log_a)))
    return np.where(flip, -x, x)
