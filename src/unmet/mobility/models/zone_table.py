"""The zones of a city as arrays over common bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd

from unmet._typing import Array, IntArray
from unmet.mobility.zones.distance import metres_between

__all__ = ["ZoneRecord", "ZoneTable", "table_of"]


@dataclass(frozen=True)
class ZoneTable:
    """The zones of a city as arrays over common bins, with what each was estimated to be by itself.

    Attributes
    ----------
    zones : tuple of str
        Names.
    start : DatetimeIndex
        Of the bins, UTC, evenly spaced but for changes of the clock.
    observed, exposure, stockout : arrays of shape (zones, bins)
        As of a zone's data; NaN, 0 and 0 where a zone has no row.
    log_rate, log_rate_var : arrays of shape (zones, bins)
        Of the rate without shocks; NaN where it is not known.
    apart : array of shape (zones, bins)
        Log-rate by the zone's other weeks alone; NaN where it is not known.
    apart_error : array of shape (zones, 2)
        Variance of its error, and the error's correlation from one bin to the next.
    metres : array of shape (zones, zones)
        Distances; NaN where not known.
    hours : float
        Length of a bin.
    slot : integer array of shape (bins,)
        Hour of the week, by the wall clock.
    early : array of shape (zones, bins)
        Pickups in the first half of a bin; NaN where they are not known.
    """

    zones: tuple[str, ...]
    start: pd.DatetimeIndex
    observed: Array
    exposure: Array
    stockout: Array
    log_rate: Array
    log_rate_var: Array
    apart: Array
    apart_error: Array
    metres: Array
    hours: float
    slot: IntArray
    early: Array


class ZoneRecord(Protocol):
    """The part of a zone's data that `table_of` needs."""

    @property
    def zone(self) -> str:
        """Its name."""

    @property
    def start(self) -> pd.DatetimeIndex:
        """Of its bins, UTC."""

    @property
    def minutes(self) -> float:
        """Length of a bin."""

    @property
    def observed(self) -> Array:
        """Pickups; NaN where they are not known."""

    @property
    def exposure(self) -> Array:
        """Share of the bin with something to rent."""

    @property
    def stockout(self) -> Array:
        """Share of the bin with nothing to rent though open."""

    @property
    def slot(self) -> IntArray:
        """Hour of the week."""

    @property
    def early(self) -> Array:
        """Pickups in the first half of the bin; NaN where they are not known."""


def table_of(
    zones: Sequence[ZoneRecord],
    rates: Mapping[str, tuple[Array, Array, Array, Array]],
    places: Mapping[str, tuple[float, float]],
) -> ZoneTable:
    """Arrange zones over common bins.

    Parameters
    ----------
    zones : sequence of ZoneData
        The zones.
    rates : mapping
        Zone → mean and variance of its log-rate; its mean by the other weeks alone, and the error of that.
    places : mapping
        Zone → latitude and longitude; zones that are missing share the city's shocks alone.
    """
    unit = zones[0].start.unit
    moments = np.unique(np.concatenate([data.start.as_unit(unit).asi8 for data in zones]))
    start = pd.DatetimeIndex(moments.view(f"M8[{unit}]")).tz_localize("UTC")
    shape = (len(zones), len(start))
    observed, early, log_rate, apart = (np.full(shape, np.nan) for _ in range(4))
    exposure, stockout, var = (np.zeros(shape) for _ in range(3))
    error = np.zeros((len(zones), 2))
    slot = np.zeros(len(start), dtype=np.intp)
    for i, data in enumerate(zones):
        at = start.get_indexer(data.start)
        slot[at] = data.slot
        observed[i, at], exposure[i, at], stockout[i, at] = data.observed, data.exposure, data.stockout
        early[i, at] = data.early
        log_rate[i, at], var[i, at], apart[i, at], error[i] = rates[data.zone]
    lat, lon = np.array([places.get(data.zone, (np.nan, np.nan)) for data in zones], dtype=float).T
    names = tuple(data.zone for data in zones)
    hours = zones[0].minutes / 60
    metres = metres_between(lat[:, None], lon[:, None], lat, lon)
    rate = (log_rate, var, apart, error)
    return ZoneTable(names, start, observed, exposure, stockout, *rate, metres, hours, slot, early)
