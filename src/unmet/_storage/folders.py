"""Folders of results: hold one against other processes, and describe which inputs changed."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from unmet._exceptions import InputError
from unmet._storage.writing import writing

__all__ = ["check_regular", "describe_change", "hold_folder", "remove", "remove_if_empty", "remove_strange"]

_HASH = re.compile("[0-9a-f]{64}")


def check_regular(path: Path) -> None:
    """Refuse what exists and is no file: reading a pipe would wait without end, and a device has no end."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: expected a file; this is a folder, a pipe or a device.")


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Make a folder if need be and hold it against other processes.

    The system releases the folder when this process ends, even if it is killed. A folder that was made here and is
    empty at the end is removed.
    """
    made = not folder.exists()
    if not made and not folder.is_dir():
        raise InputError(f"{folder}: is a file; name a folder for the results (--out).")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        try:
            yield
        finally:
            if made:
                remove_if_empty(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # Windows has no such lock: two runs in one folder are not detected there
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"{folder}: another run is using this folder. Wait for it, stop it, or name another folder."
            ) from error
        yield
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file, a folder with all in it, a link (not what it leads to) or a pipe, if there is one.

    `shutil.rmtree` refuses links and files, and waits for pipes without end.
    """
    with suppress(OSError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def remove_strange(folder: Path) -> None:
    """Remove links, pipes and devices from a folder of own files, and the folder itself if it is one.

    Through a link, a run would write outside its output.
    """
    paths = [folder]
    for place, folders, files in os.walk(folder):
        paths += [Path(place) / name for name in (*folders, *files)]
    for path in paths:
        with suppress(OSError):
            if stat.S_IFMT(path.lstat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
                path.unlink()


def remove_if_empty(folder: Path) -> None:
    """Remove a folder; leave it if it has files or does not exist."""
    with suppress(OSError):
        folder.rmdir()


def describe_change(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describe how the inputs of a result differ from those of an earlier one.

    Parameters
    ----------
    before, now : mapping
        Inputs by name: plain values, contents (hashes or lists of them), or mappings of settings.

    Examples
    --------
    >>> before = {"trips": ["5f3a"], "settings": {"zones": "stations"}, "model": {"seed": 0}}
    >>> describe_change(before, {"trips": ["77b0"], "settings": {"zones": "h3:9"}, "model": {"seed": 1}})
    "trips changed; zones changed from 'stations' to 'h3:9'; model seed changed from 0 to 1"
    """
    changes = []
    for key in {**now, **before}:
        old, new = before.get(key), now.get(key)
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            prefix = "" if key == "settings" else f"{key} "
            changes += [
                f"{prefix}{name} changed from {old.get(name)!r} to {new.get(name)!r}"
                for name in {**new, **old}
                if old.get(name) != new.get(name)
            ]
        elif _is_content(old) or _is_content(new):
            changes.append(f"{key} changed")
        else:
            changes.append(f"{key} changed from {old!r} to {new!r}")
    return "; ".join(changes)


def _is_content(value: object) -> bool:
    return isinstance(value, list) or (isinstance(value, str) and _HASH.fullmatch(value) is not None)
