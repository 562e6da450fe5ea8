"""Runs killed at each of their changes to the disk, then read, then run again.

``python killed_run.py CITY FINISHED FOLDER MOMENTS`` with ``faults.c`` preloaded. CITY has the input files, FINISHED is
the run of them that was not killed. MOMENTS is 0 to try every change; otherwise it is the number of moments to try
before the results are published, and of the publishing only renames, writes and the end are tried.

Every run is a process of its own, forked from one that has everything imported and nothing open.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
from pathlib import Path

from small_city import city_settings

from unmet._exceptions import InputError
from unmet.engines import ENGINES
from unmet.execution import serially
from unmet.mobility.features import bins as binfeatures
from unmet.mobility.panel import build as panel
from unmet.pipeline import run, stages
from unmet.report import export_tables

assert all([binfeatures, panel, stages])  # imported before the forks
TABLES = (
    *("panel.parquet", "estimate/draws.npz"),
    *(f"estimate/{name}.parquet" for name in ("demand", "zones", "totals", "system")),
)
FILES = sorted([*TABLES, "estimate/kept.npz", "estimate/run.json", "quality.json", "report.html", "stages.json"])


def in_a_fork(work) -> int:
    """The wait status of a process that does some work."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def numbers(out: Path, tables: Path) -> dict[str, str] | str:
    """What a reader gets from a run, or "refused"."""
    shutil.rmtree(tables, ignore_errors=True)

    def export() -> None:
        answer = tables.with_suffix(".json")
        try:
            paths = export_tables(out, tables, formats=["csv"])
            answer.write_text(json.dumps({path.name: path.read_text(encoding="utf-8") for path in paths}))
        except InputError:
            answer.write_text('"refused"')

    assert in_a_fork(export) == 0, "a reader failed in another way than by a refusal"
    return json.loads(tables.with_suffix(".json").read_text())


class Trials:
    """Kill, read, run again and compare."""

    def __init__(self, city: Path, finished: Path, folder: Path) -> None:
        self.city, self.folder = city, folder
        self.tables = {name: (finished / name).read_bytes() for name in TABLES}
        self.earlier = folder / "earlier"  # results of other settings
        assert in_a_fork(lambda: run(city_settings(city, self.earlier, every="2h"))) == 0
        self.new = numbers(finished, folder / "tables")
        self.old = numbers(self.earlier, folder / "tables")
        assert self.new != self.old
        self.wrong: list[str] = []
        self.readers = {"old": 0, "new": 0, "refused": 0}

    def changes(self, start: Path) -> list[str]:
        """All changes to the disk of a run that begins with a copy of a folder: a verb and a path each."""
        out, log = self.copy(start), self.folder / "log"
        assert in_a_fork(lambda: self.run_armed(out, 0, False, log)) == 0
        return log.read_text().splitlines()

    def copy(self, start: Path) -> Path:
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        return shutil.copytree(start, out)

    def run_armed(self, out: Path, number: int, torn: bool, log: Path | None = None) -> None:
        path = None if log is None else str(log).encode()
        ctypes.CDLL(None).faults_arm(str(out).encode(), number, int(torn), path)
        run(city_settings(self.city, out))

    def kill(self, start: Path, number: int, torn: bool) -> Path:
        out = self.copy(start)
        status = in_a_fork(lambda: self.run_armed(out, number, torn))
        assert os.WIFSIGNALED(status), f"change {number} was not reached"
        assert os.WTERMSIG(status) == signal.SIGKILL
        return out

    def try_at(self, start: Path, number: int, change: str, torn: bool) -> None:
        out = self.kill(start, number, torn)
        moment = f"{'during' if torn else 'before'} change {number} ({change}) from {start.name}"
        self.read(out, moment)
        if in_a_fork(lambda: run(city_settings(self.city, out))) != 0:
            self.wrong.append(f"{moment}: could not be continued")
            return
        self.wrong += [f"{moment}: {name}" for name in TABLES if (out / name).read_bytes() != self.tables[name]]
        left = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
        if left != FILES:
            self.wrong.append(f"{moment}: {sorted(set(left) ^ set(FILES))}")
        if numbers(out, self.folder / "tables") != self.new:
            self.wrong.append(f"{moment}: other numbers after the second run")

    def read(self, out: Path, moment: str) -> None:
        found = numbers(out, self.folder / "tables")
        name = {"refused": "refused"}.get(str(found)) or ("old" if found == self.old else "new")
        self.readers[name] += 1
        if name == "new" and found != self.new:
            self.wrong.append(f"{moment}: a reader got numbers of no run")
        page = out / "report.html"
        if not page.read_text(encoding="utf-8").rstrip().endswith("</html>"):
            self.wrong.append(f"{moment}: half a page")


def main() -> None:
    city, finished, folder = map(Path, sys.argv[1:4])
    moments = int(sys.argv[4])
    ENGINES["processes"] = serially
    trials = Trials(city, finished, folder)
    made = trials.changes(trials.earlier)
    # Killed here, all new results are complete and none is published. What is left to do takes no time.
    publishing = made.index("rename /panel.parquet") + 1
    ready = trials.kill(trials.earlier, publishing, False).rename(folder / "ready")
    published = trials.changes(ready)
    complete = max(i for i, change in enumerate(published, 1) if change.startswith("rename")) + 1
    for number, change in enumerate(published, 1):
        if not moments or number == complete or change.startswith(("rename", "write")):
            trials.try_at(ready, number, change, torn=change.startswith("write"))
    for number in range(1, publishing, publishing // moments if moments else 1):
        trials.try_at(trials.earlier, number, made[number - 1], torn=False)
        if made[number - 1].startswith("write"):
            trials.try_at(trials.earlier, number, made[number - 1], torn=True)
    print(json.dumps({"wrong": trials.wrong, "readers": trials.readers, "changes": len(made)}))


if __name__ == "__main__":
    main()
