"""``unmet collect``: keep the history of GBFS feeds; ``unmet collect status``: how well that goes."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from unmet._exceptions import InputError
from unmet.cli import _options as flags
from unmet.cli._console import Console
from unmet.cli._tables import counted

if TYPE_CHECKING:
    from unmet.collect import Collected
    from unmet.collect.summary import SystemSummary

__all__ = ["collect_command"]

_STATUS = "status"
_LINES_OF_DAMAGE = 10


def collect_command(
    urls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="<address>",
            help="Addresses of gbfs.json, each with a name if you like: oslo=https://… Or: status FOLDER.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the history.")] = Path("feeds"),
    systems: Annotated[
        Path | None,
        typer.Option(help="File of systems: lines 'name address', or a CSV with System ID and Auto-Discovery URL."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Poll once and end: for cron.")] = False,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="<time>", help="End after this time: 90s, 30min, 2h, 7d.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<header=variable>",
            help="Header to send to the host of the given addresses, its value from an environment variable: "
            "Authorization=FEED_TOKEN.",
        ),
    ] = None,
    contact: Annotated[
        str, typer.Option(help="Mail address or page for publishers to write to; sent with every request.")
    ] = "",
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    r"""Poll GBFS feeds and keep their history, for `unmet run --status`.

    Every feed is polled each minute, or less often if its publisher says so. What changed is kept, with a record of
    every poll. It can be killed at any time: at most the poll under way is lost, and the same command goes on.
    SIGTERM and Ctrl-C end it when the poll under way is written. Needs the extra `collect`.

    `unmet collect status feeds` shows uptime, gaps, staleness, size and damaged files. It ends with 1 if a file
    is damaged.

    For example:

      unmet collect oslo=https://gbfs.urbansharing.com/oslobysykkel.no/gbfs.json \
          --out feeds --contact you@example.com
    """
    from unmet.cli._collecting import collect_until_stopped, parse_headers, parse_systems

    words = list(urls or [])
    if words[:1] == [_STATUS]:
        _print_status([Path(word) for word in words[1:]] or [out], as_json=as_json)
        return
    chosen = parse_systems(words, systems, parse_headers(header or []))
    seconds = None if duration is None else flags.parse_duration(duration, "--for")
    told = Console(stderr=True, quiet=quiet)
    if not once:
        told.print(Text(f"Collecting {counted(len(chosen), 'system')} into {out}. Ctrl-C ends it."), highlight=False)

    def note(sentence: str) -> None:
        told.print(Text(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {sentence}"), highlight=False, soft_wrap=True)

    collected, interrupted = collect_until_stopped(chosen, out, contact=contact, seconds=seconds, once=once, note=note)
    if as_json:
        typer.echo(json.dumps({"out": str(out), "systems": {n: asdict(c) for n, c in collected.items()}}, indent=2))
    else:
        told.print(_sentence(collected), highlight=False)
    if interrupted:
        raise typer.Exit(130)
    if once and all(count.failed == count.polls for count in collected.values()):
        raise typer.Exit(1)


def _sentence(collected: dict[str, Collected]) -> Text:
    polls, failed, changes = (sum(getattr(c, n) for c in collected.values()) for n in ("polls", "failed", "changes"))
    return Text(f"{counted(polls, 'poll')}, {failed:,} failed; {counted(changes, 'row')} written.")


def _print_status(folders: list[Path], *, as_json: bool) -> None:
    from unmet.collect import find_histories
    from unmet.collect.summary import summarise

    found, now = [], time.time()
    for folder in folders:
        histories = find_histories(folder)
        if not histories:
            raise InputError(f"{folder}: no history of a feed is here. `unmet collect URL --out {folder}` makes one.")
        found += [summarise(history, now) for history in histories.values()]
    if as_json:
        typer.echo(json.dumps({"systems": [asdict(summary) for summary in found]}, indent=2))
    else:
        console = Console()
        console.print(_status_table(found, now))
        for summary in found:
            if summary.error:
                failed = "the last poll failed" if summary.polls else "gbfs.json"
                console.print(Text(f"{summary.system}: {failed}: {summary.error}"), soft_wrap=True)
            if summary.unreadable:
                console.print(
                    Text(
                        f"{summary.system}: {summary.unreadable:,} entries of the last document could not be read, or "
                        "repeat the id of another one."
                    ),
                    soft_wrap=True,
                )
            for path in summary.damaged[:_LINES_OF_DAMAGE]:
                console.print(Text(f"{summary.system}: damaged: {path}", style="red"), soft_wrap=True)
    if any(summary.damaged for summary in found):
        raise typer.Exit(1)


def _status_table(summaries: list[SystemSummary], now: float) -> Table:
    table = Table(box=None, padding=(0, 1))
    table.add_column("system", overflow="fold")
    for name in ("uptime", "gaps", "longest", "last poll", "stale", "size", "damaged"):
        table.add_column(name, justify="right", no_wrap=True)
    for s in summaries:
        table.add_row(
            Text(s.system),
            "" if s.uptime is None else f"{s.uptime:.1%}",
            f"{s.gaps:,}",
            _span(s.longest_gap) if s.gaps else "",
            "never" if s.last is None else f"{_span(now - s.last)} ago",
            "" if s.stale is None else _span(s.stale),
            f"{s.size / 1e6:,.1f} MB",
            Text(f"{len(s.damaged):,}", style="bold red" if s.damaged else ""),
        )
    return table


def _span(seconds: float) -> str:
    """A length of time in its largest unit.

    Examples
    --------
    >>> _span(42), _span(600), _span(7200), _span(400_000)
    ('42 s', '10 min', '2.0 h', '4.6 d')
    """
    if seconds < 120:
        return f"{max(seconds, 0.0):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"
