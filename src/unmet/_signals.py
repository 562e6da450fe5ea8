"""SIGTERM ends a command as Ctrl-C does. Imports nothing that takes time."""

from __future__ import annotations

import signal
from types import FrameType

__all__ = ["stop_on_signals"]


def stop_on_signals() -> list[int]:
    """Let SIGTERM and Ctrl-C raise KeyboardInterrupt; return a list that gets the number of the signal.

    Later signals are ignored: they would interrupt the clean-up. A signal that the caller ignores stays ignored.
    """
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        for each in usual:
            signal.signal(each, signal.SIG_IGN)
        received.append(number)
        raise KeyboardInterrupt

    defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    usual = [number for number, handler in defaults.items() if signal.getsignal(number) is handler]
    for number in usual:
        signal.signal(number, stop)
    return received
