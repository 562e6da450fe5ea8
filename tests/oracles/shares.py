"""The exact posterior of a GP of which some rows show shares ``y = a (f + noise)``, by Gibbs sampling of the shares.

Given all shares, f is Gaussian. Given the shares of all other rows, that of one row is drawn from a fine grid with f
integrated out, so chains mix although a share and its f are tightly bound. Means and variances of f are averaged over
draws of the shares (Rao-Blackwell). No EP, no `unmet`.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from oracles.mcmc import GibbsPosterior

__all__ = ["gibbs_shares"]


def gibbs_shares(
    K: np.ndarray,
    y: np.ndarray,
    short: np.ndarray,
    noise: float,
    alpha: float,
    beta: float,
    rounding: float,
    *,
    seed: int,
    chains: int = 60,
    burn_in: int = 100,
    sweeps: int = 300,
    nodes: int = 1500,
) -> tuple[GibbsPosterior, np.ndarray]:
    """Posterior of f under the prior N(0, K), and the mean share of each row.

    `short` is the probability that a row is a share; other rows are exact. `rounding` is the sd of a further error of
    rows that are shares.
    """
    rng = np.random.default_rng(seed)
    n = len(K)
    edges = stats.beta.ppf(np.linspace(0, 1, nodes + 1), alpha, beta)
    grid = np.clip(0.5 * (edges[1:] + edges[:-1]), 1e-6, 1.0)  # cells of equal probability
    labelled = np.flatnonzero(short > 0)
    # State: share of each row and whether it is short; an exact row is y = f + noise.
    a, hidden = np.ones((chains, n)), np.zeros((chains, n), dtype=bool)
    a[:, labelled] = rng.choice(grid, (chains, labelled.size))
    hidden[:, labelled] = rng.random((chains, labelled.size)) < short[labelled]
    a[~hidden] = 1.0
    first, second, shares = np.zeros((chains, n)), np.zeros((chains, n)), np.zeros(n)
    for sweep in range(burn_in + sweeps):
        for i in labelled:
            others = np.delete(np.arange(n), i)
            mean, var = _predict(K, y, a, hidden, others, np.array([i]), noise, rounding)
            m, v = mean[:, 0, None], var[:, 0, None] + noise
            log_p = stats.norm.logpdf(y[i], grid * m, np.sqrt(grid**2 * v + rounding**2)) + np.log(short[i] / nodes)
            with np.errstate(divide="ignore"):
                exact = stats.norm.logpdf(y[i], m, np.sqrt(v)) + np.log1p(-short[i])
            log_p = np.concatenate([log_p, exact], axis=1)
            choice = np.argmax(log_p + rng.gumbel(size=log_p.shape), axis=1)
            hidden[:, i] = choice < nodes
            a[:, i] = np.append(grid, 1.0)[choice]
        if sweep >= burn_in:
            mean, var = _predict(K, y, a, hidden, np.arange(n), np.arange(n), noise, rounding)
            first += mean / sweeps
            second += (mean**2 + var) / sweeps
            shares += a.mean(axis=0) / sweeps
    mean = first.mean(axis=0)
    spread = second - 2 * mean * first + mean**2
    sd = np.sqrt(spread.mean(axis=0))
    errors = first.std(axis=0, ddof=1), spread.std(axis=0, ddof=1) / (2 * sd)
    return GibbsPosterior(mean, sd, *(e / np.sqrt(chains) for e in errors)), shares


def _predict(K, y, a, hidden, given, at, noise, rounding):
    """Mean and variance of f at rows `at` given rows `given`, for each chain's shares."""
    s = a[:, given]
    error = s**2 * noise + np.where(hidden[:, given], rounding**2, 0.0)
    C = s[:, :, None] * K[np.ix_(given, given)] * s[:, None, :]
    C = C + error[:, :, None] * np.eye(len(given))
    cross = s[:, :, None] * K[np.ix_(given, at)]
    solved = np.linalg.solve(C, cross)
    mean = np.einsum("cij,i->cj", solved, y[given])
    return mean, np.diag(K)[at] - np.einsum("cij,cij->cj", solved, cross)
