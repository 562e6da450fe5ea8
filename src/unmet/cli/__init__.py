"""The command line: one thin command per stage, each in a file of its own."""

from __future__ import annotations

import re
import signal
import sys
import traceback
from types import FrameType
from typing import Annotated

import typer

from unmet import __version__
from unmet._exceptions import UnmetError
from unmet.cli._ending import tell_error
from unmet.cli._help import Group, add_command
from unmet.cli._progress import was_stopped
from unmet.cli.backtest import backtest_command
from unmet.cli.collect import collect_command
from unmet.cli.demo import demo_command
from unmet.cli.estimate import estimate_command
from unmet.cli.export import export_command
from unmet.cli.panel import panel_command
from unmet.cli.report import report_command
from unmet.cli.reproduce import reproduce_app
from unmet.cli.run import init_command, run_command
from unmet.cli.simulate import simulate_command

__all__ = ["app", "main"]

_DEBUG = "--debug"
_UNEXPECTED = 70  # EX_SOFTWARE of sysexits.h: a fault of the program, not of what it was given

app = typer.Typer(
    name="unmet",
    cls=Group,
    help="What was demand, really? Recover the demand that supply could not serve: from trips and station status "
    "to the trips that were lost, where and when, and how sure that is.",
    epilog="Exit codes: 0 done; 1 some zones or fits failed, the others are there; 2 bad input, nothing was changed; "
    "70 a fault of unmet; 130 stopped.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"unmet {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option(_DEBUG, help="Show tracebacks of errors; may also stand behind the command.")
    ] = False,
) -> None:
    """Keep `unmet COMMAND` the form of every call, however many commands there are."""


_START = "Start here"
_STAGES = "Stage by stage"
_TRUST = "Can it be trusted?"
add_command(app, "demo", demo_command, _START)
add_command(app, "init", init_command, _START)
add_command(app, "run", run_command, _START)
add_command(app, "collect", collect_command, _START)
add_command(app, "panel", panel_command, _STAGES)
add_command(app, "estimate", estimate_command, _STAGES)
add_command(app, "report", report_command, _STAGES)
add_command(app, "export", export_command, _STAGES)
add_command(app, "backtest", backtest_command, _TRUST)
add_command(app, "simulate", simulate_command, _TRUST)
app.add_typer(reproduce_app, name="reproduce", rich_help_panel=_TRUST)


def main() -> None:
    """Run the command line; an error becomes one paragraph and an exit code, and a traceback only with ``--debug``."""
    arguments = sys.argv[1:]
    debug, as_json = _DEBUG in arguments, "--json" in arguments
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop_once)
    try:
        arguments = [argument for argument in arguments if argument != _DEBUG]
        # A wrong flag is an error like others where a script waits for JSON; else typer draws it, and ends.
        sys.exit(app(args=arguments, prog_name="unmet", standalone_mode=not as_json))
    except (KeyboardInterrupt, Exception) as error:
        if was_stopped(error):
            sys.exit(130)
        if not isinstance(error, Exception):
            raise
        code, said = _explain(error)
        if debug:
            traceback.print_exc()
        tell_error(code, error, said, as_json=as_json)
        sys.exit(code)


def _stop_once(number: int, frame: FrameType | None) -> None:
    """Ctrl-C, once: an impatient second one would break into the tidying up that the first has begun."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _explain(error: Exception) -> tuple[int, str]:
    """The exit code and the paragraph of an error."""
    if callable(usage := getattr(error, "format_message", None)):  # a wrong flag, in typer's words
        return 2, str(usage())
    if isinstance(error, UnmetError):
        return 2, str(error)
    if isinstance(error, MemoryError):
        return 2, "There is not enough memory for this. Use fewer processes (--jobs), or a machine with more."
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return 2, f"{where}{error.strerror}. Results that were there before are as they were."
    if _is_duckdb(error) and re.search("could not write|no space left|file too large", str(error), re.IGNORECASE):
        return 2, (
            f"A disk is full or cannot be written to: {str(error).splitlines()[0]}. Make room there (or have temporary "
            "files elsewhere: set TMPDIR) and run the same command again. Results that were there are as they were."
        )
    return _UNEXPECTED, (
        f"Something went wrong that unmet did not expect: {type(error).__name__}: {error}. This is a fault of unmet, "
        "not yours. Run the same command with --debug to see where it happened, and please report what that prints."
    )


def _is_duckdb(error: Exception) -> bool:
    duckdb = sys.modules.get("duckdb")  # not loaded for its errors' sake
    return duckdb is not None and isinstance(error, duckdb.Error)
