"""How long a day more takes: a simulated city is run in full, then again with one day added.

The target for 100 stations and a year is a tenth of the time of the full run. ``--stations`` and ``--days`` choose
another city.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from unmet.execution import serially
from unmet.pipeline import RunSettings, run
from unmet.simulate import simulate_city

START, TIMEZONE = "2024-03-04", "America/New_York"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stations", type=int, default=100)
    parser.add_argument("--days", type=int, default=364)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="unmet-day-") as made:
        folder = Path(made)
        city = simulate_city(options.stations, options.days + 1, seed=77, start=START, timezone=TIMEZONE)
        saved = city.save(folder / "city")
        end = pd.Timestamp(START) + pd.Timedelta(days=options.days)
        seconds = end.tz_localize(TIMEZONE).timestamp()
        city.trips[city.trips["started_at"] < end].to_parquet(folder / "trips.parquet")
        city.status[city.status["last_reported"] < seconds].to_parquet(folder / "status.parquet")
        full = measure("in full", folder, folder, saved)
        day = measure("a day more", folder, saved, saved)
        print(f"  a day more over a run in full: {day / full:.3f}")


def measure(name: str, folder: Path, records: Path, city: Path) -> float:
    """Run, print the processor time of each stage, and give that of all."""
    marks: list[tuple[str, float]] = []

    def tell(event: object) -> None:
        if getattr(event, "kind", None) == "end":
            marks.append((str(getattr(event, "stage", "")), time.process_time()))

    began = time.process_time()
    run(
        RunSettings(
            trips=(str(records / "trips.parquet"),),
            status=(str(records / "status.parquet"),),
            stations=(str(city / "stations.csv"),),
            weather=str(city / "weather.csv"),
            timezone=TIMEZONE,
            jobs=1,
            out=folder / "out",
        ),
        executor=serially,
        progress=tell,
    )
    total = time.process_time() - began
    spent = np.diff([began, *(at for _, at in marks)])
    stages = ", ".join(f"{stage} {seconds:.1f} s" for (stage, _), seconds in zip(marks, spent, strict=True))
    print(f"  {name}: processor {total:.1f} s ({stages})", flush=True)
    return total


if __name__ == "__main__":
    main()
