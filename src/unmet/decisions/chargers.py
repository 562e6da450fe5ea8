"""Chargers: the share of arrivals that find all chargers taken (Erlang's loss formula)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from unmet._exceptions import InputError
from unmet._memory import check_memory
from unmet._numbers import read_count, read_rate, read_rates
from unmet._typing import Array

__all__ = ["erlang_loss", "expected_lost_at_chargers"]

_MOST_CHARGERS = 1_000_000


def erlang_loss(load: npt.ArrayLike, chargers: int) -> Array:
    """Share of arrivals lost at 0 to `chargers` chargers, by Erlang's recursion.

    B(0) = 1 and 1/B(c) = 1 + c / (a B(c − 1)) with load a. The recursion adds positive terms only and is accurate to
    rounding for every load and size.

    Parameters
    ----------
    load : array-like
        Arrivals per hour times the mean time at a charger in hours (erlang).
    chargers : int
        Largest number of chargers.

    Returns
    -------
    array of shape (..., chargers + 1)
        Share lost with 0, 1, … chargers. It does not depend on the distribution of charging times, only on their mean.

    References
    ----------
    Jagerman, D. L. (1974). Some properties of the Erlang loss function. Bell System Technical Journal 53(3).

    Examples
    --------
    >>> erlang_loss(2.0, 3).round(4).tolist()
    [1.0, 0.6667, 0.4, 0.2105]
    """
    a, chargers = read_rates(load, "load"), read_count(chargers, "chargers", 0, _MOST_CHARGERS)
    check_memory(2 * a.size * (chargers + 1), f"A table of {a.size:,} loads and {chargers:,} chargers", "Give fewer.")
    shares = np.empty((*a.shape, chargers + 1))
    shares[..., 0] = 1.0
    for c in range(1, chargers + 1):
        served = a * shares[..., c - 1]
        shares[..., c] = served / (c + served)
    return shares


def expected_lost_at_chargers(arrivals: npt.ArrayLike, hours_at_charger: float, chargers: int) -> Array:
    """Vehicles lost per hour in the steady state, with 0 to `chargers` chargers.

    Examples
    --------
    >>> expected_lost_at_chargers(4.0, 0.5, 3).round(4).tolist()
    [4.0, 2.6667, 1.6, 0.8421]
    """
    hours, rate = read_rate(hours_at_charger, "hours_at_charger"), read_rates(arrivals, "arrivals")
    if hours == 0:
        raise InputError(f"hours_at_charger: expected a positive mean time, got {hours_at_charger!r:.60}.")
    return rate[..., None] * erlang_loss(rate * hours, chargers)
