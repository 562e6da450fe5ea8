"""SIGTERM ends a command as Ctrl-C does: with a sentence, an exit code, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pipeline.small_city import TIMEZONE, city_flags, save_city

SOURCE = Path(__file__).parents[2] / "src"
# Sends itself a signal at a moment of the work that is the same every time: when a function is called.
STOPPED = """
import importlib, os, sys
from unmet.cli import main
module, name, number = sys.argv[1:4]
module = importlib.import_module(module)
whole = getattr(module, name)
def stop(*arguments, **options):
    os.kill(os.getpid(), int(number))
    return whole(*arguments, **options)
setattr(module, name, stop)
del sys.argv[1:4]
main()
"""


# Sends itself a signal when the entry point of the package begins to import the command line.
STOPPED_EARLY = """
import importlib, os, sys
module, _, name = sys.argv[1].partition(":")
main = getattr(importlib.import_module(module), name)
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[2]:
            os.kill(os.getpid(), int(sys.argv[3]))
sys.meta_path.insert(0, Stop())
main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("at", ["unmet.cli", "typer", "unmet.cli.targets"])
def test_a_command_that_is_stopped_while_it_is_imported_ends_with_the_same_exit_code(number, code, at):
    entry = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]["unmet"]
    ended = subprocess.run(
        [sys.executable, "-c", STOPPED_EARLY, entry, at, str(int(number))],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", "")


@pytest.fixture(scope="module")
def city(tmp_path_factory) -> Path:
    return save_city(tmp_path_factory.mktemp("small"))


def stopped(at: str, number: int, temp: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    temp.mkdir()
    module, _, name = at.partition(":")
    return subprocess.run(
        [sys.executable, "-c", STOPPED, module, name, str(int(number)), *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "200", "TMPDIR": str(temp)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(("number", "code", "more"), [(signal.SIGTERM, 143, []), (signal.SIGINT, 130, ["--json"])])
def test_a_panel_that_is_stopped_leaves_nothing(city, tmp_path, number, code, more):
    flags = ["--trips", str(city / "trips.parquet"), "--stations", str(city / "stations.csv"), "--timezone", TIMEZONE]
    (tmp_path / "out").mkdir()
    out = str(tmp_path / "out" / "panel.parquet")
    ended = stopped(
        "unmet.mobility.panel.build:copy_panel", number, tmp_path / "temp", "panel", *flags, "--out", out, *more
    )
    assert ended.returncode == code, ended.stderr
    assert ended.stderr.strip() == "Interrupted. Earlier results were not changed."
    assert list((tmp_path / "temp").iterdir()) == []
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    "at",
    [
        pytest.param("unmet.mobility.runs.attempt:write_checkpoint", marks=pytest.mark.slow),
        pytest.param("unmet.report:write_report", marks=pytest.mark.slow),
        pytest.param("unmet.pipeline.stages:move_files", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_is_stopped_can_be_continued(city, tmp_path, at):
    flags = city_flags(city, tmp_path / "out", "--jobs", "2")
    ended = stopped(at, signal.SIGTERM, tmp_path / "temp", "run", *flags)
    assert ended.returncode == 143, ended.stderr
    assert "Interrupted. Finished work is kept; run the same command to continue." in ended.stderr
    assert "Traceback" not in ended.stderr
    assert [path.name for path in (tmp_path / "temp").iterdir() if not path.name.startswith("joblib")] == []
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["unfinished"]
    assert not list((tmp_path / "out").rglob("*.partial"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_command_that_is_stopped_before_it_starts_has_the_code_of_the_signal(number, code):
    stop = f"import os, sys, unmet.cli as c; c.app = lambda **options: os.kill(os.getpid(), {int(number)}); c.main()"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    assert subprocess.run([sys.executable, "-c", stop], env=environment, timeout=120, check=False).returncode == code
