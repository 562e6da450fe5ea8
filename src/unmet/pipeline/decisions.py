"""Decisions of several models, acted on in a simulated city: the riders who are turned away are counted.

Each model learns from the first days of the city's records. It then plans the moves of each of the last days, from the
levels at midnight and its forecast, with the same fleet and number of moves for all models. The riders of that day,
who are the same for all, ride from the planned levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._storage.temporary import temporary_folder
from unmet._storage.writing import replacing_files, writing
from unmet._typing import IntArray
from unmet.execution import Executor, in_processes
from unmet.mobility.demand import LatentDemand
from unmet.mobility.models.baselines import weekly_mean
from unmet.mobility.models.rates import Rates
from unmet.mobility.models.registry import MODELS, ZoneModel
from unmet.mobility.models.zone_data import ZoneData
from unmet.mobility.panel import write_panel
from unmet.mobility.planning import Levels, PlanOptions
from unmet.report.source import RunSource, open_run
from unmet.report.targets import plan_run
from unmet.simulate import City
from unmet.simulate.days import ride_day

__all__ = ["DECISION_MODELS", "DecisionTest", "compare_decisions", "observed_mean"]

OBSERVED, ALONE = "observed-mean", "exposure-alone"
DECISION_MODELS = (OBSERVED, "weekly-mean", ALONE, "exposure")
"""Models that are compared: means of observed trips, of trips over exposure, each zone by itself, the city as one."""


@dataclass(frozen=True)
class DecisionTest:
    """Riders turned away after the plans of several models.

    Attributes
    ----------
    days : pandas.DataFrame
        One row per day and model: ``day, model, moves, promised, turned_away, no_bike, no_dock, lost, wanted``. The
        model ``none`` moves nothing.
    """

    days: pd.DataFrame

    def summary(self) -> pd.DataFrame:
        """Sum over days by model, with the ratio to ``observed-mean`` and of promised to actual riders turned away."""
        sums = self.days.groupby("model", sort=False)[
            ["moves", "promised", "turned_away", "no_bike", "no_dock", "lost", "wanted"]
        ].sum()
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
    city: City,
    *,
    models: Sequence[str] = DECISION_MODELS,
    held_out: int = 7,
    moves_share: float = 0.25,
    returns: bool = False,
    draws: int = 200,
    jobs: int | None = None,
    executor: Executor = in_processes,
    progress: Callable[[str], None] | None = None,
) -> DecisionTest:
    """Plan the last days of a simulated city with several models, and count the riders turned away.

    Parameters
    ----------
    city : City
        The city. Its records end where the held-out days begin.
    models : sequence of str
        Names of models; ``exposure-alone`` is ``exposure`` with each zone by itself, and
        ``observed-mean`` the mean of observed trips by hour of the week.
    held_out : int
        Number of last days to plan.
    moves_share : float
        Vehicles that may be moved, as a share of the fleet.
    returns : bool
        Whether each model estimates returns too; otherwise all use the recorded returns by hour of the week.
    draws : int
        Scenarios of each plan.
    jobs, executor
        As of `LatentDemand.fit`.
    progress : callable, optional
        Called with a sentence before each step.
    """
    days = sorted(set(city.settings.hours().strftime("%Y-%m-%d")))
    if not 0 < held_out <= len(days) - 14:
        raise InputError(f"held_out: expected 1 to {len(days) - 14} days, so that two weeks remain; got {held_out}.")
    tell = progress or (lambda _: None)
    rows = []
    with temporary_folder() as folder:
        tell("Building the panel of the first days.")
        write_panel(
            folder / "panel.parquet",
            city.trips,
            city.status,
            city.stations,
            timezone=city.settings.timezone,
            end=str(days[-held_out]),
        )
        for name in models:
            tell(f"Estimating with {name}.")
            model = _model(name, city, held_out)
            model.fit(folder / "panel.parquet", folder / name, jobs=jobs, executor=executor)
            if returns:
                model.fit_returns(folder / "panel.parquet", folder / name, jobs=jobs, executor=executor)
            with open_run(folder / name, folder / "panel.parquet") as source:
                rows += list(_act(city, source, name, days[-held_out:], moves_share, draws))
    rows += [_outcome(city, day, "none", _levels(city, day), 0, np.nan) for day in days[-held_out:]]
    return DecisionTest(pd.DataFrame(rows))


def _model(name: str, city: City, held_out: int) -> LatentDemand:
    """The model with a forecast of the held-out days, whose weather is known."""
    return LatentDemand(_OWN.get(name, name), weather=city.weather, holidays="US", horizon=f"{held_out}d")


def observed_mean(data: ZoneData, draws: int, seed: int) -> Rates:
    """Use the mean of observed trips by hour of the week, as if every bin had had supply."""
    seen = np.isfinite(data.observed).astype(float)
    return weekly_mean(replace(data, exposure=seen, stockout=np.zeros(len(data))), draws, seed)


_OWN = {
    ALONE: replace(MODELS["exposure"], name=ALONE, uses_city=False),
    OBSERVED: ZoneModel(OBSERVED, observed_mean, "Mean of observed trips by hour of the week.", supply="none"),
}


def _act(
    city: City, source: RunSource, model: str, days: Sequence[str], share: float, draws: int
) -> Iterator[dict[str, Any]]:
    """Plan each day and let its riders ride."""
    ids = city.stations["station_id"].tolist()
    order = np.array([ids.index(zone) for zone in source.zones["zone"]])
    for day in days:
        now = _levels(city, day)
        levels = Levels(now[order].astype(float), np.zeros(len(order), dtype=np.intp), "true")
        options = PlanOptions(day=day, moves=round(share * int(now.sum())), least_gain=0.0, scenarios=draws)
        plan = plan_run(source, options, levels=levels)
        stock = now.copy()
        for station in plan.stations:
            stock[order[station.number]] = station.planned
        promised = float(plan.totals["mean"].to_dict()["planned"])
        yield _outcome(city, day, model, stock, plan.moved, promised)


def _levels(city: City, day: str) -> IntArray:
    """Rentable vehicles at each station at midnight."""
    midnight = pd.Timestamp(day, tz=city.settings.timezone)
    before = city.states[city.states["time"] <= midnight].groupby("station_id")["rentable"].last()
    return np.asarray(before.reindex(city.stations["station_id"]).to_numpy(dtype=np.intp))


def _outcome(city: City, day: str, model: str, stock: IntArray, moves: int, promised: float) -> dict[str, Any]:
    found = ride_day(city.settings, day, stock.tolist())
    counts = {"turned_away": found.turned_away, **asdict(found)}
    return {"day": day, "model": model, "moves": moves, "promised": promised, **counts}
