"""Systems and headers from the command line, and a collector that signals can end."""

from __future__ import annotations

import asyncio
import csv
import os
import re
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.folders import check_regular
from unmet.collect import Clock, Collected, CollectorSettings, System, collect

__all__ = ["collect_until_stopped", "parse_headers", "parse_systems"]

_LARGEST_LIST = 10_000_000  # bytes; the public catalogue has a thirtieth
_NAMED = re.compile(r"([\w.-]+)=(https?://.*)", re.IGNORECASE)


def collect_until_stopped(
    systems: list[System],
    out: Path,
    *,
    contact: str,
    seconds: float | None,
    once: bool,
    note: Callable[[str], None],
) -> tuple[dict[str, Collected], bool]:
    """Collect until the time is over or a signal comes; return the counts, and whether it was Ctrl-C."""

    async def work() -> tuple[dict[str, Collected], bool]:
        stop, clock, received = asyncio.Event(), Clock(), []

        def end(number: int) -> None:
            received.append(number)
            stop.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, end, number)
        until = None if seconds is None else clock.now() + seconds
        settings = CollectorSettings(contact=contact)
        counts = await collect(
            systems, out, settings=settings, clock=clock, until=until, once=once, stop=stop, note=note
        )
        return counts, signal.SIGINT in received

    return asyncio.run(work())


def parse_headers(pairs: Iterable[str]) -> dict[str, str]:
    """Read ``Header=VARIABLE``; values come from the environment, so that no list of processes shows them."""
    headers: dict[str, str] = {}
    for pair in pairs:
        name, equals, variable = pair.partition("=")
        # What stands behind the sign may be the secret itself, by mistake: it is not repeated.
        if not (re.fullmatch(r"[A-Za-z0-9-]+", name) and equals and re.fullmatch(r"[A-Za-z_]\w*", variable)):
            raise InputError(
                "--header: expected a header and the name of an environment variable, as in Authorization=FEED_TOKEN."
            )
        if name.lower() in (known.lower() for known in headers):
            raise InputError(f"--header: {name} is given twice. Give each header once.")
        if variable not in os.environ:
            raise InputError(f"--header {name}: the environment variable {variable} is not set.")
        value = os.environ[variable]
        if not value.isprintable() or not value.isascii():
            raise InputError(f"--header {name}: the value of {variable} has characters that no header may have.")
        headers[name] = value
    return headers


def parse_systems(urls: Iterable[str], file: Path | None, headers: Mapping[str, str]) -> list[System]:
    """Read systems from the command line and from a file.

    Examples
    --------
    >>> [system.name for system in parse_systems(["https://example.com/oslo/gbfs.json", "b=http://x.org/"], None, {})]
    ['example.com-oslo', 'b']
    """
    named = [_named(url) for url in urls] + (_from_file(file) if file is not None else [])
    if not named:
        raise InputError("Nothing to collect: give addresses of gbfs.json, or a file of systems (--systems).")
    systems = [System(name, address, headers) for name, address in named]
    if headers and len({urlsplit(system.address)[:2] for system in systems}) > 1:
        raise InputError("--header: the systems have several hosts, and a secret is for one. Collect them one by one.")
    return systems


def _named(url: str) -> tuple[str, str]:
    if match := _NAMED.fullmatch(url):
        return match[1], match[2]
    try:
        parts = urlsplit(url)
        place = f"{parts.hostname or ''}{parts.path.removesuffix('/').removesuffix('gbfs.json')}"
    except ValueError:
        place = url
    return _as_name(place), url


def _as_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")[:100]


def _from_file(path: Path) -> list[tuple[str, str]]:
    check_regular(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST_LIST + 1)
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: cannot be read as a list of systems ({error}).") from None
    if len(content) > _LARGEST_LIST:
        raise FileFormatError(f"{path}: is larger than {_LARGEST_LIST:,} bytes; this is not a list of systems.")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if lines and "auto-discovery url" in lines[0].lower():
        try:
            rows = [{(k or "").strip().lower(): v or "" for k, v in row.items() if k} for row in csv.DictReader(lines)]
        except csv.Error as error:
            raise FileFormatError(f"{path}: cannot be read as a CSV list of systems ({error}).") from None
        if any("auto-discovery url" not in row for row in rows):
            raise FileFormatError(f"{path}: expected a column 'Auto-Discovery URL', got {lines[0][:200]!r}.")
        pairs = [(row.get("system id", ""), row["auto-discovery url"].strip()) for row in rows]
        return [(_as_name(name) or _named(url)[0], url) for name, url in pairs if url]
    systems = []
    for line in lines:
        words = line.split()
        if len(words) > 2:
            raise FileFormatError(f"{path}: expected lines 'name address', got {line!r}.")
        systems.append((words[0], words[1]) if len(words) == 2 else _named(words[0]))
    return systems
