"""Days of cut stock: riders are conserved, walk in order of distance, and are not counted twice by the city as one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unmet import InputError
from unmet.mobility.backtest.stock import cut_stock, walk_on
from unmet.mobility.models.surroundings import walks_between
from unmet.mobility.models.walking import DEFAULT_WALKING, NO_WALKING

ZONES, DAYS = 9, 28


def test_walkers_are_some_of_the_riders_and_as_many_as_their_chances_say() -> None:
    metres = np.array([[0.0, 100.0, 200.0], [100.0, 0.0, 300.0], [200.0, 300.0, 0.0]])
    bins = 4000
    exposure = np.vstack([np.zeros(bins), np.full(bins, 0.8), np.ones(bins)])
    stockout = np.vstack([np.ones(bins), np.zeros(bins), np.zeros(bins)])
    walks = walks_between(exposure, stockout, metres)
    assert set(walks.source) == {0}
    riders = np.full(len(walks), 5.0)
    walkers = walk_on(walks, riders, DEFAULT_WALKING, np.random.default_rng(1)).reshape(bins, 2)
    assert walkers.sum(axis=1).max() <= 5
    near, far = (float(DEFAULT_WALKING(np.array([d]))[0]) for d in (100.0, 200.0))
    # Those who do not get a vehicle at the nearer zone try the next one.
    expected = np.array([0.8 * near, (1 - 0.8 * near) * far])
    assert walkers.mean(axis=0) / 5 == pytest.approx(expected, abs=4 * np.sqrt(0.25 / (5 * bins)))
    assert not walk_on(walks, riders, NO_WALKING, np.random.default_rng(1)).any()
    alone = walks_between(exposure[:1], stockout[:1], metres[:1, :1])
    assert walk_on(alone, riders[:0], DEFAULT_WALKING, np.random.default_rng(1)).shape == (0,)


def test_zones_without_places_need_be_as_many(panel) -> None:
    rows, _ = panel
    with pytest.raises(InputError, match="need 8 zones or more"):
        cut_stock(rows[rows["zone"] < "z2"])  # a frame has no places: nobody can walk


@pytest.fixture(scope="module")
def panel() -> tuple[pd.DataFrame, dict[str, tuple[float, float]]]:
    """Counts of nine stations, 120 m apart in a row, that were never out."""
    rng = np.random.default_rng(7)
    start = pd.date_range("2024-03-04", periods=24 * DAYS, freq="h", tz="UTC")
    hour = start.hour.to_numpy()
    shape = 3.0 * np.exp(-(((hour - 8) / 2.5) ** 2)) + 3.0 * np.exp(-(((hour - 18) / 3.0) ** 2)) + 0.3
    frames = [
        pd.DataFrame(
            {
                "zone": f"z{i}", "start": start, "start_local": start.tz_localize(None), "minutes": 60,
                "observed": rng.poisson((0.7 + 0.1 * i) * shape).astype(float), "available_minutes": 60,
                "stockout_minutes": 0, "closed_minutes": 0, "unknown_minutes": 0, "exposure": 1.0, "censored": False,
            }
        )
        for i in range(ZONES)
    ]  # fmt: skip
    return pd.concat(frames, ignore_index=True), {f"z{i}": (40.7, -74.0 + i * 120 / 84_400) for i in range(ZONES)}


@pytest.mark.slow
def test_the_city_as_one_finds_riders_turned_away_and_islands_count_walkers_twice(panel) -> None:
    rows, places = panel
    scores = cut_stock(rows, places=places, seed=3).set_index("model")
    city, islands = scores.loc["exposure"], scores.loc["exposure, nobody walks"]
    assert city["turned_away"] > 1000
    assert 0.2 < city["walked_on"] / city["turned_away"] < 0.7
    assert abs(city["bias"]) < 0.1
    assert city["walked_on_found"] == pytest.approx(city["walked_on"], rel=0.25)
    assert abs(city["received_bias"]) < 0.08
    assert islands["walked_on_found"] == 0
    assert islands["received_bias"] > city["received_bias"] + 0.05
    assert set(scores.index) == {"exposure", "exposure, nobody walks", "local-factor", "city-factor"}


def test_shares_and_panels_that_cannot_be_cut_are_refused(panel) -> None:
    rows, places = panel
    with pytest.raises(InputError, match="above 0 and below 1"):
        cut_stock(rows, share=1.0)
    with pytest.raises(InputError, match="need 8 zones or more"):
        cut_stock(rows[rows["zone"] < "z5"], places=places)
