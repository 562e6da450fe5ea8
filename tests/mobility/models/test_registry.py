"""Records of demand models, and a model of one's own in a run, a backtest and a report."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from known_city import known_panel, oracle
from typer.testing import CliRunner

from unmet import InputError
from unmet._storage.parquet import write_parquet
from unmet.cli import app
from unmet.execution import in_processes, serially
from unmet.mobility.backtest import backtest
from unmet.mobility.demand import DemandModel, LatentDemand
from unmet.mobility.models.registry import COMPARED_MODELS, DEFAULT_MODEL, MODELS, ZoneModel, find_model
from unmet.mobility.models.zone_data import zone_data
from unmet.report.source import open_run
from unmet.report.words import assumptions, model_facts

ORACLE = ZoneModel("oracle", oracle, "Knows the truth.", uses_covariates=False, supply="labels")


def few_stock_outs(days: int) -> pd.DataFrame:
    """A zone without stock-outs but on its third day: a linear Tobit model has no maximum if an hour has only those."""
    panel = known_panel(zones=1, days=days)
    stocked = np.arange(len(panel)) // 24 != 2
    panel.loc[stocked, "available_minutes"] = panel["minutes"]
    panel.loc[stocked, "stockout_minutes"] = 0
    panel.loc[stocked, "exposure"] = 1.0
    panel.loc[stocked, "censored"] = False
    return panel


@pytest.mark.parametrize("name", MODELS)
def test_every_record_describes_and_loads_its_model(name):
    record = MODELS[name]
    assert record.name == name
    assert record.sentence.endswith(".")
    rates = record(zone_data(few_stock_outs(days=21)), 20, 0)
    assert rates.lost.shape == (20, 21 * 24)
    assert np.isfinite(rates.mean).all()


def test_the_defaults_are_models_and_only_the_default_model_uses_the_city():
    assert set(COMPARED_MODELS) <= set(MODELS)
    assert [name for name, record in MODELS.items() if record.uses_city] == [DEFAULT_MODEL]


@pytest.mark.parametrize("command", ["run", "estimate", "backtest"])
def test_the_help_names_every_model(command):
    words = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300"}).output
    assert all(name in words for name in MODELS)


def test_names_and_records_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="no model 'magic'; expected one of exposure"):
        find_model("magic")
    with pytest.raises(InputError, match="'cgp' is the name of a built-in model"):
        LatentDemand(replace(ORACLE, name="cgp"))
    with pytest.raises(InputError, match="expected a name"):
        find_model(replace(ORACLE, name=""))
    with pytest.raises(InputError, match="expected that of the record, 'oracle'; got 'truth'"):
        DemandModel("truth", record=ORACLE)
    assert find_model(MODELS["cgp"]) is MODELS["cgp"]


@pytest.mark.slow
@pytest.mark.parametrize("draws", [19, 10_001, 10**20])
def test_draws_that_give_no_interval_or_do_not_fit_in_memory_are_refused(draws):
    with pytest.raises(InputError, match="draws: expected 20 to 10,000"):
        DemandModel(draws=draws)


def test_a_negative_seed_is_refused_before_any_zone_is_estimated():
    with pytest.raises(InputError, match="seed: expected a whole number of at least 0, got -1"):
        DemandModel(seed=-1)


def test_a_model_of_ones_own_runs_in_processes_and_is_in_the_report(tmp_path):
    panel = known_panel(zones=2, days=21)
    write_parquet(panel, tmp_path / "panel.parquet")
    model = LatentDemand(ORACLE, draws=20, holidays="US")
    result = model.fit(tmp_path / "panel.parquet", tmp_path / "run", jobs=2, executor=in_processes)
    assert not result.failures
    assert set(result.zones["model"]) == {"oracle"}
    assert result.info["inputs"]["model"] == {
        "name": "oracle", "draws": 20, "seed": 0, "function": "known_city:oracle",
    }  # fmt: skip
    with open_run(tmp_path / "run") as source:
        facts = dict(map(tuple, model_facts(source)))
        assert facts["Model"] == "oracle: Knows the truth."
        assert "not used by this model" in facts["Holidays"]
        assert any("which bins had a stock-out" in line for line in assumptions(source))


def test_a_model_of_ones_own_is_backtested_beside_others():
    panel = known_panel(zones=2, days=42)
    done = backtest(panel, [ORACLE, "weekly-mean"], tasks=["replay"], draws=50, executor=serially)
    named = backtest(panel, {"oracle": oracle}, tasks=["replay"], draws=50, executor=serially)
    assert list(done.summary["model"].unique()) == ["oracle", "weekly-mean"]
    ours = done.scores[done.scores["model"] == "oracle"].reset_index(drop=True)
    assert ours.equals(named.scores.reset_index(drop=True))
