"""Records of the inputs and outputs of each stage, which decide whether it can be reused.

A stage is reused if its inputs (contents of files, settings, version of `unmet`) and its own output files are
unchanged. Files are compared by SHA-256; an input whose size and times are unchanged is not read again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmet._exceptions import FileFormatError
from unmet._storage.files import read_whole
from unmet._storage.hashes import file_hash
from unmet._storage.writing import write_text

__all__ = [
    "LEDGER_NAME",
    "Seen",
    "StageRecord",
    "read_ledger",
    "see_all",
    "seen",
    "write_ledger",
]

LEDGER_NAME = "stages.json"


@dataclass(frozen=True)
class Seen:
    """Size, times and hash of a file."""

    size: int
    mtime_ns: int
    ctime_ns: int
    sha256: str


@dataclass(frozen=True)
class StageRecord:
    """Inputs and outputs of a stage.

    Attributes
    ----------
    inputs : dict
        Everything that decides its result, as JSON values; files by their hashes.
    files : dict
        The input files, by path.
    outputs : dict
        The output files, by path relative to the run's folder.
    """

    inputs: dict[str, Any]
    files: dict[str, Seen] = field(default_factory=dict)
    outputs: dict[str, Seen] = field(default_factory=dict)

    def damaged(self, folder: Path) -> str | None:
        """Return the first output file that was changed or removed, or None."""
        for name, before in self.outputs.items():
            try:
                # Always read again: a disk that fails changes bytes, but not times.
                if file_hash(folder / name) != before.sha256:
                    return name
            except OSError:
                return name
        return None if self.outputs else "a record of its files"


def seen(path: Path, before: Seen | None = None) -> Seen:
    """Look at a file; reuse the hash in `before` if size and times are unchanged.

    ``cp -p`` and archives restore the modification time, so the change time (ctime) is compared too.
    """
    try:
        state = path.stat()
        now = (state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        if before is not None and now == (before.size, before.mtime_ns, before.ctime_ns):
            return before
        return Seen(*now, file_hash(path))
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be opened: {error.strerror}.") from error


def see_all(paths: Iterable[Path], known: Mapping[str, Seen]) -> dict[str, Seen]:
    """Look at several files; returns them by absolute path."""
    full = [path.absolute() for path in paths]
    return {str(path): seen(path, known.get(str(path))) for path in full}


def read_ledger(folder: Path) -> dict[str, StageRecord]:
    """Read the records in a folder, by stage. A missing or unreadable file gives no records."""
    try:
        document = json.loads(read_whole(folder / LEDGER_NAME))
        return {
            str(name): StageRecord(
                dict(record["inputs"]),
                {path: Seen(**known) for path, known in record["files"].items()},
                {path: Seen(**known) for path, known in record["outputs"].items()},
            )
            for name, record in document["stages"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def write_ledger(folder: Path, records: Mapping[str, StageRecord], scratch: Path | None = None) -> None:
    """Write the records of a folder; the file is written in `scratch` and replaced only when complete."""
    document = {
        "about": "Inputs and outputs of each stage of `unmet run`. A stage is reused while they are unchanged.",
        "stages": {
            name: {
                "inputs": record.inputs,
                "files": {path: vars(known) for path, known in record.files.items()},
                "outputs": {path: vars(known) for path, known in record.outputs.items()},
            }
            for name, record in records.items()
        },
    }
    write_text(folder / LEDGER_NAME, json.dumps(document, indent=1) + "\n", scratch=scratch)
