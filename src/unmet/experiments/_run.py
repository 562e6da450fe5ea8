"""What every experiment is asked for, and the steps that all of them take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from rich.console import Console

from unmet import __version__
from unmet.experiments._figures import require_matplotlib
from unmet.experiments._runner import Cell, Result, run_cells, write_text

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
    """

    out: Path
    level: Level = "default"
    seed: int = 0
    jobs: int = -1
    warm_start: bool = False
    data: Path | None = None
    console: Console | None = None

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
    results = run_cells(cells, compute, run.out / "cells", jobs=run.jobs, console=run.console)
    return [(cell.settings, result) for cell, result in zip(cells, results, strict=True)]


def finish(run: Run, experiment: str, tables: Sequence[str], results: Sequence[Result]) -> None:
    """Write what a reader opens first, and say where everything is."""
    costs = pd.DataFrame([r["cost"] for r in results], columns=["fits", "unconverged", "jittered"])
    text = f"# {experiment.capitalize()}\n\n" + "\n".join(tables)
    fits = int(costs.fits.sum())
    for count, what in ((costs.unconverged, "ended before they had converged"), (costs.jittered, "needed jitter")):
        if count.sum():
            text += f"\n{int(count.sum())} of {fits} fits {what}; they are counted in.\n"
    write_text(run.out / "README.md", text)
    run.say(f"\n{text}\nTables, figures and results.csv are in {run.out}")
