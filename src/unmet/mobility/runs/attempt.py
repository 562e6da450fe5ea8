"""One attempt at a run: finished zones grow batch by batch, and a later attempt takes them over."""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from unmet._exceptions import UnmetError
from unmet._storage.folders import describe_change
from unmet._storage.seals import sealed, unsealed
from unmet._storage.writing import replacing, write_text, writing
from unmet.execution import Executor, UnfitWorker, WorkerDied, work_through
from unmet.mobility.models.city import CityModel
from unmet.mobility.models.joint_city import JointCity
from unmet.mobility.panel.file import PanelFile
from unmet.mobility.panel.reference import PanelReference
from unmet.mobility.runs.checkpoints import Checkpoint, ZoneOutcome, read_checkpoint, read_checkpoints, write_checkpoint
from unmet.mobility.runs.folder import RunFolder, earlier_inputs
from unmet.mobility.runs.keeping import Kept, NotKept, ZoneRecord, features_hash, settled_moment, write_kept
from unmet.mobility.runs.outputs import publish, read_info
from unmet.mobility.runs.worker import JOINT, ModelSettings, StoredZones, ZoneBatch, estimate_stored
from unmet.spreading import Spread, spread_over_processes

__all__ = ["Attempt", "Join", "LearnCity", "Progress"]

Progress = Callable[[int, int, str], None]
"""Called with the zones finished, the zones in all, and a sentence to show ('' if there is none)."""

LearnCity = Callable[[Iterable[pd.DataFrame], Spread], CityModel | None]
"""From the rows of all zones, and where to evaluate evidences, to the city model; None if it cannot be learnt."""

Join = Callable[..., JointCity | None]
"""From the panel and its city model to the city as one: see `unmet.mobility.runs.joining.join_zones`."""

_PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "duckdb", "joblib")
_ATTEMPTS = 3
_OF_RECORDS = ("panel", "features", "horizon")  # inputs that may change from one run to the next


@dataclass
class Attempt:
    """An attempt at a run.

    Attributes
    ----------
    place : RunFolder
        Folder of the run.
    file : PanelFile
        The panel, with the features of its bins.
    fingerprint : str
        Hash of `inputs`: names the folder of the checkpoints.
    inputs : dict
        Everything that the estimate of a zone depends on.
    progress : callable
        See `Progress`.
    finished : list of Checkpoint
        Zones that are done.
    lost : dict
        Zone → reason, of zones that the executor could not do; the same command tries them again.
    notes : list of str
        Sentences for the user and ``run.json``.
    resumed : int
        Number of zones that an earlier attempt had finished.
    retried : set of str
        Zones that were tried more than once.
    city_seconds : float
        Processor time of the city model.
    joint : JointCity or None
        The city estimated as one.
    city : CityModel or None
        The city model.
    kept : Kept or None
        What an earlier run has kept; zones that it could not estimate are not tried.
    """

    place: RunFolder
    file: PanelFile
    fingerprint: str
    inputs: dict[str, Any]
    progress: Progress
    finished: list[Checkpoint] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    resumed: int = 0
    retried: set[str] = field(default_factory=set)
    city_seconds: float = 0.0
    joint: JointCity | None = None
    city: CityModel | None = None
    kept: Kept | None = None

    @property
    def folder(self) -> Path:
        """Folder of the checkpoints."""
        return self.place.hidden / self.fingerprint

    @property
    def done(self) -> set[str]:
        """Zones that are done."""
        return {zone for checkpoint in self.finished for zone in checkpoint.zones}

    def report(self, sentence: str = "") -> None:
        """Report progress."""
        self.progress(len(self.done), len(self.file.zones), sentence)

    def note(self, sentence: str) -> None:
        """Report a sentence and keep it for ``run.json``."""
        self.notes.append(sentence)
        self.report(sentence)

    def resume(self) -> None:
        """Take over the zones that an earlier attempt has finished, or report why none can be."""
        others = earlier_inputs(self.place, self.fingerprint)
        if self.folder.is_dir():
            self.finished, damaged = read_checkpoints(self.folder)
            if damaged:
                self.note(f"{damaged} finished batches were damaged on disk and are computed again.")
            self.resumed = len(self.done)
            if self.resumed:
                self.note(f"Resuming: {self.resumed} of {len(self.file.zones)} zones were finished before.")
        else:
            with writing(self.place.out), replacing(self.folder, scratch=self.place.scratch) as aside:
                aside.mkdir()
                (aside / "inputs.json").write_text(json.dumps(self.inputs, indent=2), encoding="utf-8")
            if others:
                self.note(
                    f"Starting again: {describe_change(others[-1], self.inputs)} since the run in this folder. "
                    "Its results stay until the new ones are complete."
                )
        self.report()

    def learn_city(self, learn: LearnCity, processes: int) -> CityModel | None:
        """Learn the city model in some processes of this machine, or read that of an earlier attempt."""
        path = self.folder / "city.json"
        if path.exists():
            try:
                return CityModel.from_dict(json.loads(unsealed(path)))
            except (UnmetError, ValueError, OSError, RecursionError):
                self.note("The city model was damaged on disk and is learnt again.")
        self.report("Learning the city model.")
        began = sum(os.times()[:4])  # with processes that have ended
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with spread_over_processes(processes) as spread:
                    city = learn((self.file.rows_of(zone) for zone in self.file.zones), spread)
            except MemoryError:
                raise
            except Exception as error:
                self.note(f"The city model could not be learnt ({error}): each zone is estimated by itself.")
                return None
        for message in sorted({str(w.message) for w in caught if not issubclass(w.category, DeprecationWarning)}):
            self.note(f"City model: {message}")
        self.city_seconds = sum(os.times()[:4]) - began
        if city is not None:
            with writing(self.place.out):
                write_text(path, sealed(json.dumps(city.to_dict())))
        return city

    def join(self, join: Join, model: ModelSettings, city: CityModel | None, executor: Executor, jobs: int) -> None:
        """Estimate the city as one, or read that of an earlier attempt; each zone is then estimated within it."""
        began = time.process_time()
        place = (self.folder, self.place.scratch)
        try:
            with writing(self.place.out):
                self.joint = join(
                    self.file, model, city, *place, executor=executor, jobs=jobs, say=self.report, note=self.note
                )
        except (MemoryError, NotKept, UnfitWorker):
            raise
        except Exception as error:
            if self.kept is not None:
                raise NotKept(f"the new bins could not be estimated from it ({error}).") from error
            self.note(f"The city could not be estimated as one ({error}): each zone is estimated by itself.")
        self.city_seconds += time.process_time() - began

    def estimate(
        self,
        work: Callable[[ZoneBatch], list[ZoneOutcome]],
        executor: Executor,
        jobs: int,
        size: int | None,
        reference: PanelReference | None = None,
    ) -> None:
        """Estimate the zones that are left, and write each batch to disk when it is done.

        With a reference, workers read the rows of their zones and write the batches themselves.
        """
        done = self.done
        load: Callable[[tuple[str, ...]], Any] = self._load
        call: Callable[[Any], Any] = work
        if reference is not None:
            joint = None if self.joint is None else (self.folder / JOINT).resolve()
            stored = StoredZones(reference, self.folder.resolve(), self.place.scratch.resolve(), joint)
            load, call = tuple, partial(estimate_stored, stored=stored, estimate=work)
        left = [zone for zone in (self.file.zones if self.kept is None else self.kept.names) if zone not in done]
        if self.joint is not None:  # neighbours one after the other: they share draws of riders who walk
            left.sort(key=lambda zone: self.file.places.get(zone, ()))
        batches = work_through(
            call,
            left,
            load,
            executor=executor,
            jobs=jobs,
            size=size or max(1, min(8 if self.joint is None else self.joint.zones_at_once, len(left) // (4 * jobs))),
            attempts=_ATTEMPTS,
            lost=self._note_lost,
        )
        with closing(batches):
            for zones, outcome in batches:
                if reference is not None and isinstance(outcome, UnmetError):
                    raise outcome  # the panel or the folder is out of reach: no zone is to blame
                if isinstance(outcome, Exception):
                    self._give_up(zones, outcome)
                    continue
                with writing(self.place.out):
                    self.finished.append(
                        write_checkpoint(outcome, self.folder, self.place.scratch)
                        if reference is None
                        else read_checkpoint(self.folder / outcome)
                    )
                self.report()

    def _load(self, zones: tuple[str, ...]) -> ZoneBatch:
        rows = tuple(self.file.rows_of(zone) for zone in zones)
        if self.joint is None:
            return ZoneBatch(zones, rows)
        starts = [pd.DatetimeIndex(frame["start"]) for frame in rows]
        around = tuple(self.joint.of(zone, start) for zone, start in zip(zones, starts, strict=True))
        fits = () if self.kept is None else tuple(self.kept.fit(zone) for zone in zones)
        return ZoneBatch(zones, rows, around, fits)

    def _note_lost(self, zones: tuple[str, ...], error: Exception) -> None:
        self.retried.update(zones)
        some = ", ".join(zones[:3]) + (" …" if len(zones) > 3 else "")
        self.note(f"The worker on {some} was lost: {_reason(error)}.")

    def _give_up(self, zones: tuple[str, ...], error: Exception) -> None:
        if isinstance(error, WorkerDied | MemoryError):
            why = f"Its worker process was lost {_ATTEMPTS} times, the last time with no other work under way"
        else:
            why = "The executor could not do the work"
        for zone in zones:
            self.lost[zone] = f"{why} ({_reason(error)})."
            self.note(f"{zone}: {self.lost[zone]}")

    def finish(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Make the files of the run from the checkpoints, and remove these; return the content of ``run.json``."""
        failed = {zone: reason for checkpoint in self.finished for zone, reason in checkpoint.failed.items()}
        if self.kept is not None:
            if failed:
                raise NotKept(f"{len(failed)} zones could not be estimated from it.")
            failed = dict(self.kept.failures)
        zones = _zone_rows(self.file, {**failed, **self.lost})
        info = self._info(facts, zones, failed)
        self.report("Writing the tables.")
        with writing(self.place.out):
            hours, keeping = self.file.hours_of_week(), (self.kept, self._keep)
            held_out, shut = None if self.joint is None else self.joint.held_out, self.file.never_open()
            info = publish(
                self.place.out, self.place.scratch, self.finished, zones, hours, info, held_out, *keeping, shut
            )
            # If a worker was lost, the same command tries those zones again and needs the finished ones.
            keep = {self.fingerprint} if self.lost else set()
            for folder in self.place.attempts():
                if folder.name not in keep:
                    shutil.rmtree(folder)
        return info

    def _keep(self, path: Path) -> None:
        """Write what a later run may use, if there is anything."""
        starts = self.file.bins()["start"]
        first, last = starts.iloc[0], starts.iloc[-1]
        settled = settled_moment(first, last)
        if self.city is None or self.city.kept is None or self.joint is None or settled is None or self.lost:
            return
        scales = self.city.kept.scales.to_dict()
        records: dict[str, ZoneRecord] = {}
        for part in self.finished:
            own = part.records()
            if own is None or any(header["scales"] != scales for header, _ in own):
                return
            records |= zip(part.fitted, own, strict=True)
        failed = {zone: reason for part in self.finished for zone, reason in part.failed.items()}
        inputs = {name: value for name, value in self.inputs.items() if name not in _OF_RECORDS}
        features = features_hash(self.file, settled)
        given = (settled, last, inputs, features, self.file, failed)
        write_kept(path, sorted(records.items()), self.city, self.joint.kept, *given)

    def _describe_joint(self) -> dict[str, Any] | None:
        """Describe the city as one; unusual days before the first bin of this attempt are those of the earlier run."""
        if self.joint is None:
            return None
        found = self.joint.describe(self.file.bins())
        if self.kept is not None:
            earlier = (read_info(self.kept.folder) or {}).get("joint") or {}
            first = f"{self.kept.settled:%Y-%m-%d}"
            days = [day for day in earlier.get("unusual_days", []) if day["day"] < first]
            days += [day for day in found["unusual_days"] if day["day"] >= first]
            found["unusual_days"] = sorted(days, key=lambda day: -abs(day["change"]))[: len(found["unusual_days"])]
        return found

    def _info(self, facts: dict[str, Any], zones: pd.DataFrame, failed: dict[str, str]) -> dict[str, Any]:
        reasons = {**failed, **self.lost}
        return {
            "fingerprint": self.fingerprint,
            "inputs": self.inputs,
            "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
            **facts,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "zones": {
                "all": len(zones),
                "estimated": len(zones) - len(reasons),
                "failed": len(reasons),
                "finished_before": self.resumed,
                "retried": len(self.retried),
            },
            "failures": [{"zone": z, "reason": reasons[z], "retry": z in self.lost} for z in sorted(reasons)],
            "notes": self.notes,
            "joint": self._describe_joint(),
            "effects": [] if self.city is None else list(self.city.effects),
            "costs": _costs(self.finished, self.city_seconds),
            "panel": {k: v for k, v in self.file.metadata.items() if k in ("summary", "quality")},
        }


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _zone_rows(file: PanelFile, reasons: dict[str, str]) -> pd.DataFrame:
    """Make the first columns of the table of zones, from the panel."""
    zones = file.zone_minutes()
    zones.insert(1, "name", pd.Series([file.names[zone] for zone in zones["zone"]], dtype="str"))
    zones.insert(2, "status", ["failed" if zone in reasons else "ok" for zone in zones["zone"]])
    of_zone = file.areas
    if of_zone:
        zones["area"] = pd.Series([of_zone.get(zone) for zone in zones["zone"]], dtype="str")
    zones.insert(3, "reason", pd.Series([reasons.get(zone) for zone in zones["zone"]], dtype="str"))
    return zones


def _costs(finished: Sequence[Checkpoint], city_seconds: float) -> dict[str, Any]:
    seconds = np.array([cost.cpu_seconds for checkpoint in finished for cost in checkpoint.costs.values()])
    peaks = [c.peak_mb for checkpoint in finished for c in checkpoint.costs.values() if c.peak_mb is not None]
    return {
        "cpu_seconds": float(seconds.sum()) + city_seconds,
        "cpu_seconds_city": city_seconds,
        "cpu_seconds_per_zone": float(seconds.mean()) if len(seconds) else None,
        "cpu_seconds_of_slowest_zone": float(seconds.max()) if len(seconds) else None,
        "peak_memory_mb": max(peaks, default=None),
    }
