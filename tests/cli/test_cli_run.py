"""`unmet run`, `unmet init` and the command line as a whole, as a person or a script meets them."""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from small_city import TIMEZONE, city_flags, in_one_process, save_city
from typer.testing import CliRunner

import unmet
from unmet import cli
from unmet._storage.parquet import read_parquet
from unmet.mobility.panel import build as panel_module

SOURCE = Path(unmet.__file__).parents[1]
HOSTILE = [
    "<script>alert(1)</script>",
    "quote \" and ' and , comma",
    "=cmd|' /C calc'!A0",
    "emoji 🚲 [bold]é[/]",
    "x" * 300,
]


@pytest.fixture(scope="module")
def city(tmp_path_factory) -> Path:
    return save_city(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def finished(city, tmp_path_factory) -> Path:
    """A finished run, to be copied."""
    out = tmp_path_factory.mktemp("finished") / "out"
    with pytest.MonkeyPatch.context() as patch:
        in_one_process(patch)
        made = CliRunner().invoke(cli.app, ["run", *city_flags(city, out, "--quiet")])
    assert made.exit_code == 0, made.output
    return out


@pytest.fixture
def in_this_process(monkeypatch):
    in_one_process(monkeypatch)


def program(*arguments: str, **more) -> subprocess.CompletedProcess[str]:
    """The program as a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "100", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "from unmet.cli import main; main()", *arguments]
    return subprocess.run(
        command, env=environment | more.pop("env", {}), capture_output=True, text=True, timeout=300, check=False, **more
    )


def run_main(monkeypatch, *arguments: str) -> int | str | None:
    """The program in this process, errors turned into messages and exit codes."""
    monkeypatch.setattr(sys, "argv", ["unmet", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def said(text: str) -> str:
    return " ".join(text.split())


def content(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


@pytest.mark.slow
def test_settings_from_the_file_of_the_current_folder_and_one_json_document_on_stdout(city, tmp_path):
    (tmp_path / "unmet.toml").write_text(
        f"""
        [records]
        trips = "{city}/trips.parquet"
        status = "{city}/status.parquet"
        stations = "{city}/stations.csv"
        timezone = "{TIMEZONE}"
        [estimate]
        model = "weekly-mean"
        draws = 30
        [report]
        title = "From the file"
        """
    )
    done = program("run", "--json", "--title", "From a flag", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["settings"]["title"] == "From a flag"
    assert told["settings"]["draws"] == 30
    assert told["zones"]["failed"] == 0
    assert [stage["reused"] for stage in told["stages"]] == [False, False, False]
    assert told["totals"]["observed"]["mean"] == len(read_parquet(city / "trips.parquet"))
    page = (tmp_path / told["report"]).read_text(encoding="utf-8")
    assert "From a flag" in page
    assert "Settings from unmet.toml" in done.stderr
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "estimate",
        "panel.parquet",
        "quality.json",
        "report.html",
        "stages.json",
    ]


def test_a_person_sees_what_was_lost_and_where_the_page_is(city, tmp_path, in_this_process):
    result = CliRunner().invoke(cli.app, ["run", *city_flags(city, tmp_path / "out")])
    assert result.exit_code == 0, result.output
    for part in ("4 of 4 zones", "90 % interval", "trips used", f"Report: {tmp_path / 'out' / 'report.html'}"):
        assert part in said(result.stdout)
    again = CliRunner().invoke(cli.app, ["run", *city_flags(city, tmp_path / "out", "--seed", "2")])
    assert "panel reused: its inputs have not changed" in said(again.stderr)
    assert "seed changed from 0 to 2" in said(again.stderr)
    quiet = CliRunner().invoke(cli.app, ["run", *city_flags(city, tmp_path / "out", "--quiet")])
    assert quiet.output == ""


@pytest.mark.slow
def test_exit_code_1_when_a_zone_failed(city, tmp_path):
    stations = pd.read_csv(city / "stations.csv")
    ghost = stations.iloc[[0]].assign(station_ix=99, station_id="[red]GHOST", short_name="G", name="nobody")
    pd.concat([stations, ghost]).to_csv(tmp_path / "stations.csv", index=False)
    flags = city_flags(city, tmp_path / "out", "--stations", str(tmp_path / "stations.csv"))
    flags.remove(str(city / "stations.csv"))
    flags.remove("--stations")
    done = program("run", *flags)
    assert done.returncode == 1, done.stderr
    assert "1 zone could not be estimated and is not in the totals" in said(done.stdout)
    assert "nobody" in done.stdout  # what the station is called, as on the page
    assert "zone [red]GHOST:" not in done.stdout  # which zone it is stands beside the reason
    assert said(done.stderr).endswith(
        f"1 of 5 zones could not be estimated; the others are done. "
        f"Reasons: {tmp_path / 'out' / 'estimate' / 'zones.parquet'} (exit code 1)"
    )
    zones = read_parquet(tmp_path / "out" / "estimate" / "zones.parquet").set_index("zone")
    assert zones["name"].to_dict() == stations.set_index("station_id")["name"].to_dict() | {"[red]GHOST": "nobody"}
    assert (tmp_path / "out" / "report.html").exists()


def test_wrong_files_are_exit_code_2_and_one_paragraph_on_stderr(city, tmp_path):
    done = program("run", *city_flags(city, tmp_path / "out", "--status", str(city / "trips.parquet")))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert "This looks like trips: give it as trips (--trips)." in said(done.stderr)
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (["run", "--timezone", "UTC"], "InputError", "No records were given"),
        (["run", "--no-such-flag"], "NoSuchOption", "--no-such-flag"),
        (["panel", "--timezone", "UTC", "--out", "p.parquet", "--rebalancing", "one"], "BadParameter", "rebalancing"),
        (["report", "nowhere"], "InputError", "not the folder of a finished run"),
    ],
)
def test_a_script_that_waits_for_json_gets_the_error_as_json(monkeypatch, capsys, tmp_path, arguments, kind, words):
    monkeypatch.chdir(tmp_path)
    assert run_main(monkeypatch, *arguments, "--json") == 2
    told = capsys.readouterr()
    error = json.loads(told.out)["error"]
    assert (error["exit_code"], error["kind"]) == (2, kind)
    assert words in error["message"]
    assert said(error["message"]) in said(told.err)


def test_a_wrong_truth_is_found_before_any_work(city, tmp_path, monkeypatch, capsys):
    wrong = {
        str(city / "nothing.parquet"): "no file",
        str(city / "trips.parquet"): "no column 'wanted_at'",
        str(city / "stations.csv"): "stations.csv",
    }
    for truth, words in wrong.items():
        assert run_main(monkeypatch, "run", *city_flags(city, tmp_path / "out", "--truth", truth)) == 2
        told = capsys.readouterr().err
        assert words in said(told)
        assert "panel" not in told.split("Error:")[0]  # no stage had begun
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("limit", [8, *(pytest.param(kb, marks=pytest.mark.slow) for kb in (48, 400, 1500))])
def test_a_full_disk_is_exit_code_2_and_earlier_results_stay(city, finished, tmp_path, limit):
    out = shutil.copytree(finished, tmp_path / "out")
    before = content(out)

    def limited() -> None:
        # Files may grow to so much and no further: the system refuses the rest, as it does on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit * 1024, limit * 1024))

    done = program("run", *city_flags(city, out, "--censored-rule", "minutes:3"), preexec_fn=limited)
    assert done.returncode == 2, done.stderr
    assert "too large" in said(done.stderr).lower()
    assert "free some space" in said(done.stderr).lower()
    assert "Traceback" not in done.stderr
    assert {k: v for k, v in content(out).items() if not k.startswith("unfinished")} == before


def bound_by_permissions() -> None:
    """In a child: give up root's right to pass over permissions (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH)."""
    libc = ctypes.CDLL(None)
    for capability in (1, 2):
        libc.prctl(24, capability)  # PR_CAPBSET_DROP


@pytest.mark.skipif(sys.platform != "linux", reason="root's rights are given up as Linux has it")
@pytest.mark.parametrize("what", ["city/status.parquet", "city", "out"])
def test_no_permission_is_exit_code_2_and_earlier_results_stay(city, finished, tmp_path, what):
    shutil.copytree(city, tmp_path / "city")
    out = shutil.copytree(finished, tmp_path / "out")
    before = content(out)
    (tmp_path / what).chmod(0o555 if what == "out" else 0o000)
    flags = city_flags(tmp_path / "city", out, "--censored-rule", "minutes:3")
    done = program("run", *flags, preexec_fn=bound_by_permissions)
    (tmp_path / what).chmod(0o755)
    assert done.returncode == 2, done.stderr
    assert "permission denied" in said(done.stderr).lower()
    assert what in "".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert content(out) == before


def test_an_error_that_nobody_expected_is_70_and_asks_for_debug(city, tmp_path, monkeypatch, capsys):
    def broken(*_, **__):
        raise KeyError("a fault")

    monkeypatch.setattr(panel_module, "write_panel", broken)
    flags = city_flags(city, tmp_path / "out")
    assert run_main(monkeypatch, "run", *flags) == 70
    message = said(capsys.readouterr().err)
    assert "KeyError: 'a fault'" in message
    assert "--debug" in message
    for arguments in (["--debug", "run", *flags], ["run", *flags, "--debug"]):
        assert run_main(monkeypatch, *arguments) == 70
        assert "Traceback" in capsys.readouterr().err


def test_debug_shows_the_traceback_of_bad_input_too_and_keeps_its_code(monkeypatch, capsys):
    assert run_main(monkeypatch, "run", "--timezone", "UTC", "--debug") == 2
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert "No records were given" in told


@pytest.mark.slow
def test_what_stands_in_the_way_of_results_is_named_and_nothing_is_replaced(city, finished, tmp_path, in_this_process):
    out = shutil.copytree(finished, tmp_path / "out")
    shutil.rmtree(out / "estimate")
    (out / "estimate").write_text("a file where a folder should be")
    before = content(out)
    done = program("run", *city_flags(city, out, "--every", "2h"))
    assert done.returncode == 2
    assert "estimate:thisfileisintheplaceofaresult" in "".join(done.stderr.split())
    assert {k: v for k, v in content(out).items() if not k.startswith("unfinished")} == before


@pytest.mark.slow
def test_an_input_changed_behind_the_clock_is_noticed(city, tmp_path, in_this_process, monkeypatch, capsys):
    place = shutil.copytree(city, tmp_path / "city")
    stations = place / "stations.csv"
    times = (stations.stat().st_atime_ns, stations.stat().st_mtime_ns)
    assert run_main(monkeypatch, "run", *city_flags(place, tmp_path / "out")) in (0, None)
    capsys.readouterr()
    stations.write_text(stations.read_text().replace(" St ", " Rd "))  # as long as before
    os.utime(stations, ns=times)
    assert run_main(monkeypatch, "run", *city_flags(place, tmp_path / "out")) in (0, None)
    assert "stations changed" in said("".join(capsys.readouterr()))


def test_stopped_by_hand_is_130_and_the_same_command_goes_on(city, tmp_path, monkeypatch, capsys, in_this_process):
    flags = city_flags(city, tmp_path / "out")
    rename, calls = os.replace, 0

    def interrupted(source, target):
        nonlocal calls
        calls += 1
        if calls == 5:  # the panel and a part are there
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        assert run_main(monkeypatch, "run", *flags) == 130
    assert "run the same command to continue" in said(capsys.readouterr().err)
    assert run_main(monkeypatch, "run", *flags) == 0
    assert "panel reused" in said(capsys.readouterr().err)


@pytest.mark.slow
def test_hostile_names_are_text_all_the_way(city, tmp_path):
    folder = tmp_path / "odd [name] 'quoted'"
    folder.mkdir()
    names = dict(zip(pd.read_csv(city / "stations.csv")["station_id"], HOSTILE, strict=False))
    stations = pd.read_csv(city / "stations.csv").replace({"station_id": names, "short_name": names})
    stations["name"] = [f"Name of {name}" for name in stations["station_id"]]
    stations.to_csv(folder / "stations.csv", index=False)
    trips = read_parquet(city / "trips.parquet").replace({"start_station_id": names, "end_station_id": names})
    trips.to_csv(folder / "trips.csv", index=False)
    shutil.copy(city / "status.parquet", folder / "status.parquet")
    (folder / "unmet.toml").write_text(
        '[records]\ntrips = "trips.csv"\nstatus = "status.parquet"\nstations = "stations.csv"\n'
        f'timezone = "{TIMEZONE}"\n[report]\ntitle = "<script>alert(2)</script>"\n'
    )
    done = program("run", "--json", "--config", str(folder / "unmet.toml"))  # the default model
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    out = folder / "out"
    zones = read_parquet(out / "estimate" / "zones.parquet")
    assert sorted(zones["zone"]) == sorted(names.values())
    assert told["totals"]["observed"]["mean"] == len(trips)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    shown = program("run", "--config", str(folder / "unmet.toml"), "--title", "<script>alert(2)</script>")
    assert shown.returncode == 0, shown.stderr
    assert "=cmd|" in shown.stdout


def test_init_writes_an_example_and_does_not_overwrite(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_main(monkeypatch, "init") == 0
    assert "unmet run" in capsys.readouterr().out
    text = (tmp_path / "unmet.toml").read_text()
    assert run_main(monkeypatch, "init") == 2
    assert "already exists and was not changed" in said(capsys.readouterr().err)
    assert (tmp_path / "unmet.toml").read_text() == text
    # As it is, it names files that are not there: the run says which.
    assert run_main(monkeypatch, "run") == 2
    assert "trips/*.csv.gz" in said(capsys.readouterr().err)


def test_a_mistake_in_the_file_is_exit_code_2(tmp_path, monkeypatch, capsys):
    (tmp_path / "my.toml").write_text("[panel]\nevry = '1h'\n")
    assert run_main(monkeypatch, "run", "--config", str(tmp_path / "my.toml")) == 2
    assert "Did you mean 'every'?" in said(capsys.readouterr().err)


def test_the_version(monkeypatch, capsys):
    assert run_main(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"unmet {unmet.__version__}\n"


def commands() -> list[list[str]]:
    found = [[name] for name in [*(c.name for c in cli.app.registered_commands), "reproduce"]]
    return [[], *found, *(["reproduce", name] for name in ("synthetic", "motorcycle", "bike", "taxi"))]


@pytest.mark.parametrize("command", commands(), ids=lambda c: " ".join(c) or "unmet")
def test_help_reads_well_at_80_columns(command):
    result = CliRunner().invoke(cli.app, [*command, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert result.exit_code == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", result.output)
    assert max(map(len, text.splitlines())) <= 80
    assert "<bool>" not in text  # flags take no value
    assert "<list" not in text
    prose = text.split("╭")[0]
    # Text flows: no line but the last of a paragraph ends early, though its next word would fit.
    lines = [line.strip() for line in prose.splitlines()]
    for line, following in pairwise(lines):
        if line and following and not line.endswith("\\"):
            assert len(line) + 1 + len(following.split()[0]) > 76, line


def test_help_is_quick_to_load():
    code = "import sys, unmet.cli; print([m for m in ('pandas', 'duckdb', 'scipy', 'sklearn') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@pytest.mark.usefixtures("in_this_process")
def test_watch_runs_again_reuses_what_did_not_change_and_outlives_a_missing_file(city, finished, tmp_path, monkeypatch):
    out = shutil.copytree(finished, tmp_path / "out")
    trips, moved = city / "trips.parquet", city / "away.parquet"
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            trips.rename(moved)
        elif len(waits) == 2:
            moved.rename(trips)
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr("unmet.pipeline.watching.time.sleep", wait)
    monkeypatch.setattr("unmet.pipeline.watching.keep_current.__kwdefaults__", {"now": lambda: 0.0, "wait": wait})
    made = CliRunner().invoke(cli.app, ["run", *city_flags(city, out), "--watch", "1d"])
    assert made.exit_code == 130
    assert waits == [86_400.0] * 3
    assert "the next round tries again" in " ".join(made.output.split())
    assert made.output.count("report    reused") == 2


@pytest.mark.parametrize("interval", ["daily", "0s", "0.0001s", "-1h", "nanh"])
def test_an_interval_that_is_none_or_no_pause_is_refused(city, tmp_path, interval):
    made = CliRunner().invoke(cli.app, ["run", *city_flags(city, tmp_path / "out"), "--watch", interval])
    assert "--watch: expected a time such as" in str(made.exception)
