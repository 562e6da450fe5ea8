"""Clocks of trips and status: a shift of hours between them is an error of a time zone.

Status in UTC without an offset is read as local time. Stock-outs are then those of other hours, and everything that
follows is wrong, though each file by itself is plausible.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmet._exceptions import InputError
from unmet.mobility.clock.bins import DAY, Integers
from unmet.mobility.supply.silence import Feed

__all__ = ["check_clocks"]

_STEP = 30  # minutes: offsets of time zones are multiples, but for two
_MOST_STEPS = 28  # 14 hours
_FEWEST_STEPS = 2 * DAY // _STEP
_FEWEST = 100  # ends of trips, and moves in the status
# Correlations of changes from one half-hour to the next. With equal clocks they are 0.75 to 0.97 in simulated cities if
# looks at the feed are up to five minutes apart, 0.45 in Jersey City, and at other shifts below 0.2. A correlation by
# chance is beyond 8 / sqrt(n) once in 10^15.
_LEAST, _CHANCE, _MOST_UNSHIFTED = 0.2, 8.0, 0.5


def check_clocks(feed: Feed, pickups: Integers, returns: Integers, timezone: str) -> None:
    """Refuse trips and status that show the same moves an hour or more apart.

    Vehicles are taken and brought at the same moments in both, or the status shows it at the next look. Moves per
    half-hour are compared at shifts of up to 14 hours, by how they change from one half-hour to the next: the course of
    a day, which is alike at many shifts, hardly counts. With looks that are far apart, or few moves, nothing is found.

    Parameters
    ----------
    feed : Feed
        The whole feed.
    pickups, returns : array
        Trips: station × 2**32 + second.
    timezone : str
        Time zone of the system.
    """
    if len(pickups) + len(returns) < _FEWEST or feed.moves.sum() < _FEWEST:
        return
    minutes = [(trips & 0xFFFFFFFF) // 60 for trips in (pickups, returns)]
    first = min(feed.first, *(int(m.min()) for m in minutes if len(m))) // _STEP - _MOST_STEPS
    last = max(feed.last, *(int(m.max()) for m in minutes if len(m))) // _STEP + _MOST_STEPS
    size = last - first + 1
    ridden = sum(np.bincount(m // _STEP - first, minlength=size) for m in minutes)
    steps = np.arange(feed.first, feed.first + len(feed.moves)) // _STEP - first
    shown = np.bincount(steps, feed.moves, size)
    shifts = np.arange(-_MOST_STEPS, _MOST_STEPS + 1)
    alike = np.array([_alike(shown, np.roll(ridden, shift)) for shift in shifts])
    late = np.ceil(min(feed.cadence.usual, DAY) / _STEP)  # steps until the next look
    near = (shifts >= -1) & (shifts <= max(late, 1))
    best = int(alike.argmax())
    if near[best] or alike[best] < _LEAST or alike[near].max() > _MOST_UNSHIFTED * alike[best]:
        return
    hours = float(shifts[best]) * _STEP / 60
    raise InputError(
        f"The status shows the same moves {abs(hours):g} hour{'s' if abs(hours) != 1 else ''} "
        f"{'later' if hours > 0 else 'earlier'} than the trips: their times are in different time zones. Times without "
        f"an offset are read as local times of {timezone}. Write those of the other zone with an offset, such as "
        "2024-03-04 08:00:00Z for UTC. If the times are right, continue with --force (force=True)."
    )


def _alike(shown: NDArray[Any], ridden: NDArray[Any]) -> float:
    """Return the correlation of changes in the time that both cover; 0 if it may be chance."""
    (some,), (others,) = np.nonzero(shown), np.nonzero(ridden)
    begin, end = max(some.min(initial=len(shown)), others.min()), min(some.max(initial=0), others.max()) + 1
    if end - begin < _FEWEST_STEPS:
        return 0.0
    a, b = np.diff(shown[begin:end]), np.diff(ridden[begin:end])
    spread = float(a.std() * b.std())
    found = float(((a - a.mean()) * (b - b.mean())).mean()) / spread if spread > 0 else 0.0
    return found if found * np.sqrt(len(a)) >= _CHANCE else 0.0
