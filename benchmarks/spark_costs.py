"""Costs of the Spark engine beside processes, on a master and two workers of this machine.

Needs Java and ``unmet[spark]``. Prints the processor time of a run of 96 zones in chunks of 8, the share of time in
which 16 slots are busy with items that sleep, and the memory of the driver after 100, 1,000 and 10,000 items, on Spark
and in processes. With ``--items`` only the last is measured.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "mobility" / "runs")]

from pyspark import SparkContext  # noqa: E402
from toy_model import toy_panel  # noqa: E402

from engines.cluster import running_cluster  # noqa: E402
from unmet._storage.parquet import write_parquet  # noqa: E402
from unmet.engines.spark import OnSpark  # noqa: E402
from unmet.execution import Executor, in_processes  # noqa: E402
from unmet.mobility.models.zone_estimate import DemandModel  # noqa: E402
from unmet.mobility.runs import run_estimates  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: list[int]) -> float:
    """Processor time of processes and of their children that have ended."""
    total = 0
    for pid in pids:
        try:
            total += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:
            continue
    return total / TICKS


def family(pid: int) -> list[int]:
    """A process and all of its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def resident_mb(pid: int | str = "self") -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def driver_mb() -> str:
    """Memory of this process and, with a Spark session, live objects of its Java process."""
    context = SparkContext._active_spark_context
    if context is None:
        return f"{resident_mb():.0f} MB"
    context._jvm.System.gc()
    runtime = context._jvm.Runtime.getRuntime()
    return f"{resident_mb():.0f} MB, Java {(runtime.totalMemory() - runtime.freeMemory()) / 1e6:.0f} MB"


def cpu_of_run(panel: Path, out: Path, executor: object) -> tuple[float, float]:
    before, began = cpu_seconds(family(os.getpid())), time.monotonic()
    run_estimates(panel, DemandModel("tobit"), out, executor=executor, jobs=2, chunk=8)
    return cpu_seconds(family(os.getpid())) - before, time.monotonic() - began


def nap(item: int, *, seconds: float) -> int:
    time.sleep(seconds)
    return item


def on_cluster(folder: Path, cores: int, measure: Callable[[OnSpark], None]) -> None:
    """Measure in a process of its own: a process has one Spark session."""
    if os.fork() == 0:
        folder.mkdir()
        with running_cluster(folder, cores) as cluster:
            os.environ.update(cluster.for_drivers)
            spark = OnSpark(cluster.url)
            spark.check()
            list(spark(abs, range(4 * cores), cores))  # starts the Python workers
            measure(spark)
            spark.stop()
        os._exit(0)
    os.wait()


def measure_cpu(spark: OnSpark, panel: Path) -> None:
    for label, executor in (("processes", in_processes), ("spark", spark)):
        cpu, wall = cpu_of_run(panel, panel.parent / label, executor)
        print(f"96 zones, chunks of 8, {label}: {cpu:.1f} s of processor time, {wall:.1f} s", flush=True)


def measure_driver(spark: OnSpark) -> None:
    began = time.monotonic()
    count = len(list(spark(partial(nap, seconds=5.0), range(64), 16)))
    print(
        f"{count} items that sleep 5 s on 16 slots: {5 * count / 16 / (time.monotonic() - began):.0%} busy", flush=True
    )


def measure_items(executor: Executor, jobs: int) -> None:
    """Print the memory of the driver after more and more items of no work, all of them of one call."""
    began = time.monotonic()
    for done, _ in enumerate(executor(abs, range(10_000), jobs), 1):
        if done in (100, 1_000, 2_000, 5_000, 10_000):
            each = 1000 * (time.monotonic() - began) / done
            print(f"{done:,} items: driver {driver_mb()}, {each:.0f} ms each", flush=True)


def main() -> None:
    print("in processes")
    measure_items(in_processes, 2)
    print("on Spark", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        on_cluster(folder / "items", 4, partial(measure_items, jobs=4))
        if "--items" in sys.argv:
            return
        write_parquet(toy_panel(zones=96, days=56), folder / "panel.parquet")
        on_cluster(folder / "two", 2, partial(measure_cpu, panel=folder / "panel.parquet"))
        on_cluster(folder / "sixteen", 16, measure_driver)


if __name__ == "__main__":
    main()
