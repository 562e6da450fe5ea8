"""Refuse a request for more memory than there is, before it is made."""

from __future__ import annotations

import os
from pathlib import Path

from unmet._exceptions import InputError

__all__ = ["available_memory", "check_memory", "size_in_words"]

# Limit and use of a container, in versions 2 and 1 of control groups.
_CONTAINERS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def available_memory() -> int | None:
    """Give the bytes that this process can still get: of the machine and of its container. None if not known."""
    limits = [_of_machine(), *(_of_container(Path(place), *names) for place, *names in _CONTAINERS)]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def check_memory(numbers: int, what: str, instead: str) -> None:
    """Raise an `InputError` if so many numbers in double precision need more memory than is available.

    Parameters
    ----------
    numbers : int
        How many.
    what : str
        What needs them, for the message.
    instead : str
        A sentence that says what to do instead.

    Examples
    --------
    >>> check_memory(1000, "A small matrix", "")
    >>> check_memory(10**15, "A covariance matrix of 31,622,777 points", "Use fewer points.")
    Traceback (most recent call last):
    unmet._exceptions.InputError: A covariance matrix of 31,622,777 points takes about 8,000,000 GB of memory; ...
    """
    available, needed = available_memory(), 8 * numbers
    if available is not None and needed > available:
        raise InputError(
            f"{what} takes about {size_in_words(needed)} of memory; {size_in_words(available)} are available. "
            f"{instead}".strip()
        )


def size_in_words(size: int) -> str:
    """Write a number of bytes in MB or GB.

    Examples
    --------
    >>> size_in_words(3_200_000), size_in_words(7_500_000_000), size_in_words(10**15)
    ('3.2 MB', '7.5 GB', '1,000,000 GB')
    """
    number, unit = (size / 1e6, "MB") if size < 1e9 else (size / 1e9, "GB")
    return f"{number:,.1f} {unit}" if number < 100 else f"{number:,.0f} {unit}"


def _of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        pass
    try:  # macOS: all of it, which still refuses what can never be had
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _of_container(place: Path, limit: str, used: str) -> int | None:
    try:
        lines = (place / "memory.stat").read_text(encoding="ascii").splitlines()
        # Cached files count as used, and are given up when memory is needed.
        cached = sum(int(line.split()[1]) for line in lines if line.startswith(("active_file ", "inactive_file ")))
        free = int((place / limit).read_text(encoding="ascii")) - int((place / used).read_text(encoding="ascii"))
        return max(free + cached, 0)
    except (OSError, ValueError, IndexError):  # "max": no limit
        return None
