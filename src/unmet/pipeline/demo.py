"""Run the pipeline on a simulated city and compare the estimates with its true demand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmet.pipeline.events import Progress
from unmet.pipeline.running import RunOutcome, run
from unmet.pipeline.settings import RunSettings

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Demo", "run_demo"]

_TIMEZONE = "America/New_York"


@dataclass(frozen=True)
class Demo:
    """Result of the demonstration.

    Attributes
    ----------
    outcome : RunOutcome
        The run.
    zones : pandas.DataFrame
        One row per zone: ``zone, name, observed, demand_mean, demand_q05, demand_q95, demand_true`` and
        likewise ``lost_*``.
    system : dict
        The same for the whole city.
    """

    outcome: RunOutcome
    zones: pd.DataFrame
    system: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the document that ``unmet demo --json`` prints."""
        return {**self.outcome.to_dict(), "truth": {"system": self.system, "zones": self.zones.to_dict("records")}}


def run_demo(
    out: Path,
    *,
    stations: int = 16,
    days: int = 77,  # the next day is an ordinary Monday, so the page begins with a plan to act on
    seed: int = 1,
    jobs: int | None = None,
    model: str = "exposure",
    progress: Progress | None = None,
) -> Demo:
    """Simulate a city into ``out/city``, run the pipeline on its records, and compare with its true demand.

    Parameters
    ----------
    out : Path
        Folder for the city and the results; created if missing.
    stations, days, seed : int
        Size and random seed of the city.
    jobs, model, progress
        As for `unmet.pipeline.run`.
    """
    from unmet.simulate import simulate_city

    city = simulate_city(stations=stations, days=days, seed=seed, timezone=_TIMEZONE)
    # Equal settings give equal bytes, so stages of an earlier demo are reused.
    folder = city.save(out / "city", overwrite=True)
    settings = RunSettings(
        out=out / "run",
        trips=(str(folder / "trips.parquet"),),
        status=(str(folder / "status.parquet"),),
        stations=(str(folder / "stations.csv"),),
        timezone=_TIMEZONE,
        weather=str(folder / "weather.csv"),
        holidays="US",
        model=model,
        jobs=jobs,
        title=f"A simulated city of {stations} stations",
        truth=str(folder / "truth.parquet"),
    )
    outcome = run(settings, progress=progress)
    zones = outcome.estimate.zones.merge(_truth(city.truth, outcome), on="zone", how="left")
    quantities = [f"{name}_{q}" for name in ("demand", "lost") for q in ("mean", "q05", "q95", "true")]
    totals = outcome.estimate.info["totals"]
    system = {
        "observed": totals["observed"]["mean"],
        **{f"{name}_{q}": totals[name][q] for name in ("demand", "lost") for q in ("mean", "q05", "q95")},
        "demand_true": float(zones["demand_true"].sum()),
        "lost_true": float(zones["lost_true"].sum()),
    }
    return Demo(outcome, zones[["zone", "name", "observed", *quantities]], system)


def _truth(wanted: pd.DataFrame, outcome: RunOutcome) -> pd.DataFrame:
    """Count trips wanted and lost at each open station within the panel's period."""
    import pandas as pd

    begin, end = (
        pd.Timestamp(outcome.panel[edge]).tz_localize(_TIMEZONE, ambiguous=True)
        for edge in ("start_local", "end_local")
    )
    within = wanted[(wanted["wanted_at"] >= begin) & (wanted["wanted_at"] < end) & (wanted["fate"] != "closed")]
    by_zone = within.groupby("station_id")["fate"]
    lost = by_zone.agg(lambda fates: int((fates == "lost").sum()))
    return pd.DataFrame({"demand_true": by_zone.size(), "lost_true": lost}).rename_axis("zone").reset_index()
