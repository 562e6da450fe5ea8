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
