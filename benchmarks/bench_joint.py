"""Time the city as one: realistic simulated cities, hourly, from the panel to all tables, on two processes.

600 zones and a year of hours should take at most 25 minutes on two processors and 1 GB for each worker, and the cost
should grow as zones and bins do. Cities of two sizes are estimated; what the larger one costs more is the cost of its
further zones. ``--quick`` takes small cities.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import _measure  # noqa: F401  sets one BLAS thread, so it comes before NumPy

from unmet.mobility.demand import LatentDemand
from unmet.mobility.panel import write_panel
from unmet.simulate import simulate_city

_ZONES, _DAYS, _PROCESSES = 600, 365, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stations", type=int, nargs=2, default=[50, 200])
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--seed", type=int, default=5101)
    parser.add_argument("--quick", action="store_true", help="10 and 20 stations, 28 days")
    given = parser.parse_args()
    (few, many), days = ([10, 20], 28) if given.quick else (given.stations, given.days)
    less, more = cost(few, days, given.seed), cost(many, days, given.seed)
    print(f"{many} over {few} stations, of the same days: {more / less:.2f} (zones: {many / few:.2f})")
    each = (more - less) / (many - few) / days
    minutes = (less + each * (_ZONES * _DAYS - few * days)) / _PROCESSES / 60
    print(f"a further zone and day: {each * 1000:.1f} ms of processor time")
    print(f"{_ZONES} zones and a year at that pace, {_PROCESSES} processors in use: {minutes:.0f} minutes (target 25)")


def cost(stations: int, days: int, seed: int) -> float:
    """Estimate a city and return the processor time of all its processes."""
    city = simulate_city(stations, days, seed=seed, realistic=True)
    with tempfile.TemporaryDirectory(prefix="unmet-cost-") as folder:
        panel = Path(folder) / "panel.parquet"
        write_panel(panel, city.trips, city.status, city.stations, timezone=city.settings.timezone, every="1h")
        began, wall = sum(os.times()[:4]), time.perf_counter()
        result = LatentDemand(weather=city.weather, holidays="US").fit(panel, jobs=_PROCESSES)
    seconds = sum(os.times()[:4]) - began
    worker = result.info["costs"]["peak_memory_mb"]
    driver = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{stations} stations, {days} days: {seconds:.0f} s of processor time, {time.perf_counter() - wall:.0f} s, "
        f"{worker:,.0f} MB in the largest worker, {driver:,.0f} MB in the process of the run",
        flush=True,
    )
    return seconds


if __name__ == "__main__":
    main()
