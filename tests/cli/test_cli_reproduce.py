import re

import pytest
from typer.testing import CliRunner

from unmet.cli import app, main

runner = CliRunner()


@pytest.mark.parametrize("experiment", ["synthetic", "motorcycle", "bike", "taxi"])
def test_help_tells_of_levels_and_seed(experiment):
    result = runner.invoke(app, ["reproduce", experiment, "--help"], env={"COLUMNS": "120", "TERM": "dumb"})
    assert result.exit_code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result.output)
    for option in ("--out", "--quick", "--full", "--seed", "--jobs"):
        assert option in plain
    assert ("--data" in plain) == (experiment in ("bike", "taxi"))
    assert ("--warm-start" in plain) == (experiment in ("bike", "taxi"))


@pytest.mark.parametrize("arguments", [["--quick", "--full"], ["--jobs", "0"]])
def test_options_that_contradict_each_other_are_refused(tmp_path, arguments, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["unmet", "reproduce", "synthetic", "--out", str(tmp_path), *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_without_the_data_the_message_names_the_file_and_where_to_get_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("UNMET_DATA", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["unmet", "reproduce", "taxi", "--quick", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "pickups_dropoffs_15min_2014-01-06_2014-01-19.csv is missing" in said
    assert "github.com" in said
    assert "UNMET_DATA" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        (["bike"], "out/bike-nyc"),
        (["bike", "--source", "east-village-any"], "out/bike-east-village-any"),
        (["bike", "--data", "mine/own.v2.csv"], "out/bike-own"),
        (["taxi"], "out/taxi"),
        (["taxi", "--data", "mine/own.csv.gz"], "out/taxi-own"),
        (["taxi", "--data", "own.csv", "--week", "2024-01-15"], "out/taxi-own-2024-01-15"),
        (["taxi", "--week", "2014-01-08"], "out/taxi-2014-01-08"),
        (["taxi", "--data", "own.csv", "--out", "here"], "here"),
    ],
)
def test_results_of_own_data_have_a_folder_of_their_own(arguments, folder, monkeypatch):
    from unmet.experiments import bike, taxi

    asked = []
    monkeypatch.setattr(bike, "reproduce", lambda run, source: asked.append((run.out, run.data, None)))
    monkeypatch.setattr(taxi, "reproduce", lambda run, first_day: asked.append((run.out, run.data, first_day)))
    result = runner.invoke(app, ["reproduce", *arguments])
    assert result.exit_code == 0, result.output
    ((out, data, first_day),) = asked
    assert str(out) == folder
    assert (data is None) == ("--data" not in arguments)
    assert first_day == (arguments[-1] if "--week" in arguments else None)


def test_a_week_that_is_no_day_is_refused():
    result = runner.invoke(app, ["reproduce", "taxi", "--week", "13.01.2014"])
    assert result.exit_code == 2
    assert "--week" in re.sub(r"\x1b\[[0-9;]*m", "", result.output)
