"""Files that once broke a promise, and a few seconds of fuzzing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent / "fuzz.py"


def run(*arguments: str) -> None:
    # In a process without threads, which forks for every file.
    ended = subprocess.run([sys.executable, FUZZ, *arguments], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_files_that_once_broke_a_promise_are_read_or_refused() -> None:
    run("--cases")


@pytest.mark.slow
def test_damaged_files_are_read_or_refused() -> None:
    run("--minutes", "1", "--seed", "0")
