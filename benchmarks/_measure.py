"""What the benchmarks share: one BLAS thread, CPU time, best of several. Import it before NumPy."""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import time  # noqa: E402
import tracemalloc  # noqa: E402
from collections.abc import Callable  # noqa: E402

__all__ = ["cpu_seconds", "peak_bytes", "report"]


def cpu_seconds(work: Callable[[], object], *, repeat: int = 7) -> float:
    """CPU time of one call: the best of several, after one to warm up. Other programs disturb it little."""
    work()
    return min(_once(work) for _ in range(repeat))


def _once(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def peak_bytes(work: Callable[[], object]) -> int:
    """Most memory that NumPy and Python held at once during a call, beyond what was there before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def report(name: str, value: float, target: float | None = None, *, unit: str = "", least: bool = False) -> bool:
    """Print one measured number, beside its target where there is one; True where it is met."""
    met = target is None or (value >= target if least else value <= target)
    aim = "" if target is None else f"   target {'≥' if least else '≤'} {target:g}{unit}   {'ok' if met else 'MISSED'}"
    print(f"  {name:<66}{value:>9.3g}{unit}{aim}")
    return met
