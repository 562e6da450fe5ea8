"""The first line of a CSV file, by which its format and its columns are known before anything else is read."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from unmet._exceptions import FileFormatError
from unmet.mobility.records.limits import MOST_COLUMNS, check_columns

__all__ = ["CsvHead", "read_head"]

_BLOCK = 1 << 16
_LONGEST = 1 << 20  # bytes of a header with the empty lines before it


@dataclass(frozen=True)
class CsvHead:
    """Format of a CSV file. `blank` is the number of empty lines before its header."""

    delimiter: str
    encoding: str
    blank: int


def read_head(path: Path, label: str) -> tuple[CsvHead, list[str]]:
    """Return the format and the header of a CSV file. Refuse one that is no text, or has too many columns."""
    try:
        with path.open("rb") as stream:
            head = _first_line(stream)
    except OSError as error:
        raise FileFormatError(f"{label}: cannot be opened: {error}") from error
    if not head.strip():
        raise FileFormatError(f"{label}: the file is empty.")
    if b"\0" in head:
        raise FileFormatError(
            f"{label}: this is not a text file (it contains NUL bytes). If it was exported as Unicode or UTF-16, "
            "export it again as UTF-8."
        )
    if len(head) > _LONGEST and not _is_whole(head):
        raise FileFormatError(
            f"{label}: its first line is longer than {_LONGEST >> 20} MiB; expected the names of at most "
            f"{MOST_COLUMNS:,} columns. Check that this is a CSV file with a header and line ends."
        )
    text, encoding = _decoded(head)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    blank = next((i for i, line in enumerate(lines) if line.strip()), 0)
    delimiter = max(",;\t|", key=lines[blank].count)
    try:
        header = next(csv.reader([lines[blank]], delimiter=delimiter))
    except csv.Error as error:
        raise FileFormatError(f"{label}: the first line is not a CSV header: {error}") from error
    check_columns(len(header), label)
    return CsvHead(delimiter, encoding, blank), [name.strip() for name in header]


def _first_line(stream: IO[bytes]) -> bytes:
    """Read until the header is complete, or too long."""
    head = stream.read(_BLOCK)
    while len(head) <= _LONGEST and not _is_whole(head) and (more := stream.read(_BLOCK)):
        head += more
    return head


def _is_whole(head: bytes) -> bool:
    """Whether a line that is not empty has ended."""
    rest = head.lstrip()
    return b"\n" in rest or b"\r" in rest


def _decoded(head: bytes) -> tuple[str, str]:
    """Return the text and its encoding."""
    try:
        # The last line is left out: its last character may be cut in two.
        return (head[: head.rfind(b"\n") + 1] or head).decode("utf-8-sig"), "utf-8"
    except UnicodeDecodeError:
        return head.decode("latin-1"), "latin-1"
