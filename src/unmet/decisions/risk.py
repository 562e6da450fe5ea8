"""How long a station is empty and full in each interval, from the level it starts with.

The level is the birth-death chain of `unmet.decisions.station`. Its distribution p is followed forwards by
uniformisation: with Λ = λ + μ and the jump chain P, an interval of length Δ maps p to Σ_n Pois(n; ΛΔ) p Pⁿ, and the
expected time at level s is (1/Λ) Σ_n Pr(N > n; ΛΔ) (p Pⁿ)_s. All terms are non-negative, so nothing cancels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import pdtr, pdtrc

from unmet._exceptions import InputError
from unmet._memory import check_memory
from unmet._numbers import read_counts, read_rates
from unmet._typing import Array, IntArray
from unmet.decisions.station import MOST_DOCKS, read_hours

__all__ = ["TimeOut", "time_out"]

_MOST_EVENTS = 50.0  # in a step; longer intervals are cut
_NEGLIGIBLE = 1e-13


@dataclass(frozen=True)
class TimeOut:
    """Expected shares of each interval.

    Attributes
    ----------
    empty, full : arrays of shape (stations, scenarios, intervals)
        Share of the interval without a bike, and without a free dock.
    """

    empty: Array
    full: Array


def time_out(
    rentals: npt.ArrayLike, returns: npt.ArrayLike, capacity: npt.ArrayLike, start: npt.ArrayLike, *, hours: float = 1.0
) -> TimeOut:
    """Compute how long stations are empty and full, in each interval and scenario.

    Parameters
    ----------
    rentals, returns : array-like of shape (stations, scenarios, intervals)
        Riders per hour who want a bike, and who want to return one.
    capacity, start : array-like of shape (stations,)
        Docks, and bikes at the start.
    hours : float
        Length of an interval.

    Examples
    --------
    A station with one bike and no returns: the bike is gone after an exponential time.

    >>> out = time_out([[[2.0, 2.0]]], [[[0.0, 0.0]]], [3], [1])
    >>> out.empty.round(4).tolist()
    [[[0.5677, 0.9415]]]
    """
    mu, lam = read_rates(rentals, "rentals"), read_rates(returns, "returns")
    docks, first = (read_counts(value, name, MOST_DOCKS) for value, name in ((capacity, "capacity"), (start, "start")))
    if mu.shape != lam.shape or mu.ndim != 3 or docks.shape != mu.shape[:1] or first.shape != mu.shape[:1]:
        raise InputError(
            f"rentals and returns: expected (stations, scenarios, intervals), and a capacity and a start per station; "
            f"got {mu.shape}, {lam.shape}, {docks.shape} and {first.shape}."
        )
    if (first > docks).any():
        raise InputError("start: expected levels from 0 to the capacity.")
    hours = read_hours(hours, mu, lam)
    levels = int(docks.max(initial=0)) + 1
    check_memory(8 * levels * mu.shape[0] * mu.shape[1], f"{levels:,} levels of {len(mu):,} stations", "Use fewer.")
    # Stations of any size at once: levels above the capacity are never reached.
    chance = np.zeros((*mu.shape[:2], levels))
    np.put_along_axis(chance, np.broadcast_to(first[:, None, None], (*mu.shape[:2], 1)), 1.0, axis=2)
    top = np.broadcast_to(docks[:, None, None], (*mu.shape[:2], 1))
    empty, full = np.zeros(mu.shape), np.zeros(mu.shape)
    for k in range(mu.shape[2]):
        chance, spent = _one_interval(chance, mu[:, :, k], lam[:, :, k], top, hours)
        empty[:, :, k], full[:, :, k] = spent[:, :, 0], np.take_along_axis(spent, top, axis=2)[:, :, 0]
    return TimeOut(empty, full)


def _one_interval(chance: Array, mu: Array, lam: Array, top: IntArray, hours: float) -> tuple[Array, Array]:
    """Give the distribution at the end of an interval, and the share of it spent at each level."""
    rate = max(float((mu + lam).max(initial=0.0)), 1e-12)  # one clock for all stations: simpler, and as exact
    pieces = int(np.ceil(rate * hours / _MOST_EVENTS))
    mean = rate * hours / pieces
    terms = np.arange(np.ceil(mean + 10.0 * np.sqrt(mean + 1.0) + 20.0))
    beyond, exactly = pdtrc(terms, mean), np.diff(pdtr(terms, mean), prepend=0.0)
    last = int(np.count_nonzero(beyond >= _NEGLIGIBLE)) + 1
    up, down = (lam / rate)[:, :, None], (mu / rate)[:, :, None]
    at_top = np.arange(chance.shape[2]) == top
    rises, falls = np.where(at_top, 0.0, up), np.broadcast_to(down, chance.shape).copy()
    falls[:, :, 0] = 0.0
    stays = 1.0 - rises - falls
    spent = np.zeros_like(chance)
    for _ in range(pieces):
        now, after = chance, np.zeros_like(chance)
        for n in range(last):
            after += exactly[n] * now
            spent += beyond[n] * now
            moved = stays * now
            moved[:, :, 1:] += (rises * now)[:, :, :-1]
            moved[:, :, :-1] += (falls * now)[:, :, 1:]
            now = moved
        chance = after
    return chance, spent / (mean * pieces)
