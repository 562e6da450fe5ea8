"""Exit codes and messages for commands that fail, or succeed in part."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from contextlib import suppress
from functools import partial

import typer
from rich.text import Text

from unmet.cli._console import Console

__all__ = ["end_output", "end_with_failures", "print_error"]


def end_with_failures(what: str, where: str) -> None:
    """Exit with code 1 after one line on standard error, also with ``--quiet``.

    Parameters
    ----------
    what : str
        How many zones or fits failed.
    where : str
        The file that lists the reasons.
    """
    line = f"{what}. Reasons: {where} (exit code 1)"
    Console(stderr=True).print(Text(line, style="bold red"), soft_wrap=True)
    raise typer.Exit(1)


def print_error(code: int, error: Exception, message: str, *, as_json: bool) -> None:
    """Print an error as one paragraph on standard error and, with ``--json``, as JSON on standard output."""
    console = Console(stderr=True)
    # Lines end between words only: a path that is broken in two cannot be copied or searched for.
    wrap = partial(textwrap.fill, width=console.width, break_long_words=False, break_on_hyphens=False)
    lines = "\n".join(map(wrap, f"Error: {message}".splitlines()))
    # As Text: a message may name a zone or a file, whose brackets must not be read as markup.
    console.print(Text.assemble((lines[:6], "bold red"), lines[6:]), soft_wrap=True)
    if as_json:
        typer.echo(
            json.dumps({"error": {"exit_code": code, "kind": type(error).__name__, "message": message}}, indent=2)
        )


def end_output() -> OSError | None:
    """Write what is left of standard output, and return the error if that fails.

    What cannot be written is dropped. Python would try again at its end, print the error as ignored and exit with 120.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None
