"""What the operator's status feed shows of the city, and what it hides."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unmet._typing import IntArray
from unmet.simulate.demand import Layout, Stream, stream
from unmet.simulate.operation import Outage
from unmet.simulate.settings import Settings
from unmet.simulate.states import bounds, everywhere, states

__all__ = ["draw_outages", "status_log"]

_DAY = 86_400
_REPEAT = 7200.0  # a station repeats an unchanged report about every two hours; 13 % of real records are repeats


def draw_outages(settings: Settings, horizon: int) -> list[Outage]:
    """Closures, dead stations (silent and zero in turn) and feed gaps, in order of time."""
    outages = []
    for kind, name, count, shortest, longest in (
        ("closure", Stream.CLOSURES, settings.closures, 8, 36),
        ("feed gap", Stream.FEED_GAPS, settings.feed_gaps, 2, 24),
    ):
        for i, (when, length) in enumerate(stream(settings, name).random((count, 2)).tolist()):
            # Each has a stretch of the period to itself (four days or more), so that no two meet.
            stretch = horizon / count
            start = int((i + 0.05 + 0.4 * when) * stretch)
            lasts = 3600 * (shortest + length * (longest - shortest))
            outages.append(Outage(kind, None, start, start + int(min(lasts, 0.5 * stretch))))
    rng = stream(settings, Stream.DEAD_STATIONS)
    victims = rng.permutation(settings.stations)[: settings.dead_stations].tolist()
    for i, s in enumerate(victims):
        lasts = min(_DAY * rng.uniform(1, 7), horizon / 4)
        dies = rng.uniform(0.05, 0.7) * horizon
        outages.append(Outage(("silent station", "zero station")[i % 2], s, int(dies), int(dies + lasts)))
    return sorted(outages, key=lambda o: (o.start, o.kind, -1 if o.station is None else o.station))


def status_log(
    settings: Settings, city: Layout, stock: IntArray, outages: list[Outage], epoch: int, horizon: int
) -> pd.DataFrame:
    """The change log of station_status: a row where a report changed, some repeats, nothing in silences.

    A closure locks the bikes (available ones turn disabled, ``is_renting`` is false, returns go on); a zero
    station shows every bike and dock disabled but claims to rent; a silent one and a gap write nothing, and
    end with a report of how things stand.
    """
    rng = stream(settings, Stream.REPEATS)
    repeats = rng.poisson(horizon / _REPEAT, settings.stations)
    at, when = everywhere(bounds(outages), settings.stations)
    s = states(
        stock,
        horizon,
        np.concatenate([at, np.repeat(np.arange(settings.stations), repeats)]),
        np.concatenate([when, rng.integers(0, horizon, repeats.sum())]),
    )
    heard = np.ones(len(s.time), dtype=bool)
    locked, dead = ~heard, ~heard
    for outage in outages:
        if outage.kind == "closure":
            locked = locked | s.within(outage)
        elif outage.kind == "zero station":
            dead = dead | s.within(outage)
        else:
            heard = heard & ~s.within(outage)
    available = np.where(locked | dead, 0, s.listed)
    docks = city.capacity[s.station] - s.listed - s.disabled
    table = pd.DataFrame(
        {
            "station_ix": s.station.astype(np.int16),
            "last_reported": (s.time + epoch).astype(np.int32),
            "num_bikes_available": available.astype(np.int16),
            "num_ebikes_available": np.int16(0),
            "num_docks_available": np.where(dead, 0, docks).astype(np.int16),
            "num_bikes_disabled": (s.listed + s.disabled - available).astype(np.int16),
            "num_docks_disabled": np.where(dead, docks, 0).astype(np.int16),
            "is_installed": True,
            "is_renting": ~locked,
            "is_returning": True,
        }
    )
    return table[heard].reset_index(drop=True)
