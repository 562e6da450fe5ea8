"""Files that are none: refused by all readers of small files, and not waited for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from unmet._exceptions import InputError
from unmet._storage.files import read_whole, real_path
from unmet._storage.folders import remove
from unmet._storage.hashes import file_hash
from unmet._storage.ledger import read_ledger
from unmet.cli._collecting import parse_systems
from unmet.mobility.models.walking import read_curve
from unmet.mobility.records.unpacking import read_json
from unmet.mobility.runs import result
from unmet.pipeline.config import read_config


@pytest.mark.skipif(sys.platform == "win32", reason="needs named pipes")
@pytest.mark.parametrize(
    "read", [read_curve, read_json, read_config, lambda path: parse_systems([], path, {}), result._read]
)
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, read) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "pipe.csv", tmp_path):
        with pytest.raises(InputError, match=r"expected a file; this is a folder, a pipe or a device"):
            read(path)


@pytest.mark.skipif(sys.platform == "win32", reason="needs named pipes")
def test_documents_and_hashes_of_pipes_and_devices_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "stages.json")
    for path in (tmp_path / "stages.json", Path("/dev/zero"), tmp_path):
        for read in (read_whole, file_hash):
            with pytest.raises(OSError, match="a folder, a pipe or a device, not a file"):
                read(path)
    assert read_ledger(tmp_path) == {}


def test_a_document_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"12345")
    assert read_whole(tmp_path / "a.json", 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_whole(tmp_path / "a.json", 4)


@pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")
def test_links_in_a_circle_have_a_path_and_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("a")
    assert real_path(tmp_path / "a").name == "a"
    with pytest.raises(OSError, match="symbolic links"):
        read_whole(tmp_path / "a")


@pytest.mark.skipif(sys.platform == "win32", reason="needs named pipes")
@pytest.mark.parametrize("what", ["folder", "file", "link", "pipe", "nothing"])
def test_anything_is_removed_but_what_a_link_leads_to(tmp_path: Path, what: str) -> None:
    kept, path = tmp_path / "kept", tmp_path / "path"
    kept.mkdir()
    (kept / "file").touch()
    make = {"folder": path.mkdir, "file": path.touch, "link": lambda: path.symlink_to(kept), "nothing": lambda: None}
    make.get(what, lambda: os.mkfifo(path))()
    remove(path)
    assert not os.path.lexists(path)
    assert (kept / "file").exists()
