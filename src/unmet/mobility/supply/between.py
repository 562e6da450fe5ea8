"""The chance that a station had a vehicle between two looks that are far apart, and how sure that is.

Without trips nobody knows what happened between two looks. Let riders take and bring vehicles at some rates, and take
none from an empty station. Given the numbers at both looks, the number between them is a bridge of that birth-death
process (`unmet.mobility.supply.bridge`), and the share of the time without a vehicle has a mean and a variance.

Rates are learnt from the looks themselves (`unmet.mobility.supply.rider_moves`), by hour of the day, on weekdays and at
weekends. Some of the vehicles listed may be broken: `unmet.mobility.supply.between_broken` says how many, from how long
nobody took one. The process is then that of the others.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import Integers
from unmet.mobility.supply.between_broken import (
    Breaking,
    Looks,
    TimeWithout,
    bridge_looks,
    learn_breaking,
    time_without,
)
from unmet.mobility.supply.between_worth import Worth, find_worth
from unmet.mobility.supply.bridge import MOST, MOVES, RATIOS, bridge, into_table
from unmet.mobility.supply.cadence import HOUR, Cadence
from unmet.mobility.supply.city_hours import find_city_hours
from unmet.mobility.supply.rider_moves import RiderMoves, at_times_moves, find_moves, log_likelihoods
from unmet.mobility.supply.served import Served, Unusable, latest_broken, rounded
from unmet.mobility.supply.spells import Spells
from unmet.mobility.supply.states import EMPTY, VEHICLES
from unmet.mobility.supply.timeline import AMPLE
from unmet.mobility.supply.usual_rates import HOURS_OF_WEEK, Calendar

__all__ = ["Activity", "Between", "Cancelled", "cut_at_looks", "learn_between"]

Floats = NDArray[np.float64]

_ANY, _HOURLY = 1.5, 0.4  # prior standard deviations of logarithms: of a station's moves, and of one hour's beside
_FLAT = 4.0  # precision of the belief that a station is as busy as others
_ALIKE = 0.2  # relative difference of intervals that are taken to be equally long
_FEWEST, _MOST_FIRST = 3, MOST - 8  # vehicles at the first look of intervals that tell moves; more count as so many
_OFTEN = 3
_RARE = 0.05  # share of the time that is left out because few intervals are so long
_CELLS = 48  # hours of the day, on weekdays and at weekends
_NOTABLE = 1e-4
_PERSISTS = 60  # minutes for which a number broken is taken to stay
_FIELDS = tuple(TimeWithout.__dataclass_fields__)
_LEARNT_FROM, _JUDGED_FROM, _TOGETHER = 100_000, 400_000, 50_000  # intervals


@dataclass(frozen=True)
class Activity:
    """Moves at some stations.

    Attributes
    ----------
    station : array of int
        The stations, ascending.
    scale : array, shape (stations, 48)
        Moves over those of a mean station, by hour of the day on weekdays and at weekends.
    ratio : array, shape (stations, 48)
        Vehicles taken over those brought, if there are always some to take.
    """

    station: Integers
    scale: Floats
    ratio: Floats


@dataclass(frozen=True)
class Cancelled:
    """Pickups that cancelled out with as many returns between two looks, sorted by station and time.

    Attributes
    ----------
    station, before, after : array of int
        Station, and the minutes of both looks.
    pairs : array
        Expected number, a multiple of 1/1024, so that sums are exact in any order.
    """

    station: Integers
    before: Integers
    after: Integers
    pairs: Floats


@dataclass(frozen=True)
class Between:
    """Activity of a system, learnt from looks that are far apart.

    Attributes
    ----------
    calendar : Calendar
        Hours of the period.
    shape : array, shape (168,)
        Mean of pickups and returns per minute of a mean station, by hour of the week.
    rebalancing : int
        Vehicles at once that a van moves.
    longest : float
        Minutes between two looks beyond which nothing is said.
    city : array, shape (hours of the calendar,)
        Activity of the whole city over the usual one.
    breaking : Breaking, optional
        How vehicles come to be listed that nobody can rent, if the record shows any.
    vehicles, docks : Worth, optional
        Falls over those expected, by number listed. None if no interval tells.
    """

    calendar: Calendar
    shape: Floats
    rebalancing: int
    longest: float
    city: Floats
    breaking: Breaking | None = None
    vehicles: Worth | None = None
    docks: Worth | None = None

    def activity(self, spells: Spells) -> Activity:
        """Return the activity of some stations, from looks at which many vehicles are listed.

        Broken ones do not matter there.
        """
        station = np.unique(spells.owner)
        looks = self._alike(spells)
        cells = [
            np.searchsorted(station, spells.owner[row]) * _CELLS + _cell(_hour(self.calendar, spells.begin[row]))
            for _, row in looks
        ]
        by_day = self.shape.reshape(7, 24)
        mean = np.concatenate([by_day[:5].mean(axis=0), by_day[5:].mean(axis=0)])
        usual = np.tile(mean * looks[0][0], len(station))
        likelihood = _likelihood(spells, looks, cells, len(usual))
        level = _levels(find_moves(likelihood, usual, _ANY), np.log(usual))
        found = find_moves(likelihood, usual * np.repeat(level, _CELLS), _HOURLY)
        moves = np.exp(found.moves + 0.5 * found.variance)  # the mean of a log-normal distribution
        return Activity(station, (moves / usual).reshape(-1, _CELLS), np.exp(found.ratio).reshape(-1, _CELLS))

    def _alike(self, spells: Spells) -> list[tuple[float, Integers]]:
        """Intervals that tell moves, in classes in which about as many are usual: minutes, and which they are.

        Minutes are those of usual hours. Classes follow each other until those left cover little time.
        """
        row = _intervals(spells, self.longest)
        row = row[spells.supply[row] >= _FEWEST]
        length = self._lengths(spells, row)
        classes, enough = [], _RARE * length.sum()
        while len(row) and length.sum() > enough:
            typical = float(np.sort(length)[len(length) // 2])
            near = np.abs(length - typical) <= _ALIKE * typical
            classes.append((typical, row[near]))
            row, length = row[~near], length[~near]
        return classes or [(1.0, row)]

    def _with_shape(self, spells: Spells) -> Between:
        """Return this with the usual moves of a mean station that some stations tell."""
        looks = self._alike(spells)
        hours = [_hour(self.calendar, spells.begin[row]) for _, row in looks]
        likelihood = _likelihood(spells, looks, hours, HOURS_OF_WEEK)
        mean = find_moves(likelihood.sum(axis=0, keepdims=True), np.ones(1), _ANY).moves
        found = find_moves(likelihood, np.repeat(np.exp(mean), HOURS_OF_WEEK), _ANY)
        return replace(self, shape=np.exp(found.moves) / looks[0][0])

    def _with_city(self, spells: Spells) -> Between:
        """Return this with the activity of the whole city that some stations tell."""
        row = _intervals(spells, self.longest)
        row = row[np.linspace(0, len(row) - 1, min(_LEARNT_FROM, len(row))).astype(np.int64)]
        usual = self._looks(spells, row, *self._expected(spells, row, self.activity(spells), 1))
        hour = _of_calendar(self.calendar, spells.begin[row])
        return replace(self, city=find_city_hours(usual, hour, len(self.calendar)))

    def docked(self, spells: Spells, activity: Activity) -> Served:
        """Return the chance of a free dock between the looks of some stations, and its variance."""
        row = _intervals(spells, self.longest)
        taken, brought = self._expected(spells, row, activity, -1)
        _, out, riders, _ = bridge(spells.supply[row], spells.supply[row + 1], taken, brought)
        return _notable(spells, row, out, riders, np.zeros(len(row)), self.docks)

    def served(self, spells: Spells, activity: Activity, until: int) -> tuple[Served, Cancelled, Unusable | None]:
        """Return the chance of a vehicle between the looks of some stations, and its variance.

        Also return the pickups that cancelled out with returns, and the vehicles broken at `until`, if any break.
        """
        row = _intervals(spells, self.longest)
        looks = self._looks(spells, row, *self._expected(spells, row, activity, 1))
        if self.breaking is None or len(row) == 0:
            _, out, riders, pairs = bridge(*into_table(looks.first, looks.second), looks.taken, looks.brought)
            served = _notable(spells, row, out, riders, np.zeros(len(row)), self.vehicles)
            return served, _cancelled(spells, row, looks, pairs), None
        parts = [time_without(looks.select(part), self.breaking) for part in _parts(spells.owner[row])]
        found = TimeWithout(*(np.concatenate([getattr(p, name) for p in parts]) for name in _FIELDS))
        served = _notable(spells, row, found.share, found.riders, found.broken, self.vehicles)
        return served, _cancelled(spells, row, looks, found.cancelled), _unusable_now(spells, row, found, until)

    def _lengths(self, spells: Spells, row: Integers) -> Floats:
        """Minutes of some intervals, times the city's activity over the usual one."""
        lengths: Floats = self.city[_of_calendar(self.calendar, spells.begin[row])] * (
            spells.end[row] - spells.begin[row]
        )
        return lengths

    def _expected(self, spells: Spells, row: Integers, activity: Activity, side: int) -> tuple[Floats, Floats]:
        """Vehicles expected to be taken and brought in some intervals; docks if `side` is -1."""
        hour = _hour(self.calendar, spells.begin[row])
        station = np.minimum(np.searchsorted(activity.station, spells.owner[row]), len(activity.station) - 1)
        cell = _cell(hour)
        mean = self.shape[hour] * activity.scale[station, cell] * self._lengths(spells, row)
        root = np.sqrt(activity.ratio[station, cell]) ** side
        taken, brought = mean * root, mean / root
        return taken, brought

    def _sample(self, spells: Spells, activity: Activity, side: int) -> Looks | None:
        """Make some of the intervals, to learn from; None if there are none."""
        row = _intervals(spells, self.longest)
        if len(row) == 0:
            return None
        return self._looks(spells, row, *self._expected(spells, row, activity, side)).thin(_JUDGED_FROM)

    def _looks(self, spells: Spells, row: Integers, taken: Floats, brought: Floats) -> Looks:
        """Make the intervals of the model of broken vehicles."""
        first, second = (spells.supply[at].astype(np.int64) for at in (row, row + 1))
        begins = np.append(True, (np.diff(row) > 1) | (np.diff(spells.owner[row]) != 0))
        van = np.abs(second - first) >= self.rebalancing
        minutes = (spells.end[row] - spells.begin[row]).astype(float)
        return Looks(begins, minutes, taken, brought, first, second, van)


def cut_at_looks(spells: Spells, cadence: Cadence, first: int) -> Spells:
    """Cut spells at the looks within them where the feed lists changes alone: it saw the same number at these.

    If every change has its own time, somebody looks all the time. Looks every `_OFTEN` minutes are enough, and spells
    between two of them are left out: intervals that end because something changes would say that more does.

    Parameters
    ----------
    spells : Spells
        Of some stations.
    cadence : Cadence
        Looks at the feed.
    first : int
        The first minute of the feed.
    """
    always = cadence.always
    looks = np.where(always, _OFTEN, np.maximum(cadence.apart, 1.0))

    def hour(minute: Integers) -> Integers:
        return np.clip((minute - first) // HOUR, 0, len(looks) - 1)

    def at_look(minute: Integers) -> Integers:
        return np.where(always[hour(minute)], -(-minute // _OFTEN) * _OFTEN, minute)

    spells = replace(spells, begin=at_look(spells.begin), end=at_look(spells.end))
    spells = spells.select(spells.end > spells.begin)
    of = hour(spells.begin)
    known = ((spells.reason == VEHICLES) | (spells.reason == EMPTY)) & ~cadence.polled[of]
    pieces = np.where(known, np.maximum(np.rint((spells.end - spells.begin) / looks[of]), 1), 1).astype(np.int64)
    row = np.repeat(np.arange(len(pieces)), pieces)
    rank = np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin = spells.begin[row] + np.rint(rank * looks[of[row]]).astype(np.int64)
    end = np.where(np.append(rank[1:] == 0, True), spells.end[row], np.append(begin[1:], 0))
    return Spells(spells.owner[row], begin, end, spells.reason[row], spells.supply[row])


def learn_between(
    spells: Spells, dock_spells: Spells, calendar: Calendar, rebalancing: int, longest: float
) -> Between | None:
    """Learn the activity of a system from the spells of some stations, and how its vehicles break.

    None if no interval tells anything.

    Parameters
    ----------
    spells, dock_spells : Spells
        Of vehicles, and of docks.
    calendar, rebalancing, longest
        As in `Between`.
    """
    row = _intervals(spells, longest)
    if not np.any(spells.supply[row] >= _FEWEST):
        return None
    between = Between(calendar, np.ones(HOURS_OF_WEEK), rebalancing, longest, np.ones(len(calendar)))
    between = between._with_shape(spells)._with_city(spells)._with_shape(spells)
    activity = between.activity(spells)
    vehicles, docks = (between._sample(some, activity, side) for some, side in ((spells, 1), (dock_spells, -1)))
    assert vehicles is not None
    breaking = learn_breaking(bridge_looks(vehicles.thin(_LEARNT_FROM)))
    return replace(
        between,
        breaking=breaking,
        vehicles=find_worth(vehicles, breaking, rebalancing),
        docks=None if docks is None else find_worth(docks, None, rebalancing),
    )


def _notable(spells: Spells, row: Integers, out: Floats, riders: Floats, broken: Floats, worth: Worth | None) -> Served:
    """Keep the intervals whose chance is not what the feed shows; both variances are those of the share."""
    shown = spells.reason[row] == VEHICLES
    chance = np.clip(1.0 - out, 0.0, 1.0)
    if worth is not None:
        chance = worth.corrected(chance, *(spells.supply[at].astype(np.int64) for at in (row, row + 1)))
    some = np.abs(chance - shown) > _NOTABLE
    row = row[some]
    length = spells.end[row] - spells.begin[row]
    variance = riders[some] * length + broken[some] * np.maximum(length, _PERSISTS)
    variance = np.rint(variance * 1024) / 1024  # so that sums are exact in any order
    return Served(spells.owner[row], spells.begin[row], spells.end[row], rounded(chance[some]), shown[some], variance)


def _cancelled(spells: Spells, row: Integers, looks: Looks, pairs: Floats) -> Cancelled:
    """Keep the pairs of all intervals. A van hides how riders changed the number: they are taken to have not."""
    van = np.flatnonzero(looks.van)
    level = np.minimum(np.maximum(looks.first, looks.second)[van], MOST)
    pairs = pairs.copy()
    pairs[van] = bridge(level, level, looks.taken[van], looks.brought[van])[3]
    return Cancelled(spells.owner[row], spells.begin[row], spells.end[row], np.rint(pairs * 1024) / 1024)


def _unusable_now(spells: Spells, row: Integers, found: TimeWithout, until: int) -> Unusable:
    """Broken vehicles of stations at their last looks before `until`, where so few are listed that the record tells.

    What that look found must still be in force: a station that closed or fell silent since then is left out.
    """
    begun = np.flatnonzero(spells.begin[row + 1] < until)
    owner = spells.owner[row]
    last, since = (begun[at] for at in latest_broken(owner[begun], found.some[begun]))
    listed = spells.supply[row[last] + 1].astype(np.int64)
    held = (listed > 0) & (listed < AMPLE) & (spells.end[row[last] + 1] >= until)
    last, since = last[held], since[held]
    return Unusable(owner[last], listed[held], found.number[last], found.some[last], spells.begin[row[since]])


def _parts(owner: Integers) -> list[slice]:
    """Cut sorted intervals into parts of whole stations that fit into memory."""
    edges = np.flatnonzero(np.diff(owner, prepend=-1, append=-1))
    chosen = [0]
    for edge in edges[1:].tolist():
        if edge - chosen[-1] >= _TOGETHER or edge == len(owner):
            chosen.append(edge)
    return [slice(low, high) for low, high in itertools.pairwise(chosen)]


def _likelihood(spells: Spells, looks: list[tuple[float, Integers]], cells: list[Integers], number: int) -> Floats:
    """Log-likelihood of all looks by cell, moves in an interval of the first class, and ratio."""
    total = np.zeros((number, len(MOVES), len(RATIOS)))
    for (minutes, row), cell in zip(looks, cells, strict=True):
        first, second = (spells.supply[at].astype(np.int64) for at in (row, row + 1))
        beyond = np.maximum(first - _MOST_FIRST, 0)  # far from zero only differences count
        found = log_likelihoods(cell, first - beyond, np.maximum(second - beyond, 0), number)
        total += at_times_moves(found, minutes / looks[0][0])
    return total


def _levels(found: RiderMoves, log_usual: Floats) -> Floats:
    """The activity of each station over the usual one: the mean of its cells, weighted by what they tell."""
    told = np.maximum(1 / found.variance - 1 / _ANY**2, 0.0).reshape(-1, _CELLS)
    value = ((found.moves - log_usual) / found.variance).reshape(-1, _CELLS)
    level: Floats = np.exp(value.sum(axis=1) / (told.sum(axis=1) + _FLAT))
    return level


def _intervals(spells: Spells, longest: float) -> Integers:
    """The spells between two looks at an open station; the second look begins the spell behind."""
    known = (spells.reason == VEHICLES) | (spells.reason == EMPTY)
    joint = known[:-1] & known[1:] & (spells.owner[1:] == spells.owner[:-1]) & (spells.begin[1:] == spells.end[:-1])
    return np.flatnonzero(joint & (spells.end[:-1] - spells.begin[:-1] <= longest))


def _of_calendar(calendar: Calendar, minute: Integers) -> Integers:
    return np.clip(minute // 60 - calendar.first, 0, len(calendar) - 1)


def _hour(calendar: Calendar, minute: Integers) -> Integers:
    return calendar.hour_of_week[_of_calendar(calendar, minute)]


def _cell(hour: Integers) -> Integers:
    """Hour of the day of an hour of the week, plus 24 at weekends."""
    return hour % 24 + 24 * (hour >= 5 * 24)
