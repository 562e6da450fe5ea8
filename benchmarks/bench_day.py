"""How long a day more takes: a simulated city is run in full, then again with one day added.

The target for 100 stations and a year is a tenth of the time of the full run. ``--stations`` and ``--days`` choose
another city. ``--compare`` also runs all days from scratch and prints how far the results differ.
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
    parser.add_argument("--compare", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="unmet-day-") as made:
        folder = Path(made)
        city = simulate_city(options.stations, options.days + 1, seed=77, start=START, timezone=TIMEZONE)
        saved = city.save(folder / "city")
        end = pd.Timestamp(START) + pd.Timedelta(days=options.days)
        seconds = end.tz_localize(TIMEZONE).timestamp()
        city.trips[city.trips["started_at"] < end].to_parquet(folder / "trips.parquet")
        city.status[city.status["last_reported"] < seconds].to_parquet(folder / "status.parquet")
        full = measure("in full", folder / "out", folder, saved)
        day = measure("a day more", folder / "out", saved, saved)
        print(f"  a day more over a run in full: {day / full:.3f}")
        if options.compare:
            measure("from scratch", folder / "scratch", saved, saved)
            compare(folder / "out", folder / "scratch", end.tz_localize(TIMEZONE))


def compare(continued: Path, scratch: Path, new: pd.Timestamp) -> None:
    """Print the differences that docs/guide/current.md has tolerances for."""
    key = ["zone", "start"]
    panels = [pd.read_parquet(out / "panel.parquet").sort_values(key) for out in (continued, scratch)]
    ours, theirs = (
        pd.read_parquet(out / "estimate" / "demand.parquet").sort_values(key) for out in (continued, scratch)
    )
    exposure, other = (panel["exposure"].to_numpy() for panel in panels)
    out_of_stock = [panel["out_minutes"].sum() for panel in panels]
    print(f"  exposure, mean difference: {np.abs(exposure - other).mean():.4f}")
    print(f"  minutes out of stock: {out_of_stock[0] / out_of_stock[1] - 1:+.2%}")
    late, last = (rows[rows["start"] >= new] for rows in (ours, theirs))
    for name in ("lost", "demand"):
        print(f"  {name}: {ours[f'{name}_mean'].sum() / theirs[f'{name}_mean'].sum() - 1:+.2%}")
    print(f"  lost, new day: {late['lost_mean'].sum() / last['lost_mean'].sum() - 1:+.2%}")
    off = (late["rate_mean"].to_numpy() - last["rate_mean"].to_numpy()) / last["rate_sd"].to_numpy()
    print(f"  rates of the new day, root mean square in standard deviations: {np.sqrt(np.mean(off**2)):.2f}")
    wider = np.median(late["rate_sd"].to_numpy() / last["rate_sd"].to_numpy())
    print(f"  their standard deviations, median ratio: {wider:.3f}")


def measure(name: str, out: Path, records: Path, city: Path) -> float:
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
            out=out,
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
