"""Censored data sets drawn from a GP, for tests of inference."""

from __future__ import annotations

import numpy as np

from unmet.kernels import Kernel
from unmet.likelihoods import Observations

__all__ = ["draw_problem"]


def draw_problem(
    kernel: Kernel,
    noise: float,
    n: int,
    share: float,
    seed: int,
    *,
    kind: str = "mixed",
    duplicates: bool = False,
    width: int = 1,
) -> tuple[np.ndarray, Observations]:
    """Inputs on (0, 10)^width and what is known of y* = f + ε, a `share` of the rows censored.

    Kinds: "tobit" cuts the largest values at one bound; "labels" censors random rows from above, at some distance
    below their truth; "mixed" makes a random third of these each censored from above, from below, and intervals.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, size=(n, width))
    if duplicates:
        k = n // 4
        X[:k] = X[k : 2 * k]
    K = kernel(X)
    truth = np.linalg.cholesky(K + 1e-8 * np.mean(np.diag(K)) * np.eye(n)) @ rng.normal(size=n)
    y = truth + np.sqrt(noise) * rng.normal(size=n)
    m = round(share * n)
    if kind == "tobit":
        bound = np.sort(y)[n - m] if m else np.inf
        return X, Observations(np.minimum(y, bound), np.where(y >= bound, np.inf, y))
    censored = rng.permutation(n) < m
    off = rng.exponential(0.7, size=n) * y.std()
    side = np.where(censored, rng.integers(1, 4, size=n) if kind == "mixed" else 1, 0)
    lower = np.select([side == 0, side == 2], [y, -np.inf], y - off)
    upper = np.select([side == 0, side == 1], [y, np.inf], y + off)
    return X, Observations(lower, upper)
