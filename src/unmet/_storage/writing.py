"""Whole-or-nothing writing: files and folders appear complete, or what was there before stays.

Every file that a user keeps is written by one of these functions. They write aside, in a temporary folder beside the
target, so that the last step is a rename, which either happens or does not. Files are flushed to disk before the
rename, so a power cut cannot leave a new name with old content. Permissions follow the user's umask.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from unmet._exceptions import InputError
from unmet._storage.temporary import temporary_folder

__all__ = ["check_places", "move_files", "replacing", "replacing_files", "system_reason", "write_text", "writing"]

_NEW, _BEFORE = "partial", "before"
"""Names in the temporary folder: of what is written, and of the folder that it replaces."""

_ADVICE = (
    "Existing results are unchanged and finished zones are kept: free some space or choose another folder, and run "
    "the same command again."
)


@contextmanager
def replacing(target: Path, *, scratch: Path | None = None) -> Iterator[Path]:
    """Give a path to write a file or a folder at; move it to `target` on success, remove it on failure.

    Parameters
    ----------
    target : Path
        The file or folder to replace. It need not exist; its parent must.
    scratch : Path, optional
        An existing folder on the same disk to write in; the parent of `target` by default.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder, "notes.txt")
    ...     with replacing(target) as path:
    ...         _ = path.write_text("all of it")
    ...     target.read_text(), len(os.listdir(folder))
    ('all of it', 1)
    """
    # A rename would put a file in its place. Links such as /dev/stdout lead to open files of the process.
    is_special = target.is_symlink() and os.readlink(target).startswith(("/proc/", "/dev/"))
    if is_special or (target.exists() and not (target.is_file() or target.is_dir())):
        raise InputError(f"{target}: expected a file or a folder to write; this is a pipe or a device.")
    with _place_for(target, target.parent, scratch) as folder:
        aside, before = folder / _NEW, folder / _BEFORE
        try:
            yield aside
            _flush(aside)
            if aside.is_dir() and target.is_dir():  # no rename replaces a folder that has files
                os.replace(target, before)
            os.replace(aside, target)
        except BaseException:
            _put_back(target, folder)
            raise


@contextmanager
def replacing_files(folder: Path, *, last: str | None = None, scratch: Path | None = None) -> Iterator[Path]:
    """Give an empty folder to write files in; move them into `folder` on success, remove them on failure.

    Parameters
    ----------
    folder : Path
        An existing folder. Files of other names in it are left alone.
    last : str, optional
        The file to move last: readers take it as the sign that the set is complete.
    scratch : Path, optional
        As in `replacing`; `folder` by default.
    """
    with _place_for(folder, folder, scratch) as place:
        aside = place / _NEW
        aside.mkdir()
        yield aside
        _flush(aside)
        names = [path.name for path in aside.iterdir()]
        move_files(aside, folder, sorted(names, key=lambda name: (name == last, name)))


def move_files(source: Path, target: Path, names: Iterable[str]) -> None:
    """Move finished files from one folder to another on the same disk, in this order.

    Parameters
    ----------
    source, target : Path
        The folders.
    names : iterable of str
        Paths below both; folders between are made.

    Raises
    ------
    InputError
        Before the first move, as `check_places`.
    """
    listed = list(names)
    check_places(target, listed)
    for name in listed:
        (target / name).parent.mkdir(exist_ok=True)
        os.replace(source / name, target / name)


def check_places(folder: Path, names: Iterable[str]) -> None:
    """Refuse a folder in which another folder, a pipe or a device is in the place of a file to write, or the reverse.

    A move would fail after others had been made, or put a file in the place of the pipe.
    """
    for place in (folder / name for name in names):
        taken = place.exists() and not place.is_file()
        wrong = place if taken else place.parent if place.parent.is_file() else None
        if wrong is not None:
            kind = "folder" if wrong.is_dir() else "file" if wrong.is_file() else "pipe or device"
            raise InputError(
                f"{wrong}: this {kind} is in the place of a result. Move it, or give another folder with --out, and "
                "run the same command again. Nothing was changed; finished work of a run is kept."
            )


def write_text(path: Path, text: str, *, errors: str = "strict", scratch: Path | None = None) -> None:
    """Write a text file whole or not at all, in UTF-8 and with Unix line ends; make its folder if need be.

    `scratch` is as in `replacing`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, scratch=scratch) as aside:
        aside.write_text(text, encoding="utf-8", errors=errors, newline="\n")


@contextmanager
def writing(target: Path, advice: str = _ADVICE) -> Iterator[None]:
    """Turn a failure to write (no permission, no space) into an `InputError` that names `target` and gives advice."""
    import duckdb  # slow to load, and most writers of this module do without

    try:
        yield
    except (OSError, duckdb.IOException) as error:
        raise InputError(f"{target}: cannot be written: {system_reason(error)}. {advice}") from error


def system_reason(error: Exception) -> str:
    """Return the reason of the system for a failed write, without DuckDB's words, which are about its insides.

    Examples
    --------
    >>> import errno
    >>> print(system_reason(OSError(errno.EACCES, "Permission denied")))
    Permission denied
    >>> import duckdb
    >>> print(system_reason(duckdb.IOException('IO Error: Could not write file "a.db": No space left on device')))
    No space left on device
    """
    if isinstance(error, OSError):
        return error.strerror or str(error).splitlines()[0]
    known = map(os.strerror, (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EIO))
    return next((reason for reason in known if reason in str(error)), "the disk may be full or not writable")


@contextmanager
def _place_for(target: Path, folder: Path, scratch: Path | None) -> Iterator[Path]:
    """Give a folder to write something in that becomes `target`, in `scratch` or else in `folder`.

    In `folder`, those of killed processes for the same target are removed; in `scratch`, that is up to its owner.
    The name is hidden and short enough for any file system; the checksum keeps long names apart.
    """
    prefix, suffix = f".{target.name[:40]}.{zlib.crc32(os.fsencode(target.name)):08x}.", ".partial"
    if scratch is None:
        with temporary_folder(folder, prefix, suffix, rescue=partial(_put_back, target)) as place:
            yield place
    else:
        with TemporaryDirectory(suffix, prefix, scratch, ignore_cleanup_errors=True) as made:
            yield Path(made)


def _put_back(target: Path, folder: Path) -> None:
    """Put a folder back that was moved away to be replaced, if that did not happen."""
    if (folder / _BEFORE).exists() and not target.exists():
        os.replace(folder / _BEFORE, target)


def _flush(path: Path) -> None:
    for file in [path] if path.is_file() else path.rglob("*"):
        if file.is_file():
            with file.open("r+b") as stream:
                os.fsync(stream.fileno())
