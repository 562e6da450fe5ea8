"""`unmet estimate` as a person at a terminal meets it."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pandas as pd
import pytest
from toy_model import toy_panel
from typer.testing import CliRunner

from unmet import InputError, cli
from unmet._storage.parquet import read_parquet, write_parquet
from unmet.engines import ENGINES
from unmet.execution import serially
from unmet.mobility.demand import LatentDemand
from unmet.mobility.runs import run as runs

PANEL = toy_panel(zones=7)


@pytest.fixture
def panel(tmp_path) -> Path:
    write_parquet(PANEL, tmp_path / "panel.parquet")
    return tmp_path / "panel.parquet"


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Worker processes have tests of their own; here they would only take time."""
    monkeypatch.setitem(ENGINES, "processes", serially)


def invoke(panel: Path, out: Path, *options: str):
    return CliRunner().invoke(
        cli.app,
        ["estimate", str(panel), "--out", str(out), "--model", "weekly-mean", "--draws", "50", *options],
    )


def run_main(monkeypatch, *arguments: str) -> int | str | None:
    """The program as installed, errors turned into messages and exit codes."""
    monkeypatch.setattr(sys, "argv", ["unmet", "estimate", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_it_writes_the_tables_and_prints_what_was_lost(panel, tmp_path):
    result = invoke(panel, tmp_path / "run")
    assert result.exit_code == 0, result.output
    zones = read_parquet(tmp_path / "run" / "zones.parquet")
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert told["inputs"]["model"] == {"name": "weekly-mean", "draws": 50, "seed": 0}
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("│ lost "))
    lost = told["totals"]["lost"]
    low, mean, high = (f"{math.floor(lost[q] + 0.5):,}" for q in ("q05", "mean", "q95"))  # halves up, as on the page
    assert mean in line
    assert f"{low} – {high}" in line
    shown = [line.split("│")[1].strip() for line in result.stdout.splitlines() if line.startswith("│ z")]
    assert shown == list(zones.nlargest(5, "lost_mean")["zone"])
    assert "hours out of stock" in result.stdout


def test_weather_and_holidays_reach_the_model(panel, tmp_path, monkeypatch):
    seen = []
    estimate = runs.estimate_zone

    def looking(rows, model):
        seen.append(rows)
        return estimate(rows, model)

    monkeypatch.setattr(runs, "estimate_zone", looking)
    hours = pd.date_range("2021-11-01 04:00", periods=24 * 9 - 3, freq="h")
    weather = pd.DataFrame({"time": hours.strftime("%Y-%m-%dT%H:%M:%SZ"), "temperature": range(len(hours))})
    weather["moon"] = weather["temperature"] % 28
    weather.to_csv(tmp_path / "w.csv", index=False)
    options = ["--weather", str(tmp_path / "w.csv"), "--timezone", "America/New_York", "--holidays", "US"]
    options += ["--weather-columns", "temperature,"]
    result = invoke(panel, tmp_path / "run", *options, "--horizon", "1d")
    assert result.exit_code == 0, result.output
    assert "No temperature for 26 bins" in result.output  # two of the panel, and a day beyond it
    assert seen[0]["future"].sum() == 24
    rows = seen[0][~seen[0]["future"]]
    assert rows["temperature"].iloc[:-3].tolist() == list(range(len(hours)))
    assert rows["temperature"].iloc[-3] == len(hours) - 1  # a reading holds until the next is due
    assert seen[0]["weather_usual"].tolist() == [False] * (len(rows) - 2) + [True] * 26
    assert seen[0]["temperature"].between(0, len(hours) - 1).all()  # the usual one of the season and hour
    assert not rows["holiday"].any()  # Veterans Day is two days later
    assert "moon" not in rows
    assert {"hour", "hour_of_week", "day_of_week", "t"} <= set(rows.columns)
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert told["inputs"]["horizon"] == 24
    assert told["provenance"]["weather_gaps"][0]["bins"] == 26


def test_a_horizon_may_be_in_capitals(panel, tmp_path):
    assert invoke(panel, tmp_path / "run", "--horizon", "1D").exit_code == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["inputs"]["horizon"] == 24


def test_weather_needs_to_know_the_time_zone(panel, tmp_path, monkeypatch, capsys):
    pd.DataFrame({"time": ["2021-11-01 00:00"], "rain": [0.0]}).to_csv(tmp_path / "w.csv", index=False)
    options = ["--out", str(tmp_path / "run"), "--weather", str(tmp_path / "w.csv")]
    assert run_main(monkeypatch, str(panel), *options) == 2
    assert "--timezone" in " ".join(capsys.readouterr().err.split())


def test_a_zone_that_cannot_be_estimated_shows_with_its_reason_and_exit_code_1(tmp_path):
    closed = PANEL.assign(zone=PANEL["zone"].replace("z3", "[bold]z3"))
    where = closed["zone"] == "[bold]z3"
    closed.loc[where, ["exposure", "available_minutes", "stockout_minutes", "observed"]] = 0
    closed.loc[where, "closed_minutes"] = 60
    write_parquet(closed, tmp_path / "panel.parquet")
    result = invoke(tmp_path / "panel.parquet", tmp_path / "run")
    assert result.exit_code == 1, result.output
    assert "1 zone could not be estimated" in result.stdout
    assert "[bold]z3" in result.stdout  # a name, not markup
    assert "6 of 7 zones" in result.stdout
    assert "cannot be estimated" in " ".join(result.stdout.replace("│", " ").split())


def test_where_no_zone_can_be_estimated_no_others_are_said_to_be_done(tmp_path):
    closed = PANEL.assign(exposure=0.0, available_minutes=0, stockout_minutes=0, observed=0.0, closed_minutes=60)
    write_parquet(closed, tmp_path / "panel.parquet")
    result = invoke(tmp_path / "panel.parquet", tmp_path / "run")
    assert result.exit_code == 1, result.output
    told = " ".join(result.stderr.split())
    assert "None of the 7 zones could be estimated. Reasons:" in told
    assert "others" not in told


def test_json_is_what_run_json_says(panel, tmp_path):
    result = invoke(panel, tmp_path / "run", "--json")
    assert json.loads(result.stdout) == json.loads((tmp_path / "run" / "run.json").read_text())


def test_quiet_prints_nothing(panel, tmp_path):
    result = invoke(panel, tmp_path / "run", "--quiet")
    assert result.output == ""
    assert (tmp_path / "run" / "run.json").exists()


def test_an_interrupted_run_says_how_to_go_on(panel, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(LatentDemand, "fit", interrupted)
    result = invoke(panel, tmp_path / "run")
    assert result.exit_code == 130
    assert "run the same command to continue" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model", "oracle"], "no model 'oracle'"),
        (["--horizon", "90min"], "not a whole number"),
        (["--horizon", "soon"], "7d"),
        (["--horizon", "1828d"], "expected at most five years"),
        (["--horizon", f"{'9' * 5000}h"], "expected at most five years"),
        (["--holidays", "Atlantis"], "no calendar"),
        (["--weather", "nowhere.csv", "--timezone", "UTC"], "no such file"),
        (["--weather", "nowhere.csv"], "no such file"),
        (["--weather-columns", ""], "expected at least one name of a column"),
    ],
)
def test_what_makes_no_sense_is_explained_with_exit_code_2(panel, tmp_path, monkeypatch, capsys, options, said):
    assert run_main(monkeypatch, str(panel), "--out", str(tmp_path / "run"), *options) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_returns_without_known_docks_are_refused_before_pickups_are_estimated(panel, tmp_path):
    result = invoke(panel, tmp_path / "run", "--side", "both")
    assert isinstance(result.exception, InputError), result.output
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_written_is_exit_code_2(panel, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    arguments = [str(panel), "--out", str(tmp_path / "file" / "run"), "--model", "observed"]
    assert run_main(monkeypatch, *arguments) == 2
    assert "cannot be written" in " ".join(capsys.readouterr().err.split())


def test_a_file_in_the_place_of_the_folder_is_exit_code_2(panel, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("mine")
    assert run_main(monkeypatch, str(panel), "--out", str(tmp_path / "file"), "--model", "observed") == 2
    assert "is a file; name a folder for the results (--out)" in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "file").read_text() == "mine"


def test_a_file_that_is_no_panel_is_exit_code_2(tmp_path, monkeypatch, capsys):
    write_parquet(pd.DataFrame({"a": [1]}), tmp_path / "[red].parquet")
    assert run_main(monkeypatch, str(tmp_path / "[red].parquet"), "--out", str(tmp_path / "run")) == 2
    said = "".join(capsys.readouterr().err.split())
    assert "isnotapanel" in said
    assert "[red].parquet" in said
