"""A title for a report that was given none: the name of its system."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from unmet._storage.files import read_whole

__all__ = ["name_of_files", "title_of"]

_TOPIC = "demand and lost trips"
# Folder names that say nothing about the system.
_COMMON = frozenset(
    (
        *("out", "output", "run", "runs", "result", "results", "estimate", "estimates", "report", "reports", "panel"),
        *("data", "dataset", "datasets", "input", "inputs", "files", "raw", "csv", "parquet", "trips", "status"),
        *("stations", "tmp", "temp", "home", "users", "root", "desktop", "downloads", "documents", "work", "src"),
        *("var", "mnt", "volumes", "unfinished"),
    )
)
_LONGEST = 60
_LARGEST = 1_000_000  # bytes of a system_information.json


def title_of(names: Iterable[str | None]) -> str:
    """Make a title from the first name that there is.

    Examples
    --------
    >>> title_of([None, "Citi Bike"]), title_of([])
    ('Citi Bike: demand and lost trips', 'Demand and lost trips')
    """
    name = next((name for name in names if name), None)
    return _TOPIC.capitalize() if name is None else f"{name[:_LONGEST]}: {_TOPIC}"


def name_of_files(*paths: str | Path | None) -> str | None:
    """Return the name of the system that files are of: from the feed beside them, else the name of their folder.

    Folders with a common name such as ``data`` are passed over, and so are home folders, which have the name of a
    person.

    Examples
    --------
    >>> name_of_files("/data/citi_bike/trips/2024.csv"), name_of_files("/home/ann/trips.csv", "/tmp/out")
    ('Citi bike', None)
    """
    folders = [folder for path in paths if path is not None for folder in _folders(Path(os.path.expanduser(path)))]
    names = [_of_feed(folder) for folder in folders] + [_of_folder(folder) for folder in folders]
    return next((name for name in names if name), None)


def _folders(path: Path) -> list[Path]:
    """Return the folder of a file or a glob, and the two above it."""
    absolute = path.absolute()
    here = absolute if not absolute.suffix and "*" not in absolute.name else absolute.parent
    return [here, *here.parents][:3]


def _of_feed(folder: Path) -> str | None:
    """Return the name in ``system_information.json`` of GBFS; from version 3.0 it is a list by language."""
    try:
        name = json.loads(read_whole(folder / "system_information.json", _LARGEST))["data"]["name"]
        text = name if isinstance(name, str) else name[0]["text"]
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None
    return str(text).strip() or None


def _of_folder(folder: Path) -> str | None:
    words = re.sub(r"[\s_-]+", " ", folder.name).strip()
    person = folder == Path.home() or folder.parent.name.lower() in ("home", "users")
    if person or not re.search(r"[^\W\d_]{2}", words) or {*words.lower().split()} <= _COMMON:
        return None
    return words[:1].upper() + words[1:]
