"""The command line: one thin command per stage, each in a file of its own."""

from __future__ import annotations

import sys

import typer
from rich.console import Console
from rich.text import Text

from unmet._exceptions import UnmetError
from unmet.cli.backtest import backtest_command
from unmet.cli.estimate import estimate_command
from unmet.cli.export import export_command
from unmet.cli.panel import panel_command
from unmet.cli.report import report_command
from unmet.cli.reproduce import reproduce_app
from unmet.cli.simulate import simulate_command

__all__ = ["app", "main"]

app = typer.Typer(
    name="unmet",
    help="What was demand, really? Recover the demand that supply could not serve.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    """Keep `unmet COMMAND` the form of every call, however many commands there are."""


app.command("panel")(panel_command)
app.command("estimate")(estimate_command)
app.command("report")(report_command)
app.command("export")(export_command)
app.command("backtest")(backtest_command)
app.command("simulate")(simulate_command)
app.add_typer(reproduce_app, name="reproduce")


def main() -> None:
    """Run the command line; errors of `unmet` become one paragraph and exit code 2."""
    try:
        app()
    except UnmetError as error:
        # A message may name a zone or a file, whose brackets are no markup.
        Console(stderr=True).print(Text.assemble(("Error: ", "bold red"), str(error)))
        sys.exit(2)
