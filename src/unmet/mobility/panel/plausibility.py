"""Stations whose records contradict each other, or say so little that no estimate should rest on them.

Status and trips are held against each other, station by station:

- *unseen*: trips start while the feed shows no vehicle, long before and long after, at a good part of the station's
  usual pace. Staffed stations, wrong ids and stuck terminals do that. What such a station calls empty is unknown.
- *mismatch*: the falls of its listed number are far from its trips, compared with other stations.
- *empty*: it was open and empty for most of the time.
- *unmoved*: nothing was ever taken or brought there.

Their zones are left out of the totals of the system until somebody says otherwise (`PanelOptions.keep`). A zone of
several stations stays if the others have most of its pickups. What such a station calls empty is then unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmet._exceptions import InputError
from unmet.mobility.clock.bins import DAY, Integers
from unmet.mobility.supply.silence import Feed, StationActivity
from unmet.mobility.supply.spells import plain_spells
from unmet.mobility.supply.states import EMPTY
from unmet.mobility.supply.status_log import StatusLog
from unmet.mobility.zones.build import Zones

__all__ = [
    "Implausible",
    "describe",
    "disbelieved_stations",
    "find_implausible",
    "kept_zones",
    "mark_carried",
    "with_own_silences",
]

Floats = NDArray[np.float64]

_LAG = 10
"""Minutes at both ends of a time without a vehicle in which a trip is no contradiction: records and trips lag."""

_LEAST_TRIPS, _LEAST_SHARE, _LEAST_PACE = 10, 0.03, 0.35
"""Trips without a vehicle, their share of the station's trips, and their pace over that with vehicles. In real systems
the pace with none listed is 0.05 to 0.20, by lag alone."""

_FAR, _ENOUGH_TRIPS = 3.0, 50
_MOSTLY_EMPTY, _LEAST_OPEN = 0.8, 7 * DAY

_SENTENCES = {
    "unseen": "{share:.0%} of its trips start while the feed shows no vehicle",
    "mismatch": "falls of its listed number are {share:.2f} of its trips",
    "empty": "open and empty for {share:.0%} of the time",
    "unmoved": "no vehicle ever came or left",
}


@dataclass(frozen=True)
class Implausible:
    """A station that no estimate should rest on.

    Attributes
    ----------
    place : int
        Its place in the order of zones.
    check : str
        The check it fails.
    share : float
        The share behind that.
    carried : bool
        Whether its zone rests on other stations.
    """

    place: int
    check: str
    share: float
    carried: bool = False

    @property
    def sentence(self) -> str:
        """Why, in words."""
        return _SENTENCES[self.check].format(share=self.share)


def find_implausible(
    activity: StationActivity, pickups: Integers, returns: Integers, silent: Integers
) -> list[Implausible]:
    """Find the stations, each with the first check it fails.

    Parameters
    ----------
    activity : StationActivity
        Of all stations, by their status.
    pickups, returns : array
        Sorted trips: station × 2**32 + second. Empty without trips.
    silent : array of shape (n, 2)
        Stretches in which the feed is silent, sorted. What a station last showed does not hold in them.
    """
    activity = _heard(activity, silent)
    found: dict[int, Implausible] = {}

    def add(check: str, places: Integers, shares: Floats) -> None:
        for place in places.tolist():
            found.setdefault(place, Implausible(place, check, float(shares[place])))

    # Trips and records are compared in the time that both cover.
    since, until = np.maximum(activity.since, activity.within[0]), np.minimum(activity.until, activity.within[1])
    pickups, returns = ((trips >> 32 << 32) + (trips & 0xFFFFFFFF) // 60 for trips in (pickups, returns))
    inside = _within(pickups, since, until)
    trips = np.bincount(pickups[inside] >> 32, minlength=len(activity.since)).astype(float)
    open_ = activity.open_minutes.astype(float)
    empty = np.bincount(activity.run_station, activity.run_end - activity.run_begin, len(open_))
    if len(pickups):
        add("unseen", *_unseen(activity, pickups[inside], returns, trips))
        enough = trips >= _ENOUGH_TRIPS
        ratio = np.divide(activity.falls, trips, out=np.zeros(len(trips)), where=enough)
        usual = np.median(ratio[enough]) if enough.any() else 1.0
        add("mismatch", np.flatnonzero(enough & ((ratio > _FAR * usual) | (ratio < usual / _FAR))), ratio)
    long = open_ >= _LEAST_OPEN
    unmoved = long & (activity.rises == 0) & (activity.falls == 0) & (trips == 0)
    add("unmoved", np.flatnonzero(unmoved), np.zeros(len(trips)))
    share = np.divide(empty, open_, out=np.zeros(len(open_)), where=open_ > 0)
    add("empty", np.flatnonzero(long & (share > _MOSTLY_EMPTY)), share)
    return [found[place] for place in sorted(found)]


def with_own_silences(
    activity: StationActivity, found: Sequence[Implausible], log: StatusLog, feed: Feed
) -> StationActivity:
    """Leave the silences of single stations out of the time without a vehicle, for those found *unseen*.

    This reads their records once more, which all stations would be too many for.
    """
    places = np.array([one.place for one in found if one.check == "unseen"], dtype=np.int64)
    others = ~np.isin(activity.run_station, places)
    runs = [(activity.run_station[others], activity.run_begin[others], activity.run_end[others])]
    for records in log.of_stations(places):
        spells = plain_spells(records, feed, activity.feed_share)
        spells = spells.select(spells.reason == EMPTY)
        apart = np.ones(len(spells.begin) + 1, dtype=bool)
        apart[1:-1] = spells.begin[1:] > spells.end[:-1]
        runs.append((spells.owner[apart[:-1]], spells.begin[apart[:-1]], spells.end[apart[1:]]))
    station, begin, end = (np.concatenate(column) for column in zip(*runs, strict=True))
    order = np.lexsort([begin, station])
    return replace(activity, run_station=station[order], run_begin=begin[order], run_end=end[order])


def _heard(activity: StationActivity, silent: Integers) -> StationActivity:
    """Leave silent stretches out of those without a vehicle."""
    begin, end = activity.run_begin, activity.run_end
    first = np.searchsorted(silent[:, 1], begin, "right")
    cuts = np.maximum(np.searchsorted(silent[:, 0], end) - first, 0)
    run = np.repeat(np.arange(len(begin)), cuts + 1)
    piece = np.arange(len(run)) - np.repeat(np.cumsum(cuts + 1) - cuts - 1, cuts + 1)
    edges = np.concatenate([[[0, 0]], silent, [[0, 0]]])  # the gap before piece 0, and after the last, is never used
    after, before = edges[first[run] + piece, 1], edges[first[run] + piece + 1, 0]
    begin, end = np.where(piece == 0, begin[run], after), np.where(piece == cuts[run], end[run], before)
    some = end > begin
    return replace(activity, run_station=activity.run_station[run][some], run_begin=begin[some], run_end=end[some])


def _within(trips: Integers, since: Integers, until: Integers) -> NDArray[np.bool_]:
    station, minute = trips >> 32, trips & 0xFFFFFFFF
    inside: NDArray[np.bool_] = (minute >= since[station]) & (minute < until[station])
    return inside


def _unseen(activity: StationActivity, pickups: Integers, returns: Integers, trips: Floats) -> tuple[Integers, Floats]:
    """Find stations where trips start without a vehicle, and the share of these trips.

    A vehicle that was brought between two looks may be taken before the second. So a trip counts only if fewer were
    brought than taken, within the usual interval between looks.
    """
    first = np.maximum(activity.run_begin, activity.within[0]) + _LAG
    behind = np.minimum(activity.run_end, activity.within[1]) - _LAG
    long = behind > first
    station = activity.run_station[long] << 32
    begin, end = station + first[long], station + behind[long]

    def in_runs(events: Integers) -> Integers:
        run = np.searchsorted(begin, events, "right") - 1
        chosen: Integers = events[(run >= 0) & (events < end[np.maximum(run, 0)])] if len(begin) else events[:0]
        return chosen

    width = max(_LAG, int(min(activity.cadence, DAY)) + 1)
    inside = in_runs(pickups)
    taken, of_window = np.unique(_windows(inside, width), return_counts=True)
    brought = _windows(returns, width)
    back = np.searchsorted(brought, taken, "right") - np.searchsorted(brought, taken - 1)
    excess = np.bincount(taken >> 32, np.maximum(of_window - back, 0), len(trips))
    minutes = np.bincount(begin >> 32, end - begin, len(trips))
    share = np.divide(excess, trips, out=np.zeros(len(trips)), where=trips > 0)
    without = np.bincount(inside >> 32, minlength=len(trips))
    # Pace without and with vehicles, multiplied out.
    fast = without * np.maximum(activity.open_within - minutes, 0) >= _LEAST_PACE * (trips - without) * minutes
    chosen = np.flatnonzero((excess >= _LEAST_TRIPS) & (share >= _LEAST_SHARE) & fast)
    return chosen, np.divide(without, trips, out=np.zeros(len(trips)), where=trips > 0)


def _windows(events: Integers, width: int) -> Integers:
    windows: Integers = (events >> 32 << 32) + (events & 0xFFFFFFFF) // width
    return windows


def kept_zones(keep: str | None, zones: pd.DataFrame) -> set[str]:
    """Return the zones that stay in the totals whatever their records say: ``all``, or names separated by commas.

    A single name may have commas of its own.
    """
    if keep is None:
        return set()
    if keep.strip() == "all":
        return set(zones["zone"].astype(str))
    whole = (zones["name"].astype(str) == keep.strip()).any()
    kept = set()
    for name in (part.strip() for part in ([keep] if whole else keep.split(","))):
        rows = (zones["zone"].astype(str) == name) | (zones["name"].astype(str) == name)
        if not rows.any():
            raise InputError(f"keep: expected all, or names or ids of zones, separated by commas; no zone is {name!r}.")
        kept |= set(zones.loc[rows, "zone"].astype(str))
    return kept


def mark_carried(
    found: Sequence[Implausible], zone: Integers, activity: StationActivity, pickups: Integers
) -> list[Implausible]:
    """Mark the stations whose zones have plausible ones with at least as many pickups.

    Parameters
    ----------
    found : sequence of Implausible
        The stations.
    zone : array
        The zone of every station.
    activity : StationActivity
        Of all stations. Its falls are the pickups if there are no trips.
    pickups : array
        Sorted trips: station × 2**32 + second. Empty without trips.
    """
    weight = np.bincount(pickups >> 32, minlength=len(zone)) if len(pickups) else activity.falls
    doubted = np.isin(np.arange(len(zone)), [one.place for one in found])
    marked = []
    for one in found:
        with_it = zone == zone[one.place]
        others = with_it & ~doubted
        carried = bool(others.any()) and weight[others].sum() >= weight[with_it & doubted].sum()
        marked.append(replace(one, carried=bool(carried)))
    return marked


def disbelieved_stations(found: Sequence[Implausible]) -> Integers:
    """Return the stations that are not believed when they show no vehicle."""
    doubted = [one.place for one in found if one.check == "unseen" or one.carried]
    return np.array(doubted, dtype=np.int64)


def describe(
    found: Sequence[Implausible], order: Integers, zones: Zones, stations: pd.DataFrame
) -> list[dict[str, Any]]:
    """Describe implausible stations for the summary."""
    rows: list[dict[str, Any]] = []
    for one in found:
        ix = int(order[one.place])
        name = stations["name"].iloc[ix]
        rows.append(
            {
                "station": str(stations["station"].iloc[ix]),
                "name": "" if pd.isna(name) else str(name),
                "zone": str(zones.frame["zone"].iloc[int(zones.of_station[ix])]),
                "check": one.check,
                "share": round(one.share, 4),
                "why": one.sentence,
                "left_out": not one.carried,
            }
        )
    return rows
