"""Run again and again, so that a report stays current: ``unmet run --watch``."""

from __future__ import annotations

import time
from collections.abc import Callable

from unmet._exceptions import UnmetError

__all__ = ["keep_current", "next_round"]


def keep_current(
    run_once: Callable[[], object],
    seconds: float,
    failed: Callable[[Exception], None],
    *,
    now: Callable[[], float] = time.time,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Call a function now and then at a fixed interval, until it is interrupted.

    Rounds follow a fixed clock: a round that takes longer than the interval skips those it missed. An error of the
    first round is raised. An error of a later round is reported, and the next round tries again: a file may have been
    in the middle of a copy, and the earlier results are still in place.

    Parameters
    ----------
    run_once : callable
        One round.
    seconds : float
        Time from the start of one round to that of the next.
    failed : callable
        Called with the error of a later round.
    now, wait : callable
        The clock, and the function that waits some seconds.

    Examples
    --------
    >>> rounds = []
    >>> def stop_at_three():
    ...     rounds.append(len(rounds))
    ...     if len(rounds) == 3:
    ...         raise KeyboardInterrupt
    >>> try:
    ...     keep_current(stop_at_three, 86_400, failed=print, wait=lambda seconds: None)
    ... except KeyboardInterrupt:
    ...     rounds
    [0, 1, 2]
    """
    began = now()
    run_once()
    while True:
        at = now()  # once: a clock that goes on between two looks would give a negative time
        wait(min(next_round(began, seconds, at) - at, seconds))
        try:
            run_once()
        except (UnmetError, OSError) as error:
            failed(error)


def next_round(began: float, seconds: float, now: float) -> float:
    """Give the next moment of a clock that began at a moment and ticks every so many seconds.

    Examples
    --------
    >>> next_round(began=100.0, seconds=60.0, now=165.0)
    220.0
    """
    return began + seconds * (max(now - began, 0.0) // seconds + 1)
