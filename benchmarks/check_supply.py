"""Time out of stock by the panel against the truth, in simulated cities with listed bikes that nobody can rent.

Each city has 30 stations and 70 days, without walkers and shocks. Wanted: lost trips at the true rates within 6 % of
the truth on the mean, their WAPE by zone at most .12, and time that the panel says to be out of stock with probability
p that was so with that probability, within 5 points. Time is told by hours, by hours in which the feed never shows an
empty station, and by minutes in which the panel says something else than the feed. Arguments are seeds.
"""

from __future__ import annotations

import sys
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
    """One city: lost trips over the truth, their WAPE by zone, and what is said and true by hour and by minute."""

    lost: float
    wape: float
    hours: pd.DataFrame
    minutes: pd.DataFrame


def main() -> None:
    seeds = [int(seed) for seed in sys.argv[1:]] or list(SEEDS)
    found = [compare(seed) for seed in seeds]
    print(f"mean: lost trips {np.mean([one.lost for one in found]):.3f} of the truth")
    hours, minutes = (pd.concat([getattr(one, name) for one in found]) for name in ("hours", "minutes"))
    show("all hours", hours)
    show("hours in which the feed shows a vehicle all the time", hours[hours["listed"] == 0.0])
    show("minutes in which the panel says something else than the feed", minutes)


def compare(seed: int) -> Compared:
    """Shares of each hour out of stock, by the panel, as listed and in truth; and chances of single minutes."""
    city = simulate_city(30, 70, seed=seed, realistic=True, walk_probability=0.0, shock_effect=0.0)
    supplies: list[Supply] = []
    SupplyModel.served = noted(supplies)  # type: ignore[method-assign]
    made = build_panel(city.trips, city.status, city.stations, timezone=city.settings.timezone, every="1h")
    both = made.panel.merge(city.true_rate.rename(columns={"station_id": "zone"}), on=["zone", "start"])
    known = both[(both["unknown_minutes"] == 0) & (both["closed_minutes"] == 0)]
    shares = known[["out_minutes", "stockout_minutes"]].div(known["minutes"], axis=0)
    found = pd.DataFrame({"said": shares["out_minutes"], "listed": shares["stockout_minutes"]})
    found["true"], found["rate"] = known["stockout"], known["rate"]
    lost = found[["said", "true"]].mul(found["rate"], axis=0).groupby(known["zone"]).sum()
    share, wape = (
        lost["said"].sum() / lost["true"].sum(),
        (lost["said"] - lost["true"]).abs().sum() / lost["true"].sum(),
    )
    print(f"seed {seed}: lost trips at the true rates {share:.3f} of the truth, WAPE by zone {wape:.3f}", flush=True)
    return Compared(share, wape, found, chances(city, made.zones["zone"], supplies))


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
