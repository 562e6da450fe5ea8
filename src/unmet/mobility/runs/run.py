"""Runs: the estimates of all zones of a panel, in parallel, which can be stopped and resumed.

Zones are estimated in batches. Each finished batch is written to disk at once (`unmet.mobility.runs.checkpoints`). A
run that was killed resumes when it is started again, and gives the same tables to the last bit: the result of a zone
depends on its rows, the city model, the model and its seed, never on the order, the batches or the number of processes.
A fingerprint identifies everything that finished batches were computed from. If the panel, the features, the model or
the version of `unmet` changes, the run starts again and reports what changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

import unmet
from unmet._exceptions import InputError, UnmetError
from unmet._storage.files import real_path
from unmet._storage.hashes import frame_hash
from unmet.execution import Executor, count_workers, describe_executor, in_processes, serially
from unmet.mobility.clock.horizon import future_bins
from unmet.mobility.models.zone_estimate import estimate_zone
from unmet.mobility.panel.opening import AnyPanel, opened
from unmet.mobility.panel.reference import PanelReference
from unmet.mobility.runs.attempt import Attempt, Join, LearnCity, Progress
from unmet.mobility.runs.checkpoints import ZoneOutcome
from unmet.mobility.runs.folder import run_folder
from unmet.mobility.runs.keeping import KEPT, Kept, NotKept, check_records, read_kept, settled_moment
from unmet.mobility.runs.outputs import TABLES, finished_run, read_info
from unmet.mobility.runs.result import RunResult, load_result, read_run
from unmet.mobility.runs.worker import EstimateZone, ModelSettings, ZoneBatch, estimate_batch

__all__ = ["Prepared", "Progress", "RunResult", "read_run", "run_estimates"]

# Raised when checkpoints of earlier versions can no longer be read.
_FORMAT = 5


class Prepared(UnmetError):
    """All that comes before the zones is done, and `run_estimates` was asked to stop there."""


def run_estimates(
    panel: AnyPanel,
    model: ModelSettings,
    out: str | os.PathLike[str],
    *,
    features: pd.DataFrame | None = None,
    jobs: int | None = None,
    chunk: int | None = None,
    horizon: int = 0,
    estimate: EstimateZone | None = None,
    learn_city: LearnCity | None = None,
    join: Join | None = None,
    executor: Executor = in_processes,
    progress: Progress | None = None,
    provenance: Mapping[str, Any] | None = None,
    base: str | os.PathLike[str] | None = None,
    prepare: bool = False,
) -> RunResult:
    """Estimate every zone of a panel, or resume a run that was interrupted.

    Parameters
    ----------
    panel : path, PanelFile, Panel or DataFrame
        A panel's Parquet file, which may be open already, a panel in memory, or its rows. A frame is not changed.
    model : DemandModel
        The model and its settings.
    out : path
        Folder of the run; made if need be. Existing files stay until the new ones are complete.
    features : DataFrame, optional
        Columns to join to every zone's rows by ``start``, one row per bin: see `unmet.mobility.features.bins`.
    jobs : int, optional
        Number of workers; one per processor by default.
    chunk : int, optional
        Zones per batch: the most work that each process loses if the run is killed. 1 to 8 by default.
    horizon : int
        Number of bins to estimate after the panel's end; `features` may have rows for them.
    estimate : callable, optional
        Estimates one zone; `unmet.mobility.models.zone_estimate.estimate_zone` by default.
    learn_city : callable, optional
        From the rows of all zones, and where to evaluate evidences, to the city model, which `estimate` gets as
        ``city``: see `unmet.mobility.models.city`. Called once, before the zones.
    join : callable, optional
        Estimates the city as one before the zones, as `unmet.mobility.runs.joining.join_zones` does; each zone then
        gets its surroundings. Not used with an `estimate` of one's own.
    executor : callable
        Where the work is done: see `unmet.execution`.
    progress : callable, optional
        Called as ``progress(done, zones, note)``.
    provenance : mapping, optional
        More entries for ``run.json``, such as where the features come from and what they lack.
    base : path, optional
        Folder of an earlier run of the same system. If its model still fits, only bins from two weeks before the end
        of its records on are estimated: see `unmet.mobility.runs.keeping`.
    prepare : bool
        Stop before the zones, with `Prepared`. A later call in the same folder goes on from there. A run that is
        finished is returned.

    Returns
    -------
    RunResult
        Zones that could not be estimated are in its `failures`; the other zones are not affected.

    Raises
    ------
    InputError
        If the panel cannot be read or the folder cannot be written.

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
    count_workers(1 if jobs is None else jobs, executor)  # raises for a number below 1
    if chunk is not None and chunk < 1:
        raise InputError(f"chunk: expected a whole number of at least 1, got {chunk}.")
    if horizon < 0:
        raise InputError(f"horizon: expected a number of bins, 0 or more; got {horizon}.")
    started, began = datetime.now(UTC), time.monotonic()
    with ExitStack() as stack:
        file = stack.enter_context(opened(panel))
        if file.path is not None and real_path(file.path) in {real_path(Path(out, name)) for name in (*TABLES, KEPT)}:
            raise InputError(f"{file.path}: the run would replace its panel. Use another folder (--out), or rename it.")
        place = stack.enter_context(run_folder(Path(out)))
        file.set_features(features)
        future = future_bins(file.bins(), horizon, file.timezone) if horizon else None
        file.set_future(future)
        inputs = _inputs(file.sha256, features, model, estimate, learn_city, join, horizon)
        fingerprint = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]
        tell = progress or (lambda done, zones, note: None)
        attempt = Attempt(place, file, fingerprint, inputs, tell)
        info = finished_run(place.out, fingerprint)
        if info is not None:
            attempt.progress(len(file.zones), len(file.zones), "This run is finished already; nothing to do.")
            return load_result(place.out, info)
        engine = describe_executor(executor)  # raises if its workers are unfit
        workers = count_workers(jobs, executor)
        facts = {
            "started": started.isoformat(timespec="seconds"),
            "jobs": workers,
            "engine": engine,
            "model": model.describe(),
            "panel_path": None if file.path is None else str(file.path),
            "provenance": dict(provenance or {}),
        }

        def work(attempt: Attempt) -> dict[str, Any]:
            by_reference = attempt.kept is None and getattr(executor, "by_reference", False)
            reference = PanelReference.of(file, features, future) if by_reference else None
            work_on_zones = _prepare(attempt, model, estimate, learn_city, join, executor, workers, reference)
            if prepare:
                raise Prepared("The panel, the city model and the city as one are ready.")
            attempt.estimate(work_on_zones, executor, workers, chunk, reference)
            return attempt.finish({**facts, "wall_seconds": round(time.monotonic() - began, 3)})

        kept = None if base is None else read_kept(Path(base), (read_info(Path(base)) or {}).get("kept"))
        if kept is not None:
            try:
                told = check_records(kept, file, inputs)
                continuing = _continuing(attempt, kept)
                if told:
                    continuing.note(told)
                info = work(continuing)
                return load_result(place.out, info)
            except NotKept as why:
                attempt.note(f"The model of the earlier run is learnt again: {why}")
        return load_result(place.out, work(attempt))


def _continuing(attempt: Attempt, kept: Kept) -> Attempt:
    """Give an attempt that estimates only the bins after the settled ones of an earlier run."""
    inputs = {**attempt.inputs, "kept": kept.sha256}
    fingerprint = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]
    later = attempt.file.since(kept.settled)
    found = replace(attempt, file=later, fingerprint=fingerprint, inputs=inputs, kept=kept, finished=[], notes=[])
    found.note(f"Only bins from {kept.settled:%Y-%m-%d} on are estimated, with the model learnt before.")
    return found


def _prepare(
    attempt: Attempt,
    model: ModelSettings,
    estimate: EstimateZone,
    learn_city: LearnCity | None,
    join: Join | None,
    executor: Executor,
    workers: int,
    reference: PanelReference | None,
) -> Callable[[ZoneBatch], list[ZoneOutcome]]:
    """Learn the city model and estimate the city as one; return the function that estimates zones."""
    attempt.resume()
    kept = attempt.kept
    known: dict[str, Any] = {}
    if kept is not None:
        attempt.city = kept.city.at(attempt.file.rows_of(kept.names[0]))
        join = None if join is None else partial(join, kept=kept)
    elif learn_city is not None:
        # In processes of this machine, whatever the executor: see `unmet.spreading`.
        processes = 1 if executor is serially else min(workers, count_workers(None))
        attempt.city = attempt.learn_city(learn_city, processes)
    if attempt.city is not None:
        known["city"] = replace(attempt.city, kept=None)  # what continues it is of no use to a zone
    if join is not None and estimate is estimate_zone:
        join = join if reference is None else partial(join, reference=reference)
        attempt.join(join, model, known.get("city"), executor, workers)
        bins = attempt.file.bins()["start"]
        known["settled"] = settled_moment(bins.iloc[0], bins.iloc[-1]) if kept is None else None
    of_one = partial(estimate, **known) if known else estimate
    return partial(estimate_batch, estimate=of_one, model=model)


def _inputs(
    panel: str,
    features: pd.DataFrame | None,
    model: ModelSettings,
    estimate: EstimateZone,
    learn_city: LearnCity | None,
    join: Join | None,
    horizon: int,
) -> dict[str, Any]:
    """Collect everything that the estimate of a zone depends on, as JSON-able values."""
    return {
        "format": _FORMAT,
        "unmet": unmet.__version__,
        "estimate": _name(estimate),
        "learn_city": None if learn_city is None else _name(learn_city),
        "join": None if join is None else _name(join),
        "model": json.loads(json.dumps(model.to_dict())),
        "horizon": horizon,
        "panel": panel,
        "features": None if features is None else frame_hash(features),
    }


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}:{getattr(function, '__qualname__', type(function).__qualname__)}"
