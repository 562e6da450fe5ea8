"""What every experiment is asked for, and the steps that all of them take."""

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
from unmet.experiments._figures import require_matplotlib
from unmet.experiments._runner import Cell, Progress, Result, run_cells
from unmet.experiments._tables import Table
from unmet.experiments._terminal import print_table

__all__ = ["PROTOCOL", "Level", "Run", "compute_all", "finish"]

Level = Literal["quick", "default", "full"]

PROTOCOL = 1
"""Raised when an experiment changes what it computes, so that results of before are not taken for those of after."""


@dataclass(frozen=True)
class Run:
    """How an experiment is to be run.

    Attributes
    ----------
    out : Path
        Folder of the results; finished cells are kept in its folder ``cells``.
    level : {"quick", "default", "full"}
        A minute or two; under an hour on two cores; the paper's own protocol.
    seed : int
        Makes everything random reproducible, whatever the number of processes.
    jobs : int
        Processes; −1 for one per core.
    warm_start : bool
        Start each fold's hyper-parameters at the fit of the whole series (experiments with folds only).
    data : Path or None
        A user's own CSV instead of the data folder's.
    console, results : Console, optional
        Where notes go, and where the tables are printed; standard error and standard output unless given.
    progress : callable, optional
        Opens what is told of the cells as they are finished: a context that gives ``report(done, cells, note)``.
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

    def say(self, text: str) -> None:
        """Tell the user."""
        (self.console or Console(stderr=True)).print(text, highlight=False, markup=False)


def compute_all(
    run: Run,
    experiment: str,
    settings: Iterable[Mapping[str, Any]],
    compute: Callable[[Cell], Result],
    **depends_on: Any,
) -> list[tuple[Mapping[str, Any], Result]]:
    """Settings of all cells beside their results; what is on disk already is kept."""
    require_matplotlib()
    shared = {"version": __version__, "protocol": PROTOCOL, **depends_on}
    cells = [Cell(experiment, s, shared) for s in settings]
    # Closed before anything else is printed: a bar and a table do not share a terminal.
    with run.progress() if run.progress else nullcontext() as progress:
        results = run_cells(cells, compute, run.out / "cells", jobs=run.jobs, progress=progress)
    return [(cell.settings, result) for cell, result in zip(cells, results, strict=True)]


def finish(run: Run, experiment: str, data: str, tables: Sequence[Table], results: Sequence[Result]) -> None:
    """Write what a reader opens first, print the tables, and say where everything is.

    Parameters
    ----------
    run : Run
        How it was run.
    experiment, data : str
        What was computed, and of which data.
    tables : sequence of Table
        In the order in which they are to be read.
    results : sequence of Result
        Of all cells: those fits that did not go well are counted and told.
    """
    costs = pd.DataFrame([r["cost"] for r in results], columns=["fits", "unconverged", "jittered"])
    fits = int(costs.fits.sum())
    remarks = [
        f"{int(count.sum())} of {fits} fits {what}; they are counted in."
        for count, what in (
            (costs.unconverged, "ended before they had converged"),
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
