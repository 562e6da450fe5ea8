"""`unmet simulate` as a person at a terminal meets it."""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import fields

import pandas as pd
import pytest
from typer.testing import CliRunner

from unmet import cli
from unmet.cli.simulate import simulate_command
from unmet.simulate import REALISTIC, Settings, simulate_city

SMALL = ["--stations", "5", "--days", "4", "--seed", "2"]


def run_main(monkeypatch, *arguments: str) -> int | str | None:
    """The program as installed, errors turned into messages and exit codes."""
    monkeypatch.setattr(sys, "argv", ["unmet", "simulate", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_it_writes_the_city_that_python_would_simulate_and_a_table(tmp_path):
    out = tmp_path / "city"
    result = CliRunner().invoke(
        cli.app, ["simulate", "--out", str(out), *SMALL, "--walk-probability", "0.5", "--walk-reach", "800"]
    )
    assert result.exit_code == 0, result.output
    city = simulate_city(5, 4, seed=2, walk_probability=0.5, walk_reach=800.0)
    pd.testing.assert_frame_equal(pd.read_parquet(out / "truth.parquet"), city.truth, check_dtype=False)
    summary = city.summary()
    for key in ("wanted", "served", "walked", "lost"):
        (line,) = (line for line in result.stdout.splitlines() if line.strip("│ ").startswith(key))
        assert f"{summary[key]:,}" in line
        assert f"{summary[key] / summary['wanted']:.1%}" in line
    (line,) = (line for line in result.stdout.splitlines() if "out of stock" in line)
    assert f"{summary['out_of_stock']:.1%}" in line


def test_realistic_sets_what_the_command_line_does_not(tmp_path):
    out = tmp_path / "city"
    arguments = ["--realistic", "--walk-probability", "0", "--shock-effect", "0", "--polls", "3"]
    result = CliRunner().invoke(cli.app, ["simulate", "--out", str(out), *SMALL, *arguments])
    assert result.exit_code == 0, result.output
    saved = json.loads((out / "settings.json").read_text())
    changed = {"walk_probability": 0.0, "shock_effect": 0.0, "polls": "3"}
    for name, value in {**REALISTIC, **changed}.items():
        assert saved[name] == value, name


def test_every_setting_is_an_option_with_the_same_default():
    options = inspect.signature(simulate_command).parameters
    for field in fields(Settings):
        assert field.name in options
        if field.name != "seed":
            assert options[field.name].default == field.default, field.name


def test_an_existing_city_is_refused_before_simulating_and_replaced_on_request(tmp_path, monkeypatch, capsys):
    out = str(tmp_path / "city")
    assert run_main(monkeypatch, "--out", out, *SMALL) == 0
    with monkeypatch.context() as patched:
        patched.setattr("unmet.simulate.simulate_city", None)  # would fail if it were called
        assert run_main(patched, "--out", out, *SMALL) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert run_main(monkeypatch, "--out", out, *SMALL, "--days", "3", "--overwrite") == 0
    assert json.loads((tmp_path / "city" / "settings.json").read_text())["days"] == 3


def test_a_silly_value_is_explained_and_nothing_is_written(tmp_path, monkeypatch, capsys):
    assert run_main(monkeypatch, "--out", str(tmp_path / "city"), "--walk-probability", "2") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "walk_probability: expected the probability" in said
    assert "got 2.0" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("out", [["--out", ""], ["--out="]])
def test_an_empty_output_is_not_the_working_directory(out, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["unmet", "simulate", *out, "--stations", "2", "--days", "1", "--seed", "1"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "--out: expected a path; got nothing" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
