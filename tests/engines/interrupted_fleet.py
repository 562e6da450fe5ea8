"""`unmet fleet` on Spark, interrupted as by Ctrl-C while the zones of a city are under way.

The signal goes to all processes of the command. The thread of that city goes on when the command has stopped the
session, as a thread does that was busy with something else.
"""

from __future__ import annotations

import os
import signal
import sys
from threading import Event

from unmet.cli import main
from unmet.engines.spark import OnSpark
from unmet.pipeline import cities


def interrupt_at(name: str) -> None:
    """Interrupt the command when it comes to this city."""
    finish, stop, stopped = cities._finish, OnSpark.stop, Event()

    def finish_interrupted(city, executor, jobs):
        if city.name == name:
            os.killpg(os.getpgrp(), signal.SIGINT)
            assert stopped.wait(100)
        return finish(city, executor, jobs)

    def stop_and_report(executor):
        stop(executor)
        stopped.set()

    cities._finish, OnSpark.stop = finish_interrupted, stop_and_report


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where tests run in the background
    interrupt_at(sys.argv.pop(1))
    main()
