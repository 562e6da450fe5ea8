"""`unmet backtest` as a person at a terminal meets it."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest
from known_city import known_panel
from typer.testing import CliRunner

from unmet import cli
from unmet._storage.parquet import read_parquet, write_parquet
from unmet.engines import ENGINES
from unmet.execution import serially
from unmet.mobility.backtest import compare as module
from unmet.mobility.backtest.output import FILES
from unmet.mobility.panel import write_panel
from unmet.simulate import simulate_city

FAST = "weekly-mean,observed"


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Worker processes have tests of their own; here they would only take time."""
    monkeypatch.setitem(ENGINES, "processes", serially)


@pytest.fixture
def panel(tmp_path) -> Path:
    write_parquet(known_panel(zones=2, days=28), tmp_path / "panel.parquet")
    return tmp_path / "panel.parquet"


def invoke(panel: Path, out: Path, *options: str):
    arguments = ["backtest", str(panel), "--out", str(out), "--models", FAST, "--draws", "50", *options]
    return CliRunner(env={"COLUMNS": "140"}).invoke(cli.app, arguments)


def run_main(monkeypatch, *arguments: str) -> int | str | None:
    """The program as installed, errors turned into messages and exit codes."""
    monkeypatch.setattr(sys, "argv", ["unmet", "backtest", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_from_a_simulated_city_to_the_table(tmp_path):
    city = simulate_city(stations=3, days=28, seed=5, fleet_share=0.25).save(tmp_path / "city")
    files = {
        name: city / f"{name}.{end}" for name, end in (("trips", "parquet"), ("status", "parquet"), ("stations", "csv"))
    }
    write_panel(tmp_path / "panel.parquet", **files, timezone="America/New_York")
    result = invoke(tmp_path / "panel.parquet", tmp_path / "out", "--weather", str(city / "weather.csv"))
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(FILES)
    scores = read_parquet(tmp_path / "out" / "scores.parquet")
    assert scores.columns.tolist() == ["zone", "model", "task", "subset", "metric", "value"]
    assert scores["zone"].nunique() == 3
    summary = pd.read_csv(tmp_path / "out" / "summary.csv")
    bias = summary.query("task == 'replay' and subset == 'all' and metric == 'bias'").set_index("model")["value"]
    assert bias["observed"] < -0.2
    assert abs(bias["weekly-mean"]) < 0.1
    for title in ("Held-out weeks", "Replay with supply cut"):
        assert title in result.stdout
        assert title in (tmp_path / "out" / "backtest.md").read_text()
    assert f"{100 * bias['observed']:+.1f}" in result.stdout


def test_a_zone_that_cannot_be_tried_shows_with_its_reason_and_exit_code_1(tmp_path):
    panel = known_panel(zones=3, days=28)
    where = panel["zone"] == "z1"
    panel["zone"] = panel["zone"].replace("z1", "[bold]z1")
    panel.loc[where, ["exposure", "available_minutes", "stockout_minutes", "observed"]] = 0
    panel.loc[where, "closed_minutes"] = 60
    write_parquet(panel, tmp_path / "panel.parquet")
    result = invoke(tmp_path / "panel.parquet", tmp_path / "out")
    assert result.exit_code == 1, result.output
    assert "4 of 12 fits failed" in result.stdout
    assert "[bold]z1" in result.stdout  # a name, not markup
    assert "of 2 zones" in result.stdout
    assert read_parquet(tmp_path / "out" / "fits.parquet")["reason"].notna().sum() == 4


def test_quiet_prints_nothing(panel, tmp_path):
    result = invoke(panel, tmp_path / "out", "--quiet", "--tasks", "replay")
    assert result.exit_code == 0
    assert result.output == ""
    assert (tmp_path / "out" / "backtest.md").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--models", "magic"], "no model 'magic'"),
        (["--tasks", "guess"], "no task 'guess'"),
        (["--share", "0.9", "--folds", "2"], "may not exceed 1"),
        (["--weather", "nowhere.csv", "--timezone", "UTC"], "no such file"),
    ],
)
def test_what_makes_no_sense_is_explained_with_exit_code_2(panel, tmp_path, monkeypatch, capsys, options, said):
    assert run_main(monkeypatch, str(panel), "--out", str(tmp_path / "out"), *options) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_what_was_there_stays_when_a_backtest_fails(panel, tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "backtest.md").write_text("before")

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "backtest", interrupted)
    assert invoke(panel, tmp_path / "out").exit_code != 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["backtest.md"]
    assert (tmp_path / "out" / "backtest.md").read_text() == "before"


def test_a_folder_that_cannot_be_written_is_exit_code_2_before_any_work(panel, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "backtest", None)
    (tmp_path / "file").write_text("")
    assert run_main(monkeypatch, str(panel), "--out", str(tmp_path / "file" / "out")) == 2
    assert "cannot be written" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_hidden_hours_and_cut_stock_are_scored_against_two_baselines(tmp_path):
    city = simulate_city(stations=8, days=21, seed=3)
    path = tmp_path / "city.parquet"
    write_panel(path, city.trips, city.status, city.stations, timezone=city.settings.timezone)
    result = CliRunner().invoke(
        cli.app, ["backtest", str(path), "--out", str(tmp_path / "out"), "--hide", "hours", "--draws", "50"]
    )
    assert result.exit_code == 0, result.output
    scores = pd.read_csv(tmp_path / "out" / "hidden_hours.csv").set_index("model")
    assert list(scores.index) == ["exposure", "local-factor", "city-factor"]
    assert scores["rows"].nunique() == 1
    assert f"{int(scores['rows'].iloc[0]):,} hidden hours" in result.stdout
    assert scores["crps"].idxmin() == "exposure"
    assert abs(scores.loc["exposure", "bias"]) < 0.15
    result = CliRunner().invoke(cli.app, ["backtest", str(path), "--out", str(tmp_path / "out"), "--hide", "stock"])
    assert result.exit_code == 0, result.output
    scores = pd.read_csv(tmp_path / "out" / "cut_stock.csv").set_index("model")
    assert f"{scores['turned_away'].iloc[0]:,.0f} riders turned away" in result.stdout
    assert abs(scores.loc["exposure", "bias"]) < 0.15


def test_something_else_to_hide_is_refused(panel, tmp_path, monkeypatch, capsys):
    assert run_main(monkeypatch, str(panel), "--out", str(tmp_path / "out"), "--hide", "days") == 2
    assert "hide: expected weeks, hours or stock, got 'days'" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--hide", "hours", "--share", "0.1"], "--share: has no effect with --hide hours"),
        (["--hide", "stock", "--draws", "90"], "--draws: has no effect with --hide stock"),
        (["--decisions", "--weather", "w.csv"], "--weather: has no effect with --decisions"),
        (["--days", "3"], "--days: has no effect without --decisions"),
    ],
)
def test_options_that_would_be_ignored_are_refused(tmp_path, given, said):
    result = CliRunner().invoke(cli.app, ["backtest", "panel.parquet", "--out", str(tmp_path / "b"), *given])
    assert said in str(result.exception)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (["--models", FAST], "summary.csv"),
        (["--hide", "hours"], "hidden_hours.csv"),
        (["--hide", "stock"], "cut_stock.csv"),
        (["--decisions"], "decisions.csv"),
    ],
)
def test_a_folder_in_the_place_of_a_result_is_refused_before_the_work(panel, tmp_path, options, name):
    (tmp_path / "out" / name).mkdir(parents=True)
    given = tmp_path / "no such city" if "--decisions" in options else panel
    result = CliRunner().invoke(cli.app, ["backtest", str(given), "--out", str(tmp_path / "out"), *options])
    assert f"{name}: this folder is in the place of a result" in str(result.exception)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name]
    assert not any((tmp_path / "out" / name).iterdir())


def test_a_city_that_cannot_be_read_leaves_no_folder(tmp_path):
    result = CliRunner().invoke(cli.app, ["backtest", "no city", "--out", str(tmp_path / "out"), "--decisions"])
    assert result.exception is not None
    assert not (tmp_path / "out").exists()
