"""Polls GBFS feeds on a fixed clock and keeps their history (`unmet.collect.history`)."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmet._exceptions import FileFormatError, InputError, MissingExtraError
from unmet._storage.folders import hold_folder
from unmet.collect.documents import feed_addresses, parse_document
from unmet.collect.history import SystemHistory, day_of
from unmet.collect.memory import INFORMATION, STATUS, VEHICLE_FEEDS, Memory, Seen
from unmet.collect.requests import Answer, Secrets, ask
from unmet.collect.segments import Segment, read_segment

if TYPE_CHECKING:
    import httpx

__all__ = ["Clock", "CollectorSettings", "System", "collect"]

Note = Callable[[str], None]
_DISCOVERY = "gbfs"
_DAILY = ("system_information", "vehicle_types", "system_hours", "system_calendar")
_DAY = 86_400.0


class Clock:
    """Wall clock of the collector; `speed` lets tests run it faster than the world.

    Parameters
    ----------
    start : float, optional
        Time at which it begins, in seconds since 1970; the present unless given.
    speed : float
        Seconds that pass per second.
    """

    def __init__(self, start: float | None = None, speed: float = 1.0) -> None:
        self._start = time.time() if start is None else start
        self._began = time.monotonic()
        self._speed = speed

    def now(self) -> float:
        """Seconds since 1970. The clock never goes back, even if the machine's does."""
        return self._start + (time.monotonic() - self._began) * self._speed

    async def sleep_until(self, moment: float, stop: asyncio.Event) -> None:
        """Return when the clock reaches a moment, or when `stop` is set."""
        left = (moment - self.now()) / self._speed
        if left > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), left)


@dataclass(frozen=True)
class System:
    """One system to collect.

    Attributes
    ----------
    name : str
        Name of its folder.
    address : str
        Address of its ``gbfs.json``.
    headers : mapping
        Headers that authenticate; sent to the origin of `address` only, and never written anywhere.
    """

    name: str
    address: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class CollectorSettings:
    """Settings of a collector.

    Attributes
    ----------
    contact : str
        Address or page for the publisher to write to; part of the user agent.
    shortest : float
        Shortest time between two polls of a feed, in seconds. The ttl of a feed can only make it longer.
    longest_back_off : float
        Longest wait after failures, in seconds.
    timeout : float
        Seconds to wait for an answer.
    most_bytes : int
        Largest answer, decompressed.
    dead_after : float
        Seconds without a change of ``last_updated`` after which the publisher is reported as dead.
    """

    contact: str = ""
    shortest: float = 60.0
    longest_back_off: float = 3600.0
    timeout: float = 30.0
    most_bytes: int = 50_000_000
    dead_after: float = 1800.0

    @property
    def user_agent(self) -> str:
        """User agent of all requests."""
        from unmet import __version__

        return f"unmet/{__version__} (shared mobility research{'; ' + self.contact if self.contact else ''})"


async def collect(
    systems: Sequence[System],
    out: Path,
    *,
    settings: CollectorSettings | None = None,
    clock: Clock | None = None,
    until: float | None = None,
    once: bool = False,
    stop: asyncio.Event | None = None,
    note: Note | None = None,
    verify: Any = True,
) -> None:
    """Poll systems and keep their history until `until`, or until `stop` is set.

    Parameters
    ----------
    systems : sequence of System
        Systems to collect; names must differ.
    out : Path
        Folder of the history. A second collector on the same folder is refused.
    settings : CollectorSettings, optional
        Intervals, limits and contact.
    clock : Clock, optional
        The clock that polls follow.
    until : float, optional
        End, in seconds since 1970; no end unless given.
    once : bool
        Poll every feed once, now, and return.
    stop : asyncio.Event, optional
        Ends collecting when set; polls under way are finished first.
    note : callable, optional
        Called with a sentence about what an operator should know.
    verify : bool or ssl.SSLContext
        How certificates are verified, as httpx takes it.
    """
    httpx = _httpx()
    chosen, ticking = settings or CollectorSettings(), clock or Clock()
    if len({system.name for system in systems}) < len(systems):
        raise InputError("systems: two of them have the same name; name them apart.")
    out.mkdir(parents=True, exist_ok=True)
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=50)
    headers = {"User-Agent": chosen.user_agent}
    with hold_folder(out):
        async with httpx.AsyncClient(timeout=chosen.timeout, headers=headers, limits=limits, verify=verify) as client:
            ending = stop or asyncio.Event()
            collectors = [
                _SystemCollector(system, SystemHistory(out / system.name), client, chosen, ticking, note or _silent)
                for system in systems
            ]
            for collector in collectors:
                collector.open()
            try:
                work = [c.poll_once() if once else c.follow(until, ending) for c in collectors]
                await asyncio.gather(*work)
            finally:
                for collector in collectors:
                    collector.close()


def _silent(sentence: str) -> None:
    """Drop a note."""


@dataclass
class _Feed:
    """What is known of one feed between two polls."""

    name: str
    address: str
    daily: bool = False
    etag: str | None = None
    modified: str | None = None
    updated: float | None = None
    updated_since: float | None = None
    ttl: float = 0.0
    last_poll: float = 0.0
    failures: int = 0
    wait: float = 0.0
    reported_dead: bool = False


class _SystemCollector:
    """Polls the feeds of one system, one after the other.

    A request takes at most `timeout` seconds, half of the shortest interval, so that no feed makes another miss a tick.
    """

    def __init__(
        self,
        system: System,
        history: SystemHistory,
        client: httpx.AsyncClient,
        settings: CollectorSettings,
        clock: Clock,
        note: Note,
    ) -> None:
        self._system, self._history, self._client = system, history, client
        self._settings, self._clock, self._note = settings, clock, note
        self._secrets = Secrets.for_address(system.address, system.headers) if system.headers else None
        self._feeds = {_DISCOVERY: _Feed(_DISCOVERY, system.address, daily=True)}
        self._memory = Memory()
        self._day = ""
        self._segment: Segment | None = None
        self._chance = random.Random(system.name)

    def open(self) -> None:
        """Claim the folder, finish days that are over, and take up the day in progress."""
        self._history.claim(self._system.address)
        self._turn_day(day_of(self._clock.now()))

    def close(self) -> None:
        """Close the segment; every poll is on disk already."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    async def poll_once(self) -> None:
        """Poll every feed once, now."""
        await self._poll(self._feeds[_DISCOVERY], self._clock.now())
        for name, feed in list(self._feeds.items()):
            if name != _DISCOVERY:
                await self._poll(feed, self._clock.now())

    async def follow(self, until: float | None, stop: asyncio.Event) -> None:
        """Poll whichever feed is due next, until the end."""
        while True:
            feed = min(self._feeds.values(), key=self._next_poll)
            moment = self._next_poll(feed)
            if until is not None and moment >= until:
                await self._clock.sleep_until(until, stop)
                return
            await self._clock.sleep_until(moment, stop)
            if stop.is_set():
                return
            await self._poll(feed, moment)

    def _next_poll(self, feed: _Feed) -> float:
        """Next tick of the feed's fixed clock: whole intervals since 1970, after the last poll and any back-off.

        What is polled once a day is polled at once when the collector starts, and when it failed at the usual pace.
        """
        if feed.daily and not feed.last_poll:
            return self._clock.now()
        interval = max(feed.ttl, self._settings.shortest)
        if feed.daily and not feed.failures:
            interval = _DAY
        earliest = max(self._clock.now(), feed.last_poll + feed.wait)
        tick = math.ceil(earliest / interval) * interval
        return tick if tick > feed.last_poll else tick + interval

    async def _poll(self, feed: _Feed, at: float) -> None:
        """Ask once and write down what is new."""
        answer = await ask(
            self._client,
            feed.address,
            etag=feed.etag,
            modified=feed.modified,
            timeout=self._settings.timeout,
            most_bytes=self._settings.most_bytes,
            secrets=self._secrets,
        )
        if day_of(at) != self._day:
            self._turn_day(day_of(at))
        seen, error = self._understand(feed, answer, at)
        size = None if answer.content is None else len(answer.content)
        poll = [feed.name, at, feed.updated, feed.ttl, answer.status, answer.etag, seen.rows, seen.changes]
        poll += [seen.unreadable, size, round(answer.seconds, 3), error]
        assert self._segment is not None, "opened before the first poll"
        await asyncio.to_thread(self._segment.append, {"polls": [poll], **seen.tables})
        self._plan(feed, answer, at, failed=error is not None)

    def _understand(self, feed: _Feed, answer: Answer, at: float) -> tuple[Seen, str | None]:
        """Read an answer: what it contains that is new, and what is wrong with it."""
        if answer.content is None:
            return Seen(0), answer.error
        try:
            document = parse_document(answer.content)
            if feed.name == _DISCOVERY:
                self._add_feeds(feed_addresses(document))
            seen = self._memory.see(feed.name, document, at, answer.content.decode("utf-8", "replace"))
        except FileFormatError as error:
            return Seen(0), str(error)
        wrong = None
        if document.updated is not None and feed.updated is not None and document.updated < feed.updated:
            wrong = "last_updated went back"
        if document.updated != feed.updated or feed.updated_since is None:
            feed.updated, feed.updated_since = document.updated, at
        feed.ttl, feed.etag, feed.modified = document.ttl, answer.etag, answer.modified
        return seen, wrong

    def _add_feeds(self, listed: Mapping[str, str]) -> None:
        """Follow the feeds that ``gbfs.json`` lists; one that is listed no longer is polled on."""
        vehicle_feed = next((name for name in VEHICLE_FEEDS if name in listed), None)
        wanted = (INFORMATION, STATUS, *_DAILY, *((vehicle_feed,) if vehicle_feed else ()))
        for name in (n for n in wanted if n in listed):
            feed = self._feeds.setdefault(name, _Feed(name, listed[name], daily=name in (INFORMATION, *_DAILY)))
            feed.address = listed[name]
        if STATUS not in self._feeds and vehicle_feed is None:
            self._note(f"{self._system.name}: gbfs.json lists neither station_status nor a feed of vehicles.")

    def _plan(self, feed: _Feed, answer: Answer, at: float, *, failed: bool) -> None:
        """Set how long to wait, and report a feed that fails or whose publisher is dead."""
        feed.last_poll = at
        if failed:
            if feed.failures == 0:
                self._note(f"{self._system.name}: {feed.name}: {answer.error or 'the document cannot be used'}.")
            doubled = self._settings.shortest * 2.0 ** min(feed.failures, 20)
            feed.failures += 1
            # Jitter keeps many collectors from coming back at the same moment.
            back_off = min(doubled, self._settings.longest_back_off) * self._chance.uniform(0.5, 1.0)
            feed.wait = max(back_off if _overloaded(answer) else 0.0, answer.retry_after or 0.0)
            return
        feed.failures, feed.wait = 0, answer.retry_after or 0.0
        unchanged = at - (feed.updated_since if feed.updated_since is not None else at)
        dead = not feed.daily and unchanged > max(self._settings.dead_after, 5 * feed.ttl)
        if dead and not feed.reported_dead:
            self._note(
                f"{self._system.name}: {feed.name} answers, but its last_updated has not changed for "
                f"{unchanged / 60:.0f} minutes: its publisher is dead."
            )
        feed.reported_dead = dead

    def _turn_day(self, today: str) -> None:
        """Finish days that are over, and open the segment of today, with what it already contains."""
        self.close()
        self._memory.forget()
        for day in self._history.open_days():
            if day < today:
                self._history.finish(day)
        path = self._history.segment(today)
        self._segment = Segment(path)
        for frame in read_segment(path):
            self._memory.replay(frame)
            for name, at, *_ in frame.get("polls", []):
                feed = self._feeds.get(name)
                if feed is not None:
                    feed.last_poll = max(feed.last_poll, at)
        self._day = today


def _overloaded(answer: Answer) -> bool:
    """Whether to back off: the server is overloaded or not reachable. A wrong document is polled at the usual pace."""
    return answer.status is None or answer.status == 429 or answer.status >= 500


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise MissingExtraError("httpx", "collect", "Collectors of feeds") from error
    return httpx
