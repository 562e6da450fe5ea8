"""Water and streets behind the map, from a GeoJSON file that the user gives (``--basemap``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.folders import check_regular
from unmet._typing import Array, BoolArray
from unmet.mobility.records.unpacking import read_json
from unmet.report.places import simplified

__all__ = ["check_basemap", "read_basemap"]

_MARGIN = 0.3  # of the map's width around the zones
_MOST_POINTS = 40_000  # about 400 kB of the page
_MOST_GIVEN = 1_000_000  # points near the zones; simplifying them takes some ten seconds
_KINDS = "LineString, MultiLineString, Polygon or MultiPolygon"


def check_basemap(path: Path) -> None:
    """Check that a file is GeoJSON with lines or polygons."""
    check_regular(path)
    if not path.is_file():
        raise InputError(f"There is no file {str(path)!r}. Expected GeoJSON of streets and water for the map.")
    if not any(True for _ in _shapes(path)):
        raise FileFormatError(f"{path}: expected GeoJSON with geometries of type {_KINDS}; found none.")


def read_basemap(path: Path, project: Callable[[Array], Array], extent: tuple[Array, Array]) -> dict[str, Any]:
    """Read lines and polygons near the zones, coarse enough for the page.

    Parameters
    ----------
    path : Path
        GeoJSON, with longitude and latitude.
    project : callable
        From points ``[lon, lat]`` to km on the plane of the map.
    extent : pair of arrays
        South-western and north-eastern corner of the zones on that plane.

    Returns
    -------
    dict
        ``lines`` and ``areas``: lists of lists of ``[x, y]``.
    """
    check_basemap(path)
    low, high = extent
    margin = _MARGIN * max(float((high - low).max()), 0.5)
    near: dict[str, list[Array]] = {"lines": [], "areas": []}
    for kind, points in _shapes(path):
        at = project(points)
        if (at.max(axis=0) >= low - margin).all() and (at.min(axis=0) <= high + margin).all():
            near[kind] += [at] if kind == "areas" else _inside(at, low - margin, high + margin)
    given = _count(near)
    if given > _MOST_GIVEN:
        raise InputError(
            f"{path}: has {given:,} points near the zones; a map takes at most {_MOST_GIVEN:,}. Give fewer or simpler "
            "streets and areas."
        )
    tolerance = 0.0005 * margin / _MARGIN
    while True:
        found = {kind: [simplified(at, tolerance) for at in shapes] for kind, shapes in near.items()}
        count = _count(found)
        if count <= _MOST_POINTS:
            break
        tolerance *= max(2.0, count / _MOST_POINTS)
        near = {kind: [at for at in shapes if np.ptp(at, axis=0).max() > tolerance] for kind, shapes in found.items()}
    return {kind: [np.round(at, 4).tolist() for at in shapes] for kind, shapes in found.items()}


def _count(shapes: dict[str, list[Array]]) -> int:
    return sum(len(at) for lines in shapes.values() for at in lines)


def _inside(at: Array, low: Array, high: Array) -> list[Array]:
    """Cut a line to the pieces that touch a box."""
    touches: BoolArray = np.all((at >= low) & (at <= high), axis=1)
    near = touches.copy()
    near[1:] |= touches[:-1]
    near[:-1] |= touches[1:]
    cuts = np.flatnonzero(np.diff(near.astype(int))) + 1
    return [
        piece for piece, own in zip(np.split(at, cuts), np.split(near, cuts), strict=True) if own[0] and len(own) > 1
    ]


def _shapes(path: Path) -> Iterator[tuple[str, Array]]:
    """Yield each line or ring with its kind, ``lines`` or ``areas``."""
    document = read_json(path)
    features = document.get("features", [document]) if isinstance(document, dict) else []
    for number, feature in enumerate(features if isinstance(features, list) else []):
        shape = feature.get("geometry", feature) if isinstance(feature, dict) else None
        yield from _of_geometry(path, number, shape)


def _of_geometry(path: Path, number: int, shape: Any) -> Iterator[tuple[str, Array]]:
    if not isinstance(shape, dict):
        return
    kind, given = shape.get("type"), shape.get("coordinates", ())
    try:
        if kind == "GeometryCollection":
            for part in shape["geometries"]:
                yield from _of_geometry(path, number, part)
        elif kind == "LineString":
            yield "lines", _points(given)
        elif kind in ("MultiLineString", "Polygon"):
            for line in given:
                yield "areas" if kind == "Polygon" else "lines", _points(line)
        elif kind == "MultiPolygon":
            for polygon in given:
                for ring in polygon:
                    yield "areas", _points(ring)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError):
        raise FileFormatError(f"{path}: feature {number}: expected the coordinates of a {kind}.") from None


def _points(given: Any) -> Array:
    points = np.array([[float(point[0]), float(point[1])] for point in given])
    if len(points) < 2 or not np.isfinite(points).all() or (np.abs(points) > [360, 90]).any():
        raise ValueError
    return points
