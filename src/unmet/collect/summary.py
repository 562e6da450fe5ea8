"""How well a system was collected: uptime, gaps, staleness and size."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from unmet._storage.sql import connect, fetch_all, parquet_sql, path_literal, reading
from unmet._storage.temporary import temporary_folder
from unmet.collect.history import SystemHistory
from unmet.collect.memory import DISCOVERY, STATUS, VEHICLE_FEEDS

__all__ = ["SystemSummary", "summarise"]

_MISSED = 3  # so many usual intervals without a good poll are a gap


@dataclass(frozen=True)
class SystemSummary:
    """State of one system's history. Times are in seconds, moments in seconds since 1970.

    Attributes
    ----------
    system : str
        Name.
    days : int
        Days with records.
    polls, failed : int
        Polls of its main feed (of stations, else of vehicles), and how many of them failed.
    first, last : float or None
        First and last good poll.
    uptime : float or None
        Share of the time from the first good poll until now that is in no gap.
    gaps : int
        Stretches of more than three usual intervals without a good poll. The one until now counts too.
    longest_gap : float
        The longest of them.
    stale : float or None
        Time since ``last_updated`` changed. If it is long although polls succeed, the publisher seems to be dead.
    rows : int or None
        Stations or vehicles in the last document.
    unreadable : int or None
        Further ones in it that could not be read, or that repeat the id of another one.
    size : int
        Bytes on disk.
    error : str or None
        Error of the last poll; without any of the main feed, the reason for that.
    damaged : list of str
        Files that are not what was written.
    """

    system: str
    days: int = 0
    polls: int = 0
    failed: int = 0
    first: float | None = None
    last: float | None = None
    uptime: float | None = None
    gaps: int = 0
    longest_gap: float = 0.0
    stale: float | None = None
    rows: int | None = None
    unreadable: int | None = None
    size: int = 0
    error: str | None = None
    damaged: list[str] = field(default_factory=list)


def summarise(history: SystemHistory, now: float) -> SystemSummary:
    """Summarise a history.

    Parameters
    ----------
    history : SystemHistory
        The history. A collector may be writing it.
    now : float
        The present, in seconds since 1970.
    """
    size = sum(_size(path) for path in history.folder.rglob("*"))
    damaged = history.damaged()
    known: dict[str, Any] = {"system": history.folder.name, "size": size, "damaged": damaged}
    polls, days, why_none = _polls(history)
    if timeless := [poll for poll in polls if poll[0] is None]:  # no collector writes that
        damaged.append(f"{len(timeless):,} polls have no time")
        polls = [poll for poll in polls if poll[0] is not None]
    known |= {"days": days, "polls": len(polls), "failed": sum(error is not None for *_, error in polls)}
    good = [poll[:4] for poll in polls if poll[-1] is None]
    if not good:
        return SystemSummary(**known, error=polls[-1][-1] if polls else why_none)
    at = np.array([poll[0] for poll in good])
    between = np.diff(at)
    usual = float(np.median(between)) if len(between) else 60.0
    between = np.append(between, max(now - at[-1], 0.0))
    gaps = between[between > _MISSED * usual]
    last = next((poll[2:4] for poll in reversed(good) if poll[2] is not None), (None, None))
    known |= {
        "first": float(at[0]),
        "last": float(at[-1]),
        "uptime": 1.0 - float(gaps.sum() / max(now - at[0], 1e-9)),
        "gaps": len(gaps),
        "longest_gap": float(gaps.max(initial=0.0)),
        "rows": last[0],
        "unreadable": last[1],
        "error": polls[-1][-1],
    }
    if good[-1][1] is not None:
        first_with = next(moment for moment, updated, *_ in good if updated == good[-1][1])
        known["stale"] = max(now - first_with, 0.0)
    return SystemSummary(**known)


def _size(path: Path) -> int:
    try:
        found = path.lstat()
    except FileNotFoundError:  # moved by the collector just now
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


_Poll: TypeAlias = tuple[float, float | None, int | None, int | None, str | None]


def _polls(history: SystemHistory) -> tuple[list[_Poll], int, str | None]:
    """Polls of the main feed, in order: time, last_updated, rows, unreadable, error; days; why there are none."""
    with temporary_folder() as scratch, reading(str(history.folder)), connect() as connection:
        files = history.files("polls", scratch)
        if not files:
            return [], 0, None
        listed = ", ".join(path_literal(str(path)) for path in files)
        columns = "epoch(poll_time), epoch(last_updated), rows, unreadable, error"
        query = f"SELECT {columns} FROM {parquet_sql(f'[{listed}]')} WHERE feed = ? ORDER BY poll_time"
        for feed in (STATUS, *VEHICLE_FEEDS):
            if rows := fetch_all(connection, query, [feed]):
                return rows, len(files), None
        errors = [error for *_, error in fetch_all(connection, query, [DISCOVERY])]
    if not errors:
        return [], len(files), None
    return (
        [],
        len(files),
        "it lists neither station_status nor a feed of vehicles" if errors[-1] is None else errors[-1],
    )
