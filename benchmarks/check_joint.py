"""Cities with everything at once, estimated as one: riders wanted, lost and walked on against the truth.

Each simulated city is ``realistic``: some listed bikes cannot be rented, riders walk on, hours are unusual in whole
neighbourhoods, and the feed is polled. Its records go through `write_panel` and `LatentDemand` with all defaults.
Arguments are seeds; by default five that no choice was made with.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import _measure  # noqa: F401  sets one BLAS thread, so it comes before NumPy
import numpy as np
import pandas as pd

from unmet.mobility.demand import LatentDemand
from unmet.mobility.panel import write_panel
from unmet.mobility.runs import RunResult
from unmet.simulate import City, simulate_city

SEEDS = range(8716, 8721)
QUANTITIES = ("wanted", "lost", "walked_on")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", nargs="*", type=int, default=list(SEEDS))
    parser.add_argument("--stations", type=int, default=24)
    parser.add_argument("--days", type=int, default=84)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    for seed in given.seeds:
        city = simulate_city(given.stations, given.days, seed=seed, realistic=True)
        with tempfile.TemporaryDirectory(prefix="unmet-joint-") as folder:
            panel = Path(folder) / "panel.parquet"
            write_panel(panel, city.trips, city.status, city.stations, timezone=city.settings.timezone, every="1h")
            model = LatentDemand(weather=city.weather, holidays="US")
            print(f"{seed}: {compare(city, model.fit(panel, jobs=given.jobs))}", flush=True)


def compare(city: City, result: RunResult) -> str:
    """Return errors of totals (* outside the 95 % interval), of zones and of days, and coverage."""
    truth = city.true_rate.rename(columns={"station_id": "zone", "rate": "true_rate"})
    rows = result.demand().merge(truth[["zone", "start", "true_rate", *QUANTITIES]], on=["zone", "start"])
    return f"{_totals(rows, result.totals)}; {_parts(rows)}; {_coverage(rows)}"


def _totals(rows: pd.DataFrame, totals: pd.DataFrame) -> str:
    system = totals[totals["level"] == "system"].set_index("quantity")
    words = []
    for name in QUANTITIES:
        truth, found = rows[name].sum(), system.loc[name]
        inside = found["q025"] <= truth <= found["q975"]
        words.append(f"{name} {found['mean'] / truth - 1:+.1%}{'' if inside else ' *'} of {truth:,.0f}")
    return ", ".join(words)


def _parts(rows: pd.DataFrame) -> str:
    zones = rows.groupby("zone")[["lost_mean", "lost"]].sum()
    days = rows.groupby(rows["start"].dt.floor("D"))[["lost_mean", "lost"]].sum()
    wape = (zones["lost_mean"] - zones["lost"]).abs().sum() / zones["lost"].sum()
    return f"lost by zone, WAPE {wape:.3f}; lost by day, correlation {days.corr().iloc[0, 1]:.3f}"


def _coverage(rows: pd.DataFrame) -> str:
    """Coverage of 90 % intervals: of log-normal rates, and of wanted riders in bins with stock-outs."""
    log_var = np.log1p((rows["rate_sd"] / rows["rate_mean"]) ** 2)
    z = (np.log(rows["true_rate"] / rows["rate_mean"]) + 0.5 * log_var) / np.sqrt(log_var)
    some = rows[rows["exposure"] < 1]
    held = (some["wanted_q05"] <= some["wanted"]) & (some["wanted"] <= some["wanted_q95"])
    return f"90 % intervals cover {(z.abs() < 1.645).mean():.3f} of rates, {held.mean():.3f} of wanted riders"


if __name__ == "__main__":
    main()
