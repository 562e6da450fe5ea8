"""Riders turned away after plans from observed trips and from the city as one, in simulated cities.

Each city has 12 stations and 42 days, of which the last seven are planned. A third of its station-days have a
stock-out, as in Jersey City. Half of the fleet may be moved. Arguments are seeds; by default ten that no choice was
made with.
"""

from __future__ import annotations

import sys
from typing import Any

import pandas as pd

from unmet.pipeline.decisions import DecisionTest, compare_decisions
from unmet.simulate import simulate_city

SEEDS = range(9201, 9211)
WORLD: dict[str, Any] = {"stations": 12, "days": 42, "realistic": True, "demand": 40.0}
MODELS = ("observed-mean", "exposure")


def main() -> None:
    seeds = [int(seed) for seed in sys.argv[1:]] or list(SEEDS)
    found = []
    for seed in seeds:
        test = compare_decisions(simulate_city(seed=seed, **WORLD), models=MODELS, moves_share=0.5, returns=True)
        found.append(test.days)
        print(f"seed {seed}: {_words(DecisionTest(test.days))}", flush=True)
    print(f"{len(seeds)} cities: {_words(DecisionTest(pd.concat(found)))}")


def _words(test: DecisionTest) -> str:
    rows = {row["model"]: row for row in test.summary().to_dict("records")}
    away = ", ".join(f"{name} {row['turned_away']}" for name, row in rows.items())
    ours = rows["exposure"]
    return (
        f"turned away: {away}; of observed {ours['against_observed']:.3f}, promised over actual {ours['promise']:.2f}"
    )


if __name__ == "__main__":
    main()
