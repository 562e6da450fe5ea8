"""`unmet panel` as a person at a terminal meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from unmet import cli
from unmet.mobility.panel import PanelOptions, build_panel, read_panel
from unmet.mobility.panel.options import PANEL_OPTIONS
from unmet.pipeline.settings import PANEL_SETTINGS, RunSettings

ZONE = ["--timezone", "America/New_York"]


@pytest.fixture
def files(tmp_path):
    """A morning at two stations: status and trips as CSV."""
    status = tmp_path / "status.csv"
    status.write_text(
        "station_id,last_reported,num_bikes_available,is_renting\n"
        "a,2021-07-01 08:00:00,2,true\na,2021-07-01 08:30:00,0,true\na,2021-07-01 10:00:00,1,true\n"
        "b[1],2021-07-01 08:00:00,5,true\nb[1],2021-07-01 09:00:00,5,false\n"
    )
    trips = tmp_path / "trips.csv"
    trips.write_text(
        "ride_id,started_at,ended_at,start_station_id,end_station_id\n"
        "1,2021-07-01 08:10:00,2021-07-01 08:20:00,a,b[1]\n"
        "2,2021-07-01 08:29:30,2021-07-01 08:40:00,a,b[1]\n"
        "3,2021-07-01 09:30:00,2021-07-01 09:20:00,a,b[1]\n"
    )
    return {"status": str(status), "trips": str(trips)}


def run_main(monkeypatch, *arguments: str) -> int | str | None:
    """The program as installed, errors turned into messages and exit codes."""
    monkeypatch.setattr(sys, "argv", ["unmet", "panel", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_it_writes_the_panel_that_python_would_build_and_a_summary(files, tmp_path):
    out = tmp_path / "panel.parquet"
    arguments = ["--status", files["status"], "--trips", files["trips"], "--out", str(out), "--force", *ZONE]
    result = CliRunner().invoke(cli.app, ["panel", *arguments])
    assert result.exit_code == 0, result.output
    expected = build_panel(files["trips"], files["status"], timezone="America/New_York", force=True)
    found = read_panel(out)
    pd.testing.assert_frame_equal(found.panel, expected.panel)
    text = " ".join(result.stdout.split())
    for said in (
        "2021-07-01 08:00:00 to 2021-07-01 11:00:00",
        "trips used 2",
        "end before start",
        "stockout",
        "censored bins",
    ):
        assert said in text, said
    assert "2 (one per station)" in text


def test_json_is_one_document_with_the_summary_and_the_quality(files, tmp_path):
    out = tmp_path / "panel.parquet"
    result = CliRunner().invoke(cli.app, ["panel", "--status", files["status"], "--out", str(out), "--json", *ZONE])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["summary"] == read_panel(out).summary
    assert {"source": "status", "reason": "read", "rows": 5}.items() <= told["quality"][0].items()


def test_the_flags_and_the_settings_of_a_run_are_the_options_of_the_panel():
    flags = {param.name: param for param in get_command(cli.app).commands["panel"].params}
    shown = {name: info for name, info in PANEL_OPTIONS.items() if info.table is not None}
    assert set(PANEL_OPTIONS) - set(shown) == {"headers"}
    settings = RunSettings()
    for name, info in shown.items():
        assert flags[name].help == info.help
        if info.default is not MISSING:
            assert (flags[name].default or None) == (info.default or None), name
            assert getattr(settings, PANEL_SETTINGS[name]) == info.default
    assert flags["timezone"].required
    assert {field.name for field in fields(PanelOptions)} == set(PANEL_OPTIONS)


def test_columns_are_mapped_by_name(files, tmp_path):
    odd = tmp_path / "odd.csv"
    odd.write_text("place,when,free\na,2021-07-01 08:00:00,2\na,2021-07-01 09:00:00,0\n")
    out = tmp_path / "panel.parquet"
    maps = [m for pair in ("station=place", "at=when", "available=free") for m in ("--map", pair)]
    result = CliRunner().invoke(cli.app, ["panel", "--status", str(odd), "--out", str(out), *maps, *ZONE])
    assert result.exit_code == 0, result.output
    assert read_panel(out).panel["observed"].tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--status", "{trips}"], "no column was recognised"),
        (["--trips", "{status}"], "no column was recognised"),
        (["--status", "{folder}/empty"], "contains no file to read"),
        (["--status", "{folder}/cut"], "not a complete JSON document"),
        (["--status", "{folder}/nothing.csv"], "no such file"),
        ([], "give trips, station status, or both"),
        (["--status", "{status}", "--zones", "superhubs:200m"], "coordinates of the stations"),
        (["--status", "{status}", "--zones", "circles"], "zones: expected"),
        (["--status", "{status}", "--every", "2min"], "5 minutes to a week"),
        (["--status", "{status}", "--censored-rule", "never"], "censored_rule: expected"),
        (["--status", "{status}", "--map", "station"], "our_name=their_column"),
        (
            ["--trips", "{trips}", "--map", "started_at=a", "--map", "started_at =b"],
            "--map: started_at is given twice, as 'a' and as 'b'",
        ),
        (["--trips", "{trips}", "--max-rejected", "0.1"], "were rejected"),
        (["--trips", "{folder}/a\udcff.csv"], "a\\xff.csv is not UTF-8 text"),
        (["--status", "{status}", "--zones", "{folder}/deep.geojson"], "nested too deeply"),
        (["--status", "{status}", "--stations", "{folder}/deep.json"], "nested too deeply"),
        (["--status", "{folder}/cut.parquet"], "damaged or incomplete"),
        (["--status", "{status}", "--date-order", "ydm"], "date_order: expected mdy, dmy, ymd"),
        (["--status", "{status}", "--start", "nat"], "start: expected a local date"),
        (["--status", "{status}", "--start", "01/07/2021"], "start: expected a local date"),
        (["--status", "{status}", "--end", "now"], "end: expected a local date"),
        (["--status", "{status}", "--end", "9999-12-31 23:59:59"], "end: expected a local date"),
        (["--trips", "{folder}/twice.csv"], "could be started_at of trips: 'started_at (1)', 'started_at (2)'."),
        (["--trips", "{trips}", "--jobs", "99999999999999999999"], "jobs: expected a whole number from 1 to"),
        (["--trips", "{trips}", "--unusable", "{trips}"], "trips.csv' is one of the inputs"),
        (
            ["--status", "{status}", "--zones", "{zones}", "--unusable", "{zones}"],
            "zones.geojson' is one of",
        ),
        (["--trips", "{trips}", "--unusable", "{out}"], "cannot be both the panel (--out) and the stations"),
        (["--trips", "{trips}", "--unusable", "{folder}"], "is a folder; name a file in it"),
        (["--status", "{status}", "--start", "1700-01-01"], "start: expected a year from 1990"),
        (["--status", "{status}", "--every", "9" * 5000 + "h"], "every: expected"),
        (["--status", "{status}", "--memory", "9" * 5000 + "GB"], "memory: expected"),
        (["--status", "{status}", "--memory", "999999999999TB"], "memory: expected 100MB to 1000TB"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_paragraph_with_exit_code_2_and_no_file(
    files, tmp_path, monkeypatch, capsys, arguments, said
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "station_status.json").write_text('{"last_updated": 1, "data": {"stations": [')
    for name in ("deep.geojson", "deep.json"):
        (tmp_path / name).write_text("[" * 100_000)
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 but no more")
    (tmp_path / "twice.csv").write_text("started_at,started_at,start_station_id\n2021-07-01,2021-07-02,a\n")
    zones = tmp_path / "zones.geojson"
    zones.write_text("{}")
    out = tmp_path / "panel.parquet"
    given = [a.format(folder=tmp_path, out=out, zones=zones, **files) for a in arguments]
    before = {name: Path(path).read_bytes() for name, path in files.items()}
    assert run_main(monkeypatch, *given, "--out", str(out), *ZONE) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert said in message
    assert "Traceback" not in message
    assert "DuckDB" not in message
    assert not out.exists()
    assert {name: Path(path).read_bytes() for name, path in files.items()} == before
    assert not list(tmp_path.glob("*.partial")) + list(tmp_path.glob(".*partial"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (duckdb.TransactionException("TransactionContext Error: Failed to commit"), "the disk may be full or not"),
        (
            duckdb.IOException("IO Error: Async write failed for range: No space left on device"),
            "read: No space left on device.",
        ),
        (duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate"), "memory limit is too small"),
    ],
)
def test_errors_of_the_database_are_explained_without_its_words(files, tmp_path, monkeypatch, capsys, error, said):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("unmet.mobility.panel.build.copy_panel", fail)
    arguments = ["--status", files["status"], "--out", str(tmp_path / "panel.parquet"), *ZONE]
    assert run_main(monkeypatch, *arguments) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert said in message
    assert str(error)[:15] not in message
    assert run_main(monkeypatch, *arguments, "--debug") == 2
    assert str(error) in capsys.readouterr().err


def test_a_panel_is_never_written_over_its_own_input_or_a_folder(tmp_path):
    from unmet._exceptions import InputError
    from unmet.mobility.panel import write_panel

    trips = tmp_path / "trips.parquet"
    trips.write_bytes(b"precious")
    for given in (trips, tmp_path, str(tmp_path / "*.parquet"), [str(trips)]):
        with pytest.raises(InputError, match="one of the inputs"):
            write_panel(trips, given, timezone="UTC")
    assert trips.read_bytes() == b"precious"
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        write_panel(tmp_path / "folder", trips, timezone="UTC")
    with pytest.raises(InputError, match="Parquet file"):
        write_panel(tmp_path / "panel.csv", trips, timezone="UTC")


def test_lines_of_an_error_do_not_break_within_a_path(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    missing = tmp_path / ("a-long-name-" * 8 + ".csv")
    assert run_main(monkeypatch, "--trips", str(missing), "--out", str(tmp_path / "panel.parquet"), *ZONE) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 2
    assert sum(str(missing) in line for line in lines) == 1


@pytest.mark.parametrize("arguments", [["--trips", "{folder}/\x1b[31mred.csv"], ["--trips", "{trips}", "--force"]])
def test_names_cannot_control_the_terminal(tmp_path, monkeypatch, capsys, arguments):
    trips, stations = tmp_path / "t.csv", tmp_path / "stations.csv"
    (tmp_path / "\x1b[31mred.csv").write_text("")
    trips.write_text("started_at,start_station_id\n2021-07-01 08:00,a\x1b[31m\n2021-07-01 09:00,a\x1b[31m\n")
    stations.write_text("station_id,lat,lon\na\x1b[31m,40.7,-74\na\x1b[31m,40.8,-74\n")  # quoted in a note: it moved
    given = [a.format(folder=tmp_path, trips=trips) for a in arguments]
    monkeypatch.setattr(
        sys,
        "argv",
        ["unmet", "panel", *given, "--stations", str(stations), "--out", str(tmp_path / "p.parquet"), *ZONE],
    )
    with pytest.raises(SystemExit):
        cli.main()
    shown = "".join(capsys.readouterr())
    assert "␛[31m" in shown
    assert "\x1b" not in shown


def printed_to_a_full_disk(*arguments: str, **variables: str) -> str:
    """What a command that ends with exit code 2 says on standard error, as one line."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from unmet.cli import main; main()", *arguments],
            env={**os.environ, **variables},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "ignored" not in done.stderr  # of an exception, by Python at its end
    return " ".join(done.stderr.split())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("columns", ["80", "0"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_error_that_cannot_be_printed_ends_without_a_traceback(columns, unbuffered):
    command = ["panel", "--trips", "none.csv", "--json", "--timezone", "UTC", "--out", "none.parquet"]
    assert "no such file" in printed_to_a_full_disk(*command, COLUMNS=columns, PYTHONUNBUFFERED=unbuffered)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_cannot_be_written_is_no_success(unbuffered):
    assert "No space left on device" in printed_to_a_full_disk("--version", PYTHONUNBUFFERED=unbuffered)
