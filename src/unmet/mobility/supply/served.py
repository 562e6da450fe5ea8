"""The chance to be served where it differs from what the feed shows, and the vehicles that nobody can rent now.

Chances are rounded to multiples of `2**-20`, and their logarithms to multiples of `2**-30`. Sums over minutes and
stations are then exact: a zone has the same digits whichever zones are worked on with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import Integers
from unmet.mobility.supply.broken import BROKEN
from unmet.mobility.supply.spells import Spells
from unmet.mobility.supply.states import EMPTY, IMPLAUSIBLE, SILENT, UNDETERMINED, VEHICLES
from unmet.mobility.supply.timeline import AMPLE, CutSteps, Timeline, to_steps
from unmet.mobility.supply.usable import Smoothed, smooth
from unmet.mobility.supply.usable_learning import UsableSupply, hidden, served, with_expected
from unmet.mobility.supply.usual_rates import tally_hours

__all__ = ["Served", "Unusable", "combine_served", "find_served", "latest_broken", "rounded"]

Floats = NDArray[np.float64]
_NOTABLE = 1e-4
_CHANCES, _LOGARITHMS = 2.0**20, 2.0**30  # steps in one


def rounded(chance: Floats) -> Floats:
    """Round chances, so that their sums over minutes are exact in any order."""
    result: Floats = np.rint(chance * _CHANCES) / _CHANCES
    return result


@dataclass(frozen=True)
class Served:
    """Stretches in which the chance to be served is not what the feed shows, sorted by `owner` and time.

    Attributes
    ----------
    owner, begin, end : array of int
        Station or zone, first minute, and the one behind the last.
    chance : array
        Chance that a rider is served.
    shown : array of bool
        Whether the feed shows a vehicle.
    variance : array, optional
        Variance of the minutes served in the whole stretch, per minute: by the hidden state, or by what could have
        happened between two looks.
    """

    owner: Integers
    begin: Integers
    end: Integers
    chance: Floats
    shown: NDArray[np.bool_]
    variance: Floats | None = None


@dataclass(frozen=True)
class Unusable:
    """Broken vehicles of stations that are open and list fewer than `AMPLE` at the end of the period.

    With more listed, riders take the sound ones, and the record says nothing about the others.

    Attributes
    ----------
    station : array of int
        Whose.
    listed : array of int
        Vehicles listed.
    number : array
        Expected number of broken ones.
    probability : array
        Probability that there is at least one.
    since : array of int
        Minute from which on that is more likely than not.
    """

    station: Integers
    listed: Integers
    number: Floats
    probability: Floats
    since: Integers


def find_served(
    usable: UsableSupply, timeline: Timeline, until: int, since: int | None = None
) -> tuple[Served, Unusable | None]:
    """Find the chance to be served of some stations, and what cannot be rented at the end (if the model tells).

    That end is minute `until`. With `since`, only stretches that end after that minute are looked at; usual rates are
    those of the whole timeline.
    """
    recent = timeline if since is None else timeline.select(timeline.end > since)
    if len(recent) == 0:
        nothing = np.empty(0, dtype=np.int64)
        return Served(nothing, nothing, nothing, np.empty(0), np.empty(0, dtype=bool)), None
    cut = to_steps(recent)
    if usable.fault is None or usable.fault.is_none:
        worth = np.append(usable.worth, 1.0) if usable.fault is None else np.append(0.0, np.ones(AMPLE))
        return _notable(cut, worth[np.minimum(cut.steps.listed, AMPLE)]), None
    steps = with_expected(cut, usable.rates.stations(tally_hours(timeline, usable.rates.calendar)))
    found = smooth(usable.fault, steps)
    notable = _notable(cut, served(usable.fault, steps, found, usable.correction), hidden(usable.fault, steps, found))
    return notable, _unusable_now(cut, found, until)


def _notable(cut: CutSteps, chance: Floats, variance: Floats | None = None) -> Served:
    """Keep the stretches whose chance is not what the feed shows; `variance` is that of the chance."""
    chance = rounded(chance)
    differs = (cut.steps.listed < AMPLE) & (np.abs(chance - cut.shown) > _NOTABLE) & (cut.end > cut.begin)
    few = np.flatnonzero(differs)
    begin, end = cut.begin[few], cut.end[few]
    if variance is not None:
        variance = _persistent(variance[few], begin, end)
    return Served(cut.steps.station[few], begin, end, chance[few], cut.shown[few], variance)


def _persistent(variance: Floats, begin: Integers, end: Integers) -> Floats:
    """Variance of the minutes of a stretch, per minute, if the chance is the same all along, up to an hour.

    Rounded, so that sums are exact in any order.
    """
    result: Floats = np.rint(variance * np.minimum(end - begin, 60) * 1024) / 1024
    return result


def _unusable_now(cut: CutSteps, found: Smoothed, until: int) -> Unusable:
    begun = np.flatnonzero(cut.begin < until)
    some = found.end[:, BROKEN > 0].sum(axis=1)
    last, since = (begun[at] for at in latest_broken(cut.steps.station[begun], some[begun]))
    held = cut.scarce[last] & (cut.end[last] >= until)
    last, since = last[held], since[held]
    return Unusable(
        cut.steps.station[last],
        cut.steps.listed[last],
        (found.end[last] * BROKEN).sum(axis=1),
        some[last],
        cut.begin[since],
    )


def latest_broken(station: Integers, some: Floats) -> tuple[Integers, Integers]:
    """Return the last stretch of each station, and the one from which on a broken vehicle is more likely than not.

    `some` is the probability that a vehicle is broken at the end of each stretch; stations ascend.
    """
    if len(station) == 0:
        return station, station
    last = np.flatnonzero(np.append(station[1:] != station[:-1], True))
    first = np.append(0, last[:-1] + 1)
    less = np.maximum.accumulate(np.where(some < 0.5, np.arange(len(some)), -1))
    return last, np.minimum(np.maximum(less[last] + 1, first), last)


def combine_served(stations: Served, spells: Spells, zone: Integers) -> Served:
    """Join the chances of stations into those of their zones; `spells` are the stations' own, `zone` that of each.

    A rider is served in a zone unless at none of its stations. Stations that show a vehicle and are not in `stations`
    surely serve. A sweep over all minutes at which anything changes, as in `combine_stations`.
    """
    shows = spells.reason == VEHICLES
    hides = np.isin(spells.reason, (SILENT, UNDETERMINED, IMPLAUSIBLE))
    open_ = shows | hides | (spells.reason == EMPTY)
    owner = np.concatenate([spells.owner[open_], stations.owner])
    begin = np.concatenate([spells.begin[open_], stations.begin])
    end = np.concatenate([spells.end[open_], stations.end])
    none = np.zeros(len(stations.owner))
    sure = np.concatenate([shows[open_].astype(float), -1.0 * stations.shown])
    shown = np.concatenate([shows[open_].astype(float), none])
    unknown = np.concatenate([hides[open_].astype(float), none])
    logs = np.rint(np.log(np.maximum(1.0 - stations.chance, 1e-12)) * _LOGARITHMS)
    missed = np.concatenate([np.zeros(int(open_.sum())), logs])
    owner, minute = np.tile(zone[owner], 2), np.concatenate([begin, end])
    order = np.lexsort((minute, owner))
    owner, minute = owner[order], minute[order]
    last = np.append((owner[1:] != owner[:-1]) | (minute[1:] != minute[:-1]), True)

    def running(value: Floats) -> Floats:
        total: Floats = np.cumsum(np.concatenate([value, -value])[order])[last]
        return total

    chance = np.where(running(sure) > 0.5, 1.0, rounded(-np.expm1(running(missed) / _LOGARITHMS)))
    shows_any = running(shown) > 0.5
    chance[(running(unknown) > 0.5) & ~shows_any] = 0.0  # the zone's state is unknown
    owner, begin = owner[last], minute[last]
    end = np.append(begin[1:], begin[-1:])
    keep = (np.abs(chance - shows_any) > _NOTABLE) & np.append(owner[1:] == owner[:-1], False)
    found = Served(owner[keep], begin[keep], end[keep], chance[keep], shows_any[keep])
    if stations.variance is None:
        return found
    # No share has a larger variance than one that is all or nothing.
    return replace(found, variance=_persistent(found.chance * (1 - found.chance), found.begin, found.end))
