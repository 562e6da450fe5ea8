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
from zoneinfo import ZoneInfo

import numpy as np

STATE_OF = {
    "vehicles": "available",
    "empty": "stockout",
    "not_reopened": "closed",
    "unused": "closed",
    "not_renting": "closed",
    "left": "closed",
    "not_installed": "closed",
    "dead": "closed",
    "standstill": "closed",
    "hours": "closed",
    "feed_silent": "unknown",
    "far_apart": "unknown",
    "silent": "unknown",
    "undetermined": "unknown",
    "no_record": "unknown",
}
ZONE_ORDER = [
    "vehicles",
    "undetermined",
    "silent",
    "empty",
    "not_reopened",
    "unused",
    "not_renting",
    "dead",
    "not_installed",
    "left",
    "no_record",
]


NEAR_HOURS = {abs(24 * day + hour) for day in range(-3, 4) for hour in (-1, 0, 1)}


@cache
def length_class(minutes: int) -> float:
    """Intervals up to a day, in classes some 12 % wide: the middle of the class."""
    edges = sorted({round(1.12**k) for k in range(70)})
    edges = [edge for edge in edges if edge <= 1440]
    place = bisect_right(edges, min(minutes, 1440)) - 1
    last = edges[place + 1] - 1 if place + 1 < len(edges) else 1440
    return float(np.sqrt(edges[place] * max(last, edges[place])))


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

    def __init__(self, records: list[Record], trips: list[Trip], rebalancing: int = 8) -> None:
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
        self.moving = self._may_have_moved() | {m for m in ridden if self.first <= m <= self.last}
        self.rises = Counter(s for s, _, _, _, _, rise in self.changes for _ in range(rise * (rise < rebalancing)))
        self._add_swaps()
        self.silent = self._silences()
        self.standstill, dead = self._standstills()
        self.silent += dead
        covered = {m for begin, end in covered_by_trips(trips) for m in range(begin, end + 1)}
        self.far_apart = self._far_apart() - covered

    def _may_have_moved(self) -> set[int]:
        """Minutes with a move; between two polls, all of them."""
        found: set[int] = set()
        for before, minute in pairwise([self.first - 1, *sorted(self.heard)]):
            if self.moves[minute]:
                begin = min(before + 1, minute - int(min(self.usual(minute)[0], 1e6)) + 1)
                found |= set(range(max(begin, self.first), minute + 1)) if self.is_polled(minute) else {minute}
        return found

    def _far_apart(self) -> set[int]:
        """Minutes between looks that are regular and much further apart than the feed's usual ones."""
        hours = range((self.last - self.first) // 60 + 1)
        usual = [self.usual(self.first + 60 * h) for h in hours]
        limit = max(15.0, 3 * float(np.median([minutes for minutes, _ in usual])))
        slow = [regular and minutes > limit for minutes, regular in usual]
        found: set[int] = set()
        for a, b in pairwise(sorted(self.heard)):
            if b - a > 15 and (slow[(a - self.first) // 60] or slow[(b - self.first) // 60]):
                found |= set(range(a if a - 1 in found else a + 1, b))
        return found

    @cache  # noqa: B019
    def usual(self, minute: int) -> tuple[float, bool]:
        """The usual interval between two minutes with a record, and whether such intervals are regular."""
        hour = (minute - self.first) // 60
        length, near = self._usual_interval((tuple(sorted(self.heard)),), hour)
        own, own_near = self._usual_interval(tuple(tuple(m) for m in self.minutes.values()), hour)
        return (max(length, own), True) if own_near >= 0.75 and self._mostly_own() else (length, near >= 0.6)

    @cache  # noqa: B019
    def _mostly_own(self) -> bool:
        """Whether the records of single stations are regular at most hours."""
        hours = range((self.last - self.first) // 60 + 1)
        series = tuple(tuple(m) for m in self.minutes.values())
        return 2 * sum(self._usual_interval(series, h)[1] >= 0.75 for h in hours) > len(hours)

    def is_polled(self, minute: int) -> bool:
        """Whether looks around a minute list every station."""
        return self._is_polled_in((minute - self.first) // 60)

    @cache  # noqa: B019
    def _is_polled_in(self, hour: int) -> bool:
        if self._usual_interval(tuple(tuple(m) for m in self.minutes.values()), hour)[1] >= 0.75:
            return True
        if len(self.log) <= 2:
            return False
        whole = total = 0
        distinct = [set(minutes) for minutes in self.minutes.values()]
        for m in self.heard:
            if abs((m - self.first) // 60 - hour) in NEAR_HOURS:
                present = sum(minutes[0] <= m for minutes in self.minutes.values())
                listed = sum(m in minutes for minutes in distinct)
                whole, total = whole + (listed >= 0.8 * present), total + 1
        return total > 0 and 2 * whole >= total

    @cache  # noqa: B019
    def _intervals(self, series: tuple[tuple[int, ...], ...]) -> dict[int, list[tuple[float, int]]]:
        """By the hour in which they begin: the length of intervals, and how much they count."""
        found: dict[int, list[tuple[float, int]]] = defaultdict(list)
        for minutes in series:
            for a, b in pairwise(minutes):
                if b > a:
                    found[(a - self.first) // 60].append((length_class(b - a), min(b - a, 60)))
        return dict(found)

    @cache  # noqa: B019
    def _usual_interval(self, series: tuple[tuple[int, ...], ...], hour: int) -> tuple[float, float]:
        """Median, over the time they cover, of the intervals that begin around an hour; share of those near it."""
        by_hour = self._intervals(series)

        def near_hour(hour: int) -> list[tuple[float, int]]:
            found = (by_hour.get(h, []) for h in range(hour - 73, hour + 74) if abs(h - hour) in NEAR_HOURS)
            return [interval for some in found for interval in some]

        while hour >= 0:
            around = near_hour(hour)
            if around:
                break
            hour -= 1
        else:  # no interval before: the first hours that have some
            if not by_hour:
                return float("inf"), 0.0
            first = min(by_hour)
            around = near_hour(min(n for n in range(first + 1) if abs(first - n) in NEAR_HOURS))
        total, running = sum(weight for _, weight in around), 0
        kind = 0.0
        for length, weight in sorted(around):
            if 2 * running < total:
                kind = length
            running += weight
        near = sum(weight for other, weight in around if abs(other - kind) <= 0.12 * kind + 1)
        return kind, near / total if len(around) >= 10 else 0.0

    def _add_swaps(self) -> None:
        """A record that repeats the one before, between two moves within 20 minutes, is a pickup and a return."""
        for station, rows in self.log.items():
            moved = sorted(second for s, second, *_ in self.changes if s == station)
            for a, b in pairwise(rows):
                open_ = {self.own(a), self.own(b)} <= {"vehicles", "empty"}
                if not open_ or (a.available, a.disabled) != (b.available, b.disabled):
                    continue
                before = [m for m in moved[: bisect_right(moved, b.second)] if m < b.second]
                after = moved[bisect_right(moved, b.second) :]
                if not (before and after) or self.is_polled(ceil_minute(b.second)):
                    continue
                if b.second - before[-1] <= 1200 and after[0] - b.second <= 1200:
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
        found: list[tuple[int, int]] = []
        for a, b in pairwise(heard):
            if b - a <= max(30, 3 * self.usual(a)[0], 3 * self.usual(b)[0]):
                continue
            before = sum(self.heard[m] for m in range(a - 59, a + 1))
            after = sum(self.heard[m] for m in range(b, b + 60))
            polled = self.is_polled(a) and self.is_polled(b)
            if not polled and self._expected(self.heard, list(range(a + 1, b)), min(before, after) / 60, 1) <= 60:
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
        rows = self.log[station]
        begin, end = ceil_minute(rows[0].second), ceil_minute(rows[-1].second)
        others = sum(n for m, n in self.heard.items() if begin <= m <= end) - len(rows)
        meanwhile = sum(n for m, n in self.heard.items() if before < m < after)
        if self.is_polled(before):
            present = sum(minutes[0] <= before for minutes in self.minutes.values())
            return meanwhile / max(present - 1, 1) > 3.5
        return meanwhile * (len(rows) / max(others, 1)) > 30

    def station_reason(self, station: str, minute: int, docks: bool = False) -> str:
        reason = self.shown_reason(station, minute, docks)
        return "unused" if reason == "empty" and not docks and minute in self.unused(station) else reason

    @cache  # noqa: B019
    def unused(self, station: str) -> set[int]:
        """Minutes in which the station was empty for two days or more, and many vehicles would have been brought."""
        if self.last - self.first < 2880:
            return set()
        runs: list[list[int]] = []
        for minute in range(self.first, self.last + 1):
            if self.shown_reason(station, minute) == "empty":
                if runs and runs[-1][-1] == minute - 1:
                    runs[-1].append(minute)
                else:
                    runs.append([minute])
        heard = [sum(not any(s <= m < e for s, e in self.silent) for m in run) for run in runs]
        long = [(run, minutes) for run, minutes in zip(runs, heard, strict=True) if minutes > 2880]
        rows = self.log[station]
        open_ = sum(
            ceil_minute(b.second) - ceil_minute(a.second)
            for a, b in pairwise(rows)
            if self.own(a) in ("vehicles", "empty")
        )
        rate = self.rises[station] / max(open_ - sum(minutes for _, minutes in long), 1440)
        return {minute for run, minutes in long if minutes * rate > 20 for minute in run}

    @cache  # noqa: B019
    def shown_reason(self, station: str, minute: int, docks: bool = False) -> str:
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
            if until > self.last and until - since - 1 > 7 * 1440:
                return "left"
            return "silent" if minute - since <= 7 * 1440 else "no_record"
        late = reason == "empty" and not docks and self.is_not_reopened(station, place - 1)
        return "not_reopened" if late else reason

    def is_not_reopened(self, station: str, place: int) -> bool:
        """Whether the vehicles of an empty station disappeared in a closure."""
        last = {ceil_minute(r.second): self.own(r) for r in self.log[station]}  # of several in a minute the last holds
        minutes = sorted(last)
        at = minutes.index(self.minutes[station][place])
        while at > 0 and last[minutes[at - 1]] == "empty":
            at -= 1
        emptied = minutes[at]
        if at == 0:
            return False
        if any(b <= emptied < e for b, e in self.standstill):
            return True
        if last[minutes[at - 1]] not in ("not_renting", "not_installed"):
            return False
        while at > 0 and last[minutes[at - 1]] in ("not_renting", "not_installed"):
            at -= 1
        brief = emptied - minutes[at] <= 360
        return not (brief and at > 0 and last[minutes[at - 1]] == "empty")

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
            if minute in self.far_apart:
                return "far_apart"
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
    system = System(records, trips, rebalancing)
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
            hidden = Counter(reasons.values())
            hidden_minutes = hidden["silent"] + hidden["feed_silent"] + hidden["far_apart"]
            known = minutes["unknown"] < end - begin and 2 * hidden_minutes <= end - begin
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
                middle = (begin + end) / 2
                row["observed_early"] = sum(t.start in members and begin <= t.started // 60 < middle for t in trips)
                row["returns"] = sum(t.end in members and begin <= t.ended // 60 < end for t in trips)
            else:
                row["observed_early"] = None
                row |= (
                    inferred(system, members, begin, end, rebalancing) if known else {"observed": None, "returns": None}
                )
            rows.append(row)
    return rows


def inferred(system: System, members: list[str], begin: int, end: int, rebalancing: int) -> dict[str, object]:
    counts = Counter({"observed": 0, "returns": 0, "rebalanced_out": 0, "rebalanced_in": 0})
    for station, second, before, after, fall, rise in system.changes:
        moved = (before + after) // 2 if system.is_polled(after) else second // 60
        if station not in members or not begin <= moved < end:
            continue
        if system.is_silent_gap(station, before, after):
            continue
        if any(before < e and b < after for b, e in system.silent):
            continue
        if any(minute in system.far_apart for minute in range(before + 1, after)):
            continue
        counts["observed" if fall < rebalancing else "rebalanced_out"] += fall
        counts["returns" if rise < rebalancing else "rebalanced_in"] += rise
    return dict(counts)


def utc(text: str, timezone: str) -> int:
    """Seconds since 1970 of a local time."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(timezone)).timestamp())
