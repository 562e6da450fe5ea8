"""Temporary folders: removed at the end, or by the next process if theirs was killed."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import pytest

from unmet._storage.temporary import temporary_folder
from unmet.mobility.records import read_records

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs flock and SIGKILL")

_HOLD = """
from unmet._storage.temporary import temporary_folder
with temporary_folder() as folder:
    (folder / "records.duckdb").write_bytes(b"x" * 1000)
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def holder(temporary: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start a process that holds a folder, and wait until it does."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(temporary: Path) -> None:
    process, left = holder(temporary)
    with process, temporary_folder():
        assert left.is_dir()  # the process lives: its folder stays
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert (left / "records.duckdb").exists()
        with temporary_folder() as mine:
            assert not left.exists()
            assert mine.is_dir()
    assert os.listdir(temporary) == []


def test_folders_of_other_origin_stay(temporary: Path) -> None:
    for name in ("unmet-mine", "unmet-empty"):
        (temporary / name).mkdir()
    (temporary / "unmet-mine" / "notes.txt").touch()
    (temporary / "unmet-file").touch()
    (temporary / "elsewhere").mkdir()
    (temporary / "elsewhere" / ".held").touch()
    (temporary / "unmet-link").symlink_to(temporary / "elsewhere")
    before = sorted(map(str, temporary.rglob("*")))
    with temporary_folder():
        pass
    assert sorted(map(str, temporary.rglob("*"))) == before


def test_records_hold_their_folder_until_they_are_closed(temporary: Path) -> None:
    trips = pd.DataFrame({"started_at": ["2021-07-01 08:00"], "start_station_id": ["a"]})
    with read_records(trips, timezone="UTC") as records, temporary_folder():
        assert records.folder.is_dir()
    assert os.listdir(temporary) == []
    unclosed = read_records(trips, timezone="UTC")
    unclosed.connection.close()
    del unclosed
    assert os.listdir(temporary) == []
