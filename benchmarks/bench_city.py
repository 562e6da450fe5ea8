"""How long a whole city takes: simulated stations, hourly for a year, on two processes.

100 zones should take at most 10 minutes and 1 GB per process, and the time per zone should not grow with their number.
``--quick`` runs a small city, to see that the benchmark works.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.tseries.holiday import USFederalHolidayCalendar

from unmet._storage.parquet import write_parquet
from unmet.execution import in_processes
from unmet.mobility.demand import DemandModel
from unmet.mobility.models.city import learn_city_from_rows
from unmet.mobility.models.registry import find_model
from unmet.mobility.runs import run_estimates
from unmet.simulate import City, simulate_city


def main() -> None:
    options = _options()
    few, many, days = (2, 4, 60) if options.quick else (min(10, options.zones), options.zones, options.days)
    with tempfile.TemporaryDirectory(prefix="unmet-city-") as folder:
        made = Path(folder)
        # In a process of its own, so that the city does not count as memory of the run.
        ((_, outcome),) = in_processes(make_city, [(made, many, days, options.seed)], 1)
        if isinstance(outcome, Exception):
            raise outcome
        truth = pd.Series(outcome)
        times = {}
        for zones in sorted({few, many}):
            times[zones] = run(made, zones, truth, options)
    ratio = times[many] / times[few]
    print(f"  CPU per zone with {many} zones over that with {few}: {ratio:.2f}")


def run(folder: Path, zones: int, truth: pd.Series, options: argparse.Namespace) -> float:
    """Run some zones and print what it took; give CPU seconds per zone."""
    panel = pd.read_parquet(folder / "panel.parquet")
    panel = panel[panel["zone"].isin(truth.index[:zones])]
    write_parquet(panel, folder / f"panel-{zones}.parquet")
    features = pd.read_parquet(folder / "features.parquet")
    rows = len(panel)
    del panel
    began = time.monotonic()
    result = run_estimates(
        folder / f"panel-{zones}.parquet",
        DemandModel(options.model),
        folder / f"run-{zones}",
        features=features,
        learn_city=learn_city_from_rows if find_model(options.model).uses_city else None,
        jobs=options.jobs,
        progress=_line,
    )
    info = result.info
    costs, totals, minutes = info["costs"], info["totals"], (time.monotonic() - began) / 60
    wanted = float(truth.iloc[:zones].sum())
    print(f"\r{zones} zones, {rows:,} rows, {info['jobs']} processes, model {options.model}:")
    print(f"  {minutes:.1f} minutes, {costs['cpu_seconds_per_zone']:.1f} s of CPU per zone, ", end="")
    print(f"{costs['cpu_seconds_of_slowest_zone']:.1f} s the slowest; {info['zones']['failed']} failed")
    print(f"  memory: {costs['peak_memory_mb']:.0f} MB the largest worker, {_peak_mb():.0f} MB the run itself")
    print(f"  600 zones at this pace: {600 * minutes / zones:.0f} minutes, ", end="")
    print(f"{600 * costs['cpu_seconds_per_zone'] / info['jobs'] / 60:.0f} on free processors")
    lost, seen = totals["lost"], totals["observed"]["mean"]
    print(
        f"  observed {seen / wanted - 1:+.1%} of the truth, demand {(seen + lost['mean']) / wanted - 1:+.1%}; ", end=""
    )
    print(
        f"lost {lost['mean']:,.0f} ({lost['q025']:,.0f} – {lost['q975']:,.0f}), truly {wanted - seen:,.0f}", flush=True
    )
    return float(costs["cpu_seconds_per_zone"])


def make_city(task: tuple[Path, int, int, int]) -> dict[str, int]:
    """Simulate a city and write its panel and features; give the wanted trips of each station."""
    folder, stations, days, seed = task
    city = simulate_city(stations, days, seed=seed)
    panel = true_panel(city)
    write_parquet(panel, folder / "panel.parquet")
    weather = city.weather.rename(columns={"time": "start"})
    weather["start"] = pd.to_datetime(weather["start"], utc=True)
    days = weather["start"].dt.tz_convert(city.settings.timezone).dt.tz_localize(None).dt.normalize()
    weather["holiday"] = days.isin(USFederalHolidayCalendar().holidays(days.min(), days.max())).astype(float)
    write_parquet(weather[weather["start"].isin(panel["start"])], folder / "features.parquet")
    wanted = city.truth.groupby("station_id").size()
    return {str(station): int(wanted.get(station, 0)) for station in city.stations["station_id"]}


def true_panel(city: City) -> pd.DataFrame:
    """The panel with the true exposure: this measures the models, not the reading of records."""
    truth = city.truth[city.truth["fate"] == "served"]
    served = truth.groupby(["station_id", truth["wanted_at"].dt.floor("h")]).size()
    rows = city.true_rate
    observed = served.reindex(pd.MultiIndex.from_frame(rows[["station_id", "start"]]), fill_value=0)
    stockout = (60 * rows["stockout"]).round().astype(int)
    available = np.minimum((60 * rows["exposure"]).round().astype(int), 60 - stockout)
    return pd.DataFrame(
        {
            "zone": rows["station_id"],
            "start": rows["start"],
            "start_local": rows["start"].dt.tz_convert(city.settings.timezone).dt.tz_localize(None),
            "minutes": 60,
            "observed": observed.to_numpy(dtype=float),
            "available_minutes": available,
            "stockout_minutes": stockout,
            "closed_minutes": 60 - available - stockout,
            "unknown_minutes": 0,
            "exposure": rows["exposure"],
            "censored": rows["stockout"] > 0,
        }
    )


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small city")
    parser.add_argument("--zones", type=int, default=100)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--model", default="exposure")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _line(done: int, zones: int, note: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {zones} zones {note}", end="", file=sys.stderr, flush=True)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
