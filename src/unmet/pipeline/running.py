"""Run the stages panel, estimate, returns (if chosen) and report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import unmet
from unmet._exceptions import InputError, MissingExtraError
from unmet._storage.files import real_path
from unmet.engines import find_executor
from unmet.execution import count_workers, describe_executor
from unmet.mobility.panel.options import PANEL_OPTIONS, PanelOptions
from unmet.pipeline.events import Event, Progress, Stage
from unmet.pipeline.settings import PANEL_SETTINGS, RunSettings, panel_options

if TYPE_CHECKING:
    from unmet.execution import Executor
    from unmet.mobility.demand import LatentDemand
    from unmet.mobility.panel.file import PanelFile
    from unmet.mobility.runs.run import RunResult
    from unmet.pipeline.stages import Work

__all__ = ["RunOutcome", "run"]

PANEL, ESTIMATE, RETURNS, REPORT = "panel", "estimate", "returns", "report"
_TABLES = ("demand.parquet", "zones.parquet", "totals.parquet", "system.parquet", "draws.npz", "run.json", "kept.npz")
OUTPUTS = {
    PANEL: ("panel.parquet",),
    ESTIMATE: tuple(f"estimate/{name}" for name in _TABLES),
    RETURNS: tuple(f"estimate/returns/{name}" for name in (*_TABLES, "panel.parquet")),
    REPORT: ("report.html", "quality.json"),
}
# Settings that change the result of a stage. The others (jobs, memory) change only its speed.
_DECIDES = {
    PANEL: tuple(setting for option, setting in PANEL_SETTINGS.items() if PANEL_OPTIONS[option].changes_panel),
    ESTIMATE: ("timezone", "weather_columns", "holidays", "model", "horizon", "seed", "draws", "walk"),
    REPORT: ("title", "compare", "side"),
}
_DECIDES[RETURNS] = _DECIDES[ESTIMATE]
SIDES = ("pickups", "both")


@dataclass(frozen=True)
class RunOutcome:
    """Results of a run.

    Attributes
    ----------
    settings : RunSettings
        The settings of the run.
    stages : tuple of Stage
        Panel, estimate, returns if they are estimated, report.
    panel : dict
        The panel's summary: period, zones, trips used, minutes by state and so on.
    estimate : RunResult
        The estimates. Its ``failures`` lists zones that failed.
    """

    settings: RunSettings
    stages: tuple[Stage, ...]
    panel: dict[str, Any]
    estimate: RunResult

    @property
    def report(self) -> Path:
        """Path of the report."""
        return self.stages[-1].path

    def to_dict(self) -> dict[str, Any]:
        """Return the document that ``unmet run --json`` prints."""
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


def run(
    settings: RunSettings,
    *,
    executor: Executor | None = None,
    progress: Progress | None = None,
    prepare: bool = False,
) -> RunOutcome:
    """Build the panel, estimate demand and write the report.

    Parameters
    ----------
    settings : RunSettings
        `unmet.pipeline.make_settings` reads them from a file.
    executor : callable, optional
        Builds large panels and estimates zones, see `unmet.execution`; default: worker processes on this machine.
    progress : callable, optional
        Called with each `Event`.
    prepare : bool
        Stop before the zones are estimated, with `unmet.mobility.runs.run.Prepared`. The next run goes on from there.

    Returns
    -------
    RunOutcome
        Its ``estimate.failures`` lists zones that could not be estimated.

    Raises
    ------
    InputError
        If a setting or a file is invalid. Earlier results in the folder are not changed.

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
    from unmet.mobility.panel.file import open_panel
    from unmet.mobility.panel.returns import check_docks
    from unmet.mobility.runs.run import read_run
    from unmet.pipeline.stages import working_in

    estimator = _check(settings)
    files = _input_files(settings)
    with working_in(settings.out, progress or (lambda event: None)) as work:

        def stage(name: str, make: Callable[[], None], after: Sequence[str] = ()) -> Path:
            chosen = {key: getattr(settings, key) for key in _DECIDES[name]}
            if name == PANEL:  # the same file may give other rows to another query
                chosen |= _queries(settings) | _opening(settings)
            return work.stage(name, OUTPUTS[name], chosen, files[name], make, after)

        path = stage(PANEL, lambda: _make_panel(settings, work, executor)) / "panel.parquet"
        # Closed before it is moved to its place.
        with open_panel(path, sha256=work.content(PANEL, "panel.parquet")) as panel:
            if settings.side == "both":
                check_docks(panel)  # before hours of work on the pickups
            estimate = (
                stage(ESTIMATE, partial(_make_estimate, settings, work, panel, estimator, executor, prepare), [PANEL])
                / "estimate"
            )
            earlier, returns = [PANEL, ESTIMATE], None
            if settings.side == "both":
                make = partial(_make_returns, settings, work, path, estimator, executor)
                returns = stage(RETURNS, make, [PANEL]) / "estimate" / "returns"
                earlier.append(RETURNS)
            stage(REPORT, lambda: _make_report(settings, work, panel, estimate, returns), earlier)
            summary = dict(panel.metadata["summary"])
        work.publish()
    result = read_run(settings.out / "estimate", trust=True)  # every file was hashed just now
    return RunOutcome(settings, tuple(work.stages), summary, result)


def _check(settings: RunSettings) -> LatentDemand:
    """Check all settings before any work starts."""
    import pandas as pd

    from unmet.mobility.clock.horizon import horizon_bins
    from unmet.mobility.demand import LatentDemand
    from unmet.mobility.features.bins import read_weather
    from unmet.mobility.features.covariates import add_holidays
    from unmet.report.basemap import check_basemap
    from unmet.report.story import check_compare
    from unmet.report.tables import check_truth

    if find_spec("plotly") is None:
        raise MissingExtraError("plotly", "report", "Reports")
    if settings.side not in SIDES:
        why = " The report is of pickups: returns come with both." if settings.side == "returns" else ""
        raise InputError(f"side: expected one of {', '.join(SIDES)}; got {settings.side!r}.{why}")
    if settings.side == "both" and (settings.vehicle_type is not None or not settings.status):
        why = "for one type of vehicle are not known" if settings.status else "are not known without station status"
        raise InputError(f"side: returns cannot be estimated, as free docks {why}. Leave out --side both.")
    PanelOptions(**panel_options(settings))
    horizon_bins(settings.horizon, 1)
    count_workers(1 if settings.jobs is None else settings.jobs, find_executor(settings.engine))
    if settings.holidays is not None:
        country, _, subdivision = settings.holidays.partition(":")
        some_day = pd.DataFrame({"start_local": [pd.Timestamp("2024-01-01")]})
        add_holidays(some_day, country, subdivision or None)
    if settings.weather is not None:
        read_weather(settings.weather, settings.timezone, settings.weather_columns)
    elif settings.weather_columns is not None:
        raise InputError("weather_columns: columns were given without weather (--weather).")
    if settings.truth is not None:
        check_truth(Path(settings.truth))
    if settings.basemap is not None:
        check_basemap(Path(settings.basemap))
    check_compare(settings.compare)
    names = ("model", "draws", "seed", "walk", "weather", "weather_columns", "timezone", "holidays", "horizon")
    return LatentDemand(**{name: getattr(settings, name) for name in names})


def _input_files(settings: RunSettings) -> dict[str, dict[str, list[Path]]]:
    """Return the input files of each stage, by the setting that names them."""
    from unmet.mobility.records.databases import database_file, is_address
    from unmet.mobility.records.files import expand

    panel: dict[str, list[Path]] = {}
    for name in ("trips", "status", "stations"):
        given = list(getattr(settings, name))
        databases = [database_file(item) for item in given if is_address(item)]
        missing = next((path for path in databases if not path.is_file()), None)
        if missing is not None:
            raise InputError(f"{missing}: no such DuckDB file for {name}.")
        others = [item for item in given if not is_address(item)]
        if given:
            logs = [log for path in databases if (log := path.with_name(f"{path.name}.wal")).is_file()]
            panel[name] = [*databases, *logs, *(expand(others, name) if others else [])]
    points = settings.zones.removeprefix("superhubs:").rpartition(":")[0] if ":" in settings.zones else settings.zones
    named = {"zones": [points], "areas": [settings.areas or ""], "hours": (settings.hours or "").split(",")}
    for name, texts in named.items():  # each may be a file, or words
        found = [Path(text.strip()) for text in texts if text.strip() and Path(text.strip()).is_file()]
        if found:
            panel[name] = found
    estimate = {} if settings.weather is None else {"weather": expand(settings.weather, "weather")}
    if settings.walk.lower().endswith(".csv"):
        estimate["walk"] = expand(settings.walk, "walk")
    report = {name: [Path(path)] for name in ("truth", "basemap") if (path := getattr(settings, name)) is not None}
    out = real_path(settings.out)
    for name, files in {**panel, **estimate, **report}.items():
        inside = next((file for file in files if out in real_path(file).parents), None)
        if inside is not None:
            raise InputError(
                f"{inside}: is an input file ({name}) inside the folder of the results, {settings.out}. "
                "Use another folder with --out, or move the file."
            )
    return {PANEL: panel, ESTIMATE: estimate, RETURNS: estimate, REPORT: report}


def _queries(settings: RunSettings) -> dict[str, list[str]]:
    """Return the addresses of tables and queries in databases, by the setting that has them."""
    from unmet.mobility.records.databases import is_address

    given = {
        name: [item for item in getattr(settings, name) if is_address(item)] for name in ("trips", "status", "stations")
    }
    return {f"{name}_query": found for name, found in given.items() if found}


def _opening(settings: RunSettings) -> dict[str, str]:
    """Return a hash of the opening hours: the documents of a folder change without a change of its name."""
    from unmet.mobility.records.opening import read_opening_hours

    if settings.hours is None:
        return {}
    hours = read_opening_hours(settings.hours)
    return {"opening hours": sha256(hours.week.tobytes() + repr(hours.seasons).encode()).hexdigest()}


def _make_panel(chosen: RunSettings, work: Work, executor: Executor | None) -> None:
    from unmet.mobility.panel.build import write_panel

    executor = executor or find_executor(chosen.engine)
    describe_executor(executor)  # raises if its workers are unfit, which the estimate would find only after the panel
    earlier = work.earlier(PANEL, ("trips", "status"))
    write_panel(
        work.aside / "panel.parquet",
        list(chosen.trips) or None,
        list(chosen.status) or None,
        list(chosen.stations) or None,
        progress=lambda step: work.tell(Event(PANEL, "step", step)),
        earlier=None if earlier is None else earlier / "panel.parquet",
        executor=executor,
        jobs=count_workers(chosen.jobs, executor),
        **panel_options(chosen),
    )


def _make_estimate(
    chosen: RunSettings,
    work: Work,
    panel: PanelFile,
    estimator: LatentDemand,
    executor: Executor | None,
    prepare: bool,
) -> None:
    result = estimator.fit(
        panel,
        work.aside / "estimate",
        jobs=chosen.jobs,
        executor=executor or find_executor(chosen.engine),
        progress=lambda done, zones, note: work.tell(Event(ESTIMATE, "zones", note, done, zones)),
        tell=lambda note: work.tell(Event(ESTIMATE, "note", note)),
        base=work.out / "estimate",
        prepare=prepare,
    )
    _complete(work, ESTIMATE, result, work.out / "panel.parquet")


def _make_returns(
    chosen: RunSettings, work: Work, panel: Path, estimator: LatentDemand, executor: Executor | None
) -> None:
    result = estimator.fit_returns(
        panel,
        work.aside / "estimate",
        jobs=chosen.jobs,
        executor=executor or find_executor(chosen.engine),
        progress=lambda done, zones, note: work.tell(Event(RETURNS, "zones", note, done, zones)),
        base=work.out / "estimate" / "returns",
    )
    _complete(work, RETURNS, result, work.out / "estimate" / "returns" / "panel.parquet")


def _complete(work: Work, stage: str, result: RunResult, panel: Path) -> None:
    """Make all files of an estimate, with the path that its panel will have after publishing."""
    from unmet._storage.writing import writing
    from unmet.mobility.runs.outputs import write_info

    if any(failure["retry"] for failure in result.info["failures"]):
        work.once.add(stage)  # a worker died: the same command tries its zones again
    with writing(work.out):
        write_info(result.out / "run.json", {**result.info, "panel_path": str(panel)})
        if not (result.out / "kept.npz").exists():
            (result.out / "kept.npz").touch()  # empty: nothing is kept for a later run


def _given(chosen: RunSettings) -> list[str]:
    """Return the files of records, those of the feed first."""
    return [path for given in (chosen.status, chosen.stations, chosen.trips) for path in given or ()]


def _make_report(chosen: RunSettings, work: Work, panel: PanelFile, estimate: Path, returns: Path | None) -> None:
    from unmet._storage.writing import writing
    from unmet.report import write_report
    from unmet.report.naming import name_of_files, title_of

    work.tell(Event(REPORT, "step", "writing the report"))
    with writing(work.out):
        write_report(
            estimate,
            work.aside / "report.html",
            panel=panel,
            returns=returns,
            title=chosen.title or title_of([name_of_files(*_given(chosen), chosen.out)]),
            truth=None if chosen.truth is None else Path(chosen.truth),
            compare=chosen.compare,
            basemap=chosen.basemap,
            trust=True,  # every file was hashed just now
            quality=work.aside / "quality.json",
            progress=lambda done, zones: work.tell(Event(REPORT, "step", f"drawing zone {done} of {zones}")),
        )
