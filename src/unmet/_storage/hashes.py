"""SHA-256 hashes of files and data frames."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pandas as pd
from pandas.util import hash_pandas_object

from unmet._storage.files import open_file

__all__ = ["file_hash", "frame_hash"]


def file_hash(path: Path) -> str:
    """Give the SHA-256 of a file's bytes; raise OSError if it is a folder, a pipe or a device."""
    with open_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def frame_hash(frame: pd.DataFrame) -> str:
    """Give the SHA-256 of a frame's names, types and values, without its index."""
    digest = hashlib.sha256()
    for name in frame.columns:
        column = frame[name]
        digest.update(f"{name}\0{column.dtype}\0".encode())
        digest.update(hash_pandas_object(column, index=False).to_numpy().tobytes())
    return digest.hexdigest()
