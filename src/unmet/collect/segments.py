"""Append-only files of polls: what was appended before a kill is there afterwards, once.

A segment is a sequence of frames: four bytes magic, length and CRC-32 of the payload, then the payload (zlib over
JSON). A frame is appended with one write and an fsync. A kill or a full disk may leave a torn frame at the end, which
fails its length or checksum. It is cut off when the segment is opened for appending, and readers ignore it.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from unmet._exceptions import FileFormatError

__all__ = ["Segment", "read_segment"]

_MAGIC = b"UNM1"
_HEAD = struct.Struct("<4sII")
_MOST_BYTES = 1 << 28  # of one frame, unpacked: larger ones are damage, or not ours


class Segment:
    """A segment opened for appending.

    Parameters
    ----------
    path : pathlib.Path
        The file; made if it does not exist. A torn frame at its end is cut off.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "day.segment"
    >>> with Segment(path) as segment:
    ...     segment.append({"poll": 1})
    >>> list(read_segment(path))
    [{'poll': 1}]
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = not path.exists()
        self._file = path.open("r+b" if not fresh else "w+b", buffering=0)
        end = max((end for _, end in _frames(self._file.read())), default=0)
        self._file.truncate(end)
        self._file.seek(end)
        if fresh:
            _sync_folder(path.parent)

    def append(self, payload: dict[str, Any]) -> None:
        """Append a frame. It is on disk when this returns; after an error the file is as it was before."""
        packed = zlib.compress(json.dumps(payload, separators=(",", ":")).encode(), 6)
        frame = _HEAD.pack(_MAGIC, len(packed), zlib.crc32(packed)) + packed
        start = self._file.tell()
        try:
            written = self._file.write(frame)
            if written != len(frame):
                raise OSError(28, "No space left on device")
            os.fsync(self._file.fileno())
        except BaseException:
            self._file.truncate(start)
            self._file.seek(start)
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Segment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_segment(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the payloads of a segment in order. A torn frame at the end is ignored.

    Raises
    ------
    FileFormatError
        If a frame with a right checksum does not contain a JSON object.
    """
    for packed, _ in _frames(path.read_bytes()):
        unpacker = zlib.decompressobj()
        try:
            text = unpacker.decompress(packed, _MOST_BYTES)
            payload = json.loads(text)
        except (zlib.error, ValueError, RecursionError) as error:
            raise FileFormatError(f"{path}: a frame cannot be unpacked ({error}).") from None
        if unpacker.unconsumed_tail or not isinstance(payload, dict):
            raise FileFormatError(f"{path}: a frame is not a record of a poll.")
        yield payload


def _frames(content: bytes) -> Iterator[tuple[bytes, int]]:
    """Sound frames from the start of a file, each with the position behind it."""
    position = 0
    while position + _HEAD.size <= len(content):
        magic, length, checksum = _HEAD.unpack_from(content, position)
        end = position + _HEAD.size + length
        packed = content[position + _HEAD.size : end]
        if magic != _MAGIC or len(packed) < length or zlib.crc32(packed) != checksum:
            return
        yield packed, end
        position = end


def _sync_folder(folder: Path) -> None:
    """Make the name of a new file survive a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
