"""A model of a few lines in the place of the real one, with ways to die, for the tests of runs."""

from __future__ import annotations

import os
import signal
import threading
import warnings
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from unmet import InputError


@dataclass(frozen=True)
class ToyModel:
    """Settings; `trouble` maps zones to what happens there, `log` is a folder with a file per call."""

    draws: int = 20
    seed: int = 0
    trouble: dict[str, str] = field(default_factory=dict)
    log: str | None = None

    def to_dict(self) -> dict[str, Any]:
        # What happens on the way is no part of the model: a run that was disturbed is the same run.
        return {k: v for k, v in asdict(self).items() if k in ("draws", "seed")}

    def describe(self) -> dict[str, Any]:
        return {"name": "toy", "sentence": "A toy."}


@dataclass(frozen=True)
class ToyEstimate:
    rows: pd.DataFrame
    lost: np.ndarray
    observed: np.ndarray
    summary: dict[str, Any]


def estimate_toy(panel: pd.DataFrame, model: ToyModel) -> ToyEstimate:
    """Weekly mean over exposure; lost trips are Poisson draws seeded by the zone's name."""
    zone = str(panel["zone"].iloc[0])
    calls = _log(model, zone)
    _suffer(model.trouble.get(zone, ""), zone, calls)
    panel = panel[panel["observed"].notna()]
    hour = (panel["start_local"].dt.day_of_week * 24 + panel["start_local"].dt.hour).to_numpy()
    observed = np.bincount(hour, weights=panel["observed"], minlength=168)
    exposure = np.bincount(hour, weights=panel["exposure"], minlength=168)
    rate = observed / np.maximum(exposure, 1e-9)
    missing = rate[hour] * (1 - panel["exposure"].to_numpy())
    rng = np.random.default_rng([zlib.crc32(zone.encode()), model.seed])
    lost = rng.poisson(np.bincount(hour, weights=missing, minlength=168)[:, None], size=(168, model.draws))
    rows = panel[["zone", "start", "observed", "exposure", "censored"]].assign(
        demand_mean=panel["observed"] + missing, lost_mean=missing, flags=""
    )
    summary = {"zone": zone, "model": "toy", "converged": True, "log_evidence": np.float64(-1.5), "cpu_seconds": 0.1}
    return ToyEstimate(rows, lost.astype(float), observed, summary)


def _log(model: ToyModel, zone: str) -> int:
    """How often this zone has been asked for, this time included."""
    if model.log is None:
        return 1
    number = 1
    while True:
        try:
            os.close(os.open(Path(model.log) / f"{zone}.{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            number += 1
        else:
            return number


def _suffer(trouble: str, zone: str, calls: int) -> None:
    what, _, when = trouble.partition("@")
    if not what or (when and calls > int(when)):
        return
    if what == "refuse":
        raise InputError(f"{zone} has no bins with supply.")
    if what == "bug":
        raise ZeroDivisionError("division by zero")
    if what == "warn":
        warnings.warn("not quite converged", UserWarning, stacklevel=1)
    if what == "memory":
        raise MemoryError
    if what == "exit":
        os._exit(3)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what.startswith("kill-run"):
        os.kill(os.getppid(), signal.SIGKILL)
    if what == "kill-run-and-wait":
        threading.Event().wait()


def toy_panel(zones: int = 6, days: int = 9, seed: int = 1) -> pd.DataFrame:
    """A panel over the end of summer time in New York."""
    rng = np.random.default_rng(seed)
    start = pd.date_range("2021-11-01 04:00", periods=24 * days, freq="h", tz="UTC").as_unit("us")
    frames = []
    for i in range(zones):
        stockout = np.where(rng.random(len(start)) < 0.2, rng.integers(1, 61, len(start)), 0)
        frames.append(
            pd.DataFrame(
                {
                    "zone": f"z{i}",
                    "start": start,
                    "start_local": start.tz_convert("America/New_York").tz_localize(None),
                    "minutes": 60,
                    "observed": rng.poisson(3.0 * (60 - stockout) / 60).astype(float),
                    "available_minutes": 60 - stockout,
                    "stockout_minutes": stockout,
                    "closed_minutes": 0,
                    "unknown_minutes": 0,
                    "exposure": (60 - stockout) / 60,
                    "censored": stockout > 0,
                }
            )
        )
    return pd.concat(frames, ignore_index=True)
