"""Minutes beside empty zones, against a count minute by minute."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from unmet.mobility.supply.beside import metres_between, minutes_beside
from unmet.mobility.supply.spells import Override, Spells
from unmet.mobility.supply.states import EMPTY, STANDSTILL, VEHICLES

LAST = 600
EDGES = np.arange(30, 571, 60)


def random_city(seed: int, zones: int = 5) -> tuple[Spells, np.ndarray]:
    """Spells that change state every twenty minutes or so, with holes; and the same minute by minute."""
    rng = np.random.default_rng(seed)
    rows, minutes = [], np.full((zones, LAST), -1)
    for zone in range(zones):
        cuts = np.unique(np.concatenate([[0, LAST], rng.integers(1, LAST, 30)]))
        for begin, end in itertools.pairwise(cuts):
            reason = rng.choice([VEHICLES, EMPTY, -1])
            if reason >= 0:
                rows.append((zone, begin, end, reason, 1))
                minutes[zone, begin:end] = reason
    return Spells(*np.array(rows).T), minutes


@pytest.mark.parametrize("seed", range(5))
def test_minutes_equal_a_count_of_single_minutes(seed: int) -> None:
    spells, minutes = random_city(seed)
    overrides = [Override(100, 130, STANDSTILL), Override(350, 351, STANDSTILL)]
    for o in overrides:
        minutes[:, o.begin : o.end] = -1
    rng = np.random.default_rng([seed, 1])
    place = rng.uniform(0, 800, (5, 2))
    metres = np.hypot(*np.subtract.outer(place, place).transpose(1, 3, 0, 2)[[0, 1], [0, 1]])
    metres[4] = metres[:, 4] = np.nan
    got = minutes_beside(spells, EDGES, overrides, metres, 500.0)
    expected = {}
    for b, (low, high) in enumerate(itertools.pairwise(EDGES)):
        for i in range(5):
            out = minutes[i, low:high] == EMPTY
            for j in range(5):
                if i != j and metres[i, j] <= 500 and out.any():
                    expected[i, b, j] = (out.sum(), (out & (minutes[j, low:high] == VEHICLES)).sum())
    found = {
        (i, b, j): (o, m)
        for i, b, j, o, m in zip(got.source, got.bin, got.target, got.out_minutes, got.both_minutes, strict=True)
    }
    assert found == expected
    keys = list(zip(got.source, got.bin, got.metres, strict=True))
    assert keys == sorted(keys)


def test_nobody_out_gives_no_rows() -> None:
    one = np.array([0])
    spells = Spells(one, one, one + 100, np.array([VEHICLES]), one)
    assert len(minutes_beside(spells, EDGES, [], np.array([[0.0, 10.0], [10.0, 0.0]]), 500.0).source) == 0


def test_distances_are_those_of_the_globe() -> None:
    metres = metres_between(np.array([40.0, 41.0, np.nan]), np.array([-74.0, -74.0, -74.0]))
    assert metres[0, 1] == pytest.approx(111_195, rel=1e-3)
    assert metres[0, 0] == 0
    assert np.isnan(metres[0, 2])
