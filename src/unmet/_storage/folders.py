"""Folders of results: hold one against other processes, and describe what changed in its inputs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unmet._exceptions import InputError

__all__ = ["describe_change", "hold_folder"]


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
