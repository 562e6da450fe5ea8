"""A run that is killed at any of its changes to the disk leaves nothing that a reader takes for a result of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.small_city import city_settings, in_one_process, save_city
from unmet.pipeline import run

HERE = Path(__file__).parent
COMPILER = shutil.which("cc")


@pytest.mark.skipif(sys.platform != "linux" or COMPILER is None, reason="needs Linux and a C compiler (cc)")
@pytest.mark.slow
@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(2, id="short"),
        pytest.param(
            0,
            id="every change",
            marks=pytest.mark.skipif("UNMET_FAULTS" not in os.environ, reason="long: run by make faults"),
        ),
    ],
)
def test_a_run_killed_at_any_change_is_refused_or_right_and_goes_on_to_the_same_bytes(tmp_path, monkeypatch, moments):
    """The short form tries every rename of the publishing, and a few changes before it."""
    in_one_process(monkeypatch)
    city = save_city(tmp_path, stations=2)
    run(city_settings(city, tmp_path / "finished"))
    library = tmp_path / "faults.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", library, HERE / "faults.c", "-ldl"], check=True)
    (tmp_path / "trials").mkdir()
    done = subprocess.run(
        [sys.executable, HERE / "killed_run.py", city, tmp_path / "finished", tmp_path / "trials", str(moments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1] / "src"), str(HERE)])}
        | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["changes"] > 100  # the injector sees what DuckDB writes, too
    # While results change, there are moments of each kind.
    assert min(found["readers"].values()) > 0, found["readers"]
