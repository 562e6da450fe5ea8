"""The panel by brute force: every minute of every zone looked at by itself, in plain Python.

Slow and obvious; shares nothing with the package but the names of states and reasons. All times are whole seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from statistics import median
from zoneinfo import ZoneInfo

import numpy as np

STATE_OF = {
    "vehicles": "available",
    "empty": "stockout",
    "not_renting": "closed",
    "not_installed": "closed",
    "dead": "closed",
    "standstill": "closed",
    "hours": "closed",
    "feed_silent": "unknown",
    "silent": "unknown",
    "undetermined": "unknown",
    "no_record": "unknown",
}
ZONE_ORDER = [
    "vehicles",
    "undetermined",
    "silent",
    "empty",
    "not_renting",
    "dead",
    "not_installed",
    "no_record",
]


@dataclass(frozen=True)
class Record:
    station: str
    second: int
    available: int
    disabled: int = 0
    docks: int = 5
    installed: bool = True
    renting: bool = True
    returning: bool = True


@dataclass(frozen=True)
class Trip:
    started: int
    ended: int
    start: str
    end: str


def ceil_minute(second: int) -> int:
    return -(-second // 60)


def wall(minute: int, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(minute * 60, tz=UTC).astimezone(zone).replace(tzinfo=None)


class System:
    """Everything the rules need, looked up one minute at a time."""

    def __init__(self, records: list[Record], trips: list[Trip]) -> None:
        last = {(r.station, r.second): r for r in records}  # of two in a second the later one holds
        self.log: dict[str, list[Record]] = defaultdict(list)
        for record in sorted(last.values(), key=lambda r: r.second):
            self.log[record.station].append(record)
        self.minutes = {s: [ceil_minute(r.second) for r in rows] for s, rows in self.log.items()}
        self.has_docks = {s: any(r.docks > 0 and r.returning for r in rows) for s, rows in self.log.items()}
        self.heard = Counter(ceil_minute(r.second) for rows in self.log.values() for r in rows)
        self.first, self.last = min(self.heard), max(self.heard)
        self.moves: Counter[int] = Counter()
        self.changes = []  # station, second, minute before, minute after, fall, rise
        for station, rows in self.log.items():
            for a, b in pairwise(rows):
                if self.own(a) not in ("vehicles", "empty") or self.own(b) not in ("vehicles", "empty"):
                    continue
                fall = a.available - b.available - max(0, b.disabled - a.disabled)
                rise = b.available - a.available - max(0, a.disabled - b.disabled)
                if fall > 0 or rise > 0:
                    before, after = ceil_minute(a.second), ceil_minute(b.second)
                    self.moves[after] += 1
                    self.changes.append((station, b.second, before, after, max(fall, 0), max(rise, 0)))
        ridden = {t.started // 60 for t in trips} | {t.ended // 60 for t in trips}
        self.moving = set(self.moves) | {m for m in ridden if self.first <= m <= self.last}
        self.polled = self._is_polled()
        if not self.polled:
            self._add_swaps()
        self.silent = self._silences()
        self.standstill, dead = self._standstills()
        self.silent += dead

    def _add_swaps(self) -> None:
        """A record that repeats the one before, between two moves within 20 minutes, is a pickup and a return."""
        for station, rows in self.log.items():
            moved = [second for s, second, *_ in self.changes if s == station]
            for a, b in pairwise(rows):
                open_ = {self.own(a), self.own(b)} <= {"vehicles", "empty"}
                before = [m for m in moved if m < b.second]
                after = [m for m in moved if m > b.second]
                if not (open_ and before and after and (a.available, a.disabled) == (b.available, b.disabled)):
                    continue
                if b.second - max(before) <= 1200 and min(after) - b.second <= 1200:
                    self.changes.append((station, b.second, ceil_minute(a.second), ceil_minute(b.second), 1, 1))

    def own(self, r: Record) -> str:
        if not r.installed:
            return "not_installed"
        if not r.renting:
            return "not_renting"
        if r.available > 0:
            return "vehicles"
        return "dead" if r.docks == 0 and self.has_docks[r.station] else "empty"

    def docks(self, r: Record) -> str:
        """The reason of a record as seen by riders who return."""
        if self.own(r) in ("not_installed", "dead"):
            return self.own(r)
        if r.docks == 0 and not self.has_docks[r.station] and (r.available == 0 or r.returning):
            return "undetermined"
        if not (r.returning or (r.available == 0 and r.docks == 0)):
            return "not_renting"
        return "vehicles" if r.docks > 0 else "empty"

    def in_force(self, station: str, minute: int) -> Record | None:
        place = bisect_right(self.minutes.get(station, []), minute)
        return self.log[station][place - 1] if place else None

    def _is_polled(self) -> bool:
        if len(self.log) <= 2:
            same = sum(
                (a.available, a.disabled, self.own(a)) == (b.available, b.disabled, self.own(b))
                for rows in self.log.values()
                for a, b in pairwise(rows)
            )
            return same >= 0.5 * max(sum(self.heard.values()) - 1, 1)
        shares = []
        for minute in sorted(self.heard):
            present = sum(ceil_minute(rows[0].second) <= minute for rows in self.log.values())
            listed = sum(any(ceil_minute(r.second) == minute for r in rows) for rows in self.log.values())
            shares.append(listed / present)
        return median(shares) >= 0.8

    def _expected(self, counts: Counter[int], minutes: list[int], unknown_rate: float, fewest: int = 7) -> float:
        """How many events these minutes would usually hold; `unknown_rate` a minute where too few days are known."""
        per_hour = self._per_hour(tuple(counts.items()))
        live = {hour // 24 for hour in per_hour}
        total = 0.0
        for hour, n in Counter(minute // 60 for minute in minutes).items():
            others = []
            for shift in range(-14, 15):
                other = hour + 24 * shift
                inside = self.first // 60 < other < self.last // 60
                if shift and inside and other // 24 in live:
                    others.append(per_hour[other])
            quartile = sorted(others)[len(others) // 4] if len(others) >= fewest else None
            total += n * (unknown_rate if quartile is None else quartile / 60)
        return total

    @staticmethod
    @cache
    def _per_hour(counts: tuple[tuple[int, int], ...]) -> Counter[int]:
        per_hour: Counter[int] = Counter()
        for minute, n in counts:
            per_hour[minute // 60] += n
        return per_hour

    def _silences(self) -> list[tuple[int, int]]:
        heard = sorted(self.heard)
        gaps = [b - a for a, b in pairwise(heard)]
        if not gaps:
            return []
        usual = float(np.quantile(gaps, 0.999))
        found: list[tuple[int, int]] = []
        for a, b in pairwise(heard):
            if b - a <= max(30, usual):
                continue
            before = sum(self.heard[m] for m in range(a - 59, a + 1))
            after = sum(self.heard[m] for m in range(b, b + 60))
            if self.polled and b - a <= 3 * median(gaps):
                continue
            if not self.polled and self._expected(self.heard, list(range(a + 1, b)), min(before, after) / 60, 1) <= 60:
                continue
            known = [r for s in self.log if (r := self.in_force(s, a)) is not None]
            shut = [r for r in known if self.own(r) not in ("vehicles", "empty")]
            if 2 * len(shut) >= len(known):
                continue
            if found and a + 1 - found[-1][1] < 30:
                found[-1] = (found[-1][0], b)
            else:
                found.append((a + 1, b))
        return found

    def _standstills(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Stretches without a move in which the feed lives, and in which it does not."""
        moving = sorted(self.moving)
        closed, dead = [], []
        for a, b in pairwise(moving):
            if b - a > 30:
                awake = [m for m in range(a + 1, b) if not any(s <= m < e for s, e in self.silent)]
                if self._expected(self.moves, awake, 0.0) > 60:
                    records = sum(self.heard[m] for m in awake)
                    alive = records >= 0.1 * self._expected(self.heard, awake, 0.0)
                    (closed if alive else dead).append((a + 1, b))
        return closed, dead

    @cache  # noqa: B019
    def is_silent_gap(self, station: str, before: int, after: int) -> bool:
        """Whether a station that spoke at minute `before` and again at `after` was silent improbably long."""
        if after - before <= 30:
            return False
        if self.polled:
            return sum(before < m < after for m in self.heard) > 3
        rows = self.log[station]
        begin, end = ceil_minute(rows[0].second), ceil_minute(rows[-1].second)
        share = len(rows) / sum(n for m, n in self.heard.items() if begin <= m <= end)
        meanwhile = sum(n for m, n in self.heard.items() if before < m < after)
        return meanwhile * share > 30

    @cache  # noqa: B019
    def station_reason(self, station: str, minute: int, docks: bool = False) -> str:
        record = self.in_force(station, minute)
        if record is None or minute > self.last:
            return "no_record"
        reason = self.docks(record) if docks else self.own(record)
        if reason not in ("vehicles", "empty"):
            return reason
        since = ceil_minute(record.second)
        place = bisect_right(self.minutes[station], since)
        until = self.minutes[station][place] if place < len(self.minutes[station]) else self.last + 1
        if minute > since and until - since > 30 and self.is_silent_gap(station, since, until):
            return "silent" if minute - since <= 7 * 1440 else "no_record"
        return reason

    def zone_reason(
        self, members: list[str], minute: int, hours: tuple[int, int] | None, tz: ZoneInfo, docks: bool = False
    ) -> str:
        if hours is not None:
            time = wall(minute, tz).hour * 60 + wall(minute, tz).minute
            if not hours[0] <= time < hours[1]:
                return "hours"
        reasons = [self.station_reason(s, minute, docks) for s in members]
        reason = next((r for r in ZONE_ORDER if r in reasons), "no_record")
        if reason in ("vehicles", "empty", "undetermined"):
            if any(b <= minute < e for b, e in self.silent):
                return "feed_silent"
            if any(b <= minute < e for b, e in self.standstill):
                return "standstill"
        return reason

    def supply(self, members: list[str], minute: int) -> int:
        open_ = [s for s in members if self.station_reason(s, minute) == "vehicles"]
        return sum(r.available for s in open_ if (r := self.in_force(s, minute)) is not None)


def cut(first: int, last: int, every: int, tz: ZoneInfo) -> list[tuple[int, int]]:
    """Bins around the minutes `first ... last`: walk minute by minute and see when the wall clock enters a new one."""

    def key(minute: int) -> tuple[int, int]:
        local = wall(minute, tz)
        day = local.date().toordinal() - datetime(1970, 1, 5).toordinal()
        if every >= 1440:
            return (day // (every // 1440), 0)
        return (day, (local.hour * 60 + local.minute) // every)

    def starts(minute: int) -> bool:
        if key(minute) != key(minute - 1):
            return True
        local = wall(minute, tz)
        return every < 1440 and (local.hour * 60 + local.minute) % every == 0

    begin = first
    while not starts(begin):
        begin -= 1
    edges = [begin]
    minute = begin
    while edges[-1] <= last:
        minute += 1
        if starts(minute):
            edges.append(minute)
    return list(pairwise(edges))


def covered_by_trips(trips: list[Trip]) -> list[tuple[int, int]]:
    stretches: list[tuple[int, int]] = []
    for minute in sorted({t.started // 60 for t in trips}):
        if stretches and minute - stretches[-1][1] <= 7 * 1440:
            stretches[-1] = (stretches[-1][0], minute)
        else:
            stretches.append((minute, minute))
    return stretches


def panel(
    records: list[Record],
    trips: list[Trip],
    zones: dict[str, list[str]],
    every: int,
    timezone: str,
    rebalancing: int = 8,
    hours: tuple[int, int] | None = None,
) -> list[dict[str, object]]:
    """One dict per zone and bin, zone by zone."""
    tz = ZoneInfo(timezone)
    system = System(records, trips)
    starts = [t.started // 60 for t in trips]
    bins = cut(min([system.first, *starts]), max([system.last, *starts]), every, tz)
    covered = covered_by_trips(trips)
    rows: list[dict[str, object]] = []
    for zone, members in zones.items():
        for begin, end in bins:
            reasons = {m: system.zone_reason(members, m, hours, tz) for m in range(begin, end)}
            minutes = Counter(STATE_OF[r] for r in reasons.values())
            docks = Counter(STATE_OF[system.zone_reason(members, m, hours, tz, docks=True)] for m in range(begin, end))
            vehicles = sum(system.supply(members, m) for m, r in reasons.items() if r == "vehicles")
            open_ = minutes["available"] + minutes["stockout"]
            by_trips = any(b < end and begin <= e for b, e in covered)
            known = minutes["unknown"] < end - begin
            row: dict[str, object] = {
                "zone": zone,
                "start": begin,
                "start_local": wall(begin, tz),
                "minutes": end - begin,
                "reasons": Counter(reasons.values()),
                **{f"{s}_minutes": minutes[s] for s in ("available", "stockout", "closed", "unknown")},
                "exposure": minutes["available"] / (end - begin),
                "dock_minutes": docks["available"] if docks["unknown"] < end - begin else None,
                "full_minutes": docks["stockout"] if docks["unknown"] < end - begin else None,
                "dock_exposure": docks["available"] / (end - begin) if docks["unknown"] < end - begin else None,
                "censored": minutes["stockout"] > 0,
                "supply_mean": vehicles / open_ if open_ else None,
                "evidence": (("status+trips" if known else "trips") if by_trips else ("status" if known else "none")),
            }
            if by_trips:
                row["observed"] = sum(t.start in members and begin <= t.started // 60 < end for t in trips)
                row["returns"] = sum(t.end in members and begin <= t.ended // 60 < end for t in trips)
            else:
                row |= (
                    inferred(system, members, begin, end, rebalancing) if known else {"observed": None, "returns": None}
                )
            rows.append(row)
    return rows


def inferred(system: System, members: list[str], begin: int, end: int, rebalancing: int) -> dict[str, object]:
    counts = Counter({"observed": 0, "returns": 0, "rebalanced_out": 0, "rebalanced_in": 0})
    for station, second, before, after, fall, rise in system.changes:
        if station not in members or not begin <= second // 60 < end:
            continue
        if system.is_silent_gap(station, before, after):
            continue
        if any(before < e and b < after for b, e in system.silent):
            continue
        counts["observed" if fall < rebalancing else "rebalanced_out"] += fall
        counts["returns" if rise < rebalancing else "rebalanced_in"] += rise
    return dict(counts)


def utc(text: str, timezone: str) -> int:
    """Seconds since 1970 of a local time."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(timezone)).timestamp())
