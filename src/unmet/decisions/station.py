"""The user dissatisfaction function of one station: expected lost riders for every level it can start from.

A station with capacity C holds S bikes. Riders who want a bike come at rate μ(t), riders who want a dock at rate λ(t),
both Poisson and constant within an interval. A rental is lost while S = 0, a return while S = C. Over the horizon

    F_rent(s) = E[∫ μ 1{S = 0} dt | S₀ = s],    F_return(s) = E[∫ λ 1{S = C} dt | S₀ = s].

Both follow backwards over the intervals by uniformisation (Raviv & Kolka 2013). With Λ = λ + μ, the jump chain
(Px)_s = (λ/Λ) x_min(s+1, C) + (μ/Λ) x_max(s−1, 0), and the loss rate c, an interval of length Δ maps V to

    Σ_n Pois(n; ΛΔ) Pⁿ V + (1/Λ) Σ_n Pr(N > n; ΛΔ) Pⁿ c.

All terms are non-negative, so nothing cancels: results are accurate to about 1e-11.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import pdtrc

from unmet._exceptions import InputError
from unmet._memory import check_memory
from unmet._numbers import read_count, read_generator, read_rate, read_rates
from unmet._typing import Array

__all__ = [
    "LARGEST_COST",
    "MOST_DOCKS",
    "LostRiders",
    "expected_cost",
    "expected_level",
    "expected_lost",
    "read_hours",
    "with_day_factor",
]

MOST_DOCKS = 100_000
"""Largest capacity of a station."""

MOST_RIDERS = 100_000
"""Most riders that a station may expect in one interval: the time to sum over them grows with their number."""

LARGEST_COST = 1e150
"""Largest cost of a level: sums and differences of many such are finite."""

_LEAST_DISPERSION = 1e-12  # below it a factor is 1 in double precision, and its gamma distribution has no draws


@dataclass(frozen=True)
class LostRiders:
    """Expected lost riders over the horizon, by start level.

    Attributes
    ----------
    rentals : array of shape (..., capacity + 1)
        Riders who find no bike, for start levels 0 to capacity.
    returns : array of shape (..., capacity + 1)
        Riders who find no dock.
    """

    rentals: Array
    returns: Array

    def cost(self, no_bike: float = 1.0, no_dock: float = 1.0) -> Array:
        """Weigh both losses: `no_bike` per lost rental plus `no_dock` per lost return."""
        return read_rate(no_bike, "no_bike") * self.rentals + read_rate(no_dock, "no_dock") * self.returns


def expected_lost(
    rentals: npt.ArrayLike, returns: npt.ArrayLike, capacity: int, *, hours: float = 1.0, broken: int = 0
) -> LostRiders:
    """Compute the riders a station loses over a horizon, for all start levels at once.

    Parameters
    ----------
    rentals : array-like of shape (..., intervals)
        Wanted rentals per hour in each interval. Leading axes, such as posterior draws, are independent scenarios.
    returns : array-like of the same shape
        Wanted returns per hour in each interval.
    capacity : int
        Docks of the station.
    hours : float
        Length of an interval, in hours.
    broken : int
        Bikes that nobody can rent. Each takes one dock (Kaspi, Raviv & Tzur 2017), so levels run to
        ``capacity - broken`` usable bikes.

    Returns
    -------
    LostRiders
        Lost rentals and lost returns, each of shape ``(..., capacity - broken + 1)``.

    See Also
    --------
    unmet.decisions.target_level : The level that loses least.

    References
    ----------
    Raviv, T. & Kolka, O. (2013). Optimal inventory management of a bike-sharing station. IIE Transactions 45(10).

    Examples
    --------
    With no returns, the loss from level s is E[(D − s)⁺] for Poisson demand D.

    >>> lost = expected_lost([2.0], [0.0], capacity=3)
    >>> lost.rentals.round(4).tolist()
    [2.0, 1.1353, 0.5413, 0.218]
    >>> lost.returns.tolist()
    [0.0, 0.0, 0.0, 0.0]
    """
    mu, lam, hours, levels = _checked(rentals, returns, capacity, hours, broken)
    value = np.zeros((levels, 2, mu.shape[0]))
    for k in range(mu.shape[1] - 1, -1, -1):
        value = _back_one_interval(value, mu[:, k], lam[:, k], hours, ((0, 1.0), (1, 1.0)))
    shape = (*np.shape(rentals)[:-1], levels)
    lost_rentals, lost_returns = (value[:, i].T.reshape(shape) for i in (0, 1))
    return LostRiders(np.ascontiguousarray(lost_rentals), np.ascontiguousarray(lost_returns))


def expected_cost(
    rentals: npt.ArrayLike,
    returns: npt.ArrayLike,
    capacity: int,
    *,
    no_bike: float = 1.0,
    no_dock: float = 1.0,
    hours: float = 1.0,
    broken: int = 0,
) -> Array:
    """Compute the weighted cost of lost riders, for all start levels at once.

    The same as ``expected_lost(...).cost(no_bike, no_dock)``, for half of the work. Parameters are those of
    `expected_lost` and `LostRiders.cost`; the result has shape ``(..., capacity - broken + 1)``.

    Examples
    --------
    >>> expected_cost([2.0], [0.0], capacity=3, no_bike=2.0).round(4).tolist()
    [4.0, 2.2707, 1.0827, 0.436]
    """
    mu, lam, hours, levels = _checked(rentals, returns, capacity, hours, broken)
    charges = (0, read_rate(no_bike, "no_bike")), (0, read_rate(no_dock, "no_dock"))
    value = np.zeros((levels, 1, mu.shape[0]))
    for k in range(mu.shape[1] - 1, -1, -1):
        value = _back_one_interval(value, mu[:, k], lam[:, k], hours, charges)
    return np.ascontiguousarray(value[:, 0].T.reshape((*np.shape(rentals)[:-1], levels)))


def expected_level(
    rentals: npt.ArrayLike, returns: npt.ArrayLike, capacity: int, *, hours: float = 1.0, broken: int = 0
) -> Array:
    """Compute the expected number of usable bikes at the end of the horizon, for all start levels at once.

    Parameters are those of `expected_lost`. Bikes are conserved: the level at the end is the start level plus wanted
    returns minus lost returns, minus wanted rentals plus lost rentals.

    Examples
    --------
    >>> expected_level([1.0], [1.0], capacity=2).round(4).tolist()
    [0.6321, 1.0, 1.3679]
    """
    mu, lam, hours, levels = _checked(rentals, returns, capacity, hours, broken)
    value = np.repeat(np.arange(levels, dtype=float)[:, None, None], mu.shape[0], axis=2)
    for k in range(mu.shape[1] - 1, -1, -1):
        value = _back_one_interval(value, mu[:, k], lam[:, k], hours)
    return np.ascontiguousarray(value[:, 0].T.reshape((*np.shape(rentals)[:-1], levels)))


def with_day_factor(rates: npt.ArrayLike, dispersion: float, generator: np.random.Generator) -> Array:
    """Multiply each scenario by one gamma factor for the whole day, mean 1 and variance `dispersion`.

    Mean rates understate the loss: a busy day loses more than a quiet day saves. Averaging `expected_lost` over
    scenarios with a day factor keeps that difference.

    Parameters
    ----------
    rates : array-like of shape (..., intervals)
        Rates per hour.
    dispersion : float
        Variance of the factor; 0 leaves the rates as they are.
    generator : numpy.random.Generator
        Source of the factors.

    Examples
    --------
    >>> rates = with_day_factor(np.ones((4, 24)), 0.09, np.random.default_rng(0))
    >>> bool((rates == rates[:, :1]).all())
    True
    """
    array = read_rates(rates, "rates")
    if array.ndim == 0:
        raise InputError("rates: expected one rate per interval, got a single number.")
    variance, source = read_rate(dispersion, "dispersion"), read_generator(generator, "generator")
    if variance < _LEAST_DISPERSION:
        return array.copy()
    factor = source.gamma(1.0 / variance, variance, size=array.shape[:-1])
    return array * factor[..., None]


def _checked(
    rentals: npt.ArrayLike, returns: npt.ArrayLike, capacity: int, hours: float, broken: int
) -> tuple[Array, Array, float, int]:
    """Check the arguments; return rates as (scenarios, intervals), hours and the number of levels."""
    mu, lam = read_rates(rentals, "rentals"), read_rates(returns, "returns")
    if mu.shape != lam.shape or mu.ndim == 0 or mu.size == 0:
        raise InputError(f"rentals and returns: expected arrays of one shape, got {mu.shape} and {lam.shape}.")
    length = read_hours(hours, mu, lam)
    docks = read_count(capacity, "capacity", 0, MOST_DOCKS)
    levels = docks - read_count(broken, "broken", 0, docks) + 1
    intervals = mu.shape[-1]
    scenarios = mu.size // intervals
    check_memory(10 * levels * scenarios, f"{levels:,} levels in {scenarios:,} scenarios", "Give fewer scenarios.")
    return mu.reshape(-1, intervals), lam.reshape(-1, intervals), length, levels


def read_hours(hours: float, rentals: Array, returns: Array) -> float:
    """Return the length of an interval; refuse no positive time, and more riders than a few seconds can sum."""
    length = read_rate(hours, "hours")
    if length == 0:
        raise InputError(f"hours: expected a positive length of an interval, got {hours!r:.60}.")
    riders = (rentals.max(initial=0.0) + returns.max(initial=0.0)) * length
    if riders > MOST_RIDERS:
        raise InputError(
            f"rentals and returns: expected at most {MOST_RIDERS:,} riders in an interval of {length:g} hours, got "
            f"{riders:.3g}. Check the unit (riders per hour) and hours."
        )
    return length


_Charges = tuple[tuple[int, float], tuple[int, float]]


def _back_one_interval(value: Array, mu: Array, lam: Array, hours: float, charges: _Charges | None = None) -> Array:
    """Map the value at the end of an interval to the value at its start.

    `value` has shape (levels, quantities, scenarios). `charges` are the quantity that collects lost rentals and their
    weight, and the same for lost returns. With m = ΛΔ, Horner's rule sums both series at the cost of one application of
    P per term:

        y_n = V + t_n c / Λ + (m / (n + 1)) P y_{n+1},    t_{n−1} = (m / n) (1 + t_n),    result e^{−m} y_0,

    where t_n = Pr(N > n) / Pr(N = n) follows from Pr(N > n − 1) = Pr(N = n) + Pr(N > n).
    """
    events = (mu + lam) * hours
    pieces = int(np.ceil(events.max() / _MOST_EVENTS))  # e^m must stay far from overflow
    levels = value.shape[0]
    rises, falls = (
        np.broadcast_to(rate * (hours / max(pieces, 1)), value.shape).reshape(levels, -1) for rate in (lam, mu)
    )
    mean = events / max(pieces, 1)
    busy = np.where(events > 0, events, 1.0)
    lost_rental, lost_return = mu * hours / busy, lam * hours / busy
    if charges is not None:
        (of_rentals, no_bike), (of_returns, no_dock) = charges
        lost_rental, lost_return = no_bike * lost_rental, no_dock * lost_return
    # Level s is row s + 1. Rows 0 and C + 2 repeat the ends, because at its ends the chain stays where it is.
    padded = np.empty((levels + 2, rises.shape[1]))
    result, step, other = padded[1:-1], np.empty_like(rises), np.empty_like(rises)
    by_quantity = result.reshape(value.shape)
    for _ in range(pieces):
        padded[:], tail, flat = 0.0, np.zeros_like(mean), value.reshape(levels, -1)
        for n in range(_last_term(float(mean.max())), -1, -1):
            padded[0], padded[-1] = padded[1], padded[-2]
            np.multiply(rises, padded[2:], out=step)
            np.multiply(falls, padded[:-2], out=other)
            step += other
            step *= 1.0 / (n + 1)
            np.add(step, flat, out=result)
            if charges is not None:
                by_quantity[0, of_rentals] += tail * lost_rental
                by_quantity[-1, of_returns] += tail * lost_return
            tail = (mean / max(n, 1)) * (1.0 + tail)
        value = by_quantity * np.exp(-mean)
    return value


_MOST_EVENTS = 300.0


def _last_term(mean: float) -> int:
    """Smallest n with Pr(N > n) < 1e-15 for a Poisson count N."""
    candidates = np.arange(np.ceil(mean + 10.0 * np.sqrt(mean + 1.0) + 20.0))
    return int(np.count_nonzero(pdtrc(candidates, mean) >= 1e-15))
