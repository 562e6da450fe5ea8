"""Temporary folders that do not outlive their process for long, even if it is killed.

A process that is killed with SIGKILL cannot remove its folder. The next one that makes a folder of the same name and
place removes it. The process holds a lock on its folder; the system releases it when the process ends, however it ends.
A folder of a living process is therefore never touched.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

__all__ = ["temporary_folder"]

_PREFIX = "unmet-"
_MARK = ".held"
"""File that marks a folder as made here. It is written after the lock is taken, so a marked folder without a lock
belongs to a process that ended. Folders of other origin with a similar name have no mark, and stay."""


@contextmanager
def temporary_folder(
    parent: Path | None = None, prefix: str = _PREFIX, suffix: str = "", rescue: Callable[[Path], None] | None = None
) -> Iterator[Path]:
    """Give an empty folder for temporary files; remove it at the end, and those of processes that were killed.

    Parameters
    ----------
    parent : Path, optional
        Where it is made; default: the system's folder for temporary files.
    prefix, suffix : str
        Begin and end of its name, and of those that are removed.
    rescue : callable, optional
        Called with the folder of a killed process before it is removed.

    Examples
    --------
    >>> with temporary_folder() as folder:
    ...     _ = (folder / "a.txt").write_text("a")
    >>> folder.exists()
    False
    """
    place = Path(tempfile.gettempdir()) if parent is None else parent
    _remove_abandoned(place, f"{escape(prefix)}*{escape(suffix)}", rescue)
    folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=suffix, dir=place))
    handle = None
    try:
        handle = _lock(folder)
        if handle is not None:
            (folder / _MARK).touch()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def _lock(folder: Path) -> int | None:
    """Lock a folder and return the handle to close. None if another process holds it, or without locks (Windows)."""
    try:
        import fcntl
    except ImportError:
        return None
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by another process, or on a file system without locks
        os.close(handle)
        return None
    return handle


def _remove_abandoned(parent: Path, pattern: str, rescue: Callable[[Path], None] | None) -> None:
    """Remove the folders below `parent` that were made here, belong to this user and are held by no process."""
    for folder in parent.glob(pattern):
        handle = None
        with suppress(OSError):  # gone meanwhile, of another user, or no folder
            if not os.path.lexists(folder / _MARK):
                continue
            handle = _lock(folder)
            if handle is not None and os.fstat(handle).st_uid == os.getuid():
                if rescue is not None:
                    rescue(folder)
                shutil.rmtree(folder, ignore_errors=True)
        if handle is not None:
            os.close(handle)
