"""A run of the toy model as a process of its own, to be killed: ``python toy_run.py PANEL OUT OPTIONS``."""

from __future__ import annotations

import json
import os
import signal
import sys

from toy_model import ToyModel, estimate_toy

from unmet import execution as executors
from unmet.engines import find_executor
from unmet.mobility.runs import run_estimates


def kill_before_rename(number: int) -> None:
    """Die at the moment when the n-th file or folder is about to take its place."""
    rename = os.replace
    calls = 0

    def replace(source, target):
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)

    os.replace = replace


def kill_after(zones: int):
    """Die when so many zones are done."""

    def progress(done: int, all_zones: int, note: str) -> None:
        if done >= zones:
            os.kill(os.getpid(), signal.SIGKILL)

    return progress


def main() -> int:
    panel, out, text = sys.argv[1:]
    options = json.loads(text)
    if "kill_before_rename" in options:
        kill_before_rename(options.pop("kill_before_rename"))
    model = ToyModel(**options.pop("model", {}))
    name = options.pop("executor")
    executor = find_executor(name) if "://" in name else getattr(executors, name)
    if "kill_after" in options:
        options["progress"] = kill_after(options.pop("kill_after"))
    result = run_estimates(panel, model, out, estimate=estimate_toy, executor=executor, **options)
    print(json.dumps({"failures": result.failures, "notes": result.info["notes"], "zones": result.info["zones"]}))
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())
