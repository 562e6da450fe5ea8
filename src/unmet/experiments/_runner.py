"""Cells in, results out: in parallel, each finished cell on disk at once, nothing computed twice.

A *cell* is one piece of an experiment that can be computed by itself: one model on one data set. Its result goes to a
file of its own, named after the cell and a digest of everything that the result depends on. A run that was stopped
finds those files again; a run with another seed, other data or another version does not.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from joblib import cpu_count
from threadpoolctl import threadpool_limits

from unmet._exceptions import InputError, UnmetError
from unmet._storage.writing import write_text
from unmet.execution import WorkerDied, in_processes, serially

__all__ = ["Cell", "Progress", "Result", "generator", "run_cells"]

Result = dict[str, Any]
"""What a cell gives, JSON-able: scores or predictions, and under ``cost`` what fitting took."""

Progress = Callable[[int, int, str], None]
"""Called as ``progress(done, cells, note)``; the note is empty most of the time."""


@dataclass(frozen=True)
class Cell:
    """One piece of an experiment.

    Attributes
    ----------
    experiment : str
        Which experiment.
    settings : mapping
        What distinguishes this cell, as JSON-able values: zone, model, gamma, c, repetition, …
    depends_on : mapping
        What all cells of the run share and their results depend on: seed, warm start, a digest of the data.
    """

    experiment: str
    settings: Mapping[str, Any]
    depends_on: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Readable; safe as part of a file name."""
        words = "_".join(f"{k}={v}" for k, v in self.settings.items())
        return re.sub(r"[^A-Za-z0-9=._-]+", "-", words)[:120]

    @property
    def file_name(self) -> str:
        """Readable, and different whenever anything that the result depends on is different."""
        identity = json.dumps([self.experiment, dict(self.settings), dict(self.depends_on)], sort_keys=True)
        digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
        return f"{self.name}.{digest}.json"


_Item = tuple[int, Cell]


def generator(*identity: Any) -> np.random.Generator:
    """A generator seeded by what it is for: the same whatever ran before it, and in whichever process.

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
    progress: Progress | None = None,
) -> list[Result]:
    """Results of all cells, in their order; those already in `folder` are read, the others computed.

    Parameters
    ----------
    cells : sequence of Cell
        What to compute. `compute` is called in other processes and must be importable.
    compute : callable
        From a cell to its result: a function of the cell alone.
    folder : Path
        Where the results are kept, one file per cell.
    jobs : int
        Processes; −1 for one per core.
    progress : callable, optional
        Told how far the work is.
    """
    if jobs == 0 or jobs < -1:
        raise InputError(f"jobs must be a number of processes, or -1 for one per core; got {jobs}")
    _make_folder(folder)
    paths = [folder / cell.file_name for cell in cells]
    kept = [_read(path) for path in paths]
    missing = [i for i, result in enumerate(kept) if result is None]
    say = progress or (lambda done, all_cells, note: None)
    done = len(cells) - len(missing)
    say(done, len(cells), f"{done} of {len(cells)} cells were done before and are kept." if done else "")

    def keep(i: int, result: Result) -> None:
        # By this process, not by the worker: a worker that is ended cannot leave half a file behind.
        nonlocal done
        write_text(paths[i], json.dumps(result))
        done += 1
        say(done, len(cells), "")

    processes = cpu_count() if jobs == -1 else jobs
    _work_off([(i, cells[i]) for i in missing], compute, processes, keep, lambda note: say(done, len(cells), note))
    # Fresh results are read back from disk too: a resumed run cannot differ from an uninterrupted one.
    return [result if result is not None else _finished(path) for path, result in zip(paths, kept, strict=True)]


def _work_off(
    left: list[_Item],
    compute: Callable[[Cell], Result],
    jobs: int,
    keep: Callable[[int, Result], None],
    tell: Callable[[str], None],
) -> None:
    """Compute cells, in processes if more than one; those whose worker was lost once more, one at a time.

    The worker that is lost with one cell may take others with it. Tried one at a time, what dies is the culprit.
    """
    work, processes = partial(_compute_item, compute), min(jobs, len(left))
    for executor, at_once in ((in_processes if processes > 1 else serially, processes), (in_processes, 1)):
        lost: list[_Item] = []
        with closing(executor(work, left, at_once)) as outcomes:
            for item, outcome in outcomes:
                if isinstance(outcome, WorkerDied | MemoryError) and at_once > 1:
                    tell(f"The process that worked on {item[1].name} was lost; the cell is tried again by itself.")
                    lost.append(item)
                elif isinstance(outcome, WorkerDied):
                    raise UnmetError(
                        f"the process that worked on {item[1].name} ended without a word twice, the second time with "
                        "nothing else under way: most likely there is not enough memory. What is finished is kept: "
                        "the same command goes on from there."
                    )
                elif isinstance(outcome, Exception):
                    raise outcome
                else:
                    keep(item[0], outcome)
        if not (left := lost):
            return


def _compute_item(compute: Callable[[Cell], Result], item: _Item) -> Result:
    # One BLAS thread: the processes share the cores, and the last digits depend on the number of threads.
    with threadpool_limits(1):
        return compute(item[1])


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the folder {folder} for results cannot be made: {error.strerror}") from None


def _read(path: Path) -> Result | None:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a result ({error}); delete it to compute that cell again") from None
    if not isinstance(result, dict):
        raise InputError(f"{path} does not hold a result; delete it to compute that cell again")
    return result


def _finished(path: Path) -> Result:
    result = _read(path)
    assert result is not None, path
    return result
