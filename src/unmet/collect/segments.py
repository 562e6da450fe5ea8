"""Append-only files of polls: what was appended before a kill is there afterwards, once.

A segment is a sequence of frames: four bytes magic, length and CRC-32 of the payload, then the payload (zlib over
JSON). A frame is appended with one write and an fsync. A kill or a full disk may leave a torn frame at the end, which
fails its length or checksum. It is cut off when the segment is opened for appending, and readers ignore it. Frames
behind a damaged one are found by their magic.
"""

from __future__ import annotations

import errno
import json
import os
import struct
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from unmet._exceptions import FileFormatError
from unmet.collect.documents import MOST_VALUES, refuse_many_values

__all__ = ["Segment", "check_frame", "damaged_bytes", "read_segment"]

_MAGIC = b"UNM1"
_HEAD = struct.Struct("<4sII")
# Of one frame, unpacked. Larger ones are damage, or not ours: parsed values take up to 64 bytes each.
_MOST_BYTES = 1 << 28
_OF_POLL = 100_000  # bytes or values of a frame beside the rows of a document: its poll


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
        # A link or a pipe is not ours: what it leads to must not be written, nor waited for.
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise FileFormatError(
                f"{path}: expected a file of the collector, not a link, a folder or a device. Move it away."
            )
        fresh = not path.exists()
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        self._file = os.fdopen(os.open(path, flags, 0o666), "r+b", buffering=0)
        content = self._file.read()
        end = max((end for _, end in _frames(content)), default=0)
        if end == 0 and not _MAGIC.startswith(content[: len(_MAGIC)].rstrip(b"\0")):
            self._file.close()
            raise FileFormatError(f"{path}: is not a file of the collector, or its beginning is damaged. Move it away.")
        self._file.truncate(end)
        self._file.seek(end)
        self._lock = threading.Lock()  # a poll is appended by a thread of its own, which `close` waits for
        if fresh:
            _sync_folder(path.parent)

    def append(self, payload: dict[str, Any]) -> None:
        """Append a frame. It is on disk when this returns; after an error the file is as it was before."""
        packed = zlib.compress(_as_json(payload), 6)
        frame = _HEAD.pack(_MAGIC, len(packed), zlib.crc32(packed)) + packed
        with self._lock:
            start = self._file.tell()
            try:
                if self._file.write(frame) != len(frame):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(self._file.fileno())
            except BaseException:
                self._file.truncate(start)
                self._file.seek(start)
                raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
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
            refuse_many_values(text, MOST_VALUES)
            payload = json.loads(text)
        except (zlib.error, ValueError, RecursionError) as error:
            raise FileFormatError(f"{path}: a frame cannot be unpacked ({error}).") from None
        if unpacker.unconsumed_tail or not isinstance(payload, dict):
            raise FileFormatError(f"{path}: a frame is not a record of a poll.")
        yield payload


def check_frame(rows: Mapping[str, Any]) -> None:
    """Raise `FileFormatError` for rows that make a frame larger than `read_segment` reads."""
    text = _as_json(rows)
    try:
        if len(text) > _MOST_BYTES - _OF_POLL:
            raise ValueError(f"it has {len(text):,} bytes")
        refuse_many_values(text, MOST_VALUES - _OF_POLL)
    except ValueError as error:
        raise FileFormatError(f"what is new is too much to be kept ({error})") from None


def _as_json(payload: Mapping[str, Any]) -> bytes:
    return json.dumps(payload, separators=(",", ":")).encode()


def damaged_bytes(path: Path) -> int:
    """Count bytes between sound frames: those of damaged frames. A torn frame at the end does not count."""
    sound, last = 0, 0
    for packed, end in _frames(path.read_bytes()):
        sound += _HEAD.size + len(packed)
        last = end
    return last - sound


def _frames(content: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield sound frames, each with the position behind it."""
    position = content.find(_MAGIC)
    while 0 <= position <= len(content) - _HEAD.size:
        _, length, checksum = _HEAD.unpack_from(content, position)
        end = position + _HEAD.size + length
        packed = content[position + _HEAD.size : end]
        # A power cut may leave zeros, and the checksum of nothing is 0.
        if len(packed) == length > 0 and zlib.crc32(packed) == checksum:
            yield packed, end
            position = content.find(_MAGIC, end)
        else:
            position = content.find(_MAGIC, position + 1)


def _sync_folder(folder: Path) -> None:
    """Make the name of a new file survive a crash of the machine."""
    with suppress(PermissionError):  # Windows opens no folders, and needs no such thing
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
