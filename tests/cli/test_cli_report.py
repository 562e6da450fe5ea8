"""`unmet report` and `unmet export` as a person at a terminal meets them."""

from __future__ import annotations

import json
import sys

import pandas as pd
import pytest
from typer.testing import CliRunner

from unmet import cli
from unmet._storage.parquet import write_parquet
from unmet.execution import serially
from unmet.mobility.demand import DemandModel
from unmet.mobility.runs import run_estimates


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two zones, two weeks, no places: the least that a report can be made from."""
    folder = tmp_path_factory.mktemp("made")
    start = pd.date_range("2024-01-01", periods=336, freq="h", tz="UTC")
    frames = []
    for zone in ("[a]", "b"):
        rows = pd.DataFrame({"zone": zone, "start": start, "start_local": start.tz_localize(None), "minutes": 60})
        rows["observed"] = 2.0
        rows["stockout_minutes"] = [30 if k % 24 == 8 else 0 for k in range(336)]
        rows["closed_minutes"], rows["unknown_minutes"] = 0, 0
        rows["available_minutes"] = 60 - rows["stockout_minutes"]
        rows["exposure"], rows["censored"] = rows["available_minutes"] / 60, rows["stockout_minutes"] > 0
        frames.append(rows)
    write_parquet(pd.concat(frames), folder / "panel.parquet")
    run_estimates(folder / "panel.parquet", DemandModel("weekly-mean", draws=40), folder / "run", executor=serially)
    return folder / "run"


def invoke(*arguments: object):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def test_a_report_is_written_and_its_path_told(run, tmp_path):
    result = invoke("report", run, "--out", tmp_path / "page.html", "--title", "Two <zones>")
    assert result.exit_code == 0, result.output
    assert "page.html" in result.stdout.replace("\n", "")
    assert "<title>Two &lt;zones&gt;</title>" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_report_for_machines_and_one_in_silence(run, tmp_path):
    result = invoke("report", run, "--out", tmp_path / "page.html", "--json")
    told = json.loads(result.stdout)
    assert told == {"report": str(tmp_path / "page.html"), "bytes": (tmp_path / "page.html").stat().st_size}
    assert invoke("report", run, "--out", tmp_path / "page.html", "--quiet").output == ""


def test_tables_are_written_and_listed(run, tmp_path):
    result = invoke("export", run, "--out", tmp_path / "tables", "--format", "csv, geojson")
    assert result.exit_code == 0, result.output
    assert {p.suffix for p in (tmp_path / "tables").iterdir()} == {".csv", ".geojson"}
    assert "one row per zone and bin" in result.stdout
    told = json.loads(invoke("export", run, "--out", tmp_path / "tables", "--format", "parquet", "--json").stdout)
    assert str(tmp_path / "tables" / "bins.parquet") in told["files"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["report", "{tmp}/nowhere"], "unmet estimate"),
        (["report", "{run}", "--out", "{tmp}/no/page.html"], "There is no folder"),
        (["export", "{run}", "--out", "{tmp}/tables", "--format", "xlsx"], "expected some of csv"),
        (["export", "{tmp}", "--out", "{tmp}/tables"], "unmet estimate"),
    ],
)
def test_what_cannot_be_done_is_one_paragraph_and_exit_code_2(run, tmp_path, monkeypatch, capsys, arguments, says):
    filled = [a.format(run=run, tmp=tmp_path) for a in arguments]
    monkeypatch.setattr(sys, "argv", ["unmet", *filled])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert told.startswith("Error: ")
    assert says in told
    assert list(tmp_path.iterdir()) == []
