"""The oracle of every closed-form likelihood: integrate ``p(obs | f) N(f | m, v)`` numerically about its peak."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["TiltedByQuadrature", "tilted_by_quadrature"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


class TiltedByQuadrature(NamedTuple):
    """What `unmet.likelihoods.Tilted` holds, for one observation and without derivatives by hyper-parameters."""

    log_z: float
    d1: float
    d2: float
    shrink: float


def tilted_by_quadrature(
    log_density: Callable[[np.ndarray], np.ndarray], m: float, v: float, tol: float = 1e-13
) -> TiltedByQuadrature:
    """Log integral of ``exp(log_density(f)) N(f | m, v)``, its derivatives by m, and tilted over cavity variance.

    For densities that are log-concave in f. Gauss-Legendre on panels about the peak, their number doubled until
    nothing changes.
    """

    def log_tilted(f: np.ndarray) -> np.ndarray:
        return log_density(f) - 0.5 * (f - m) ** 2 / v - 0.5 * np.log(2 * np.pi * v)

    mode, width = _peak(log_tilted, m, np.sqrt(v))
    height = float(log_tilted(np.array([mode]))[0])
    last, panels = np.full(3, np.inf), 16
    while panels <= 4096:
        edges = mode + width * np.linspace(-45, 45, panels + 1)
        half = 0.5 * np.diff(edges)[:, None]
        f = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * _NODES).ravel()
        mass = (half * _WEIGHTS).ravel() * np.exp(log_tilted(f) - height)
        total = mass.sum()
        mean = mode + mass @ (f - mode) / total
        var = mass @ (f - mean) ** 2 / total
        now = np.array([np.log(total), (mean - mode) / width, np.log(var)])
        if np.abs(now - last).max() < tol:
            return TiltedByQuadrature(
                float(now[0] + height), float((mean - m) / v), float((var / v - 1) / v), float(var / v)
            )
        last, panels = now, 2 * panels
    raise AssertionError(f"the quadrature still moves by {np.abs(now - last).max():.1g} with {panels} panels")


def _peak(log_tilted: Callable[[np.ndarray], np.ndarray], start: float, step: float) -> tuple[float, float]:
    """Where a log-concave function peaks, by zooming in on a grid, and the distance at which it is down by a nat."""
    low, high = start - step, start + step
    while True:  # a bracket
        at = np.linspace(low, high, 33)
        best = int(np.argmax(log_tilted(at)))
        if 0 < best < 32:
            break
        low, high = low - 8 * (high - low), high + 8 * (high - low)
    for _ in range(12):
        low, high = at[max(best - 1, 0)], at[min(best + 1, 32)]
        at = np.linspace(low, high, 33)
        best = int(np.argmax(log_tilted(at)))
    mode = float(at[best])
    steps = step * 2.0 ** np.arange(-60, 30)
    down = log_tilted(np.array([mode]))[0] - np.maximum(log_tilted(mode + steps), log_tilted(mode - steps))
    return mode, float(steps[np.argmax(down > 1)])
