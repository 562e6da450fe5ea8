"""Rates of wanted rentals and returns for the period of a plan, as scenarios of how the day may turn out.

A scenario is a day for all stations together. Its rentals are those of a recent day of the same weekday without its
shocks (weather and season are in it), times the shocks of a recent day, times the error of the estimate, which is the
same for the whole day, times the dispersion of each bin. Its returns come from the run of returns in the same way, or
from the returns by hour of the week if there is no such run. They are scaled so that as many vehicles come back as
leave: riders who would now be served return theirs too.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._storage.sql import fetch_frame
from unmet._typing import Array, IntArray
from unmet.mobility.planning.period import Period

__all__ = ["StationRates", "scenario_rates"]

_LEAST = 1e-9


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
    """
    generator = np.random.default_rng([seed, 17])
    picks = _Picks.draw(period, scenarios, generator)
    rates = _rows(connection, "demand", len(zones), period)
    estimated = np.isfinite(rates.mean[period.similar[0]]).all(axis=0)
    number = np.flatnonzero(estimated & (zones["status"] == "ok").to_numpy())
    if not number.size:
        raise InputError("No zone of this run has estimates for the period, so there is nothing to plan.")
    rows = np.concatenate(period.similar)
    dispersion = _dispersion(zones, number)
    rentals = _estimated(rates, number, period, picks, _together(system, bins, rows), dispersion, generator)
    if returned is None:
        returns = _returns_by_hour(connection, len(zones), number, period, rentals.shape, generator)
    else:
        wanted = _rows(connection, returned, len(zones), period)
        unknown = np.full(len(rows), np.nan)
        returns = np.nan_to_num(_estimated(wanted, number, period, picks, unknown, dispersion, generator))
    total = rentals.sum(axis=(0, 2)) / np.maximum(returns.sum(axis=(0, 2)), _LEAST)
    return StationRates(number, rentals, returns * total[:, None], period.hours)


@dataclass(frozen=True)
class _Picks:
    """The recent days that each scenario takes its usual rates and its shocks from; the same for both sides."""

    usual: IntArray
    shocks: IntArray

    @classmethod
    def draw(cls, period: Period, scenarios: int, generator: np.random.Generator) -> _Picks:
        days = (len(period.similar), max(len(period.recent), 1))
        return cls(*(generator.integers(count, size=scenarios) for count in days))


def _estimated(
    rates: _Rows,
    number: IntArray,
    period: Period,
    picks: _Picks,
    together: Array,
    dispersion: Array,
    generator: np.random.Generator,
) -> Array:
    """Draw rates per hour from the estimates of a run, of shape (zones, scenarios, intervals)."""
    usual = rates.mean if period.forecast else rates.usual
    drawn = np.stack([usual[rows][:, number] for rows in period.similar])[picks.usual].transpose(2, 0, 1)
    if period.recent:
        shock = np.stack([rates.mean[rows] / np.maximum(rates.usual[rows], _LEAST) for rows in period.recent])
        shock = np.where(np.isfinite(shock), shock, 1.0)[:, :, number]
        drawn = drawn * shock[picks.shocks].transpose(2, 0, 1)
    rows = np.concatenate(period.similar)
    error = _errors(rates.mean[rows][:, number], rates.spread[rows][:, number], together, drawn.shape[1], generator)
    noise = _gamma(dispersion[:, None, None], drawn.shape, generator)
    return np.asarray(drawn * error[:, :, None] * noise / period.hours)


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


def _errors(means: Array, spreads: Array, together: Array, scenarios: int, generator: np.random.Generator) -> Array:
    """Log-normal errors of the zones' rates, of shape (zones, scenarios).

    The correlation between zones is the one that gives the standard deviation of the rate of all zones together.
    """
    weight = means.sum(axis=0)
    relative = np.divide(spreads, means, out=np.zeros_like(means), where=means > 0)
    cv = np.sqrt((relative**2 * means).sum(axis=0) / np.maximum(weight, _LEAST))
    alone, joint = (spreads**2).sum(axis=1), spreads.sum(axis=1) ** 2
    room = joint - alone
    shared = np.divide(together**2 - alone, room, out=np.zeros_like(room), where=room > 0)
    correlation = float(np.clip(np.nan_to_num(np.nanmean(shared) if np.isfinite(shared).any() else 0.0), 0.0, 1.0))
    common = generator.standard_normal(scenarios)
    own = generator.standard_normal((means.shape[1], scenarios))
    log_sd = np.sqrt(np.log1p(cv**2))[:, None]
    return np.asarray(
        np.exp(log_sd * (np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own) - 0.5 * log_sd**2)
    )


def _dispersion(zones: pd.DataFrame, number: IntArray) -> Array:
    if "dispersion" not in zones.columns:
        return np.zeros(len(number))
    return np.nan_to_num(zones["dispersion"].to_numpy(dtype=float)[number])


def _gamma(variance: Array, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """Gamma factors of mean 1; exactly 1 where the variance is 0."""
    some = np.maximum(variance, 1e-6)
    drawn = generator.gamma(np.broadcast_to(1.0 / some, shape)) * some
    return np.where(variance > 1e-6, drawn, 1.0)


def _returns_by_hour(
    connection: duckdb.DuckDBPyConnection,
    zones: int,
    number: IntArray,
    period: Period,
    shape: tuple[int, int, int],
    generator: np.random.Generator,
) -> Array:
    """Draw returns per hour from the gamma posterior of each zone and hour of the week.

    The prior is the city's profile at the zone's level, as if it had been seen for one hour.
    """
    columns = {str(row[0]) for row in connection.execute("DESCRIBE panel").fetchall()}
    if "returns" not in columns:
        raise InputError("The panel has no returns: build it again with `unmet panel`, from trips with their ends.")
    time = "dock_exposure * minutes / 60" if "dock_exposure" in columns else "minutes / 60"
    frame = fetch_frame(
        connection,
        f"""SELECT z.number AS zone, ((isodow(start_local) - 1) * 24 + hour(start_local))::INTEGER AS slot,
            sum(returns)::DOUBLE AS count, sum({time})::DOUBLE AS hours
        FROM (SELECT * REPLACE (zone::VARCHAR AS zone) FROM panel) JOIN zone_numbers z USING (zone)
        WHERE returns IS NOT NULL GROUP BY ALL""",
    )
    if frame.empty:
        raise InputError("The panel has no returns: build it again with `unmet panel`, from trips with their ends.")
    tables = np.zeros((2, zones, 168))
    tables[:, frame["zone"], frame["slot"]] = frame[["count", "hours"]].to_numpy(dtype=float).T
    count, hours = tables
    profile = count.sum(axis=0) / np.maximum(hours.sum(axis=0), _LEAST)
    level = count.sum(axis=1) / np.maximum((hours * profile).sum(axis=1), _LEAST)
    prior = np.maximum(level[:, None] * profile, 1e-3)
    posterior = (count + prior)[number][:, period.slots], (hours + 1.0)[number][:, period.slots]
    drawn = generator.gamma(np.broadcast_to(posterior[0][:, None, :], shape))
    return np.asarray(drawn / posterior[1][:, None, :])
