"""One fleet over many stations: where to keep bikes, and which to move first.

Costs are convex in the level of each station and add up over stations, so placing or moving bikes one by one, each
where it gains most, is optimal (Fox 1966).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unmet._exceptions import InputError
from unmet._numbers import LARGEST_COUNT, read_count, read_counts, read_numbers
from unmet._typing import Array, IntArray
from unmet.decisions.station import LARGEST_COST

__all__ = ["Allocation", "Move", "allocate_fleet", "fleet_curve", "rebalance"]


@dataclass(frozen=True)
class Allocation:
    """Levels of all stations.

    Attributes
    ----------
    levels : array of int
        Bikes at each station.
    cost : float
        Sum of the stations' costs at these levels.
    """

    levels: IntArray
    cost: float


@dataclass(frozen=True)
class Move:
    """One bike from one station to another. `gain` is the cost it saves at both stations together."""

    source: int
    target: int
    gain: float


def allocate_fleet(costs: Sequence[npt.ArrayLike], bikes: int) -> Allocation:
    """Place a fleet over stations so that the total cost is lowest.

    Parameters
    ----------
    costs : sequence of arrays
        For each station the expected cost by level, from 0 to its capacity. Each must be convex.
    bikes : int
        Bikes to place; all of them are placed.

    Returns
    -------
    Allocation

    Examples
    --------
    >>> allocate_fleet([[4.0, 1.0, 0.5], [3.0, 2.5, 2.4]], bikes=2).levels.tolist()
    [2, 0]
    """
    return fleet_curve(costs, [bikes])[0]


def fleet_curve(costs: Sequence[npt.ArrayLike], fleets: Sequence[int]) -> list[Allocation]:
    """Allocate fleets of several sizes, in one pass; results are in the order of `fleets`.

    Examples
    --------
    >>> [a.cost for a in fleet_curve([[4.0, 1.0, 0.5], [3.0, 2.5, 2.4]], [0, 1, 2])]
    [7.0, 4.0, 3.5]
    """
    tables = _convex(costs)
    docks = sum(len(table) - 1 for table in tables)
    sizes = read_counts(fleets, "bikes", LARGEST_COUNT)
    if sizes.ndim != 1:
        raise InputError(f"fleets: expected a list of numbers of bikes, got shape {sizes.shape}.")
    if (sizes > docks).any():
        raise InputError(f"bikes: expected 0 to the {docks} docks of all stations, got {sizes.max()}.")
    station = np.concatenate([np.full(len(table) - 1, i) for i, table in enumerate(tables)]).astype(np.intp)
    gain = np.concatenate([-np.diff(table) for table in tables])
    # Stable: among equal gains of one station the lower level comes first, as it must.
    order = np.argsort(-np.concatenate([_gains(table) for table in tables]), kind="stable")
    empty = float(sum(table[0] for table in tables))
    results = []
    for bikes in sizes.tolist():
        chosen = order[:bikes]
        levels = np.bincount(station[chosen], minlength=len(tables)).astype(np.intp)
        results.append(Allocation(levels, empty - float(gain[chosen].sum())))
    return results


def rebalance(
    costs: Sequence[npt.ArrayLike], levels: Sequence[int] | IntArray, most_moves: int | None = None
) -> list[Move]:
    """List the bikes to move between stations, the most useful first.

    Parameters
    ----------
    costs : sequence of arrays
        For each station the expected cost by level, from 0 to its capacity. Each must be convex.
    levels : sequence of int
        Bikes at each station now.
    most_moves : int, optional
        Bikes that the vans can move. All useful moves are listed unless given.

    Returns
    -------
    list of Move
        Every move gains; gains do not increase. After any number of these moves no other set of as many moves gains
        more.

    Examples
    --------
    >>> rebalance([[4.0, 1.0, 0.5], [3.0, 2.5, 2.25]], [0, 2])
    [Move(source=1, target=0, gain=2.75)]
    """
    tables = _convex(costs)
    now = read_counts(levels, "levels", LARGEST_COUNT)
    if most_moves is not None:
        most_moves = read_count(most_moves, "most_moves", 0, LARGEST_COUNT)
    if now.shape != (len(tables),):
        raise InputError(f"levels: expected one level per station ({len(tables)}), got shape {now.shape}.")
    for i, table in enumerate(tables):
        if not 0 <= now[i] < len(table):
            raise InputError(f"levels: station {i} has {now[i]} bikes; expected 0 to its {len(table) - 1} docks.")
    gains = [_gains(table) for table in tables]
    receivers = [(-_gain(gains[i], level), i) for i, level in enumerate(now)]
    donors = [(_loss(gains[i], level), i) for i, level in enumerate(now)]
    heapq.heapify(receivers)
    heapq.heapify(donors)
    moves: list[Move] = []
    while most_moves is None or len(moves) < most_moves:
        source, target = donors[0][1], receivers[0][1]
        gain = -receivers[0][0] - donors[0][0]
        if not gain > 0:
            break
        moves.append(Move(source, target, gain))
        now[source] -= 1
        now[target] += 1
        # By convexity a donor never receives later and a receiver never gives: their other entries may grow stale.
        heapq.heapreplace(donors, (_loss(gains[source], now[source]), source))
        heapq.heapreplace(receivers, (-_gain(gains[target], now[target]), target))
    return moves


def _gains(table: Array) -> Array:
    """Cost saved by each further bike, without the rounding by which it may rise from level to level.

    With gains that rise, a bike could move from a station to itself, without end.
    """
    return np.asarray(np.minimum.accumulate(-np.diff(table)))


def _gain(gains: Array, level: int) -> float:
    """Cost saved by one more bike; −∞ at a full station."""
    return float(gains[level]) if level < len(gains) else -np.inf


def _loss(gains: Array, level: int) -> float:
    """Cost added by one bike fewer; ∞ at an empty station."""
    return float(gains[level - 1]) if level > 0 else np.inf


def _convex(costs: Sequence[npt.ArrayLike]) -> list[Array]:
    """Check the cost tables; greedy choices are optimal for convex costs only."""
    if not np.iterable(costs):
        raise InputError(f"costs: expected a list with one table per station, got {type(costs).__name__}.")
    tables = [read_numbers(cost, "costs") for cost in costs]
    if not tables:
        raise InputError("costs: expected at least one station.")
    for i, table in enumerate(tables):
        if table.ndim != 1 or len(table) == 0 or not (np.abs(table) <= LARGEST_COST).all():
            raise InputError(
                f"costs: station {i}: expected finite costs by level, at most {LARGEST_COST:g} in size; got shape "
                f"{table.shape}."
            )
        slack = 1e-9 * (1.0 + np.abs(table).max())
        if len(table) > 2 and np.diff(table, 2).min() < -slack:
            raise InputError(f"costs: station {i}: the cost is not convex in the level.")
    return tables
