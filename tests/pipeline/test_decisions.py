"""Decisions of models, acted on in a simulated city."""

from __future__ import annotations

import pandas as pd
import pytest

from unmet import InputError
from unmet.execution import serially
from unmet.pipeline.decisions import DecisionTest, compare_decisions
from unmet.simulate import simulate_city


def test_plans_of_all_models_meet_the_same_riders_and_turn_fewer_away():
    city = simulate_city(4, 23, seed=3)
    models = ["observed-mean", "weekly-mean"]
    found = compare_decisions(city, models=models, held_out=2, draws=20, executor=serially)
    assert set(found.days["model"]) == {*models, "none"}
    assert (found.days.groupby("day")["wanted"].nunique() == 1).all()
    total = found.summary().set_index("model")["turned_away"]
    assert total["weekly-mean"] < total["none"]
    with pytest.raises(InputError, match="two weeks remain"):
        compare_decisions(city, held_out=12)


def test_the_summary_compares_with_observed_trips_and_with_the_promise(tmp_path):
    rows = {"day": "2024-01-01", "moves": 1, "no_bike": 1, "no_dock": 1, "lost": 1, "wanted": 9}
    days = pd.DataFrame(
        [
            {**rows, "model": "observed-mean", "promised": 5.0, "turned_away": 10},
            {**rows, "model": "exposure", "promised": 9.0, "turned_away": 8},
        ]
    )
    test = DecisionTest(days)
    summary = test.summary().set_index("model")
    assert summary["against_observed"].tolist() == [1.0, 0.8]
    assert summary["promise"].tolist() == [0.5, 1.125]
    test.save(tmp_path / "out")
    assert len(pd.read_csv(tmp_path / "out" / "decisions.csv")) == 2
