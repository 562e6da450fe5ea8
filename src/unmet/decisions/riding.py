"""Riders of a period, one by one: who finds no bike or no dock, with stations that depend on each other.

The functions of single stations leave out that a rider who finds a station empty walks on to a neighbour, that a rider
who finds no dock rides on, and that a trip that is not made brings no bike back. Here every rider has an origin, a
destination and a moment, and bikes are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from unmet._exceptions import InputError
from unmet._numbers import read_counts, read_generator, read_numbers, read_rate, read_rates
from unmet._typing import Array, BoolArray, IntArray

__all__ = ["Network", "Outcome", "Riders", "draw_riders", "ride"]

_WALKING = 4.7  # km/h
_RIDING = 9.0  # km/h along the straight line
_START = 0.025  # hours until a bike is unlocked and locked again
_ROUND_TRIP = 0.33  # hours
_MOST_RIDERS = 10_000_000
_LATER = 0.1  # hours until a rider who found no dock anywhere tries again
_LEAST = 1e-3  # nobody walks to a station that fewer than so many would choose


@dataclass(frozen=True)
class Riders:
    """Riders who want a bike, in order of time; arrays of one length.

    Attributes
    ----------
    time : array
        Hours from the start of the period.
    origin, destination : integer arrays
        Stations.
    hours : array
        Time on the bike.
    temper : array
        Uniform number between 0 and 1 that decides how far a rider walks.
    breaks : bool array
        Whether the bike cannot be rented after the trip.
    """

    time: Array
    origin: IntArray
    destination: IntArray
    hours: Array
    temper: Array
    breaks: BoolArray

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True)
class Network:
    """Stations between which riders walk and ride.

    Attributes
    ----------
    capacity : integer array of shape (stations,)
        Docks.
    km : array of shape (stations, stations)
        Distances.
    walk : array of shape (stations, stations)
        Chance that a rider who finds the first station empty walks to the second, if it has a bike and no nearer one
        was chosen.
    """

    capacity: IntArray
    km: Array
    walk: Array

    def __post_init__(self) -> None:
        walk = read_numbers(self.walk, "walk")
        if not ((walk >= 0) & (walk <= 1)).all():
            raise InputError("walk: expected chances from 0 to 1, without missing ones.")


@dataclass(frozen=True)
class Outcome:
    """Riders turned away, by the station they came to first.

    Attributes
    ----------
    no_bike : integer array of shape (stations,)
        Riders who found no bike.
    walked : integer array of shape (stations,)
        Those of them who were served elsewhere.
    no_dock : integer array of shape (stations,)
        Riders who found no dock.
    """

    no_bike: IntArray
    walked: IntArray
    no_dock: IntArray

    @property
    def turned_away(self) -> int:
        """Riders who found no bike or no dock at the station they came to first."""
        return int(self.no_bike.sum() + self.no_dock.sum())


def draw_riders(
    rentals: npt.ArrayLike,
    returns: npt.ArrayLike,
    km: npt.ArrayLike,
    generator: np.random.Generator,
    *,
    hours: float = 1.0,
    breaks: float = 0.0,
) -> Riders:
    """Draw the riders of one period from rates.

    Parameters
    ----------
    rentals, returns : array-like of shape (stations, intervals)
        Wanted rentals and returns per hour. The destination of a trip is drawn in proportion to the returns of its
        interval.
    km : array-like of shape (stations, stations)
        Distances, which give the time on the bike.
    generator : numpy.random.Generator
        Source of randomness.
    hours : float
        Length of an interval.
    breaks : float
        Probability that a bike cannot be rented after a trip.

    Examples
    --------
    >>> riders = draw_riders([[3.0, 0.0]], [[1.0, 1.0]], [[0.0]], np.random.default_rng(1))
    >>> bool((riders.time < 1.0).all()), set(riders.destination.tolist())
    (True, {0})
    """
    mu, lam, between = read_rates(rentals, "rentals"), read_rates(returns, "returns"), read_rates(km, "km")
    if mu.ndim != 2 or lam.shape != mu.shape or between.shape != (len(mu), len(mu)) or len(mu) == 0:
        raise InputError(
            "rentals, returns, km: expected (stations, intervals) twice, and (stations, stations), for some station; "
            f"got {mu.shape}, {lam.shape} and {between.shape}."
        )
    length, broken, source = (
        read_rate(hours, "hours"),
        read_rate(breaks, "breaks"),
        read_generator(generator, "generator"),
    )
    if length == 0 or broken > 1:
        raise InputError(f"hours, breaks: expected a time and a probability, got {hours!r:.60}, {breaks!r:.60}.")
    if mu.sum() * length > _MOST_RIDERS:
        raise InputError(f"rentals: expected at most {_MOST_RIDERS:,} riders in all, got {mu.sum() * length:.3g}.")
    count = source.poisson(mu * length)
    origin, interval = np.divmod(np.repeat(np.arange(count.size), count.ravel()), mu.shape[1])
    size = len(origin)
    cumulated = np.cumsum(lam + 1e-12, axis=0)
    chance = source.random(size) * cumulated[-1, interval]
    destination = np.empty(size, dtype=np.intp)
    for k in range(mu.shape[1]):  # all at once would take a number per rider and station
        rows = interval == k
        destination[rows] = np.searchsorted(cumulated[:, k], chance[rows], side="right")
    riding = np.where(origin == destination, _ROUND_TRIP, _START + between[origin, destination] / _RIDING)
    time = length * (interval + source.random(size))
    order = np.argsort(time, kind="stable")
    return Riders(
        time=time[order],
        origin=origin[order],
        destination=destination[order],
        hours=(riding * np.exp(0.25 * source.standard_normal(size)))[order],
        temper=source.random(size),
        breaks=source.random(size) < broken,
    )


def ride(riders: Riders, network: Network, levels: npt.ArrayLike) -> Outcome:
    """Let riders ride, and count those who find no bike or no dock.

    A rider who finds no bike walks to the stations that have one, in order of distance, each with its chance. A rider
    who finds no dock rides to the nearest station with one.

    Parameters
    ----------
    riders : Riders
        The riders.
    network : Network
        The stations.
    levels : array-like of shape (stations,)
        Usable bikes at the start.

    Examples
    --------
    >>> riders = Riders(*map(np.array, ([0.0, 0.5], [0, 0], [1, 1], [0.1, 0.1], [0.9, 0.9], [False, False])))
    >>> far = Network(np.array([2, 2]), np.array([[0.0, 1.0], [1.0, 0.0]]), np.zeros((2, 2)))
    >>> ride(riders, far, [1, 0]).no_bike.tolist()
    [1, 0]
    """
    capacity = network.capacity.tolist()
    stock = read_counts(levels, "levels", max(capacity, default=0)).ravel().tolist()
    if len(stock) != len(capacity) or any(not 0 <= s <= c for s, c in zip(stock, capacity, strict=True)):
        raise InputError("levels: expected 0 to the capacity of each station.")
    return _Ride(riders, network, stock).run()


class _Ride:
    """Bikes and riders at one moment. The heap holds (time, rider, station, step).

    Step -1 is a bike that comes to a dock for the first time, -2 for another time. Other steps are riders on foot, and
    the next of the stations near their origin.
    """

    def __init__(self, riders: Riders, network: Network, stock: list[int]) -> None:
        self._riders = riders
        self._stock = stock
        self._free = [c - s for c, s in zip(network.capacity.tolist(), stock, strict=True)]
        self._km: list[list[float]] = network.km.tolist()
        order = np.argsort(network.km, axis=1, kind="stable").tolist()
        self._others = [[o for o in row if o != s] for s, row in enumerate(order)]
        walk = network.walk.tolist()
        self._near = [
            [(o, walk[s][o]) for o in others if walk[s][o] >= _LEAST] for s, others in enumerate(self._others)
        ]
        self._origin: list[int] = riders.origin.tolist()
        self._destination: list[int] = riders.destination.tolist()
        self._hours: list[float] = riders.hours.tolist()
        self._breaks: list[bool] = riders.breaks.tolist()
        self._temper: list[float] = riders.temper.tolist()
        self._heap: list[tuple[float, int, int, int]] = []
        self._no_bike, self._walked, self._no_dock = ([0] * len(stock) for _ in range(3))

    def run(self) -> Outcome:
        for rider, (time, s) in enumerate(zip(self._riders.time.tolist(), self._origin, strict=True)):
            self._until(time)
            if self._stock[s]:
                self._leave(time, rider, s)
            else:
                self._no_bike[s] += 1
                self._walk_on(time, rider, s, 0)
        self._until(np.inf)
        return Outcome(np.array(self._no_bike), np.array(self._walked), np.array(self._no_dock))

    def _until(self, time: float) -> None:
        while self._heap and self._heap[0][0] <= time:
            at, rider, s, step = heappop(self._heap)
            if step < 0:
                self._return(at, rider, s, first=step == -1)
            elif self._stock[s]:
                self._walked[self._origin[rider]] += 1
                self._leave(at, rider, s)
            else:  # somebody was faster
                self._walk_on(at, rider, s, step)

    def _leave(self, time: float, rider: int, s: int) -> None:
        self._stock[s] -= 1
        self._free[s] += 1
        heappush(self._heap, (time + self._hours[rider], rider, self._destination[rider], -1))

    def _walk_on(self, time: float, rider: int, here: int, first: int) -> None:
        """Choose a station on foot. One uniform number decides: given one choice, it is uniform after rescaling."""
        chance, near = self._temper[rider], self._near[self._origin[rider]]
        for step in range(first, len(near)):
            other, probability = near[step]
            if not self._stock[other]:
                continue
            if chance < probability:
                self._temper[rider] = chance / probability
                heappush(self._heap, (time + self._km[here][other] / _WALKING, rider, other, step + 1))
                return
            chance = (chance - probability) / (1.0 - probability)

    def _return(self, time: float, rider: int, s: int, first: bool) -> None:
        if self._free[s]:
            self._free[s] -= 1
            if not self._breaks[rider]:
                self._stock[s] += 1
            return
        if first:
            self._no_dock[s] += 1
        refuge = next((o for o in self._others[s] if self._free[o]), None)
        later = _LATER if refuge is None else _START + self._km[s][refuge] / _RIDING
        heappush(self._heap, (time + later, rider, s if refuge is None else refuge, -2))
