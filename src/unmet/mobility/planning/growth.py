"""Riders that another fleet would lose, and where more vehicles and docks gain most."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
import pandas as pd

from unmet._typing import Array
from unmet.decisions import expected_cost, fleet_curve, move_docks
from unmet.mobility.planning.plan import Plan, Station

__all__ = ["CostOfDocks", "costs_of_docks", "dock_moves", "fleet_losses", "more_bikes", "more_docks"]

CostOfDocks = Callable[[int, int], Array]
"""Called as ``cost(station, docks)``; returns the cost by scenario and level, of shape (scenarios, docks + 1)."""
_TOGETHER = 8  # stations in one array
_SCENARIOS = 40  # each number of docks asks for all stations again; means need fewer scenarios than intervals


def fleet_losses(plan: Plan, points: int = 21) -> pd.DataFrame:
    """Return riders turned away with fleets from half to one and a half of today's, each placed best.

    Returns
    -------
    pandas.DataFrame
        ``bikes, lost_mean, lost_q05, lost_q95``.
    """
    room = sum(station.cost.shape[1] - 1 for station in plan.stations)
    around = np.linspace(0.5, 1.5, points) * plan.fleet
    fleets = sorted({int(n) for n in np.clip(np.rint([*around, plan.fleet]), 0, room)})
    allocations = fleet_curve([station.cost.mean(axis=0) for station in plan.stations], fleets)
    rows = []
    for bikes, allocation in zip(fleets, allocations, strict=True):
        cost = np.sum([s.cost[:, k] for s, k in zip(plan.stations, allocation.levels, strict=True)], axis=0)
        low, high = np.quantile(cost, [0.05, 0.95])
        rows.append({"bikes": bikes, "lost_mean": float(cost.mean()), "lost_q05": float(low), "lost_q95": float(high)})
    return pd.DataFrame(rows)


def more_bikes(plan: Plan, bikes: int = 10) -> pd.DataFrame:
    """Return where the next vehicles gain most, after the planned moves: ``number, bikes, gain``, best first.

    Each vehicle goes where it gains most, given those before it.
    """
    levels = [station.planned for station in plan.stations]
    means = [station.cost.mean(axis=0) for station in plan.stations]
    gained: dict[int, list[float]] = {}
    for _ in range(bikes):
        gains = [m[k] - m[k + 1] if k + 1 < len(m) else -np.inf for m, k in zip(means, levels, strict=True)]
        best = int(np.argmax(gains))
        if gains[best] <= 0:
            break
        levels[best] += 1
        gained.setdefault(best, []).append(float(gains[best]))
    return _listed(plan, gained, "bikes")


def more_docks(plan: Plan, docks: int = 10, cost: CostOfDocks | None = None) -> pd.DataFrame:
    """Return where the next empty docks gain most, at the planned levels: ``number, docks, gain``, best first.

    A dock lets in at most the riders who find none, and each brings a vehicle for at most one more rental. Stations are
    computed only where this bound exceeds the best gain found. `cost` is that of `costs_of_docks`, if it is shared.
    """
    cost = cost or costs_of_docks(plan)
    penalties = plan.options.no_bike + plan.options.no_dock
    bounds = [(-penalties * float(s.lost.returns[:, s.planned].mean()), 0, i) for i, s in enumerate(plan.stations)]
    heapq.heapify(bounds)  # (minus the gain or its bound, docks for which the gain is exact or 0, station)
    extra = [0] * len(plan.stations)
    gained: dict[int, list[float]] = {}
    for _ in range(docks):
        while bounds[0][1] != extra[bounds[0][2]] + 1:
            i = bounds[0][2]
            heapq.heapreplace(bounds, (-_dock_gain(cost, i, plan.stations[i], extra[i]), extra[i] + 1, i))
        gain, _, best = bounds[0]
        if gain >= 0:
            break
        gained.setdefault(best, []).append(-gain)
        extra[best] += 1
    return _listed(plan, gained, "docks")


def dock_moves(plan: Plan, docks: int = 10, cost: CostOfDocks | None = None) -> pd.DataFrame:
    """Return the stations that should be larger or smaller: ``number, docks`` (the change) and ``gain`` of all moves.

    Up to `docks` docks move between stations, one by one, each where it gains most, with today's number of vehicles
    placed best. `cost` is that of `costs_of_docks`, if it is shared.
    """
    by_level = cost or costs_of_docks(plan)
    capacities = np.array([station.docks - station.broken for station in plan.stations])
    layouts = move_docks(lambda i, c: by_level(i, c).mean(axis=0), capacities, plan.fleet, docks)
    change = layouts[-1].capacities - capacities
    gain = layouts[0].cost - layouts[-1].cost
    rows = [
        {"number": plan.stations[i].number, "docks": int(change[i]), "gain": gain}
        for i in np.argsort(-change)
        if change[i]
    ]
    return pd.DataFrame(rows, columns=["number", "docks", "gain"])


def costs_of_docks(plan: Plan) -> CostOfDocks:
    """Return the cost of a station with another number of docks; each is computed once.

    Stations of one size are computed together, those who turn away most returns first: one array of several stations
    takes a third of the time of several arrays.
    """
    place = {int(number): k for k, number in enumerate(plan.rates.number)}
    usable = [station.docks - station.broken for station in plan.stations]
    order = np.argsort([-s.lost.returns[:, s.planned].mean() for s in plan.stations], kind="stable").tolist()
    groups: dict[int, list[int]] = {}
    for size in set(usable):
        same = [i for i in order if usable[i] == size]
        for k in range(0, len(same), _TOGETHER):
            groups |= dict.fromkeys(same[k : k + _TOGETHER], same[k : k + _TOGETHER])
    found: dict[tuple[int, int], Array] = {}

    def cost(i: int, docks: int) -> Array:
        if (i, docks) not in found:
            group = groups[i]
            at = [place[plan.stations[k].number] for k in group]
            rates = plan.rates.rentals[at, :_SCENARIOS], plan.rates.returns[at, :_SCENARIOS]
            weights = plan.options.no_bike, plan.options.no_dock
            costs = expected_cost(*rates, docks, no_bike=weights[0], no_dock=weights[1], hours=plan.rates.hours)
            found.update({(k, docks): own for k, own in zip(group, costs, strict=True)})
        return found[i, docks]

    return cost


def _dock_gain(cost: CostOfDocks, i: int, station: Station, extra: int) -> float:
    """Gain of one more empty dock at the planned level."""
    usable = station.docks - station.broken + extra
    return float((cost(i, usable) - cost(i, usable + 1)[:, :-1])[:, station.planned].mean())


def _listed(plan: Plan, gained: dict[int, list[float]], what: str) -> pd.DataFrame:
    rows = [{"number": plan.stations[i].number, what: len(g), "gain": sum(g)} for i, g in gained.items()]
    table = pd.DataFrame(rows, columns=["number", what, "gain"])
    return table.sort_values("gain", ascending=False).reset_index(drop=True)
