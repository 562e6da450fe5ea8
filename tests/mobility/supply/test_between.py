"""What could have happened between two looks, against simulated paths, limits and simulated cities."""

from __future__ import annotations

import numpy as np
import pytest

from unmet.mobility.panel import build_panel
from unmet.mobility.supply.bridge import MOST, time_at_zero
from unmet.simulate import simulate_city


def paths(first: int, taken: float, brought: float, number: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """The last number and the share of time at zero of many paths, in small steps."""
    steps = 400
    at, zero = np.full(number, first), np.zeros(number)
    for _ in range(steps):
        zero += at == 0
        u = rng.random(number)
        at += (u < brought / steps).astype(int) - ((u > 1 - taken / steps) & (at > 0))
    return at, zero / steps


@pytest.mark.parametrize(("first", "taken", "brought"), [(1, 1.0, 1.0), (2, 3.0, 1.5), (0, 1.0, 2.0)])
def test_time_at_zero_is_that_of_paths_with_the_same_ends(first, taken, brought):
    _, mean, variance = time_at_zero(taken, brought)
    last, zero = paths(first, taken, brought, 40_000, np.random.default_rng(8))
    for second in range(4):
        here = zero[last == second]
        if len(here) > 2000:
            assert mean[first, second] == pytest.approx(here.mean(), abs=0.012)
            assert variance[first, second] == pytest.approx(here.var(), abs=0.008)


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
    assert made.summary["misses_pickups"]
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
