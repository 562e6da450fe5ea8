"""The plan of a period: where vehicles should be, which to move, and the riders that this gains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from unmet._exceptions import InputError
from unmet._typing import Array, IntArray
from unmet.decisions import LostRiders, expected_lost, rebalance, target_level
from unmet.mobility.planning.levels import Levels
from unmet.mobility.planning.period import OVERNIGHT, Period
from unmet.mobility.planning.rates import StationRates
from unmet.mobility.zones.distance import metres_between

__all__ = ["Plan", "PlanOptions", "Station", "make_plan", "totals_table"]

DEPOT = -1
_FORCED = 1e6  # riders; a vehicle that must come to or leave the depot does so before any other move
_MOST_PENALTY = 1000  # beyond, it would outweigh _FORCED at a busy station
_MOST_SCENARIOS = 10_000
_MOST_DOCKS = 1000  # of a zone: time and memory grow with them, and a walk's worth of stations has a few hundred


@dataclass(frozen=True)
class PlanOptions:
    """Options of a plan.

    Parameters
    ----------
    day, start, hours
        The period: see `unmet.mobility.planning.choose_period`.
    fleet : int, optional
        Vehicles at stations after the moves; default: as many as now. A depot gives or takes the difference.
    moves : int, optional
        Vehicles that the vans can move; default: as many as useful.
    least_gain : float
        Riders that each moved vehicle must gain.
    no_bike, no_dock : float
        Penalties of a rider who finds no vehicle and of one who finds no dock.
    tolerance : float
        Riders by which a level within the band may lose more than the target.
    scenarios, seed : int
        Number of scenarios, and their seed.
    """

    day: str | None = None
    start: str = OVERNIGHT
    hours: float = 24.0
    fleet: int | None = None
    moves: int | None = None
    least_gain: float = 0.1
    no_bike: float = 1.0
    no_dock: float = 1.0
    tolerance: float = 0.5
    scenarios: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("no_bike", "no_dock", "least_gain", "tolerance"):
            value = getattr(self, name)
            if not 0 <= value <= _MOST_PENALTY:
                raise InputError(f"{name}: expected a number from 0 to {_MOST_PENALTY:,}, got {value}.")
        for name in ("fleet", "moves"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise InputError(f"{name}: expected a whole number of at least 0, got {value}.")
        if not 20 <= self.scenarios <= _MOST_SCENARIOS:
            raise InputError(f"scenarios (--draws): expected 20 to {_MOST_SCENARIOS:,}, got {self.scenarios:,}.")


@dataclass(frozen=True)
class Station:
    """A station of a plan.

    Attributes
    ----------
    number : int
        Row of the zones table.
    docks, broken, now, planned : int
        Docks; vehicles that nobody can rent; usable vehicles before and after the moves.
    target, low, high : int
        Level that loses fewest riders, and its band.
    lost : LostRiders
        Riders turned away by start level, of shape (scenarios, levels).
    cost : array of shape (scenarios, levels)
        The same, weighed by the penalties.
    """

    number: int
    docks: int
    broken: int
    now: int
    planned: int
    target: int
    low: int
    high: int
    lost: LostRiders = field(repr=False)
    cost: Array = field(repr=False)


@dataclass(frozen=True)
class Plan:
    """The plan of a period.

    Attributes
    ----------
    period : Period
        The period.
    options : PlanOptions
        The options.
    stations : tuple of Station
        Stations with estimates, docks and a level.
    left_out : dict
        Zone's row → why it is not planned.
    table : pandas.DataFrame
        One row per station, in the order in which a change gains most; see `station_table`.
    moves : pandas.DataFrame
        ``source, target`` (rows of the zones table, -1 for the depot), ``bikes, km, gain_mean, gain_q05, gain_q95,
        gain_per_bike, sure`` (share of scenarios in which the move gains), best first.
    totals : pandas.DataFrame
        Riders turned away by all stations ``now`` and ``planned``, and their difference ``gain``: ``no_bike, no_dock,
        mean, q05, q95``.
    levels_from : str
        Where the levels now come from.
    rates : StationRates
        The rates behind it.
    area_totals : dict
        Area → totals of its stations.
    """

    period: Period
    options: PlanOptions
    stations: tuple[Station, ...]
    left_out: dict[int, str]
    table: pd.DataFrame
    moves: pd.DataFrame
    totals: pd.DataFrame
    levels_from: str
    rates: StationRates = field(repr=False)
    area_totals: dict[str, pd.DataFrame] = field(default_factory=dict)

    @property
    def fleet(self) -> int:
        """Usable vehicles at the planned stations now."""
        return sum(station.now for station in self.stations)

    @property
    def moved(self) -> int:
        """Vehicles that the plan moves."""
        return int(self.moves["bikes"].sum())


def make_plan(
    zones: pd.DataFrame, rates: StationRates, levels: Levels, period: Period, options: PlanOptions | None = None
) -> Plan:
    """Plan the moves before a period.

    Parameters
    ----------
    zones : pandas.DataFrame
        ``zone, name, lat, lon, capacity, status, reason`` of every zone of the run.
    rates : StationRates
        Scenarios of the rates.
    levels : Levels
        Vehicles at each zone now.
    period : Period
        The period.
    options : PlanOptions, optional
        The options.
    """
    chosen = options or PlanOptions()
    found, left_out = _stations(zones, rates, levels, chosen)
    if not found:
        raise InputError(f"No station can be planned: {next(iter(left_out.values()), 'there are none')}")
    means = [station.cost.mean(axis=0) for station in found]
    planned, depot = _planned_levels(means, np.array([station.now for station in found]), chosen)
    stations = tuple(
        Station(**{**vars(station), "planned": int(level)}) for station, level in zip(found, planned, strict=True)
    )
    return Plan(
        period=period,
        options=chosen,
        stations=stations,
        left_out=left_out,
        table=_station_table(stations, zones),
        moves=_moves(stations, zones, depot),
        totals=_totals(stations, chosen),
        levels_from=levels.source,
        rates=rates,
    )


def _stations(
    zones: pd.DataFrame, rates: StationRates, levels: Levels, options: PlanOptions
) -> tuple[list[Station], dict[int, str]]:
    """Compute the riders turned away at each station by start level."""
    at = {int(number): i for i, number in enumerate(rates.number)}
    found, left_out = [], {}
    for number, capacity in enumerate(zones["capacity"].to_numpy(dtype=float)):
        if number not in at:
            left_out[number] = "its demand could not be estimated for this period"
        elif not np.isfinite(capacity) or capacity < 1:
            left_out[number] = "its number of docks is unknown"
        elif not np.isfinite(levels.level[number]):
            left_out[number] = "its level is unknown"
        elif (docks := max(int(capacity), _held(levels, number))) > _MOST_DOCKS:
            left_out[number] = f"it has more than {_MOST_DOCKS:,} docks or vehicles, the most of a planned zone"
        else:
            now, broken = int(levels.level[number]), int(levels.broken[number])
            mu, lam = rates.rentals[at[number]], rates.returns[at[number]]
            lost = expected_lost(mu, lam, docks, hours=rates.hours, broken=broken)
            cost = lost.cost(options.no_bike, options.no_dock)
            best = target_level(cost, options.tolerance)
            found.append(Station(number, docks, broken, now, now, best.level, best.low, best.high, lost, cost))
    return found, left_out


def _held(levels: Levels, number: int) -> int:
    """Vehicles at a zone, with those that nobody can rent: a valet may hold more than the docks."""
    return int(levels.level[number]) + int(levels.broken[number])


def _planned_levels(costs: Sequence[Array], now: IntArray, options: PlanOptions) -> tuple[IntArray, int]:
    """Return the levels after the moves, and the vehicles that come from the depot (negative: go there)."""
    fleet = int(now.sum()) if options.fleet is None else options.fleet
    room = sum(len(cost) - 1 for cost in costs)
    if fleet > room:
        raise InputError(f"fleet: {fleet} vehicles do not fit in the {room} free docks of the planned stations.")
    depot = fleet - int(now.sum())
    waiting = np.arange(abs(depot) + 1)
    # The depot is a station of its own: vehicles to place cost as long as they wait there, and the reverse.
    tables = [*costs, _FORCED * (waiting if depot > 0 else waiting[::-1])]
    moves = rebalance(tables, [*now, max(depot, 0)], options.moves)
    levels = np.array([*now, 0])
    for move in moves:
        forced = _FORCED if len(costs) in (move.source, move.target) else 0.0
        if not forced and move.gain < options.least_gain:
            break
        levels[move.source] -= 1
        levels[move.target] += 1
    return levels[:-1], int((levels[:-1] - now).sum())


def _station_table(stations: Sequence[Station], zones: pd.DataFrame) -> pd.DataFrame:
    """Return one row per station: levels, target, riders turned away now and after the moves, and the gain.

    ``lost_*`` count riders who find no vehicle or no dock, weighed by the penalties. ``gain_per_bike`` is the gain of
    the planned change, or of the first vehicle to bring or take if none is planned.
    """
    rows = []
    for station in stations:
        zone = zones.iloc[station.number]
        cost = station.cost
        gain = cost[:, station.now] - cost[:, station.planned]
        change = station.planned - station.now
        rows.append(
            {
                "zone": zone["zone"], "name": zone["name"], "lat": zone["lat"], "lon": zone["lon"],
                "number": station.number, "docks": station.docks, "broken": station.broken,
                "level_now": station.now, "planned": station.planned, "change": change,
                "target": station.target, "target_low": station.low, "target_high": station.high,
                **_summary("lost_now", cost[:, station.now]),
                **_summary("lost_planned", cost[:, station.planned]),
                **_summary("lost_target", cost[:, station.target]),
                **_summary("gain", gain),
                "no_bike_now": float(station.lost.rentals[:, station.now].mean()),
                "no_dock_now": float(station.lost.returns[:, station.now].mean()),
                "gain_per_bike": float(gain.mean()) / abs(change) if change else _first_gain(cost, station.now),
            }
        )  # fmt: skip
    table = pd.DataFrame(rows).sort_values(["gain_mean", "gain_per_bike"], ascending=False, kind="stable")
    table.insert(0, "rank", np.arange(1, len(table) + 1))
    return table.reset_index(drop=True)


def _first_gain(cost: Array, now: int) -> float:
    """Riders gained by the best change of one vehicle; negative if any change loses."""
    mean = cost.mean(axis=0)
    return max(float(mean[now] - mean[level]) for level in (now - 1, now + 1) if 0 <= level < len(mean))


def _summary(name: str, values: Array) -> dict[str, float]:
    low, high = np.quantile(values, [0.05, 0.95])
    return {f"{name}_mean": float(values.mean()), f"{name}_q05": float(low), f"{name}_q95": float(high)}


def _moves(stations: Sequence[Station], zones: pd.DataFrame, depot: int) -> pd.DataFrame:
    """Pair vehicles to take with vehicles to bring so that vans drive least; gains do not depend on the pairs."""
    change = [station.planned - station.now for station in stations]
    sources = np.repeat(np.arange(len(change)), np.maximum(np.negative(change), 0)).tolist() + [DEPOT] * max(depot, 0)
    targets = np.repeat(np.arange(len(change)), np.maximum(change, 0)).tolist() + [DEPOT] * max(-depot, 0)
    km = _distances(stations, zones)
    matched = np.transpose(linear_sum_assignment(km[np.ix_(sources, targets)])).tolist() if sources else []
    pairs = Counter((sources[row], targets[column]) for row, column in matched)
    # Riders gained per vehicle in each scenario. The depot gains nothing; it is the last, index -1.
    per_bike = [
        (s.cost[:, s.now] - s.cost[:, s.planned]) / max(abs(c), 1) for s, c in zip(stations, change, strict=True)
    ]
    per_bike.append(np.zeros(len(stations[0].cost)))
    number = [*(station.number for station in stations), DEPOT]
    found = []
    for (source, target), bikes in pairs.items():
        gain = bikes * (per_bike[source] + per_bike[target])
        found.append(
            {
                "source": number[source],
                "target": number[target],
                "bikes": bikes,
                "km": np.nan if DEPOT in (source, target) else float(km[source, target]),
                **_summary("gain", gain),
                "gain_per_bike": float(gain.mean()) / bikes,
                "sure": float((gain > 0).mean()),
            }
        )
    table = pd.DataFrame(found, columns=_MOVE_COLUMNS)
    return table.sort_values(["gain_mean", "source", "target"], ascending=[False, True, True]).reset_index(drop=True)


_MOVE_COLUMNS = ["source", "target", "bikes", "km", "gain_mean", "gain_q05", "gain_q95", "gain_per_bike", "sure"]


def _distances(stations: Sequence[Station], zones: pd.DataFrame) -> Array:
    """Kilometres between stations, and 0 to the depot, which is the last row and column. Unknown positions: 0."""
    at = zones.iloc[[station.number for station in stations]]
    lat, lon = (at[name].to_numpy(dtype=float) for name in ("lat", "lon"))
    km = np.zeros((len(at) + 1, len(at) + 1))
    km[:-1, :-1] = np.nan_to_num(metres_between(lat[:, None], lon[:, None], lat, lon) / 1000.0)
    return km


def _totals(stations: Sequence[Station], options: PlanOptions) -> pd.DataFrame:
    """Sum riders turned away over stations, scenario by scenario."""
    no_bike, no_dock = (
        {
            name: np.sum([getattr(s.lost, what)[:, getattr(s, name)] for s in stations], axis=0)
            for name in ("now", "planned")
        }
        for what in ("rentals", "returns")
    )
    return totals_table(no_bike, no_dock, options)


def totals_table(no_bike: dict[str, Array], no_dock: dict[str, Array], options: PlanOptions) -> pd.DataFrame:
    """Describe riders turned away by all stations: see `Plan.totals`.

    Parameters
    ----------
    no_bike, no_dock : dict
        Riders in each scenario, by ``now`` and ``planned``.
    options : PlanOptions
        The penalties.
    """
    rows = []
    for name in ("now", "planned", "gain"):
        bike, dock = (x["now"] - x["planned"] if name == "gain" else x[name] for x in (no_bike, no_dock))
        cost = _summary("x", options.no_bike * bike + options.no_dock * dock)
        described = {key.removeprefix("x_"): value for key, value in cost.items()}
        rows.append({"quantity": name, "no_bike": float(bike.mean()), "no_dock": float(dock.mean()), **described})
    return pd.DataFrame(rows).set_index("quantity")
