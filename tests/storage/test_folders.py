"""Files that are none: refused by all readers of small files, and not waited for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from unmet._exceptions import InputError
from unmet.cli._collecting import parse_systems
from unmet.mobility.models.walking import read_curve
from unmet.mobility.records.unpacking import read_json
from unmet.pipeline.config import read_config


@pytest.mark.skipif(sys.platform == "win32", reason="needs named pipes")
@pytest.mark.parametrize("read", [read_curve, read_json, read_config, lambda path: parse_systems([], path, {})])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, read) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "pipe.csv", tmp_path):
        with pytest.raises(InputError, match=r"expected a file; this is a folder, a pipe or a device"):
            read(path)
