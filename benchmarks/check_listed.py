"""Pickups over those expected, by number of vehicles listed, on days that the parameters were not learnt from.

Jersey City, November 2020 to April 2021. The parameters of usable supply and its correction are learnt from one half of
the days, and the other half is judged; then the halves change places. Usual rates come from all days, as they do in a
panel. Wanted: within 6 % of 1 for every number from one up. Up to four listed, usual rates have the factor that the
model learnt for low stock. ``plain`` has rates that the model has no part in: by station and hour of the week, times
the city's day, from minutes with six or more listed.

Give the folder of the data as ``--data`` or ``$UNMET_DATA``; ``--block 14`` takes every other fortnight for a half.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import _measure  # noqa: F401  sets one BLAS thread, so it comes before NumPy
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmet.mobility.clock.bins import wall_minutes
from unmet.mobility.panel import build_panel, evidence
from unmet.mobility.panel.usable import SupplyModel, Timelines, learn_supply
from unmet.mobility.supply.broken import Fault, Steps, demand_with
from unmet.mobility.supply.spells import Spells
from unmet.mobility.supply.states import VEHICLES
from unmet.mobility.supply.status_log import StatusLog
from unmet.mobility.supply.timeline import AMPLE, Timeline, to_steps
from unmet.mobility.supply.usable import smooth
from unmet.mobility.supply.usable_learning import correct, learn_fault, served, with_expected
from unmet.mobility.supply.usual_rates import HOURS_OF_WEEK, StationRates, tally_hours

ZONE = "America/New_York"
PERIOD = {"start": "2020-11-01", "end": "2021-05-01"}
MOST = 16  # vehicles listed; more count as so many
PLENTY, LEAN = 6, 8.0  # vehicles listed for plain rates; pickups that weigh as much as the city's profile
WANTED = 0.06
LEARNT_FROM = 60_000  # steps, as in a panel

Floats = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("UNMET_DATA", "../shared/data")))
    parser.add_argument("--block", type=int, default=1, help="days in a row that belong to one half")
    options = parser.parse_args()
    source = options.data / "citibike_jersey_city"
    if not source.is_dir():
        print(f"listed vehicles: skipped, no data at {options.data}; name its folder with --data or $UNMET_DATA")
        return
    model, timeline, spells = records_of(source)
    rates = model.vehicles.rates.stations(tally_hours(timeline, model.vehicles.rates.calendar))
    cut = to_steps(timeline)
    steps = with_expected(cut, rates)
    seen = taken(model.timelines, spells)
    plain = plain_rates(spells, seen, rates)
    many = pd.DataFrame({"number": np.minimum(spells.supply, MOST), "pickups": seen})
    few = pd.DataFrame({"number": steps.listed, "pickups": steps.pickups})
    many["usual"], few["usual"] = rates.expected(spells.owner, spells.begin, spells.end), steps.expected
    many["plain"], few["plain"] = (
        plain.expected(station, at.begin, at.end) for station, at in ((spells.owner, spells), (steps.station, cut))
    )
    many["half"], few["half"] = (block_of(at.begin, options.block) % 2 for at in (spells, cut))
    block = block_of(cut.begin, options.block)
    tables = []
    for half in range(2):
        fault, correction = learn(steps, block, 1 - half)
        chance = served(fault, steps, smooth(fault, steps), correction)
        known = few.assign(chance=chance, usual=few["usual"] * demand_with([fault], steps.listed)[:, 0])
        rows = pd.concat(
            [known[known["number"].between(1, AMPLE - 1)], many[many["number"] >= AMPLE].assign(chance=1.0)]
        )
        tables.append(totals(rows[rows["half"] == half]))
        show(f"half {half}", tables[-1])
        print({name: round(float(getattr(fault, name)), 5) for name in Fault.__annotations__})
        print(f"correction {correction[1:3].round(3)}")
    show("both halves", tables[0] + tables[1])


def records_of(source: Path) -> tuple[SupplyModel, Timeline, Spells]:
    """Return the usable supply of a panel, and the timeline and the spells with a vehicle of all stations."""
    found: list[tuple[SupplyModel, StatusLog]] = []

    def keep(timelines: Timelines, log: StatusLog, *options: Any) -> SupplyModel:
        found.append((learn_supply(timelines, log, *options), log))
        return found[0][0]

    evidence.learn_supply = keep  # type: ignore[assignment]
    files = [next(source.glob(f"{name}_*.parquet")) for name in ("trips", "station_status")]
    build_panel(*files, source / "stations.csv", timezone=ZONE, every="1d", **PERIOD)
    model, log = found[0]
    parts = [*log.of_stations(np.flatnonzero(log.records))]
    all_spells = [model.timelines.spells(records) for records in parts]
    lines = [
        model.timelines.find(model.timelines.events(records), spells)
        for records, spells in zip(parts, all_spells, strict=True)
    ]
    first, end = model.timelines.period
    kept = [
        spells.select((spells.reason == VEHICLES) & (spells.begin >= first) & (spells.end <= end))
        for spells in all_spells
    ]
    return model, joined(Timeline, lines), replace(joined(Spells, kept), early=None)


def joined(kind: Any, parts: list[Any]) -> Any:
    """Put tables one below the other."""
    return kind(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in kind.__annotations__})


def block_of(minute: NDArray[np.int64], days: int) -> NDArray[np.int64]:
    """Return the number of the block of local days in which each minute lies."""
    number: NDArray[np.int64] = wall_minutes(minute, ZONE) // (1440 * days)
    return number


def taken(timelines: Timelines, spells: Spells) -> NDArray[np.int64]:
    """Count the trips that start in each spell."""
    last, first = (
        np.searchsorted(timelines.pickups, spells.owner << 32 | 60 * at) for at in (spells.end, spells.begin)
    )
    number: NDArray[np.int64] = last - first
    return number


def learn(steps: Steps, block: NDArray[np.int64], half: int) -> tuple[Fault, Floats]:
    """Learn parameters and correction from one half; each block is as if of a station of its own."""
    apart = replace(steps, station=steps.station * 100_000 + block - block.min())
    chosen = apart.select(block % 2 == half)
    edges = np.append(chosen.first, len(chosen))
    share = min(1.0, LEARNT_FROM / len(chosen))
    some = np.repeat(np.diff(np.floor(np.arange(len(edges)) * share)) > 0, np.diff(edges))
    fault = learn_fault(chosen.select(some))
    wanted = chosen.expected * demand_with([fault], chosen.listed)[:, 0]
    usable = wanted * served(fault, chosen, smooth(fault, chosen))
    either = np.arange(len(chosen)) % 2  # the correction is that of both
    return fault, correct(chosen.listed, either, chosen.pickups, usable)[0]


def plain_rates(spells: Spells, seen: NDArray[np.int64], usual: StationRates) -> StationRates:
    """Return rates by station and hour of the week, times the city's day, from spells with many vehicles listed."""
    calendar = usual.city.calendar
    which, hours = calendar.hour_of_week, len(calendar)
    many = spells.supply >= PLENTY
    none = np.zeros(int(many.sum()), dtype=np.int64)
    station, begin, end, listed = (of[many] for of in (spells.owner, spells.begin, spells.end, spells.supply))
    tally = tally_hours(Timeline(station, begin, end, listed, none > 0, seen[many], none, none, none > 0), calendar)
    pickups, minutes = (of[-1].astype(float) for of in (tally.pickups, tally.minutes))
    day = block_of(60 * (calendar.first + np.arange(hours)), 1)
    day -= day.min()
    factor = np.ones(hours)
    weekly = (np.arange(HOURS_OF_WEEK)[:, None] == which).astype(float)
    for _ in range(8):
        own, time = pickups @ weekly.T, (minutes * factor) @ weekly.T
        city = own.sum(axis=0) / np.maximum(time.sum(axis=0), 1.0)
        level = own.sum(axis=1) / np.maximum(time @ city, 1e-9)
        profile = (own + LEAN) / (time + LEAN / np.maximum(level[:, None] * city, 1e-6))
        expected = (profile[:, which] * minutes).sum(axis=0)
        factor = (np.bincount(day, pickups.sum(axis=0)) / np.maximum(np.bincount(day, expected), 1e-9))[day]
    own = np.ones(pickups.shape, dtype=np.float32)
    return StationRates(tally.station, profile, own, replace(usual.city, factor=factor))


def totals(rows: pd.DataFrame) -> pd.DataFrame:
    """Sum pickups and those expected by number listed."""
    usual, plain = rows["usual"], rows["plain"]
    columns = {"listed": usual, "usable": usual * rows["chance"], "plain listed": plain}
    columns["plain usable"] = plain * rows["chance"]
    return pd.DataFrame({"pickups": rows["pickups"], **columns}).groupby(rows["number"].astype(int)).sum()


def show(name: str, table: pd.DataFrame) -> None:
    """Print pickups over expected by number listed, and the largest difference from 1."""
    ratios = pd.DataFrame({column: table["pickups"] / table[column] for column in table.columns[1:]})
    ratios["standard error"] = table["pickups"] ** -0.5
    worst = (ratios["usable"] - 1).abs().max()
    print(f"\n{name}: largest difference from 1 {worst:.3f}   {'ok' if worst <= WANTED else 'MISSED'}")
    print(ratios.round(3).to_string())


if __name__ == "__main__":
    main()
