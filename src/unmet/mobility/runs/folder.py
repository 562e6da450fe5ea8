"""The folder of a run: whose it is, who is at work in it, and what the runs in it were computed from."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmet._exceptions import InputError
from unmet._storage.folders import hold_folder
from unmet._storage.writing import writing
from unmet.mobility.runs.outputs import read_info

__all__ = ["RunFolder", "earlier_inputs", "run_folder"]

_FINGERPRINT = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run. Below `hidden`, the folders of attempts and `scratch` are ours alone."""

    out: Path

    @property
    def hidden(self) -> Path:
        """Where finished chunks are, by fingerprint."""
        return self.out / ".parts"

    @property
    def scratch(self) -> Path:
        """Where files are made before they take their places; emptied when a run begins and ends."""
        return self.hidden / "scratch"

    def attempts(self) -> list[Path]:
        """The folders of runs that have not been finished, each named by its fingerprint; nothing else."""
        return [f for f in self.hidden.iterdir() if _FINGERPRINT.fullmatch(f.name) and f.is_dir()]


@contextmanager
def run_folder(out: Path) -> Iterator[RunFolder]:
    """Make the folders and hold them against another run at the same time; leave no empty ones."""
    place = RunFolder(out)
    made = not out.exists()
    if not made and not out.is_dir():
        raise InputError(f"{out}: is a file; name a folder for the results (--out).")
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    with hold_folder(out):
        try:
            with writing(out):
                shutil.rmtree(place.scratch, ignore_errors=True)
                place.scratch.mkdir(parents=True)
            yield place
        finally:
            shutil.rmtree(place.scratch, ignore_errors=True)
            for folder in (place.hidden, out) if made else (place.hidden,):
                try:
                    folder.rmdir()
                except OSError:  # there is something in it
                    break


def earlier_inputs(place: RunFolder, fingerprint: str) -> list[dict[str, Any]]:
    """What other runs in this folder were computed from, the latest last."""
    found = []
    if (told := read_info(place.out)) is not None and told.get("fingerprint") != fingerprint:
        found.append(told.get("inputs", {}))
    folders = [f for f in place.attempts() if f.name != fingerprint]
    for folder in sorted(folders, key=lambda f: f.stat().st_mtime):
        try:
            found.append(json.loads((folder / "inputs.json").read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
    return found
