"""Polygons from GeoJSON, and the points inside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmet._exceptions import FileFormatError, InputError
from unmet.mobility.records.unpacking import DEFAULT_MEMORY, read_json

__all__ = ["inside", "read_geojson"]

_FARTHEST = 360.0  # degrees; some files count longitudes on beyond 180

Floats = NDArray[np.float64]


def read_geojson(path: Path, memory: int = DEFAULT_MEMORY) -> tuple[list[str], list[list[list[Floats]]]]:
    """Read the names of all features, and their polygons, each a list of rings. `memory` is the limit in bytes."""
    if not path.exists():
        raise InputError(f"There is no file {str(path)!r} with polygons.")
    document = read_json(path, memory)
    features = _features(document)
    if not features:
        raise FileFormatError(
            f"{path}: expected a GeoJSON FeatureCollection with features, a Feature or a (Multi)Polygon, found none."
        )
    names, shapes = [], []
    for i, feature in enumerate(features):
        names.append(_feature_name(feature, i))
        shapes.append(_rings(path, feature, i))
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise FileFormatError(f"{path}: two features have the name {twice!r}; give each its own id or name.")
    return names, shapes


def _features(document: Any) -> list[Any]:
    """Return the features of a collection, a single feature, or a geometry as a feature."""
    if not isinstance(document, dict):
        return []
    if document.get("type") == "Feature":
        return [document]
    if document.get("type") in ("Polygon", "MultiPolygon"):
        return [{"geometry": document}]
    features = document.get("features")
    return features if isinstance(features, list) else []


def _feature_name(feature: Any, number: int) -> str:
    if isinstance(feature, dict):
        properties = feature.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        for value in (feature.get("id"), properties.get("id"), properties.get("name")):
            if isinstance(value, str | int) and str(value):
                return str(value)
    return f"polygon {number + 1}"


def _rings(path: Path, feature: Any, number: int) -> list[list[Floats]]:
    given = feature.get("geometry") if isinstance(feature, dict) else None
    geometry: dict[str, Any] = given if isinstance(given, dict) else {}
    kind: Any = geometry.get("type")
    coordinates: Any = geometry.get("coordinates")
    if kind not in ("Polygon", "MultiPolygon"):
        raise FileFormatError(f"{path}: features[{number}].geometry should be a Polygon or MultiPolygon, is {kind!r}.")
    where = f"{path}: features[{number}].geometry.coordinates"
    try:
        polygons = [coordinates] if kind == "Polygon" else list(coordinates)
        rings = [[_positions(ring) for ring in polygon] for polygon in polygons]
    except (TypeError, ValueError, IndexError, KeyError, OverflowError) as error:
        raise FileFormatError(f"{where}: expected rings of positions [longitude, latitude], found others.") from error
    if not rings or any(len(ring) < 4 for polygon in rings for ring in polygon):
        raise FileFormatError(f"{where}: a ring needs four positions or more.")
    if not all(np.isfinite(ring).all() for polygon in rings for ring in polygon):
        raise FileFormatError(f"{where}: a position is not a finite number.")
    for ring in (ring for polygon in rings for ring in polygon):
        far = ring[np.abs(ring).max(axis=1) > _FARTHEST]
        if len(far):
            raise FileFormatError(
                f"{path}: features[{number}]: positions are degrees of longitude and latitude (WGS 84), and "
                f"({far[0, 0]:g}, {far[0, 1]:g}) is none. Convert the file to EPSG:4326."
            )
    if any(np.abs(ring[:, 1]).max() > 90 for polygon in rings for ring in polygon):
        raise FileFormatError(f"{path}: features[{number}]: positions are (longitude, latitude); these look swapped.")
    return rings


def _positions(ring: Any) -> Floats:
    """Return the positions of a ring, without heights; raise an error if they are none."""
    positions = np.array([position[:2] for position in ring], dtype=float)
    if len(positions) and positions.shape[1:] != (2,):
        raise ValueError("a position has two numbers")
    return positions


def inside(lat: Floats, lon: Floats, polygons: list[list[Floats]]) -> NDArray[np.bool_]:
    """Return which points are inside (even-odd rule: a ray to the east crosses the rings an odd number of times)."""
    found = np.zeros(len(lat), dtype=bool)
    for rings in polygons:
        odd = np.zeros(len(lat), dtype=bool)
        for ring in rings:
            for (x1, y1), (x2, y2) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
                if y1 != y2:
                    crosses = (y1 > lat) != (y2 > lat)
                    odd ^= crosses & (lon < (x2 - x1) * (lat - y1) / (y2 - y1) + x1)
        found |= odd
    return found
