"""Runs killed before their first, third, fifth … rename, each continued: ``python killed_run.py CITY QUIET FOLDER``.

Every run is a process of its own, forked from one that has everything imported and nothing open. Half of them begin in
a folder that has results of other settings: those must stay as they are until the new ones begin to take their places.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from functools import partialmethod
from pathlib import Path

from small_city import city_settings
from toy_run import kill_before_rename

import unmet.report
from unmet.execution import serially
from unmet.mobility.demand import LatentDemand
from unmet.mobility.features import bins as binfeatures
from unmet.mobility.panel import build as panel
from unmet.pipeline import run, stages

assert all([unmet.report, binfeatures, panel, stages])  # imported before the forks
TABLES = ("panel.parquet", *(f"estimate/{name}.parquet" for name in ("demand", "zones", "totals", "system")))


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


def main() -> None:
    city, quiet, folder = map(Path, sys.argv[1:])
    LatentDemand.fit = partialmethod(LatentDemand.fit, executor=serially)
    expected = {name: (quiet / name).read_bytes() for name in TABLES}
    wrong, finished_before = [], []
    moment = -1
    while True:
        moment += 2
        out = folder / f"out{moment}"
        before = {}
        if moment % 4 == 1:
            shutil.copytree(quiet, out)
            (out / "report.html").write_text("earlier")
            before = {name: (out / name).read_bytes() for name in (*TABLES, "report.html")}
            # Results of other settings, as far as anyone can tell.
            (out / "stages.json").unlink()

        def killed(moment=moment, out=out) -> None:
            kill_before_rename(moment)
            run(city_settings(city, out))

        status = in_a_fork(killed)
        if status == 0:
            break
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            wrong.append((moment, "did not die as it should"))
        publishing = (out / "report.html").exists() and not (out / "unfinished" / "panel.parquet").exists()
        if before and not publishing:
            changed = [name for name, content in before.items() if (out / name).read_bytes() != content]
            wrong += [(moment, f"{name} changed too early") for name in changed]

        def again(out=out) -> None:
            outcome = run(city_settings(city, out))
            (out / "again.json").write_text(json.dumps(outcome.to_dict()["zones"]["finished_before"]))

        if in_a_fork(again) != 0:
            wrong.append((moment, "could not go on"))
            continue
        finished_before.append(json.loads((out / "again.json").read_text()))
        wrong += [(moment, name) for name in TABLES if (out / name).read_bytes() != expected[name]]
        if (out / "unfinished").exists() or (out / "report.html").read_text() == "earlier":
            wrong.append((moment, "did not finish"))
    print(json.dumps({"last": moment, "wrong": wrong, "finished_before": finished_before}))


if __name__ == "__main__":
    main()
