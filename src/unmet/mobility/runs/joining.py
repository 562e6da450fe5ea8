"""The joint estimate within a run: first fits of all zones, then the city as one, kept on disk as they are finished."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from unmet._exceptions import FileFormatError, UnmetError
from unmet._storage.writing import replacing, writing
from unmet.execution import Executor, count_workers, serially, work_through
from unmet.mobility.models.city import CityModel
from unmet.mobility.models.city_curve import LEAST_ZONES
from unmet.mobility.models.held_out import find_held_out
from unmet.mobility.models.joint import join_city
from unmet.mobility.models.joint_city import JointCity
from unmet.mobility.models.surroundings import Surroundings, rough_surroundings
from unmet.mobility.models.zone_data import zone_data
from unmet.mobility.models.zone_estimate import DemandModel, ZoneFit, fit_usual_rate
from unmet.mobility.models.zone_table import ZoneRecord, table_of
from unmet.mobility.panel.file import PanelFile
from unmet.mobility.panel.reference import PanelReference, check_reachable
from unmet.mobility.runs.keeping import Kept, check_still_fits
from unmet.mobility.runs.worker import JOINT, ZoneBatch, fit_batch
from unmet.spreading import spread_over_processes

__all__ = ["join_zones"]

_DAY = 1440.0
_ZONES_PER_CHUNK = 8


def join_zones(
    file: PanelFile,
    model: DemandModel,
    city: CityModel | None,
    folder: Path,
    scratch: Path,
    *,
    executor: Executor,
    jobs: int,
    say: Callable[[str], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
    kept: Kept | None = None,
    reference: PanelReference | None = None,
) -> JointCity | None:
    """Estimate the city as one, or read what an earlier attempt has left of it.

    Parameters
    ----------
    file, model, city
        The panel, the model and the city model.
    folder, scratch : Path
        Where finished fits and the city are kept, and a folder on the same disk to write them in.
    executor, jobs
        Where the fits are done.
    say, note : callable
        Called with a sentence before each step, and with one to keep if the city cannot be estimated as one.
    kept : Kept, optional
        What an earlier run has learnt: no zone is then fitted.
    reference : PanelReference, optional
        The panel, for workers that read the rows of zones and write the fits themselves.

    Returns
    -------
    JointCity or None
        None for too few zones, bins of a day or more, or zones without coordinates.
    """
    path = folder / JOINT
    if path.exists():
        try:
            return JointCity.load(path)
        except FileFormatError:
            say("The saved city was damaged on disk and is estimated again.")
    places = file.places
    records = list(_records(file, kept))
    if len(records) < LEAST_ZONES or records[0].minutes >= _DAY:
        return None
    if not places:
        note("The panel has no coordinates of zones: riders who walk on and shocks that zones share are not estimated.")
        return None
    say("Fitting all zones for the joint estimate." if kept is None else "Continuing the fits of an earlier run.")
    fits = _fits(file, records, model, city, folder, scratch, executor, jobs, places, kept, reference)
    if len(fits) < LEAST_ZONES:
        return None
    say("Estimating shocks and walking for the whole city.")
    rates = {fit.zone: (fit.log_rate, fit.log_rate_var, fit.apart, fit.apart_error) for fit in fits}
    table = table_of(fits, rates, places)
    settings: dict[str, Any] = {"walking": model.walking()}
    if kept is None:
        hidden = np.zeros(table.observed.shape, dtype=bool)
        for i, fit in enumerate(fits):
            at = table.start.get_indexer(fit.start)
            hidden[i, at] = find_held_out(fit.zone, fit.observed, fit.exposure, model.seed)
        settings["hidden"] = hidden
    else:
        expected = table.exposure * np.exp(table.log_rate + 0.5 * table.log_rate_var)
        check_still_fits(kept, table.start, np.where(table.exposure > 0, table.observed, np.nan), expected)
        settings = {"kept": kept.joint, "rounds": 2}
    # In processes of this machine, whatever the executor: see `unmet.spreading`.
    with spread_over_processes(1 if executor is serially else min(jobs, count_workers(None))) as spread:
        joint = join_city(table, draws=model.draws, seed=model.seed, spread=spread, **settings)
    with replacing(path, scratch=scratch) as aside:
        joint.save(aside)
    return joint


@dataclass(frozen=True)
class _Record:
    """The arrays of a zone that `rough_surroundings` needs; the rest of its data would not fit in memory."""

    zone: str
    start: pd.DatetimeIndex
    minutes: float
    observed: Any
    exposure: Any
    stockout: Any
    slot: Any
    early: Any


def _records(file: PanelFile, kept: Kept | None) -> Iterator[ZoneRecord]:
    for zone in file.zones if kept is None else kept.names:
        try:
            data = zone_data(file.rows_of(zone))
            if kept is None:
                data.check_supply()
        except Exception:  # told when the zone itself is tried
            continue
        if kept is not None or (data.seen.any() and data.has_counts):
            yield _Record(*(getattr(data, f.name) for f in fields(_Record)))


def _fits(
    file: PanelFile,
    records: Sequence[ZoneRecord],
    model: DemandModel,
    city: CityModel | None,
    folder: Path,
    scratch: Path,
    executor: Executor,
    jobs: int,
    places: dict[str, tuple[float, float]],
    kept: Kept | None,
    reference: PanelReference | None,
) -> list[ZoneFit]:
    """Fits of all zones in order of name; those that an earlier attempt has finished are read."""
    if kept is None:
        around = rough_surroundings(records, places)
    else:
        around = rough_surroundings(records, places, kept.joint.walking, kept.joint.law.variance)
    zones = [record.zone for record in records]
    chunks = [zones[i : i + _ZONES_PER_CHUNK] for i in range(0, len(zones), _ZONES_PER_CHUNK)]
    done: dict[str, ZoneFit] = {}
    left = []
    for chunk in chunks:
        found = _read_fits(_path(folder, chunk))
        if found is None:
            left.append(chunk)
        else:
            done |= found

    def load(batch: tuple[int, ...]) -> ZoneBatch | _StoredChunk:
        chunk = left[batch[0]]
        if reference is not None:
            path = _path(scratch, chunk).with_suffix(".around.npz")
            _write_arrays(path, [around[zone] for zone in chunk])
            return _StoredChunk(tuple(chunk), path.resolve(), _path(folder, chunk).resolve())
        rows = tuple(file.rows_of(zone) for zone in chunk)
        fits = () if kept is None else tuple(kept.fit(zone) for zone in chunk)
        return ZoneBatch(tuple(chunk), rows, tuple(around[zone] for zone in chunk), fits)

    work: Callable[[Any], Any] = partial(fit_batch, fit=partial(fit_usual_rate, city=city), model=model)
    if reference is not None:
        work = partial(_fit_stored, reference=reference, fit=work)
    batches = work_through(work, range(len(left)), load, executor=executor, jobs=jobs)
    with closing(batches):
        for (number,), outcome in batches:
            if reference is not None and isinstance(outcome, UnmetError):
                raise outcome
            if isinstance(outcome, Exception):
                continue
            if reference is not None:
                done |= _read_fits(_path(folder, left[number])) or {}
                continue
            with replacing(_path(folder, left[number]), scratch=scratch) as aside:
                _write_fits(aside, outcome)
            done |= {fit.zone: fit for fit in outcome}
    return [done[zone] for zone in zones if zone in done]


@dataclass(frozen=True)
class _StoredChunk:
    """Names of zones, the file of their surroundings, and the file to write their fits to."""

    zones: tuple[str, ...]
    around: Path
    target: Path


def _fit_stored(
    chunk: _StoredChunk, *, reference: PanelReference, fit: Callable[[ZoneBatch], Sequence[ZoneFit]]
) -> None:
    """Read zones and their surroundings, fit them and write the fits."""
    check_reachable(chunk.around)
    with reference.opened() as file:
        rows = tuple(file.rows_of(zone) for zone in chunk.zones)
    fits = fit(ZoneBatch(chunk.zones, rows, _read_arrays(chunk.around)))
    with writing(chunk.target), replacing(chunk.target, scratch=chunk.around.parent) as aside:
        _write_fits(aside, fits)


def _write_arrays(path: Path, around: Sequence[Surroundings]) -> None:
    with path.open("wb") as file:
        columns = {f"{f.name}_{i}": getattr(one, f.name) for i, one in enumerate(around) for f in fields(one)}
        np.savez(file, **columns)


def _read_arrays(path: Path) -> tuple[Surroundings, ...]:
    with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        count = sum(name.startswith("within_") for name in file.files)
        return tuple(_surroundings({f.name: file[f"{f.name}_{i}"] for f in fields(Surroundings)}) for i in range(count))


def _surroundings(arrays: dict[str, Any]) -> Surroundings:
    values: dict[str, Any] = {name: float(value) if value.ndim == 0 else value for name, value in arrays.items()}
    return Surroundings(**values)


def _path(folder: Path, zones: Sequence[str]) -> Path:
    return folder / f"fits-{hashlib.sha256(json.dumps(list(zones)).encode()).hexdigest()[:16]}.npz"


_ARRAYS = ("observed", "exposure", "stockout", "slot", "early", "log_rate", "log_rate_var", "apart", "apart_error")


def _write_fits(path: Path, fits: Sequence[ZoneFit]) -> None:
    header = [{"zone": fit.zone, "minutes": fit.minutes, "unit": fit.start.unit} for fit in fits]
    arrays: dict[str, Any] = {f"{name}_{i}": getattr(fit, name) for i, fit in enumerate(fits) for name in _ARRAYS}
    arrays |= {f"start_{i}": fit.start.asi8 for i, fit in enumerate(fits)}
    with path.open("wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)


def _read_fits(path: Path) -> dict[str, ZoneFit] | None:
    """Fits by zone; None where there are none, or the file is damaged."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            fits = {}
            for i, told in enumerate(json.loads(str(file["header"]))):
                start = pd.DatetimeIndex(file[f"start_{i}"].view(f"M8[{told['unit']}]")).tz_localize("UTC")
                arrays = {name: file[f"{name}_{i}"] for name in _ARRAYS}
                fits[told["zone"]] = ZoneFit(told["zone"], start, told["minutes"], **arrays)
            return fits
    except (OSError, ValueError, KeyError, TypeError, BadZipFile):
        return None
