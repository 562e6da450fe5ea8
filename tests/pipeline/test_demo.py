"""The demonstration: everything for real on a small city, held against what was truly wanted."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import unmet
from unmet._storage.parquet import read_parquet
from unmet.cli.demo import demo_command
from unmet.mobility.clock.public_holidays import holiday_name
from unmet.pipeline.demo import run_demo
from unmet.simulate import Settings

SIZE = ("--stations", "4", "--days", "35", "--seed", "4", "--jobs", "2")


def demo(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(unmet.__file__).parents[1]), "COLUMNS": "80"}
    command = [sys.executable, "-c", "from unmet.cli import main; main()", "demo", *SIZE, *more]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize("made_by", [run_demo, demo_command])
def test_the_plan_of_the_demo_is_for_an_ordinary_monday(made_by):
    days = inspect.signature(made_by).parameters["days"].default
    planned = Settings(days=days, seed=1).hours()[-1].date() + timedelta(days=1)
    assert planned.weekday() == 0
    assert holiday_name(planned, "US") is None


@pytest.mark.slow
@pytest.mark.parametrize("impatient", [False, True], ids=["once", "again and again"])
def test_ctrl_c_in_a_terminal_is_130_and_the_same_command_goes_on(tmp_path, impatient):
    # Ctrl-C reaches every process of the terminal's foreground group, workers too.
    def usual_signals() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    environment = {**os.environ, "PYTHONPATH": str(Path(unmet.__file__).parents[1]), "COLUMNS": "80"}
    command = [sys.executable, "-c", "from unmet.cli import main; main()", "demo", *SIZE]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=usual_signals,
    ) as running:
        said = []
        stopped = False
        for line in running.stderr:
            said.append(line)
            if line.startswith(("1 of 4 zones", "Stopped")) and (impatient or not stopped):
                os.killpg(running.pid, signal.SIGINT)
                stopped = True
    assert running.returncode == 130, said
    assert "run the same command to continue" in " ".join("".join(said).split())
    assert "Traceback" not in "".join(said)
    again = demo(tmp_path)
    assert again.returncode == 0, again.stderr
    assert "panel     reused" in again.stderr
    assert re.search(r"Resuming: [1-4] of 4 zones were finished before", again.stderr)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def told(folder) -> dict:
    done = demo(folder, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_the_estimate_is_near_the_truth_where_what_was_observed_is_not(told):
    city = told["truth"]["system"]
    assert city["observed"] < 0.95 * city["demand_true"]
    assert city["demand_mean"] == pytest.approx(city["demand_true"], rel=0.03)
    assert city["lost_mean"] == pytest.approx(city["lost_true"], rel=0.2)
    inside = [z["lost_q05"] <= z["lost_true"] <= z["lost_q95"] for z in told["truth"]["zones"]]
    assert sum(inside) >= 3


@pytest.mark.slow
def test_the_truth_is_that_of_the_city(told, folder):
    wanted = read_parquet(folder / "unmet-demo" / "city" / "truth.parquet")
    assert told["truth"]["system"]["demand_true"] == len(wanted)
    assert told["truth"]["system"]["lost_true"] == (wanted["fate"] == "lost").sum()
    by_zone = {zone["zone"]: zone["demand_true"] for zone in told["truth"]["zones"]}
    assert by_zone == wanted.groupby("station_id").size().to_dict()


@pytest.mark.slow
def test_a_person_sees_observed_estimated_and_true_side_by_side_and_the_page(told, folder):
    done = demo(folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("reused: its inputs have not changed") == 3
    city = told["truth"]["system"]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("│ demand "))
    for value in (city["observed"], city["demand_mean"], city["demand_true"]):
        assert f"{value:,.0f}" in line
    assert "Report: unmet-demo/run/report.html" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert (folder / "unmet-demo" / "run" / "report.html").is_file()
