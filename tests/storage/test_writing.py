"""Whole-or-nothing writing: complete, or as before."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import unmet
from unmet import InputError
from unmet._storage.writing import move_files, replacing, replacing_files, write_text, writing


class Stopped(Exception):
    """Raised by a test in the middle of writing."""


def content(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "before")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "half \ud800")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_replaced_when_the_block_ends_and_not_before(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("before")
    with replacing(path) as aside:
        aside.write_text("after")
        assert path.read_text() == "before"
        assert path.parent in aside.parents  # on the same disk
    assert content(tmp_path) == {"a.txt": "after"}


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_failure_leaves_what_was_there_and_nothing_else(tmp_path, kind):
    target = tmp_path / "results"
    inner = target / "a.txt" if kind == "folder" else target
    inner.parent.mkdir(exist_ok=True)
    inner.write_text("before")

    def fail():
        with replacing(target) as aside:
            if kind == "folder":
                aside.mkdir()
                aside = aside / "a.txt"
            aside.write_text("half")
            raise Stopped

    with pytest.raises(Stopped):
        fail()
    assert list(content(tmp_path).values()) == ["before"]
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    target = tmp_path / "city"
    target.mkdir()
    (target / "old.txt").write_text("before")
    with replacing(target) as aside:
        aside.mkdir()
        (aside / "new.txt").write_text("after")
    assert content(tmp_path) == {"city/new.txt": "after"}


def test_a_folder_whose_last_rename_fails_comes_back(tmp_path, monkeypatch):
    target = tmp_path / "city"
    target.mkdir()
    (target / "old.txt").write_text("before")
    rename = os.replace

    def fail_once(source, to, done=[]):  # noqa: B006
        if Path(to) == target and not done:
            done.append(1)
            raise OSError("no")
        rename(source, to)

    monkeypatch.setattr(os, "replace", fail_once)
    with pytest.raises(OSError, match="no"), replacing(target) as aside:
        aside.mkdir()
    assert content(tmp_path) == {"city/old.txt": "before"}


def test_files_move_in_order_of_name_with_the_last_one_last(tmp_path, monkeypatch):
    (tmp_path / "kept.txt").write_text("kept")
    moved = []
    rename = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (moved.append(Path(b).name), rename(a, b)))
    with replacing_files(tmp_path, last="a.json") as aside:
        for name in ("a.json", "c.txt", "b.txt"):
            (aside / name).write_text(name)
    assert moved == ["b.txt", "c.txt", "a.json"]
    assert content(tmp_path) == {n: n.split(".")[0] if n == "kept.txt" else n for n in (*moved, "kept.txt")}


def test_none_of_a_set_of_files_appears_when_one_fails(tmp_path):
    (tmp_path / "b.txt").write_text("before")

    def fail():
        with replacing_files(tmp_path) as aside:
            (aside / "b.txt").write_text("after")
            raise Stopped

    with pytest.raises(Stopped):
        fail()
    assert content(tmp_path) == {"b.txt": "before"}
    assert len(list(tmp_path.iterdir())) == 1


def test_files_can_be_made_in_a_scratch_folder(tmp_path):
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    scratch.mkdir()
    out.mkdir()
    with replacing_files(out, scratch=scratch) as first, replacing(out / "b.txt", scratch=scratch) as second:
        assert first.parent.parent == second.parent.parent == scratch
        (first / "a.txt").write_text("a")
        second.write_text("b")
    assert content(tmp_path) == {"out/a.txt": "a", "out/b.txt": "b"}


def test_files_are_moved_with_the_folders_between(tmp_path):
    (tmp_path / "from" / "below").mkdir(parents=True)
    (tmp_path / "to").mkdir()
    (tmp_path / "from" / "below" / "a.txt").write_text("a")
    move_files(tmp_path / "from", tmp_path / "to", ["below/a.txt"])
    assert content(tmp_path) == {"to/below/a.txt": "a"}


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_follow_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_text(tmp_path / "a.txt", "a")
        with replacing(tmp_path / "folder") as aside:
            aside.mkdir()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o666 & ~mask
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o777 & ~mask


def test_content_is_on_disk_before_its_name_is(tmp_path, monkeypatch):
    steps = []
    flush, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (steps.append("flush"), flush(handle)))
    monkeypatch.setattr(os, "replace", lambda a, b: (steps.append("rename"), rename(a, b)))
    write_text(tmp_path / "a.txt", "a")
    assert steps == ["flush", "rename"]


def test_a_failure_to_write_names_the_target_the_reason_and_what_to_do(tmp_path):
    with (
        pytest.raises(InputError, match=r"out: cannot be written: No space left on device\. Choose another\."),
        writing(tmp_path / "out", "Choose another."),
    ):
        raise OSError(28, os.strerror(28))


def test_nothing_else_in_the_package_renames_files_or_makes_temporary_ones():
    root = Path(unmet.__file__).parent
    by_hand = re.compile(r"os\.(replace|rename)\(|mkstemp\(|NamedTemporaryFile\(")
    found = [str(p.relative_to(root)) for p in root.rglob("*.py") if by_hand.search(p.read_text(encoding="utf-8"))]
    assert found == ["_storage/writing.py"]


_KILLED = """
import os, signal, sys
from pathlib import Path
from unmet._storage import writing

rename = os.replace
def kill(source, to):  # before the last rename, or while writing
    if sys.argv[2] == "renaming" and Path(to) == Path(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, to)

os.replace = kill
with writing.replacing(Path(sys.argv[1])) as aside:
    aside.mkdir()
    (aside / "new.txt").write_text("after")
    if sys.argv[2] == "writing":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs flock and SIGKILL")
@pytest.mark.parametrize("moment", ["writing", "renaming"])
def test_what_a_killed_process_left_is_removed_by_the_next_one_that_writes_there(tmp_path, moment):
    target = tmp_path / "city"
    target.mkdir()
    (target / "old.txt").write_text("before")
    assert subprocess.run([sys.executable, "-c", _KILLED, str(target), moment]).returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob(".city.*.partial"))) == 1
    other = tmp_path / "other"
    write_text(other, "of another name: leaves it alone")
    assert len(list(tmp_path.glob(".city.*.partial"))) == 1

    def fail():
        with replacing(target):
            assert not (tmp_path / "city" / "new.txt").exists()
            raise Stopped

    with pytest.raises(Stopped):
        fail()
    assert (target / "old.txt").read_text() == "before"  # also if the process had moved it away
    assert sorted(tmp_path.iterdir()) == [target, other]


def test_what_a_living_process_writes_is_left_alone(tmp_path):
    with replacing(tmp_path / "a.txt") as mine:
        mine.write_text("mine")
        with replacing(tmp_path / "a.txt") as theirs:
            theirs.write_text("theirs")
    assert content(tmp_path) == {"a.txt": "mine"}


def test_a_device_or_a_pipe_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="this is a pipe or a device"):
        write_text(tmp_path / "pipe", "text")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd/0"), reason="needs /proc")
@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_no_file_is_moved_if_one_of_them_has_no_place(tmp_path, kind):
    """The first files were replaced, and the error said that nothing was changed."""
    (tmp_path / "a").write_text("before")
    place = tmp_path / "b"
    place.mkdir() if kind == "folder" else os.mkfifo(place)
    aside = tmp_path / "aside"
    aside.mkdir()
    for name in "ab":
        (aside / name).write_text("after")
    with pytest.raises(InputError, match=f"b: this {kind}.* is in the place of a result. Move it"):
        move_files(aside, tmp_path, ["a", "b"])
    assert (tmp_path / "a").read_text() == "before"
    assert not place.is_file()


def test_a_link_to_an_open_file_is_not_replaced(tmp_path):
    with (tmp_path / "opened").open("w") as file:
        link = tmp_path / "stdout"
        link.symlink_to(f"/proc/self/fd/{file.fileno()}")
        with pytest.raises(InputError, match="this is a pipe or a device"):
            write_text(link, "text")
        assert link.is_symlink()
