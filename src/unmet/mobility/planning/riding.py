"""Riders turned away by all stations together, from riders who ride one by one in the scenarios of a plan.

Costs by level treat stations as independent. Totals do not: riders walk on to a neighbour, ride on to a free dock, and
a trip that is not made brings no vehicle back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from unmet._typing import BoolArray, IntArray
from unmet.decisions import Network, Outcome, draw_riders, ride
from unmet.mobility.planning.plan import Plan, totals_table
from unmet.mobility.zones.distance import curve_through, metres_between

__all__ = ["Habits", "network_of", "ride_plan"]

_MOST_RIDERS = 30_000  # of all scenarios together, unless `_FEWEST` have more
_FEWEST = 5
_UNKNOWN = 2.0  # km, if the position of a station is unknown


@dataclass(frozen=True)
class Habits:
    """How riders and vehicles behave within a period.

    Attributes
    ----------
    metres, walk : tuple of float
        Distances, and the chance at each that a rider who finds no vehicle walks so far; in between as
        in `curve_through`.
    breakage : float
        Probability that a vehicle cannot be rented after a trip.
    """

    metres: tuple[float, ...] = (0.0,)
    walk: tuple[float, ...] = (0.0,)
    breakage: float = 0.0


def network_of(zones: pd.DataFrame, capacity: IntArray, habits: Habits) -> Network:
    """Return the stations with their distances and chances of walking; nobody walks where a position is unknown."""
    lat, lon = (zones[name].to_numpy(dtype=float) for name in ("lat", "lon"))
    metres = metres_between(lat[:, None], lon[:, None], lat, lon)
    known = np.isfinite(metres)
    walk = np.where(known, curve_through(np.array(habits.metres), np.array(habits.walk), np.nan_to_num(metres)), 0.0)
    km = np.where(known, metres / 1000.0, _UNKNOWN)
    np.fill_diagonal(km, 0.0)
    return Network(capacity, km, walk)


def ride_plan(plan: Plan, zones: pd.DataFrame, habits: Habits) -> Plan:
    """Return a plan with totals of all stations, and of those of each area, from simulated riders.

    The same riders ride from the levels now and from the planned levels. Large cities need fewer scenarios, because
    their totals vary less.

    Parameters
    ----------
    plan : Plan
        The plan.
    zones : pandas.DataFrame
        ``lat, lon`` of every zone of the run, and ``area`` if there are areas.
    habits : Habits
        How riders and vehicles behave.
    """
    stations, rates = plan.stations, plan.rates
    place = {int(number): i for i, number in enumerate(rates.number)}
    at = np.array([place[station.number] for station in stations])
    capacity = np.array([station.docks - station.broken for station in stations])
    network = network_of(zones.iloc[[station.number for station in stations]], capacity, habits)
    expected = max(float(rates.rentals[at].mean(axis=1).sum() * rates.hours), 1.0)
    scenarios = min(rates.rentals.shape[1], max(_FEWEST, int(_MOST_RIDERS / expected)))
    generator = np.random.default_rng([plan.options.seed, 29])
    found: dict[str, list[Outcome]] = {"now": [], "planned": []}
    for k in range(scenarios):
        riders = draw_riders(
            rates.rentals[at, k], rates.returns[at, k], network.km, generator, hours=rates.hours, breaks=habits.breakage
        )
        for name, outcomes in found.items():
            outcomes.append(ride(riders, network, [getattr(station, name) for station in stations]))
    counts = {
        what: {name: np.array([getattr(outcome, what) for outcome in own], dtype=float) for name, own in found.items()}
        for what in ("no_bike", "no_dock")
    }

    def totals(some: BoolArray) -> pd.DataFrame:
        no_bike, no_dock = (
            {name: values[:, some].sum(axis=1) for name, values in counts[what].items()}
            for what in ("no_bike", "no_dock")
        )
        return totals_table(no_bike, no_dock, plan.options)

    named = zones["area"] if "area" in zones else pd.Series(None, index=zones.index, dtype=object)
    area = named.iloc[[station.number for station in stations]].to_numpy(dtype=object)
    areas = sorted({name for name in area if isinstance(name, str)})
    return replace(
        plan,
        totals=totals(np.ones(len(stations), dtype=bool)),
        area_totals={name: totals(area == name) for name in areas},
    )
