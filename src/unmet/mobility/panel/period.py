"""The period of a panel: where the records are, or as it was chosen, and whether there is room for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._memory import size_in_words
from unmet.mobility.clock.bins import DAY, parse_every
from unmet.mobility.panel.options import PanelOptions
from unmet.mobility.panel.schema import stored_types
from unmet.mobility.records.read import parse_memory
from unmet.mobility.supply.status_log import StatusLog

__all__ = ["check_room", "find_period", "local_time"]

_LONGEST_WITHOUT_RECORDS = 366 * DAY
# Memory that a minute of the period takes, in counts of the feed and the like; and what any `--memory` leaves room for.
_BYTES_PER_MINUTE, _LEAST_ROOM = 100, 400_000_000
_MOST_BINS = 200_000  # 22 years of hours; more are made only for a period that was chosen


def find_period(log: StatusLog | None, span: tuple[int, int, int] | None, options: PanelOptions) -> tuple[int, int]:
    """Return the first and last minute. Refuse a period without records, or more than a year longer than they are."""
    firsts = ([log.first_minute] if log else []) + ([span[0]] if span else [])
    lasts = ([log.last_minute] if log else []) + ([span[1]] if span else [])
    start, end = options.period()
    first = min(firsts) if start is None else start
    last = max(lasts) if end is None else end - 1
    timezone = options.timezone
    since, until = (local_time(minute, timezone) for minute in (min(firsts), max(lasts)))
    found = f"the records run from {since} to {until} ({timezone})"
    if last < min(firsts) or first > max(lasts):
        raise InputError(f"The chosen period has no record: {found}. Check --start and --end.")
    if min(firsts) - first > _LONGEST_WITHOUT_RECORDS or last - max(lasts) > _LONGEST_WITHOUT_RECORDS:
        raise InputError(
            f"The panel would start or end more than a year away from the records: {found}. Check --start and --end."
        )
    bins = (last - first) // parse_every(options.every)
    if bins > _MOST_BINS and (start is None or end is None):
        raise InputError(
            f"The panel would have {bins:,} bins of {options.every}: {found}. Some records may have a wrong time. "
            "Choose the period with --start and --end, or longer bins with --every."
        )
    need = _BYTES_PER_MINUTE * (last - first)
    if need > max(parse_memory(options.memory), _LEAST_ROOM):
        raise InputError(
            f"The period of {(last - first) / (365.25 * DAY):,.1f} years would take {need / 1e6:,.0f} MB of memory: "
            f"{found}. Some records may have a wrong time. Choose the period with --start and --end, or raise --memory "
            f"(now {options.memory})."
        )
    return first, last


def check_room(zones: int, bins: int, folder: Path) -> None:
    """Refuse a panel whose columns do not fit on the disk of temporary files, before anything is written there."""
    counts = 3 * np.dtype(np.int32).itemsize  # pickups, those of the first half of the bin, and returns
    need = zones * bins * (counts + sum(np.dtype(kind).itemsize for kind in stored_types(True).values()))
    if need > shutil.disk_usage(folder).free:
        raise InputError(
            f"The panel would have {zones * bins:,} rows ({zones:,} zones, {bins:,} bins) and take "
            f"{size_in_words(need)}, more than the free space on the disk of {folder.parent}. Use larger zones "
            "(--zones), longer bins (--every) or a shorter period (--start, --end), or set TMPDIR to another disk."
        )


def local_time(minute: int, timezone: str) -> str:
    """Write a minute by the wall clock."""
    return f"{pd.Timestamp(minute * 60, unit='s', tz='UTC').tz_convert(timezone):%Y-%m-%d %H:%M}"
