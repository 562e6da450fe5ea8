"""Decisions of several models, acted on in a city: the riders who are turned away are counted.

Each model learns from the first days of the city's records. It then plans the moves of each of the last days, from the
levels at midnight and its forecast, with the same fleet and number of moves for all models. The riders of that day,
who are the same for all, ride from the planned levels. The city is simulated, or its recorded days are replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._numbers import is_whole, read_switch
from unmet._storage.temporary import temporary_folder
from unmet._storage.writing import replacing_files, writing
from unmet._typing import IntArray
from unmet.execution import Executor, in_processes
from unmet.mobility.demand import LatentDemand
from unmet.mobility.models.baselines import weekly_mean
from unmet.mobility.models.rates import Rates
from unmet.mobility.models.registry import MODELS, ZoneModel
from unmet.mobility.models.zone_data import ZoneData
from unmet.mobility.planning import Levels, PlanOptions
from unmet.pipeline.worlds import World, simulated_world
from unmet.report.source import RunSource, open_run
from unmet.report.targets import plan_run
from unmet.simulate import City, DayOutcome

__all__ = ["DECISION_MODELS", "FILES", "DecisionTest", "compare_decisions", "observed_mean"]

OBSERVED, ALONE = "observed-mean", "exposure-alone"
_COUNTS = tuple(field.name for field in fields(DayOutcome))
DECISION_MODELS = (OBSERVED, "weekly-mean", ALONE, "exposure")
"""Models that are compared: means of observed trips, of trips over exposure, each zone by itself, the city as one."""
FILES = ("decisions.csv", "decisions_summary.csv")
"""Files of a comparison of decisions."""


@dataclass(frozen=True)
class DecisionTest:
    """Riders turned away after the plans of several models.

    Attributes
    ----------
    days : pandas.DataFrame
        One row per day and model: ``day, model, moves, error, promised, turned_away, no_bike, no_dock, lost, wanted``.
        ``error`` is the sum over stations of the distance between forecast and wanted rentals of the day. The model
        ``none`` moves nothing. Counts are means over `repeats` of `compare_decisions`.
    """

    days: pd.DataFrame

    def summary(self) -> pd.DataFrame:
        """Sum over days by model.

        ``accuracy_error`` is the error over wanted rentals, ``against_observed`` the riders turned away over those of
        ``observed-mean``, and ``promise`` promised over actual riders turned away.
        """
        sums = self.days.groupby("model", sort=False)[
            ["moves", "error", "promised", "turned_away", "no_bike", "no_dock", "lost", "wanted"]
        ].sum()
        sums["accuracy_error"] = sums.pop("error").where(sums.index != "none") / sums["wanted"]
        sums["against_observed"] = sums["turned_away"] / sums["turned_away"].get(OBSERVED, np.nan)
        sums["promise"] = sums["promised"] / sums["turned_away"]
        return sums.reset_index()

    def save(self, folder: Path) -> None:
        """Write ``decisions.csv`` and ``decisions_summary.csv``; both appear when complete."""
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with replacing_files(folder) as aside:
                self.days.to_csv(aside / "decisions.csv", index=False)
                self.summary().to_csv(aside / "decisions_summary.csv", index=False)


def compare_decisions(
    city: City | World,
    *,
    models: Sequence[str] = DECISION_MODELS,
    held_out: int = 7,
    moves_share: float = 0.25,
    returns: bool = False,
    repeats: int = 0,
    draws: int = 200,
    jobs: int | None = None,
    executor: Executor = in_processes,
    progress: Callable[[str], None] | None = None,
) -> DecisionTest:
    """Plan the last days of a city with several models, and count the riders turned away.

    Parameters
    ----------
    city : City or World
        A simulated city, or one of `unmet.pipeline.worlds`. Models see the records before the held-out days.
    models : sequence of str
        Names of models; ``exposure-alone`` is ``exposure`` with each zone by itself, and
        ``observed-mean`` the mean of observed trips by hour of the week.
    held_out : int
        Number of last days to plan.
    moves_share : float
        Vehicles that may be moved, as a share of the fleet.
    returns : bool
        Whether each model estimates returns too; otherwise all use the recorded returns by hour of the week.
    repeats : int
        How often each day is ridden again by other riders, with other shocks and the same usual rates; simulated cities
        only. The plans are the same. Counts are then means, with less chance in them.
    draws : int
        Scenarios of each plan.
    jobs, executor
        As of `LatentDemand.fit`.
    progress : callable, optional
        Called with a sentence before each step.
    """
    world = simulated_world(city) if isinstance(city, City) else city
    days = world.days
    if not is_whole(held_out) or not 0 < held_out <= len(days) - 14:
        raise InputError(f"held_out: expected 1 to {len(days) - 14} days, so that two weeks remain; got {held_out}.")
    if not is_whole(repeats) or repeats < 0 or (repeats and world.outcome_again is None):
        raise InputError(f"repeats: expected 0, or more in a simulated city; got {repeats}.")
    if not 0 <= moves_share <= 1:
        raise InputError(f"moves_share: expected a share of the fleet, from 0 to 1; got {moves_share}.")
    read_switch(returns, "returns")
    tell = progress or (lambda _: None)
    rows = []
    with temporary_folder() as folder:
        tell("Building the panel of the first days.")
        world.write_panel(folder / "panel.parquet", days[-held_out])
        for name in dict.fromkeys(models):  # one that is named twice counts once
            tell(f"Estimating with {name}.")
            model = LatentDemand(_OWN.get(name, name), **world.covariates, horizon=f"{held_out}d")
            model.fit(folder / "panel.parquet", folder / name, jobs=jobs, executor=executor)
            if returns:
                model.fit_returns(folder / "panel.parquet", folder / name, jobs=jobs, executor=executor)
            with open_run(folder / name, folder / "panel.parquet") as source:
                rows += list(_act(world, source, name, days[-held_out:], moves_share, draws, repeats))
    rows += [_outcome(world, day, "none", world.levels(day), repeats) for day in days[-held_out:]]
    return DecisionTest(pd.DataFrame(rows))


def observed_mean(data: ZoneData, draws: int, seed: int) -> Rates:
    """Use the mean of observed trips by hour of the week, as if every bin had had supply."""
    seen = np.isfinite(data.observed).astype(float)
    return weekly_mean(replace(data, exposure=seen, stockout=np.zeros(len(data))), draws, seed)


_OWN = {
    ALONE: replace(MODELS["exposure"], name=ALONE, uses_city=False),
    OBSERVED: ZoneModel(OBSERVED, observed_mean, "Mean of observed trips by hour of the week.", supply="none"),
}


def _act(
    world: World, source: RunSource, model: str, days: Sequence[str], share: float, draws: int, repeats: int
) -> Iterator[dict[str, Any]]:
    """Plan each day and let its riders ride."""
    ids = world.stations
    order = np.array([ids.index(zone) for zone in source.zones["zone"]])
    for day in days:
        now = world.levels(day)
        levels = Levels(now[order].astype(float), np.zeros(len(order), dtype=np.intp), "true")
        options = PlanOptions(day=day, moves=round(share * int(now.sum())), least_gain=0.0, scenarios=draws)
        plan = plan_run(source, options, levels=levels)
        stock = now.copy()
        for station in plan.stations:
            stock[order[station.number]] = station.planned
        forecast = np.zeros(len(ids))
        forecast[order[plan.rates.number]] = plan.rates.rentals.mean(axis=1).sum(axis=1) * plan.rates.hours
        yield _outcome(
            world, day, model, stock, repeats,
            moves=plan.moved,
            error=float(np.abs(forecast - world.wanted(day)).sum()),
            promised=float(plan.totals["mean"].to_dict()["planned"]),
        )  # fmt: skip


def _outcome(
    world: World,
    day: str,
    model: str,
    stock: IntArray,
    repeats: int,
    *,
    moves: int = 0,
    error: float = np.nan,
    promised: float = np.nan,
) -> dict[str, Any]:
    found = [world.outcome(day, stock)]
    if world.outcome_again is not None:
        found += [world.outcome_again(day, stock, again) for again in range(1, repeats + 1)]
    counts = {name: sum(getattr(one, name) for one in found) for name in ("turned_away", *_COUNTS)}
    means = {name: count / len(found) for name, count in counts.items()} if repeats else counts
    return {"day": day, "model": model, "moves": moves, "error": error, "promised": promised, **means}
