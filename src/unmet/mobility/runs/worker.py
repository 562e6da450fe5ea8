"""The work on a chunk of zones, as it is handed to an executor: a plain function of rows and a model.

It reads and writes no files and keeps nothing between calls, so it may run anywhere.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from unmet._exceptions import InputError, NumericalError, UnmetError
from unmet.mobility.runs.checkpoints import ZoneCost, ZoneOutcome
from unmet.mobility.runs.totals import HOURS

if TYPE_CHECKING:
    from unmet.mobility.models.joint import Surroundings
    from unmet.mobility.models.zone_estimate import ZoneEstimate, ZoneFit

__all__ = ["Chunk", "EstimateZone", "FitZone", "Model", "check_rows", "estimate_chunk", "fit_chunk"]

_ROWS_NEEDED = ("zone", "start", "observed", "demand_mean", "lost_mean")


class Model(Protocol):
    """What a run asks of a model's settings: how many joint draws, and everything there is to know, for JSON."""

    @property
    def draws(self) -> int:
        """How many joint posterior draws of the lost trips each zone has."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """All settings, the seed included."""
        ...


EstimateZone = Callable[..., "ZoneEstimate"]
"""Called as ``estimate(rows, model)``, with ``shared=`` where the run has learnt what zones share. Gives the zone's
estimate, or raises an error with a reason where there can be none."""


FitZone = Callable[..., "ZoneFit"]
"""Called as ``fit(rows, model, around=...)``, with ``shared=`` likewise."""


@dataclass(frozen=True)
class Chunk:
    """A few zones, their rows and, where the city was estimated as one, their surroundings."""

    zones: tuple[str, ...]
    rows: tuple[pd.DataFrame, ...]
    around: tuple[Surroundings | None, ...] = ()


def estimate_chunk(chunk: Chunk, *, estimate: EstimateZone, model: Model) -> list[ZoneOutcome]:
    """Estimate each zone of a chunk; a zone that cannot be has a reason instead.

    Running out of memory is not held against the zone: the error goes up, and the chunk is tried again.
    """
    # Also where no environment variable could: the order in which threads add up shows in the last digits.
    with threadpool_limits(limits=1):
        around = chunk.around or (None,) * len(chunk.zones)
        zones = zip(chunk.zones, chunk.rows, around, strict=True)
        return [_estimate(zone, rows, known, estimate, model) for zone, rows, known in zones]


def _estimate(
    zone: str, rows: pd.DataFrame, around: Surroundings | None, estimate: EstimateZone, model: Model
) -> ZoneOutcome:
    began = time.process_time()
    result, reason = None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", DeprecationWarning)  # for those who write models, not for those who run them
        try:
            check_rows(rows)
            result = estimate(rows, model) if around is None else estimate(rows, model, around=around)
            _check_estimate(result, zone, model.draws)
        except MemoryError:
            raise
        except UnmetError as error:
            result, reason = None, str(error)
        except Exception as error:
            result, reason = None, f"{type(error).__name__}: {error}"
    said = tuple(dict.fromkeys(f"{w.category.__name__}: {w.message}" for w in caught))
    return ZoneOutcome(zone, result, reason, said, ZoneCost(time.process_time() - began, _peak_mb()))


def fit_chunk(chunk: Chunk, *, fit: FitZone, model: Model) -> list[ZoneFit]:
    """Fit each zone of a chunk for the joint estimate; a zone that cannot be is left out, and told when it is tried."""
    fits = []
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rows, around in zip(chunk.rows, chunk.around, strict=True):
            try:
                check_rows(rows)
                fits.append(fit(rows, model, around=around))
            except MemoryError:
                raise
            except Exception:
                continue
    return fits


def check_rows(rows: pd.DataFrame) -> None:
    """Refuse rows of a zone in which a bin comes twice: its pickups would count twice."""
    twice = rows["start"][rows["start"].duplicated()]
    if len(twice):
        raise InputError(f"{len(twice)} bins come twice, the first at {twice.iloc[0]}; expected one row per bin.")


def _check_estimate(result: ZoneEstimate, zone: str, draws: int) -> None:
    """Hold a model to its promises before its numbers enter a total."""
    missing = [name for name in _ROWS_NEEDED if name not in result.rows.columns]
    if missing:
        raise NumericalError(f"The model gave rows without {', '.join(missing)}.")
    if set(result.rows["zone"]) - {zone}:
        raise NumericalError("The model gave rows of another zone.")
    lost, observed = result.lost, result.observed
    if lost.shape != (HOURS, draws) or observed.shape != (HOURS,):
        raise NumericalError(
            f"The model gave draws of shape {lost.shape} and {observed.shape}; "
            f"expected {(HOURS, draws)} and {(HOURS,)}."
        )
    if not (np.isfinite(lost).all() and np.isfinite(observed).all()):
        raise NumericalError("The model gave draws that are not finite.")
    if lost.min(initial=0.0) < 0:
        raise NumericalError(f"The model gave negative lost trips ({lost.min():g}).")


def _peak_mb() -> float | None:
    """The largest resident memory this process has had, where the system tells."""
    try:
        # Not ru_maxrss: on Linux that begins with what the process that started this one had.
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes, on macOS
