"""When a collector looks at the feed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unmet._typing import Array, BoolArray, IntArray
from unmet.simulate.demand import Stream, stream
from unmet.simulate.settings import Settings

__all__ = ["Looks", "draw_looks"]

_EVENING = 18  # the local hour from which a collector may slow down, until midnight
_DELAY = 20.0  # seconds, the longest time that a look comes late


@dataclass(frozen=True)
class Looks:
    """The moments at which the collector looks, and what it writes.

    The period is cut into stretches of one cadence each. A stretch of 0 minutes has no looks: every change is
    written at its second.
    """

    times: IntArray
    starts: IntArray  # of the stretches
    minutes: Array  # between two looks, by stretch
    changes: BoolArray  # only changes are written, by stretch

    def stretch(self, times: IntArray) -> IntArray:
        """The stretch that each moment is in."""
        return np.searchsorted(self.starts, times, side="right") - 1


def draw_looks(settings: Settings, horizon: int) -> Looks:
    """Cut the period into equal parts, one for each cadence of ``settings.polls``, and those by evening."""
    plan = settings.cadences()
    part = (np.arange(0, horizon, 3600) * len(plan) // horizon).astype(np.intp)
    minutes = np.array([cadence for cadence, _ in plan])[part]
    changes = np.array([only for _, only in plan])[part]
    if settings.evening_polls:
        evening = settings.hours().hour.to_numpy() >= _EVENING
        changes |= evening & (minutes == 0)
        minutes = np.where(evening, settings.evening_polls, minutes)
    new = np.append(True, (np.diff(minutes) != 0) | (np.diff(changes) != 0))
    starts = 3600 * np.flatnonzero(new)
    rng = stream(settings, Stream.POLLS)
    times = []
    for start, end, every in zip(starts, np.append(starts[1:], horizon), 60 * minutes[new], strict=True):
        if every:
            look = np.arange(start, end, every)
            late = np.minimum(rng.random(len(look)) * min(_DELAY, every / 3), end - 1 - look)
            times.append((look + late).astype(np.intp))
    found = np.concatenate([*times, np.empty(0, dtype=np.intp)])
    return Looks(found, starts, minutes[new], changes[new])
