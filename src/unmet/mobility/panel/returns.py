"""The panel of returns: the same rows with returns as the counts and free docks as the supply.

Full stations hide returns as empty ones hide pickups. With the columns exchanged, every demand model estimates the
returns that were wanted, and its walkers are riders who found no dock and rode on.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd

from unmet._exceptions import InputError
from unmet._storage.hashes import file_hash
from unmet._storage.sql import connect, fetch_one, path_literal, reading
from unmet.mobility.panel.file import PanelFile, open_panel
from unmet.mobility.panel.saving import copy_panel, read_panel

__all__ = ["check_docks", "write_returns_panel"]

_NEEDED = ("returns", "dock_minutes", "full_minutes", "no_dock_minutes", "dock_exposure")
_ROWS = """
    SELECT zone, start, start_local, minutes, returns AS observed,
        coalesce(dock_minutes, 0) AS available_minutes, coalesce(full_minutes, 0) AS stockout_minutes,
        CASE WHEN dock_minutes IS NULL THEN 0 ELSE minutes - dock_minutes - full_minutes - {unknown} END
            AS closed_minutes,
        CASE WHEN dock_minutes IS NULL THEN minutes ELSE {unknown} END AS unknown_minutes,
        coalesce(no_dock_minutes, 0) AS out_minutes, coalesce(dock_exposure, 0) AS exposure,
        coalesce(full_minutes, 0) > 0 AS censored{evidence}
    FROM read_parquet({file}, hive_partitioning=false) ORDER BY zone, start"""
# A feed that is silent hides docks as it hides vehicles.
_UNKNOWN = "least(unknown_minutes, minutes - dock_minutes - full_minutes)"


def check_docks(panel: PanelFile) -> None:
    """Refuse a panel without returns, or whose docks are all unknown: returns cannot be estimated from it."""
    missing = [name for name in _NEEDED if name not in panel.columns]
    if missing:
        needed = ", ".join(missing)
        raise InputError(f"{panel.label}: there is no column {needed}. Build the panel again with `unmet panel`.")
    with reading(panel.label):
        known = fetch_one(panel.connection, "SELECT count(*) FROM panel WHERE dock_minutes + full_minutes > 0")
    if not known[0]:
        raise InputError(
            f"{panel.label}: free docks are unknown in every bin, so returns cannot be estimated. Station status needs "
            "a column of free docks, such as num_docks_available. Those for one type of vehicle are not known."
        )


def write_returns_panel(panel: Path, target: Path) -> Path:
    """Write the panel of returns of a panel file.

    Parameters
    ----------
    panel : Path
        A panel file with ``returns``, ``dock_minutes``, ``full_minutes``, ``no_dock_minutes`` and ``dock_exposure``.
    target : Path
        The file to write. It appears whole or not at all.

    Returns
    -------
    Path
        `target`. Its ``observed`` are returns, ``available_minutes`` those with a free dock, and ``stockout_minutes``
        those without one. Time in which returns were not accepted is closed; unknown docks are unknown. ``side`` and
        ``of`` in its summary mark it, with the SHA-256 of `panel`.
    """
    whole = read_panel(panel)
    with open_panel(panel) as opened:
        check_docks(opened)
    with connect() as connection:
        file = path_literal(str(panel))
        described = replace(
            whole, panel=pd.DataFrame(), summary={**whole.summary, "side": "returns", "of": file_hash(panel)}
        )
        evidence = ", evidence" if "evidence" in whole.panel.columns else ""
        rows = _ROWS.format(file=file, unknown=_UNKNOWN, evidence=evidence)
        copy_panel(connection, rows, described, target)
    return target
