"""The panel: zone × time bin, with what was observed and what could have been.

One row per zone and bin, no bin missing:

===================== ======================================================================================
``zone``              as in `Panel.zones`
``start``             of the bin, UTC
``start_local``       what the wall clock shows then
``minutes``           length of the bin
``observed``          pickups: from trips, or inferred from the status where there are none; missing where
                      neither tells
``returns``           likewise
``available_minutes`` in which a rider could have been served
``stockout_minutes``  in which the zone was open and empty
``closed_minutes``    in which it was closed
``unknown_minutes``   of which nothing is known; the four sum to `minutes`
``exposure``          available_minutes / minutes
``censored``          whether stock-outs hid demand, by the rule that was chosen
``supply_mean``       vehicles to rent, over the available and stock-out minutes; missing where there are none
``evidence``          ``status+trips``; ``status`` (pickups inferred); ``netted`` (supply netted from trips);
                      ``trips`` (supply unknown); ``none``
===================== ======================================================================================

and, where pickups were inferred, ``rebalanced_out`` and ``rebalanced_in``: vehicles that a van is taken to have moved.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any, Required, TypedDict, Unpack

import duckdb
import pandas as pd

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.sql import fetch_frame, literal, path_literal
from unmet.mobility.clock.timezones import zone_info
from unmet.mobility.panel.table import PANEL_COLUMNS, REBALANCED_COLUMNS, Made, Plan, make_panel
from unmet.mobility.records.files import Given
from unmet.mobility.records.quality import check_rejected
from unmet.mobility.records.read import Records, read_records
from unmet.mobility.supply.pickups import REBALANCING

__all__ = [
    "PANEL_COLUMNS",
    "REBALANCED_COLUMNS",
    "Panel",
    "PanelOptions",
    "build_panel",
    "panel_of",
    "read_panel",
    "write_panel",
]

_METADATA = "unmet."
# Values of a row group beyond which they are written as they are: to collect them costs a third of the writing.
_MOST_DISTINCT = 2000


@dataclass(frozen=True)
class Panel:
    """A panel and what travels with it.

    Attributes
    ----------
    panel : pandas.DataFrame
        One row per zone and bin: see the head of `unmet.mobility.panel.build`.
    zones : pandas.DataFrame
        ``zone, name, lat, lon, capacity, stations``; ``polygon`` where zones are polygons or H3 cells.
    quality : pandas.DataFrame
        ``source, reason, action, rows, share, detail``: what was rejected, repaired and noted on the way.
    reasons : pandas.DataFrame
        ``zone, state, reason, minutes``: why the minutes are in their states
        (reasons are explained at the head of `unmet.mobility.supply.states`).
    summary : dict
        Period, zones, trips used, minutes by state, share of censored bins and the like.
    """

    panel: pd.DataFrame
    zones: pd.DataFrame
    quality: pd.DataFrame
    reasons: pd.DataFrame
    summary: dict[str, Any]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a Parquet file as `write_panel` does, whole or not at all; `read_panel` gives the panel back."""
        target = Path(path)
        _check_target(target)
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("panel_in_memory", self.panel)
            _copy(connection, "SELECT * FROM panel_in_memory", self, target)
        return target


class PlanOptions(TypedDict, total=False):
    """Options of `build_panel` that say what to build."""

    zones: str
    every: str
    start: str | None
    end: str | None
    censored_rule: str
    rebalancing: int
    hours: str | None
    memory: str


class PanelOptions(PlanOptions, total=False):
    """All options of `build_panel`, where they are explained."""

    timezone: Required[str]
    mapping: Mapping[str, str] | None
    max_rejected: float
    force: bool
    progress: Callable[[str], None] | None


def build_panel(
    trips: Given = None,
    status: Given = None,
    stations: Given = None,
    *,
    timezone: str,
    zones: str = "stations",
    every: str = "1h",
    start: str | None = None,
    end: str | None = None,
    censored_rule: str = "any",
    rebalancing: int = REBALANCING,
    hours: str | None = None,
    mapping: Mapping[str, str] | None = None,
    memory: str = "2GB",
    max_rejected: float = 0.2,
    force: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Panel:
    """Build the panel of a system's records.

    Parameters
    ----------
    trips, status, stations : path, list of paths, folder, glob or frame, optional
        What `unmet.mobility.records.read.read_records` takes; trips, status or both. Frames are not changed.
    timezone : str
        The system's time zone: naive times are local to it, and bins follow its wall clock.
    zones : str
        ``stations``, ``superhubs:200m``, ``superhubs:points.csv:200m``, a GeoJSON file, or ``h3:9``.
    every : str
        Length of a bin, from ``5min`` to ``1w``.
    start, end : str, optional
        Local times between which to build it; as far as the records go unless given.
    censored_rule : str
        Which bins are censored: ``any`` (any minute of stock-out, the paper's), ``minutes:10`` (at least that many) or
        ``share:0.25`` (at least that share of the minutes in which the zone was open).
    rebalancing : int
        Where pickups are inferred: a change of so many vehicles at once is a van.
    hours : str, optional
        Daily opening hours, ``06:00-23:00``; the rest is closed.
    mapping, memory, max_rejected, force, progress
        As for `unmet.mobility.records.read.read_records`.

    Returns
    -------
    Panel

    Examples
    --------
    A station that is empty from 8:30 to 9:15:

    >>> status = pd.DataFrame({
    ...     "station_id": "a",
    ...     "last_reported": pd.to_datetime(["2021-07-01 08:00", "2021-07-01 08:30", "2021-07-01 09:15",
    ...                                      "2021-07-01 10:00"]),
    ...     "num_bikes_available": [2, 0, 3, 1],
    ... })
    >>> result = build_panel(status=status, timezone="America/New_York", every="1h")
    >>> result.panel[["start_local", "observed", "stockout_minutes", "exposure", "censored"]].head(2)
              start_local  observed  stockout_minutes  exposure  censored
    0 2021-07-01 08:00:00       2.0                30      0.50      True
    1 2021-07-01 09:00:00       0.0                15      0.75      True
    """
    chosen = PanelOptions(
        timezone=timezone,
        zones=zones,
        every=every,
        start=start,
        end=end,
        censored_rule=censored_rule,
        rebalancing=rebalancing,
        hours=hours,
        mapping=mapping,
        memory=memory,
        max_rejected=max_rejected,
        force=force,
        progress=progress,
    )
    with _making(trips, status, stations, chosen) as (records, made):
        frame = _fetch(records, made)
    return Panel(frame, made.zones, made.quality, made.reasons, made.summary)


def panel_of(records: Records, progress: Callable[[str], None] | None = None, **options: Unpack[PlanOptions]) -> Panel:
    """Build the panel of records that are read already; options as for `build_panel`."""
    made = make_panel(records, Plan(**options), progress or (lambda _: None))
    return Panel(_fetch(records, made), made.zones, made.quality, made.reasons, made.summary)


def _fetch(records: Records, made: Made) -> pd.DataFrame:
    """The panel as a frame, in which names are text."""
    text = ", ".join(f"{column}::VARCHAR AS {column}" for column in ("zone", "evidence"))
    return fetch_frame(records.connection, f"SELECT * REPLACE ({text}) FROM ({made.sql})")


def write_panel(
    path: str | os.PathLike[str],
    trips: Given = None,
    status: Given = None,
    stations: Given = None,
    **options: Unpack[PanelOptions],
) -> Panel:
    """Build a panel straight into a Parquet file, larger than memory if need be.

    Parameters are those of `build_panel`, and `path` is the file, which appears whole or not at all. Zones, quality,
    reasons and summary are stored in the file's own metadata (keys ``unmet.zones`` and so on, as JSON), so that they
    cannot be lost on the way; `read_panel` gives them back. The panel returned holds no rows.
    """
    target = Path(path)
    _check_target(target, trips, status, stations)
    with _making(trips, status, stations, options) as (records, made):
        if (progress := options.get("progress")) is not None:
            progress("writing the panel")
        _copy(records.connection, made.sql, made, target)
    nothing = pd.DataFrame(columns=list(made.columns))
    return Panel(nothing, made.zones, made.quality, made.reasons, made.summary)


def _check_target(target: Path, *given: Given) -> None:
    """Refuse a file that cannot be written, or that is one of the inputs, before any work is done."""
    if not target.parent.is_dir():
        raise InputError(f"There is no folder {str(target.parent)!r} to write {target.name!r} into.")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"{target}: could not be written: the folder {str(target.parent)!r} does not allow it.")
    if target.is_dir():
        raise InputError(f"{str(target)!r} is a folder; name a file in it, such as {str(target / 'panel.parquet')!r}.")
    if target.suffix != ".parquet":
        raise InputError(f"A panel is a Parquet file: name it {target.stem + '.parquet'!r}, not {target.name!r}.")
    for source in given:
        for path in source if isinstance(source, (list, tuple)) else [source]:
            if isinstance(path, (str, os.PathLike)) and target.exists() and _reads(Path(path), target):
                raise InputError(f"{str(target)!r} is one of the inputs ({str(path)!r}): name another file to write.")


def _reads(source: Path, target: Path) -> bool:
    """Whether a file, a folder or a glob takes in the target."""
    found = glob(str(source), recursive=True) or [str(source)]
    here = target.resolve()
    return any(Path(f).resolve() == here or (Path(f).is_dir() and Path(f).resolve() in here.parents) for f in found)


def read_panel(path: str | os.PathLike[str]) -> Panel:
    """Read a file that `write_panel` (or ``unmet panel``) wrote."""
    if not Path(path).is_file():
        raise InputError(f"There is no file {str(path)!r}.")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        try:
            file = path_literal(str(path))
            pairs = connection.execute(f"SELECT key, value FROM parquet_kv_metadata({file})").fetchall()
            frame = fetch_frame(connection, f"SELECT * FROM read_parquet({file})")
        except duckdb.Error as error:
            raise FileFormatError(f"{path}: cannot be read as Parquet: {error}") from error
    found = {bytes(key).decode(): bytes(value).decode() for key, value in pairs}
    parts = {}
    for name in ("zones", "quality", "reasons", "summary"):
        if _METADATA + name not in found:
            raise FileFormatError(
                f"{path}: is a Parquet file, but not a panel (its metadata have no {_METADATA}{name})."
            )
        parts[name] = json.loads(found[_METADATA + name])
    return Panel(
        frame,
        pd.DataFrame(parts["zones"]),
        pd.DataFrame(parts["quality"]),
        pd.DataFrame(parts["reasons"]),
        parts["summary"],
    )


@contextmanager
def _making(trips: Given, status: Given, stations: Given, options: PanelOptions) -> Iterator[tuple[Records, Made]]:
    """Read the records and make the panel in their database, which is gone afterwards."""
    reading: dict[str, Any] = {
        k: v for k, v in options.items() if k in ("timezone", "mapping", "memory", "max_rejected", "force", "progress")
    }
    planned: dict[str, Any] = {k: v for k, v in options.items() if k in Plan.__dataclass_fields__}
    plan = Plan(**planned)
    zone_info(options["timezone"])
    within = plan.period(options["timezone"])
    progress = options.get("progress") or (lambda _: None)
    # The panel sorts status anyway, and finds the duplicates then.
    with read_records(trips, status, stations, keep_duplicates=True, within=within, **reading) as records:
        made = make_panel(records, plan, progress)
        if not options.get("force", False):
            check_rejected(made.quality, options.get("max_rejected", 0.2))  # now that duplicates are known as well
        yield records, made


def _copy(connection: duckdb.DuckDBPyConnection, rows: str, made: Made | Panel, target: Path) -> None:
    """Write beside the target and rename: it appears whole or not at all."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    parts = {
        "zones": _json(made.zones),
        "quality": _json(made.quality),
        "reasons": _json(made.reasons),
        "summary": json.dumps(made.summary),
    }
    metadata = ", ".join(f"{literal(_METADATA + name)}: {literal(text)}" for name, text in parts.items())
    try:
        connection.execute(
            f"""COPY ({rows}) TO {literal(str(partial))}
            (FORMAT parquet, COMPRESSION zstd, DICTIONARY_SIZE_LIMIT {_MOST_DISTINCT}, KV_METADATA {{{metadata}}})"""
        )
        os.replace(partial, target)
    except duckdb.Error as error:
        said = str(error).splitlines()[0].replace(str(partial), str(target))
        raise InputError(
            f"{target}: could not be written, and what was there is as it was. Make room, or name another file. "
            f"DuckDB said: {said}"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _json(frame: pd.DataFrame) -> str:
    """A frame as JSON columns, with null for what is missing."""
    return json.dumps({c: [None if _missing(v) else v for v in frame[c].tolist()] for c in frame})


def _missing(value: object) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and value != value)
