"""Hidden hours of a city in which riders walk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_joint import simulated

from unmet import InputError
from unmet.mobility.backtest.hours import compare_hidden


def test_riders_who_walk_to_a_hidden_hour_are_expected_there():
    table, _, _, walkers = simulated(3, zones=10, bins=800)
    beside_empty = (table.exposure == 1) & (walkers > 0.7)
    hidden = beside_empty & (np.random.default_rng(5).random(walkers.shape) < 0.3)
    assert walkers[hidden].sum() > 0.2 * table.observed[hidden].sum()
    trial = replace(
        table, observed=np.where(hidden, np.nan, table.observed), exposure=np.where(hidden, 0.0, table.exposure)
    )
    scores = compare_hidden(trial, table.observed, hidden, draws=50, seed=0).set_index("model")
    assert scores.loc["exposure", "bias"] == pytest.approx(0.0, abs=0.08)


def test_hidden_hours_without_a_pickup_cannot_be_scored():
    table, *_ = simulated(3, zones=4, bins=50)
    hidden = table.exposure == 1
    with pytest.raises(InputError, match="There is no pickup in the hidden hours"):
        compare_hidden(table, np.zeros(hidden.shape), hidden, draws=20, seed=0)
