"""Zones in a square kilometre with walkers, for the tests of walking."""

from __future__ import annotations

import numpy as np

from unmet.mobility.models.walking import Walking, Walks

TRUE = Walking.from_values(np.array([0.6, 0.3, 0.2, 0.1, 0.05]))


def city(seed: int, zones: int = 30, bins: int = 400, *, shares: bool = False) -> tuple[Walks, np.ndarray, np.ndarray]:
    """Zones in a square kilometre, a seventh of them out in any bin; exposure and distances."""
    rng = np.random.default_rng(seed)
    place = rng.uniform(0, 1200, (zones, 2))
    metres = np.hypot(*np.subtract.outer(place, place).transpose(1, 3, 0, 2)[[0, 1], [0, 1]])
    out = rng.random((zones, bins)) < 0.15
    exposure = np.where(out, 0.0, 1.0)
    if shares:
        exposure = np.where(out, rng.uniform(0, 0.5, out.shape), 1.0)
    source, bin_, target = np.nonzero(
        out[:, :, None] & (metres[:, None, :] <= 700) & ~np.eye(zones, dtype=bool)[:, None]
    )
    available = np.where(out[target, bin_], 0.0, 1.0)
    walks = Walks(source, target, bin_, metres[source, target], 1 - exposure[source, bin_], available)
    return walks, exposure, metres


def turned_away(walks: Walks, rate: np.ndarray) -> np.ndarray:
    """Riders who find the source of each row empty."""
    return rate[walks.source, walks.bin] * walks.out
