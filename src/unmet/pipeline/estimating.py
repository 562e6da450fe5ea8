"""From a panel's file to a run of estimates: features of the bins, the horizon in bins, the run itself."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from unmet._exceptions import FileFormatError, InputError

if TYPE_CHECKING:
    import pandas as pd

    from unmet.mobility.demand import DemandModel
    from unmet.mobility.runs import RunResult

__all__ = ["estimate_panel", "horizon_bins", "read_estimate"]

_UNITS = {"min": 1, "h": 60, "d": 24 * 60, "w": 7 * 24 * 60}


def estimate_panel(
    panel: Path,
    model: DemandModel,
    out: Path,
    *,
    weather: str | os.PathLike[str] | None = None,
    timezone: str | None = None,
    holidays: str | None = None,
    horizon: str | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    tell: Callable[[str], None] | None = None,
) -> RunResult:
    """Estimate every zone of a panel's file, with what may explain demand.

    Parameters
    ----------
    panel : Path
        As ``unmet panel`` writes it.
    model, out, jobs, progress
        As for `unmet.mobility.runs.run_estimates`.
    weather, timezone, holidays
        As for `unmet.mobility.binfeatures.bin_features`.
    horizon : str, optional
        How far to go beyond the panel's end: ``7d``.
    tell : callable, optional
        Called with a sentence for each gap in the weather.
    """
    # Slow to import, and `unmet --help` should not be.
    from unmet.mobility.binfeatures import bin_features
    from unmet.mobility.panelfile import open_panel
    from unmet.mobility.runs import run_estimates

    with open_panel(panel) as opened:
        features = bin_features(opened, weather=weather, timezone=timezone, holidays=holidays)
        steps = horizon_bins(horizon, usual_minutes(opened.bins()))
    for gap in features.gaps.itertuples():
        if tell is not None:
            tell(f"No {gap.column} for {gap.bins} bins from {gap.first:%Y-%m-%d %H:%M} UTC on.")
    provenance = {
        "weather": None if weather is None else str(weather),
        "holidays": holidays,
        "weather_gaps": features.gaps.to_dict("records"),
        "weather_quality": features.quality.to_dict("records"),
    }
    return run_estimates(
        panel,
        model,
        out,
        features=features.frame,
        jobs=jobs,
        horizon=steps,
        progress=progress,
        provenance=provenance,
    )


def usual_minutes(bins: pd.DataFrame) -> int:
    """The usual length of a panel's bins."""
    return int(bins["minutes"].mode().iloc[0])


def horizon_bins(horizon: str | None, minutes: int) -> int:
    """How many bins a length of time is.

    Examples
    --------
    >>> horizon_bins("7d", 60)
    168
    """
    if horizon is None:
        return 0
    match = re.fullmatch(r"(\d+)\s*(min|h|d|w)", horizon.strip())
    if match is None:
        raise InputError(f"horizon: expected a length of time such as 12h, 7d or 2w, got {horizon!r}.")
    bins, rest = divmod(int(match[1]) * _UNITS[match[2]], minutes)
    if rest:
        raise InputError(f"horizon: {horizon} is not a whole number of the panel's bins of {minutes} minutes.")
    return bins


def read_estimate(out: Path) -> RunResult:
    """Read back what a finished run has left in its folder."""
    from unmet.mobility.runfiles import read_info, read_table
    from unmet.mobility.runs import RunResult

    told = read_info(out)
    if told is None:
        raise FileFormatError(f"{out}: there is no run.json: this is not the folder of a finished run.")
    failures = {failure["zone"]: failure["reason"] for failure in told["failures"]}
    return RunResult(out, read_table(out / "zones.parquet"), read_table(out / "totals.parquet"), failures, told)
