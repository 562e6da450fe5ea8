"""Polls GBFS feeds on a fixed clock and keeps their history (`unmet.collect.history`)."""

from __future__ import annotations

import asyncio
import random
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from unmet._exceptions import FileFormatError, InputError, MissingExtraError
from unmet._storage.folders import hold_folder
from unmet.collect.clock import Clock
from unmet.collect.documents import feed_addresses, parse_document
from unmet.collect.feeds import DAY, CollectorSettings, Feed
from unmet.collect.history import SystemHistory, day_of
from unmet.collect.memory import DISCOVERY, INFORMATION, STATUS, VEHICLE_FEEDS, Memory, Seen
from unmet.collect.requests import Answer, Secrets, ask
from unmet.collect.segments import Segment, check_frame

if TYPE_CHECKING:
    import httpx

__all__ = ["Collected", "System", "collect"]

Note = Callable[[str], None]
_DAILY = (INFORMATION, "system_information", "vehicle_types", "system_hours", "system_calendar")


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

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", self.name):
            raise InputError(f"system {self.name!r}: expected a name of letters, digits and . _ -; it names a folder.")
        try:
            parts = urlsplit(self.address)
            sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            sound = False
        if not sound:
            raise InputError(f"system {self.name}: expected the http address of a gbfs.json, got {self.address!r}.")


@dataclass
class Collected:
    """Counts of one system while a collector ran: polls, those that failed, and rows written."""

    polls: int = 0
    failed: int = 0
    changes: int = 0


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
) -> dict[str, Collected]:
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
        Poll now and return: every feed of the present, and of the daily ones those not yet read today.
    stop : asyncio.Event, optional
        Ends collecting when set; polls under way are finished first.
    note : callable, optional
        Called with a sentence about what an operator should know.
    verify : bool or ssl.SSLContext
        How certificates are verified, as httpx takes it.

    Returns
    -------
    dict of str to Collected
        Counts by system.
    """
    httpx = _httpx()
    chosen, ticking, ending = settings or CollectorSettings(), clock or Clock(), stop or asyncio.Event()
    if len({system.name for system in systems}) < len(systems):
        raise InputError("systems: two of them have the same name; name them apart.")
    # Each system has a client of its own: cookies are not shared, and httpx looks at all connections of a client for
    # every request. Certificates are loaded once.
    options = {"timeout": chosen.timeout, "headers": {"User-Agent": chosen.user_agent}}
    options["verify"] = httpx.create_ssl_context() if verify is True else verify
    with hold_folder(out):
        collectors = []
        try:
            # Days are finished by one thread, one at a time: every thread keeps the memory that it once needed.
            finishing = ThreadPoolExecutor(1)
            async with AsyncExitStack() as clients, asyncio.TaskGroup() as tasks:
                clients.callback(finishing.shutdown)
                for system in systems:
                    client = await clients.enter_async_context(httpx.AsyncClient(**options))
                    one = _SystemCollector(
                        system,
                        SystemHistory(out / system.name),
                        client,
                        chosen,
                        ticking,
                        note or _silent,
                        lambda work: tasks.create_task(_finished(finishing, work)),
                    )
                    collectors.append(one)
                    one.open()
                for one in collectors:
                    tasks.create_task(one.poll_once(ending) if once else one.follow(until, ending))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            for one in collectors:
                one.close()
    return {system.name: one.collected for system, one in zip(systems, collectors, strict=True)}


async def _finished(finishing: ThreadPoolExecutor, work: Callable[[], None]) -> None:
    await asyncio.get_running_loop().run_in_executor(finishing, work)


def _silent(sentence: str) -> None:
    """Drop a note."""


class _SystemCollector:
    """Polls the feeds of one system, one after the other, whichever is due first.

    A request takes at most `timeout` seconds, half of the shortest interval: the feeds of stations and of vehicles do
    not make each other miss a tick.
    """

    def __init__(
        self,
        system: System,
        history: SystemHistory,
        client: httpx.AsyncClient,
        settings: CollectorSettings,
        clock: Clock,
        note: Note,
        later: Callable[[Callable[[], None]], object],
    ) -> None:
        self._system, self._history, self._client = system, history, client
        self._settings, self._clock, self._later = settings, clock, later
        self._note: Note = lambda sentence: note(f"{system.name}: {sentence}")
        self._secrets = Secrets.for_address(system.address, system.headers) if system.headers else None
        # Systems are spread over the interval, so that the collector and shared servers are evenly loaded.
        self._phase = zlib.crc32(system.name.encode()) % 1000 / 1000 * settings.shortest
        self._feeds = {DISCOVERY: Feed(DISCOVERY, system.address, daily=True, phase=self._phase)}
        self._memory = Memory()
        self._day = ""
        self._segment: Segment | None = None
        self._chance = random.Random(system.name)
        self.collected = Collected()

    def open(self) -> None:
        """Claim the folder, take up what was collected before, and finish days that are over."""
        self._history.claim(self._system.address)
        now = self._clock.now()
        today, days, finished = day_of(now), self._history.open_days(), self._history.finished_days()
        latest = max(days + finished, default="")
        if latest > today or today in finished:
            raise InputError(
                f"{self._history.folder}: has records of {latest}, but this machine's clock is at {today} (UTC). "
                "Set the clock right, or name another folder."
            )
        if (known := self._history.last_answered_day()) is not None:
            self._replay(self._history.last_rows(known))
        for day in days:
            if day == today:
                self._ask_for_all()
            for frame in self._history.frames(day):
                self._replay(frame)
        self._begin_day(today, first=today not in days)

    def close(self) -> None:
        """Close the segment; every poll is on disk already."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    async def poll_once(self, stop: asyncio.Event) -> None:
        """Poll now: ``gbfs.json`` first, because it lists the others; of what is read once a day only what is due."""
        discovery = self._feeds[DISCOVERY]
        if discovery.due <= self._clock.now():
            await self._poll(discovery)
        for feed in list(self._feeds.values()):
            if feed is not discovery and (not feed.daily or feed.due <= self._clock.now()) and not stop.is_set():
                await self._poll(feed)

    async def follow(self, until: float | None, stop: asyncio.Event) -> None:
        """Poll whichever feed is due first, until the end."""
        while not stop.is_set():
            feed = min(self._feeds.values(), key=lambda feed: (feed.due, feed.daily))
            if until is not None and max(feed.due, self._clock.now()) >= until:
                await self._clock.sleep_until(until, stop)
                return
            await self._clock.sleep_until(feed.due, stop)
            if not stop.is_set():
                await self._poll(feed)

    async def _poll(self, feed: Feed) -> None:
        """Ask once and write down what is new."""
        at = self._clock.now()
        if day_of(at) != self._day:
            self._begin_day(day_of(at), first=True)
        answer = await ask(
            self._client,
            feed.address,
            etag=feed.etag,
            modified=feed.modified,
            timeout=self._settings.timeout,
            most_bytes=self._settings.most_bytes,
            secrets=self._secrets,
        )
        seen, error = self._understand(feed, answer, at)
        size = None if answer.content is None else len(answer.content)
        poll = [feed.name, at, feed.updated, feed.ttl, answer.status, answer.etag, seen.rows, seen.changes]
        poll += [seen.unreadable + len(seen.repeated), size, round(answer.seconds, 3), error]
        assert self._segment is not None, "opened before the first poll"
        await asyncio.to_thread(self._segment.append, {"polls": [poll], **seen.tables})
        self.collected.polls += 1
        self.collected.failed += error is not None
        self.collected.changes += seen.changes
        self._tell(feed, error, at)
        self._tell_repeated(feed, seen.repeated)
        feed.plan(at, answer, error is not None, self._settings, self._chance)

    def _understand(self, feed: Feed, answer: Answer, at: float) -> tuple[Seen, str | None]:
        """Read an answer: what it contains that is new, and what is wrong with it."""
        if answer.content is None:
            return Seen(), answer.error
        try:
            document = parse_document(answer.content)
            if document.updated is not None and document.updated > at + DAY:
                # Not a time: all documents after it would count as older ones from a cache.
                document = replace(document, updated=None)
            listed = feed_addresses(document) if feed.name == DISCOVERY else {}
            if (older := feed.refuse(document, at, self._settings)) is not None:
                return Seen(), older
            memory = self._memory.copy()
            seen = memory.see(feed.name, document, at, answer.content.decode("utf-8-sig"))
            check_frame(seen.tables)
        except FileFormatError as error:
            return Seen(), str(error)
        self._memory = memory
        feed.accept(document, answer, at)
        self._add_feeds(listed)
        return seen, None

    def _add_feeds(self, listed: Mapping[str, str]) -> None:
        """Follow the feeds that ``gbfs.json`` lists; one that is listed no longer is polled on."""
        vehicle_feed = [name for name in VEHICLE_FEEDS if name in listed][:1]
        for name in (STATUS, *vehicle_feed, *_DAILY):
            if name in listed:
                feed = self._feeds.setdefault(name, Feed(name, listed[name], name in _DAILY, self._phase))
                feed.address = listed[name]
        if listed and not {STATUS, *vehicle_feed} & self._feeds.keys():
            self._note("gbfs.json lists neither station_status nor a feed of vehicles.")

    def _tell(self, feed: Feed, error: str | None, at: float) -> None:
        """Report a feed that begins to fail, answers again, or whose publisher is dead."""
        if error is not None:
            if feed.failures == 0:
                self._note(f"{feed.name}: {error}.")
            return
        if feed.failures:
            self._note(f"{feed.name}: answers again, after {feed.failures} failed polls.")
        dead = feed.is_dead(at, self._settings)
        if dead and not feed.reported_dead:
            unchanged = (at - (feed.changed or at)) / 60
            self._note(
                f"{feed.name} answers, but its last_updated has not changed for {unchanged:.0f} minutes: "
                "its publisher seems to be dead."
            )
        feed.reported_dead = dead

    def _tell_repeated(self, feed: Feed, repeated: list[str]) -> None:
        """Report once that a feed lists stations or vehicles more than once."""
        if repeated and not feed.reported_repeated:
            self._note(
                f"{feed.name} has several entries with the same id, such as {repeated[0]!r} (ids: "
                f"{len(set(repeated)):,}): the last one is kept."
            )
        feed.reported_repeated |= bool(repeated)

    def _begin_day(self, today: str, *, first: bool) -> None:
        """Open the segment of today, and finish earlier days; `first` if today has no poll yet."""
        self.close()
        if first:
            self._ask_for_all()
        self._segment = Segment(self._history.segment(today))
        for day in self._history.open_days():
            if day < today:
                self._later(partial(self._history.finish, day))
        self._day = today

    def _ask_for_all(self) -> None:
        """Have the first documents of a day come and be written whole."""
        self._memory.begin_day()
        for feed in self._feeds.values():
            feed.etag = feed.modified = None

    def _replay(self, frame: Mapping[str, list[list[Any]]]) -> None:
        """Take up what was written before."""
        self._memory.replay(frame)
        for name, _, text in frame.get("documents", ()):
            if name == DISCOVERY and text is not None:
                try:
                    self._add_feeds(feed_addresses(parse_document(text.encode())))
                except FileFormatError as reason:
                    raise FileFormatError(f"{self._history.folder}: a kept gbfs.json: {reason}") from None
        for name, at, updated, ttl, code, etag, *_, error in frame.get("polls", ()):
            if (feed := self._feeds.get(name)) and at is not None:
                feed.take_up(at, updated, ttl, code, etag, error, self._settings, self._chance)


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise MissingExtraError("httpx", "collect", "Collectors of feeds") from error
    return httpx
