"""Files that once broke a promise, and a few seconds of fuzzing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent / "fuzz.py"


def run(*arguments: str) -> None:
    # In a process without threads, which forks for every file.
    ended = subprocess.run([sys.executable, FUZZ, *arguments], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("pass", "None"),
        ("raise unmet.InputError('no')", "None"),
        ("raise ValueError", "ended with 70"),
        ("os.abort()", "ended with -6"),
        ("signal.raise_signal(signal.SIGALRM)", "waited for more than 240 s"),
        ("signal.raise_signal(signal.SIGXCPU)", "took more than 20 s"),
        ("bytearray(800_000_000)", r"took \d+ MB"),
    ],
)
def test_the_harness_notices_faults(tmp_path: Path, code: str, fault: str) -> None:
    program = (
        "import os, signal, sys, unmet; from pathlib import Path; from harness import run_case\n"
        f"def read(path):\n    {code}\n"
        "print(run_case(read, Path('x'), Path(sys.argv[1])).fault)"
    )
    ended = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, cwd=FUZZ.parent)
    assert re.fullmatch(fault, ended.stdout.strip()), ended.stdout + ended.stderr


def test_files_that_once_broke_a_promise_are_read_or_refused() -> None:
    run("--cases")


@pytest.mark.slow
def test_damaged_files_are_read_or_refused() -> None:
    run("--minutes", "1", "--seed", "0")
