"""The work on a batch of zones, as an executor gets it: a plain function of rows and a model.

It reads and writes no files and keeps nothing between calls, so it may run anywhere. `estimate_stored` is for workers
that reach the files of the run: it reads the rows, and writes the finished batch, itself.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd

from unmet._exceptions import InputError, NumericalError, UnmetError
from unmet._storage.writing import writing
from unmet.mobility.clock.bins import HOURS_OF_WEEK
from unmet.mobility.panel.reference import PanelReference, check_reachable
from unmet.mobility.runs.checkpoints import ZoneCost, ZoneOutcome, write_checkpoint

if TYPE_CHECKING:
    from unmet.mobility.models.joint_city import JointCity
    from unmet.mobility.models.kept import KeptFit
    from unmet.mobility.models.surroundings import Surroundings
    from unmet.mobility.models.zone_estimate import ZoneEstimate, ZoneFit

__all__ = [
    "JOINT",
    "EstimateZone",
    "FitZone",
    "ModelSettings",
    "StoredZones",
    "ZoneBatch",
    "check_rows",
    "estimate_batch",
    "estimate_stored",
    "fit_batch",
]

JOINT = "joint.npz"
"""File of the city as one, in the folder of the checkpoints."""


_ROWS_NEEDED = ("zone", "start", "observed", "demand_mean", "lost_mean")


class ModelSettings(Protocol):
    """The interface of a model's settings, such as `unmet.mobility.models.zone_estimate.DemandModel`."""

    @property
    def draws(self) -> int:
        """Number of joint posterior draws of the lost trips of each zone."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Give everything that decides an estimate, as JSON-able values."""
        ...

    def describe(self) -> dict[str, Any]:
        """Describe the model for ``run.json`` and the report."""
        ...


EstimateZone = Callable[..., "ZoneEstimate"]
"""Called as ``estimate(rows, model)``, with ``city=`` if the run has learnt a city model. Returns the zone's estimate,
or raises an error that explains why there is none."""


FitZone = Callable[..., "ZoneFit"]
"""Called as ``fit(rows, model, around=...)``, with ``city=`` likewise."""


@dataclass(frozen=True)
class ZoneBatch:
    """A few zones, their rows and, if the city was estimated as one, their surroundings; and fits that were kept."""

    zones: tuple[str, ...]
    rows: tuple[pd.DataFrame, ...]
    around: tuple[Surroundings | None, ...] = ()
    kept: tuple[KeptFit, ...] = ()

    def more(self) -> list[dict[str, Any]]:
        """Give the arguments of the functions of a zone beside its rows."""
        known: list[dict[str, Any]] = [{} for _ in self.zones]
        for name in ("around", "kept"):
            for arguments, value in zip(known, getattr(self, name), strict=False):
                if value is not None:
                    arguments[name] = value
        return known


def estimate_batch(batch: ZoneBatch, *, estimate: EstimateZone, model: ModelSettings) -> list[ZoneOutcome]:
    """Estimate each zone of a batch; a zone that cannot be estimated has a reason instead.

    A `MemoryError` is raised, not kept as a reason, so that the batch is tried again.
    """
    zones = zip(batch.zones, batch.rows, batch.more(), strict=True)
    return [_estimate(zone, rows, partial(estimate, **known), model) for zone, rows, known in zones]


@dataclass(frozen=True)
class StoredZones:
    """Where workers find the rows of zones and write their estimates.

    Attributes
    ----------
    panel : PanelReference
        The panel.
    folder, scratch : Path
        Folder of the checkpoints, and one on the same disk to write them in.
    joint : Path or None
        File of the city as one.
    """

    panel: PanelReference
    folder: Path
    scratch: Path
    joint: Path | None = None

    def batches(self, zones: tuple[str, ...]) -> Iterator[ZoneBatch]:
        """Read the rows of zones, and their surroundings. Each zone is a batch: a year of surroundings is 100 MB."""
        joint = None if self.joint is None else _read_joint(self.joint, self.joint.stat().st_mtime_ns)
        with self.panel.opened() as file:
            for zone in zones:
                rows = file.rows_of(zone)
                around = () if joint is None else (joint.of(zone, pd.DatetimeIndex(rows["start"])),)
                yield ZoneBatch((zone,), (rows,), around)


def estimate_stored(
    zones: tuple[str, ...], *, stored: StoredZones, estimate: Callable[[ZoneBatch], list[ZoneOutcome]]
) -> str:
    """Read zones, estimate them and write the finished batch; return the name of its folder.

    The batch is written aside and then renamed, so several attempts at the same zones do not disturb each other.
    """
    check_reachable(stored.scratch)
    outcomes = [outcome for batch in stored.batches(zones) for outcome in estimate(batch)]
    with writing(stored.folder):
        return write_checkpoint(outcomes, stored.folder, stored.scratch).folder.name


@lru_cache(maxsize=1)  # the file is large, and every batch of a process needs it
def _read_joint(path: Path, time: int) -> JointCity:
    from unmet.mobility.models.joint_city import JointCity

    return JointCity.load(path)


def _estimate(zone: str, rows: pd.DataFrame, estimate: EstimateZone, model: ModelSettings) -> ZoneOutcome:
    began = time.process_time()
    result, reason = None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", DeprecationWarning)  # concerns authors of models, not users
        try:
            check_rows(rows)
            result = estimate(rows, model)
            _check_estimate(result, zone, model.draws)
        except MemoryError:
            raise
        except UnmetError as error:
            result, reason = None, str(error)
        except Exception as error:
            result, reason = None, f"{type(error).__name__}: {error}"
    messages = tuple(dict.fromkeys(f"{w.category.__name__}: {w.message}" for w in caught))
    return ZoneOutcome(zone, result, reason, messages, ZoneCost(time.process_time() - began, _peak_mb()))


def fit_batch(batch: ZoneBatch, *, fit: FitZone, model: ModelSettings) -> list[ZoneFit]:
    """Fit each zone of a batch for the joint estimate; a zone that cannot be fitted is left out."""
    fits = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rows, known in zip(batch.rows, batch.more(), strict=True):
            try:
                check_rows(rows)
                fits.append(fit(rows, model, **known))
            except MemoryError:
                raise
            except Exception:  # reported when the zone itself is estimated
                continue
    return fits


def check_rows(rows: pd.DataFrame) -> None:
    """Refuse rows of a zone in which a bin occurs twice: its pickups would count twice."""
    twice = rows["start"][rows["start"].duplicated()]
    if len(twice):
        raise InputError(f"{len(twice)} bins occur twice, the first at {twice.iloc[0]}; expected one row per bin.")


def _check_estimate(result: ZoneEstimate, zone: str, draws: int) -> None:
    """Check the estimate of a model before its numbers enter a total."""
    missing = [name for name in _ROWS_NEEDED if name not in result.rows.columns]
    if missing:
        raise NumericalError(f"The model gave rows without {', '.join(missing)}.")
    if set(result.rows["zone"]) - {zone}:
        raise NumericalError("The model gave rows of another zone.")
    if result.lost.shape != (HOURS_OF_WEEK, draws) or result.observed.shape != (HOURS_OF_WEEK,):
        raise NumericalError(
            f"The model gave draws of shape {result.lost.shape} and {result.observed.shape}; "
            f"expected {(HOURS_OF_WEEK, draws)} and {(HOURS_OF_WEEK,)}."
        )
    if not (np.isfinite(result.lost).all() and np.isfinite(result.observed).all()):
        raise NumericalError("The model gave draws that are not finite.")
    if result.lost.min(initial=0.0) < 0:
        raise NumericalError(f"The model gave negative lost trips ({result.lost.min():g}).")


def _peak_mb() -> float | None:
    """Give the largest resident memory of this process so far; None if the system does not report it."""
    try:
        # Not ru_maxrss: on Linux it starts at the value of the parent process.
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes, on macOS
