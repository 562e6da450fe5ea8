"""Cities in which plans are acted on: a simulated city, and a recorded one whose days are replayed.

A replay lets the riders of a recorded day ride again from other levels. An estimate adds the riders that the records
lost, and moves those who walked or rode on to another station back to the one they came to first. Who finds no vehicle
may walk on, who finds no dock rides on, and vehicles break as often as was found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._storage.sql import fetch_frame
from unmet._typing import IntArray
from unmet.decisions import Riders, ride
from unmet.execution import Executor, in_processes
from unmet.mobility.demand import LatentDemand
from unmet.mobility.models.registry import DEFAULT_MODEL
from unmet.mobility.panel import write_panel
from unmet.mobility.planning.riding import Habits, network_of
from unmet.mobility.records.read import read_records
from unmet.pipeline.settings import RunSettings, panel_options
from unmet.report.source import RunSource, open_run
from unmet.report.targets import habits_of
from unmet.simulate import City
from unmet.simulate.days import DayOutcome, ride_day

__all__ = ["Replay", "World", "recorded_world", "simulated_world"]

_NO_RETURN = 1000.0  # hours: the trip has no known end


@dataclass(frozen=True)
class World:
    """A city whose last days can be planned and ridden again.

    Attributes
    ----------
    days : list of str
        Local days of the records.
    stations : list of str
        Ids of stations, in the order of levels.
    covariates : dict
        Weather and holidays, as of `LatentDemand`.
    write_panel : callable
        ``write_panel(path, end)`` writes the panel of the records before a day.
    levels : callable
        ``levels(day)`` returns the vehicles at each station when a day begins.
    wanted : callable
        ``wanted(day)`` returns the riders of a day who want a vehicle at each station.
    outcome : callable
        ``outcome(day, stock)`` lets the riders of a day ride from other levels.
    outcome_again : callable, optional
        ``outcome_again(day, stock, again)`` lets other riders of that day ride, one set for each number; missing if
        only the recorded riders are known.
    """

    days: list[str]
    stations: list[str]
    covariates: dict[str, Any]
    write_panel: Callable[[Path, str], object]
    levels: Callable[[str], IntArray]
    wanted: Callable[[str], IntArray]
    outcome: Callable[[str, IntArray], DayOutcome]
    outcome_again: Callable[[str, IntArray, int], DayOutcome] | None = None


def simulated_world(city: City) -> World:
    """Return a city of `unmet.simulate` in which plans can be acted on."""
    ids = [str(ident) for ident in city.stations["station_id"]]

    def levels(day: str) -> IntArray:
        midnight = pd.Timestamp(day, tz=city.settings.timezone)
        before = city.states[city.states["time"] <= midnight].groupby("station_id")["rentable"].last()
        return np.asarray(before.reindex(ids).to_numpy(dtype=np.intp))

    wanted_by_day = (
        city.true_rate["wanted"]
        .groupby(
            [
                city.true_rate["start"].dt.tz_convert(city.settings.timezone).dt.strftime("%Y-%m-%d"),
                city.true_rate["station_id"],
            ]
        )
        .sum()
    )

    return World(
        days=sorted(set(city.settings.hours().strftime("%Y-%m-%d"))),
        stations=ids,
        covariates={"weather": city.weather, "holidays": "US"},
        write_panel=lambda path, end: write_panel(
            path, city.trips, city.status, city.stations, timezone=city.settings.timezone, end=end
        ),
        levels=levels,
        wanted=lambda day: np.asarray(wanted_by_day[day].reindex(ids).to_numpy(dtype=np.intp)),
        outcome=lambda day, stock: ride_day(city.settings, day, stock.tolist()),
        outcome_again=lambda day, stock, again: ride_day(city.settings, day, stock.tolist(), again),
    )


@dataclass(frozen=True)
class Replay:
    """The recorded riders of a city, and those whom the records lost.

    Attributes
    ----------
    zones : pandas.DataFrame
        ``zone, lat, lon, capacity`` of the stations.
    supply : pandas.DataFrame
        Vehicles by local start of the bin (rows) and zone.
    bins : pandas.DataFrame
        Estimate from all records: ``zone`` (row of `zones`), ``start_local``, ``hours``, ``observed`` (trips), and
        ``lost, walked_on, walked_in`` (riders expected). Bins in which all three are 0 may be missing.
    trips : pandas.DataFrame
        ``origin, destination`` (rows of `zones`; -1 if the end is unknown), ``started`` (local), ``hours``.
    habits : Habits
        How far riders walk, and how often vehicles break.
    returns : tuple of pandas.DataFrame and Habits, optional
        The estimate of returns, as `bins`, and how far riders ride on.
    """

    zones: pd.DataFrame
    supply: pd.DataFrame
    bins: pd.DataFrame
    trips: pd.DataFrame
    habits: Habits
    returns: tuple[pd.DataFrame, Habits] | None = None

    def levels(self, day: str) -> IntArray:
        """Return the last level known when the day begins; a station that was never seen is empty."""
        known = self.supply.loc[: pd.Timestamp(day)].ffill().iloc[-1]
        return np.asarray(np.rint(known.fillna(0.0).to_numpy(dtype=float)), dtype=np.intp)

    def outcome(self, day: str, stock: IntArray) -> DayOutcome:
        """Let the riders of a day ride from other levels. An unknown number of docks is no limit."""
        riders = self.riders(day)
        docks = self.zones["capacity"].fillna(stock.sum()).to_numpy(dtype=float).astype(np.intp)
        capacity = np.maximum(docks, stock)  # a valet may hold more than the docks
        found = ride(riders, network_of(self.zones, capacity, self.habits), stock)
        no_bike = int(found.no_bike.sum())
        return DayOutcome(len(riders), no_bike, no_bike - int(found.walked.sum()), int(found.no_dock.sum()))

    def riders(self, day: str) -> Riders:
        """Return the riders of a day by the station they came to first, the same at every call."""
        midnight = pd.Timestamp(day)
        generator = np.random.default_rng([midnight.toordinal(), 31])
        bins = _of_day(self.bins, midnight)
        recorded = self.trips[self.trips["started"].dt.normalize() == midnight]
        first = self._came_to(recorded["origin"], recorded["started"], bins, self.habits, generator)
        recorded = recorded.assign(origin=first)
        if self.returns is not None:
            ended = recorded["started"] + pd.to_timedelta(recorded["hours"].fillna(0.0), unit="h")
            of_returns, habits = _of_day(self.returns[0], midnight), self.returns[1]
            first = self._came_to(recorded["destination"], ended, of_returns, habits, generator)
            recorded = recorded.assign(destination=first)
        chosen = pd.concat([recorded, self._recovered(bins, generator)])
        since = (chosen["started"] - midnight).dt.total_seconds().to_numpy() / 3600.0
        chosen = chosen.iloc[np.argsort(since, kind="stable")]
        ended = (chosen["destination"] >= 0).to_numpy()
        return Riders(
            time=np.sort(since, kind="stable"),
            origin=chosen["origin"].to_numpy(dtype=np.intp),
            destination=np.where(ended, chosen["destination"], chosen["origin"]).astype(np.intp),
            hours=np.where(ended, chosen["hours"], _NO_RETURN),
            temper=generator.random(len(chosen)),
            breaks=generator.random(len(chosen)) < self.habits.breakage,
        )

    def _came_to(
        self, stations: pd.Series, times: pd.Series, bins: pd.DataFrame, habits: Habits, generator: np.random.Generator
    ) -> IntArray:
        """Return the station that each rider came to first, given the one of the record and when.

        A rider is moved with the share of those who came from elsewhere among the records of that station and bin, to
        one that riders went on from in that bin, in proportion to their number and the chance to go so far.
        """
        first = stations.to_numpy(dtype=np.intp, copy=True)
        walk = network_of(self.zones, np.zeros(len(self.zones), dtype=np.intp), habits).walk
        np.fill_diagonal(walk, 0.0)
        uniform = generator.random((len(first), 2))
        for _, own in bins.groupby("start_local"):
            start, length = own["start_local"].iloc[0], pd.Timedelta(hours=float(own["hours"].iloc[0]))
            share, left = np.zeros(len(walk)), np.zeros(len(walk))
            share[own["zone"]] = own["walked_in"] / np.maximum(own["observed"], 1.0)
            left[own["zone"]] = own["walked_on"]
            inside = ((times >= start) & (times < start + length) & (stations >= 0)).to_numpy()
            for k in np.flatnonzero(inside & (uniform[:, 0] < share[first])):
                weight = np.cumsum(left * walk[:, first[k]])
                if weight[-1] > 0:
                    first[k] = np.searchsorted(weight, uniform[k, 1] * weight[-1], side="right")
        return first

    def _recovered(self, bins: pd.DataFrame, generator: np.random.Generator) -> pd.DataFrame:
        """Draw the riders that a day lost. Each rides as a recorded trip from its station, of that hour if there is."""
        count = generator.poisson(np.maximum(bins["lost"].to_numpy(dtype=float), 0.0))
        bins = bins.loc[bins.index.repeat(count)]
        offset = pd.to_timedelta(generator.random(len(bins)) * bins["hours"].to_numpy(dtype=float), unit="h")
        hours = bins["start_local"].dt.hour.to_numpy()
        like = [self._like(int(z), int(h), generator) for z, h in zip(bins["zone"].to_numpy(), hours, strict=True)]
        return self.trips.iloc[like].assign(
            origin=bins["zone"].to_numpy(), started=bins["start_local"].to_numpy() + offset.to_numpy()
        )

    def _like(self, zone: int, hour: int, generator: np.random.Generator) -> int:
        """Choose a recorded trip: of this station and hour, else of this station, else any."""
        here = (self.trips["origin"] == zone).to_numpy()
        then = here & (self.trips["started"].dt.hour == hour).to_numpy()
        rows = next(np.flatnonzero(some) for some in (then, here, np.ones(len(here), dtype=bool)) if some.any())
        return int(generator.choice(rows))


def _of_day(bins: pd.DataFrame, midnight: pd.Timestamp) -> pd.DataFrame:
    return bins[bins["start_local"].dt.normalize() == midnight]


def recorded_world(
    settings: RunSettings,
    folder: Path,
    *,
    recover: str = DEFAULT_MODEL,
    returns: bool = False,
    jobs: int | None = None,
    executor: Executor = in_processes,
    progress: Callable[[str], None] | None = None,
) -> World:
    """Read the records of a run, and estimate the riders they lost from all of them.

    Parameters
    ----------
    settings : RunSettings
        The records: trips with their ends, status and stations. Zones must be stations.
    folder : path
        Folder for the panel and the estimate.
    recover : str
        Model that estimates the lost riders.
    returns : bool
        Whether it estimates returns too. Otherwise recorded returns are the wanted ones, though they went to a free
        dock.
    jobs, executor
        As of `LatentDemand.fit`.
    progress : callable, optional
        Called with a sentence before each step.
    """
    if settings.zones != "stations":
        raise InputError(f"zones: days are replayed between stations; expected 'stations', got {settings.zones!r}.")
    tell = progress or (lambda _: None)
    covariates = {name: getattr(settings, name) for name in ("weather", "weather_columns", "timezone", "holidays")}
    panel, run = folder / "whole.parquet", folder / "whole"
    tell("Building the panel of all days.")
    _write_panel(settings, panel)
    tell(f"Estimating the riders that the records lost, with {recover}.")
    model = LatentDemand(recover, **covariates)
    model.fit(panel, run, jobs=jobs, executor=executor)
    of_returns = None
    if returns:
        tell(f"Estimating the returns that full stations hid, with {recover}.")
        found = model.fit_returns(panel, run, jobs=jobs, executor=executor)
        with open_run(found.out, found.out / "panel.parquet") as source:
            of_returns = _bins(source), habits_of(source)
    with open_run(run, panel) as source:
        zones = source.zones.reset_index(drop=True)
        replay = Replay(zones, _supply(source), _bins(source), _trips(settings, zones), habits_of(source), of_returns)
        days = sorted(set(source.bins["start_local"].dt.strftime("%Y-%m-%d")))
    return World(
        days=days,
        stations=[str(zone) for zone in zones["zone"]],
        covariates=covariates,
        write_panel=lambda path, end: _write_panel(settings, path, end=end),
        levels=replay.levels,
        wanted=lambda day: np.bincount(replay.riders(day).origin, minlength=len(zones)),
        outcome=replay.outcome,
    )


def _write_panel(settings: RunSettings, path: Path, **more: Any) -> None:
    files = (list(given) or None for given in (settings.trips, settings.status, settings.stations))
    write_panel(path, *files, **panel_options(settings) | more)


def _supply(source: RunSource) -> pd.DataFrame:
    frame = fetch_frame(
        source.connection,
        """SELECT z.number AS zone, start_local, supply_mean AS level
        FROM (SELECT * REPLACE (zone::VARCHAR AS zone) FROM panel) JOIN zone_numbers z USING (zone)""",
    )
    return frame.pivot_table(index="start_local", columns="zone", values="level", dropna=False).reindex(
        columns=range(len(source.zones))
    )


def _bins(source: RunSource) -> pd.DataFrame:
    walkers = {"walked_on_mean", "walked_in_mean"} <= source.demand_columns
    on, came = ("d.walked_on_mean", "d.walked_in_mean") if walkers else ("0.0", "0.0")
    return fetch_frame(
        source.connection,
        f"""SELECT z.number AS zone, b.start_local, b.minutes / 60.0 AS hours, coalesce(d.observed, 0) AS observed,
            d.lost_mean AS lost, {on} AS walked_on, {came} AS walked_in
        FROM demand d JOIN zone_numbers z USING (zone) JOIN bin_numbers b USING (start)
        WHERE d.lost_mean > 0 OR {on} > 0 OR {came} > 0 ORDER BY zone, start""",
    )


def _trips(settings: RunSettings, zones: pd.DataFrame) -> pd.DataFrame:
    """Read the trips that start at a station of the panel, in local time."""
    with read_records(
        list(settings.trips), None, list(settings.stations) or None,
        timezone=settings.timezone, mapping=settings.map, max_rejected=settings.max_rejected,
    ) as records:  # fmt: skip
        frame = fetch_frame(
            records.connection,
            """SELECT start_station::VARCHAR AS origin, end_station::VARCHAR AS destination,
                started_at AS started, epoch(ended_at - started_at) / 3600.0 AS hours FROM trips ORDER BY ALL""",
        )
    number = {str(member): i for i, members in enumerate(zones["stations"]) for member in members}
    for end in ("origin", "destination"):
        frame[end] = frame[end].map(number).fillna(-1).astype(np.intp)
    frame["started"] = _local(frame["started"], settings.timezone)
    frame.loc[~np.isfinite(frame["hours"].to_numpy(dtype=float)), "destination"] = -1
    return frame[frame["origin"] >= 0].reset_index(drop=True)


def _local(moments: pd.Series, timezone: str) -> pd.Series:
    """Return local wall-clock times without an offset."""
    aware = moments.dt.tz_localize("UTC") if moments.dt.tz is None else moments
    return aware.dt.tz_convert(timezone).dt.tz_localize(None)
