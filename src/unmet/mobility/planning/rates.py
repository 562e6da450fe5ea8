"""Rates of wanted rentals and returns for the period of a plan, as scenarios of how the day may turn out.

A scenario is a day for all stations together. Its rentals are those of a recent day of the same weekday without its
shocks (weather and season are in it), times the shocks of a recent day, times an error of the estimate that lasts for
some hours, times the dispersion of each bin. A forecast of the day replaces the recent days of the same weekday; its
errors contain the shocks to come, which are drawn for all stations together instead.

Returns are those of the same days in the run of returns, or the returns by hour of the week if there is no such run. In
each bin they follow the rentals of the whole city, and the error of their zone as far as both sides of a zone were
busier than expected on the same days. They are scaled so that as many vehicles come back as leave: riders who would now
be served return theirs too.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._memory import check_memory
from unmet._storage.sql import fetch_frame, fetch_one
from unmet._typing import Array, IntArray
from unmet.mobility.planning.period import Period

__all__ = ["StationRates", "scenario_rates"]

_LEAST = 1e-9
_ERROR_HOURS = 3.0
_NO_RETURNS = "The panel has no returns: build it again with `unmet panel`, from trips with their ends."


@dataclass(frozen=True)
class StationRates:
    """Rates per hour of several zones, in joint scenarios.

    Attributes
    ----------
    number : integer array of shape (zones,)
        Rows of the zones table.
    rentals, returns : arrays of shape (zones, scenarios, intervals)
        Riders per hour who want a vehicle, and who want to return one.
    hours : float
        Length of an interval.
    """

    number: IntArray
    rentals: Array
    returns: Array
    hours: float


def scenario_rates(
    connection: duckdb.DuckDBPyConnection,
    zones: pd.DataFrame,
    system: pd.DataFrame,
    bins: pd.DataFrame,
    period: Period,
    *,
    scenarios: int = 200,
    seed: int = 0,
    returned: str | None = None,
    shock_variance: float = 0.0,
) -> StationRates:
    """Draw scenarios of the rates of every estimated zone.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        A run opened by `unmet.report.source.open_run`: the views ``panel`` and ``demand``, and the numbers of zones and
        bins.
    zones, system, bins : pandas.DataFrame
        Zones of the run; rate of all zones together by start; bins.
    period : Period
        The period.
    scenarios, seed : int
        Number of scenarios, and the seed of their randomness.
    returned : str, optional
        View with the estimated returns, which has the columns of ``demand``; default: returns over time with a free
        dock, by hour of the week.
    shock_variance : float
        Variance of the shocks that zones share. Rates have these shocks, and the dispersion of a zone contains their
        variance, which is subtracted from it.
    """
    generator = np.random.default_rng([seed, 17])
    rates = _rows(connection, "demand", len(zones), period)
    estimated = np.isfinite(rates.mean[period.similar[0]]).all(axis=0)
    number = np.flatnonzero(estimated & (zones["status"] == "ok").to_numpy())
    if not number.size:
        raise InputError("No zone of this run has estimates for the period, so there is nothing to plan.")
    # Rates, returns, their errors, and a temporary copy of each.
    check_memory(6 * len(number) * scenarios * period.intervals, f"A plan of {scenarios:,} scenarios", "Use fewer.")
    picks = _Picks.draw(period, (len(number), scenarios, period.intervals), generator)
    together = _together(system, bins, np.concatenate(period.similar))
    shocks = _log_shocks(rates, number, period, shock_variance)
    # The errors of a forecast contain the shocks to come, which are drawn for all zones together.
    errors = _Errors.of(rates, number, period, together, shock_variance if period.forecast and shocks.any() else 0.0)
    rentals = _day(rates, number, period, picks, shocks) * errors.drawn(picks.common, picks.own)
    beside_shocks = np.maximum(_dispersion(zones, number) - shock_variance, 0.0)
    rentals *= _gamma(beside_shocks[:, None, None], rentals.shape, generator)
    rentals *= _open_share(connection, period)
    if returned is None:
        hourly = _returns_by_hour(connection, len(zones), period)[number]
        returns = np.broadcast_to(hourly[:, None, :], rentals.shape)
    else:
        rows = _rows(connection, returned, len(zones), period)
        returns = np.nan_to_num(_day(rows, number, period, picks, _log_shocks(rows, number, period, 0.0)))
    # What all zones share, returns get from the rentals of the city.
    returns = returns * errors.drawn(None, picks.own, _busyness(connection, returned))
    return StationRates(number, rentals, _following(rentals, returns), period.hours)


def _following(rentals: Array, returns: Array) -> Array:
    """Let returns follow the rentals of all zones in each bin; as many vehicles come back in a scenario as leave."""
    city = rentals.sum(axis=0)
    followed = returns * (city / np.maximum(city.mean(axis=0), _LEAST))
    return np.asarray(followed * (city.sum(axis=1) / np.maximum(followed.sum(axis=(0, 2)), _LEAST))[:, None])


@dataclass(frozen=True)
class _Picks:
    """Draws behind the scenarios: the days that give usual rates and shocks, and errors in common and of each zone."""

    usual: IntArray
    shocks: IntArray
    common: Array
    own: Array

    @classmethod
    def draw(cls, period: Period, shape: tuple[int, int, int], generator: np.random.Generator) -> _Picks:
        scenarios = shape[1]
        return cls(
            generator.integers(len(period.similar), size=scenarios),
            generator.integers(max(len(period.recent), 1), size=scenarios),
            _lasting(shape[1:], period.hours, generator),
            _lasting(shape, period.hours, generator),
        )


def _day(rates: _Rows, number: IntArray, period: Period, picks: _Picks, shocks: Array) -> Array:
    """Rates per hour of the days of each scenario, with their shocks: shape (zones, scenarios, intervals)."""
    usual = rates.mean if period.forecast else rates.usual
    drawn = np.stack([usual[rows][:, number] for rows in period.similar])[picks.usual].transpose(2, 0, 1)
    if len(shocks):
        drawn = drawn * np.exp(shocks[picks.shocks].transpose(2, 0, 1))
    return np.asarray(drawn / period.hours)


def _log_shocks(rates: _Rows, number: IntArray, period: Period, variance: float) -> Array:
    """Logarithms of the shocks of the recent days, of shape (days, intervals, zones).

    For a forecast, they have the variance of shocks and a mean factor of 1: shocks that were estimated from few riders
    are smaller than those that were, and the forecast has the level of the recent days already. A variance of 0 draws
    none.
    """
    if not period.recent:
        return np.zeros((0, 0, len(number)))
    shock = np.stack([rates.mean[rows] / np.maximum(rates.usual[rows], _LEAST) for rows in period.recent])
    logs = np.log(np.where(np.isfinite(shock) & (shock > 0), shock, 1.0)[:, :, number])
    if not period.forecast:
        return np.asarray(logs)
    logs = logs - logs.mean()
    spread = float(logs.var())
    logs = logs * np.sqrt(variance / spread) if spread > _LEAST else np.zeros_like(logs)
    return np.asarray(logs - np.log(np.exp(logs).mean()))


def _rows(connection: duckdb.DuckDBPyConnection, view: str, zones: int, period: Period) -> _Rows:
    """Read rate, its standard deviation and the rate without shocks, by bin and zone."""
    wanted = np.unique(np.concatenate([*period.similar, *period.recent]))
    connection.register("planned_bins", pd.DataFrame({"number": wanted}))
    columns = {str(row[0]) for row in connection.execute(f"DESCRIBE {view}").fetchall()}
    spread = "coalesce(d.rate_sd, 0)" if "rate_sd" in columns else "0.0"
    usual = "coalesce(d.usual_rate, d.rate_mean)" if "usual_rate" in columns else "d.rate_mean"
    frame = fetch_frame(
        connection,
        f"""SELECT z.number AS zone, b.number AS bin, d.rate_mean AS mean, {spread} AS spread, {usual} AS usual
        FROM {view} d JOIN zone_numbers z USING (zone) JOIN bin_numbers b USING (start)
        SEMI JOIN planned_bins p ON p.number = b.number""",
    )
    connection.unregister("planned_bins")
    place = np.searchsorted(wanted, frame["bin"].to_numpy())
    tables = []
    for name in ("mean", "spread", "usual"):
        values = np.full((len(wanted), zones), np.nan)
        values[place, frame["zone"].to_numpy()] = frame[name].to_numpy(dtype=float)
        tables.append(_ByBin(wanted, values))
    return _Rows(*tables)


@dataclass(frozen=True)
class _ByBin:
    """Values of some bins for all zones; indexed by the bins' numbers."""

    bins: IntArray
    values: Array

    def __getitem__(self, rows: IntArray) -> Array:
        return self.values[np.searchsorted(self.bins, rows)]


@dataclass(frozen=True)
class _Rows:
    """Rate, its standard deviation, and the rate without shocks, of the bins of a period."""

    mean: _ByBin
    spread: _ByBin
    usual: _ByBin


def _together(system: pd.DataFrame, bins: pd.DataFrame, rows: IntArray) -> Array:
    """Standard deviation of the rate of all zones together in some bins; NaN if not recorded."""
    if "rate_sd" not in system.columns:
        return np.full(len(rows), np.nan)
    return np.asarray(system["rate_sd"].reindex(bins["start"].iloc[rows]).to_numpy(dtype=float))


@dataclass(frozen=True)
class _Errors:
    """Standard deviation of the logarithm of each zone's rate, shape (zones, intervals), and its shared part.

    The correlation between zones is the one that gives the standard deviation of the rate of all zones together.
    """

    log_sd: Array
    correlation: float

    @classmethod
    def of(cls, rates: _Rows, number: IntArray, period: Period, together: Array, shocks: float) -> _Errors:
        """Read the errors of the rates; the variance of `shocks` is drawn elsewhere and left out."""
        means = np.stack([rates.mean[rows][:, number] for rows in period.similar])
        spreads = np.stack([rates.spread[rows][:, number] for rows in period.similar])
        # Below `_LEAST` a rate is nothing, whatever its error.
        relative = np.divide(spreads, means, out=np.zeros_like(means), where=means > _LEAST).mean(axis=0).T
        spread = spreads.reshape(-1, len(number))
        alone, joint = (spread**2).sum(axis=1), spread.sum(axis=1) ** 2
        room = joint - alone
        shared = np.divide(together**2 - alone, room, out=np.zeros_like(room), where=room > 0)
        shared = shared[np.isfinite(shared)]
        log_variance = np.maximum(np.log1p(relative**2) - shocks, 0.0)
        return cls(np.sqrt(log_variance), float(np.clip(shared.mean(), 0.0, 1.0)) if shared.size else 0.0)

    def drawn(self, common: Array | None, own: Array, share: float = 1.0) -> Array:
        """Log-normal errors of mean 1, shape (zones, scenarios, intervals), from noise in common and of each zone.

        `share` is the part of each standard deviation that is drawn.
        """
        log_sd = share * self.log_sd[:, None, :]
        if common is None:
            log_sd = log_sd * np.sqrt(1 - self.correlation)
            return np.asarray(np.exp(log_sd * own - 0.5 * log_sd**2))
        noise = np.sqrt(self.correlation) * common + np.sqrt(1 - self.correlation) * own
        return np.asarray(np.exp(log_sd * noise - 0.5 * log_sd**2))


def _busyness(connection: duckdb.DuckDBPyConnection, returned: str | None) -> float:
    """Correlation of the errors of rentals and of returns of a zone, from the days of the records; 0 to 1.

    On a day on which a zone is busier than expected, beyond the whole city, returns may be too. The correlation is that
    of what differences between recorded and expected counts have beyond the chance of single riders.
    """
    demand, panel = (
        {str(row[0]) for row in connection.execute(f"DESCRIBE {v}").fetchall()} for v in ("demand", "panel")
    )
    usual = "coalesce(usual_rate, rate_mean)" if "usual_rate" in demand else "rate_mean"
    if not {"observed", "exposure", "rate_mean"} <= demand:
        return 0.0
    time = "coalesce(dock_exposure, 1)" if "dock_exposure" in panel else "1"
    back = f"SELECT zone, start, observed AS y, exposure * {usual} AS my FROM {returned}"
    if returned is None:
        back = f"""SELECT zone::VARCHAR AS zone, start, returns AS y,
            {time} * sum(returns) OVER hours / greatest(sum({time}) OVER hours, {_LEAST}) AS my
        FROM panel WINDOW hours AS (PARTITION BY zone, isodow(start_local), hour(start_local))"""
    sql = f"""
        WITH days AS (
            SELECT d.zone, b.start_local::DATE AS day, sum(d.observed) AS x, sum(d.exposure * {usual}) AS mx,
                sum(y) AS y, sum(my) AS my
            FROM demand d JOIN ({back}) r USING (zone, start) JOIN bin_numbers b USING (start)
            WHERE d.observed IS NOT NULL AND y IS NOT NULL AND d.exposure > 0 AND my > 0 GROUP BY ALL),
        expected AS (
            SELECT x, y, mx * sum(x) OVER city / nullif(sum(mx) OVER city, 0) AS mx,
                my * sum(y) OVER city / nullif(sum(my) OVER city, 0) AS my
            FROM days WINDOW city AS (PARTITION BY day))
        SELECT sum((x - mx) * (y - my)), sum((x - mx) ** 2 - mx), sum((y - my) ** 2 - my) FROM expected"""
    both, of_rentals, of_returns = (value or 0.0 for value in fetch_one(connection, sql))
    if min(of_rentals, of_returns) <= 0:
        return 0.0
    return float(np.clip(both / np.sqrt(of_rentals * of_returns), 0.0, 1.0))


def _lasting(shape: tuple[int, ...], hours: float, generator: np.random.Generator) -> Array:
    """Standard normal numbers whose correlation along the last axis falls by e in `_ERROR_HOURS`."""
    keeps = np.exp(-hours / _ERROR_HOURS)
    noise = generator.standard_normal(shape)
    for k in range(1, shape[-1]):
        noise[..., k] = keeps * noise[..., k - 1] + np.sqrt(1 - keeps**2) * noise[..., k]
    return noise


def _dispersion(zones: pd.DataFrame, number: IntArray) -> Array:
    if "dispersion" not in zones.columns:
        return np.zeros(len(number))
    return np.nan_to_num(zones["dispersion"].to_numpy(dtype=float)[number])


def _gamma(variance: Array, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """Gamma factors of mean 1; exactly 1 where the variance is 0."""
    some = np.maximum(variance, 1e-6)
    drawn = generator.gamma(np.broadcast_to(1.0 / some, shape)) * some
    return np.where(variance > 1e-6, drawn, 1.0)


def _open_share(connection: duckdb.DuckDBPyConnection, period: Period) -> Array:
    """Largest share of each interval in which a zone was ever open at that hour of the week; 1 if seen only once.

    Rates of hours in which the whole system is always closed (``--hours``) were never seen, and nobody comes then.
    """
    columns = {str(row[0]) for row in connection.execute("DESCRIBE panel").fetchall()}
    share = np.ones(168)
    if {"closed_minutes", "unknown_minutes"} <= columns:
        frame = fetch_frame(
            connection,
            """SELECT ((isodow(start_local) - 1) * 24 + hour(start_local))::INTEGER AS slot,
                max(1 - closed_minutes / (minutes - unknown_minutes))::DOUBLE AS share
            FROM panel WHERE unknown_minutes < minutes GROUP BY ALL HAVING count(DISTINCT start) > 1""",
        )
        share[frame["slot"]] = frame["share"]
    return np.asarray(share[period.slots])


def _returns_by_hour(connection: duckdb.DuckDBPyConnection, zones: int, period: Period) -> Array:
    """Returns per hour with a free dock, by hour of the week, of shape (zones, intervals).

    An hour that was little seen is shrunk to the city's profile at the zone's level, as if that had been seen once.
    """
    columns = {str(row[0]) for row in connection.execute("DESCRIBE panel").fetchall()}
    if "returns" not in columns:
        raise InputError(_NO_RETURNS)
    time = "coalesce(dock_exposure, 1) * minutes / 60" if "dock_exposure" in columns else "minutes / 60"
    frame = fetch_frame(
        connection,
        f"""SELECT z.number AS zone, ((isodow(start_local) - 1) * 24 + hour(start_local))::INTEGER AS slot,
            sum(returns)::DOUBLE AS count, sum({time})::DOUBLE AS hours
        FROM (SELECT * REPLACE (zone::VARCHAR AS zone) FROM panel) JOIN zone_numbers z USING (zone)
        WHERE returns IS NOT NULL GROUP BY ALL""",
    )
    if frame.empty:
        raise InputError(_NO_RETURNS)
    tables = np.zeros((2, zones, 168))
    tables[:, frame["zone"], frame["slot"]] = frame[["count", "hours"]].to_numpy(dtype=float).T
    count, hours = tables
    profile = count.sum(axis=0) / np.maximum(hours.sum(axis=0), _LEAST)
    level = count.sum(axis=1) / np.maximum((hours * profile).sum(axis=1), _LEAST)
    prior = np.maximum(level[:, None] * profile, 1e-3)
    return np.asarray(((count + prior) / (hours + 1.0))[:, period.slots])
