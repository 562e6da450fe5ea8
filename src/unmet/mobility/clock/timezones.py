"""Conversion of local times to UTC, with the hours that did not exist or came twice.

The offsets come from Python's `zoneinfo` and become SQL: a balanced tree of comparisons. It costs DuckDB a tenth of its
own calendar arithmetic, and shows both kinds of odd hours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from unmet._exceptions import InputError

__all__ = ["FIRST_TIME", "LAST_TIME", "Clock", "standard_offset_hours", "zone_info"]

# Times outside this range are impossible: no records are older, and a later time is in a wrong unit.
FIRST_TIME = datetime(1990, 1, 1)
LAST_TIME = datetime(2100, 1, 1)
MICROSECONDS = 1_000_000


def zone_info(timezone: str) -> ZoneInfo:
    """Return a time zone by its IANA name.

    Examples
    --------
    >>> zone_info("America/New_York").key
    'America/New_York'
    """
    try:
        if str(timezone).startswith("right/"):  # with leap seconds, which no other clock here counts
            raise KeyError(timezone)
        return ZoneInfo(timezone)
    except (KeyError, ValueError, OSError, TypeError) as error:
        if not available_timezones():
            raise InputError(
                "timezone: this machine has no time zones. Install the Python package tzdata, or that of the system."
            ) from error
        raise InputError(
            f"timezone: {timezone!r} is not a known time zone; give an IANA name such as 'America/New_York' "
            "or 'Europe/Paris'."
        ) from error


def standard_offset_hours(timezone: str) -> float | None:
    """Return the hours east of UTC in winter. None if the zone is not a place (UTC, Etc/...)."""
    if "/" not in timezone or timezone.startswith("Etc/"):
        return None
    zone = zone_info(timezone)
    offsets = [zone.utcoffset(datetime(2020, month, 1)) for month in (1, 7)]
    return min(o.total_seconds() for o in offsets if o is not None) / 3600


@dataclass(frozen=True)
class Clock:
    """The wall clock of a time zone between two local times, as SQL.

    Parameters
    ----------
    timezone : str
        IANA name.
    first, last : datetime
        Local times between which the clock is used.

    Examples
    --------
    >>> clock = Clock("America/New_York", datetime(2020, 1, 1), datetime(2021, 1, 1))
    >>> [(str(c.instant), c.before, c.after) for c in clock.changes]
    [('2020-03-08 07:00:00', -18000, -14400), ('2020-11-01 06:00:00', -14400, -18000)]
    """

    timezone: str
    first: datetime
    last: datetime

    @property
    def changes(self) -> list[Change]:
        """Changes of the offset from UTC in the period."""
        zone = zone_info(self.timezone)
        low = max(self.first, FIRST_TIME).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
        high = min(self.last, LAST_TIME) + timedelta(days=2)
        return list(_changes(zone, low, high))

    def utc(self, local: str) -> str:
        """Return SQL for the UTC time of a local time; NULL if it is impossible.

        A time in an hour that came twice is the first of the two. A time in an hour that did not exist is moved forward
        by the gap (02:30 becomes 03:30), as in PEP 495 with ``fold=0``.
        """
        changes = self.changes
        start = changes[0].before if changes else _offset(zone_info(self.timezone), self.first)
        edges = [c.instant + timedelta(seconds=max(c.before, c.after)) for c in changes]
        offsets = [start, *(c.after for c in changes)]
        tree = _tree(local, edges, [str(-o * MICROSECONDS) for o in offsets])
        possible = f"{local} BETWEEN TIMESTAMP '{FIRST_TIME}' AND TIMESTAMP '{LAST_TIME}'"
        return f"CASE WHEN {possible} THEN make_timestamp(epoch_us({local}) + {tree}) END"

    def doubled(self, local: str) -> str:
        """Return SQL for the microseconds from the first to the second occurrence of a time; 0 if it occurs once."""
        return self._inside(local, lambda c: max(c.before - c.after, 0))

    def skipped(self, local: str) -> str:
        """Return SQL for the length in microseconds of the gap that a time is in; 0 if it exists."""
        return self._inside(local, lambda c: max(c.after - c.before, 0))

    def _inside(self, local: str, value: Callable[[Change], int]) -> str:
        edges: list[datetime] = []
        leaves = ["0::BIGINT"]
        for change in self.changes:
            if value(change):
                low, high = sorted((change.before, change.after))
                edges += [change.instant + timedelta(seconds=low), change.instant + timedelta(seconds=high)]
                leaves += [str(value(change) * MICROSECONDS), "0"]
        return _tree(local, edges, leaves)


@dataclass(frozen=True)
class Change:
    """A change of the offset from UTC at `instant` (UTC), from `before` to `after` (seconds east)."""

    instant: datetime
    before: int
    after: int


def _offset(zone: ZoneInfo, utc: datetime) -> int:
    offset = utc.replace(tzinfo=UTC).astimezone(zone).utcoffset()
    return 0 if offset is None else round(offset.total_seconds())


@lru_cache(maxsize=64)
def _changes(zone: ZoneInfo, low: datetime, high: datetime) -> tuple[Change, ...]:
    changes = []
    at, offset = low, _offset(zone, low)
    while at < high:
        step = at + timedelta(days=1)
        if (after := _offset(zone, step)) != offset:
            left, right = at, step  # bisect to the second; since 1990 no zone changed twice in a day
            while right - left > timedelta(seconds=1):
                middle = (left + (right - left) / 2).replace(microsecond=0)
                left, right = (middle, right) if _offset(zone, middle) == offset else (left, middle)
            changes.append(Change(right, offset, after))
            offset = after
        at = step
    return tuple(changes)


def _tree(local: str, edges: Sequence[datetime], leaves: Sequence[str]) -> str:
    """Return nested CASE expressions that compare a row with log2(edges) of the edges."""
    if not edges:
        return leaves[0]
    middle = len(edges) // 2
    below = _tree(local, edges[:middle], leaves[: middle + 1])
    above = _tree(local, edges[middle + 1 :], leaves[middle + 1 :])
    if below == above:
        return below
    return f"CASE WHEN {local} < TIMESTAMP '{edges[middle]}' THEN {below} ELSE {above} END"
