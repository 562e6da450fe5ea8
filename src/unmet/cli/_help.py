"""How help is shown: text that flows, examples as they are written, and flags without a type."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["Command", "Group", "add_command", "flowing"]


def flowing(text: str | None) -> str:
    """Paragraphs without their line breaks, which the terminal sets; indented ones are examples and stay.

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
            param.metavar = ""  # typer would call it <bool>, as if it took a value
    return params


class Command(TyperCommand):
    """A command whose flags are shown as flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """As typer's, flags without a type."""
        return _without_types(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands whose flags are shown as flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """As typer's, flags without a type."""
        return _without_types(super().get_params(ctx))


def add_command(app: typer.Typer, name: str, command: Callable[..., None], panel: str) -> None:
    """Add a command to a panel of the help."""
    app.command(name, cls=Command, help=flowing(command.__doc__), rich_help_panel=panel)(command)
