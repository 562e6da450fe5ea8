"""The latent demand of a whole city: from a panel to the demand and lost trips of every zone and bin."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from unmet._exceptions import UninformativeWarning
from unmet._storage.temporary import temporary_folder
from unmet.execution import Executor, in_processes
from unmet.mobility.clock.horizon import bins_ahead
from unmet.mobility.features.bins import BinFeatures, bin_features
from unmet.mobility.models.city import learn_city_from_rows
from unmet.mobility.models.registry import DEFAULT_DRAWS, DEFAULT_MODEL, ZoneModel, find_model
from unmet.mobility.models.walking import read_curve
from unmet.mobility.models.zone_estimate import DemandModel, ZoneEstimate, estimate_zone
from unmet.mobility.panel.opening import AnyPanel, opened
from unmet.mobility.panel.returns import write_returns_panel
from unmet.mobility.records.files import Given
from unmet.mobility.runs.joining import join_zones
from unmet.mobility.runs.run import Progress, RunResult, run_estimates

__all__ = ["RETURNS", "DemandModel", "LatentDemand", "ZoneEstimate", "ZoneModel", "estimate_zone"]

RETURNS = "returns"
"""Folder of the run of returns within the folder of a run."""


@dataclass(frozen=True)
class LatentDemand:
    """Estimates of demand for every zone of a panel.

    The default model, ``exposure``, is a negative binomial model of counts with exposure. Its log-rate has a weekly
    pattern, a daily pattern that may drift (for bins shorter than a day), a slow trend, holidays and weather. With
    eight zones or more, a model of the whole city is learnt first, and each zone then learns how it differs from it.
    Priors are weakly informative, so that many zones can be fitted unattended.

    Parameters
    ----------
    model : str or ZoneModel
        Name of a model: ``exposure`` (default), ``cgp``, ``share``, ``ncgp``, ``ncgp-a``, ``tobit``, or of a baseline:
        ``observed``, ``weekly-mean``, ``drop-censored``. Or a model of one's own:
        see `unmet.mobility.models.registry.ZoneModel`.
    draws : int
        Number of joint posterior draws, from which the intervals of totals are made.
    seed : int
        The same seed gives the same numbers.
    walk : str, path or tuple of float
        Riders who find a zone empty and walk on: ``learn`` (from the records), ``none``, a CSV file with columns
        ``metres`` and ``chance``, or the chances to walk 0, 150, 250, 350 and 500 metres, falling.
    weather : path or frame, optional
        A table with a time and numbers.
    weather_columns : sequence of str, optional
        Columns of the weather to use, at least one; all by default.
    timezone : str, optional
        Time zone of naive times in `weather`; that of the panel by default.
    holidays : str, optional
        Public holidays of a country or a part of it: ``US``, ``US:NY``.
    horizon : str, optional
        Time to estimate after the panel's end: ``7d``, ``12h``.
    executor : callable
        Where the work is done: processes of this machine by default, or `unmet.engines.spark.OnSpark`; see
        `unmet.execution`.

    Examples
    --------
    >>> import pandas as pd
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

    model: str | ZoneModel = DEFAULT_MODEL
    _: KW_ONLY
    draws: int = DEFAULT_DRAWS
    seed: int = 0
    walk: str | os.PathLike[str] | tuple[float, ...] = "learn"
    weather: Given = None
    weather_columns: Sequence[str] | None = None
    timezone: str | None = None
    holidays: str | None = None
    horizon: str | None = None
    executor: Executor = in_processes

    def __post_init__(self) -> None:
        self.settings()  # raises if there is no such model

    def settings(self) -> DemandModel:
        """Give the model and its settings, without the features."""
        model = find_model(self.model)
        walk = os.fspath(self.walk) if isinstance(self.walk, os.PathLike) else self.walk
        if isinstance(walk, str) and walk.lower().endswith(".csv"):
            walk = read_curve(Path(walk))
        return DemandModel(model.name, self.draws, self.seed, model, walk)

    def fit(
        self,
        panel: AnyPanel,
        out: str | os.PathLike[str] | None = None,
        *,
        jobs: int | None = None,
        executor: Executor | None = None,
        progress: Progress | None = None,
        tell: Callable[[str], None] | None = None,
        base: str | os.PathLike[str] | None = None,
        prepare: bool = False,
    ) -> RunResult:
        """Estimate every zone.

        Parameters
        ----------
        panel : path, PanelFile, Panel or DataFrame
            A panel's Parquet file, which may be open already, a panel of `unmet.mobility.panel.build_panel`, or rows
            alone, which have no time zone. A panel in memory is not changed.
        out : path, optional
            Folder of the run. A run that was stopped resumes when it is started again. Without a folder, only the
            returned result is kept.
        jobs : int, optional
            Number of workers; one per processor by default.
        executor : callable, optional
            Where the work of this call is done, in place of the model's `executor`.
        progress : callable, optional
            Called as ``progress(done, zones, note)``.
        tell : callable, optional
            Called with a sentence for each gap and each finding in the weather, before the work begins. Without it,
            rows of the weather that were rejected or repaired give an `UninformativeWarning`.
        base : path, optional
            Folder of an earlier run of the same system, with fewer days. If its model still fits, only the last bins
            are estimated: see `unmet.mobility.runs.keeping`.
        prepare : bool
            Stop before the zones, with `unmet.mobility.runs.run.Prepared`; the next call with the same folder goes on.

        Returns
        -------
        RunResult
            With the tables ``zones`` and ``totals``, and ``demand()``. Zones that could not be estimated are in its
            ``failures``.
        """
        settings = self.settings()
        with opened(panel) as file, temporary_folder() as folder:
            steps = bins_ahead(self.horizon, file.bins(), file.timezone)
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
            else:
                for note in _findings(features.quality.query("action != 'noted'")):
                    warnings.warn(note, UninformativeWarning, stacklevel=2)
            result = run_estimates(
                file,
                settings,
                folder / "run" if out is None else out,
                features=features.frame,
                jobs=jobs,
                horizon=steps,
                learn_city=learn_city_from_rows if settings.zone_model.uses_city else None,
                join=join_zones if settings.zone_model.uses_city else None,
                executor=executor or self.executor,
                progress=progress,
                provenance=self._provenance(features),
                base=base,
                prepare=prepare,
            )
            return replace(result, rows=result.demand()) if out is None else result

    def fit_returns(
        self,
        panel: str | os.PathLike[str],
        out: str | os.PathLike[str],
        *,
        jobs: int | None = None,
        executor: Executor | None = None,
        progress: Progress | None = None,
        base: str | os.PathLike[str] | None = None,
    ) -> RunResult:
        """Estimate the returns that were wanted at every zone: full stations hide returns as empty ones hide pickups.

        The same model runs on the panel of returns (`unmet.mobility.panel.returns`). Riders who find no dock ride on,
        with a curve of their own.

        Parameters
        ----------
        panel : path
            A panel file.
        out : path
            Folder of the run of pickups. The run of returns is in its subfolder ``returns``.
        jobs, executor, progress, base
            As of `fit`; `base` is the folder of an earlier run of returns.
        """
        folder = Path(out) / RETURNS
        folder.mkdir(parents=True, exist_ok=True)
        of_returns = write_returns_panel(Path(panel), folder / "panel.parquet")
        # What is odd about the weather was told with the pickups.
        return self.fit(
            of_returns, folder, jobs=jobs, executor=executor, progress=progress, tell=lambda _: None, base=base
        )

    def _provenance(self, features: BinFeatures) -> dict[str, Any]:
        path = isinstance(self.weather, str | os.PathLike)
        return {
            "weather": str(self.weather) if path else None if self.weather is None else type(self.weather).__name__,
            "weather_columns": list(features.weather),
            "holidays": self.holidays,
            "weather_gaps": features.gaps.to_dict("records"),
            "weather_by_week": features.by_week,
            "weather_by_day": features.by_day,
            "weather_quality": features.quality.to_dict("records"),
        }


def _notes(features: BinFeatures) -> list[str]:
    """Describe the weather that is used, its gaps and its findings."""
    gaps = features.gaps.itertuples()
    notes = [f"Weather columns: {', '.join(features.weather)}."] if features.weather else []
    notes += [
        f"No {gap.column} for {gap.bins} bins from {gap.first:%Y-%m-%d %H:%M} UTC on: "
        "the usual value of the season and hour is used."
        for gap in gaps
    ]
    return notes + _findings(features.quality.query("reason != 'read'"))


def _findings(quality: pd.DataFrame) -> list[str]:
    notes = []
    for row in quality.to_dict("records"):
        rows = f"{row['rows']:,} {'row' if row['rows'] == 1 else 'rows'}"
        if row["reason"] == "column without numbers":
            rows = "not used"
        notes.append(f"Weather, {row['action']}: {row['reason']}, {rows}. {row['detail'] or ''}".strip())
    return notes
