"""Polls GBFS feeds on a fixed clock and keeps their history (`unmet.collect.history`)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmet._exceptions import FileFormatError, InputError, MissingExtraError
from unmet._storage.folders import hold_folder
from unmet.collect.documents import (
    Document,
    StationInfo,
    StationState,
    feed_addresses,
    parse_document,
    station_infos,
    station_states,
    vehicles,
)
from unmet.collect.history import SystemHistory, day_of
from unmet.collect.requests import Answer, Secrets, ask
from unmet.collect.segments import Segment, read_segment

if TYPE_CHECKING:
    import httpx

__all__ = ["Clock", "CollectorSettings", "System", "collect"]

Note = Callable[[str], None]
_STATUS, _INFORMATION = "station_status", "station_information"
_VEHICLES = ("vehicle_status", "free_bike_status")
_DAILY = ("system_information", "vehicle_types", "system_hours", "system_calendar")
_HEARTBEAT = 3600.0
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

    async def sleep_until(self, moment: float) -> None:
        """Return when the clock reaches a moment."""
        while (left := moment - self.now()) > 0:
            await asyncio.sleep(left / self._speed)


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
                await asyncio.gather(*(collector.run(until, once, ending) for collector in collectors))
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
    changed_at: float | None = None
    ttl: float = 0.0
    last_poll: float = 0.0
    failures: int = 0
    wait: float = 0.0
    reported_dead: bool = False


class _SystemCollector:
    """Polls the feeds of one system. State between polls is here; everything else is on disk."""

    def __init__(
        self,
        system: System,
        history: SystemHistory,
        client: httpx.AsyncClient,
        settings: CollectorSettings,
        clock: Clock,
        note: Note,
    ) -> None:
        self.system, self.history, self.client = system, history, client
        self.settings, self.clock, self.note = settings, clock, note
        self.secrets = Secrets.for_address(system.address, system.headers) if system.headers else None
        self.feeds: dict[str, _Feed] = {}
        self.states: dict[str, tuple[StationState, float | None]] = {}
        self.infos: dict[str, StationInfo] = {}
        self.day = ""
        self.segment: Segment | None = None
        self.chance = random.Random(system.name)

    def open(self) -> None:
        """Claim the folder, finish days that are over, and go on with the day in progress."""
        self.history.claim(self.system.address)
        self._turn_day(self.clock.now())

    def close(self) -> None:
        """Close the segment; what was polled is on disk already."""
        if self.segment is not None:
            self.segment.__exit__(None, None, None)
            self.segment = None

    async def run(self, until: float | None, once: bool, stop: asyncio.Event) -> None:
        """Discover the feeds, then poll each on its own clock."""
        discovery = _Feed("gbfs", self.system.address, daily=True)
        await self._discover(discovery)
        if once:
            for feed in list(self.feeds.values()):
                await self._poll(feed)
            return
        running: dict[str, asyncio.Task[None]] = {}
        ending = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                for name, feed in self.feeds.items():
                    if name not in running:
                        running[name] = asyncio.ensure_future(self._follow(feed, until, stop))
                again = asyncio.ensure_future(self._wait_for(discovery, until))
                done, _ = await asyncio.wait({again, ending, *running.values()}, return_when=asyncio.FIRST_COMPLETED)
                if again not in done:
                    again.cancel()
                for task in done & set(running.values()):
                    task.result()  # a fault of ours must not go unseen
                if ending in done or (until is not None and self.clock.now() >= until):
                    break
                if again in done:
                    await self._discover(discovery)
            await asyncio.gather(*running.values())
        finally:
            ending.cancel()
            for task in running.values():
                task.cancel()

    async def _follow(self, feed: _Feed, until: float | None, stop: asyncio.Event) -> None:
        """Poll one feed until the end."""
        while not stop.is_set():
            moment = self._next_poll(feed)
            if until is not None and moment >= until:
                return
            sleeping = asyncio.ensure_future(self.clock.sleep_until(moment))
            ending = asyncio.ensure_future(stop.wait())
            await asyncio.wait({sleeping, ending}, return_when=asyncio.FIRST_COMPLETED)
            sleeping.cancel()
            ending.cancel()
            if stop.is_set():
                return
            await self._poll(feed, moment)

    async def _wait_for(self, feed: _Feed, until: float | None) -> None:
        moment = self._next_poll(feed)
        await self.clock.sleep_until(moment if until is None else min(moment, until))

    def _next_poll(self, feed: _Feed) -> float:
        """Next tick of the feed's fixed clock: whole intervals since 1970, after the last poll and any back-off."""
        interval = max(feed.ttl, self.settings.shortest, _DAY if feed.daily and not feed.failures else 0.0)
        earliest = max(self.clock.now(), feed.last_poll + feed.wait)
        tick = (earliest // interval) * interval
        while tick < earliest or tick <= feed.last_poll:
            tick += interval
        return tick

    async def _discover(self, discovery: _Feed) -> None:
        """Read ``gbfs.json`` and add feeds that are new. Feeds that are no longer listed are still polled."""
        document = await self._poll(discovery)
        if document is None:
            return
        try:
            listed = feed_addresses(document)
        except FileFormatError as error:
            self.note(f"{self.system.name}: {error}.")
            return
        vehicle_feed = next((name for name in _VEHICLES if name in listed), None)
        for name in (_INFORMATION, _STATUS, *((vehicle_feed,) if vehicle_feed else ()), *_DAILY):
            if name not in listed:
                continue
            known = self.feeds.get(name)
            if known is None:
                self.feeds[name] = _Feed(name, listed[name], daily=name == _INFORMATION or name in _DAILY)
            else:
                known.address = listed[name]
        if _STATUS not in self.feeds and vehicle_feed is None:
            self.note(f"{self.system.name}: gbfs.json lists neither station_status nor vehicles.")

    async def _poll(self, feed: _Feed, moment: float | None = None) -> Document | None:
        """Ask once, note what changed, and write it down."""
        at = max(self.clock.now() if moment is None else moment, feed.last_poll + 1e-3)
        answer = await ask(
            self.client,
            feed.address,
            etag=feed.etag,
            modified=feed.modified,
            most_bytes=self.settings.most_bytes,
            secrets=self.secrets,
        )
        feed.last_poll = at
        await self._turn_day_if_over(at)
        document, rows, error = self._understand(feed, answer, at)
        poll = [
            *(feed.name, at, feed.updated, feed.ttl, answer.status, answer.etag, rows.pop("count"), rows.pop("changes_count")),
            *(rows.pop("unreadable"), None if answer.content is None else len(answer.content), answer.seconds, error),
        ]
        frame = {"polls": [poll], **{name: value for name, value in rows.items() if value}}
        assert self.segment is not None
        await asyncio.to_thread(self.segment.append, frame)
        self._schedule(feed, answer, error)
        self._watch_publisher(feed, at)
        return document
