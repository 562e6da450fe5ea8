"""Reading files that somebody else may have replaced: a pipe is not waited for, and a device is not read."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from io import BufferedReader
from pathlib import Path

from unmet._exceptions import FileFormatError

__all__ = ["check_listable", "open_file", "read_whole", "real_path"]

_LARGEST = 100_000_000  # of a document: run.json of 10,000 zones has less than a tenth of it


def open_file(path: Path) -> BufferedReader:
    """Open a file to read its bytes; raise OSError if it is a folder, a pipe or a device."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "this is a folder, a pipe or a device, not a file", str(path))
    return path.open("rb")


def read_whole(path: Path, most: int = _LARGEST) -> bytes:
    """Read a document; raise OSError if it is no file or has more than `most` bytes."""
    with open_file(path) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"the file is larger than {most:,} bytes", str(path))
    return content


def check_listable(folders: Iterable[Path]) -> None:
    """Refuse folders that may not be read: a search passes over them, and what they contain would be missing."""
    for folder in folders:
        if not os.access(folder, os.R_OK | os.X_OK):
            raise FileFormatError(f"{folder}: cannot open this folder: permission denied. Allow reading, or copy it.")


def real_path(path: Path) -> Path:
    """Return the absolute path without symbolic links. Links in a circle stay: whoever opens them gets an OSError.

    `Path.resolve` raises RuntimeError for these before Python 3.13.
    """
    return Path(os.path.realpath(path))
