"""The command line: one thin command per stage, one file per command."""

from __future__ import annotations

import sys
import tempfile
import traceback
from contextlib import suppress
from itertools import pairwise
from typing import Annotated

import typer

from unmet import __version__
from unmet._exceptions import InputError, UnmetError
from unmet._signals import stop_on_signals
from unmet._storage.writing import system_reason
from unmet.cli._ending import end_output, print_error
from unmet.cli._help import Group, add_command
from unmet.cli._progress import was_stopped
from unmet.cli.backtest import backtest_command
from unmet.cli.collect import collect_command
from unmet.cli.demo import demo_command
from unmet.cli.estimate import estimate_command
from unmet.cli.export import export_command
from unmet.cli.fleet import fleet_command
from unmet.cli.panel import panel_command
from unmet.cli.report import report_command
from unmet.cli.reproduce import reproduce_app
from unmet.cli.run import init_command, run_command
from unmet.cli.simulate import simulate_command
from unmet.cli.targets import targets_command

__all__ = ["app", "main"]

_DEBUG = "--debug"
_UNEXPECTED = 70  # EX_SOFTWARE of sysexits.h: a bug in the program, not an error in its input
_INTERRUPTED = 130

app = typer.Typer(
    name="unmet",
    cls=Group,
    help="Estimate the demand that supply could not serve. From trips and station status, unmet estimates how many "
    "trips were lost, where and when, with intervals.",
    epilog="Exit codes: 0 success; 1 some zones or fits failed, the other results are written; 2 invalid input, "
    "nothing was changed; 70 a bug in unmet; 130 interrupted; 143 ended by SIGTERM.",
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
        bool, typer.Option(_DEBUG, help="Show tracebacks of errors; may also follow the command.")
    ] = False,
) -> None:
    """Hold the options of `unmet` itself; with a callback, `unmet COMMAND` works even for a single command."""


_START = "Start here"
_STAGES = "Single stages"
_TRUST = "Checks and experiments"
add_command(app, "demo", demo_command, _START)
add_command(app, "init", init_command, _START)
add_command(app, "run", run_command, _START)
add_command(app, "fleet", fleet_command, _START)
add_command(app, "collect", collect_command, _START)
add_command(app, "panel", panel_command, _STAGES)
add_command(app, "estimate", estimate_command, _STAGES)
add_command(app, "report", report_command, _STAGES)
add_command(app, "export", export_command, _STAGES)
add_command(app, "targets", targets_command, _STAGES)
add_command(app, "backtest", backtest_command, _TRUST)
add_command(app, "simulate", simulate_command, _TRUST)
app.add_typer(reproduce_app, name="reproduce", rich_help_panel=_TRUST)


def main(received: list[int] | None = None) -> None:
    """Run the command line. An error prints one paragraph and sets the exit code; ``--debug`` adds the traceback.

    `received` is what `unmet._signals.stop_on_signals` returned, if it was called before.
    """
    arguments = sys.argv[1:]
    debug, as_json = _DEBUG in arguments, "--json" in arguments
    received = stop_on_signals() if received is None else received
    try:
        arguments = [argument for argument in arguments if argument != _DEBUG]
        for argument in arguments:
            argument.encode()  # a name that is not UTF-8 could not be passed on, stored or shown
        if "--out=" in arguments or ("--out", "") in pairwise(arguments):
            # An empty variable of the shell. Results would be spread over the working directory.
            raise InputError("--out: expected a path; got nothing. Name the file or the folder to write to.")
        # With --json, usage errors are reported as JSON like all others; otherwise typer prints them and exits.
        sys.exit(app(args=arguments, prog_name="unmet", standalone_mode=not as_json))
    except SystemExit as ending:
        if ending.code == _INTERRUPTED and received:
            sys.exit(128 + received[0])
        unwritten = end_output()
        if not ending.code and unwritten is not None and not isinstance(unwritten, BrokenPipeError):
            message = f"The output could not be written: {unwritten.strerror}. Files of results are complete."
            print_error(2, unwritten, message, as_json=False)
            sys.exit(2)
        raise
    except (KeyboardInterrupt, Exception) as error:
        if was_stopped(error):
            sys.exit(128 + received[0] if received else _INTERRUPTED)
        if not isinstance(error, Exception):
            raise
        code, message = _explain(error)
        if debug:
            traceback.print_exc()
        with suppress(OSError):  # the disk that the output goes to may be full
            print_error(code, error, message, as_json=as_json)
        end_output()
        sys.exit(code)


def _explain(error: Exception) -> tuple[int, str]:
    """Return the exit code and the message of an error."""
    if callable(usage := getattr(error, "format_message", None)):  # a usage error of typer
        return 2, str(usage())
    if isinstance(error, UnmetError):
        return 2, str(error)
    if isinstance(error, MemoryError):
        return 2, "Not enough memory. Use fewer processes (--jobs) or a machine with more memory."
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return 2, f"{where}{error.strerror}. Earlier results were not changed."
    if isinstance(error, UnicodeEncodeError):
        return 2, (
            f"The name {_shown(str(error.object))} is not UTF-8 text. Rename the file or folder, and run the same "
            "command again. Earlier results were not changed."
        )
    if (message := _explain_duckdb(error)) is not None:
        return 2, f"{message} Then run the same command again. Earlier results were not changed."
    return _UNEXPECTED, (
        f"Unexpected error: {type(error).__name__}: {error}. This is a bug in unmet. Run the same command with --debug "
        "to see the traceback, and please report it."
    )


def _explain_duckdb(error: Exception) -> str | None:
    """Explain an error of memory or disk in DuckDB. Errors of input files have been explained before."""
    duckdb = sys.modules.get("duckdb")  # if it is not loaded, the error is not one of its own
    if duckdb is None or not isinstance(error, duckdb.Error):
        return None
    if isinstance(error, duckdb.OutOfMemoryException):
        return "The memory limit is too small for this step. Raise it (--memory)."
    if isinstance(error, duckdb.IOException | duckdb.TransactionException | duckdb.FatalException):
        temporary = tempfile.gettempdir()
        return (
            f"A file could not be written or read: {system_reason(error)}. Free some space on the disks of the output "
            f"and of {temporary} (temporary files; TMPDIR sets another folder)."
        )
    return None


def _shown(name: str) -> str:
    """Return a name with the bytes that are not UTF-8 as escapes."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")
