"""Bins held out of every joint estimate: its bias and its intervals, measured on the user's own records.

A few per cent of the bins with some supply are hidden from the fits and the shocks, and predicted from all others.

Bins are chosen whatever their exposure. Pickups less the rate times the exposure are a martingale, stopped when the
last vehicle is taken, so their mean is 0 for a right rate. Bins in which supply never ran out are no fair sample: their
demand is low on average, because in others it took the last vehicle.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from scipy.stats import norm

from unmet._typing import Array, BoolArray, IntArray

__all__ = ["HeldOut", "coverage", "draw_counts", "find_held_out", "measure"]

SHARE = 0.03
"""Share of the bins with some supply that are held out."""

_LEAST_BINS, _FULL = 50, 0.98
_NOMINAL = 0.9


@dataclass(frozen=True)
class HeldOut:
    """Bias and coverage on held-out bins.

    Attributes
    ----------
    bins : int
        Number of bins.
    bias : float
        Predicted over observed trips, less 1.
    bias_se : float
        Its standard error; days are taken as independent.
    coverage : float
        Share of the bins with full supply inside their 90 % interval, with ties broken evenly.
    """

    bins: int
    bias: float
    bias_se: float
    coverage: float

    @property
    def error(self) -> float:
        """Relative error of rates, alike in all zones, that chance does not explain: the bias, or 0."""
        return abs(self.bias) if abs(self.bias) > 2 * self.bias_se else 0.0

    @property
    def spread(self) -> float:
        """Factor by which intervals have to be wider for the held-out bins to be covered; 1 if chance explains it."""
        chance = np.sqrt(_NOMINAL * (1 - _NOMINAL) / self.bins)
        if self.coverage > _NOMINAL - 2 * chance:
            return 1.0
        return float(norm.ppf((1 + _NOMINAL) / 2) / norm.ppf((1 + max(self.coverage, 0.1)) / 2))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able description."""
        return asdict(self)

    @classmethod
    def from_dict(cls, description: dict[str, Any] | None) -> Self | None:
        """Read back what `to_dict` wrote."""
        return None if description is None else cls(**description)


def find_held_out(
    zone: str, observed: Array, exposure: Array, seed: int, share: float = SHARE, least: float = 0.0
) -> BoolArray:
    """Choose bins with some supply, and an exposure of `least` or more, by the zone's name and the seed.

    Examples
    --------
    >>> find_held_out("a", np.ones(1000), np.ones(1000), seed=0).sum() in range(15, 50)
    True
    """
    rng = np.random.default_rng([seed, *zone.encode()])
    return np.isfinite(observed) & (exposure > 0) & (exposure >= least) & (rng.random(len(observed)) < share)


def measure(
    truth: Array, expected: Array, exposure: Array, dispersion: float, day: IntArray, rng: np.random.Generator
) -> HeldOut | None:
    """Compare counts with their predictive distributions; None for too few bins or no trip.

    Parameters
    ----------
    truth : array of shape (n,)
        Counts of the held-out bins.
    expected : array of shape (draws, n)
        Draws of their means.
    exposure : array of shape (n,)
        Share of each bin with supply.
    dispersion : float
        Of the counts about their means.
    day : integer array of shape (n,)
        Day of each bin.
    rng : Generator
        For the draws of counts, and to break ties.
    """
    full = exposure >= _FULL
    if full.sum() < _LEAST_BINS or not truth.any():
        return None
    mean = expected.mean(axis=0)
    by_day = np.bincount(np.unique(day, return_inverse=True)[1], mean - truth)
    drawn = draw_counts(expected[:, full], dispersion, rng)
    return HeldOut(
        bins=len(truth),
        bias=float(mean.sum() / truth.sum() - 1),
        bias_se=float(np.sqrt(np.sum((by_day - by_day.mean()) ** 2)) / truth.sum()),
        coverage=coverage(truth[full], drawn, rng),
    )


def draw_counts(expected: Array, dispersion: float, rng: np.random.Generator) -> Array:
    """Draw negative binomial counts with given means."""
    shape = 1 / max(dispersion, 1e-6)
    return rng.poisson(expected * rng.gamma(shape, 1 / shape, size=expected.shape)).astype(float)


def coverage(truth: Array, drawn: Array, rng: np.random.Generator) -> float:
    """Share of the counts inside the 90 % interval of draws of shape (draws, n), with ties broken evenly."""
    below, equal = (drawn < truth).mean(axis=0), (drawn == truth).mean(axis=0)
    place = below + equal * rng.random(len(truth))
    return float(np.mean((place > 0.05) & (place < 0.95)))
