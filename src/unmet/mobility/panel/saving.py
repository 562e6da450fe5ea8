"""A panel in memory, and its Parquet file with zones, quality, reasons and summary in the file's metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.files import real_path
from unmet._storage.folders import check_regular
from unmet._storage.sql import connect, fetch_frame, literal, one_thread, parquet_sql, path_literal
from unmet._storage.writing import replacing
from unmet.mobility.panel.file import METADATA, read_metadata
from unmet.mobility.panel.table import UNUSABLE_COLUMNS, PanelTable
from unmet.mobility.records.files import Given

__all__ = ["Panel", "check_new_file", "check_target", "copy_panel", "read_panel", "write_unusable"]

# A column of a row group with more distinct values is written without a dictionary, which saves a third of the time.
_MOST_DISTINCT = 2000


@dataclass(frozen=True)
class Panel:
    """A panel and the tables that belong to it.

    Attributes
    ----------
    panel : pandas.DataFrame
        One row per zone and bin, without gaps. `unmet.mobility.panel.schema` describes the columns.
    zones : pandas.DataFrame
        ``zone, name, lat, lon, capacity, stations``; also ``polygon`` if zones are polygons or H3 cells.
    quality : pandas.DataFrame
        ``source, reason, action, rows, share, detail``: rows that were read, rejected, repaired and noted.
    reasons : pandas.DataFrame
        ``zone, state, reason, minutes``: minutes by state and reason. `unmet.mobility.supply.states` describes them.
    summary : dict
        Period, zones, trips used, minutes by state, share of censored bins and more.
    unusable : pandas.DataFrame
        ``station, name, zone, listed, unusable, probability, since_local``: stations that very probably list vehicles
        nobody can rent at the end of the records, how many to expect, how probable one or more is, and since when.
    """

    panel: pd.DataFrame
    zones: pd.DataFrame
    quality: pd.DataFrame
    reasons: pd.DataFrame
    summary: dict[str, Any]
    unusable: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(UNUSABLE_COLUMNS)))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a Parquet file that `read_panel` reads. The file appears whole or not at all."""
        target = Path(path)
        check_target(target)
        with connect() as connection:
            connection.register("panel_in_memory", self.panel)
            copy_panel(connection, "SELECT * FROM panel_in_memory", self, target)
        return target


def read_panel(path: str | os.PathLike[str]) -> Panel:
    """Read a file that `write_panel`, `Panel.save` or ``unmet panel`` wrote."""
    if not Path(path).is_file():
        raise InputError(f"There is no file {str(path)!r}.")
    with connect() as connection:
        try:
            file = path_literal(str(path))
            metadata = read_metadata(connection, file, str(path))
            frame = fetch_frame(connection, f"SELECT * FROM {parquet_sql(file)}")
        except duckdb.Error as error:
            raise FileFormatError(
                f"{path}: cannot be read as Parquet: it is damaged or incomplete, or another kind of file. Build the "
                "panel again (unmet panel). (--debug shows the details.)"
            ) from error
    for name in ("zones", "quality", "reasons", "summary"):
        if name not in metadata:
            raise FileFormatError(
                f"{path}: is a Parquet file, but not a panel: its metadata does not contain {METADATA}{name}."
            )
    zones, quality, reasons = (pd.DataFrame(metadata[name]) for name in ("zones", "quality", "reasons"))
    unusable = pd.DataFrame(metadata.get("unusable", {}), columns=list(UNUSABLE_COLUMNS))
    return Panel(frame, zones, quality, reasons, metadata["summary"], unusable)


def write_unusable(panel: Panel, path: str | os.PathLike[str]) -> None:
    """Write the stations that very probably list vehicles nobody can rent to a CSV file, whole or not at all."""
    with replacing(Path(path)) as aside:
        panel.unusable.to_csv(aside, index=False)


def check_target(target: Path, *given: Given) -> None:
    """Refuse a target that cannot be a panel, cannot be written or is one of the inputs, before any work is done."""
    check_new_file(target, *given)
    if target.suffix != ".parquet":
        raise InputError(f"A panel is a Parquet file: name it {target.stem + '.parquet'!r}, not {target.name!r}.")


def check_new_file(target: Path, *given: Given) -> None:
    """Refuse a file that cannot be written or is one of the inputs, before any work is done."""
    if not target.parent.is_dir():
        raise InputError(f"There is no folder {str(target.parent)!r} to write {target.name!r} into.")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"{target}: cannot be written: no permission to write into {str(target.parent)!r}.")
    if target.is_dir():
        raise InputError(f"{str(target)!r} is a folder; name a file in it, such as {str(target / 'panel.parquet')!r}.")
    check_regular(target)
    for source in given:
        for path in source if isinstance(source, (list, tuple)) else [source]:
            if isinstance(path, (str, os.PathLike)) and target.exists() and _contains(Path(path), target):
                raise InputError(f"{str(target)!r} is one of the inputs ({str(path)!r}): name another file to write.")


def _contains(source: Path, target: Path) -> bool:
    """Return whether a file, a folder or a glob contains the target."""
    found = glob(str(source), recursive=True) or [str(source)]
    here = real_path(target)
    return any(real_path(Path(f)) == here or (Path(f).is_dir() and real_path(Path(f)) in here.parents) for f in found)


def copy_panel(
    connection: duckdb.DuckDBPyConnection,
    rows: str,
    panel: PanelTable | Panel,
    target: Path,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Write the rows that some SQL selects, with the tables of a panel, to a Parquet file, whole or not at all.

    `check` is called when all rows are written, and may raise: then an earlier file stays.

    Equal panels give equal bytes: one thread writes, because DuckDB's threads lay out the same rows differently each
    time.
    """
    parts = {
        "zones": _json(panel.zones),
        "quality": _json(panel.quality),
        "reasons": _json(panel.reasons),
        "summary": json.dumps(panel.summary),
        "unusable": _json(panel.unusable),
    }
    if isinstance(panel, PanelTable) and panel.learnt is not None:
        parts["learnt"] = json.dumps(panel.learnt)
    metadata = ", ".join(f"{literal(METADATA + name)}: {literal(text)}" for name, text in parts.items())
    try:
        with replacing(target) as aside, one_thread(connection):
            options = f"FORMAT parquet, COMPRESSION zstd, DICTIONARY_SIZE_LIMIT {_MOST_DISTINCT}"
            connection.execute(f"COPY ({rows}) TO {literal(str(aside))} ({options}, KV_METADATA {{{metadata}}})")
            check()
    except (duckdb.Error, OSError) as error:
        raise InputError(
            f"{target}: could not be written; an earlier file of that name is unchanged. The disk may be full: free "
            "some space, or name another file. (--debug shows the details.)"
        ) from error


def _json(frame: pd.DataFrame) -> str:
    """Convert a frame to JSON: a list per column, with null for missing values."""
    return json.dumps({c: [None if _missing(v) else v for v in frame[c].tolist()] for c in frame})


def _missing(value: object) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and value != value)
