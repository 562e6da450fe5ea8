"""Docks and bikes together: move docks between stations, each to where it gains most.

The cost of a station with d empty docks and b bikes is multimodular in (d, b), so steepest descent over single-dock
moves finds the best layout within any number of moves (Freund, Henderson & Shmoys, arXiv 1611.09304). A dock leaves
station i empty or with a bike and arrives at station j empty or with a bike; a third station h takes or gives the bike
where the two differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from unmet._exceptions import InputError
from unmet._numbers import LARGEST_COUNT, read_count, read_counts, read_numbers
from unmet._typing import Array, IntArray
from unmet.decisions.fleet import allocate_fleet, rebalance
from unmet.decisions.station import MOST_DOCKS

__all__ = ["Layout", "move_docks"]

CostOfCapacity = Callable[[int, int], Array]
"""Called as ``cost(station, capacity)``; returns the expected cost by level, from 0 to the capacity."""


@dataclass(frozen=True)
class Layout:
    """Docks and bikes of all stations.

    Attributes
    ----------
    capacities : array of int
        Docks of each station.
    levels : array of int
        Bikes at each station.
    cost : float
        Sum of the stations' costs.
    """

    capacities: IntArray
    levels: IntArray
    cost: float


def move_docks(cost: CostOfCapacity, capacities: Sequence[int] | IntArray, bikes: int, most_docks: int) -> list[Layout]:
    """Move docks one by one, and bikes with them, so that the total cost falls fastest.

    Parameters
    ----------
    cost : callable
        ``cost(station, capacity)`` returns the expected cost by level. Each table is asked for once.
    capacities : sequence of int
        Docks of each station now.
    bikes : int
        Bikes of the whole fleet.
    most_docks : int
        Docks that may be moved.

    Returns
    -------
    list of Layout
        The best layout with no dock moved (bikes placed freely), with one dock moved, and so on, until no move gains
        or `most_docks` are moved.

    Examples
    --------
    >>> from unmet.decisions import expected_lost
    >>> rates = [(4.0, 1.0), (0.5, 0.5)]
    >>> def cost(i, c): return expected_lost([rates[i][0]] * 3, [rates[i][1]] * 3, c).cost()
    >>> layouts = move_docks(cost, [4, 8], bikes=6, most_docks=2)
    >>> [layout.capacities.tolist() for layout in layouts]
    [[4, 8], [5, 7], [6, 6]]
    """
    most_docks = read_count(most_docks, "most_docks", 0, LARGEST_COUNT)
    table = lru_cache(maxsize=None)(lambda i, c: _table(cost(i, c), i, c))
    docks = read_counts(capacities, "capacities", MOST_DOCKS)
    if docks.ndim != 1 or len(docks) == 0:
        raise InputError("capacities: expected a number of docks, 0 or more, for each station.")
    start = allocate_fleet([table(i, int(c)) for i, c in enumerate(docks)], bikes)
    layouts = [Layout(docks.copy(), start.levels, start.cost)]
    levels = start.levels.copy()
    while len(layouts) <= most_docks:
        best = _best_move(table, docks, levels)
        if best is None:
            break
        change, docks_moved, bikes_moved = best
        for i, step in docks_moved:
            docks[i] += step
        for i, step in bikes_moved:
            levels[i] += step
        # The move keeps bikes placed best up to ties; placing them again settles the ties.
        for move in rebalance([table(i, int(c)) for i, c in enumerate(docks)], levels):
            levels[move.source] -= 1
            levels[move.target] += 1
            change -= move.gain
        layouts.append(Layout(docks.copy(), levels.copy(), layouts[-1].cost + change))
    return layouts


def _table(given: Any, station: int, capacity: int) -> Array:
    costs = read_numbers(given, "cost")
    if costs.shape != (capacity + 1,):
        raise InputError(
            f"cost: station {station} with {capacity} docks: expected the costs of {capacity + 1} levels, got shape "
            f"{costs.shape}."
        )
    return costs


_Steps = list[tuple[int, int]]


def _best_move(
    table: Callable[[int, int], Array], docks: IntArray, levels: IntArray
) -> tuple[float, _Steps, _Steps] | None:
    """Find the move of one dock that lowers the cost most; None if none does."""
    n = len(docks)

    def change(i: int, dock: int, bike: int) -> float:
        """Cost added at station i by so many docks and bikes more."""
        capacity, level = int(docks[i]) + dock, int(levels[i]) + bike
        if not 0 <= level <= capacity:
            return np.inf
        return float(table(i, capacity)[level] - table(i, int(docks[i]))[levels[i]])

    # Per station: what it costs to lose or gain a dock, empty or with a bike, and to gain or lose a bike alone.
    ways = {step: np.array([change(i, *step) for i in range(n)]) for step in _STEPS}
    cheapest = {step: np.argsort(ways[step], kind="stable")[:3] for step in _STEPS}
    best: tuple[float, _Steps, _Steps] | None = None
    for away_bike, to_bike in product((0, 1), repeat=2):
        third = (0, away_bike - to_bike)  # the bike that station h takes (+1) or gives (−1)
        parts = [(-1, -away_bike), (1, to_bike)] + ([third] if third[1] else [])
        for stations in product(*(cheapest[step] for step in parts)):
            if len(set(stations)) < len(stations):
                continue
            total = float(sum(ways[step][i] for step, i in zip(parts, stations, strict=True)))
            if total < -_NO_GAIN and (best is None or total < best[0]):
                named = [(int(i), step) for i, step in zip(stations, parts, strict=True)]
                best = (total, [(i, s[0]) for i, s in named], [(i, s[1]) for i, s in named])
    return best


_STEPS = ((-1, 0), (-1, -1), (1, 0), (1, 1), (0, 1), (0, -1))
_NO_GAIN = 1e-12  # riders; smaller gains are rounding
