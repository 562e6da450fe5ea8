"""Records of stages that somebody else wrote decide nothing about files that are not of the run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import unmet
from unmet._exceptions import InputError
from unmet._storage.ledger import StageRecord, seen, write_ledger
from unmet.pipeline.stages import working_in


def test_a_record_with_other_files_is_not_reused_and_moves_nothing(tmp_path: Path) -> None:
    victim, out = tmp_path / "victim.txt", tmp_path / "runs" / "out"
    victim.write_text("mine")
    (out / "unfinished").mkdir(parents=True)
    (out / "unfinished" / "panel.parquet").write_text("made by somebody")
    names = ["panel.parquet", "../../../victim.txt"]  # `victim` seen from the folder of unfinished results
    inputs = json.loads(json.dumps({"settings": {}, "unmet": unmet.__version__}))
    outputs = {name: seen(out / "unfinished" / name) for name in names}
    write_ledger(out / "unfinished", {"panel": StageRecord(inputs, {}, outputs)})
    with working_in(out, lambda event: None) as work:
        work.stage("panel", ["panel.parquet"], {}, {}, lambda: (work.aside / "panel.parquet").write_text("made anew"))
        work.publish()
        assert not work.stages[0].reused
    assert victim.read_text() == "mine"
    assert (out / "panel.parquet").read_text() == "made anew"


@pytest.mark.skipif(sys.platform == "win32", reason="needs named pipes")
@pytest.mark.parametrize("name", ["panel.parquet", "stages.json"])
def test_nothing_is_moved_if_a_pipe_is_in_the_place_of_a_file(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    os.mkfifo(out / name)
    with working_in(out, lambda event: None) as work:
        work.stage("panel", ["panel.parquet"], {}, {}, lambda: (work.aside / "panel.parquet").write_text("new"))
        with pytest.raises(InputError, match="this pipe or device is in the place of a result"):
            work.publish()
    assert sorted(path.name for path in out.iterdir()) == sorted([name, "unfinished"])


@pytest.mark.parametrize("name", ["estimate", "unfinished", "estimate/returns"])
def test_a_folder_of_results_that_is_a_link_is_refused(tmp_path: Path, name: str) -> None:
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "out" / name
    elsewhere.mkdir()
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    with (
        pytest.raises(InputError, match="is a link, and results would be written outside"),
        working_in(tmp_path / "out", lambda event: None),
    ):
        pass
    assert list(elsewhere.iterdir()) == []
