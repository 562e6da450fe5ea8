"""The default model beside `weekly-mean` on real counts: weeks of available bins hidden, and guessed.

Two sources of the shared data. Jersey City, hourly, November 2020 to April 2021, from records to scores: trips, status
log, stations. And 30 stations of `citibike_nyc`, hourly, 2018, whose counts come without status: every bin is taken for
available. Wanted: CRPS and WAPE at least 20 % below `weekly-mean` in New York and below it in Jersey City, 90 %
intervals that cover 88 to 93 %. Coverage of counts is told twice: as it is, and with ties broken evenly (calibration),
for an interval of whole numbers covers more than it was made for.

With ``--hide hours``, 5 % of the fully stocked hours of all stations (30 in New York, 53 in Jersey City) are hidden
instead, and the city as one is compared with both factor baselines. Wanted: CRPS 3 % or more below both, intervals that
cover 88 to 92 %.

Give the folder of the data as ``--data`` or ``$UNMET_DATA``; ``--zones N`` takes N stations only.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import _measure  # noqa: F401  sets one BLAS thread, so it comes before NumPy
import pandas as pd

from unmet._storage.parquet import write_parquet
from unmet.mobility.backtest import Backtest, backtest
from unmet.mobility.backtest.hours import hidden_hours
from unmet.mobility.features.bins import bin_features
from unmet.mobility.panel import write_panel
from unmet.mobility.panel.file import open_panel

ZONE = "America/New_York"
MODELS = ("exposure", "weekly-mean")
ALL_STATIONS = {"new-york": 30, "jersey-city": 53}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("UNMET_DATA", "../shared/data")))
    parser.add_argument("--zones", type=int, default=30)
    parser.add_argument("--hide", choices=["weeks", "hours"], default="weeks")
    parser.add_argument("--seed", type=int, default=11, help="of hidden hours")
    parser.add_argument("--folds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", choices=["new-york", "jersey-city"])
    parser.add_argument("--supply", default="usable", help="of Jersey City: usable, or listed as in version 0.1.0")
    options = parser.parse_args()
    if not (options.data / "citibike_nyc").is_dir():
        print(f"real demand: skipped, no data at {options.data}; name its folder with --data or $UNMET_DATA")
        return
    with tempfile.TemporaryDirectory(prefix="unmet-real-") as folder:
        for name, make in (("new-york", new_york), ("jersey-city", jersey_city)):
            if options.only in (None, name):
                panel = Path(folder) / f"{name}.parquet"
                hours = options.hide == "hours"
                zones = ALL_STATIONS[name] if hours else options.zones
                weather = make(options.data, panel, zones, options.supply)
                if hours:
                    show_hours(name, compare_hours(panel, weather, options))
                else:
                    show(name, compare(panel, weather, options))


def compare(panel: Path, weather: pd.DataFrame, options: argparse.Namespace) -> Backtest:
    """Hide a fifth of the weeks of each station and have both models say what demand was in them."""
    with open_panel(panel) as file:
        features = bin_features(file, weather=weather, timezone=ZONE, holidays="US").frame
    return backtest(
        panel, MODELS, features=features, tasks=["held-out"], folds=options.folds, jobs=options.jobs, progress=_line
    )


def compare_hours(panel: Path, weather: pd.DataFrame, options: argparse.Namespace) -> pd.DataFrame:
    """Hide 5 % of the fully stocked hours and score the city as one beside `city-factor` and `local-factor`."""
    with open_panel(panel) as file:
        features = bin_features(file, weather=weather, timezone=ZONE, holidays="US").frame
    return hidden_hours(panel, features=features, places=read_places(options.data), seed=options.seed)


def read_places(data: Path) -> dict[str, tuple[float, float]]:
    """Return latitude and longitude of the stations of both systems."""
    new_york = pd.read_csv(data / "citibike_nyc/stations.csv", dtype={"id": str}).set_index("id")
    jersey = pd.read_csv(data / "citibike_jersey_city/stations.csv", dtype=str).set_index("station_id")
    both = [new_york[["latitude", "longitude"]], jersey[["lat", "lon"]].set_axis(["latitude", "longitude"], axis=1)]
    return {name: (float(lat), float(lon)) for name, lat, lon in pd.concat(both).itertuples()}


def show_hours(name: str, scores: pd.DataFrame) -> None:
    table = scores.set_index("model")
    ours = table.loc["exposure"]
    print(f"\n{name}: {ours['rows']:,.0f} hidden hours, CRPS {ours['crps']:.4f}, ", end="")
    print(f"calibration_90 {ours['calibration_90']:.3f}, bias {ours['bias']:+.1%}")
    for factor in ("local-factor", "city-factor"):
        print(f"  against {factor}: {ours['crps'] / table.loc[factor, 'crps'] - 1:+.1%}")


def show(name: str, done: Backtest) -> None:
    table = done.summary.query("subset == 'full'").pivot(index="metric", columns="model", values="value")
    print(
        f"\n{name}: {done.summary['zones'].max()} stations, {table.loc['rows', 'exposure']:,.0f} hidden bins, ", end=""
    )
    print(f"{len(done.failed)} fits failed, {done.fits['seconds'].sum():.0f} s of CPU")
    for metric in ("crps", "wape"):
        ours, theirs = table.loc[metric, "exposure"], table.loc[metric, "weekly-mean"]
        print(f"  {metric:>14}: {ours:.3f} against {theirs:.3f} of weekly-mean, {ours / theirs - 1:+.1%}")
    for metric in ("coverage_90", "calibration_90", "bias"):
        print(f"  {metric:>14}: {table.loc[metric, 'exposure']:.3f} against {table.loc[metric, 'weekly-mean']:.3f}")


def new_york(data: Path, out: Path, zones: int, _supply: str) -> pd.DataFrame:
    """Hourly counts of 2018 as a panel in which every bin is available; hourly weather of the same year."""
    counts = pd.read_parquet(data / "citibike_nyc/hourly_2017-2018.parquet")
    counts = counts[pd.to_datetime(counts["date"]).dt.year == 2018]
    counts = counts[counts["station_id"].isin(counts["station_id"].unique()[:zones])]
    local = pd.to_datetime(counts["date"]) + pd.to_timedelta(counts["hour"], unit="h")
    # The counts know 24 hours a day: the hour that did not exist is left out, the one that came twice is the first.
    start = local.dt.tz_localize(ZONE, ambiguous=True, nonexistent="NaT").dt.tz_convert("UTC")
    panel = pd.DataFrame({"zone": counts["station_id"].astype(str), "start": start, "start_local": local})
    panel["minutes"] = panel["available_minutes"] = 60
    panel["observed"], panel["returns"] = counts["count_pickup"].astype(float), counts["count_return"].astype(float)
    panel["stockout_minutes"] = panel["closed_minutes"] = panel["unknown_minutes"] = 0
    panel["exposure"], panel["censored"] = 1.0, False
    write_parquet(panel.dropna(subset="start").reset_index(drop=True), out)
    weather = pd.read_csv(data / "citibike_nyc/two_stations_hourly_2018_weather.csv.gz")
    weather = weather[weather["station"] == weather["station"].iloc[0]]
    weather = weather[["datetime", "temperature", "precip_prob", "humidity", "wind_speed"]]
    return weather.rename(columns={"datetime": "time"}).drop_duplicates("time").reset_index(drop=True)


def jersey_city(data: Path, out: Path, zones: int, supply: str = "usable", every: str = "1h") -> pd.DataFrame:
    """Records to panel; daily weather, of which the Fahrenheit columns can be trusted."""
    folder = data / "citibike_jersey_city"
    write_panel(
        out,
        trips=folder / "trips_2015-09_2021-04.parquet",
        status=folder / "station_status_2020-05_2022-06.parquet",
        stations=folder / "stations.csv",
        timezone=ZONE,
        supply=supply,
        every=every,
        start="2020-11-01",
        end="2021-05-01",
    )
    frame = pd.read_parquet(out)
    busiest = frame.groupby("zone")["observed"].sum().nlargest(zones).index
    write_parquet(frame[frame["zone"].isin(busiest)].reset_index(drop=True), out)
    weather = pd.read_csv(data / "weather/nyc_2020-01_2021-07.csv")
    days = pd.to_datetime(weather["date"])
    kept = pd.DataFrame({"time": days, "rain": weather["Precipitation_per_day(mm)"], "snow": weather["Snow"]})
    kept["warm"] = weather["Average_daily_tempeture(F)"]
    hours = kept.loc[kept.index.repeat(24)].reset_index(drop=True)  # a day's reading holds for all its hours
    hours["time"] += pd.to_timedelta(hours.groupby("time").cumcount(), unit="h")
    return hours[(hours["time"] >= "2020-10-31") & (hours["time"] < "2021-05-02")].reset_index(drop=True)


def _line(done: int, zones: int, note: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {zones} zones {note}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
