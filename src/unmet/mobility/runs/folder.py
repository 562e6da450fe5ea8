"""The folder of a run: its parts, the lock on it, and the inputs of earlier runs in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmet._storage.files import read_whole
from unmet._storage.folders import hold_folder, remove, remove_if_empty, remove_strange
from unmet._storage.writing import writing
from unmet.mobility.runs.outputs import read_info

__all__ = ["RunFolder", "earlier_inputs", "run_folder"]

_FINGERPRINT = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run. Other programs leave the attempts and `scratch` below `hidden` alone."""

    out: Path

    @property
    def hidden(self) -> Path:
        """Folder of the checkpoints, by fingerprint."""
        return self.out / ".parts"

    @property
    def scratch(self) -> Path:
        """Folder in which files are written before they are moved; emptied when a run begins and ends."""
        return self.hidden / "scratch"

    def attempts(self) -> list[Path]:
        """List the folders of unfinished runs, each named by its fingerprint."""
        return [f for f in self.hidden.iterdir() if _FINGERPRINT.fullmatch(f.name) and f.is_dir()]


@contextmanager
def run_folder(out: Path) -> Iterator[RunFolder]:
    """Make the folders of a run and hold them against other runs; leave no empty ones."""
    place = RunFolder(out)
    with hold_folder(out):
        try:
            with writing(out):
                remove_strange(place.hidden)
                remove(place.scratch)
                place.scratch.mkdir(parents=True)
            yield place
        finally:
            remove(place.scratch)
            remove_if_empty(place.hidden)


def earlier_inputs(place: RunFolder, fingerprint: str) -> list[dict[str, Any]]:
    """List the inputs of other runs in this folder, the latest last."""
    found = []
    if (info := read_info(place.out)) is not None and info.get("fingerprint") != fingerprint:
        found.append(info.get("inputs", {}))
    folders = [f for f in place.attempts() if f.name != fingerprint]
    for folder in sorted(folders, key=lambda f: f.stat().st_mtime):
        try:
            found.append(json.loads(read_whole(folder / "inputs.json")))
        except (OSError, ValueError, RecursionError):
            continue
    return found
