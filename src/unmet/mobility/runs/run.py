"""Runs that survive: the estimates of all zones of a panel, in parallel, to be stopped and continued at will.

Zones are estimated in chunks. Each finished chunk is on disk at once (`unmet.mobility.runs.checkpoints`).
A run that was killed continues where it was when started again, and gives the same tables to the last bit: a zone's
result depends on its own rows, what all zones share, the model and its seed, never on order, chunks or the number of
processes. What the finished chunks were computed from is summed up in a fingerprint; when the panel, the features, the
model or the version of `unmet` changes, the run starts anew and says what changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import unmet
from unmet._exceptions import FileFormatError, InputError, UnmetError
from unmet._storage.folders import describe_change
from unmet._storage.hashes import file_hash, frame_hash
from unmet._storage.parquet import read_parquet, write_parquet
from unmet._storage.seals import sealed, unsealed
from unmet._storage.writing import replacing, write_text, writing
from unmet.execution import Executor, in_processes
from unmet.mobility.clock.horizon import future_bins
from unmet.mobility.models.city import Shared
from unmet.mobility.models.joint import City, Surroundings
from unmet.mobility.models.zone_estimate import estimate_zone
from unmet.mobility.panel.build import Panel
from unmet.mobility.panel.file import PanelFile, open_panel
from unmet.mobility.runs.checkpoints import Part, read_parts, write_part
from unmet.mobility.runs.folder import RunFolder, earlier_inputs, run_folder
from unmet.mobility.runs.outputs import finished_run, publish, read_info
from unmet.mobility.runs.worker import Chunk, EstimateZone, Model, estimate_chunk

__all__ = ["RunResult", "read_run", "run_estimates"]

Progress = Callable[[int, int, str], None]
"""Called with zones finished, zones in all, and a sentence where there is something to say ('' where not)."""

Share = Callable[[Iterable[pd.DataFrame]], Shared | None]
"""From the rows of all zones to what they share, or None where that cannot be told."""

Join = Callable[..., City | None]
"""From the panel and what its zones share to the city as one: see `unmet.mobility.runs.joining.join_zones`."""

_PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "duckdb", "joblib")
# Changes when a part of today could not be read as one of tomorrow.
_FORMAT = 2


@dataclass(frozen=True)
class RunResult:
    """What a run has left in its folder.

    Attributes
    ----------
    out : pathlib.Path
        The folder: ``demand.parquet``, ``zones.parquet``, ``totals.parquet``, ``system.parquet``, ``run.json``.
    zones : pandas.DataFrame
        One row per zone: ``name`` (its station's, where the panel knows it), ``status`` (``ok``, ``failed``),
        ``reason``, minutes by state, observed, demand and lost totals with their uncertainty, and what
        the model says of itself.
    totals : pandas.DataFrame
        See `unmet.mobility.runs.totals.tabulate_totals`.
    failures : dict
        Zone → why it could not be estimated.
    info : dict
        What ``run.json`` says.
    rows : pandas.DataFrame or None
        What ``demand.parquet`` holds, where no folder was asked for; else `demand` reads it.
    """

    out: Path
    zones: pd.DataFrame
    totals: pd.DataFrame
    failures: dict[str, str]
    info: dict[str, Any]
    rows: pd.DataFrame | None = None

    def demand(self) -> pd.DataFrame:
        """Give ``demand.parquet``: one row per zone and bin."""
        return read_parquet(self.out / "demand.parquet") if self.rows is None else self.rows


def run_estimates(
    panel: str | os.PathLike[str] | pd.DataFrame | Panel,
    model: Model,
    out: str | os.PathLike[str],
    *,
    features: pd.DataFrame | None = None,
    jobs: int | None = None,
    chunk: int | None = None,
    horizon: int = 0,
    estimate: EstimateZone | None = None,
    share: Share | None = None,
    join: Join | None = None,
    executor: Executor = in_processes,
    progress: Progress | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> RunResult:
    """Estimate every zone of a panel, or go on with a run that was interrupted.

    Parameters
    ----------
    panel : path, Panel or DataFrame
        A panel's Parquet file, a panel in memory, or its rows. A frame is not changed.
    model : DemandModel
        The settings of the model.
    out : path
        The folder of the run, made if need be. Files that are there stay until the new ones are complete.
    features : DataFrame, optional
        Columns to join to every zone's rows by ``start``, one row per bin: see `unmet.mobility.features.bins`.
    jobs : int, optional
        Worker processes; as many as there are processors unless given.
    chunk : int, optional
        Zones per chunk: what is lost at most, per process, when the run is killed. By default 1 to 8.
    horizon : int
        Bins to go beyond the panel's end; `features` may have rows for them.
    estimate : callable, optional
        Estimates one zone; `unmet.mobility.models.zone_estimate.estimate_zone` unless given.
    share : callable, optional
        From the rows of all zones to what they share, which `estimate` is then given as ``shared``: see
        `unmet.mobility.models.city`. It is worked out once, before the zones.
    join : callable, optional
        Estimates the city as one before the zones, as `unmet.mobility.runs.joining.join_zones` does; each zone then
        gets its surroundings. Not used with an `estimate` of one's own.
    executor : callable
        Where the work is done: see `unmet.execution`.
    progress : callable, optional
        Called as ``progress(done, zones, note)``.
    provenance : mapping, optional
        What else ``run.json`` should tell, such as where the features come from and what they lack.

    Returns
    -------
    RunResult
        A zone that could not be estimated is in its `failures`; the others are not touched by it.

    Raises
    ------
    InputError
        Where the panel cannot be read or the folder cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from unmet.mobility.models.zone_estimate import DemandModel
    >>> from unmet.execution import serially
    >>> start = pd.date_range("2024-01-01", periods=336, freq="h", tz="UTC")
    >>> panel = pd.DataFrame({"zone": "a", "start": start, "start_local": start.tz_localize(None), "minutes": 60})
    >>> panel["observed"] = 2.0
    >>> for state in ("stockout", "closed", "unknown"):
    ...     panel[f"{state}_minutes"] = 0
    >>> panel.loc[100, "stockout_minutes"] = 30
    >>> panel["available_minutes"] = 60 - panel["stockout_minutes"]
    >>> panel["exposure"], panel["censored"] = panel["available_minutes"] / 60, panel["stockout_minutes"] > 0
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = run_estimates(panel, DemandModel("weekly-mean"), folder, executor=serially)
    >>> result.zones[["zone", "status", "observed", "stockout_minutes"]]
      zone status  observed  stockout_minutes
    0    a     ok     672.0              30.0
    """
    estimate = estimate or estimate_zone
    workers = _positive("jobs", jobs) or _processors()
    size = _positive("chunk", chunk)
    if horizon < 0:
        raise InputError(f"horizon: expected a number of bins, 0 or more; got {horizon}.")
    clock, began = datetime.now(UTC), time.monotonic()
    with ExitStack() as stack:
        place = stack.enter_context(run_folder(Path(out)))
        path = _as_file(panel, place)
        file = stack.enter_context(open_panel(path))
        if features is not None:
            file.add_features(features)
        if horizon:
            file.add_future(future_bins(file.bins(), horizon, file.timezone))
        inputs = _inputs(path, features, model, estimate, share, join, horizon)
        fingerprint = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]
        say = progress or (lambda done, zones, note: None)
        told = finished_run(place.out, fingerprint)
        if told is not None:
            say(len(file.zones), len(file.zones), "This run is finished already; nothing to do.")
            return _result(place.out, told)
        run = _Run(place, file, fingerprint, inputs, say)
        run.resume()
        shared = None if share is None else run.learn_shared(share)
        of_one = estimate if shared is None else partial(estimate, shared=shared)
        if join is not None and estimate is estimate_zone:
            run.city = run.join(join, model, shared, executor, workers)
        work = partial(estimate_chunk, estimate=of_one, model=model)
        run.work_off(work, executor, workers, size)
        info = {
            "started": clock.isoformat(timespec="seconds"),
            "wall_seconds": round(time.monotonic() - began, 3),
            "jobs": workers,
            "panel_path": None if isinstance(panel, pd.DataFrame | Panel) else str(panel),
            "provenance": dict(provenance or {}),
        }
        return run.finish(info)


def read_run(out: str | os.PathLike[str]) -> RunResult:
    """Read back what a finished run has left in its folder."""
    told = read_info(Path(out))
    if told is None:
        raise FileFormatError(f"{out}: there is no run.json: this is not the folder of a finished run.")
    return _result(Path(out), told)


@dataclass
class _Run:
    """A run under way: what is finished grows."""

    place: RunFolder
    file: PanelFile
    fingerprint: str
    inputs: dict[str, Any]
    say: Progress
    parts: list[Part] = field(default_factory=list)
    died: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    resumed: int = 0
    retried: int = 0
    learning_seconds: float = 0.0
    city: City | None = None

    @property
    def folder(self) -> Path:
        return self.place.hidden / self.fingerprint

    @property
    def finished(self) -> set[str]:
        return {zone for part in self.parts for zone in part.zones}

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.say(len(self.finished), len(self.file.zones), text)

    def resume(self) -> None:
        """Take over what an earlier attempt has finished, or say why nothing can be."""
        others = earlier_inputs(self.place, self.fingerprint)
        if self.folder.is_dir():
            self.parts, damaged = read_parts(self.folder)
            if damaged:
                self.note(f"{damaged} finished chunks were damaged on disk and are computed again.")
            self.resumed = len(self.finished)
            if self.resumed:
                self.note(f"Going on: {self.resumed} of {len(self.file.zones)} zones were finished before.")
        else:
            with writing(self.place.out), replacing(self.folder, scratch=self.place.scratch) as aside:
                aside.mkdir()
                (aside / "inputs.json").write_text(json.dumps(self.inputs, indent=2), encoding="utf-8")
            if others:
                self.note(
                    f"Starting anew: {describe_change(others[-1], self.inputs)} since the run in this folder. "
                    "Its results stay until the new ones are complete."
                )
        self.say(len(self.finished), len(self.file.zones), "")

    def learn_shared(self, share: Share) -> Shared | None:
        """Work out what all zones share, or take it from an earlier attempt."""
        path = self.folder / "shared.json"
        if path.exists():
            try:
                return Shared.from_dict(json.loads(unsealed(path)))
            except (UnmetError, ValueError, OSError):
                self.note("What the zones share was damaged on disk and is learnt again.")
        self.say(len(self.finished), len(self.file.zones), "Learning what the zones share.")
        began = time.process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                shared = share(self.file.rows_of(zone) for zone in self.file.zones)
            except MemoryError:
                raise
            except Exception as error:
                self.note(f"What the zones share could not be learnt ({error}): each is estimated by itself.")
                return None
        for said in sorted({str(w.message) for w in caught if not issubclass(w.category, DeprecationWarning)}):
            self.note(f"What the zones share: {said}")
        self.learning_seconds = time.process_time() - began
        if shared is not None:
            with writing(self.place.out):
                write_text(path, sealed(json.dumps(shared.to_dict())))
        return shared

    def join(self, join: Join, model: Model, shared: Shared | None, executor: Executor, jobs: int) -> City | None:
        """Estimate the city as one, or take it from an earlier attempt; None leaves each zone by itself."""
        began = time.process_time()
        try:
            with writing(self.place.out):
                return join(
                    self.file,
                    model,
                    shared,
                    self.folder,
                    self.place.scratch,
                    executor=executor,
                    jobs=jobs,
                    say=self.note,
                )
        except MemoryError:
            raise
        except Exception as error:
            self.note(f"The city could not be estimated as one ({error}): each zone is estimated by itself.")
            return None
        finally:
            self.learning_seconds += time.process_time() - began

    def work_off(
        self,
        work: Callable[[Chunk], Any],
        executor: Executor,
        jobs: int,
        size: int | None,
    ) -> None:
        """Work through the zones that are left; those whose worker died once more, then each by itself.

        The workers that are lost with one zone may have been at work on others. The third time, one zone is under
        way at a time, and what dies then is the culprit.
        """
        finished = self.finished
        left = [zone for zone in self.file.zones if zone not in finished]
        usual = size or max(1, min(8, len(left) // (4 * jobs)))
        for attempt, (per_chunk, at_once) in enumerate([(usual, jobs), (usual, jobs), (1, 1)]):
            chunks = [left[i : i + per_chunk] for i in range(0, len(left), per_chunk)]
            self.died = {}
            with closing(executor(work, self._load(chunks), at_once)) as outcomes:
                for chunk, outcome in outcomes:
                    self._take(chunk.zones, outcome)
            left = list(self.died)
            if attempt == 0:
                self.retried = len(left)
            if not left:
                return

    def _load(self, chunks: Sequence[Sequence[str]]) -> Iterator[Chunk]:
        for zones in chunks:
            rows = tuple(self.file.rows_of(zone) for zone in zones)
            around: tuple[Surroundings | None, ...] = ()
            if self.city is not None:
                starts = [pd.DatetimeIndex(frame["start"]) for frame in rows]
                around = tuple(self.city.of(zone, start) for zone, start in zip(zones, starts, strict=True))
            yield Chunk(tuple(zones), rows, around)

    def _take(self, zones: Sequence[str], outcome: Any) -> None:
        if isinstance(outcome, Exception):
            reason = f"{type(outcome).__name__}: {outcome}".rstrip(": ")
            self.died.update(dict.fromkeys(zones, reason))
            some = ", ".join(zones[:3]) + (" …" if len(zones) > 3 else "")
            self.note(f"The worker on {some} was lost: {reason}.")
            return
        with writing(self.place.out):
            self.parts.append(write_part(outcome, self.folder, self.place.scratch))
        self.say(len(self.finished), len(self.file.zones), "")

    def finish(self, info: dict[str, Any]) -> RunResult:
        """Merge the parts into the run's files and clean up."""
        failed = {zone: reason for part in self.parts for zone, reason in part.failed.items()}
        lost = {
            zone: f"Its worker process was lost three times, the last time working on nothing else ({reason})."
            for zone, reason in self.died.items()
        }
        reasons = {**failed, **lost}
        zones = self.file.zone_minutes()
        zones.insert(1, "name", pd.Series([self.file.names[zone] for zone in zones["zone"]], dtype="str"))
        zones.insert(2, "status", ["failed" if zone in reasons else "ok" for zone in zones["zone"]])
        zones.insert(3, "reason", pd.Series([reasons.get(zone) for zone in zones["zone"]], dtype="str"))
        failures = [{"zone": z, "reason": reasons[z], "retry": z in lost} for z in sorted(reasons)]
        told = {
            "fingerprint": self.fingerprint,
            "inputs": self.inputs,
            "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
            **info,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "zones": {
                "all": len(zones),
                "estimated": len(zones) - len(reasons),
                "failed": len(reasons),
                "finished_before": self.resumed,
                "retried": self.retried,
            },
            "failures": failures,
            "notes": self.notes,
            "costs": _costs(self.parts, self.learning_seconds),
            "panel": {k: v for k, v in self.file.metadata.items() if k in ("summary", "quality")},
        }
        self.say(len(self.finished), len(zones), "Writing the tables.")
        with writing(self.place.out):
            told = publish(self.place.out, self.place.scratch, self.parts, zones, self.file.hours_of_week(), told)
            # Where a worker was lost, the same command tries those zones again: what is finished stays for it.
            keep = {self.fingerprint} if lost else set()
            for folder in self.place.attempts():
                if folder.name not in keep:
                    shutil.rmtree(folder)
        return _result(self.place.out, told)


def _inputs(
    path: Path,
    features: pd.DataFrame | None,
    model: Model,
    estimate: EstimateZone,
    share: Share | None,
    join: Join | None,
    horizon: int,
) -> dict[str, Any]:
    """All that the estimate of a zone depends on, as JSON knows it."""
    return {
        "format": _FORMAT,
        "unmet": unmet.__version__,
        "estimate": _name(estimate),
        "share": None if share is None else _name(share),
        "join": None if join is None else _name(join),
        "model": json.loads(json.dumps(model.to_dict())),
        "horizon": horizon,
        "panel": file_hash(path),
        "features": None if features is None else frame_hash(features),
    }


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def _as_file(panel: str | os.PathLike[str] | pd.DataFrame | Panel, place: RunFolder) -> Path:
    if not isinstance(panel, pd.DataFrame | Panel):
        return Path(panel)
    path = place.scratch / "panel.parquet"
    with writing(place.out):
        panel.save(path) if isinstance(panel, Panel) else write_parquet(panel, path)
    return path


def _costs(parts: Sequence[Part], learning_seconds: float) -> dict[str, Any]:
    seconds = np.array([cost.cpu_seconds for part in parts for cost in part.costs.values()])
    peaks = [cost.peak_mb for part in parts for cost in part.costs.values() if cost.peak_mb is not None]
    return {
        "cpu_seconds": float(seconds.sum()) + learning_seconds,
        "cpu_seconds_for_what_zones_share": learning_seconds,
        "cpu_seconds_per_zone": float(seconds.mean()) if len(seconds) else None,
        "cpu_seconds_of_slowest_zone": float(seconds.max()) if len(seconds) else None,
        "peak_memory_mb": max(peaks, default=None),
    }


def _result(out: Path, told: dict[str, Any]) -> RunResult:
    failures = {failure["zone"]: failure["reason"] for failure in told["failures"]}
    return RunResult(out, read_parquet(out / "zones.parquet"), read_parquet(out / "totals.parquet"), failures, told)


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and value < 1:
        raise InputError(f"{name}: expected a whole number of at least 1, got {value}.")
    return value


def _processors() -> int:
    from joblib import cpu_count

    return int(cpu_count())
