"""The status feed of the simulated operator: what it shows of the city, and what it hides."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unmet._typing import BoolArray, IntArray
from unmet.simulate.demand import Layout, Stream, stream
from unmet.simulate.polls import Looks, draw_looks
from unmet.simulate.settings import Settings
from unmet.simulate.states import States, bounds, everywhere, states
from unmet.simulate.troubles import Shown, Trouble

__all__ = ["status_log"]

_REPEAT = 7200.0  # a station repeats an unchanged report about every two hours; 13 % of real records are repeats


def status_log(
    settings: Settings, city: Layout, stock: IntArray, troubles: list[Trouble], epoch: int, horizon: int
) -> pd.DataFrame:
    """The records of station_status, as the collector of ``settings.polls`` writes them.

    A change log has a row where a report changed, some repeats, nothing in silences, and a report of how things
    stand at their end. `Shown` says what the feed shows of a station in trouble.
    """
    rng = stream(settings, Stream.REPEATS)
    repeats = rng.poisson(horizon / _REPEAT, settings.stations)
    looks = draw_looks(settings, horizon)
    extra = (
        everywhere(looks.times, settings.stations),
        bounds(troubles, settings.stations),
        (np.repeat(np.arange(settings.stations), repeats), rng.integers(0, horizon, repeats.sum())),
    )
    s = states(stock, horizon, *(np.concatenate(parts) for parts in zip(*extra, strict=True)))
    shown = {kind: np.zeros(len(s.time), dtype=bool) for kind in Shown}
    for trouble in troubles:
        shown[trouble.does.shown][s.rows(trouble)] = True
    seen = ~shown[Shown.NOTHING]
    if len(looks.times):
        seen &= (looks.minutes[looks.stretch(s.time)] == 0) | np.isin(s.time, looks.times)
    table = _reports(city, s, shown, epoch)[seen]
    if len(looks.times):
        table = table[_written(settings, looks, s.time[seen], table)]
    return table.reset_index(drop=True)


def _reports(city: Layout, s: States, shown: dict[Shown, BoolArray], epoch: int) -> pd.DataFrame:
    """A report of each state. Bikes beside the docks (a valet's) are in no report."""
    capacity, empty = city.capacity[s.station], shown[Shown.EMPTY]
    in_docks = np.where(empty, 0, np.maximum(s.listed - city.store[s.station], 0))
    disabled = np.where(empty, 0, np.minimum(s.disabled, capacity - in_docks))
    docks = capacity - in_docks - disabled
    dead = shown[Shown.ALL_DISABLED]
    locked = shown[Shown.LOCKED]
    available = np.where(locked | dead | shown[Shown.NO_BIKES], 0, in_docks)
    return pd.DataFrame(
        {
            "station_ix": s.station.astype(np.int16),
            "last_reported": (s.time + epoch).astype(np.int32),
            "num_bikes_available": available.astype(np.int16),
            "num_ebikes_available": np.int16(0),
            "num_docks_available": np.where(dead, 0, docks).astype(np.int16),
            "num_bikes_disabled": (in_docks + disabled - available).astype(np.int16),
            "num_docks_disabled": np.where(dead, docks, 0).astype(np.int16),
            "is_installed": True,
            "is_renting": ~locked,
            "is_returning": True,
        }
    )


def _written(settings: Settings, looks: Looks, times: IntArray, table: pd.DataFrame) -> BoolArray:
    """Which reports a collector writes that keeps only changes: those that differ, and some repeats."""
    stretch = looks.stretch(times)
    content = table.drop(columns="last_reported").to_numpy(dtype=np.int16)
    new = np.append(True, (content[1:] != content[:-1]).any(axis=1))
    chance = stream(settings, Stream.POLL_REPEATS).random(len(times))
    repeated = chance < 60.0 * looks.minutes[stretch] / _REPEAT
    return np.asarray(~looks.changes[stretch] | new | repeated)
