"""The folder of a run: whose it is, who is at work in it, and what the runs in it were computed from."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmet._exceptions import InputError
from unmet.mobility.runfiles import read_info, writing

__all__ = ["RunFolder", "describe_change", "earlier_inputs", "hold_folder", "run_folder"]

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


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Hold a folder; the system lets go of it when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows: two runs into one folder are then not told apart
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"{folder}: another run is at work in this folder. Wait for it, stop it, or name another folder."
            ) from error
        yield
    finally:
        os.close(handle)


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


def describe_change(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Say what is different, as a part of a sentence.

    Examples
    --------
    >>> before = {"model": {"name": "cgp", "seed": 0}, "panel": "5f3a"}
    >>> describe_change(before, {"model": {"name": "cgp", "seed": 1}, "panel": "77b0"})
    'model seed changed from 0 to 1, the panel changed'
    """
    said = []
    for key in sorted({*before, *now}):
        old, new = before.get(key), now.get(key)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            said += [
                f"{key} {k} changed from {old.get(k)!r} to {new.get(k)!r}"
                for k in sorted({*old, *new})
                if old.get(k) != new.get(k)
            ]
        elif key in ("panel", "features"):
            said.append(f"the {key} changed")
        else:
            said.append(f"{key} changed from {old!r} to {new!r}")
    return ", ".join(said) or "something changed"
