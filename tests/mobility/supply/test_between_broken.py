"""The hidden number of broken vehicles where looks are far apart, against sums over all sequences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from unmet.mobility.supply.between_broken import (
    STATES,
    Breaking,
    Looks,
    bridge_looks,
    find_pairs,
    learn_breaking,
    log_likelihood,
    time_without,
)
from unmet.mobility.supply.between_broken import _start as start
from unmet.mobility.supply.between_broken import _transitions as transitions

BREAKING = Breaking(0.02, 1e-3)


def some_looks(seed: int, number: int) -> Looks:
    """Looks at one or more stations that list few vehicles."""
    rng = np.random.default_rng(seed)
    listed = rng.integers(0, 5, number + 1)
    begins = np.append(True, rng.random(number - 1) < 0.2)
    first = np.where(begins, rng.integers(0, 5, number), listed[:-1])
    rate = rng.uniform(0.2, 3.0, (2, number))
    return Looks(begins, np.full(number, 30.0), *rate, first, listed[1:], rng.random(number) < 0.1)


@pytest.mark.parametrize("number", [1, 2, 3, 5, 6])
def test_sums_over_all_sequences(number):
    looks = some_looks(number, number)
    bridged = bridge_looks(looks)
    table, begin = transitions(looks, bridged.probability, BREAKING), start(looks, BREAKING)
    total, both = 0.0, np.zeros((number, STATES, STATES))
    runs = np.split(np.arange(number), np.flatnonzero(looks.begins)[1:])
    log_total = 0.0
    for run in runs:
        total = 0.0
        part = np.zeros((len(run), STATES, STATES))
        for path in itertools.product(range(STATES), repeat=len(run) + 1):
            weight = begin[run[0], path[0]] * np.prod([table[i, path[t], path[t + 1]] for t, i in enumerate(run)])
            total += weight
            for t in range(len(run)):
                part[t, path[t], path[t + 1]] += weight
        both[run] = part / total
        log_total += np.log(total)
    assert find_pairs(bridged, BREAKING) == pytest.approx(both, abs=1e-12)
    assert log_likelihood(bridged, BREAKING) == pytest.approx(log_total, rel=1e-10)


def test_a_long_record_is_that_of_its_parts():
    """Many blocks, worked on side by side, against one station after the other."""
    parts = [some_looks(seed, 40) for seed in range(12)]
    names = Looks.__dataclass_fields__
    whole = Looks(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
    together = time_without(whole, BREAKING)
    apart = [time_without(part, BREAKING) for part in parts]
    for name in ("share", "riders", "broken", "some", "number"):
        each = np.concatenate([getattr(part, name) for part in apart])
        assert getattr(together, name) == pytest.approx(each, abs=1e-10)


def test_a_vehicle_that_nobody_takes_is_broken():
    """One vehicle for twelve hours, though two riders an hour come; and one for an hour."""
    number = 24
    one = np.ones(number, dtype=np.int64)
    looks = Looks(np.arange(number) == 0, 30.0 * one, 1.0 * one, 0.05 * one, one, one, one < 0)
    long = time_without(looks, BREAKING)
    assert long.share[1:-1].min() > 0.95
    assert long.riders[12] + long.broken[12] < 0.02
    assert long.some[-1] > 0.95
    assert long.number[-1] == pytest.approx(1.0, abs=0.05)
    short = time_without(looks.select(slice(2)), BREAKING)
    assert short.share.max() < 0.5
    assert short.broken.max() > 0.05


def test_parameters_are_found_again():
    rng = np.random.default_rng(4)
    truth = Breaking(0.02, 1e-3)
    number, minutes, taken, brought = 30_000, 30.0, 0.9, 0.75
    listed, sound, broken = [2], 2, 0
    for _ in range(number):
        for is_brought in rng.random(rng.poisson(taken + brought)) < brought / (taken + brought):
            sound = sound + 1 if is_brought else max(sound - 1, 0)
        if broken and rng.random() < -np.expm1(-truth.mended * minutes):
            sound, broken = sound + broken * (rng.random() < 0.5), 0
        broken = min(broken + rng.poisson(truth.breakage * brought), STATES - 1)
        listed.append(sound + broken)
    first, second = np.array(listed[:-1]), np.array(listed[1:])
    rates = (np.full(number, value) for value in (minutes, taken, brought))
    found = learn_breaking(bridge_looks(Looks(np.arange(number) == 0, *rates, first, second, second < 0)))
    assert found is not None
    assert found.breakage == pytest.approx(truth.breakage, rel=0.3)
    assert found.mended == pytest.approx(truth.mended, rel=0.3)


def test_a_sample_is_spread_over_the_record():
    number = 10_000
    one = np.ones(number)
    looks = Looks(np.arange(number) == 0, np.arange(number) / 1.0, one, one, 3 * one, 3 * one, one < 0)
    sample = looks.thin(2_000)
    assert len(sample.minutes) == 2_000
    assert sample.minutes.min() < 2_500
    assert sample.minutes.max() > 7_500
    assert sample.begins.sum() == 4  # stretches of 500
    whole = looks.thin(20_000)
    assert len(whole.minutes) == number
