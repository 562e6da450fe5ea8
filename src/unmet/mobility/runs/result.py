"""The result of a run, as it is in its folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from unmet._exceptions import FileFormatError
from unmet._numbers import read_switch
from unmet._storage.folders import check_regular
from unmet._storage.parquet import read_parquet
from unmet._storage.sql import reading
from unmet.mobility.runs.outputs import check_files, read_info

__all__ = ["RunResult", "load_result", "read_run"]


@dataclass(frozen=True)
class RunResult:
    """The files of a finished run.

    Attributes
    ----------
    out : pathlib.Path
        The folder: ``demand.parquet``, ``zones.parquet``, ``totals.parquet``, ``system.parquet``, ``run.json``.
    zones : pandas.DataFrame
        One row per zone: ``name`` (of its station, if the panel has it), ``status`` (``ok``, ``failed``), ``reason``,
        minutes by state, observed, demand and lost totals with their uncertainty, and the model's summary of the fit.
    totals : pandas.DataFrame
        See `unmet.mobility.runs.totals.tabulate_totals`.
    failures : dict
        Zone → why it could not be estimated.
    info : dict
        The content of ``run.json``.
    rows : pandas.DataFrame or None
        The content of ``demand.parquet`` if the run had no folder of its own; else `demand` reads it.
    """

    out: Path
    zones: pd.DataFrame
    totals: pd.DataFrame
    failures: dict[str, str]
    info: dict[str, Any]
    rows: pd.DataFrame | None = None

    def demand(self) -> pd.DataFrame:
        """Return ``demand.parquet``: one row per zone and bin."""
        return _read(self.out / "demand.parquet") if self.rows is None else self.rows


def read_run(out: str | os.PathLike[str], *, trust: bool = False) -> RunResult:
    """Read the result of a finished run from its folder.

    Parameters
    ----------
    out : path
        The folder.
    trust : bool
        Do not compare the files with the checksums in ``run.json``.

    Raises
    ------
    FileFormatError
        If there is no finished run, or a file was damaged or changed since.
    """
    read_switch(trust, "trust")
    info = read_info(Path(out))
    if info is None:
        raise FileFormatError(f"{out}: there is no readable run.json: this is not the folder of a finished run.")
    if not trust:
        check_files(Path(out), info)
    return load_result(Path(out), info)


def load_result(out: Path, info: dict[str, Any]) -> RunResult:
    """Read the tables of a run whose ``run.json`` is known."""
    failures = {failure["zone"]: failure["reason"] for failure in info["failures"]}
    return RunResult(out, _read(out / "zones.parquet"), _read(out / "totals.parquet"), failures, info)


def _read(path: Path) -> pd.DataFrame:
    check_regular(path)
    with reading(str(path)):
        return read_parquet(path)
