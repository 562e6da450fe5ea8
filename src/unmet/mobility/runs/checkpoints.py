"""Checkpoints: finished batches of zones on disk, each a folder that appears whole, with checksums.

::

    out/.parts/<fingerprint>/inputs.json                what the fingerprint stands for
                             city.json                  the city model
                             part-<hash>/rows.parquet   the rows of the batch's zones
                                         draws.npz      lost and walkers (zone, hour of week, draw), observed
                                         periods.npz    the same by period of the record
                                         fits.npz       what is kept of the fits, if all zones have it
                                         part.json      zones, failures, summaries, costs, checksums

A damaged checkpoint (a torn write, a full disk, a bad sector) is detected by its checksums, removed and computed again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from unmet._storage.folders import remove
from unmet._storage.hashes import file_hash
from unmet._storage.parquet import write_parquet
from unmet._storage.seals import sealed, unsealed
from unmet._storage.writing import replacing
from unmet._typing import Array
from unmet.mobility.runs.keeping import ZoneRecord, read_records, write_records, zone_record
from unmet.mobility.runs.periods import PeriodDraws, read_draws, write_draws
from unmet.mobility.runs.totals import ZoneDraws

if TYPE_CHECKING:
    from unmet.mobility.models.zone_estimate import ZoneEstimate

__all__ = ["Checkpoint", "ZoneCost", "ZoneOutcome", "read_checkpoint", "read_checkpoints", "write_checkpoint"]

_FITS, _PERIODS = "fits.npz", "periods.npz"


@dataclass(frozen=True)
class ZoneCost:
    """The cost of a zone: processor seconds, and the peak memory of its process so far (MB, if known)."""

    cpu_seconds: float
    peak_mb: float | None


@dataclass(frozen=True)
class ZoneOutcome:
    """The outcome of one zone: an estimate, or the reason why there is none."""

    zone: str
    estimate: ZoneEstimate | None
    reason: str | None
    warnings: tuple[str, ...]
    cost: ZoneCost


@dataclass(frozen=True)
class Checkpoint:
    """A finished batch on disk.

    Attributes
    ----------
    folder : Path
        Folder of its files.
    fitted : tuple of str
        The zones with an estimate, in the order of `draws`.
    failed : dict
        Zone → reason.
    summaries : tuple of dict
        Summaries of the fits as JSON-able values, in the order of `fitted`.
    costs : dict
        Zone → `ZoneCost`.
    """

    folder: Path
    fitted: tuple[str, ...]
    failed: dict[str, str]
    summaries: tuple[dict[str, Any], ...]
    costs: dict[str, ZoneCost]

    @property
    def zones(self) -> frozenset[str]:
        """All zones of the batch."""
        return frozenset(self.fitted) | frozenset(self.failed)

    def records(self) -> list[ZoneRecord] | None:
        """Read what is kept of the fits; None if some zone has nothing to keep."""
        if not self.fitted:
            return []
        return read_records(self.folder / _FITS) if (self.folder / _FITS).exists() else None

    def draws(self) -> list[ZoneDraws]:
        """Read the draws of each fitted zone."""
        with np.load(self.folder / "draws.npz", allow_pickle=False) as file:
            columns = [file[f.name] for f in fields(ZoneDraws)]
        return [ZoneDraws(*values) for values in zip(*columns, strict=True)]

    def periods(self) -> dict[str, PeriodDraws]:
        """Read the draws of each fitted zone by period; a model of one's own may give none."""
        return read_draws(self.folder / _PERIODS) if self.fitted else {}


def write_checkpoint(outcomes: Sequence[ZoneOutcome], folder: Path, scratch: Path) -> Checkpoint:
    """Write a batch in `scratch` and move it into `folder`."""
    zones = json.dumps([o.zone for o in outcomes])
    target = folder / f"part-{hashlib.sha256(zones.encode()).hexdigest()[:16]}"
    fitted = [(o, o.estimate) for o in outcomes if o.estimate is not None]
    with replacing(target, scratch=scratch) as aside:
        aside.mkdir()
        if fitted:
            write_parquet(pd.concat([e.rows for _, e in fitted], ignore_index=True), aside / "rows.parquet")
            np.savez(
                aside / "draws.npz",
                lost=np.stack([e.lost for _, e in fitted]),
                observed=np.stack([e.observed for _, e in fitted]),
                walked_on=np.stack([_walkers(e, "walked_on") for _, e in fitted]),
                walked_in=np.stack([_walkers(e, "walked_in") for _, e in fitted]),
            )
            write_draws(aside / _PERIODS, {o.zone: own for o, e in fitted if (own := _by_period(e, "periods"))})
            records = [record for _, e in fitted if (record := _record(e)) is not None]
            if len(records) == len(fitted):
                write_records(aside / _FITS, records)
        body = {
            "fitted": [o.zone for o, _ in fitted],
            "failed": {o.zone: o.reason for o in outcomes if o.estimate is None},
            "summaries": [{**e.summary, "warnings": "; ".join(o.warnings)} for o, e in fitted],
            "costs": {o.zone: asdict(o.cost) for o in outcomes},
            "sha256": {path.name: file_hash(path) for path in sorted(aside.iterdir())},
        }
        (aside / "part.json").write_text(sealed(json.dumps(body, default=_plain)), encoding="utf-8")
    return read_checkpoint(target)


def _walkers(estimate: ZoneEstimate, name: str) -> Array:
    """Draws of walkers; zero for a model without them."""
    draws: Array | None = getattr(estimate, name, None)
    return np.zeros_like(estimate.lost) if draws is None else draws


def _by_period(estimate: ZoneEstimate, name: str) -> PeriodDraws | None:
    """Draws by period; None for a model without them."""
    own = getattr(estimate, name, None)
    return None if own is None else PeriodDraws(own[0], ZoneDraws(*own[1:]))


def _record(estimate: ZoneEstimate) -> ZoneRecord | None:
    """What is kept of a zone; None for a model that keeps nothing."""
    kept, before = getattr(estimate, "kept", None), getattr(estimate, "before", None)
    periods = _by_period(estimate, "before_periods")
    return zone_record(kept, ZoneDraws(*before), periods) if kept and before and periods else None


def read_checkpoints(folder: Path) -> tuple[list[Checkpoint], int]:
    """Read the intact checkpoints, remove the others, and count those.

    No zone is in two checkpoints of the list: one that repeats a zone is removed as well.
    """
    parts: list[Checkpoint] = []
    seen: set[str] = set()
    removed = 0
    for path in sorted(folder.glob("part-*")):
        try:
            part = read_checkpoint(path)
            _check(part)
        except (OSError, ValueError, KeyError, TypeError):
            remove(path)
            removed += 1
            continue
        if seen & part.zones:
            remove(path)
            removed += 1
            continue
        seen |= part.zones
        parts.append(part)
    return parts, removed


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a finished batch."""
    body = json.loads(unsealed(folder / "part.json"))
    costs = {zone: ZoneCost(**cost) for zone, cost in body["costs"].items()}
    return Checkpoint(folder, tuple(body["fitted"]), body["failed"], tuple(body["summaries"]), costs)


def _check(part: Checkpoint) -> None:
    for name, expected in json.loads(unsealed(part.folder / "part.json"))["sha256"].items():
        if file_hash(part.folder / name) != expected:
            raise ValueError(f"{part.folder / name}: was changed or damaged.")


def _plain(value: object) -> object:
    """Convert values for JSON: NumPy's numbers and arrays to Python's, anything else to text."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    return str(value)
