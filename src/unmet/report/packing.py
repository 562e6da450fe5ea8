"""Compress series so that they fit into one page.

A year of hourly bins of 600 zones is five million rows. The page keeps the days and hours of the week of every zone,
and single bins for as many of the last weeks as fit. Numbers are rounded to screen resolution, 16 bits each, and
compressed; the page unpacks the zone that is shown.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmet._typing import Array
from unmet.report.series import WEEKLY, SystemSeries, ZoneSeries, day_numbers, each_zone
from unmet.report.source import RunSource

__all__ = ["PACKED", "Packed", "pack", "pack_integers", "pack_run"]

PACKED = ("observed", "rate", "below", "above", "lost", "stockout", "off")
"""Packed series: `DRAWN` with the limits as distances from the rate, which halves their size."""

_MISSING = 65535
_LEVELS = 500
_SHARE_STEP = 0.02
# Largest number of zone-bins in a page: about 4.5 bytes each.
_FINE_ROWS = 1_300_000


@dataclass(frozen=True)
class Packed:
    """Packed series of a run.

    Attributes
    ----------
    zones : list of dict
        ``drawn`` and ``week`` (see `pack`) of each zone, in the order of the run's zones: `PACKED` of the bins from
        `fine_from` on and then of the days; `WEEKLY` of the hours of the week.
    system : dict
        The same for all zones together, without those that are left out of the totals; ``parts`` has the days of
        each part of the day.
    areas : dict
        The same for each area, by name.
    fine_from : int
        The first bin that the page shows singly.
    weeks : list of dict
        The hours of the week of each zone, not packed.
    """

    zones: list[dict[str, Any]]
    system: dict[str, Any]
    areas: dict[str, dict[str, Any]]
    fine_from: int
    weeks: list[dict[str, Array]]


def pack(series: list[tuple[Array, float]]) -> dict[str, Any]:
    """Pack series as 16-bit numbers with an offset and a step each, compressed, as text.

    Value = offset + step · number; 65535 means missing. Low bytes come before high bytes, which compresses better.

    Parameters
    ----------
    series : list of (array, float)
        Values, and the step to round them to. Whole numbers stay whole; a range of more than 65534 steps gets a
        larger step.

    Examples
    --------
    >>> pack([(np.array([0.0, 3.0, np.nan]), 0.1), (np.array([-0.26, 0.5]), 0.1)])["scales"]
    [[0.0, 1.0], [-0.26, 0.1]]
    """
    numbers, scales = [], []
    for values, wanted in series:
        finite = np.isfinite(values)
        offset, step = _scale(values[finite], wanted)
        number = np.full(len(values), _MISSING, dtype="<u2")
        number[finite] = np.clip(np.rint((values[finite] - offset) / step), 0, _MISSING - 1)
        numbers.append(number)
        scales.append([offset, step])
    together = np.concatenate(numbers).view(np.uint8).reshape(-1, 2)
    return {"data": _text(together.T.tobytes()), "scales": scales}


def _scale(values: Array, step: float) -> tuple[float, float]:
    if not len(values):
        return 0.0, 1.0
    low, high = float(min(values.min(), 0.0)), float(values.max())
    if high - low < _MISSING - 1 and np.array_equal(values, np.rint(values)):
        return low, 1.0
    # Rounded as in the page, which must use the same steps.
    return float(f"{low:.6g}"), float(f"{max(step, (high - low) / (_MISSING - 2), 1e-9):.6g}")


def pack_integers(values: NDArray[np.int64]) -> str:
    """Pack integers as differences of 32 bits, compressed, as text."""
    return _text(np.diff(values, prepend=0).astype("<i4").tobytes())


def _text(raw: bytes) -> str:
    return base64.b64encode(gzip.compress(raw, 9, mtime=0)).decode("ascii")


def pack_run(source: RunSource, progress: Callable[[int, int], None] | None = None) -> Packed:
    """Pack all zones, with the rows of a few in memory at a time."""
    fine_from = _fine_from(source)
    estimated = source.counted.tolist()
    area_of = source.area_of
    system = SystemSeries(source)
    areas = {area: SystemSeries(source, area) for area in sorted({a for a in area_of if a is not None})}
    packed, weeks = [], []
    for number, series in each_zone(source):
        if estimated[number]:
            system.add(series)
            if (area := area_of[number]) is not None:
                areas[area].add(series)
        packed.append(_packed(series, fine_from))
        weeks.append(series.week)
        if progress is not None:
            progress(number + 1, len(estimated))
    of_areas = {area: _packed(own.series(), fine_from) for area, own in areas.items()}
    return Packed(packed, _packed(system.series(), fine_from), of_areas, fine_from, weeks)


def _packed(series: ZoneSeries, fine_from: int) -> dict[str, Any]:
    drawn = _to_pack(series.bins, fine_from) + _to_pack(series.days, 0)
    # Hours of the week are also shown as numbers: as fine as 16 bits allow.
    packed: dict[str, Any] = {"drawn": pack(drawn), "week": pack([(series.week[name], 0.0) for name in WEEKLY])}
    if series.parts:
        packed["parts"] = {name: pack(_to_pack(days, 0)) for name, days in series.parts.items()}
    return packed


def _to_pack(values: dict[str, Array], first: int) -> list[tuple[Array, float]]:
    """Return `PACKED` with steps of about half a pixel: trips by the highest limit, shares of time in 50ths."""
    own = {name: series[first:] for name, series in values.items()}
    own["below"], own["above"] = own["rate"] - own["low"], own["high"] - own["rate"]
    tallest = [float(np.nanmax(own[n])) for n in ("high", "observed") if np.isfinite(own[n]).any()]
    step = max(tallest, default=0.0) / _LEVELS
    steps = {"observed": 0.0, "stockout": _SHARE_STEP, "off": _SHARE_STEP}
    return [(own[name], steps.get(name, step)) for name in PACKED]


def _fine_from(source: RunSource) -> int:
    """Return the first bin to show singly, at a midnight, so that all zones fit."""
    bins = source.bins
    room = max(_FINE_ROWS // (len(source.zones) + 1), 1)
    if len(bins) <= room:
        return 0
    first = len(bins) - room
    days = day_numbers(bins)
    later = np.flatnonzero(days > days[first])
    return int(later[0]) if len(later) else first
