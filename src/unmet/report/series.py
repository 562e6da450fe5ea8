"""Series of each zone and of all zones together: bins, days and hours of the week, read a few zones at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from unmet._storage.sql import reading
from unmet._typing import Array
from unmet.mobility.clock.bins import HOURS_OF_WEEK, hour_of_week
from unmet.report.source import RunSource

__all__ = ["DRAWN", "WEEKLY", "SystemSeries", "ZoneSeries", "day_numbers", "each_zone"]

DRAWN = ("observed", "rate", "low", "high", "lost", "stockout", "off")
"""Per bin and per day: observed trips, the rate and its 90 % limits, lost trips, and the shares of time out of stock
and closed or unknown."""

WEEKLY = ("observed", "lost", "low", "high", "stockout", "open", "bins", "extrapolated")
"""Per hour of the week, summed over the period: trips, lost trips and their 90 % limits, minutes out of stock and
minutes open, bins, and extrapolated bins."""

_ROWS_AT_ONCE = 1_000_000
_NORMAL_Q95 = 1.6448536269514722


@dataclass(frozen=True)
class ZoneSeries:
    """Arrays of one zone, or of the whole system.

    Attributes
    ----------
    bins : dict
        `DRAWN` → values of each bin of the run; NaN if unknown.
    days : dict
        The same per local day, summed; shares are shares of the day. The limits of a day's rate are the sums of its
        bins' limits, as if the errors of the bins were perfectly correlated.
    week : dict
        `WEEKLY` → values of each hour of the week.
    """

    bins: dict[str, Array]
    days: dict[str, Array]
    week: dict[str, Array]


def day_numbers(bins: pd.DataFrame) -> NDArray[np.int64]:
    """Return the local day of each bin, in days since 1970."""
    return bins["start_local"].to_numpy().astype("datetime64[D]").astype(np.int64)


def _slots(bins: pd.DataFrame) -> NDArray[np.int64]:
    return hour_of_week(bins["start_local"])


def _summing(groups: NDArray[np.int64], count: int) -> csr_matrix:
    """Return a matrix that sums rows by group. Groups may be unordered: some clocks are put back at midnight."""
    rows = np.arange(len(groups))
    return csr_matrix((np.ones(len(groups)), (rows, groups)), shape=(len(groups), count))


def _days_of(bins: pd.DataFrame) -> csr_matrix:
    """Return a matrix that sums bins by local day."""
    days, of_bin = np.unique(day_numbers(bins), return_inverse=True)
    return _summing(of_bin, len(days))


def _week_limits(source: RunSource, level: str) -> dict[str, dict[str, Array]]:
    """Return the 90 % limits of lost trips by hour of the week, by zone; those of the system have the key ''."""
    totals = source.totals
    chosen = totals[(totals["level"] == level) & (totals["quantity"] == "lost")]
    limits: dict[str, dict[str, Array]] = {}
    for zone, rows in chosen.groupby(chosen["zone"].fillna(""), sort=False):
        slot = rows["hour_of_week"].to_numpy(dtype=int)
        low, high = np.full(HOURS_OF_WEEK, np.nan), np.full(HOURS_OF_WEEK, np.nan)
        low[slot], high[slot] = rows["q05"].to_numpy(dtype=float), rows["q95"].to_numpy(dtype=float)
        limits[str(zone)] = {"low": low, "high": high}
    return limits


_NO_LIMITS = {"low": np.full(HOURS_OF_WEEK, np.nan), "high": np.full(HOURS_OF_WEEK, np.nan)}
_FETCHED = ("observed", "rate", "low", "high", "lost", "stockout", "off", "extrapolated")


def each_zone(source: RunSource) -> Iterator[tuple[int, ZoneSeries]]:
    """Yield the number and the series of each zone."""
    limits = _week_limits(source, "zone_hour_of_week")
    per_chunk = max(1, _ROWS_AT_ONCE // max(len(source.bins), 1))
    by_day, by_slot = _days_of(source.bins), _summing(_slots(source.bins), HOURS_OF_WEEK)
    names = source.zones["zone"].tolist()
    for first in range(0, len(names), per_chunk):
        block = _fetch(source, first, min(first + per_chunk, len(names)))
        for i in range(len(next(iter(block.values())))):
            own = {name: values[i] for name, values in block.items()}
            weekly = limits.get(names[first + i], _NO_LIMITS)
            yield first + i, _arrange(own, source, by_day, by_slot, weekly)


def _fetch(source: RunSource, first: int, last: int) -> dict[str, Array]:
    """Read the columns of some zones as (zones, bins); NaN if there is no row."""

    def column(name: str) -> str:
        return f"d.{name}" if name in source.demand_columns else "NULL::DOUBLE"

    flagged = "coalesce(d.flags LIKE '%extrapolation%', false)" if "flags" in source.demand_columns else "false"
    sql = f"""
        WITH chosen AS (SELECT zone, number FROM zone_numbers WHERE number >= $1 AND number < $2),
             p AS (SELECT s.number AS z, start, observed, stockout_minutes / minutes AS stockout,
                       (closed_minutes + unknown_minutes) / minutes AS off
                   FROM panel JOIN chosen s ON s.zone = panel.zone::VARCHAR),
             d AS (SELECT s.number AS z, demand.* FROM demand JOIN chosen s USING (zone))
        SELECT coalesce(p.z, d.z)::INTEGER AS z, b.number::INTEGER AS b, p.observed,
            {column("rate_mean")} AS rate, {column("rate_q05")} AS low, {column("rate_q95")} AS high,
            {column("lost_mean")} AS lost, p.stockout, p.off,
            {flagged}::DOUBLE AS extrapolated
        FROM p FULL JOIN d ON p.z = d.z AND p.start = d.start
        JOIN bin_numbers b ON b.start = coalesce(p.start, d.start)"""
    with reading("the run's tables"):
        rows = source.connection.execute(sql, [first, last]).fetchnumpy()
    where = np.asarray(rows["z"]) - first, np.asarray(rows["b"])
    block = {}
    for name in _FETCHED:
        values: Array = np.ma.filled(np.ma.asarray(rows[name], dtype=float), np.nan)
        block[name] = np.full((last - first, len(source.bins)), np.nan)
        block[name][where] = values
    return block


def _arrange(
    own: dict[str, Array], source: RunSource, by_day: csr_matrix, by_slot: csr_matrix, limits: dict[str, Array]
) -> ZoneSeries:
    minutes = source.bins["minutes"].to_numpy(dtype=float)
    counted = np.isfinite(own["observed"])
    week = {
        "observed": _summed(own["observed"], by_slot),
        "lost": _summed(np.where(counted, own["lost"], np.nan), by_slot),
        **limits,
        "stockout": _summed(own["stockout"] * minutes, by_slot),
        "open": _summed((1 - own["off"]) * minutes, by_slot),
        "bins": by_slot.T @ counted.astype(float),
        "extrapolated": by_slot.T @ (np.nan_to_num(own["extrapolated"]) * counted),
    }
    return ZoneSeries({name: own[name] for name in DRAWN}, _by_day(own, source, by_day), week)


def _by_day(own: dict[str, Array], source: RunSource, by_day: csr_matrix) -> dict[str, Array]:
    minutes = source.bins["minutes"].to_numpy(dtype=float)
    days = {name: _summed(own[name], by_day) for name in ("observed", "rate", "low", "high", "lost")}
    for name in ("stockout", "off"):
        known = np.where(np.isfinite(own[name]), minutes, np.nan)
        days[name] = _summed(own[name] * minutes, by_day) / _summed(known, by_day)
    return days


def _summed(values: Array, groups: csr_matrix) -> Array:
    """Sum the finite values by group; NaN if a group has none."""
    known = np.isfinite(values)
    sums = np.asarray(groups.T @ np.where(known, values, 0.0))
    return np.where(groups.T @ known.astype(float) > 0, sums, np.nan)


class SystemSeries:
    """The sum of some zones, which grows by `add`.

    The limits of the rate of all zones come from ``system.parquet``, which includes the errors that zones share. Those
    of a part of the zones are unknown.
    """

    def __init__(self, source: RunSource, *, whole: bool = True) -> None:
        self.source, self.whole = source, whole
        self.sums = {name: np.zeros(len(source.bins)) for name in (*DRAWN, "seen", "known", "estimated")}
        self.week = {name: np.zeros(HOURS_OF_WEEK) for name in WEEKLY}

    def add(self, series: ZoneSeries) -> None:
        """Add one zone."""
        sums, bins = self.sums, series.bins
        for name in ("observed", "rate", "lost", "stockout", "off"):
            sums[name] += np.nan_to_num(bins[name])
        for count, name in (("seen", "observed"), ("known", "stockout"), ("estimated", "lost")):
            sums[count] += np.isfinite(bins[name])
        for name in ("observed", "lost", "stockout", "open", "extrapolated"):
            self.week[name] += np.nan_to_num(series.week[name])
        self.week["bins"] = np.maximum(self.week["bins"], series.week["bins"])

    def series(self) -> ZoneSeries:
        """Return the series, NaN where no zone has a value. Shares are means over zones."""
        sums = self.sums

        def where(count: str, values: Array) -> Array:
            return np.where(sums[count] > 0, values, np.nan)

        sd = self.source.system.get("rate_sd", pd.Series(dtype=float)).reindex(self.source.bins["start"])
        half = _NORMAL_Q95 * np.nan_to_num(sd.to_numpy(dtype=float)) * (1.0 if self.whole else np.nan)
        zones = np.maximum(sums["known"], 1)
        own = {
            "observed": where("seen", sums["observed"]),
            "rate": where("estimated", sums["rate"]),
            "low": where("estimated", np.maximum(sums["rate"] - half, 0.0)),
            "high": where("estimated", sums["rate"] + half),
            "lost": where("estimated", sums["lost"]),
            "stockout": where("known", sums["stockout"] / zones),
            "off": where("known", sums["off"] / zones),
        }
        limits = _week_limits(self.source, "hour_of_week").get("", _NO_LIMITS) if self.whole else _NO_LIMITS
        days = _by_day(own, self.source, _days_of(self.source.bins))
        return ZoneSeries(own, days, {**self.week, **limits})
