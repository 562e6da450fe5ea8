"""Records → panel → estimate → report in one go."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import unmet
from unmet._exceptions import InputError, MissingExtraError
from unmet.mobility.panel.options import PANEL_OPTIONS, PanelOptions
from unmet.pipeline.events import Event, Progress, Stage
from unmet.pipeline.settings import PANEL_SETTINGS, RunSettings, panel_options

if TYPE_CHECKING:
    from unmet.mobility.demand import LatentDemand
    from unmet.mobility.runs.run import RunResult
    from unmet.pipeline.stages import Work

__all__ = ["RunOutcome", "run"]

PANEL, ESTIMATE, REPORT = "panel", "estimate", "report"
OUTPUTS = {
    PANEL: ("panel.parquet",),
    ESTIMATE: tuple(
        f"estimate/{name}"
        for name in ("demand.parquet", "zones.parquet", "totals.parquet", "system.parquet", "run.json")
    ),
    REPORT: ("report.html",),
}
# Settings that change what a stage gives; the others (jobs, memory) only change how.
_DECIDES = {
    PANEL: tuple(setting for option, setting in PANEL_SETTINGS.items() if PANEL_OPTIONS[option].changes_panel),
    ESTIMATE: ("timezone", "weather_columns", "holidays", "model", "horizon", "seed", "draws"),
    REPORT: ("title",),
}


@dataclass(frozen=True)
class RunOutcome:
    """What a run has left in its folder.

    Attributes
    ----------
    settings : RunSettings
        What it was made from.
    stages : tuple of Stage
        Panel, estimate, report.
    panel : dict
        The panel's summary: period, zones, trips used, minutes by state and the like.
    estimate : RunResult
        The estimates; zones that failed are in its ``failures``.
    """

    settings: RunSettings
    stages: tuple[Stage, ...]
    panel: dict[str, Any]
    estimate: RunResult

    @property
    def report(self) -> Path:
        """The page."""
        return self.stages[-1].path

    def to_dict(self) -> dict[str, Any]:
        """What ``unmet run --json`` prints."""
        info = self.estimate.info
        return {
            "unmet": unmet.__version__,
            "out": str(self.settings.out),
            "report": str(self.report),
            "stages": [{**asdict(stage), "path": str(stage.path)} for stage in self.stages],
            "settings": {**asdict(self.settings), "out": str(self.settings.out)},
            "panel": self.panel,
            **{key: info[key] for key in ("zones", "totals", "failures", "notes", "costs")},
        }


def run(settings: RunSettings, *, progress: Progress | None = None) -> RunOutcome:
    """Go from records to a report.

    Parameters
    ----------
    settings : RunSettings
        See `unmet.pipeline.make_settings` for those of a file.
    progress : callable, optional
        See `Progress`.

    Returns
    -------
    RunOutcome
        Zones that could not be estimated are in its ``estimate.failures``.

    Raises
    ------
    InputError
        Where something given is not what was expected; what was in the folder before is as it was.

    Examples
    --------
    >>> import tempfile
    >>> from unmet.simulate import simulate_city
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     city = simulate_city(stations=2, days=15, seed=1).save(f"{folder}/city")
    ...     settings = RunSettings(
    ...         trips=(f"{city}/trips.parquet",), status=(f"{city}/status.parquet",),
    ...         stations=(f"{city}/stations.csv",), timezone="America/New_York",
    ...         model="weekly-mean", jobs=1, out=Path(folder) / "out",
    ...     )
    ...     first, again = run(settings), run(settings)
    >>> [stage.reused for stage in first.stages], [stage.reused for stage in again.stages]
    ([False, False, False], [True, True, True])
    """
    from unmet.mobility.runs.run import read_run
    from unmet.pipeline.stages import working_in

    estimator = _check(settings)
    files = _input_files(settings)
    with working_in(settings.out, progress or (lambda event: None)) as work:

        def stage(name: str, make: Callable[[], None], after: Sequence[str] = ()) -> Path:
            chosen = {key: getattr(settings, key) for key in _DECIDES[name]}
            return work.stage(name, OUTPUTS[name], chosen, files[name], make, after)

        panel = stage(PANEL, lambda: _make_panel(settings, work)) / "panel.parquet"
        estimate = stage(ESTIMATE, lambda: _make_estimate(settings, work, panel, estimator), [PANEL]) / "estimate"
        stage(REPORT, lambda: _make_report(settings, work, panel, estimate), [PANEL, ESTIMATE])
        work.publish()
    result = read_run(settings.out / "estimate")
    return RunOutcome(settings, tuple(work.stages), _panel_summary(settings.out / "panel.parquet"), result)


def _check(settings: RunSettings) -> LatentDemand:
    """Find what makes no sense before hours of work."""
    import pandas as pd

    from unmet.mobility.clock.horizon import horizon_bins
    from unmet.mobility.demand import LatentDemand
    from unmet.mobility.features.bins import read_weather
    from unmet.mobility.features.covariates import add_holidays
    from unmet.report.tables import check_truth

    if find_spec("plotly") is None:
        raise MissingExtraError("plotly", "report", "Reports")
    PanelOptions(**panel_options(settings))
    horizon_bins(settings.horizon, 1)
    if settings.jobs is not None and settings.jobs < 1:
        raise InputError(f"jobs: expected a whole number of at least 1, got {settings.jobs}.")
    if settings.holidays is not None:
        country, _, subdivision = settings.holidays.partition(":")
        some_day = pd.DataFrame({"start_local": [pd.Timestamp("2024-01-01")]})
        add_holidays(some_day, country, subdivision or None)
    if settings.weather is not None:
        read_weather(settings.weather, settings.timezone, settings.weather_columns)
    elif settings.weather_columns:
        raise InputError("weather_columns: columns were chosen, but there is no weather to choose from (--weather).")
    if settings.truth is not None:
        check_truth(Path(settings.truth))
    names = ("model", "draws", "seed", "weather", "weather_columns", "timezone", "holidays", "horizon")
    return LatentDemand(**{name: getattr(settings, name) for name in names})


def _input_files(settings: RunSettings) -> dict[str, dict[str, list[Path]]]:
    """The files that each stage reads, by what they are."""
    from unmet.mobility.records.files import expand

    panel = {
        name: expand(list(getattr(settings, name)), name)
        for name in ("trips", "status", "stations")
        if getattr(settings, name)
    }
    points = settings.zones.removeprefix("superhubs:").rpartition(":")[0] if ":" in settings.zones else settings.zones
    if Path(points).is_file():
        panel["zones"] = [Path(points)]
    estimate = {} if settings.weather is None else {"weather": expand(settings.weather, "weather")}
    report = {} if settings.truth is None else {"truth": [Path(settings.truth)]}
    out = settings.out.resolve()
    for name, files in {**panel, **estimate, **report}.items():
        inside = next((file for file in files if out in file.resolve().parents), None)
        if inside is not None:
            raise InputError(
                f"{inside}: is in the folder of the results, {settings.out}, and taken for {name}. "
                "Name another folder with --out, or files that are not in it."
            )
    return {PANEL: panel, ESTIMATE: estimate, REPORT: report}


def _make_panel(chosen: RunSettings, work: Work) -> None:
    from unmet.mobility.panel.build import write_panel

    write_panel(
        work.aside / "panel.parquet",
        list(chosen.trips) or None,
        list(chosen.status) or None,
        list(chosen.stations) or None,
        progress=lambda step: work.tell(Event(PANEL, "step", step)),
        **panel_options(chosen),
    )


def _make_estimate(chosen: RunSettings, work: Work, panel: Path, estimator: LatentDemand) -> None:
    from unmet._storage.writing import write_text, writing

    result = estimator.fit(
        panel,
        work.aside / "estimate",
        jobs=chosen.jobs,
        progress=lambda done, zones, note: work.tell(Event(ESTIMATE, "zones", note, done, zones)),
        tell=lambda note: work.tell(Event(ESTIMATE, "note", note)),
    )
    if any(failure["retry"] for failure in result.info["failures"]):
        work.once.add(ESTIMATE)  # a worker was lost: the same command tries its zones again
    # Where the panel will be, not where it is now.
    told = {**result.info, "panel_path": str(work.out / "panel.parquet")}
    with writing(work.out):
        write_text(result.out / "run.json", json.dumps(told, indent=2, default=str) + "\n")


def _make_report(chosen: RunSettings, work: Work, panel: Path, estimate: Path) -> None:
    from unmet._storage.writing import writing
    from unmet.report import write_report

    work.tell(Event(REPORT, "step", "writing the page"))
    with writing(work.out):
        write_report(
            estimate,
            work.aside / "report.html",
            panel=panel,
            title=chosen.title,
            truth=None if chosen.truth is None else Path(chosen.truth),
            progress=lambda done, zones: work.tell(Event(REPORT, "step", f"drawing zone {done} of {zones}")),
        )


def _panel_summary(panel: Path) -> dict[str, Any]:
    from unmet.mobility.panel.file import open_panel

    with open_panel(panel) as opened:
        return dict(opened.metadata["summary"])
