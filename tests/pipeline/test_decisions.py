"""Decisions of models, acted on in a simulated city."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from typer.testing import CliRunner

from unmet import InputError
from unmet.cli import app
from unmet.execution import serially
from unmet.pipeline.decisions import DecisionTest, compare_decisions
from unmet.pipeline.worlds import simulated_world
from unmet.simulate import ride_day, simulate_city


@pytest.mark.slow
def test_plans_of_all_models_meet_the_same_riders_and_turn_fewer_away(tmp_path):
    city = simulate_city(4, 23, seed=3)
    folder, out = city.save(tmp_path / "city"), tmp_path / "out"
    models = ["observed-mean", "weekly-mean"]
    arguments = ["backtest", str(folder), "--out", str(out), "--decisions", "--days", "2", "--draws", "20"]
    result = CliRunner().invoke(app, [*arguments, "--models", ",".join(models), "--jobs", "1"])
    assert result.exit_code == 0, result.output
    assert "observed-mean" in result.output
    days = pd.read_csv(out / "decisions.csv")
    assert set(days["model"]) == {*models, "none"}
    assert (days.groupby("day")["wanted"].nunique() == 1).all()
    total = pd.read_csv(out / "decisions_summary.csv").set_index("model")
    assert total["turned_away"]["weekly-mean"] < total["turned_away"]["none"]
    assert total["accuracy_error"].drop("none").between(0.01, 1).all()
    with pytest.raises(InputError, match="two weeks remain"):
        compare_decisions(city, held_out=12)
    world = simulated_world(city)
    with pytest.raises(InputError, match="repeats"):
        compare_decisions(replace(world, outcome_again=None), repeats=1)
    # Ridden again, the counts are means over the day of the records and the others.
    again = compare_decisions(city, models=(), held_out=1, repeats=3).days.iloc[0]
    outcomes = [ride_day(city.settings, again["day"], world.levels(again["day"]).tolist(), k) for k in range(4)]
    for name in ("turned_away", "no_bike", "no_dock", "lost", "wanted"):
        assert again[name] == pytest.approx(sum(getattr(outcome, name) for outcome in outcomes) / 4), name


def test_a_model_that_is_named_twice_counts_once():
    """The riders that it turned away were counted twice."""
    city = simulate_city(3, 17, seed=3)
    more = {"held_out": 1, "draws": 20, "jobs": 1, "executor": serially}
    once, twice = (compare_decisions(city, models=["weekly-mean"] * n, **more).summary() for n in (1, 2))
    pd.testing.assert_frame_equal(once, twice)


@pytest.mark.parametrize(
    "options",
    [{"held_out": 1.5}, {"held_out": True}, {"moves_share": float("nan")}, {"moves_share": 2.0}, {"repeats": 1.5}],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(InputError, match=f"^{next(iter(options))}: expected"):
        compare_decisions(simulate_city(2, 22, seed=3), models=(), **options)


def test_the_summary_compares_with_observed_trips_and_with_the_promise(tmp_path):
    rows = {"day": "2024-01-01", "moves": 1, "error": 3.0, "no_bike": 1, "no_dock": 1, "lost": 1, "wanted": 9}
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
