"""Hours in which a whole city was busier or quieter than usual."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from unmet.mobility.supply.between_broken import Looks
from unmet.mobility.supply.city_hours import _chain as chain
from unmet.mobility.supply.city_hours import _filter as filtered
from unmet.mobility.supply.city_hours import _smooth as smooth
from unmet.mobility.supply.city_hours import find_city_hours


def looks_at(city: np.ndarray, stations: int, rng: np.random.Generator) -> tuple[Looks, np.ndarray]:
    """Ten-minute looks at stations with many vehicles, in a city that is as busy as given in each hour."""
    hour = np.tile(np.repeat(np.arange(len(city)), 6), stations)
    mean = rng.uniform(0.2, 0.8, len(hour))
    change = rng.poisson(mean * city[hour]) - rng.poisson(mean * city[hour])
    first = np.full(len(hour), 12)
    return Looks(hour == 0, np.full(len(hour), 10.0), mean, mean, first, first + change, hour < 0), hour


def test_a_storm_and_a_fine_day_are_found():
    rng = np.random.default_rng(1)
    city = np.ones(96)
    city[24:34], city[60:84] = 0.3, 1.8
    looks, hour = looks_at(city, 20, rng)
    found = find_city_hours(looks, hour, len(city))
    assert np.sqrt(np.mean(np.log(found / city) ** 2)) < 0.2
    assert found[26:32].mean() == pytest.approx(0.3, abs=0.1)
    assert found[62:82].mean() == pytest.approx(1.8, rel=0.1)


def test_nothing_is_found_where_nothing_is():
    looks, hour = looks_at(np.ones(48), 3, np.random.default_rng(2))
    assert find_city_hours(looks, hour, 48) == pytest.approx(1.0, abs=0.12)
    none = looks.select(hour < 0)
    assert find_city_hours(none, hour[hour < 0], 48) == pytest.approx(1.0, abs=0.02)  # the mean of the prior


def test_vans_do_not_make_a_city_busy():
    looks, hour = looks_at(np.ones(48), 10, np.random.default_rng(3))
    looks.second[::7] -= 8
    assert find_city_hours(looks, hour, 48).mean() == pytest.approx(1.0, abs=0.1)


def test_sums_over_all_sequences():
    rng = np.random.default_rng(4)
    start, table = (values[:5] for values in chain(0.4, 4.0))
    start, table = start / start.sum(), table[:, :5] / table[:, :5].sum(axis=1, keepdims=True)
    likelihood = rng.normal(size=(4, 5))
    weights, of = [], list(itertools.product(range(5), repeat=4))
    for path in of:
        steps = np.prod([table[a, b] for a, b in itertools.pairwise(path)])
        weights.append(start[path[0]] * steps * np.exp(sum(likelihood[t, v] for t, v in enumerate(path))))
    total = sum(weights)
    each = np.array(
        [[sum(w for w, p in zip(weights, of, strict=True) if p[t] == v) for v in range(5)] for t in range(4)]
    )
    assert filtered(likelihood, start, table)[1] == pytest.approx(np.log(total), rel=1e-10)
    assert smooth(likelihood, start, table) == pytest.approx(each / total, abs=1e-12)
