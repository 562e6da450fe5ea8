"""Settings and common steps of all experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from rich.console import Console
from rich.text import Text

from unmet import __version__
from unmet._storage.writing import write_text
from unmet.execution import Executor
from unmet.experiments._figures import require_matplotlib
from unmet.experiments._runner import Cell, Progress, Result, run_cells
from unmet.experiments._tables import Table
from unmet.experiments._terminal import print_table

__all__ = ["PROTOCOL", "Level", "Run", "compute_all", "finish"]

Level = Literal["quick", "default", "full"]

PROTOCOL = 4
"""Version of the computation. Increase it when results change, so that cells of an earlier version are not reused."""


@dataclass(frozen=True)
class Run:
    """Settings of the run of an experiment.

    Attributes
    ----------
    out : Path
        Folder of the results. Finished cells are stored in its folder ``cells``.
    level : {"quick", "default", "full"}
        "quick" takes a minute or two, "default" less than an hour on two cores. "full" is the paper's protocol.
    seed : int
        Seed of all random numbers. Results do not depend on the number of processes.
    jobs : int
        Number of processes; −1 for one per core.
    warm_start : bool
        Whether to start each fold's hyper-parameters at the fit of the whole series (experiments with folds only).
    data : Path or None
        A user's own CSV instead of the file in the data folder.
    console, results : Console, optional
        Consoles for notes and for tables; standard error and standard output by default.
    progress : callable, optional
        Returns a context manager that gives ``report(done, cells, note)``, which is called as cells are finished.
    executor : callable, optional
        Where the work is done: see `unmet.execution`; in processes by default.
    """

    out: Path
    level: Level = "default"
    seed: int = 0
    jobs: int = -1
    warm_start: bool = False
    data: Path | None = None
    console: Console | None = None
    results: Console | None = None
    progress: Callable[[], AbstractContextManager[Progress]] | None = None
    executor: Executor | None = None

    def say(self, text: str) -> None:
        """Print a note for the user."""
        (self.console or Console(stderr=True)).print(text, highlight=False, markup=False)


def compute_all(
    run: Run,
    experiment: str,
    settings: Iterable[Mapping[str, Any]],
    compute: Callable[[Cell], Result],
    **depends_on: Any,
) -> list[tuple[Mapping[str, Any], Result]]:
    """Return the settings and results of all cells. Results that are already on disk are reused.

    Parameters
    ----------
    run : Run
        Settings of the run.
    experiment : str
        Name of the experiment.
    settings : iterable of mappings
        Settings of each cell.
    compute : callable
        Computes the result of a cell.
    depends_on
        Values common to all cells that results depend on.

    Returns
    -------
    list of (settings, result)
    """
    require_matplotlib()
    shared = {"version": __version__, "protocol": PROTOCOL, **depends_on}
    cells = [Cell(experiment, s, shared) for s in settings]
    # Close the progress bar before printing tables: both would use the same lines of the terminal.
    with run.progress() if run.progress else nullcontext() as progress:
        results = run_cells(cells, compute, run.out / "cells", jobs=run.jobs, executor=run.executor, progress=progress)
    return [(cell.settings, result) for cell, result in zip(cells, results, strict=True)]


def finish(run: Run, experiment: str, data: str, tables: Sequence[Table], results: Sequence[Result]) -> None:
    """Write the README of the results, print the tables, and print the location of all files.

    Parameters
    ----------
    run : Run
        Settings of the run.
    experiment, data : str
        Name of the experiment, and description of its data.
    tables : sequence of Table
        Tables, in reading order.
    results : sequence of Result
        Results of all cells. Fits that did not converge or needed jitter are counted and reported.
    """
    costs = pd.DataFrame([r["cost"] for r in results], columns=["fits", "unconverged", "jittered"])
    fits = int(costs.fits.sum())
    remarks = [
        f"{int(count.sum())} of {fits} fits {what}; they are included."
        for count, what in (
            (costs.unconverged, "did not converge"),
            (costs.jittered, "needed jitter"),
        )
        if count.sum()
    ]
    about = f"Data: {data}. Run: {run.level}, seed {run.seed}{', warm start' if run.warm_start else ''}."
    text = f"# {experiment.capitalize()}\n\n{about}\n\n" + "\n".join(table.markdown for table in tables)
    write_text(run.out / "README.md", text + "".join(f"\n{remark}\n" for remark in remarks))
    results_console = run.results or Console()
    for table in tables:
        print_table(results_console, table)
    for line in ("", *remarks, about, f"Tables, figures and results.csv are in {run.out}"):
        results_console.print(Text(line))
