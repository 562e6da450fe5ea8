"""From the system's wall clock to UTC, with the hours that did not exist or came twice.

The offsets come from Python's `zoneinfo` and are written into SQL as a balanced tree of comparisons, which
costs DuckDB a tenth of its own calendar arithmetic and makes both kinds of odd hours visible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from unmet._exceptions import InputError

__all__ = ["FIRST_TIME", "LAST_TIME", "Clock", "standard_offset_hours", "zone_info"]

# Outside of these a time is impossible: no records are older, and a later one is a wrong unit.
FIRST_TIME = datetime(1990, 1, 1)
LAST_TIME = datetime(2100, 1, 1)
MICROSECONDS = 1_000_000


def zone_info(timezone: str) -> ZoneInfo:
    """Look a time zone up by its IANA name.

    Examples
    --------
    >>> zone_info("America/New_York").key
    'America/New_York'
    """
    try:
        return ZoneInfo(timezone)
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise InputError(
            f"timezone: {timezone!r} is not a known time zone; give an IANA name such as 'America/New_York' "
            "or 'Europe/Paris'."
        ) from error


def standard_offset_hours(timezone: str) -> float | None:
    """Hours east of UTC in winter, or None where the zone says nothing of the place (UTC, Etc/...)."""
    if "/" not in timezone or timezone.startswith("Etc/"):
        return None
    zone = zone_info(timezone)
    offsets = [zone.utcoffset(datetime(2020, month, 1)) for month in (1, 7)]
    return min(o.total_seconds() for o in offsets if o is not None) / 3600


@dataclass(frozen=True)
class Clock:
    """A wall clock between two local times, as SQL.

    Parameters
    ----------
    timezone : str
        IANA name.
    first, last : datetime
        The naive local times between which it is used.

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
        """Every change of the offset to UTC within the period."""
        zone = zone_info(self.timezone)
        low = max(self.first, FIRST_TIME).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
        high = min(self.last, LAST_TIME) + timedelta(days=2)
        return list(_changes(zone, low, high))

    def utc(self, local: str) -> str:
        """Write SQL for the UTC time of a naive local one; NULL where that is impossible.

        A time in an hour that came twice is taken for the first; one in an hour that did not exist counts on
        from before it (02:30 becomes 03:30), as in PEP 495 with ``fold=0``.
        """
        changes = self.changes
        start = changes[0].before if changes else _offset(zone_info(self.timezone), self.first)
        edges = [c.instant + timedelta(seconds=max(c.before, c.after)) for c in changes]
        offsets = [start, *(c.after for c in changes)]
        tree = _tree(local, edges, [str(-o * MICROSECONDS) for o in offsets])
        possible = f"{local} BETWEEN TIMESTAMP '{FIRST_TIME}' AND TIMESTAMP '{LAST_TIME}'"
        return f"CASE WHEN {possible} THEN make_timestamp(epoch_us({local}) + {tree}) END"

    def doubled(self, local: str) -> str:
        """Write SQL for the microseconds by which the second occurrence is later; 0 where it came once."""
        return self._inside(local, lambda c: max(c.before - c.after, 0))

    def skipped(self, local: str) -> str:
        """Write SQL for the microseconds by which the clock jumped over this time; 0 where it existed."""
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
    """At `instant` (UTC) the offset went from `before` to `after` (seconds east of UTC)."""

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
            left, right = at, step  # bisect to the second; two changes within a day do not happen after 1990
            while right - left > timedelta(seconds=1):
                middle = (left + (right - left) / 2).replace(microsecond=0)
                left, right = (middle, right) if _offset(zone, middle) == offset else (left, middle)
            changes.append(Change(right, offset, after))
            offset = after
        at = step
    return tuple(changes)


def _tree(local: str, edges: Sequence[datetime], leaves: Sequence[str]) -> str:
    """Nest CASE expressions so that a row is compared with log2(edges) of them."""
    if not edges:
        return leaves[0]
    middle = len(edges) // 2
    below = _tree(local, edges[:middle], leaves[: middle + 1])
    above = _tree(local, edges[middle + 1 :], leaves[middle + 1 :])
    if below == above:
        return below
    return f"CASE WHEN {local} < TIMESTAMP '{edges[middle]}' THEN {below} ELSE {above} END"
