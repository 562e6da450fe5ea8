"""What could have happened between two looks, against simulated paths, limits and simulated cities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import poisson

from unmet.mobility.panel import build_panel
from unmet.mobility.supply.between import cut_at_looks
from unmet.mobility.supply.bridge import MOST, bridge, cancelled_pairs, into_table, time_at_zero
from unmet.mobility.supply.cadence import Cadence
from unmet.mobility.supply.rider_moves import at_times_moves, find_moves, log_likelihoods
from unmet.mobility.supply.spells import Spells
from unmet.mobility.supply.states import EMPTY, NOT_RENTING, VEHICLES
from unmet.simulate import simulate_city


def paths(first: int, taken: float, brought: float, number: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """The last number, the share of time at zero and the pickups of many paths, in small steps."""
    steps = 400
    at, zero, pickups = np.full(number, first), np.zeros(number), np.zeros(number)
    for _ in range(steps):
        zero += at == 0
        u = rng.random(number)
        takes = (u > 1 - taken / steps) & (at > 0)
        pickups += takes
        at += (u < brought / steps).astype(int) - takes
    return at, zero / steps, pickups


@pytest.mark.parametrize(("first", "taken", "brought"), [(1, 1.0, 1.0), (2, 3.0, 1.5), (0, 1.0, 2.0)])
def test_time_at_zero_is_that_of_paths_with_the_same_ends(first, taken, brought):
    _, mean, variance = time_at_zero(taken, brought)
    last, zero, _ = paths(first, taken, brought, 40_000, np.random.default_rng(8))
    for second in range(4):
        here = zero[last == second]
        if len(here) > 2000:
            assert mean[first, second] == pytest.approx(here.mean(), abs=0.012)
            assert variance[first, second] == pytest.approx(here.var(), abs=0.008)


@pytest.mark.parametrize(("first", "taken", "brought"), [(1, 1.0, 1.0), (2, 3.0, 1.5), (0, 1.0, 2.0), (9, 5.0, 4.0)])
def test_pairs_that_cancel_out_are_those_of_paths_with_the_same_ends(first, taken, brought):
    pairs = cancelled_pairs(taken, brought)
    last, _, pickups = paths(first, taken, brought, 40_000, np.random.default_rng(9))
    compared = 0
    for second in range(MOST):
        here = pickups[last == second] - max(first - second, 0)
        if len(here) > 2000:
            compared += 1
            assert pairs[first, second] == pytest.approx(here.mean(), abs=4 * here.std() / len(here) ** 0.5 + 0.01)
    assert compared >= 3


def test_far_from_zero_pairs_are_those_of_two_poisson_numbers_with_a_given_difference():
    taken, brought = 2.5, 1.5
    number = np.arange(40)
    for fall in (-2, 0, 3):
        # P(taken = k + fall, brought = k), for k pairs beyond the fall.
        few = number[(number + fall >= 0)]
        weight = poisson.pmf(few + fall, taken) * poisson.pmf(few, brought)
        expected = ((few + min(fall, 0)) * weight).sum() / weight.sum()
        _, _, _, pairs = bridge(np.array([20]), np.array([20 - fall]), np.array([taken]), np.array([brought]))
        assert pairs[0] == pytest.approx(expected, rel=0.01)


def test_moves_of_intervals_of_any_length_are_found_together():
    rng = np.random.default_rng(3)
    rate, found = 0.05, {}
    for minutes in (10, 60):
        last, _, _ = paths(12, rate * minutes, rate * minutes, 20_000, rng)
        likelihood = log_likelihoods(np.zeros(20_000, dtype=np.int64), np.full(20_000, 12), last, 1)
        found[minutes] = at_times_moves(likelihood, minutes / 10)
    for likelihood in (*found.values(), sum(found.values())):
        moves = find_moves(likelihood, np.array([1.0]), 3.0)
        assert float(np.exp(moves.moves[0])) == pytest.approx(rate * 10, rel=0.04)


def test_spells_are_cut_at_looks_that_found_no_change():
    none = np.zeros(3, dtype=bool)
    reason = np.array([VEHICLES, EMPTY, NOT_RENTING, VEHICLES])
    spells = Spells(
        np.zeros(4, dtype=int), np.array([0, 11, 31, 70]), np.array([11, 31, 70, 100]), reason, np.arange(4)
    )
    polled = cut_at_looks(spells, Cadence(np.full(3, 10.0), ~none, ~none), 0)
    assert polled.begin.tolist() == [0, 11, 31, 70]  # a poll that found no change would have left a record
    changes = cut_at_looks(spells, Cadence(np.full(3, 10.0), ~none, none), 0)
    assert changes.begin.tolist() == [0, 11, 21, 31, 70, 80, 90]
    assert changes.end.tolist() == [11, 21, 31, 70, 80, 90, 100]
    always = cut_at_looks(spells, Cadence(np.full(3, 2.0), none, none), 0)
    assert (always.begin % 3 == 0).all()  # at the same minutes of all stations
    assert always.begin[1:].tolist() == always.end[:-1].tolist()
    assert always.supply[always.begin == 12].tolist() == [1]


@pytest.mark.parametrize("looks", ["3,60", "log,60"])
def test_mixed_looks_tell_what_even_ones_do(looks):
    """Without trips: nothing is unknown, and both pickups and lost trips at the true rates are near the truth."""
    city = simulate_city(8, 28, seed=9532, realistic=True, walk_probability=0.0, shock_effect=0.0, polls=looks)
    made = build_panel(None, city.status, city.stations, timezone=city.settings.timezone, every="1h")
    both = made.panel.merge(city.true_rate.rename(columns={"station_id": "zone"}), on=["zone", "start"])
    assert both["unknown_minutes"].sum() < 0.005 * both["minutes"].sum()
    assert both["observed"].sum() == pytest.approx(len(city.trips), rel=0.15)
    found, true = ((both["rate"] * out).sum() for out in (both["out_minutes"] / 60, both["stockout"]))
    assert found == pytest.approx(true, rel=0.12)


def test_numbers_far_beyond_the_tables_are_moved_into_them():
    wide = into_table(np.array([0, 55, 30, 7]), np.array([55, 0, 28, 7]))
    assert [number.tolist() for number in wide] == [[0, 24, 24, 7], [24, 0, 22, 7]]


def test_stations_looked_at_one_after_the_other_are_read_as_if_all_at_once():
    city = simulate_city(8, 28, seed=9531, realistic=True, walk_probability=0.0, shock_effect=0.0, polls="10")
    later = city.status.copy()
    later["last_reported"] += 70 * later["station_ix"].to_numpy()
    found = []
    for status in (city.status, later):
        made = build_panel(None, status, city.stations, timezone=city.settings.timezone, every="1h")
        assert made.summary["cadence"][0] == {"minutes": 10.0, "share": 1.0}
        found.append((made.panel["observed"].sum(), made.panel["out_minutes"].sum()))
    assert found[1] == pytest.approx(found[0], rel=0.03)


def test_slow_evenings_are_neither_unknown_nor_in_the_wrong_hour():
    options = {"realistic": True, "walk_probability": 0.0, "shock_effect": 0.0, "polls": "3", "evening_polls": 45.0}
    city = simulate_city(8, 28, seed=9531, **options)
    made = build_panel(None, city.status, city.stations, timezone=city.settings.timezone, every="1h")
    assert made.panel["unknown_minutes"].sum() < 0.01 * made.panel["minutes"].sum()
    hour = made.panel["start_local"].dt.hour
    true = city.trips["started_at"].dt.hour.value_counts()
    found = made.panel.groupby(hour)["observed"].sum() / true
    assert found[[19, 20]].between(0.75, 1.3).all()
    assert found[18] > 0.65  # .5 if an interval's pickups are put at its middle


def test_nobody_takes_a_vehicle_where_there_is_none():
    city = simulate_city(6, 10, seed=971, polls="10")
    status = city.status.assign(num_bikes_available=0)
    made = build_panel(None, status, city.stations, timezone=city.settings.timezone, every="1h", keep="all")
    assert made.panel["observed"].sum() == 0


def test_where_nothing_moves_the_looks_tell_all():
    _, mean, variance = time_at_zero(1e-6, 1e-6)
    assert mean[0, 0] == pytest.approx(1.0, abs=1e-4)
    assert mean[1:, 1:] == pytest.approx(0.0, abs=1e-4)
    assert [mean[0, 1], mean[1, 0]] == pytest.approx([0.5, 0.5], abs=1e-3)  # at any moment between the two
    assert variance[0, 1] == pytest.approx(1 / 12, abs=1e-3)
    assert mean.shape == (MOST + 1, MOST + 1)


@pytest.mark.parametrize(("looks", "most"), [("10", 0.06), ("60", 0.09)])
def test_rare_looks_know_how_little_they_know(looks, most):
    """Without trips: lost trips at the true rates are near those of the true exposure, and errors as large as told.

    All listed vehicles can be rented in this city, so that the share of time by short-lived causes is 5 % too high.
    """
    city = simulate_city(8, 28, seed=72, demand=60.0, polls=looks)
    truth = city.true_rate.rename(columns={"station_id": "zone"})
    frames = {}
    for supply in ("listed", "usable"):
        made = build_panel(None, city.status, city.stations, timezone=city.settings.timezone, every="1h", supply=supply)
        both = made.panel.merge(truth, on=["zone", "start"], suffixes=("", "_true"))
        frames[supply] = both[both["unknown_minutes"] == 0]
        assert any("give trips" in remark for remark in made.summary["remarks"])
        assert made.summary["misses_pickups"] == (supply == "listed")
        seen = both["observed"].sum() / len(city.trips)
        assert seen < 0.8 if supply == "listed" else seen == pytest.approx(1.0, abs=0.15)
        assert made.summary["cancelled"] == both["cancelled"].sum()
    off = {}
    for supply, both in frames.items():
        true = both["stockout"] * 60
        off[supply] = abs((both["rate"] * both["out_minutes"]).sum() / (both["rate"] * true).sum() - 1)
    assert off["usable"] < most
    assert looks == "10" or off["usable"] < off["listed"]
    error, told = both["out_minutes"] - true, both["out_sd"]
    assert (frames["listed"]["out_sd"] == 0).all()
    some = told > 1
    assert np.sqrt((error[some] ** 2).mean()) == pytest.approx(np.sqrt((told[some] ** 2).mean()), rel=0.25)
    assert np.sqrt((error[~some] ** 2).mean()) < 0.5


def test_rare_looks_find_broken_vehicles():
    """Without trips, in cities where listed vehicles may be broken: lost trips at the true rates, and parameters."""
    for seed, looks in ((9531, "10"), (9532, "60")):
        city = simulate_city(8, 28, seed=seed, realistic=True, walk_probability=0.0, shock_effect=0.0, polls=looks)
        made = build_panel(None, city.status, city.stations, timezone=city.settings.timezone, every="1h")
        both = made.panel.merge(city.true_rate.rename(columns={"station_id": "zone"}), on=["zone", "start"])
        found, true = ((both["rate"] * out).sum() for out in (both["out_minutes"] / 60, both["stockout"]))
        assert found == pytest.approx(true, rel=0.12)  # .79 to .88 of it if every listed vehicle can be rented


@pytest.mark.parametrize("minutes", [10, 60])
def test_polls_that_keep_the_times_of_stations_are_polls(minutes):
    """Each look shows when a station last reported, and lacks those that did not report since the look before."""
    city = simulate_city(8, 28, seed=9541, realistic=True, walk_probability=0.0, shock_effect=0.0, polls="log")
    look = -(-(city.status["last_reported"] - 7) // (60 * minutes))
    looks = city.status.assign(look=look).drop_duplicates(["station_ix", "look"], keep="last").drop(columns="look")
    made = build_panel(None, looks, city.stations, timezone=city.settings.timezone, every="1h")
    assert any("minutes apart" in remark for remark in made.summary["remarks"])
    assert made.summary["cadence"][0]["minutes"] == pytest.approx(minutes, rel=0.15)
    both = made.panel.merge(city.true_rate.rename(columns={"station_id": "zone"}), on=["zone", "start"])
    assert both["observed"].sum() / len(city.trips) == pytest.approx(1.0, abs=0.1)
    assert both["unknown_minutes"].sum() < 0.01 * both["minutes"].sum()
    lost = (both["rate"] * both["out_minutes"] / 60).sum() / (both["rate"] * both["stockout"]).sum()
    assert lost == pytest.approx(1.0, abs=0.12)
    log = build_panel(None, city.status, city.stations, timezone=city.settings.timezone, every="1h")
    assert log.summary["usable_supply"]["method"] == "hidden"  # every change has its own time


def test_a_model_that_does_not_explain_the_pickups_is_said_to_be_uncertain():
    """One trip per station and day, and vans with small loads that look like riders."""
    city = simulate_city(
        8, 28, seed=7, realistic=True, walk_probability=0.0, shock_effect=0.0, polls="60", demand=1.5, fleet_share=0.1
    )
    made = build_panel(None, city.status, city.stations, timezone=city.settings.timezone, every="1h")
    assert any("minutes out of stock are uncertain" in remark for remark in made.summary["remarks"])


def test_polls_at_odd_times_are_polls():
    """Looks at all stations, two to thirty minutes apart."""
    city = simulate_city(8, 28, seed=21, realistic=True, walk_probability=0.0, shock_effect=0.0, polls="1", demand=40.0)
    minute = city.status["last_reported"] // 60
    rng = np.random.default_rng(1)
    looks = minute.min() + np.cumsum(rng.integers(2, 31, 28 * 1440 // 16))
    made = build_panel(
        None, city.status[minute.isin(looks)], city.stations, timezone=city.settings.timezone, every="1h"
    )
    assert made.summary["usable_supply"]["method"] == "between"
    assert made.panel["observed"].sum() / len(city.trips) == pytest.approx(1.0, abs=0.12)
    assert not any("uncertain" in remark for remark in made.summary["remarks"])
