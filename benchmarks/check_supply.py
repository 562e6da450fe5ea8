"""Time out of stock by the panel against the truth, in simulated cities with listed bikes that nobody can rent.

Each city has 30 stations and 70 days, without walkers and shocks. Wanted: lost trips at the true rates within 6 % of
the truth, and hours in which the panel says "out of stock for a share p of the time" that were so for that share,
within 5 points. Hours in which the feed never shows an empty station are also told apart: there the panel knows nothing
but probabilities. Arguments are seeds.
"""

from __future__ import annotations

import sys

import _measure  # noqa: F401  sets one BLAS thread, so it comes before NumPy
import numpy as np
import pandas as pd

from unmet.mobility.panel import build_panel
from unmet.simulate import simulate_city

SEEDS = range(9701, 9706)
LEAST = 1e-3  # share of an hour below which an hour counts as sure


def main() -> None:
    seeds = [int(seed) for seed in sys.argv[1:]] or list(SEEDS)
    hours = pd.concat([compare(seed) for seed in seeds], ignore_index=True)
    show("all hours", hours)
    show("hours in which the feed shows a vehicle all the time", hours[hours["listed"] == 0.0])


def compare(seed: int) -> pd.DataFrame:
    """Shares of each hour out of stock: by the panel, as listed, and in truth."""
    city = simulate_city(30, 70, seed=seed, realistic=True, walk_probability=0.0, shock_effect=0.0)
    made = build_panel(city.trips, city.status, city.stations, timezone=city.settings.timezone, every="1h")
    both = made.panel.merge(city.true_rate.rename(columns={"station_id": "zone"}), on=["zone", "start"])
    known = both[(both["unknown_minutes"] == 0) & (both["closed_minutes"] == 0)]
    shares = known[["out_minutes", "stockout_minutes"]].div(known["minutes"], axis=0)
    found = pd.DataFrame({"said": shares["out_minutes"], "listed": shares["stockout_minutes"]})
    found["true"], found["rate"] = known["stockout"], known["rate"]
    lost = (found["rate"] * found["said"]).sum() / (found["rate"] * found["true"]).sum()
    print(f"seed {seed}: lost trips at the true rates {lost:.3f} of the truth", flush=True)
    return found


def show(name: str, hours: pd.DataFrame) -> None:
    """Print the mean share said and true, by tenths of the share said."""
    some = hours[hours["said"] > LEAST]
    table = some.groupby(np.minimum((10 * some["said"]).astype(int), 9))[["said", "true"]].mean()
    table["points"] = 100 * (table["said"] - table["true"])
    table["hours"] = some.groupby(np.minimum((10 * some["said"]).astype(int), 9)).size()
    print(f"\n{name}\n{table.round({'said': 3, 'true': 3, 'points': 1}).to_string(index=False)}")


if __name__ == "__main__":
    main()
