"""Runs and workers that are killed, as processes of their own: what comes out is what comes out of a quiet run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from toy_model import ToyModel, estimate_toy, toy_panel

from unmet._storage.folders import remove
from unmet._storage.parquet import write_parquet
from unmet.execution import serially
from unmet.mobility.runs import run_estimates
from unmet.mobility.runs.outputs import TABLES

HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "src"


@pytest.fixture(scope="module")
def panel(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("panel") / "panel.parquet"
    write_parquet(toy_panel(), path)
    return path


@pytest.fixture(scope="module")
def quiet(panel, tmp_path_factory) -> dict[str, bytes]:
    """The tables of a run that nothing happened to."""
    out = tmp_path_factory.mktemp("quiet")
    run_estimates(panel, ToyModel(), out, estimate=estimate_toy, executor=serially)
    return tables(out)


def tables(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in TABLES}


def run(panel: Path, out: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(HERE)])}
    command = [sys.executable, str(HERE / "toy_run.py"), str(panel), str(out), json.dumps(options)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def calls(log: Path) -> dict[str, int]:
    """How often each zone was asked for."""
    counts: dict[str, int] = {}
    for path in log.iterdir():
        zone = path.name.split(".")[0]
        counts[zone] = counts.get(zone, 0) + 1
    return counts


# With chunks of two zones: the folder of the run, three parts, then four files take their places.
@pytest.mark.parametrize("moment", [2, 4, 5, 8])
def test_a_run_killed_at_any_moment_continues_to_the_same_bytes(panel, quiet, tmp_path, moment):
    out, log = tmp_path / "out", tmp_path / "log"
    log.mkdir()
    options = {"executor": "serially", "chunk": 2, "model": {"log": str(log)}}
    killed = run(panel, out, kill_before_rename=moment, **options)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    in_time = max(0, min(3, moment - 2))  # parts that were in place
    assert not (out / "run.json").exists()
    again = run_estimates(panel, ToyModel(log=str(log)), out, estimate=estimate_toy, executor=serially, chunk=2)
    assert tables(out) == quiet
    assert again.info["zones"]["finished_before"] == 2 * in_time
    # What was finished is not computed again; what was under way is.
    lost = set() if moment > 4 else {f"z{2 * in_time}", f"z{2 * in_time + 1}"}
    assert calls(log) == {f"z{i}": 2 if f"z{i}" in lost else 1 for i in range(6)}
    assert sorted(path.name for path in out.iterdir()) == sorted([*TABLES, "run.json"])


@pytest.mark.slow
def test_a_run_killed_while_two_workers_are_busy_continues_to_the_same_bytes(panel, quiet, tmp_path):
    out, log = tmp_path / "out", tmp_path / "log"
    log.mkdir()
    model = {"log": str(log), "trouble": {"z3": "kill-run@1"}}
    killed = run(panel, out, executor="in_processes", jobs=2, chunk=1, model=model)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    finished = {zone for part in out.glob(".parts/*/part-*/part.json") for zone in zones_of(part)}
    again = run(panel, out, executor="in_processes", jobs=2, chunk=1, model=model)
    assert again.returncode == 0, again.stderr
    assert tables(out) == quiet
    assert json.loads(again.stdout)["zones"]["finished_before"] == len(finished)
    assert all(calls(log)[zone] == 1 for zone in finished)
    assert calls(log)["z3"] == 2


def zones_of(part: Path) -> list[str]:
    return json.loads(json.loads(part.read_text())["body"])["fitted"]


@pytest.mark.slow
def test_a_worker_that_dies_once_costs_a_retry_and_nothing_else(panel, quiet, tmp_path):
    out, log = tmp_path / "out", tmp_path / "log"
    log.mkdir()
    model = {"log": str(log), "trouble": {"z2": "kill@1"}}
    result = run(panel, out, executor="in_processes", jobs=2, chunk=2, model=model)
    assert result.returncode == 0, result.stderr
    assert tables(out) == quiet
    assert 2 <= json.loads(result.stdout)["zones"]["retried"] <= 4  # its chunk, and the one beside it
    assert calls(log)["z2"] == 2


@pytest.mark.slow
def test_a_zone_that_kills_every_worker_is_reported_and_the_others_are_there(panel, quiet, tmp_path):
    out, log = tmp_path / "out", tmp_path / "log"
    log.mkdir()
    model = {"log": str(log), "trouble": {"z2": "kill"}}
    result = run(panel, out, executor="in_processes", jobs=2, chunk=2, model=model)
    assert result.returncode == 1, result.stderr
    told = json.loads(result.stdout)
    assert list(told["failures"]) == ["z2"]
    assert "worker process was lost 3 times" in told["failures"]["z2"]
    assert told["zones"]["estimated"] == 5
    assert calls(log)["z2"] == 3
    # Where the cause is gone, the same command does that zone alone, and the run is as if nothing had happened.
    before = calls(log)
    again = run_estimates(panel, ToyModel(log=str(log)), out, estimate=estimate_toy, executor=serially)
    assert not again.failures
    assert tables(out) == quiet
    assert {zone: n - before[zone] for zone, n in calls(log).items()} == {f"z{i}": int(i == 2) for i in range(6)}


@pytest.mark.slow
def test_workers_end_when_their_run_is_killed(panel, tmp_path):
    # The worker that kills the run then waits for ever, holding the run's standard output open: reading that to its
    # end, as `run` does, would time out if nothing ended the worker.
    model = {"trouble": {"z1": "kill-run-and-wait"}}
    killed = run(panel, tmp_path / "out", executor="in_processes", jobs=1, chunk=1, model=model)
    assert killed.returncode == -signal.SIGKILL, killed.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs named pipes")
@pytest.mark.parametrize(
    ("what", "how"),
    [(".parts/*", "link"), (".parts/scratch", "pipe"), *((".parts/*/part-*", how) for how in ("link", "pipe", "file"))],
)
def test_checkpoints_that_are_links_or_pipes_are_computed_again(panel, quiet, tmp_path, what, how):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with pytest.raises(KeyboardInterrupt):
        run_estimates(panel, ToyModel(), out, estimate=estimate_toy, executor=serially, progress=interrupt_after(2))
    (out / ".parts" / "scratch").mkdir(exist_ok=True)
    for path in out.glob(what):
        remove(path)
        make = {"link": lambda p: p.symlink_to(elsewhere), "pipe": os.mkfifo, "file": Path.touch}[how]
        make(path)
    run_estimates(panel, ToyModel(), out, estimate=estimate_toy, executor=serially)
    assert tables(out) == quiet
    assert not list(elsewhere.iterdir())


def interrupt_after(zones: int):
    def progress(done: int, all_zones: int, note: str) -> None:
        if done >= zones:
            raise KeyboardInterrupt

    return progress
