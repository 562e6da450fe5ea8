"""Opening hours of a system: daily hours, or the documents of GBFS that tell them.

====================================== ====================================================================
given                                  open
====================================== ====================================================================
``06:00-23:00``                        every day between these times; over midnight if the end is earlier
``system_hours.json``                  GBFS up to 2.3: for at least one kind of user
``system_calendar.json``               GBFS up to 2.3: in the seasons it lists
``system_information.json``            GBFS from 3.0: its ``opening_hours``, such as ``Mo-Fr 06:00-23:00; Sa off``
``feeds/``                             a folder of ``unmet collect``: the last of these documents
====================================== ====================================================================

Several are separated by commas. Daily hours add up, as in ``06:00-12:00,14:00-20:00``; the system is open when they and
all documents say so.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.sql import connect, fetch_all, parquet_sql, path_literal, reading
from unmet._storage.temporary import temporary_folder
from unmet.collect.history import find_histories
from unmet.mobility.clock.bins import DAY, Integers, parse_hours, runs, wall_minutes
from unmet.mobility.records.unpacking import read_json

__all__ = ["OpeningHours", "read_opening_hours"]

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SHORT = ("Mo", "Tu", "We", "Th", "Fr", "Sa", "Su")
_DOCUMENTS = ("system_hours", "system_calendar", "system_information")
_MOST_ROWS = 100  # of a document
_LONGEST_TEXT = 10_000  # of opening hours
_LONGEST_REASON = 200
_MONDAY = 4  # 1970-01-01 was a Thursday
Season = tuple[tuple[int, int, int], tuple[int, int, int]]


@dataclass(frozen=True)
class OpeningHours:
    """Minutes of the week in which a system is open, and its seasons.

    Attributes
    ----------
    week : array of bool, shape (7 × 1440,)
        Whether it is open in each minute of the week, from Monday 0:00.
    seasons : tuple of tuples of (first, last)
        Seasons of each calendar: first and last day as (year, month, day), in local time; year 0 for every year. The
        system is open if every calendar is in one of its seasons.
    """

    week: NDArray[np.bool_]
    seasons: tuple[tuple[Season, ...], ...] = ()

    def closed(self, first: int, last: int, timezone: str) -> Integers:
        """Return the stretches (begin, end) of the minutes `first ... last` in which the system is closed."""
        wall = wall_minutes(np.arange(first, last + 1, dtype=np.int64), timezone)
        return first + runs(~self.week[(wall - _MONDAY * DAY) % (7 * DAY)] | ~self._in_season(wall))

    def _in_season(self, wall: Integers) -> NDArray[np.bool_]:
        if not self.seasons:
            return np.ones(len(wall), dtype=bool)
        dates = (wall // DAY).astype("M8[D]")
        year = dates.astype("M8[Y]").astype(int) + 1970
        month = dates.astype("M8[M]").astype(int) % 12 + 1
        number = (year * 100 + month) * 100 + (dates - dates.astype("M8[M]")).astype(int) + 1
        return np.logical_and.reduce([_in_any(calendar, number) for calendar in self.seasons])


def _in_any(calendar: tuple[Season, ...], number: Integers) -> NDArray[np.bool_]:
    """Return which days, as year, month and day in one number, are in a season of a calendar."""
    found = np.zeros(len(number), dtype=bool)
    for start, end in calendar:
        (begin, until), yearly = (_number(*start), _number(*end)), start[0] == 0 or end[0] == 0
        day = number % 10_000 if yearly else number
        if yearly:
            begin, until = begin % 10_000, until % 10_000
        found |= (begin <= day) & (day <= until) if begin <= until else (day >= begin) | (day <= until)
    return found


def _number(year: int, month: int, day: int) -> int:
    return (year * 100 + month) * 100 + day


def read_opening_hours(spec: str) -> OpeningHours:
    """Read opening hours: see the table at the top of this module.

    Examples
    --------
    >>> hours = read_opening_hours("06:00-23:00")
    >>> int(hours.week.sum()) == 7 * 17 * 60
    True
    """
    parts = [part.strip() for part in spec.split(",")]
    daily = [part for part in parts if _is_daily(part)]
    week = (
        [OpeningHours(reduce(np.logical_or, (_daily(range(7), *parse_hours(part)) for part in daily)))] if daily else []
    )
    hours = _together(week + [_read(Path(os.path.expanduser(part))) for part in parts if part not in daily])
    if not hours.week.any():
        raise InputError(f"hours: {spec!r:.200} is never open. Leave the hours out if the system is always open.")
    return hours


def _together(parts: list[OpeningHours]) -> OpeningHours:
    week = reduce(np.logical_and, (part.week for part in parts))
    return OpeningHours(week, tuple(calendar for part in parts for calendar in part.seasons))


def _is_daily(part: str) -> bool:
    return not part or (not part.lower().endswith(".json") and not Path(os.path.expanduser(part)).is_dir())


def _read(path: Path) -> OpeningHours:
    if path.is_dir():
        return _of_history(path)
    if not path.is_file():
        raise InputError(f"hours: there is no file {str(path)!r}. Give 06:00-23:00, or a document of GBFS.")
    return _of_document(str(path), read_json(path))


def _of_history(folder: Path) -> OpeningHours:
    """Read the last documents that `unmet collect` kept."""
    histories = list(find_histories(folder).values())
    if len(histories) != 1:
        raise InputError(f"hours: expected a folder of `unmet collect` with one system; {folder} has {len(histories)}.")
    history = histories[0]
    history.check_content("documents")
    with temporary_folder() as scratch, connect(threads=1) as connection, reading(str(folder)):
        files = ", ".join(path_literal(str(path)) for path in history.files("documents", scratch))
        query = f"SELECT feed, max_by(text, poll_time) FROM {parquet_sql(f'[{files}]')} GROUP BY feed ORDER BY feed"
        texts = dict(fetch_all(connection, query)) if files else {}
    documents = {feed: json.loads(texts[feed]) for feed in _DOCUMENTS if feed in texts}
    parts = [
        _of_document(f"{folder}: {feed}", document)
        for feed, document in documents.items()
        if feed != "system_information" or "opening_hours" in (document.get("data") or {})
    ]
    if not parts:
        raise InputError(f"hours: {folder} has no system_hours, system_calendar or opening_hours. Leave the hours out.")
    return _together(parts)


def _of_document(where: str, document: Any) -> OpeningHours:
    always = np.ones(7 * DAY, dtype=bool)
    data = document.get("data") if isinstance(document, dict) else None
    data = data if isinstance(data, dict) else {}
    try:
        if "rental_hours" in data:
            rows = _rows(data["rental_hours"], "rental_hours")
            return OpeningHours(reduce(np.logical_or, map(_of_rental_hours, rows)))
        if "calendars" in data:
            return OpeningHours(always, (tuple(map(_season, _rows(data["calendars"], "calendars"))),))
        if isinstance(data.get("opening_hours"), str):
            return OpeningHours(_of_text(data["opening_hours"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = (
            str(error)[:_LONGEST_REASON].rstrip(".")
            if isinstance(error, ValueError)
            else f"{type(error).__name__}: {error}"
        )
        raise FileFormatError(f"{where}: its hours cannot be read: {reason}.") from error
    raise FileFormatError(
        f"{where}: expected data.rental_hours (system_hours), data.calendars (system_calendar) or data.opening_hours "
        f"(system_information from version 3.0); found: {', '.join(data) or 'nothing'}."
    )


def _rows(given: object, name: str) -> list[Any]:
    if not isinstance(given, list) or not 0 < len(given) <= _MOST_ROWS:
        found = f"{len(given):,}" if isinstance(given, list) else type(given).__name__
        raise ValueError(f"expected a list of 1 to {_MOST_ROWS} under {name!r}, found {found}")
    return given


def _whole(value: object, least: int, most: int, name: str) -> int:
    """Return a whole number within limits; it may be given as text."""
    text = str(value)
    if isinstance(value, bool) or re.fullmatch(r"\d{1,4}(\.0)?", text) is None or not least <= float(text) <= most:
        raise ValueError(f"{name}: expected a whole number from {least} to {most}, found {text[:40]!r}")
    return int(float(text))


def _daily(days: Any, opens: int, closes: int) -> NDArray[np.bool_]:
    """Open from one minute of some days to another, which may be on the next day."""
    week = np.zeros(7 * DAY, dtype=bool)
    length = (closes - opens) if closes > opens else closes + DAY - opens
    for day in days:
        week[(day * DAY + opens + np.arange(length)) % (7 * DAY)] = True
    return week


def _minute(text: str) -> int:
    """Convert 23:59:59 to the minute behind it; hours may exceed 24, up to 47:59:59."""
    pieces = (text + ":0").split(":")[:3]
    hours = _whole(pieces[0], 0, 47, "hour")
    minutes, seconds = (_whole(piece, 0, 59, "minute or second") for piece in pieces[1:])
    return hours * 60 + minutes + (seconds == 59)


def _of_rental_hours(row: dict[str, Any]) -> NDArray[np.bool_]:
    unknown = [day for day in row["days"] if day.lower()[:3] not in _DAYS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a day of the week")
    days = [_DAYS.index(day.lower()[:3]) for day in row["days"]]
    return _daily(days, _minute(row["start_time"]), _minute(row["end_time"]))


def _season(row: dict[str, Any]) -> Season:
    def day(side: str) -> tuple[int, int, int]:
        return (
            _whole(row.get(f"{side}_year") or 0, 0, 9999, f"{side}_year"),
            _whole(row[f"{side}_month"], 1, 12, f"{side}_month"),
            _whole(row[f"{side}_day"], 1, 31, f"{side}_day"),
        )

    return day("start"), day("end")


def _of_text(text: str) -> NDArray[np.bool_]:
    """Read days and times of OpenStreetMap's opening hours; a later rule replaces an earlier one on its days.

    Hours over midnight belong to the day on which they begin.
    """
    if text.strip() == "24/7":
        return np.ones(7 * DAY, dtype=bool)
    if len(text) > _LONGEST_TEXT:
        raise ValueError(f"expected at most {_LONGEST_TEXT:,} signs, found {len(text):,}")
    spans: dict[int, list[tuple[int, int]]] = {}
    for rule in filter(None, (piece.strip() for piece in text.split(";"))):
        match = re.fullmatch(r"(?:([A-Z][a-z](?:[-,][A-Z][a-z])*)\s+)?(off|closed|[\d:,\- ]+)", rule)
        if match is None:
            raise ValueError(f"expected days and times such as Mo-Fr 06:00-23:00, got {rule!r}")
        times = [] if match[2] in ("off", "closed") else [parse_hours(span) for span in match[2].split(",")]
        spans |= dict.fromkeys(_days(match[1]) if match[1] else range(7), times)
    week = np.zeros(7 * DAY, dtype=bool)
    for day, times in spans.items():
        for opens, closes in times:
            week |= _daily([day], opens, closes)
    return week


def _days(text: str) -> list[int]:
    found: list[int] = []
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        begin, end = _SHORT.index(first), _SHORT.index(last or first)
        found += [day % 7 for day in range(begin, (end if end >= begin else end + 7) + 1)]
    return found
