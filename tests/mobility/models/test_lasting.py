from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from unmet import InputError
from unmet.mobility.models.joint import join_city
from unmet.mobility.models.lasting import USUAL_LASTING, learn_lasting, split_spread
from unmet.mobility.models.walking import NO_WALKING
from unmet.mobility.models.zone_data import zone_data

CELLS = 12


def counts(seed: int, *, lasts: float, halves: float, zones: int = 20, bins: int = 1500):
    """Pickups of the first half and of the whole of bins, with gamma factors of the whole bin and of each half."""
    rng = np.random.default_rng(seed)
    cell = np.arange(zones)[:, None] * CELLS + np.arange(bins) % CELLS
    chance = rng.uniform(0.3, 0.7, zones * CELLS)[cell]
    rate = rng.uniform(0.5, 6, zones * CELLS)[cell] * np.exp(0.3 * rng.standard_normal(bins))

    def factor(variance: float) -> np.ndarray:
        return rng.gamma(1 / variance, variance, cell.shape) if variance else np.ones(cell.shape)

    both = rate * factor(lasts)
    first, rest = (rng.poisson(both * share * factor(halves)) for share in (chance, 1 - chance))
    return first.astype(float), (first + rest).astype(float), cell


def test_nothing_is_found_where_all_lasts_however_the_chance_of_the_first_half_differs() -> None:
    found = np.array([split_spread(*counts(seed, lasts=0.3, halves=0)) for seed in range(20)])
    z = found[:, 0] / found[:, 1]
    assert abs(z.mean()) < 3 / np.sqrt(20)
    assert 0.6 < z.std() < 1.4  # the standard error is that of chance


@pytest.mark.parametrize("variance", [0.1, 0.4])
def test_the_spread_of_halves_is_found_whatever_lasts(variance: float) -> None:
    for lasts in (0.0, 0.3):
        found = np.array([split_spread(*counts(seed, lasts=lasts, halves=variance)) for seed in range(5)])
        chance = 3 * found[:, 1].mean() / np.sqrt(5)
        assert found[:, 0].mean() == pytest.approx(variance / 2, abs=chance + 0.02 * variance)


def test_pairs_of_riders_are_compared_as_by_hand() -> None:
    first, whole, cell = counts(3, lasts=0.2, halves=0.5, zones=1, bins=2 * CELLS)
    first[0, 0] = np.nan
    riders = [
        (cell[0, b], b, side)
        for b in range(1, 2 * CELLS)
        for side, number in ((0, first[0, b]), (1, whole[0, b] - first[0, b]))
        for _ in range(int(number))
    ]
    excess = scale = 0.0
    for c in range(CELLS):
        of_cell = [rider for rider in riders if rider[0] == c]
        inside = [(one[1] == two[1], one[2] == two[2]) for one, two in combinations(of_cell, 2)]
        apart = [alike for same_bin, alike in inside if not same_bin]
        if apart:
            alike = np.mean(apart)
            excess += sum(same - alike for same_bin, same in inside if same_bin)
            scale += sum(1 - alike for same_bin, _ in inside if same_bin)
    together = excess / scale
    assert split_spread(first, whole, cell)[0] == pytest.approx(together / (1 - together), rel=1e-12)


@pytest.mark.parametrize(("lasts", "halves"), [(0.2, 0.0), (0.1, 0.2), (0.0, 0.4)])
def test_the_part_that_lasts_is_learnt(lasts: float, halves: float) -> None:
    first, whole, cell = counts(1, lasts=lasts, halves=halves, bins=8000)
    truth = lasts / (lasts + halves / 2)
    found = learn_lasting(first, whole, np.ones(whole.shape), cell, lasts + halves / 2)
    assert found == pytest.approx(truth, abs=0.06)


def test_records_that_say_little_leave_what_is_usual() -> None:
    first, whole, cell = counts(1, lasts=0.1, halves=0.0, zones=2, bins=60)
    full = np.ones(whole.shape)
    unknown = np.full(whole.shape, np.nan)
    assert learn_lasting(unknown, whole, full, cell, 0.1) == USUAL_LASTING
    assert learn_lasting(first, whole, 0.9 * full, cell, 0.1) == USUAL_LASTING  # a part of each bin is hidden
    assert learn_lasting(first, whole, full, cell, 1e-4) == pytest.approx(USUAL_LASTING, abs=0.01)
    with_hidden = np.where(np.arange(60) < 30, 1.0, 0.5)[None] * full
    kept = learn_lasting(first[:, :30], whole[:, :30], full[:, :30], cell[:, :30], 0.1)
    assert learn_lasting(first, whole, with_hidden, cell, 0.1) == kept


def test_the_city_as_one_learns_it_from_its_stocked_bins() -> None:
    from tests.mobility.models.test_joint import simulated

    table, *_ = simulated(2, bins=1500, walking=NO_WALKING)
    rng = np.random.default_rng(5)
    observed = rng.poisson(table.observed * rng.gamma(5, 1 / 5, table.observed.shape)).astype(float)
    alike = replace(table, observed=observed, early=rng.binomial(observed.astype(int), 0.5).astype(float))
    lasting = join_city(alike, draws=2, walking=NO_WALKING).lasting
    assert lasting > 0.9
    none = replace(alike, early=np.full(observed.shape, np.nan))
    assert join_city(none, draws=2, walking=NO_WALKING).lasting == USUAL_LASTING


def test_more_pickups_in_a_half_than_in_the_bin_are_refused() -> None:
    rows = pd.DataFrame(
        {
            "zone": "a",
            "start": pd.date_range("2024-01-01", periods=3, freq="h", tz="UTC"),
            "start_local": pd.date_range("2024-01-01", periods=3, freq="h"),
            "minutes": 60,
            "observed": [2.0, 3.0, np.nan],
            "observed_early": [2.0, 4.0, np.nan],
            "exposure": 1.0,
            "censored": False,
            "available_minutes": 60,
            "stockout_minutes": 0,
            "closed_minutes": 0,
            "unknown_minutes": 0,
        }
    )
    with pytest.raises(InputError, match=r"observed_early must be 0 to observed, or missing; 1 bins differ"):
        zone_data(rows)
    rows.loc[1, "observed_early"] = 3.0
    assert zone_data(rows).early[:2].tolist() == [2.0, 3.0]
