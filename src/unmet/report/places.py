"""Positions of zones on a plane, in kilometres from their centre, and simplified polygons."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmet._typing import Array

__all__ = ["Base", "centre", "geometry", "plane", "simplified"]

Base = Callable[[Callable[[Array], Array], tuple[Array, Array]], dict[str, Any]]

_KM_PER_DEGREE = 111.195
# Corners closer to the outline than this share of the map's width are removed.
_COARSE = 0.0005
_LONGEST_PIECE = 1000  # points of a line that are simplified together


def plane(zones: pd.DataFrame, base: Base | None = None) -> dict[str, Any] | None:
    """Return the positions of the zones on the map, or None if no zone has one.

    Parameters
    ----------
    zones : pandas.DataFrame
        The zones.
    base : callable, optional
        Gives what is behind the zones, from the projection of the map and the corners of the zones on it.

    Returns
    -------
    dict
        ``x``, ``y`` (km east and north, None if unknown) and, for polygons, ``shapes``: per zone a list of rings of
        ``[x, y]``, or None; and ``base``, if it is given.
    """
    lat, lon = _centres(zones)
    known = np.isfinite(lat) & np.isfinite(lon)
    if not known.any():
        return None
    lon = _unwrapped(lon, known)
    middle_lat = float((lat[known].min() + lat[known].max()) / 2)
    middle_lon = float((lon[known].min() + lon[known].max()) / 2)
    # Equirectangular projection about the centre: accurate to 0.1% within 50 km, away from the poles.
    scale = _KM_PER_DEGREE * np.array([np.cos(np.radians(middle_lat)), 1.0])

    def project(points: Array) -> Array:
        moved = points - [middle_lon, middle_lat]
        moved[:, 0] = (moved[:, 0] + 180.0) % 360.0 - 180.0
        return np.asarray(moved * scale)

    at = project(np.column_stack([lon, lat]))
    found: dict[str, Any] = {"x": _listed(at[:, 0]), "y": _listed(at[:, 1])}
    shapes = [_rings(polygon) for polygon in zones["polygon"]]
    if base is not None:
        found["base"] = base(project, (np.nanmin(at, axis=0), np.nanmax(at, axis=0)))
    if any(shapes):
        drawn = [[project(ring) for ring in rings] for rings in shapes]
        corners = np.concatenate([ring for rings in drawn for ring in rings])
        tolerance = _COARSE * float(np.ptp(corners, axis=0).max())
        found["shapes"] = [
            [_listed_ring(_coarser(ring, tolerance)) for ring in rings] if rings else None for rings in drawn
        ]
    return found


def centre(zone: pd.Series) -> tuple[float, float] | None:
    """Return latitude and longitude of a zone: of its stations, or the mean of its polygon's corners."""
    lat, lon = _centres(pd.DataFrame([zone]))
    return (float(lat[0]), float(lon[0])) if np.isfinite(lat[0]) and np.isfinite(lon[0]) else None


def geometry(zone: pd.Series) -> dict[str, Any] | None:
    """Return the GeoJSON geometry of a zone: its polygon, its point, or None."""
    if _rings(zone["polygon"]):
        return {"type": "MultiPolygon", "coordinates": zone["polygon"]}
    at = centre(zone)
    return None if at is None else {"type": "Point", "coordinates": [at[1], at[0]]}


def _centres(zones: pd.DataFrame) -> tuple[Array, Array]:
    lat, lon = (zones[c].to_numpy(dtype=float, na_value=np.nan).copy() for c in ("lat", "lon"))
    for i, polygon in enumerate(zones["polygon"]):
        rings = _rings(polygon)
        if rings and not (np.isfinite(lat[i]) and np.isfinite(lon[i])):
            lon[i], lat[i] = rings[0][:-1].mean(axis=0)
    bad = (np.abs(lat) > 90) | ~np.isfinite(lat) | ~np.isfinite(lon)
    lat[bad], lon[bad] = np.nan, np.nan
    return lat, lon


def _unwrapped(lon: Array, known: NDArray[np.bool_]) -> Array:
    """Remove the jump of longitudes at the date line if that makes the map narrower."""
    east = np.where(lon < 0, lon + 360.0, lon)
    return east if np.ptp(east[known]) < np.ptp(lon[known]) else lon


def _rings(polygon: Any) -> list[Array]:
    """Return all rings of a multipolygon; the even-odd rule keeps the holes."""
    if not isinstance(polygon, list):
        return []
    return [np.asarray(ring, dtype=float) for part in polygon for ring in part if len(ring) >= 4]


def _coarser(ring: Array, tolerance: float) -> Array:
    """Remove corners closer than the tolerance to the simplified outline (Ramer-Douglas-Peucker)."""
    keep = np.zeros(len(ring), dtype=bool)
    # A closed ring has no ends: cut it in two. Longer pieces are cut too, because the time of one may be quadratic.
    cuts = np.linspace(0, len(ring) - 1, max(2, len(ring) // _LONGEST_PIECE) + 1).astype(int).tolist()
    keep[cuts] = True
    pending = list(pairwise(cuts))
    while pending:
        first, last = pending.pop()
        if last - first < 2:
            continue
        a, b = ring[first], ring[last]
        along = b - a
        length = float(np.hypot(*along))
        offsets = ring[first + 1 : last] - a
        away = np.hypot(*offsets.T) if length == 0 else np.abs(offsets @ [-along[1], along[0]]) / length
        worst = int(away.argmax())
        if away[worst] > tolerance:
            middle = first + 1 + worst
            keep[middle] = True
            pending += [(first, middle), (middle, last)]
    return ring[keep]


def simplified(line: Array, tolerance: float) -> Array:
    """Remove points of an open or closed line that lie closer than the tolerance to the rest of it."""
    return _coarser(line, tolerance) if len(line) > 2 else line


def _listed(values: Array) -> list[float | None]:
    return [round(float(v), 5) if np.isfinite(v) else None for v in values]


def _listed_ring(ring: Array) -> list[list[float]]:
    return [[round(float(x), 5), round(float(y), 5)] for x, y in ring]
