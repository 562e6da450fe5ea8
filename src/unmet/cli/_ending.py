"""How a command ends: done, done in part, or with an error."""

from __future__ import annotations

import json

import typer
from rich.console import Console
from rich.text import Text

__all__ = ["end_with_failures", "tell_error"]


def end_with_failures(what: str, where: str) -> None:
    """End with exit code 1 and a line that says so, also where little else is printed.

    Parameters
    ----------
    what : str
        How many of what could not be done, and what of the others.
    where : str
        Where the reasons are.
    """
    line = f"{what}. Reasons: {where} (exit code 1)"
    Console(stderr=True).print(Text(line, style="bold red"), soft_wrap=True)
    raise typer.Exit(1)


def tell_error(code: int, error: Exception, said: str, *, as_json: bool) -> None:
    """Say in one paragraph what went wrong; on stdout too, where a script waits for JSON there."""
    # A message may name a zone or a file, whose brackets are no markup.
    Console(stderr=True).print(Text.assemble(("Error: ", "bold red"), said))
    if as_json:
        typer.echo(json.dumps({"error": {"exit_code": code, "kind": type(error).__name__, "message": said}}, indent=2))
