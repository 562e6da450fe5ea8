"""Parallel computation of cells. Each finished cell is stored at once and never computed twice.

A *cell* is a part of an experiment that can be computed on its own: one model on one data set. Its result goes to a
file named after the cell and a digest of everything that the result depends on. A run that was stopped finds these
files again; a run with another seed, other data or another version does not.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmet._exceptions import InputError, UnmetError
from unmet._storage.writing import write_text
from unmet.execution import (
    Executor,
    WorkerDied,
    count_workers,
    describe_executor,
    in_processes,
    serially,
    work_through,
)

__all__ = ["Cell", "Progress", "Result", "generator", "run_cells"]

Result = dict[str, Any]
"""JSON-able result of a cell: scores or predictions, and under ``cost`` the cost of its fits."""

Progress = Callable[[int, int, str], None]
"""Called as ``progress(done, cells, note)``. The note is usually empty."""


@dataclass(frozen=True)
class Cell:
    """A part of an experiment that can be computed on its own.

    Attributes
    ----------
    experiment : str
        Name of the experiment.
    settings : mapping
        JSON-able values that identify the cell: zone, model, gamma, c, repetition, …
    depends_on : mapping
        Values common to all cells of the run that results depend on: seed, warm start, a digest of the data.
    """

    experiment: str
    settings: Mapping[str, Any]
    depends_on: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Readable name, safe as part of a file name."""
        words = "_".join(f"{k}={v}" for k, v in self.settings.items())
        return re.sub(r"[^A-Za-z0-9=._-]+", "-", words)[:120]

    @property
    def file_name(self) -> str:
        """Readable file name with a digest of everything that the result depends on."""
        identity = json.dumps([self.experiment, dict(self.settings), dict(self.depends_on)], sort_keys=True)
        digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
        return f"{self.name}.{digest}.json"


def generator(*identity: Any) -> np.random.Generator:
    """Return a random generator seeded by its purpose. It does not depend on earlier draws or on the process.

    Parameters
    ----------
    identity
        JSON-able values that identify the purpose.

    Examples
    --------
    >>> generator(0, "taxi", 0.2, 1).random() == generator(0, "taxi", 0.2, 1).random()
    True
    """
    digest = hashlib.sha256(json.dumps(identity).encode()).digest()
    return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))


def run_cells(
    cells: Sequence[Cell],
    compute: Callable[[Cell], Result],
    folder: Path,
    *,
    jobs: int = -1,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> list[Result]:
    """Return the results of all cells, in their order. Results in `folder` are read, the others are computed.

    Parameters
    ----------
    cells : sequence of Cell
        Cells to compute.
    compute : callable
        Computes the result of a cell from the cell alone. It is called in other processes and must be importable.
    folder : Path
        Folder of the results, one file per cell.
    jobs : int
        Number of workers; −1 for one per processor.
    executor : callable, optional
        Where the work is done: see `unmet.execution`. By default in processes, or in this one if one worker is enough.
    progress : callable, optional
        Called as cells are finished.

    Returns
    -------
    list of Result
    """
    if executor is not None:
        describe_executor(executor)  # raises if its workers are unfit
    workers = count_workers(None if jobs == -1 else jobs, executor)
    _make_folder(folder)
    paths = [folder / cell.file_name for cell in cells]
    kept = [_read(path) for path in paths]
    missing = [i for i, result in enumerate(kept) if result is None]
    say = progress or (lambda done, all_cells, note: None)
    done = len(cells) - len(missing)
    say(done, len(cells), f"{done} of {len(cells)} cells were done before and are kept." if done else "")

    def keep(i: int, result: Result) -> None:
        # Written by this process, not by the worker: a worker that dies cannot leave a partial file.
        nonlocal done
        write_text(paths[i], json.dumps(result))
        done += 1
        say(done, len(cells), "")

    def lost(keys: tuple[int, ...], error: Exception) -> None:
        note = f"The process that worked on {cells[keys[0]].name} was lost; the cell is tried again by itself."
        say(done, len(cells), note)

    workers = min(workers, len(missing))
    where = executor or (in_processes if workers > 1 else serially)
    work = work_through(compute, missing, lambda keys: cells[keys[0]], executor=where, jobs=workers, lost=lost)
    with closing(work):
        for (i,), outcome in work:
            if isinstance(outcome, Exception):
                raise _explained(outcome, cells[i])
            keep(i, outcome)
    # New results are read from disk as well, so that a resumed run equals an uninterrupted one.
    return [result if result is not None else _finished(path) for path, result in zip(paths, kept, strict=True)]


def _explained(error: Exception, cell: Cell) -> Exception:
    if not isinstance(error, WorkerDied):
        return error
    return UnmetError(
        f"The process that worked on {cell.name} died twice, the second time with nothing else running. The most "
        "likely cause is too little memory. Finished cells are kept: the same command goes on from there."
    )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"The folder {folder} for results cannot be created: {error.strerror}.") from None


def _read(path: Path) -> Result | None:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path} cannot be read as a result ({error}). Delete it to compute that cell again."
        ) from None
    if not isinstance(result, dict):
        raise InputError(f"{path} does not contain a result. Delete it to compute that cell again.")
    return result


def _finished(path: Path) -> Result:
    result = _read(path)
    assert result is not None, path
    return result
