"""Factor baselines: hour-of-week means of zones, times what the same hour was like elsewhere.

Thirty lines that any joint model should beat. ``city-factor`` multiplies each zone's mean by the factor of the whole
city in that bin; ``local-factor`` multiplies that by the factor of the neighbourhood and the hours around.
"""

from __future__ import annotations

import numpy as np

from unmet._typing import Array, IntArray

__all__ = ["city_factor", "local_factor", "usual_rate"]

# Riders by which factors are shrunk to 1.
_CITY_RIDERS, _LOCAL_RIDERS = 1.0, 4.0
# The neighbourhood: standard deviations of the Gaussian weights.
_METRES, _HOURS = 600.0, 2.0


def usual_rate(observed: Array, exposure: Array, slot: IntArray) -> Array:
    """Pickups over exposure by zone and hour of the week, shape (zones, bins).

    An hour that was little seen is shrunk to the city's profile at the zone's level, as if that had been seen once.

    Parameters
    ----------
    observed, exposure : arrays of shape (zones, bins)
        Pickups, NaN where nothing was seen, and the share of the bin in which they could be.
    slot : integer array of shape (bins,)
        Hour of the week.
    """
    seen = np.isfinite(observed) & (exposure > 0)
    count, time = np.where(seen, np.nan_to_num(observed), 0.0), np.where(seen, exposure, 0.0)
    by_slot = np.zeros((2, 168, len(observed)))
    np.add.at(by_slot[0], slot, count.T)
    np.add.at(by_slot[1], slot, time.T)
    profile = by_slot[0].sum(axis=1) / np.maximum(by_slot[1].sum(axis=1), 1e-9)
    level = by_slot[0].sum(axis=0) / np.maximum((by_slot[1] * profile[:, None]).sum(axis=0), 1e-9)
    prior = np.maximum(profile[:, None] * level, 1e-3)
    return np.asarray(((by_slot[0] + prior) / (by_slot[1] + 1.0))[slot].T)


def city_factor(observed: Array, exposure: Array, slot: IntArray) -> Array:
    """`usual_rate` times the city's pickups over those expected in the same bin."""
    usual = usual_rate(observed, exposure, slot)
    seen = np.isfinite(observed) & (exposure > 0)
    count = np.where(seen, np.nan_to_num(observed), 0.0).sum(axis=0)
    expected = np.where(seen, exposure * usual, 0.0).sum(axis=0)
    return usual * (count + _CITY_RIDERS) / (expected + _CITY_RIDERS)


def local_factor(observed: Array, exposure: Array, slot: IntArray, metres: Array, hours: float = 1.0) -> Array:
    """`city_factor` times the same ratio of the neighbourhood (600 m) and the hours around (± 2 h).

    Parameters
    ----------
    observed, exposure, slot
        As of `usual_rate`.
    metres : array of shape (zones, zones)
        Distances; NaN where not known.
    hours : float
        Length of a bin.
    """
    rate = city_factor(observed, exposure, slot)
    seen = np.isfinite(observed) & (exposure > 0)
    near = np.nan_to_num(np.exp(-0.5 * (metres / _METRES) ** 2))
    np.fill_diagonal(near, 1.0)
    reach = max(1, round(2 * _HOURS / hours))
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) * hours / _HOURS) ** 2)

    def smooth(values: Array) -> Array:
        around = np.array([np.convolve(row, weights, mode="same") for row in values])
        return np.asarray(near @ around)

    count = smooth(np.where(seen, np.nan_to_num(observed), 0.0))
    expected = smooth(np.where(seen, exposure * rate, 0.0))
    return rate * (count + _LOCAL_RIDERS) / (expected + _LOCAL_RIDERS)
