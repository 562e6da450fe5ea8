"""Arguments that are no rates, levels or penalties are refused with a sentence, and nothing runs without end."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from unmet import InputError, decisions

R, S, C = np.array([2.0, 3.0, 4.0]), np.array([3.0, 2.0, 1.0]), np.array([5.0, 3.0, 2.0, 2.5, 4.0])
KM = np.array([[0.0, 1.0], [1.0, 0.0]])
STATION: dict[str, Any] = {"rentals": R, "returns": S, "capacity": 5, "hours": 1.0}
COSTS: dict[str, Any] = {"costs": [C, C]}
RIDERS: dict[str, Any] = {"rentals": np.ones((2, 3)), "returns": np.ones((2, 3)), "km": KM, "hours": 1.0, "breaks": 0.0}
PENALTIES: dict[str, Any] = {"no_bike": 1.0, "no_dock": 1.0}
CALLS: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "expected_lost": (decisions.expected_lost, STATION),
    "expected_cost": (decisions.expected_cost, {**STATION, **PENALTIES, "broken": 0}),
    "expected_level": (decisions.expected_level, STATION),
    "value_of_a_dock": (decisions.value_of_a_dock, {**STATION, **PENALTIES}),
    "target_level": (decisions.target_level, {"cost": C, "tolerance": 0.5}),
    "value_of_bikes": (decisions.value_of_bikes, {"cost": C}),
    "erlang_loss": (decisions.erlang_loss, {"load": R, "chargers": 3}),
    "chargers": (decisions.expected_lost_at_chargers, {"arrivals": R, "hours_at_charger": 1.0, "chargers": 3}),
    "allocate_fleet": (decisions.allocate_fleet, {**COSTS, "bikes": 4}),
    "fleet_curve": (decisions.fleet_curve, {**COSTS, "fleets": [1, 2]}),
    "rebalance": (decisions.rebalance, {**COSTS, "levels": [1, 3]}),
    "move_docks": (decisions.move_docks, {"cost": lambda i, c: C, "capacities": [4, 4], "bikes": 4, "most_docks": 0}),
    "draw_riders": (decisions.draw_riders, {**RIDERS, "generator": np.random.default_rng(0)}),
    "with_day_factor": (
        decisions.with_day_factor,
        {"rates": R, "dispersion": 0.2, "generator": np.random.default_rng(0)},
    ),
    "time_out": (
        decisions.time_out,
        {"rentals": R[None, None], "returns": S[None, None], "capacity": [5], "start": [2], "hours": 1.0},
    ),
}
ODD = {
    "nan": np.nan,
    "infinite": np.inf,
    "negative": -1.0,
    "huge": 10**400,
    "overflowing": 1e308,
    "complex": 1j,
    "text": "many",
    "object": {},
    "masked": np.ma.masked_array(R, [False, True, False]),
    "complex array": R + 1j,
    "times": np.arange(3).astype("M8[s]"),
    "none": None,
}
ARGUMENTS = [(call, name) for call, (_, given) in CALLS.items() for name in given if name not in ("generator",)]


@pytest.mark.parametrize(("call", "name"), [pair for pair in ARGUMENTS if pair != ("move_docks", "cost")])
def test_what_is_no_number_or_none_that_can_be_is_refused(call: str, name: str) -> None:
    function, given = CALLS[call]
    function(**given)
    for kind, value in ODD.items():
        if name in ("cost", "costs") and kind in ("negative", "overflowing"):  # a cost of any size has a gain
            continue
        with pytest.raises(InputError):
            function(**{**given, name: value})


@pytest.mark.parametrize("hours", [1e7, 1e90])
def test_more_riders_than_can_be_summed_are_refused(hours: float) -> None:
    with pytest.raises(InputError, match=r"at most 100,000 riders in an interval of .* hours, got"):
        decisions.expected_lost(R, S, 5, hours=hours)
    with pytest.raises(InputError, match=r"at most 100,000 riders"):
        decisions.time_out(R[None, None], S[None, None], [5], [2], hours=hours)


@pytest.mark.parametrize("capacity", [5.5, -1, 10**9])
def test_docks_are_whole_numbers(capacity: float) -> None:
    with pytest.raises(InputError, match=r"capacity: expected a whole number from 0 to 100,000, got"):
        decisions.expected_lost(R, S, capacity)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"capacity: expected whole numbers from 0 to 100,000"):
        decisions.time_out(R[None, None], S[None, None], [capacity], [2])


def test_levels_are_not_rounded() -> None:
    with pytest.raises(InputError, match=r"levels: expected whole numbers from 0 to .*, got 1.7"):
        decisions.rebalance([C, C], [1.7, 3])  # type: ignore[list-item]


NUMBERS = ("hours", "no_bike", "no_dock", "tolerance", "dispersion", "breaks", "hours_at_charger")


@pytest.mark.parametrize(("call", "name"), [pair for pair in ARGUMENTS if pair[1] in NUMBERS])
def test_a_number_as_text_counts_as_the_number(call: str, name: str) -> None:
    function, given = CALLS[call]
    outcomes = [
        function(**{**given, name: value} | ({"generator": np.random.default_rng(0)} if "generator" in given else {}))
        for value in (0.5, "0.5")
    ]
    assert repr(outcomes[0]) == repr(outcomes[1])


@pytest.mark.parametrize("call", ["draw_riders", "with_day_factor"])
@pytest.mark.parametrize("generator", [None, 0, "x", np.random.RandomState(0)])
def test_randomness_comes_from_a_generator(call: str, generator: Any) -> None:
    function, given = CALLS[call]
    with pytest.raises(InputError, match=r"generator: expected a numpy.random.Generator"):
        function(**{**given, "generator": generator})


def test_costs_whose_differences_are_infinite_are_refused() -> None:
    steep = [1e308, -1e308, 1e308]
    for call in (
        lambda: decisions.allocate_fleet([steep], 1),
        lambda: decisions.rebalance([steep, [0.0, 1.0]], [0, 1]),
        lambda: decisions.target_level([steep, steep]),
        lambda: decisions.value_of_bikes(steep),
    ):
        with pytest.raises(InputError, match=r"at most 1e\+150 in size"):
            call()


def test_a_table_of_costs_with_other_levels_than_the_station_has_is_refused() -> None:
    with pytest.raises(InputError, match=r"station 0 with 4 docks: expected the costs of 5 levels, got shape \(3,\)"):
        decisions.move_docks(lambda i, c: np.array([2.0, 1.0, 1.5]), [4, 4], bikes=4, most_docks=1)


def test_riders_need_a_station() -> None:
    with pytest.raises(InputError, match=r"for some station; got \(0, 3\)"):
        decisions.draw_riders(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((0, 0)), np.random.default_rng(0))


def test_riders_of_many_stations_take_memory_for_riders_not_for_their_choices() -> None:
    rates, km = np.full((400, 24), 2.0), np.zeros((400, 400))
    tracemalloc.start()
    riders = decisions.draw_riders(rates, rates, km, np.random.default_rng(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(riders) == pytest.approx(19_200, rel=0.05)
    assert peak < 20e6  # bytes; a number per rider and station takes 61 MB
    assert len(np.unique(riders.destination)) == 400


@pytest.mark.parametrize("chance", [np.nan, -1.0, 2.0])
def test_chances_to_walk_are_chances(chance: float) -> None:
    with pytest.raises(InputError, match="walk: expected chances from 0 to 1"):
        decisions.Network(np.array([5, 5]), KM, np.array([[0.0, chance], [0.1, 0.0]]))
