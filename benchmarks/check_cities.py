"""Cities whose true demand is known, from records to estimates: is the answer right, and as sure as it says.

Simulated cities that were used for no choice in the code. Each is written as an operator would have it (trips, status
log, stations, weather), goes through `write_panel` and `LatentDemand`, and is compared with what was truly wanted.
``--walkers`` lets riders who find no bike walk to the next station, to see what that does to zones and to the system.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import _measure  # sets one BLAS thread, so it comes before NumPy
import numpy as np
import pandas as pd

from unmet.mobility.backtest import backtest
from unmet.mobility.demand import LatentDemand
from unmet.mobility.features.bins import bin_features
from unmet.mobility.panel import write_panel
from unmet.mobility.panel.file import open_panel
from unmet.mobility.runs import RunResult
from unmet.simulate import City, simulate_city

# What differs from the usual settings, in turn: as they are, fewer bikes, more riders.
SETTINGS: tuple[dict[str, float], ...] = ({}, {"fleet_share": 0.3}, {"demand": 100.0})
FIRST_SEED = 4101
BASELINES = ("weekly-mean", "drop-censored", "observed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stations", type=int, default=24)
    parser.add_argument("--days", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cities", type=int, default=3)
    parser.add_argument("--first", type=int, default=1, help="which city to begin with, from 1")
    parser.add_argument("--walkers", type=float, default=0.0, help="probability of walking to a station next door")
    parser.add_argument("--no-backtest", action="store_true")
    options = parser.parse_args()
    met, inside = True, []
    for number in range(options.first - 1, options.first - 1 + options.cities):
        seed, settings = FIRST_SEED + number, SETTINGS[number % len(SETTINGS)]
        if options.walkers:  # stations as close as in an inner city, so that there is somewhere to walk to
            settings = {**settings, "walk_probability": options.walkers, "density": 20.0}
        city = simulate_city(options.stations, options.days, seed=seed, **settings)
        with tempfile.TemporaryDirectory(prefix="unmet-city-") as folder:
            panel = Path(folder) / "panel.parquet"
            make_panel(city, Path(folder), panel)
            model = LatentDemand(weather=Path(folder) / "city/weather.csv", holidays="US")
            result = model.fit(panel, jobs=options.jobs, progress=_line)
            short = 1 - len(city.trips) / len(city.truth)
            print(f"\rCity {seed} {settings or ''}: {options.stations} stations, {options.days} days, ", end="")
            print(f"{len(city.truth):,} trips wanted, observed {short:.1%} short")
            met &= known(city, result, inside, walkers=options.walkers > 0)
            if not options.no_backtest and not options.walkers:
                met &= held_out(panel, Path(folder) / "city/weather.csv", options.jobs)
    if not options.walkers:
        systems, zones = (sum(parts) for parts in zip(*inside, strict=True))
        print(f"Lost trips inside their 95 % intervals: {systems:.0f} of {len(inside)} systems, ", end="")
        print(f"{zones / len(inside):.1%} of zones")
    if not met:
        print("Some targets were missed.")


def make_panel(city: City, folder: Path, out: Path) -> None:
    city.save(folder / "city")
    place = folder / "city"
    write_panel(
        out,
        trips=place / "trips.parquet",
        status=place / "status.parquet",
        stations=place / "stations.csv",
        timezone=city.settings.timezone,
        every="1h",
    )


def known(city: City, result: RunResult, found: list[tuple[float, float]], *, walkers: bool) -> bool:
    """Compare with the truth: totals, zones, bins; whether system and zones are inside goes to `found`."""
    rows = result.demand().merge(
        city.true_rate.rename(columns={"station_id": "zone"})[["zone", "start", "rate", "wanted"]],
        on=["zone", "start"],
        how="left",
    )
    rows = rows[rows["rate"].notna()]
    lost_truly = rows["wanted"].groupby(rows["zone"]).sum() - rows["observed"].groupby(rows["zone"]).sum()
    totals = result.totals
    zones = totals[(totals["level"] == "zone") & (totals["quantity"] == "lost")].set_index("zone")
    inside = (zones["q025"] <= lost_truly) & (lost_truly <= zones["q975"])
    system = totals[(totals["level"] == "system") & (totals["quantity"] == "lost")].iloc[0]
    log_var = np.log1p((rows["rate_sd"] / rows["rate_mean"]) ** 2)
    z = (np.log(rows["rate"]) - np.log(rows["rate_mean"]) + 0.5 * log_var) / np.sqrt(log_var)
    partly = rows["exposure"] < 1
    starved = rows["exposure"] < 0.5
    held = (rows["demand_q05"] <= rows["wanted"]) & (rows["wanted"] <= rows["demand_q95"])
    error = rows["demand_mean"].sum() / rows["wanted"].sum() - 1
    print(
        f"  lost {system['mean']:,.0f} ({system['q025']:,.0f} to {system['q975']:,.0f}), truly {lost_truly.sum():,.0f}"
    )
    print(f"  zones' demand, error: {_spread(rows)}")
    report = _measure.report
    found.append((float(_distance(system, lost_truly.sum()) <= 1), float(inside.mean())))
    if walkers:
        report("error of total demand", 100 * error, unit=" %")
        return True
    return all(
        [
            report("error of total demand, absolute", 100 * abs(error), 2.0, unit=" %"),
            report("system's lost trips: distance in half 95 % intervals", _distance(system, lost_truly.sum()), 1.0),
            report("zones whose lost trips are inside 95 %", 100 * inside.mean(), 90.0, unit=" %", least=True),
            report("95 % intervals of the rate cover (92 to 98)", 100 * (z.abs() < 1.96).mean(), unit=" %"),
            report("90 % intervals of demand, not fully available (87 to 97)", 100 * held[partly].mean(), unit=" %"),
            report("  the same, empty more than half the time", 100 * held[starved].mean(), unit=" %"),
        ]
    )


def _spread(rows: pd.DataFrame) -> str:
    zones = rows.groupby("zone")[["demand_mean", "wanted"]].sum()
    error = zones["demand_mean"] / zones["wanted"] - 1
    return f"median {error.median():+.1%}, from {error.min():+.1%} to {error.max():+.1%}"


def _distance(system: pd.Series, truth: float) -> float:
    side = system["q975"] - system["q50"] if truth > system["q50"] else system["q50"] - system["q025"]
    return abs(truth - system["q50"]) / side


def held_out(panel: Path, weather: Path, jobs: int) -> bool:
    """Whether the default beats the baselines on hidden weeks."""
    with open_panel(panel) as file:
        features = bin_features(file, weather=weather, holidays="US").frame
    done = backtest(panel, ("exposure", *BASELINES), features=features, tasks=["held-out"], jobs=jobs, progress=_line)
    full = done.summary.query("subset == 'full' and metric == 'crps'").set_index("model")["value"]
    bias = done.summary.query("subset == 'all' and metric == 'bias'").set_index("model")
    shown = ", ".join(f"{name} {bias.loc[name, 'value']:+.1%} ± {bias.loc[name, 'se']:.1%}" for name in bias.index)
    print(f"\r  hidden weeks, bias: {shown}")
    best = full.drop("exposure")
    return _measure.report(
        f"hidden weeks, CRPS over the best baseline's ({best.idxmin()})", full["exposure"] / best.min(), 1.0
    )


def _line(done: int, zones: int, note: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {zones} zones {note}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
