"""The first ten minutes of an hour, and its rest: what a busy start says, on real records of Jersey City.

A tenth of the station-hours with ample stock are cut after ten minutes: the model sees the pickups of those minutes
and nothing of the rest, as at a station that ran out then. Its estimate of the rest is compared with the pickups that
were made, by the number of pickups in the first ten minutes. All are over the plain rate, that of the station's own
fit. Beside it are the shocks without the hour's own factor, and the formula of zones by themselves, in which all of an
hour's spread is one factor of that hour.

Give the folder of the data as ``--data`` or ``$UNMET_DATA``; ``--zones N`` takes N stations only.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import _measure  # noqa: F401  sets one BLAS thread, so it comes before NumPy
import numpy as np
import pandas as pd
from check_real_demand import ZONE, jersey_city

from unmet.mobility.backtest.hours import fitted_table
from unmet.mobility.features.bins import bin_features
from unmet.mobility.models.joint import join_city
from unmet.mobility.models.walking import NO_WALKING
from unmet.mobility.models.zone_data import zone_data
from unmet.mobility.panel.file import open_panel

SHARE, AMPLE, FIRST = 0.1, 5.0, 1 / 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("UNMET_DATA", "../shared/data")))
    parser.add_argument("--zones", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not (options.data / "citibike_jersey_city").is_dir():
        print(f"first minutes: skipped, no data at {options.data}; name its folder with --data or $UNMET_DATA")
        return
    with tempfile.TemporaryDirectory(prefix="unmet-minutes-") as folder:
        hours, parts = Path(folder) / "hours.parquet", Path(folder) / "parts.parquet"
        weather = jersey_city(options.data, hours, options.zones)
        jersey_city(options.data, parts, options.zones, every="10min")
        stations = pd.read_csv(options.data / "citibike_jersey_city/stations.csv").set_index("station_id")
        places = {str(zone): (lat, lon) for zone, lat, lon in stations[["lat", "lon"]].itertuples()}
        print(replayed(hours, starts(parts), weather, places, options.seed).round(2).to_string())


def starts(parts: Path) -> pd.DataFrame:
    """Pickups in the first ten minutes and in the rest of each hour whose stock was ample throughout."""
    rows = pd.read_parquet(parts, columns=["zone", "start", "observed", "exposure", "supply_mean"])
    rows["hour"] = rows["start"].dt.floor("h")
    rows["first"] = np.where(rows["start"] == rows["hour"], rows["observed"], 0.0)
    rows["ample"] = (rows["exposure"] >= 1) & (rows["supply_mean"] >= AMPLE)
    sums = rows.groupby(["zone", "hour"], observed=True).agg(
        first=("first", "sum"), all=("observed", "sum"), ample=("ample", "all"), parts=("ample", "size")
    )
    return sums[sums["ample"] & (sums["parts"] == 6)]


def replayed(
    hours: Path, begun: pd.DataFrame, weather: pd.DataFrame, places: dict[str, tuple[float, float]], seed: int
) -> pd.DataFrame:
    """Cut some hours after ten minutes; pickups of their rest by the model and in truth, over the plain rate."""
    rng = np.random.default_rng(seed)
    cut = begun[rng.random(len(begun)) < SHARE]
    pairs = []
    with open_panel(hours) as file:
        file.set_features(bin_features(file, weather=weather, timezone=ZONE, holidays="US").frame)
        for zone in file.zones:
            rows = file.rows_of(zone)
            data = zone_data(rows)
            of_zone = cut.loc[zone] if zone in cut.index else cut.iloc[:0].droplevel(0)
            at = data.start.get_indexer(of_zone.index)
            observed, exposure, stockout = data.observed.copy(), data.exposure.copy(), data.stockout.copy()
            observed[at], exposure[at], stockout[at] = of_zone["first"], FIRST, 1 - FIRST
            pairs.append((rows, replace(data, observed=observed, exposure=exposure, stockout=stockout)))
    table = fitted_table(pairs, places, seed, "First minutes", lambda _: None, NO_WALKING)
    joint = join_city(table, draws=2, seed=seed, walking=NO_WALKING, start=NO_WALKING)
    zone = np.array([table.zones.index(name) for name in cut.index.get_level_values(0)])
    bin_ = table.start.get_indexer(cut.index.get_level_values(1))
    first, rest = cut["first"].to_numpy(), (cut["all"] - cut["first"]).to_numpy()
    plain = np.exp(table.log_rate + 0.5 * table.log_rate_var)
    seen = np.isfinite(table.observed) & (table.exposure > 0)
    mean = (table.exposure * plain)[seen]
    whole = max(float(np.sum((table.observed[seen] - mean) ** 2 - mean) / np.sum(mean**2)), 1e-3)
    plain, rate, within = plain[zone, bin_], joint.rate[zone, bin_], joint.within[zone]
    found = pd.DataFrame(
        {
            "pickups": np.minimum(first, 5).astype(int),
            "hours": 1,
            "truth": rest,
            "joint": (1 - FIRST) * rate * _factor(joint.lasting * within, first, rate),
            "shocks": (1 - FIRST) * rate,
            "one factor": (1 - FIRST) * plain * _factor(whole, first, plain),
            "plain": (1 - FIRST) * plain,
        }
    )
    beside = f"{joint.dispersion:.3f}, of which {joint.lasting:.2f} lasts"
    print(f"dispersion beside the shocks {beside}, in all {whole:.3f}; {joint.law}")
    sums = found.groupby("pickups").sum()
    error = np.sqrt(sums["truth"]) / sums["plain"]
    columns = ["truth", "joint", "shocks", "one factor"]
    return sums[columns].div(sums["plain"], axis=0).assign(se=error, hours=sums["hours"])


def _factor(dispersion: np.ndarray | float, first: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Mean of an hour's own gamma factor given the pickups of its first minutes."""
    return (1 + dispersion * first) / (1 + dispersion * FIRST * rate)


if __name__ == "__main__":
    main()
