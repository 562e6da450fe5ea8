"""Draws of sums over zones by period, kept so that a report can sum them again: by week, area, part of the day.

``draws.npz`` of a run has them by area, without zones that are left out of the totals. Intervals of any sum of periods
and areas, and of the difference of two such sums, come from these draws, after `ZoneDraws.widened` of the sums.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from unmet._exceptions import FileFormatError, InputError
from unmet._memory import check_memory
from unmet._storage.arrays import write_arrays
from unmet._typing import Array, IntArray
from unmet.mobility.runs.totals import ZoneDraws

__all__ = ["DRAWS", "PeriodDraws", "read_draws", "sum_by_area", "write_draws"]

DRAWS = "draws.npz"
_NAMES = tuple(f.name for f in fields(ZoneDraws))
_DAMAGED = (OSError, EOFError, BadZipFile, zlib.error, NotImplementedError)
_OTHER_KIND = (ValueError, KeyError, TypeError, AttributeError, MemoryError)  # an array may claim any size
_DIGITS = 3  # of a draw; most are whole numbers


@dataclass(frozen=True)
class PeriodDraws:
    """Draws by period of a zone, or of a sum of zones.

    Attributes
    ----------
    periods : array of int
        Numbers of periods (`unmet.mobility.clock.periods`), ascending.
    draws : ZoneDraws
        One row per period.

    Examples
    --------
    >>> one = PeriodDraws(np.array([3]), ZoneDraws.by_itself(np.array([5.0]), np.array([[1.0, 2.0]])))
    >>> both = one + PeriodDraws(np.array([3, 4]), ZoneDraws.by_itself(np.ones(2), np.ones((2, 2))))
    >>> both.periods, both.draws.observed, both.draws.lost
    (array([3, 4]), array([6., 1.]), array([[2., 3.],
           [1., 1.]]))
    """

    periods: IntArray
    draws: ZoneDraws

    def __add__(self, other: PeriodDraws) -> PeriodDraws:
        """Draw by draw; a period that one of both lacks counts as zero."""
        if np.array_equal(self.periods, other.periods):
            return PeriodDraws(self.periods, self.draws + other.draws)
        both = np.union1d(self.periods, other.periods)
        return PeriodDraws(both, self._at(both) + other._at(both))

    def _at(self, periods: IntArray) -> ZoneDraws:
        at = np.searchsorted(periods, self.periods)
        columns = []
        for name in _NAMES:
            own = getattr(self.draws, name)
            wide = np.zeros((len(periods), *own.shape[1:]))
            wide[at] = own
            columns.append(wide)
        return ZoneDraws(*columns)

    def to_parts(self) -> dict[str, Array]:
        """Give its arrays by name, as small as they can be."""
        draws = {name: np.round(getattr(self.draws, name), _DIGITS).astype(np.float32) for name in _NAMES}
        return {"periods": self.periods, **draws}

    @classmethod
    def from_parts(cls, parts: Mapping[str, Any]) -> PeriodDraws:
        """Read back what `to_parts` gave. Raises ValueError if an array is of another kind or not finite."""
        periods = parts["periods"]
        if periods.ndim != 1 or periods.dtype.kind not in "iu" or (np.diff(periods) <= 0).any():
            raise ValueError("periods are not ascending whole numbers")
        for name in _NAMES:
            own = parts[name]
            if own.dtype.kind != "f" or own.shape[:1] != periods.shape or not np.isfinite(own).all():
                raise ValueError(f"{name} does not have a finite number for each period")
        return cls(periods, ZoneDraws(*(parts[name].astype(float) for name in _NAMES)))


def sum_by_area(
    zones: Iterable[tuple[str, PeriodDraws]], left_out: Iterable[str], areas: Mapping[str, str]
) -> dict[str, PeriodDraws]:
    """Sum zones by area, draw by draw; those without an area have the key ''."""
    without = set(left_out)
    found: dict[str, PeriodDraws] = {}
    for zone, draws in zones:
        if zone not in without:
            area = areas.get(zone, "")
            found[area] = found[area] + draws if area in found else draws
    return found


def write_draws(path: Path, draws: Mapping[str, PeriodDraws]) -> None:
    """Write draws by key: area or zone."""
    names = sorted(draws)
    arrays = {f"{i}_{name}": own for i, key in enumerate(names) for name, own in draws[key].to_parts().items()}
    with path.open("wb") as file:
        write_arrays(file, {"keys": np.array(names, dtype=np.str_), **arrays})


def read_draws(path: Path) -> dict[str, PeriodDraws]:
    """Read what `write_draws` wrote.

    Raises
    ------
    FileFormatError
        If the file cannot be read.
    """
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            # Unpacked, it may be larger than memory: an array of zeros takes a thousandth on disk.
            unpacked = sum(entry.file_size for entry in file.zip.infolist())
            check_memory(unpacked // 8, f"{path}: unpacked, it", "Run the estimate again.")
            names = ("periods", *_NAMES)
            return {
                str(key): PeriodDraws.from_parts({name: file[f"{i}_{name}"] for name in names})
                for i, key in enumerate(file["keys"])
            }
    except InputError:
        raise
    except (*_DAMAGED, *_OTHER_KIND) as error:
        raise FileFormatError(f"{path}: does not contain draws by period: {error}. Run the estimate again.") from error
