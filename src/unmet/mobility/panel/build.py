"""Build panels: one row per zone and time bin, with observed trips, exposure and minutes by state.

`unmet.mobility.panel.schema` describes the columns, `unmet.mobility.panel.options` the options.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pandas as pd

from unmet._exceptions import FileFormatError, UnmetError
from unmet._storage.sql import fetch_frame
from unmet.execution import Executor, serially
from unmet.mobility.panel.groups import Workers
from unmet.mobility.panel.learnt import Learnt, NotSettled, read_learnt
from unmet.mobility.panel.options import PanelOptions
from unmet.mobility.panel.saving import Panel, check_target, copy_panel, read_panel
from unmet.mobility.panel.table import PanelTable, make_panel
from unmet.mobility.records.collected import split_histories
from unmet.mobility.records.databases import is_address
from unmet.mobility.records.files import Given, expand
from unmet.mobility.records.quality import check_rejected
from unmet.mobility.records.read import Records, read_records

__all__ = ["Panel", "PanelOptions", "build_panel", "panel_of", "read_panel", "write_panel"]

Progress = Callable[[str], None]


def build_panel(
    trips: Given = None,
    status: Given = None,
    stations: Given = None,
    *,
    progress: Progress | None = None,
    executor: Executor = serially,
    jobs: int = 1,
    groups: int | None = None,
    **options: Any,
) -> Panel:
    """Build the panel of a system's records.

    Parameters
    ----------
    trips, status, stations : path, list of paths, folder, glob or frame, optional
        Records, as for `unmet.mobility.records.read_records`: trips, status or both. Frames are not changed.
    progress : callable, optional
        Called with a sentence at the start of each step.
    executor, jobs, groups
        Where groups of zones are worked on, how many at a time, and into how many groups zones are cut: see
        `unmet.mobility.panel.groups.Workers`. The panel does not depend on them.
    **options
        Fields of `PanelOptions`: `timezone` (required), `zones`, `every`, `start`, `end`, `censored_rule`,
        `rebalancing`, `hours`, `supply`, `areas`, `keep`, `mapping`, `headers`, `date_order`,
        `vehicle_type`, `memory`, `max_rejected`, `force`.

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
    workers = Workers(executor, jobs, groups)
    with _making(trips, status, stations, PanelOptions(**options), progress, workers) as (records, table, _):
        return _panel(records, table)


def panel_of(records: Records, progress: Progress | None = None, **options: Any) -> Panel:
    """Build the panel of records that are already read.

    Parameters
    ----------
    records : Records
        Trips, status or both.
    progress : callable, optional
        Called with a sentence at the start of each step.
    **options
        Fields of `PanelOptions`, except those that are about reading. The time zone is that of the records.
    """
    table = make_panel(records, PanelOptions(timezone=records.timezone, **options), progress or _silent)
    return _panel(records, table)


def write_panel(
    path: str | os.PathLike[str],
    trips: Given = None,
    status: Given = None,
    stations: Given = None,
    *,
    progress: Progress | None = None,
    earlier: str | os.PathLike[str] | None = None,
    executor: Executor = serially,
    jobs: int = 1,
    groups: int | None = None,
    **options: Any,
) -> Panel:
    """Build a panel into a Parquet file. The panel may be larger than memory.

    Zones, quality, reasons and summary are stored in the file's metadata (keys ``unmet.zones`` and so on, as JSON).
    `read_panel` reads them back.

    Parameters
    ----------
    path : path
        File to write. It appears whole or not at all.
    trips, status, stations, progress, executor, jobs, groups, **options
        As for `build_panel`.
    earlier : path, optional
        A panel of the same system and options that ends up to four weeks before. If it can be continued, only the last
        days are worked out in full: see `unmet.mobility.panel.learnt`.

    Returns
    -------
    Panel
        Without rows.
    """
    target = Path(path)
    check_target(target, trips, status, stations)
    learnt = None if earlier is None else read_learnt(Path(earlier))
    say, workers = progress or _silent, Workers(executor, jobs, groups)
    try:
        return _write(target, trips, status, stations, PanelOptions(**options), say, workers, learnt)
    except NotSettled as why:
        say(f"building the panel in full: {why}")
        return _write(target, trips, status, stations, PanelOptions(**options), say, workers, None)


def _write(
    target: Path,
    trips: Given,
    status: Given,
    stations: Given,
    options: PanelOptions,
    progress: Progress,
    workers: Workers,
    learnt: Learnt | None,
) -> Panel:
    with _making(trips, status, stations, options, progress, workers, learnt) as (records, table, refuse):
        progress("writing the panel")
        copy_panel(records.connection, table.sql, table, target, check=refuse)
    nothing = pd.DataFrame(columns=list(table.columns))
    return Panel(nothing, table.zones, table.quality, table.reasons, table.summary, table.unusable)


@contextmanager
def _making(
    trips: Given,
    status: Given,
    stations: Given,
    options: PanelOptions,
    progress: Progress | None,
    workers: Workers,
    learnt: Learnt | None = None,
) -> Iterator[tuple[Records, PanelTable, Callable[[], None]]]:
    """Read the records and make the panel in their database, which is removed at the end.

    The third is to be called when the last row was read: see `_noticing_changes`.
    """
    with (
        _noticing_changes(trips=trips, status=status, stations=stations) as refuse,
        read_records(
            trips,
            status,
            stations,
            timezone=options.timezone,
            mapping=options.columns(),
            headers=options.headers,
            memory=options.memory,
            max_rejected=options.max_rejected,
            force=options.force,
            date_order=options.date_order,
            vehicle_type=options.vehicle_type,
            keep_duplicates=True,  # they are found when the status is sorted
            within=options.period(),
            progress=progress,
        ) as records,
    ):
        table = make_panel(records, options, progress or _silent, learnt, workers)
        if not options.force:
            check_rejected(table.quality, options.max_rejected)  # again, with the duplicates of the status
        yield records, table, refuse


@contextmanager
def _noticing_changes(**given: Given) -> Iterator[Callable[[], None]]:
    """Refuse a result if a file was changed or removed meanwhile: it may be made of two versions.

    A text file that only grew was read up to its earlier end or beyond, as a log that is written to. Histories of
    `unmet collect` are written to all the time, and read as they were at one moment. This is looked at behind the
    block, and whenever the block calls what it is given.
    """
    paths: list[Path] = []
    for source, item in given.items():
        if not isinstance(item, str | os.PathLike | list | tuple):  # a frame, or refused where it is read
            continue
        with suppress(UnmetError):  # told where it is read
            _, others = split_histories(item)
            paths += [path for one in others if not is_address(one) for path in expand(one, source)]
    before = {path: _state(path) for path in paths}

    def refuse(error: Exception | None = None) -> None:
        changed = next((path for path, state in before.items() if not _is_same(path, state, _state(path))), None)
        if changed is not None:
            raise FileFormatError(
                f"{changed}: was changed or removed while it was read. Run the same command again when nobody writes "
                "to it."
            ) from error

    try:
        yield refuse
    except (duckdb.Error, UnmetError) as error:
        refuse(error)
        raise
    refuse()


_State: TypeAlias = tuple[int, int, int] | None


def _state(path: Path) -> _State:
    """Return file number, size and time of the last change; None if there is no such file."""
    with suppress(OSError):
        state = path.stat()
        return state.st_ino, state.st_size, state.st_mtime_ns
    return None


def _is_same(path: Path, before: _State, after: _State) -> bool:
    grown = before is not None and after is not None and before[0] == after[0] and before[1] < after[1]
    return before == after or (grown and path.suffix.lower() in (".csv", ".tsv", ".txt"))


def _panel(records: Records, table: PanelTable) -> Panel:
    """Fetch the rows of a panel, with names as text."""
    text = ", ".join(f"{column}::VARCHAR AS {column}" for column in ("zone", "evidence"))
    frame = fetch_frame(records.connection, f"SELECT * REPLACE ({text}) FROM ({table.sql})")
    return Panel(frame, table.zones, table.quality, table.reasons, table.summary, table.unusable)


def _silent(_: str) -> None:
    """Report no progress."""
