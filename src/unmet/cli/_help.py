"""Format of the help: paragraphs re-wrapped, examples kept as written, flags and lists shown without a type."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from unmet.cli._console import Console
from unmet.cli._progress import stoppable

__all__ = ["Command", "Group", "add_command", "flowing"]


def flowing(text: str | None) -> str:
    """Join the lines of each paragraph, so that the terminal wraps them; keep indented paragraphs, which are examples.

    Examples
    --------
    >>> print(flowing('''A sentence
    ... on two lines.
    ...
    ...   an example
    ...     as it is'''))
    A sentence on two lines.
    <BLANKLINE>
      an example
        as it is
    """
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(p if p.startswith(" ") else p.replace("\n", " ") for p in paragraphs)


def _without_types(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""  # typer would show <bool>, as if the flag took a value
        if param.param_type_name == "argument" and param.nargs != 1:
            param.display_type_rich = lambda ctx: None  # typer would show <list[str]>, which is Python, not help
    return params


class Command(TyperCommand):
    """A command whose help shows flags without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags without a type."""
        return _without_types(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands whose help shows flags without a type, and which say so when they are interrupted."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; commands that can be continued have a `stoppable` of their own."""
        with stoppable(Console(stderr=True), "Interrupted. Earlier results were not changed."):
            return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags without a type."""
        return _without_types(super().get_params(ctx))


def add_command(app: typer.Typer, name: str, command: Callable[..., None], panel: str) -> None:
    """Add a command to a panel of the help."""
    app.command(name, cls=Command, help=flowing(command.__doc__), rich_help_panel=panel)(command)
