"""What each stage of a run was made from, and whether that is still so.

A stage may be reused when what it was made from - the content of files, settings, the version of `unmet` - is what it
would be made from now, and its own files are as it left them. Content decides: size and time of a file only spare
reading it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmet._exceptions import FileFormatError
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
    """A file as it was when it was looked at."""

    size: int
    mtime_ns: int
    ctime_ns: int
    sha256: str


@dataclass(frozen=True)
class StageRecord:
    """How a stage was made.

    Attributes
    ----------
    inputs : dict
        All that decides its result, as JSON knows it; files by their content.
    files : dict
        The input files by path, as they were.
    outputs : dict
        Its own files, by their path below the run's folder.
    """

    inputs: dict[str, Any]
    files: dict[str, Seen] = field(default_factory=dict)
    outputs: dict[str, Seen] = field(default_factory=dict)

    def damaged(self, folder: Path) -> str | None:
        """The first of its own files that is not as it was left, if any."""
        for name, before in self.outputs.items():
            try:
                if seen(folder / name, before).sha256 != before.sha256:
                    return name
            except FileFormatError:
                return name
        return None if self.outputs else "a record of its files"


def seen(path: Path, before: Seen | None = None) -> Seen:
    """A file as it is now; its content is what it was before where size and times are the same.

    Programs set the time of a change back (``cp -p``, archives); that of the file's own record they cannot.
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
    """Files as they are now, by their full path."""
    full = [path.absolute() for path in paths]
    return {str(path): seen(path, known.get(str(path))) for path in full}


def read_ledger(folder: Path) -> dict[str, StageRecord]:
    """The records in a folder, by stage; none where there is no file, or one that cannot be understood."""
    try:
        told = json.loads((folder / LEDGER_NAME).read_text(encoding="utf-8"))
        return {
            str(name): StageRecord(
                dict(record["inputs"]),
                {path: Seen(**known) for path, known in record["files"].items()},
                {path: Seen(**known) for path, known in record["outputs"].items()},
            )
            for name, record in told["stages"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def write_ledger(folder: Path, records: Mapping[str, StageRecord]) -> None:
    """Replace the records in a folder, whole or not at all."""
    told = {
        "about": "What each stage of `unmet run` was made from; it is reused while that is unchanged.",
        "stages": {
            name: {
                "inputs": record.inputs,
                "files": {path: vars(known) for path, known in record.files.items()},
                "outputs": {path: vars(known) for path, known in record.outputs.items()},
            }
            for name, record in records.items()
        },
    }
    write_text(folder / LEDGER_NAME, json.dumps(told, indent=1) + "\n")
