"""Time out of stock by the panel against the truth, in simulated cities with listed bikes that nobody can rent.

Each city has 30 stations and 70 days (``--stations``, ``--days``), without walkers and shocks. Wanted: lost trips at
the true rates within 6 % of the truth on the mean, their WAPE by zone at most .12, and time that the panel says to be
out of stock with probability p that was so with that probability, within 5 points. Time is told by hours, by hours in
which the feed never shows an empty station, and by minutes in which the panel says something else than the feed. Other
arguments are seeds.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import _measure  # noqa: F401  sets one BLAS thread, so it comes before NumPy
import numpy as np
import pandas as pd

from unmet.mobility.panel import build_panel
from unmet.mobility.panel.usable import Supply, SupplyModel
from unmet.mobility.supply.spells import Spells
from unmet.mobility.supply.status_log import StatusRecords
from unmet.simulate import City, simulate_city

SEEDS = range(9701, 9706)
LEAST = 1e-3  # share of an hour below which an hour counts as sure


class Compared(NamedTuple):
    """One city: what is lost at the true rates, by zone, and what is said and true by hour and by minute."""

    lost: pd.DataFrame
    hours: pd.DataFrame
    minutes: pd.DataFrame


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--stations", type=int, default=30)
    parser.add_argument("--days", type=int, default=70)
    options = parser.parse_args()
    found, rows = [], []
    for seed in options.seeds:
        found.append(compare(seed, options.stations, options.days))
        rows.append({"seed": seed, **ratios(found[-1])})
        print(pd.DataFrame(rows[-1:]).round(3).to_string(index=False, header=len(rows) == 1), flush=True)
    print(f"mean\n{pd.DataFrame(rows).drop(columns='seed').mean().round(3).to_string()}")
    hours, minutes = (pd.concat([getattr(one, name) for one in found]) for name in ("hours", "minutes"))
    show("all hours", hours)
    show("hours in which the feed shows a vehicle all the time", hours[hours["listed"] == 0.0])
    show("minutes in which the panel says something else than the feed", minutes)


def compare(seed: int, stations: int, days: int) -> Compared:
    """Shares of each hour out of stock, by the panel, as listed and in truth; and chances of single minutes."""
    city = simulate_city(stations, days, seed=seed, realistic=True, walk_probability=0.0, shock_effect=0.0)
    supplies: list[Supply] = []
    SupplyModel.served = noted(supplies)  # type: ignore[method-assign]
    made = build_panel(city.trips, city.status, city.stations, timezone=city.settings.timezone, every="1h")
    both = made.panel.merge(city.true_rate.rename(columns={"station_id": "zone"}), on=["zone", "start"])
    known = both[(both["unknown_minutes"] == 0) & (both["closed_minutes"] == 0)]
    shares = known[["out_minutes", "stockout_minutes"]].div(known["minutes"], axis=0)
    hours = pd.DataFrame(
        {"said": shares["out_minutes"], "listed": shares["stockout_minutes"], "true": known["stockout"]}
    )
    lost = hours.mul(known["rate"], axis=0).assign(riders=known["lost"]).groupby(known["zone"]).sum()
    return Compared(lost, hours, chances(city, made.zones["zone"], supplies))


def ratios(one: Compared) -> dict[str, float]:
    """Lost trips at the true rates over those at the true exposure, and over lost riders; WAPE by zone; time out."""
    lost, said, true = one.lost, one.lost["said"], one.lost["true"]
    return {
        "time out": one.hours["said"].sum() / one.hours["true"].sum(),
        "lost": said.sum() / true.sum(),
        "WAPE": (said - true).abs().sum() / true.sum(),
        "lost, listed": lost["listed"].sum() / true.sum(),
        "WAPE, listed": (lost["listed"] - true).abs().sum() / true.sum(),
        "lost, riders": said.sum() / lost["riders"].sum(),
        "WAPE, riders": (said - lost["riders"]).abs().sum() / lost["riders"].sum(),
    }


_served = SupplyModel.served


def noted(supplies: list[Supply]):  # type: ignore[no-untyped-def]
    """Return `SupplyModel.served` that keeps what it finds."""

    def served(self: SupplyModel, records: StatusRecords, spells: Spells, dock_spells: Spells) -> Supply:
        supplies.append(_served(self, records, spells, dock_spells))
        return supplies[-1]

    return served


def chances(city: City, zones: pd.Series, supplies: list[Supply]) -> pd.DataFrame:
    """Say, minute by minute, how probably nothing can be rented where the feed does not show it, and what is true."""
    out = city.by_minute("rentable") == 0
    place = pd.Index(city.stations["station_id"]).get_indexer(zones)
    begin = int(city.true_rate["start"].iloc[0].timestamp()) // 60
    parts = []
    for one in (supply.vehicles for supply in supplies):
        assert one is not None
        length = one.end - one.begin
        minute = np.repeat(one.begin - begin - np.cumsum(length) + length, length) + np.arange(length.sum())
        inside = (minute >= 0) & (minute < out.shape[1])
        station = place[np.repeat(one.owner, length)[inside]]
        said = 1.0 - np.repeat(one.chance, length)[inside]
        parts.append(pd.DataFrame({"said": said, "true": out[station, minute[inside]].astype(float)}))
    return pd.concat(parts)


def show(name: str, hours: pd.DataFrame) -> None:
    """Print the mean share said and true, by tenths of the share said."""
    some = hours[hours["said"] > LEAST]
    table = some.groupby(np.minimum((10 * some["said"]).astype(int), 9))[["said", "true"]].mean()
    table["points"] = 100 * (table["said"] - table["true"])
    table["number"] = some.groupby(np.minimum((10 * some["said"]).astype(int), 9)).size()
    print(f"\n{name}\n{table.round({'said': 3, 'true': 3, 'points': 1}).to_string(index=False)}")


if __name__ == "__main__":
    main()
