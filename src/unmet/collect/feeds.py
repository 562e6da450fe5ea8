"""One feed between two polls: when it is due, what is wrong with it. Nothing here reads a clock or a network."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from unmet._exceptions import InputError
from unmet.collect.documents import Document
from unmet.collect.requests import Answer

__all__ = ["DAY", "CollectorSettings", "Feed", "next_tick"]

DAY = 86_400.0


@dataclass(frozen=True)
class CollectorSettings:
    """Settings of a collector. Times are in seconds.

    Attributes
    ----------
    contact : str
        Address or page for the publisher to write to; part of the user agent.
    shortest, longest : float
        Shortest and longest time between two polls of a feed; between them its ttl decides.
    longest_back_off : float
        Longest wait after failures, unless the server asks for more (``Retry-After``, up to a day).
    timeout : float
        Time for one request, from the connection to the last byte.
    most_bytes : int
        Largest answer, decompressed.
    dead_after : float
        Time without a change of ``last_updated`` after which the publisher is reported as dead.
    """

    contact: str = ""
    shortest: float = 60.0
    longest: float = 3600.0
    longest_back_off: float = 900.0
    timeout: float = 30.0
    most_bytes: int = 50_000_000
    dead_after: float = 1800.0

    def __post_init__(self) -> None:
        if not (self.contact.isascii() and self.contact.isprintable()):
            raise InputError(f"contact: expected ASCII text without line breaks, for a header; got {self.contact!r}.")

    @property
    def user_agent(self) -> str:
        """User agent of all requests."""
        from unmet import __version__

        return f"unmet/{__version__} (shared mobility research{'; ' + self.contact if self.contact else ''})"


@dataclass
class Feed:
    """State of one feed.

    Attributes
    ----------
    name, address : str
        Name in ``gbfs.json``, and where to ask.
    daily : bool
        Whether once a day is enough.
    phase : float
        Seconds between the whole intervals since 1970 and the ticks of this feed: systems are spread over the minute.
    polled, due : float
        When it was last polled, and when to poll next; 0 is never, and at once.
    etag, modified : str or None
        Validators of the last document.
    updated : float or None
        Its ``last_updated``.
    changed, behind : float or None
        When `updated` last changed; since when the documents that come are older than `updated`.
    ttl : float
        Its ttl.
    failures : int
        Failed polls since the last good one.
    reported_dead : bool
        Whether its publisher was reported as dead.
    reported_repeated : bool
        Whether it was reported that it lists ids more than once.
    """

    name: str
    address: str
    daily: bool = False
    phase: float = 0.0
    polled: float = 0.0
    due: float = 0.0
    etag: str | None = None
    modified: str | None = None
    updated: float | None = None
    changed: float | None = None
    behind: float | None = None
    ttl: float = 0.0
    failures: int = 0
    reported_dead: bool = False
    reported_repeated: bool = False

    def refuse(self, document: Document, at: float, settings: CollectorSettings) -> str | None:
        """Say why a document must not be used, if so.

        Caches sometimes serve an older document again. Its rows would undo and repeat changes, so it is not used. If
        the times stay behind for `dead_after`, the publisher's clock was set back, and they are believed.
        """
        if document.updated is None or self.updated is None or document.updated >= self.updated:
            self.behind = None
            return None
        self.behind = at if self.behind is None else self.behind
        if at - self.behind >= settings.dead_after:
            return None
        return f"last_updated went back by {self.updated - document.updated:.0f} s"

    def accept(self, document: Document, answer: Answer, at: float) -> None:
        """Take over times and validators of a document."""
        if document.updated != self.updated or self.changed is None:
            self.updated, self.changed = document.updated, at
        self.ttl, self.etag, self.modified = document.ttl, answer.etag, answer.modified

    def take_up(
        self,
        at: float,
        updated: float | None,
        ttl: float | None,
        status: int | None,
        etag: str | None,
        error: str | None,
        settings: CollectorSettings,
        chance: random.Random,
    ) -> None:
        """Take over a poll of an earlier process, as if it had been made by this one.

        Of a poll that failed although a document came, it is not kept whether the document was older. It is treated as
        if it were: after a restart, a clock that was set back is believed no later than without one.
        """
        if updated != self.updated:
            self.updated, self.changed = updated, at
        self.ttl = ttl or 0.0
        if error is None:
            self.behind = None
            self.etag = etag if status == 200 else self.etag
            self.reported_dead = self.is_dead(at, settings)
        elif status == 200 and self.behind is None:
            self.behind = at
        self.due = at  # single polls (`once`) come before they are due
        self.plan(at, Answer(status, b"" if status == 200 else None), error is not None, settings, chance)

    def plan(self, at: float, answer: Answer, failed: bool, settings: CollectorSettings, chance: random.Random) -> None:
        """Set when the feed is due, after a poll at a moment."""
        wait = min(answer.retry_after or 0.0, DAY)
        if failed and answer.content is None:  # a wrong document is polled at the usual pace
            doubled = min(settings.shortest * 2.0 ** min(self.failures, 20), settings.longest_back_off)
            # Jitter keeps many collectors from coming back at the same moment.
            wait = max(wait, doubled * chance.uniform(0.5, 1.0))
        self.polled, self.failures = at, self.failures + 1 if failed else 0
        self.due = next_tick(max(at + wait, self.due), self.interval(settings), self.phase)

    def interval(self, settings: CollectorSettings) -> float:
        """Seconds between two polls. What is read once a day is asked for at the usual pace until that succeeds."""
        if self.daily and not self.failures:
            return DAY
        return min(max(self.ttl, settings.shortest), settings.longest)

    def is_dead(self, at: float, settings: CollectorSettings) -> bool:
        """Whether the feed answers but its ``last_updated`` no longer changes."""
        if self.daily or self.updated is None or self.changed is None:
            return False
        return at - self.changed > max(settings.dead_after, 5 * self.interval(settings))


def next_tick(after: float, interval: float, phase: float = 0.0) -> float:
    """First tick after a moment; ticks are whole intervals since 1970, moved by `phase`.

    Examples
    --------
    >>> next_tick(119.0, 60.0), next_tick(120.0, 60.0), next_tick(120.0, 60.0, phase=7.0)
    (120.0, 180.0, 127.0)
    """
    return (math.floor((after - phase) / interval) + 1) * interval + phase
