"""Run a reader on a file in a process of its own, and judge how it ended."""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MEMORY", "Outcome", "run_case"]

MEMORY = 200_000_000
"""Memory limit that the readers are given, in bytes."""
_SECONDS = 20  # of the processor: other work on the machine does not count
_WAITING = 240  # seconds on the clock until a process that waits for something is ended
_MORE_BYTES = 500_000_000  # Python, its packages, and what DuckDB does not count
_GOOD = (0, 1, 2)


@dataclass(frozen=True)
class Outcome:
    """How a case ended: exit code (minus the signal if killed), CPU seconds, peak memory in bytes, and output."""

    code: int
    seconds: float
    memory: int
    output: str

    @property
    def fault(self) -> str | None:
        """What broke the promise. None if nothing did."""
        if self.code == -signal.SIGALRM:
            return f"waited for more than {_WAITING} s"
        if self.code == -signal.SIGXCPU:
            return f"took more than {_SECONDS} s"
        if self.code not in _GOOD:
            return f"ended with {self.code}"
        if self.memory > MEMORY + _MORE_BYTES:
            return f"took {self.memory / 1e6:.0f} MB"
        return None


def run_case(read: Callable[[Path], object], path: Path, folder: Path) -> Outcome:
    """Read a file in a forked process, which may take 20 seconds of the processor.

    Parameters
    ----------
    read : callable
        Reads the file. `UnmetError` is a refusal (2); `SystemExit` gives the code; any other error is a fault (70).
    path : Path
        The file.
    folder : Path
        Folder for everything that the process writes.
    """
    log = folder / "output.txt"
    child = os.fork()
    if child == 0:
        os._exit(_in_child(read, path, folder, log))
    _, status, usage = os.wait4(child, 0)
    seconds = usage.ru_utime + usage.ru_stime
    output = log.read_text(errors="replace")
    return Outcome(os.waitstatus_to_exitcode(status), seconds, usage.ru_maxrss * 1024, output)


def _in_child(read: Callable[[Path], object], path: Path, folder: Path, log: Path) -> int:
    from unmet._exceptions import UnmetError

    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False, errors="backslashreplace")
    os.chdir(folder)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS + 5))
    for number in (signal.SIGALRM, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    signal.alarm(_WAITING)
    code = 0
    try:
        read(path)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except UnmetError as error:
        code = 2
        print(error)
    except BaseException:
        code = 70
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return code
