"""Where the experiments find their data, and what they say when it is not there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import pandas as pd

from unmet._exceptions import FileFormatError, InputError

__all__ = ["data_file", "digest", "packaged", "read_table"]


def data_file(name: str, origin: str, columns: Sequence[str]) -> Path:
    """The path of one file of the data folder, or an error that says where to get it.

    The folder is the one named by the environment variable ``UNMET_DATA``; without it ``../shared/data``, from the
    working folder or from the project's.

    Parameters
    ----------
    name : str
        Path within the folder.
    origin : str
        Where the file comes from.
    columns : sequence of str
        What a user's own file would need.
    """
    named = os.environ.get("UNMET_DATA")
    project = Path(__file__).resolve().parents[3]
    folders = [Path(named)] if named else [Path("../shared/data"), project.parent / "shared" / "data"]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    looked = " and ".join(str(folder / name) for folder in folders)
    raise InputError(
        f"the data file {name} is missing (looked for {looked}). It comes from {origin}. Put it there, or name the "
        "folder in the environment variable UNMET_DATA, or give your own CSV with --data; "
        f"columns: {', '.join(columns)}."
    )


def read_table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """A CSV file (compressed or not) with the columns asked for, none of their values missing."""
    try:
        frame = pd.read_csv(path, encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{path} cannot be read as CSV: {error}") from None
    missing = [c for c in columns if c not in frame.columns]
    if missing:
        raise FileFormatError(
            f"{path}: no column {', '.join(missing)}; found {', '.join(map(str, frame.columns))}. "
            f"Expected are {', '.join(columns)}"
        )
    return frame


def digest(*parts: object) -> str:
    """A short digest of data, so that results of other data are never taken for these."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part.tobytes() if hasattr(part, "tobytes") else repr(part).encode())
    return whole.hexdigest()[:16]


def packaged(name: str) -> pd.DataFrame:
    """A table that ships with the package: the motorcycle data, the paper's own tables."""
    with (files("unmet.experiments") / "data" / name).open(encoding="utf-8") as file:
        return pd.read_csv(file)
