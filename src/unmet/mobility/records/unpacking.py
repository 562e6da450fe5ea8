"""Compressed files and JSON documents, read within bounds of time, memory and disk.

A packed file can be small and what it contains huge. Nothing here is read or written without a limit.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.folders import check_regular

__all__ = ["DEFAULT_MEMORY", "check_path", "may_have_records", "read_json", "unpack"]

DEFAULT_MEMORY = 2_000_000_000
# What unpacks to more bytes than this, by more than this factor, is refused: CSV shrinks 5 to 50 fold.
_LARGE, _FACTOR = 1 << 28, 200
_BLOCK = 1 << 20
# Bytes of memory that Python takes for each byte of the worst document: `{},` becomes a dict of 64 bytes and a
# pointer, beside the bytes and their text.
_JSON_FACTOR = 32
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_DAMAGED = (OSError, EOFError, zlib.error)
_MEMBERS = (".csv", ".tsv", ".txt")
# Files that lie beside records and contain none.
_DOCUMENTS = (".md", ".pdf", ".htm", ".html", ".rtf", ".doc", ".docx", ".png", ".jpg", ".jpeg", ".svg", ".md5", ".crc")
_ABOUT = re.compile(r"(read[ _-]?me|licen[cs]e|copying|_success|thumbs\.db|desktop\.ini|sha256sums)\b.*", re.IGNORECASE)


def check_path(path: Path) -> None:
    """Refuse a path that is not UTF-8 text: it cannot be passed on, stored or shown."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = str(path).encode(errors="surrogateescape").decode(errors="backslashreplace")
        raise FileFormatError(f"{shown}: the name of this file is not UTF-8 text. Rename the file.") from None


def may_have_records(name: str) -> bool:
    """Return whether a file of a folder or archive may contain records, judged by its path there.

    Hidden files, read-me files, licences, documents, pictures and checksums do not.

    Examples
    --------
    >>> [may_have_records(name) for name in ("2021/june.xlsx", "README.txt", "__MACOSX/._june.csv")]
    [True, False, False]
    """
    parts = name.split("/")
    hidden = any(part.startswith(".") and part not in (".", "..") for part in parts) or "__MACOSX" in parts
    last = parts[-1]
    return bool(last) and not (hidden or last.lower().endswith(_DOCUMENTS) or _ABOUT.fullmatch(last))


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


def read_json(path: Path, memory: int = DEFAULT_MEMORY) -> Any:
    """Read a JSON document, gzipped or not.

    Parameters
    ----------
    path : Path
        The document.
    memory : int
        Memory limit in bytes. A document is refused if it might need more when parsed: above 1/32 of the limit.
    """
    limit = memory // _JSON_FACTOR
    check_regular(path)
    try:
        with gzip.open(path) if _is_gzip(path) else path.open("rb") as stream:
            content = stream.read(limit + 1)
    except _DAMAGED as error:
        raise FileFormatError(f"{path}: cannot be opened: {_reason(error)}") from error
    if len(content) > limit:
        raise FileFormatError(
            f"{path}: the document is larger than {limit:,} bytes, the most for a memory limit of "
            f"{memory / 1e9:g} GB. Raise the limit (memory=, --memory) if the document is right."
        )
    if not content.strip():
        raise FileFormatError(f"{path}: the file is empty.")
    try:
        text = content.decode(json.detect_encoding(content))  # `json` by itself lets halves of characters pass
        document = json.loads(text)
        if _SURROGATE.search(text):  # half a character, as in "\ud800", is not text
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise FileFormatError(f"{path}: lists or objects are nested too deeply for a document of this kind.") from None
    except json.JSONDecodeError as error:
        raise FileFormatError(f"{path}: not a complete JSON document ({error}). Is it truncated?") from error
    except ValueError as error:  # half a character, or thousands of digits
        raise FileFormatError(f"{path}: a text or number of the document cannot be read ({error}).") from error
    return document


def unpack(path: Path, folder: Path, names: Iterator[str], most: int) -> Iterator[tuple[Path, str]]:
    """Unpack a zip archive of text tables, or a gzipped one, into a folder. Yield other files as they are.

    Gzipped files are unpacked here because DuckDB does not notice a damaged one: their checksum shows it.

    Parameters
    ----------
    path : Path
        The file.
    folder : Path
        Folder for the unpacked files.
    names : iterator of str
        Names of the unpacked files.
    most : int
        Largest number of files. More are refused before they are unpacked.

    Yields
    ------
    file : Path
        A file that is not compressed.
    label : str
        Its name in messages.
    """
    name = path.name.lower()
    if name.endswith(".zip"):
        yield from _unpack_zip(path, folder, names, most)
        return
    _check_number(path, 1, most)
    try:
        packed = not name.endswith(".parquet") and _is_gzip(path)
        if packed:
            target = folder / next(names)
            with gzip.open(path) as stream, target.open("wb") as out:
                _copy(cast(IO[bytes], stream), out, path)
    except _DAMAGED as error:
        raise FileFormatError(f"{path}: cannot be unpacked: {_reason(error)}") from error
    yield (target if packed else path), str(path)


def _copy(stream: IO[bytes], out: IO[bytes], path: Path) -> None:
    """Copy a stream to a file, until it is too large for the file that it was unpacked from or for the disk."""
    packed, size = path.stat().st_size, 0
    while block := stream.read(_BLOCK):
        size += len(block)
        _check_size(path, size, packed)
        if size % (64 * _BLOCK) < _BLOCK:
            _check_disk(path, len(block), Path(out.name).parent)
        out.write(block)


def _check_size(path: Path, size: int, packed: int) -> None:
    if size > _LARGE and size > _FACTOR * packed:
        raise FileFormatError(
            f"{path}: unpacks to {size:,} bytes or more, {size // max(packed, 1):,} times its packed size; "
            "this looks like a zip bomb. Unpack it yourself if it is not."
        )


def _check_disk(path: Path, size: int, folder: Path) -> None:
    if size > shutil.disk_usage(folder).free:
        raise InputError(
            f"{path}: unpacks to {size:,} bytes more, which is more than the free space on the disk of {folder}. "
            "Free some space, or set TMPDIR to another disk."
        )


def _check_number(path: Path, files: int, most: int) -> None:
    if files > most:
        raise InputError(
            f"{path}: there are too many files to read at once within the memory limit. Join small files into larger "
            "ones, or raise the limit (memory=, --memory)."
        )


def _unpack_zip(path: Path, folder: Path, names: Iterator[str], most: int) -> Iterator[tuple[Path, str]]:
    unpacked = []
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(path, archive)
            _check_number(path, len(members), most)
            # zipfile stops at the size that the archive declares for a member.
            size = sum(m.file_size for m in members)
            _check_size(path, size, path.stat().st_size)
            _check_disk(path, size, folder)
            for member in members:
                target = folder / next(names)
                with archive.open(member) as stream, target.open("wb") as out:
                    shutil.copyfileobj(stream, out, _BLOCK)
                unpacked.append((target, f"{path}:{member.filename}"))
    except InputError:
        raise
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, ValueError, struct.error, *_DAMAGED) as error:
        raise FileFormatError(f"{path}: not a readable zip archive: {_reason(error)}") from error
    yield from unpacked


def _members(path: Path, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """List the tables of an archive. Refuse an archive with none, or with files that may be records of another kind."""
    members = [m for m in archive.infolist() if not m.is_dir() and may_have_records(m.filename)]
    if not members:
        found = ", ".join(repr(m.filename) for m in archive.infolist()[:5])
        raise FileFormatError(f"{path}: this archive contains no .csv file (it contains {found or 'nothing'}).")
    for member in members:
        if not member.filename.lower().endswith(_MEMBERS):
            raise FileFormatError(
                f"{path}: this archive contains {member.filename!r}, which is not read from an archive; only "
                f"{', '.join(_MEMBERS)} are. Unpack the archive, and name the files that are records."
            )
    return members


def _reason(error: Exception) -> str:
    damaged = isinstance(error, EOFError | zlib.error | gzip.BadGzipFile | zipfile.BadZipFile)
    return f"{error}. The file is damaged or incomplete; copy it again." if damaged else str(error)
