"""Riders turned away after plans from observed trips and from the city as one, in simulated cities.

Each city has 12 stations and 42 days (``--days``), of which the last seven are planned. A third of its station-days
have a stock-out, as in Jersey City. Half of the fleet may be moved. Each planned day is also ridden by ``--again``
other sets of riders, with the same usual rates: counts are means. Arguments are seeds; by default ten that no choice
was made with.
"""

from __future__ import annotations

import argparse
from typing import Any

import pandas as pd

from unmet.pipeline.decisions import DecisionTest, compare_decisions
from unmet.simulate import simulate_city

SEEDS = range(9201, 9211)
WORLD: dict[str, Any] = {"stations": 12, "realistic": True, "demand": 40.0}
MODELS = ("observed-mean", "exposure")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, default=list(SEEDS))
    parser.add_argument("--days", type=int, default=42)
    parser.add_argument("--again", type=int, default=0)
    given = parser.parse_args()
    found = []
    for seed in given.seeds:
        city = simulate_city(seed=seed, days=given.days, **WORLD)
        test = compare_decisions(city, models=MODELS, moves_share=0.5, returns=True, repeats=given.again)
        found.append(test.days)
        print(f"seed {seed}: {_words(DecisionTest(test.days))}", flush=True)
    print(f"{len(given.seeds)} cities: {_words(DecisionTest(pd.concat(found)))}")


def _words(test: DecisionTest) -> str:
    rows = {row["model"]: row for row in test.summary().to_dict("records")}
    away = ", ".join(f"{name} {row['turned_away']:.0f}" for name, row in rows.items())
    ours, observed = rows["exposure"], rows["observed-mean"]
    without = (ours["lost"] + ours["no_dock"]) / (observed["lost"] + observed["no_dock"])
    return (
        f"turned away: {away}; of observed {ours['against_observed']:.3f}, counting those who got no bike anywhere or "
        f"no dock {without:.3f}; promised over actual {ours['promise']:.2f}"
    )


if __name__ == "__main__":
    main()
