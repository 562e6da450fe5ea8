"""Elliptical slice sampling (Murray, Adams & MacKay 2010) of counts with a log link; no code of the library in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

__all__ = ["Draws", "count_log_likelihood", "elliptical_slice"]


def count_log_likelihood(
    y: np.ndarray, censored: np.ndarray, exposure: np.ndarray, dispersion: float, background: np.ndarray | float = 0.0
) -> Callable[[np.ndarray], np.ndarray]:
    """``Σ log p(y | f)`` for f of shape (chains, n): Poisson for dispersion 0, else negative binomial.

    Censored rows count as "at least y" (y ≥ 1 there).
    """
    at_least = np.maximum(y, 1.0)

    def log_likelihood(f: np.ndarray) -> np.ndarray:
        mu = exposure * np.exp(f) + background
        if dispersion == 0:
            exact = y * np.log(mu) - mu - special.gammaln(y + 1)
            tail = np.log(special.gammainc(at_least, mu))
        else:
            r = 1 / dispersion
            exact = special.gammaln(y + r) - special.gammaln(r) - special.gammaln(y + 1)
            exact = exact + r * np.log(r / (r + mu)) + y * np.log(mu / (r + mu))
            tail = np.log(special.betainc(at_least, r, mu / (r + mu)))
        return np.where(censored, tail, exact).sum(axis=1)

    return log_likelihood


@dataclass(frozen=True)
class Draws:
    """Posterior moments of f, with their Monte Carlo errors from independent chains."""

    mean: np.ndarray
    sd: np.ndarray
    mean_error: np.ndarray
    sd_error: np.ndarray


def elliptical_slice(
    K: np.ndarray,
    log_likelihood: Callable[[np.ndarray], np.ndarray],
    *,
    chains: int,
    burn_in: int,
    steps: int,
    rng: np.random.Generator,
) -> Draws:
    """Sample ``f ~ N(0, K)`` times the likelihood by many chains at once.

    Parameters
    ----------
    K : array of shape (n, n)
        Prior covariance.
    log_likelihood : callable
        Of f of shape (chains, n), one value per chain.
    chains, burn_in, steps : int
        Independent chains, started from the prior; steps of each thrown away, and kept.
    rng : Generator
        Source of chance.
    """
    n = len(K)
    root = np.linalg.cholesky(K + 1e-10 * np.eye(n))
    f = rng.standard_normal((chains, n)) @ root.T
    now = log_likelihood(f)
    total, squares = np.zeros((chains, n)), np.zeros((chains, n))
    for step in range(burn_in + steps):
        nu = rng.standard_normal((chains, n)) @ root.T
        level = now + np.log(rng.random(chains))
        angle = rng.uniform(0, 2 * np.pi, chains)
        low, high = angle - 2 * np.pi, angle.copy()
        active = np.arange(chains)
        new, new_value = f.copy(), now.copy()
        while active.size:
            c, s = np.cos(angle[active])[:, None], np.sin(angle[active])[:, None]
            tried = c * f[active] + s * nu[active]
            value = log_likelihood(tried)
            good = value > level[active]
            new[active[good]], new_value[active[good]] = tried[good], value[good]
            active = active[~good]
            below = angle[active] < 0
            low[active[below]], high[active[~below]] = angle[active[below]], angle[active[~below]]
            angle[active] = rng.uniform(low[active], high[active])
        f, now = new, new_value
        if step >= burn_in:
            total += f
            squares += f**2
    means = total / steps
    mean = means.mean(axis=0)
    spreads = squares / steps - 2 * mean * means + mean**2  # of each chain about the common mean
    var = spreads.mean(axis=0)
    return Draws(
        mean,
        np.sqrt(var),
        means.std(axis=0, ddof=1) / np.sqrt(chains),
        spreads.std(axis=0, ddof=1) / np.sqrt(chains) / (2 * np.sqrt(var)),
    )
