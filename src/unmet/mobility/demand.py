"""The latent demand of a whole city: from a panel to what was wanted, and lost, in every zone and bin."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from unmet._storage.parquet import write_parquet
from unmet.execution import Executor, in_processes
from unmet.mobility.clock.horizon import horizon_bins, usual_minutes
from unmet.mobility.features.bins import BinFeatures, bin_features
from unmet.mobility.models.city import learn_shared_of_rows
from unmet.mobility.models.zone_estimate import DemandModel, ZoneEstimate, estimate_zone
from unmet.mobility.panel.build import Panel
from unmet.mobility.panel.file import open_panel
from unmet.mobility.records.files import Given
from unmet.mobility.runs.joining import join_zones
from unmet.mobility.runs.run import Progress, RunResult, run_estimates

__all__ = ["DemandModel", "LatentDemand", "ZoneEstimate", "estimate_zone"]


@dataclass(frozen=True)
class LatentDemand:
    """Estimates of demand for every zone of a panel.

    The default model suits the panel's bins. Up to a day: negative binomial counts with exposure, whose log-rate has a
    weekly and a daily pattern, the daily one drifting, a slow trend, holidays and weather. A day and more: the same
    without the daily pattern. Where there are eight zones or more, what they share is learnt first, from all of them
    together, and each zone then learns how it differs. Priors are weakly informative, so that a thousand fits need no
    nursing.

    Parameters
    ----------
    model : str
        ``exposure`` (default), ``cgp``, ``ncgp``, ``ncgp-a``, ``tobit``; or a baseline that anyone should beat:
        ``observed``, ``weekly-mean``, ``drop-censored``.
    draws : int
        Joint posterior draws behind the intervals of totals.
    seed : int
        The same seed gives the same numbers.
    walk : str or tuple of float
        As of `unmet.mobility.models.zone_estimate.DemandModel`.
    weather : path or frame, optional
        A table with a time and numbers.
    weather_columns : sequence of str, optional
        Which of its columns to use; all unless given.
    timezone : str, optional
        Of naive times in `weather`; the panel's unless given.
    holidays : str, optional
        Public holidays of a country or a part of it: ``US``, ``US:NY``.
    horizon : str, optional
        Go on beyond the panel's end by so much: ``7d``, ``12h``.

    Examples
    --------
    >>> from unmet.execution import serially
    >>> start = pd.date_range("2024-01-01", periods=336, freq="h", tz="UTC")
    >>> panel = pd.DataFrame({"zone": "a", "start": start, "start_local": start.tz_localize(None), "minutes": 60})
    >>> panel["observed"] = 2
    >>> for state in ("stockout", "closed", "unknown"):
    ...     panel[f"{state}_minutes"] = 0
    >>> panel.loc[100, "stockout_minutes"] = 30
    >>> panel["available_minutes"] = 60 - panel["stockout_minutes"]
    >>> panel["exposure"], panel["censored"] = panel["available_minutes"] / 60, panel["stockout_minutes"] > 0
    >>> result = LatentDemand("weekly-mean").fit(panel, executor=serially)
    >>> result.demand().loc[[99, 100], ["observed", "exposure", "demand_mean"]].round(1)
         observed  exposure  demand_mean
    99        2.0       1.0          2.0
    100       2.0       0.5          3.3
    >>> result.zones[["zone", "status", "observed"]]
      zone status  observed
    0    a     ok     672.0
    """

    model: str = "exposure"
    _: KW_ONLY
    draws: int = 400
    seed: int = 0
    walk: str | tuple[float, ...] = "learn"
    weather: Given = None
    weather_columns: Sequence[str] | None = None
    timezone: str | None = None
    holidays: str | None = None
    horizon: str | None = None

    def __post_init__(self) -> None:
        self.settings()  # raises where there is no such model

    def settings(self) -> DemandModel:
        """The model and how it is run, without what it is fed."""
        return DemandModel(self.model, self.draws, self.seed, self.walk)

    def fit(
        self,
        panel: str | os.PathLike[str] | pd.DataFrame | Panel,
        out: str | os.PathLike[str] | None = None,
        *,
        jobs: int | None = None,
        executor: Executor = in_processes,
        progress: Progress | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> RunResult:
        """Estimate every zone.

        Parameters
        ----------
        panel : path, Panel or DataFrame
            A panel's Parquet file, what `unmet.mobility.panel.build_panel` gives, or rows alone, which do not know
            their time zone. Nothing in memory is changed.
        out : path, optional
            Folder of the run. A run that is stopped goes on where it was when the same is asked for again. Without a
            folder nothing is kept but what is returned.
        jobs : int, optional
            Worker processes; as many as processors unless given.
        executor : callable
            Where the work is done: see `unmet.execution`.
        progress : callable, optional
            Called as ``progress(done, zones, note)``.
        tell : callable, optional
            Called with a sentence for each gap in the weather and each finding about it, before the work begins.

        Returns
        -------
        RunResult
            With the tables ``zones`` and ``totals``, and ``demand()``. A zone that could not be estimated is in its
            ``failures``.
        """
        with tempfile.TemporaryDirectory(prefix="unmet-") as folder:
            path = Path(folder) / "panel.parquet"
            if isinstance(panel, Panel):
                panel.save(path)
            elif isinstance(panel, pd.DataFrame):
                write_parquet(panel, path)
            with open_panel(path if isinstance(panel, pd.DataFrame | Panel) else panel) as file:
                steps = horizon_bins(self.horizon, usual_minutes(file.bins()))
                features = bin_features(
                    file,
                    weather=self.weather,
                    weather_columns=self.weather_columns,
                    timezone=self.timezone,
                    holidays=self.holidays,
                    horizon=steps,
                )
            if tell is not None:
                for note in _notes(features):
                    tell(note)
            result = run_estimates(
                panel,
                self.settings(),
                Path(folder) / "run" if out is None else out,
                features=features.frame,
                jobs=jobs,
                horizon=steps,
                share=learn_shared_of_rows if self.model == "exposure" else None,
                join=join_zones if self.model == "exposure" else None,
                executor=executor,
                progress=progress,
                provenance=self._provenance(features),
            )
            return replace(result, rows=result.demand()) if out is None else result

    def _provenance(self, features: BinFeatures) -> dict[str, Any]:
        path = isinstance(self.weather, str | os.PathLike)
        return {
            "weather": str(self.weather) if path else None if self.weather is None else type(self.weather).__name__,
            "weather_columns": list(features.weather),
            "holidays": self.holidays,
            "weather_gaps": features.gaps.to_dict("records"),
            "weather_quality": features.quality.to_dict("records"),
        }


def _notes(features: BinFeatures) -> list[str]:
    """What to know of the weather before it is used."""
    gaps = features.gaps.itertuples()
    notes = [f"Weather columns: {', '.join(features.weather)}."] if features.weather else []
    notes += [f"No {gap.column} for {gap.bins} bins from {gap.first:%Y-%m-%d %H:%M} UTC on." for gap in gaps]
    for row in features.quality.query("reason != 'read'").to_dict("records"):
        rows = f"{row['rows']:,} {'row' if row['rows'] == 1 else 'rows'}"
        if row["reason"] == "column without numbers":
            rows = "not used"
        notes.append(f"Weather, {row['action']}: {row['reason']}, {rows}. {row['detail'] or ''}".strip())
    return notes
