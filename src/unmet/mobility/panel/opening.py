"""Opening of a panel, however it is given, once for all that read it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from unmet._exceptions import InputError
from unmet._storage.parquet import write_parquet
from unmet._storage.temporary import temporary_folder
from unmet.mobility.panel.build import Panel
from unmet.mobility.panel.columns import check_names
from unmet.mobility.panel.file import PanelFile, open_panel
from unmet.mobility.records.files import is_frame
from unmet.mobility.records.limits import check_columns

__all__ = ["AnyPanel", "opened"]

AnyPanel = str | os.PathLike[str] | pd.DataFrame | Panel | PanelFile
"""A panel's file, its rows, what `build_panel` returns, or a file that is open already. Rows may also be a polars or
Arrow frame."""


@contextmanager
def opened(panel: AnyPanel) -> Iterator[PanelFile]:
    """Open a panel; one that is open already is passed on and stays open.

    A panel in memory is written to a temporary file. It is not changed.
    """
    if isinstance(panel, PanelFile):
        yield panel
        return
    if isinstance(panel, str | os.PathLike):
        with open_panel(panel) as file:
            yield file
        return
    if not (isinstance(panel, Panel) or is_frame(panel)):
        raise InputError(f"panel: expected a panel's file, a Panel or a frame of its rows; got {type(panel).__name__}.")
    with temporary_folder() as folder:
        path = folder / "panel.parquet"
        panel.save(path) if isinstance(panel, Panel) else _write_frame(panel, path)
        with open_panel(path, label="panel") as file:
            yield replace(file, path=None)


def _write_frame(frame: Any, path: Path) -> None:
    names = _names(frame)
    check_columns(len(names), "panel")
    check_names(names, "panel")
    try:
        write_parquet(frame, path)
    except (duckdb.Error, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"panel: this frame cannot be read as the rows of a panel: {reason}.") from error


def _names(frame: Any) -> list[str]:
    """Name the columns. The class is asked what it is, because a frame may have a column of any name."""
    if hasattr(type(frame), "collect"):
        return []  # a lazy frame would compute them
    columns = frame.column_names if hasattr(type(frame), "column_names") else getattr(frame, "columns", [])
    return [str(name) for name in columns]
