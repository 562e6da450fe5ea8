"""Stages of a run: reused if nothing they depend on has changed, and published together.

New results are written to the folder ``unfinished`` inside the run's folder. They replace the earlier ones when all are
complete, so that the results in a folder always belong together. An interrupted run continues from ``unfinished``.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import unmet
from unmet._exceptions import InputError
from unmet._storage.folders import describe_change, hold_folder, remove_if_empty
from unmet._storage.ledger import LEDGER_NAME, Seen, StageRecord, read_ledger, see_all, seen, write_ledger
from unmet._storage.writing import check_places, move_files, writing
from unmet.pipeline.events import FIRST_TIME, Event, Progress, Stage

__all__ = ["Work", "working_in"]


@contextmanager
def working_in(out: Path, tell: Progress) -> Iterator[Work]:
    """Create and lock the folder of a run; remove folders that stay empty."""
    aside = out / "unfinished"
    for inside in (aside, out / "estimate", out / "estimate" / "returns"):
        if inside.is_symlink():
            raise InputError(f"{inside}: is a link, and results would be written outside of {out}. Remove it.")
    with hold_folder(out):
        try:
            with writing(out):
                aside.mkdir(exist_ok=True)
            yield Work(out, aside, tell)
        finally:
            remove_if_empty(aside)


@dataclass
class Work:
    """State of a run: the stages finished so far.

    Attributes
    ----------
    out, aside : pathlib.Path
        The folder of the run, and the folder of unfinished results inside it.
    tell : callable
        Receives progress events; see `unmet.pipeline.events.Progress`.
    stages : list of Stage
        Results of the finished stages.
    once : set of str
        Stages that must not be reused, because part of their work failed.
    """

    out: Path
    aside: Path
    tell: Progress
    stages: list[Stage] = field(default_factory=list)
    once: set[str] = field(default_factory=set)
    _records: dict[str, StageRecord] = field(default_factory=dict)
    _homes: dict[str, Path] = field(default_factory=dict)
    _making: dict[str, Any] | None = None

    def stage(
        self,
        name: str,
        outputs: Sequence[str],
        settings: Mapping[str, Any],
        given: Mapping[str, Sequence[Path]],
        make: Callable[[], None],
        after: Sequence[str] = (),
    ) -> Path:
        """Reuse a stage, or run it.

        Parameters
        ----------
        name : str
            Name of the stage.
        outputs : sequence of str
            Its output files, relative to the folder of the run; `make` writes them below `aside`.
        settings : mapping
            Settings that decide its result.
        given : mapping
            Its input files, by the setting that names them.
        make : callable
            Runs the stage.
        after : sequence of str
            Stages whose outputs it reads.

        Returns
        -------
        pathlib.Path
            The folder that contains the outputs until they are published.
        """
        began = time.monotonic()
        ledgers = [read_ledger(folder) for folder in (self.aside, self.out)]
        known = {path: file for kept in ledgers for record in kept.values() for path, file in record.files.items()}
        looked = {role: see_all(paths, known) for role, paths in given.items()}
        contents = {role: [file.sha256 for file in files.values()] for role, files in looked.items()}
        upstream = {earlier: [f.sha256 for f in self._records[earlier].outputs.values()] for earlier in after}
        everything = {**contents, **upstream, "settings": dict(settings), "unmet": unmet.__version__}
        inputs = json.loads(json.dumps(everything))  # as read back from the ledger
        found = _find(name, inputs, outputs, ledgers, (self.aside, self.out))
        if isinstance(found, str):
            self.tell(Event(name, "begin", found))
            self._making = inputs
            make()
            home, files, why = self.aside, {output: seen(self.aside / output) for output in outputs}, found
        else:
            (home, files), why = found, "its inputs have not changed"
        self._homes[name] = home
        self._records[name] = StageRecord(inputs, {p: f for some in looked.values() for p, f in some.items()}, files)
        if home == self.aside:
            self._write_ledger(self.aside)
        path = self.out / outputs[0].partition("/")[0]
        self.stages.append(
            Stage(name, path, not isinstance(found, str), why, round(time.monotonic() - began, 3)),
        )
        self.tell(Event(name, "end", why, stage_result=self.stages[-1]))
        return home

    def earlier(self, name: str, grown: Sequence[str]) -> Path | None:
        """Give the folder of the published outputs of a stage that runs now, to be continued; None if they do not fit.

        Settings, version and all inputs must be the same, except those of `grown`. Call this while the stage is made.
        """
        record = read_ledger(self.out).get(name)
        now = self._making
        if record is None or now is None or record.damaged(self.out) is not None:
            return None
        same = {key for key in {*record.inputs, *now} if record.inputs.get(key) == now.get(key)}
        return self.out if {*record.inputs, *now} - same <= {*grown} else None

    def content(self, name: str, output: str) -> str:
        """Give the SHA-256 of an output of a stage."""
        return self._records[name].outputs[output].sha256

    def publish(self) -> None:
        """Move all new results into place, and write the ledger last.

        Until then, ``stages.json`` does not have the hash of the new ``run.json``, and that of the old one does not
        have the hashes of new tables and of a new panel: readers of the run refuse a mixture of the two.
        """
        outputs = [output for record in self._records.values() for output in record.outputs]
        check_places(self.out, (*outputs, LEDGER_NAME))  # of all stages, before the first move
        with writing(self.out):
            for name, home in self._homes.items():
                if home == self.aside:
                    move_files(self.aside, self.out, self._records[name].outputs)
        self._write_ledger(self.out)
        if not self.once:
            shutil.rmtree(self.aside, ignore_errors=True)

    def _write_ledger(self, folder: Path) -> None:
        known = {**read_ledger(folder), **self._records}
        with writing(self.out):
            kept = {name: record for name, record in known.items() if name not in self.once}
            write_ledger(folder, kept, scratch=self.aside)


def _find(
    name: str,
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    ledgers: Sequence[Mapping[str, StageRecord]],
    folders: Sequence[Path],
) -> tuple[Path, dict[str, Seen]] | str:
    """Return the folder and files of a stage with these inputs, or the reason why there is none.

    Files recorded in one folder may be in the other one, if a run was killed while it moved its results.
    """
    why = FIRST_TIME
    for kept in ledgers:
        if (record := kept.get(name)) is None:
            continue
        if record.inputs != inputs:
            why = describe_change(record.inputs, inputs)
            continue
        if {*record.outputs} != {*outputs}:  # its names decide which files are moved
            why = "the record of its files was changed"
            continue
        damaged = [record.damaged(folder) for folder in folders]
        for folder, problem in zip(folders, damaged, strict=True):
            if problem is None:
                return folder, record.outputs
        why = f"{damaged[-1]} was changed or removed"
    return why
