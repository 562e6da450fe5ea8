"""The clock that polls follow."""

from __future__ import annotations

import asyncio
import contextlib
import time

__all__ = ["Clock"]


class Clock:
    """The machine's clock, which never goes back here; or, in tests, a faster one.

    Parameters
    ----------
    start : float, optional
        Time at which it begins, in seconds since 1970; if not given, the machine's clock is followed.
    speed : float
        Seconds that pass per second.

    Examples
    --------
    >>> clock = Clock(start=1_600_000_000.0)
    >>> 0.0 <= clock.now() - 1_600_000_000.0 < 1.0
    True
    """

    def __init__(self, start: float | None = None, speed: float = 1.0) -> None:
        self._follows_machine = start is None
        self._latest = time.time() if start is None else start
        self._looked = time.monotonic()
        self._speed = speed

    def now(self) -> float:
        """Seconds since 1970.

        A machine's clock that is set forward is followed. While one that was set back is behind, time goes on here as
        it would have: two polls never have their order exchanged.
        """
        looked = time.monotonic()
        passed = self._latest + (looked - self._looked) * self._speed
        self._latest = max(passed, time.time()) if self._follows_machine else passed
        self._looked = looked
        return self._latest

    async def sleep_until(self, moment: float, stop: asyncio.Event) -> None:
        """Return when the clock reaches a moment, or when `stop` is set."""
        left = (moment - self.now()) / self._speed
        if left > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), left)
