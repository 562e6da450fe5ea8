"""Data files of the experiments, and the messages if they are missing."""

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
    """Return the path of a file in the data folder, or raise an error that states where to get it.

    The environment variable ``UNMET_DATA`` names the folder. Without it the folder is ``../shared/data``, relative to
    the working folder or to the project.

    Parameters
    ----------
    name : str
        Path within the folder.
    origin : str
        Source of the file.
    columns : sequence of str
        Columns that a user's own file needs.

    Returns
    -------
    Path
    """
    named = os.environ.get("UNMET_DATA")
    project = Path(__file__).resolve().parents[3]
    folders = [Path(named)] if named else [Path("../shared/data"), project.parent / "shared" / "data"]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    looked = " and ".join(str(folder / name) for folder in folders)
    raise InputError(
        f"The data file {name} is missing (looked for {looked}). It comes from {origin}. Put it there, or set the "
        "environment variable UNMET_DATA to its folder, or give your own CSV with --data; "
        f"columns: {', '.join(columns)}."
    )


def read_table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read a CSV file (compressed or not) that has the given columns.

    Parameters
    ----------
    path : Path
        The file.
    columns : sequence of str
        Required columns.

    Returns
    -------
    DataFrame
    """
    try:
        frame = pd.read_csv(path, encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{path} cannot be read as CSV: {error}.") from None
    missing = [c for c in columns if c not in frame.columns]
    if missing:
        raise FileFormatError(
            f"{path}: no column {', '.join(missing)}; found {', '.join(map(str, frame.columns))}. "
            f"Expected {', '.join(columns)}."
        )
    return frame


def digest(*parts: object) -> str:
    """Return a short digest of data, so that results of other data are not reused."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part.tobytes() if hasattr(part, "tobytes") else repr(part).encode())
    return whole.hexdigest()[:16]


def packaged(name: str) -> pd.DataFrame:
    """Read a table that ships with the package: the motorcycle data, or the paper's tables."""
    with (files("unmet.experiments") / "data" / name).open(encoding="utf-8") as file:
        return pd.read_csv(file)
