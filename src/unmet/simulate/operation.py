"""Operation of the city: bikes and docks, trucks and mechanics, event by event in order of time.

Times are whole seconds from the start. Plain lists and integers, because at millions of events a NumPy scalar
costs more than the arithmetic done with it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from heapq import heappop, heappush

import numpy as np

from unmet._typing import IntArray
from unmet.simulate.demand import UNTIL_FOUND, Layout, Riders, Stream, stream
from unmet.simulate.settings import Settings
from unmet.simulate.troubles import Trouble

__all__ = ["STOCK", "Fate", "History", "operate"]

_WALKING_SPEED = 1.3  # m/s
_RIDING_SPEED = 2.5  # m/s along the straight line
_TRUCK_LOAD = 12
_INSPECTIONS = 1.0  # per station and day, on average: someone looks for unusable bikes
_LEAST_WALK = 1e-3  # nobody walks where fewer than so many would
_LATER = 300  # seconds until a driver or a rider who found no dock anywhere tries again


class Fate(IntEnum):
    """Outcome of a wanted trip."""

    SERVED = 0  # where it was wanted
    WALKED = 1  # at a neighbouring station
    LOST = 2  # the station was open and empty
    CLOSED = 3  # the station was closed or dead: demand that no stock could have served


STOCK = ("time", "station", "rentable", "disabled", "unusable")  # unusable: listed, but nobody can rent them


@dataclass(frozen=True)
class History:
    """Events of the simulated period. Rider arrays contain -1 if there was no trip."""

    fate: IntArray
    started: IntArray
    start_station: IntArray
    ended: IntArray
    end_station: IntArray
    arrived: IntArray  # when the rider first came to the destination and looked for a dock
    fleet: int
    stock: IntArray  # rows of `STOCK` after every change, in order of time
    stops: IntArray  # rows of (time, station, bikes) of the trucks: unloaded, or loaded where negative


def operate(
    settings: Settings,
    city: Layout,
    riders: Riders,
    troubles: list[Trouble],
    progress: Callable[[int, int], None] | None = None,
    stock: Sequence[int] | None = None,
) -> History:
    """Let the riders ride, the bikes break and the trucks drive.

    ``progress(day, days)`` is called after every simulated day. `stock` is the number of bikes at each station at the
    start; default: the stock that the operator wants in the morning.
    """
    hours = settings.hours()
    shift = _Shift(settings, city, riders, troubles, stock)
    nights = np.flatnonzero((hours.hour == 1) & (np.diff(hours.hour, prepend=-1) != 0))
    for night, hour in enumerate(nights.tolist()):
        shift.schedule(3600 * hour, shift.plan_night, night)
    days = -(-len(hours) // 24)
    for day in range(days):
        shift.run_day(86_400 * day)
        if progress:
            progress(day + 1, days)
    shift.run_events(1 << 62)  # riders still on the way come home
    return shift.history()


class _Shift:
    """The state of the city at one moment, and what each kind of event does to it.

    The heap holds integers ``time << 32 | code``: codes below the number of riders are that rider's bike
    coming home; the others number entries of ``_tasks``.
    """

    def __init__(
        self, settings: Settings, city: Layout, riders: Riders, troubles: list[Trouble], stock: Sequence[int] | None
    ) -> None:
        n, count = settings.stations, len(riders.time)
        self._riders = riders
        self._count = count
        self._effort = settings.rebalancing
        self._capacity: list[int] = (city.capacity + city.store).tolist()
        self._target = _target_stock(settings, city)
        self._stock = list(self._target if stock is None else stock)
        self._fleet = sum(self._stock)
        self._broken = [0] * n
        self._unusable = [0] * n  # listed, broken until somebody finds out
        self._briefly = [0] * n  # listed, unusable for some minutes
        self._locked = [0] * n  # reasons why nobody may rent here
        self._dead = [0] * n  # reasons why nobody may return here
        travel = 90.0 + city.distance / _RIDING_SPEED
        np.fill_diagonal(travel, 1200.0)  # a round trip
        self._travel: list[list[float]] = travel.tolist()
        order = np.argsort(city.distance, axis=1, kind="stable")
        self._others: list[list[int]] = [[o for o in row.tolist() if o != s] for s, row in enumerate(order)]
        walk = settings.walk_probability * np.exp(-((city.distance / settings.walk_reach) ** 1.5))
        self._walks: list[list[tuple[int, float]]] = [
            [(o, float(w[o])) for o in others if w[o] >= _LEAST_WALK]
            for others, w in zip(self._others, walk, strict=True)
        ]
        self._on_foot: list[list[float]] = (city.distance / _WALKING_SPEED).tolist()
        self._unusable_for: list[int] = riders.unusable.tolist() if riders.unusable.any() else []
        self._temper: list[float] = riders.temper.tolist()
        nights = settings.days + 2
        rng = stream(settings, Stream.SERVICE)
        self._mechanic = rng.random((nights, n))
        self._moments = rng.random((nights, 4 * n))
        self._heap: list[int] = []
        self._tasks: list[tuple[Callable[..., None], tuple[int, ...]]] = []
        self._heading: dict[int, int] = {}
        self._fate = array("b", [-1]) * count
        self._started, self._start_station, self._ended, self._end_station, self._arrived = (
            array("i", [-1]) * count for _ in range(5)
        )
        self._log = array("i")
        self._stops = array("i")
        for s in range(n):
            self._record(0, s)
        for trouble in troubles:
            rent, dead = int(not trouble.does.rents), int(not trouble.does.returns)
            if not rent and not dead:
                continue  # trouble of the feed, not of the city
            for s in range(n) if trouble.station is None else (trouble.station,):
                self.schedule(trouble.start, self._lock, s, rent, dead)
                self.schedule(trouble.end, self._lock, s, -rent, -dead)
        if settings.unusable:
            self._schedule_inspections(settings)

    # The clock

    def schedule(self, time: int, do: Callable[..., None], *arguments: int) -> None:
        """Call ``do(time, *arguments)`` when the clock gets there."""
        heappush(self._heap, time << 32 | self._count + len(self._tasks))
        self._tasks.append((do, arguments))

    def run_events(self, until: int) -> None:
        """Everything but arrivals, up to and including the second `until`."""
        limit = (until + 1) << 32
        while self._heap and self._heap[0] < limit:
            event = heappop(self._heap)
            time, code = event >> 32, event & 0xFFFFFFFF
            if code < self._count:
                self._come_home(time, code)
            else:
                do, arguments = self._tasks[code - self._count]
                do(time, *arguments)

    def run_day(self, start: int) -> None:
        """The arrivals of 24 hours, with everything that happens in between."""
        first, last = np.searchsorted(self._riders.time, [start, start + 86_400]).tolist()
        times, origins = (part[first:last].tolist() for part in (self._riders.time, self._riders.origin))
        heap, stock, locked = self._heap, self._stock, self._locked
        for rider, (time, s) in enumerate(zip(times, origins, strict=True), first):
            if heap and heap[0] >> 32 <= time:
                self.run_events(time)
            if stock[s] and not locked[s]:
                self._ride(time, rider, s, Fate.SERVED)
            else:
                self._turn_away(time, rider, s)

    # Riders

    def _ride(self, time: int, rider: int, s: int, fate: int) -> None:
        destination = int(self._riders.destination[rider])
        self._fate[rider] = fate
        self._started[rider] = time
        self._start_station[rider] = s
        self._heading[rider] = destination
        self._stock[s] -= 1
        self._record(time, s)
        seconds = int(self._travel[s][destination] * float(self._riders.pace[rider]))
        heappush(self._heap, (time + seconds) << 32 | rider)

    def _turn_away(self, time: int, rider: int, s: int) -> None:
        """Nothing to rent at `s`: walk to another station, or give up."""
        self._fate[rider] = Fate.CLOSED if self._locked[s] else Fate.LOST
        self._walk_on(time, rider, s, s, 0)

    def _walk_on(self, time: int, rider: int, origin: int, here: int, first: int) -> None:
        """Choose among the stations that list a bike, in order of distance from `origin`, from the `first` on.

        The rider walks to each with a probability of its own. One uniform number decides them all: given the
        outcome of one choice, it is uniform again after rescaling.
        """
        chance = self._temper[rider]
        near = self._walks[origin]
        for i in range(first, len(near)):
            other, probability = near[i]
            if self._locked[other] or not self._listed(other):
                continue
            if chance < probability:
                self._temper[rider] = chance / probability
                seconds = int(self._on_foot[here][other])
                self.schedule(time + seconds, self._arrive_on_foot, rider, origin, other, i + 1)
                return
            chance = (chance - probability) / (1.0 - probability)

    def _arrive_on_foot(self, time: int, rider: int, origin: int, s: int, following: int) -> None:
        if self._stock[s] and not self._locked[s]:
            self._ride(time, rider, s, Fate.WALKED)
        else:  # somebody was faster, or the listed bikes are unusable
            self._walk_on(time, rider, origin, s, following)

    def _come_home(self, time: int, rider: int) -> None:
        s = self._heading[rider]
        if self._arrived[rider] < 0:
            self._arrived[rider] = time
        if not self._free_docks(s):
            refuge = next((o for o in self._others[s] if self._free_docks(o)), s)
            self._heading[rider] = refuge
            seconds = int(self._travel[s][refuge]) if refuge != s else _LATER
            heappush(self._heap, (time + seconds) << 32 | rider)
            return
        del self._heading[rider]
        self._ended[rider] = time
        self._end_station[rider] = s
        unusable = self._unusable_for[rider] if self._unusable_for else 0
        if self._riders.breaks[rider]:
            self._broken[s] += 1
        elif unusable == UNTIL_FOUND:
            self._unusable[s] += 1
        elif unusable:
            self._briefly[s] += 1
            self.schedule(time + unusable, self._recover, s)
        else:
            self._stock[s] += 1
        self._record(time, s)

    def _recover(self, time: int, s: int) -> None:
        self._briefly[s] -= 1
        self._stock[s] += 1
        self._record(time, s)

    def _listed(self, s: int) -> int:
        """Bikes that the feed shows as available."""
        return self._stock[s] + self._unusable[s] + self._briefly[s]

    def _free_docks(self, s: int) -> int:
        return 0 if self._dead[s] else self._capacity[s] - self._listed(s) - self._broken[s]

    # The operator

    def _lock(self, time: int, s: int, rent: int, dead: int) -> None:
        self._locked[s] += rent
        self._dead[s] += dead

    def plan_night(self, time: int, night: int) -> None:
        """Send mechanics to broken bikes, and trucks from the fullest stations to the emptiest."""
        four_hours = 4 * 3600
        when = iter((time + four_hours * self._moments[night]).astype(int).tolist())
        for s, broken in enumerate(self._broken):
            if broken and self._mechanic[night, s] < 0.6:
                self.schedule(time + int(four_hours * self._mechanic[night, s]), self._repair, s)
        gap = [
            0 if self._locked[s] else round(self._effort * (target - self._listed(s)))
            for s, target in enumerate(self._target)
        ]
        short = sorted((g, s) for s, g in enumerate(gap) if g > 0)
        over = sorted((-g, s) for s, g in enumerate(gap) if g < 0)
        while short and over:
            (missing, to), (spare, source) = short.pop(), over.pop()
            bikes = min(missing, spare, _TRUCK_LOAD)
            moment = next(when, None)
            if moment is None:
                return  # the night is over
            self.schedule(moment, self._load, source, bikes, to)
            for queue, left, s in ((short, missing - bikes, to), (over, spare - bikes, source)):
                if left:
                    queue.insert(bisect_left(queue, (left, s)), (left, s))

    def _repair(self, time: int, s: int) -> None:
        if not self._dead[s]:
            self._stock[s] += self._broken[s]
            self._broken[s] = 0
            self._record(time, s)

    def _schedule_inspections(self, settings: Settings) -> None:
        """Visits to each station at random moments."""
        rng = stream(settings, Stream.INSPECTIONS)
        horizon = 3600 * len(settings.hours())
        visits = rng.poisson(_INSPECTIONS * horizon / 86_400, settings.stations)
        times = rng.integers(0, horizon, visits.sum()).tolist()
        for s, time in zip(np.repeat(np.arange(settings.stations), visits).tolist(), times, strict=True):
            self.schedule(time, self._inspect, s)

    def _inspect(self, time: int, s: int) -> None:
        """Find the unusable bikes; they are disabled from now on."""
        if self._unusable[s] and not self._dead[s]:
            self._broken[s] += self._unusable[s]
            self._unusable[s] = 0
            self._record(time, s)

    def _load(self, time: int, s: int, bikes: int, to: int) -> None:
        self._inspect(time, s)
        bikes = 0 if self._locked[s] else min(bikes, self._stock[s])
        if bikes:
            self._stock[s] -= bikes
            self._stop(time, s, -bikes)
            self.schedule(time + 600 + int(self._travel[s][to] / 2), self._unload, to, bikes)

    def _unload(self, time: int, s: int, bikes: int) -> None:
        self._inspect(time, s)
        fits = min(bikes, self._free_docks(s))
        if fits:
            self._stock[s] += fits
            self._stop(time, s, fits)
        if bikes > fits:
            refuge = next((o for o in self._others[s] if self._free_docks(o)), s)
            self.schedule(time + _LATER, self._unload, refuge, bikes - fits)

    # The books

    def _record(self, time: int, s: int) -> None:
        self._log.extend((time, s, self._stock[s], self._broken[s], self._unusable[s] + self._briefly[s]))

    def _stop(self, time: int, s: int, bikes: int) -> None:
        self._stops.extend((time, s, bikes))
        self._record(time, s)

    def history(self) -> History:
        return History(
            fate=np.array(self._fate, dtype=np.intp),
            started=np.array(self._started, dtype=np.intp),
            start_station=np.array(self._start_station, dtype=np.intp),
            ended=np.array(self._ended, dtype=np.intp),
            end_station=np.array(self._end_station, dtype=np.intp),
            arrived=np.array(self._arrived, dtype=np.intp),
            fleet=self._fleet,
            stock=np.array(self._log, dtype=np.intp).reshape(-1, len(STOCK)),
            stops=np.array(self._stops, dtype=np.intp).reshape(-1, 3),
        )


def _target_stock(settings: Settings, city: Layout) -> list[int]:
    """The stock that the operator wants in the morning: fuller where people live, emptier where they work."""
    lean = 1.0 + 0.4 * (city.mix[:, 0] - city.mix[:, 1])
    share = np.clip(settings.fleet_share * lean, 0.05, 0.9)
    in_docks = [max(1, round(bikes)) for bikes in (share * city.capacity).tolist()]
    return [docked + beside for docked, beside in zip(in_docks, city.store.tolist(), strict=True)]
