"""Series of each zone and of all zones together: bins, days and hours of the week, read a few zones at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from unmet._storage.sql import reading
from unmet._typing import Array
from unmet.mobility.clock.bins import HOURS_OF_WEEK, hour_of_week
from unmet.mobility.clock.periods import LONGEST_BIN, PARTS
from unmet.report.source import RunSource

__all__ = ["DRAWN", "WEEKLY", "RateErrors", "SystemSeries", "ZoneSeries", "day_numbers", "each_zone"]

DRAWN = ("observed", "rate", "low", "high", "lost", "stockout", "off")
"""Per bin and per day: observed trips, the rate and its 90% limits, lost trips, and the shares of time out of stock
and closed or unknown."""

WEEKLY = ("observed", "demand", "lost", "low", "high", "stockout", "open", "bins", "extrapolated")
"""Per hour of the week, summed over the period: trips, demand, lost trips and their 90% limits, minutes out of stock
and minutes open, bins, and extrapolated bins."""

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
        The same per local day, summed; shares are shares of the day. The error of a zone's rate is taken to last all
        day; errors that zones share are summed jointly.
    week : dict
        `WEEKLY` → values of each hour of the week.
    parts : dict
        Part of the day → `days` in that part; only of sums of zones, and not of long bins.
    """

    bins: dict[str, Array]
    days: dict[str, Array]
    week: dict[str, Array]
    parts: dict[str, dict[str, Array]] = field(default_factory=dict)


def day_numbers(bins: pd.DataFrame) -> NDArray[np.int64]:
    """Return the local day of each bin, in days since 1970."""
    return bins["start_local"].to_numpy().astype("datetime64[D]").astype(np.int64)


def _slots(bins: pd.DataFrame) -> NDArray[np.int64]:
    return hour_of_week(bins["start_local"])


def _summing(groups: NDArray[np.int64], count: int) -> csr_matrix:
    """Return a matrix that sums rows by group. Groups may be unordered: some clocks are put back at midnight."""
    rows = np.arange(len(groups))
    return csr_matrix((np.ones(len(groups)), (rows, groups)), shape=(len(groups), count))


def _days_of(bins: pd.DataFrame, part: str | None = None) -> csr_matrix:
    """Return a matrix that sums bins by local day; with a part of the day, only those that start in it."""
    days, of_bin = np.unique(day_numbers(bins), return_inverse=True)
    summing = _summing(of_bin, len(days))
    if part is None:
        return summing
    counted = bins["start_local"].dt.hour.isin(PARTS[part]).to_numpy(dtype=float)
    return csr_matrix(summing.multiply(counted[:, None]))


def _week_limits(source: RunSource, level: str) -> dict[str, dict[str, Array]]:
    """Return the 90% limits of lost trips by hour of the week, by zone; those of the system have the key ''."""
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
_FETCHED = ("observed", "demand", "rate", "low", "high", "lost", "stockout", "off", "extrapolated")


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
            {column("demand_mean")} AS demand, {column("lost_mean")} AS lost, p.stockout, p.off,
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
        **{name: _summed(np.where(counted, own[name], np.nan), by_slot) for name in ("demand", "lost")},
        **limits,
        "stockout": _summed(own["stockout"] * minutes, by_slot),
        "open": _summed((1 - own["off"]) * minutes, by_slot),
        "bins": by_slot.T @ counted.astype(float),
        "extrapolated": by_slot.T @ (np.nan_to_num(own["extrapolated"]) * counted),
    }
    return ZoneSeries({name: own[name] for name in DRAWN}, _by_day(own, source, by_day), week)


def _by_day(own: dict[str, Array], source: RunSource, by_day: csr_matrix) -> dict[str, Array]:
    minutes = source.bins["minutes"].to_numpy(dtype=float)
    summed = [name for name in ("observed", "rate", "low", "high", "lost") if name in own]
    days: dict[str, Array] = {name: _summed(own[name], by_day) for name in summed}
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
    """The sum of all zones, or of those of an area, which grows by `add`.

    The limits of its rate come from ``system.parquet``, which includes the errors that zones share.
    """

    def __init__(self, source: RunSource, area: str | None = None) -> None:
        self.source, self.area = source, area
        self.sums = {name: np.zeros(len(source.bins)) for name in (*DRAWN, "seen", "known", "estimated")}
        self.week = {name: np.zeros(HOURS_OF_WEEK) for name in WEEKLY}

    def add(self, series: ZoneSeries) -> None:
        """Add one zone."""
        sums, bins = self.sums, series.bins
        for name in ("observed", "rate", "lost", "stockout", "off"):
            sums[name] += np.nan_to_num(bins[name])
        for count, name in (("seen", "observed"), ("known", "stockout"), ("estimated", "lost")):
            sums[count] += np.isfinite(bins[name])
        for name in ("observed", "demand", "lost", "stockout", "open", "extrapolated"):
            self.week[name] += np.nan_to_num(series.week[name])
        self.week["bins"] = np.maximum(self.week["bins"], series.week["bins"])

    def series(self) -> ZoneSeries:
        """Return the series, NaN where no zone has a value. Shares are means over zones."""
        sums, source = self.sums, self.source

        def where(count: str, values: Array) -> Array:
            return np.where(sums[count] > 0, values, np.nan)

        zones = np.maximum(sums["known"], 1)
        own = {
            "observed": where("seen", sums["observed"]),
            "rate": where("estimated", sums["rate"]),
            "lost": where("estimated", sums["lost"]),
            "stockout": where("known", sums["stockout"] / zones),
            "off": where("known", sums["off"] / zones),
        }
        rates = source.system if self.area is None else source.area_rates.get(self.area, source.system[:0])
        errors = RateErrors.of(rates.reindex(source.bins["start"]))

        def by_day(part: str | None) -> dict[str, Array]:
            days = _days_of(source.bins, part)
            return {**_by_day(own, source, days), **_band(_summed(own["rate"], days), errors.summed(days))}

        parts = {part: by_day(part) for part in PARTS} if source.minutes <= LONGEST_BIN else {}
        bins = {**own, **_band(own["rate"], errors.sd())}
        return ZoneSeries(bins, by_day(None), {**self.week, **self._week_limits()}, parts)

    def _week_limits(self) -> dict[str, Array]:
        if self.area is None:
            return _week_limits(self.source, "hour_of_week").get("", _NO_LIMITS)
        return _week_limits(self.source, "area_hour_of_week").get(self.area, _NO_LIMITS)


def _band(rate: Array, sd: Array) -> dict[str, Array]:
    half = _NORMAL_Q95 * sd
    return {"low": np.maximum(rate - half, 0.0), "high": rate + half}


@dataclass(frozen=True)
class RateErrors:
    """Errors of the rate of a sum of zones in n bins.

    Attributes
    ----------
    shared : array of shape (n, directions)
        Change of the rate per standard deviation of each error that zones and bins share.
    own : array of shape (n,)
        Standard deviation of the rest.
    """

    shared: Array
    own: Array

    @classmethod
    def of(cls, rates: pd.DataFrame) -> RateErrors:
        """Read them from rows of ``system.parquet``; NaN where they are unknown."""
        columns = [name for name in rates.columns if name.startswith("rate_shared_")]
        shared = rates[columns].to_numpy(dtype=float)
        sd = rates["rate_sd"].to_numpy(dtype=float) if "rate_sd" in rates else np.full(len(rates), np.nan)
        return cls(shared, np.sqrt(np.maximum(sd**2 - (shared**2).sum(axis=1), 0.0)))

    def sd(self) -> Array:
        """Standard deviation of each bin."""
        return np.asarray(np.sqrt(self.own**2 + (self.shared**2).sum(axis=1)))

    def summed(self, groups: csr_matrix) -> Array:
        """Standard deviation of the sum of each group of bins, within which the rest is taken to be the same."""
        known = np.isfinite(self.own)
        shared = groups.T @ np.where(known[:, None], self.shared, 0.0)
        return np.asarray(np.sqrt(_summed(self.own, groups) ** 2 + (shared**2).sum(axis=1)))
