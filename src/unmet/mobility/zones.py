"""Zones: single stations, super-hubs, polygons or H3 cells.

====================================== ==================================================================
written as                             zones
====================================== ==================================================================
``stations``                           each station by itself
``superhubs:200m``                     stations grouped so that any two of a hub are closer than 200 m
``superhubs:points.csv:200m``          the stations within 200 m of each point (columns ``lat``, ``lon`` and, if there
                                       is one, ``name``), as in the paper
``districts.geojson``                  the stations within each polygon (named by its ``id`` or ``name``)
``h3:9``                               the stations within each H3 cell of that resolution
====================================== ==================================================================

A station is in one zone at most: near two points it goes to the nearer, in two polygons to the first. That, zones without
stations, stations without a zone or a place, and stations that moved are reported, never settled in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from unmet._exceptions import FileFormatError, InputError, MissingExtraError
from unmet.mobility.quality import QualityLog

__all__ = ["Zones", "find_zones", "metres_between"]

Floats = NDArray[np.float64]
_EARTH = 6_371_008.8
_NOWHERE = -1
Locator = Callable[[Floats, Floats], NDArray[np.int64]]


@dataclass(frozen=True)
class Zones:
    """Which stations make up which zone.

    Attributes
    ----------
    frame : pandas.DataFrame
        ``zone, name, lat, lon, capacity, stations``: one row per zone; `stations` is a list of ids.
    of_station : array of int
        Row of `frame` for each station, in the order of their numbers (``ix``); -1 for none.
    locate : callable, optional
        Rows of `frame` for arrays of latitudes and longitudes: for trips that name no station.
    """

    frame: pd.DataFrame
    of_station: NDArray[np.int64]
    locate: Locator | None = None

    def __len__(self) -> int:
        return len(self.frame)


def find_zones(spec: str, stations: pd.DataFrame, log: QualityLog) -> Zones:
    """Make zones of stations.

    Parameters
    ----------
    spec : str
        As in the table at the head of this module.
    stations : pandas.DataFrame
        ``station, name, lat, lon, capacity``, in the order of their numbers; it is not changed.
    log : QualityLog
        Where to report what is odd.

    Examples
    --------
    >>> stations = pd.DataFrame({"station": ["a", "b", "c"], "name": ["A", "B", "C"], "lat": [40.7, 40.7005, 40.71],
    ...                          "lon": [-74.0, -74.0, -74.0], "capacity": [10, 20, 15]})
    >>> zones = find_zones("superhubs:200m", stations, QualityLog())
    >>> zones.frame[["zone", "stations"]].values.tolist()
    [['hub:b', ['a', 'b']], ['hub:c', ['c']]]
    """
    kind, _, rest = spec.partition(":")
    if spec == "stations":
        return _each_station(stations)
    if kind == "superhubs":
        points, _, radius = rest.rpartition(":")
        metres = _parse_radius(radius, spec)
        return _around_points(Path(points), metres, stations, log) if points else _hubs(metres, stations, log)
    if kind == "h3":
        return _h3_cells(rest, stations, log)
    if spec.lower().endswith((".geojson", ".json")):
        return _polygons(Path(spec), stations, log)
    raise InputError(
        f"Zones {spec!r} are not understood. Expected one of: stations; superhubs:200m; superhubs:points.csv:200m; "
        "a .geojson file of polygons; h3:9."
    )


def metres_between(lat_a: Floats, lon_a: Floats, lat_b: Floats, lon_b: Floats) -> Floats:
    """Great-circle distance (haversine formula; accurate to 0.5 %, the Earth's flattening), broadcasting.

    Examples
    --------
    >>> round(float(metres_between(*map(np.asarray, (40.0, -74.0, 40.001, -74.0)))))
    111
    """
    lat_a, lon_a, lat_b, lon_b = (np.radians(v) for v in (lat_a, lon_a, lat_b, lon_b))
    chord = (
        np.sin((lat_b - lat_a) / 2) ** 2 + np.cos(lat_a) * np.cos(lat_b) * np.sin((lon_b - lon_a) / 2) ** 2
    )
    distance: Floats = 2 * _EARTH * np.arcsin(np.sqrt(np.minimum(chord, 1.0)))
    return distance


def _parse_radius(text: str, spec: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(m|km)", text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise InputError(f"Zones {spec!r}: the radius should be written like 200m or 0.5km, and is {text!r}.")
    return float(match[1]) * (1000 if match[2] == "km" else 1)


def _each_station(stations: pd.DataFrame) -> Zones:
    frame = pd.DataFrame(
        {
            "zone": stations["station"],
            "name": stations["name"],
            "lat": stations["lat"],
            "lon": stations["lon"],
            "capacity": stations["capacity"],
            "stations": [[s] for s in stations["station"]],
        }
    )
    return Zones(frame, np.arange(len(stations)))


def _hubs(radius: float, stations: pd.DataFrame, log: QualityLog) -> Zones:
    """Group by complete linkage: nearest groups first, as long as any two stations stay closer than the radius.

    (Single linkage would chain a dense quarter into one hub.) A hub bears the name of its largest station.
    """
    lat, lon, placed = _places(stations, log)
    group = np.full(len(stations), _NOWHERE)
    if placed.sum() == 1:
        group[placed] = 0
    elif placed.any():
        apart = metres_between(lat[placed, None], lon[placed, None], lat[None, placed], lon[None, placed])
        tree = linkage(squareform(apart, checks=False), method="complete")
        group[placed] = fcluster(tree, t=np.nextafter(radius, 0), criterion="distance")
    capacity = stations["capacity"].to_numpy(dtype=float, na_value=-1.0)
    ids = stations["station"].tolist()
    anchors: dict[int, int] = {}
    for i in sorted(range(len(ids)), key=lambda i: (-capacity[i], ids[i])):
        if group[i] != _NOWHERE:
            anchors.setdefault(int(group[i]), i)
    rows = sorted(anchors.values(), key=lambda i: ids[i])
    row_of_group = {int(group[anchor]): row for row, anchor in enumerate(rows)}
    of_station = np.array([row_of_group.get(int(g), _NOWHERE) for g in group], dtype=np.int64)
    zones = [f"hub:{ids[i]}" for i in rows]
    return _make(zones, [stations["name"].iloc[i] for i in rows], of_station, stations, None)


def _around_points(path: Path, radius: float, stations: pd.DataFrame, log: QualityLog) -> Zones:
    points = _read_points(path)
    lat, lon, placed = _places(stations, log)
    apart = metres_between(
        lat[:, None], lon[:, None], points["lat"].to_numpy()[None, :], points["lon"].to_numpy()[None, :]
    )
    near = (apart <= radius) & placed[:, None]
    of_station = np.where(near.any(axis=1), np.where(near, apart, np.inf).argmin(axis=1), _NOWHERE)
    _report_twice(stations, near.sum(axis=1) > 1, "went to the nearer point", log)
    names = points["name"].tolist()
    return _report_empty(_make(names, names, of_station, stations, None), stations, placed, log)


def _read_points(path: Path) -> pd.DataFrame:
    try:
        points = pd.read_csv(path)
    except FileNotFoundError:
        raise InputError(f"There is no file {str(path)!r} with the points of the super-hubs.") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: cannot be read as a CSV of points: {error}") from error
    points.columns = [str(c).strip().lower() for c in points.columns]
    points = points.rename(columns={"latitude": "lat", "longitude": "lon", "lng": "lon"})
    missing = [c for c in ("lat", "lon") if c not in points]
    if missing:
        raise FileFormatError(f"{path}: expected columns lat and lon, found {', '.join(points.columns)}.")
    for column, most in (("lat", 90), ("lon", 180)):
        points[column] = pd.to_numeric(points[column], errors="coerce")
        bad = ~points[column].abs().le(most)
        if bad.any():
            raise FileFormatError(
                f"{path}: row {int(bad.argmax()) + 2}: {column} is not a number within ±{most}."
            )
    if "name" not in points:
        points["name"] = [f"point {i + 1}" for i in range(len(points))]
    points["name"] = points["name"].astype(str)
    if points["name"].duplicated().any():
        twice = points["name"][points["name"].duplicated()].iloc[0]
        raise FileFormatError(f"{path}: the name {twice!r} comes twice; each point needs its own.")
    return points


def _polygons(path: Path, stations: pd.DataFrame, log: QualityLog) -> Zones:
    names, shapes = _read_geojson(path)

    def locate(lat: Floats, lon: Floats) -> NDArray[np.int64]:
        row = np.full(len(lat), _NOWHERE, dtype=np.int64)
        for number in reversed(range(len(shapes))):
            row[_inside(lat, lon, shapes[number])] = number
        return row

    lat, lon, placed = _places(stations, log)
    times = np.sum([_inside(lat, lon, shape) for shape in shapes], axis=0)
    _report_twice(stations, (times > 1) & placed, "went to the first polygon", log)
    zones = _make(names, names, np.where(placed, locate(lat, lon), _NOWHERE), stations, locate)
    return _report_empty(zones, stations, placed, log)


def _read_geojson(path: Path) -> tuple[list[str], list[list[list[Floats]]]]:
    """Read polygons: a name and a list of polygons, each a list of rings, for every feature."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"There is no file {str(path)!r} with polygons.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: is not a JSON document: {error}") from error
    features = document.get("features") if isinstance(document, dict) else None
    if not isinstance(features, list) or not features:
        raise FileFormatError(f"{path}: expected a GeoJSON FeatureCollection with features, found none.")
    names, shapes = [], []
    for i, feature in enumerate(features):
        names.append(_feature_name(feature, i))
        shapes.append(_rings(path, feature, i))
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise FileFormatError(f"{path}: two features are called {twice!r}; give each its own id or name.")
    return names, shapes


def _feature_name(feature: Any, number: int) -> str:
    if isinstance(feature, dict):
        properties = feature.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        for value in (feature.get("id"), properties.get("id"), properties.get("name")):
            if isinstance(value, str | int) and str(value):
                return str(value)
    return f"polygon {number + 1}"


def _rings(path: Path, feature: Any, number: int) -> list[list[Floats]]:
    geometry = feature.get("geometry") if isinstance(feature, dict) else None
    kind = geometry.get("type") if isinstance(geometry, dict) else None
    if kind not in ("Polygon", "MultiPolygon"):
        raise FileFormatError(
            f"{path}: features[{number}].geometry should be a Polygon or MultiPolygon, is {kind!r}."
        )
    coordinates = geometry.get("coordinates")
    try:
        polygons = [coordinates] if kind == "Polygon" else list(coordinates)
        rings = [[np.array([c[:2] for c in ring], dtype=float) for ring in polygon] for polygon in polygons]
        if not rings or any(ring.ndim != 2 or len(ring) < 4 for polygon in rings for ring in polygon):
            raise ValueError("a ring needs four positions or more")
    except (TypeError, ValueError, IndexError) as error:
        raise FileFormatError(f"{path}: features[{number}].geometry.coordinates: {error}.") from error
    if any(np.abs(ring[:, 1]).max() > 90 for polygon in rings for ring in polygon):
        raise FileFormatError(
            f"{path}: features[{number}]: positions are (longitude, latitude); these look swapped."
        )
    return rings


def _inside(lat: Floats, lon: Floats, polygons: list[list[Floats]]) -> NDArray[np.bool_]:
    """Even-odd rule: a point is inside when a ray to the east crosses the rings an odd number of times."""
    inside = np.zeros(len(lat), dtype=bool)
    for rings in polygons:
        odd = np.zeros(len(lat), dtype=bool)
        for ring in rings:
            for (x1, y1), (x2, y2) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
                if y1 != y2:
                    crosses = (y1 > lat) != (y2 > lat)
                    odd ^= crosses & (lon < (x2 - x1) * (lat - y1) / (y2 - y1) + x1)
        inside |= odd
    return inside


def _h3_cells(resolution: str, stations: pd.DataFrame, log: QualityLog) -> Zones:
    if not re.fullmatch(r"\d{1,2}", resolution) or int(resolution) > 15:
        raise InputError(
            f"H3 zones are written h3:9, with a resolution from 0 to 15; got {'h3:' + resolution!r}."
        )
    try:
        import h3
    except ImportError:
        raise MissingExtraError("h3", "mobility", "H3 zones") from None
    lat, lon, placed = _places(stations, log)
    cells = [
        h3.latlng_to_cell(a, o, int(resolution)) if p else None
        for a, o, p in zip(lat, lon, placed, strict=True)
    ]
    names = sorted({c for c in cells if c is not None})
    row_of = {cell: row for row, cell in enumerate(names)}

    def locate(lat: Floats, lon: Floats) -> NDArray[np.int64]:
        # Trips without a station make no new cell: zones are where there are stations, unless there is none at all.
        found = (
            row_of.get(h3.latlng_to_cell(a, o, int(resolution)), _NOWHERE)
            for a, o in zip(lat, lon, strict=True)
        )
        return np.fromiter(found, dtype=np.int64, count=len(lat))

    of_station = np.array([row_of.get(c, _NOWHERE) if c else _NOWHERE for c in cells], dtype=np.int64)
    return _make(names, names, of_station, stations, locate)


def _places(stations: pd.DataFrame, log: QualityLog) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Coordinates, and where there are any; it is an error when no station has a place."""
    lat, lon = (stations[c].to_numpy(dtype=float, na_value=np.nan) for c in ("lat", "lon"))
    placed = np.isfinite(lat) & np.isfinite(lon)
    if not placed.any():
        raise InputError(
            "These zones need the stations' places, and none is known. Give a table with lat and lon (--stations)."
        )
    log.add(
        "zones",
        "station without a place",
        "noted",
        int((~placed).sum()),
        _some(stations, ~placed) + ": in no zone",
    )
    return lat, lon, placed


def _make(
    zones: Sequence[str],
    names: Sequence[str],
    of_station: NDArray[np.int64],
    stations: pd.DataFrame,
    locate: Locator | None,
) -> Zones:
    member = pd.DataFrame({"zone": of_station, "ix": np.arange(len(stations))})
    groups = {int(z): g["ix"].to_numpy() for z, g in member[member["zone"] >= 0].groupby("zone")}
    nobody = np.empty(0, dtype=np.int64)
    inside = [groups.get(z, nobody) for z in range(len(zones))]
    capacity = stations["capacity"].to_numpy(dtype=float, na_value=np.nan)

    def mean(column: str) -> list[float]:
        values = stations[column].to_numpy(dtype=float, na_value=np.nan)
        return [float(values[i].mean()) if len(i) else float("nan") for i in inside]

    frame = pd.DataFrame(
        {
            "zone": list(zones),
            "name": list(names),
            "lat": mean("lat"),
            "lon": mean("lon"),
            "capacity": [float(np.sum(capacity[i])) if len(i) else 0.0 for i in inside],
            "stations": [stations["station"].iloc[i].tolist() for i in inside],
        }
    )
    return Zones(frame, of_station, locate)


def _report_twice(stations: pd.DataFrame, twice: NDArray[np.bool_], fate: str, log: QualityLog) -> None:
    log.add("zones", "station in two zones", "noted", int(twice.sum()), f"{_some(stations, twice)}: {fate}")


def _report_empty(zones: Zones, stations: pd.DataFrame, placed: NDArray[np.bool_], log: QualityLog) -> Zones:
    empty = zones.frame["stations"].map(len) == 0
    log.add(
        "zones",
        "zone without stations",
        "noted",
        int(empty.sum()),
        ", ".join(zones.frame["zone"][empty].head(5)),
    )
    outside = (zones.of_station == _NOWHERE) & placed
    log.add("zones", "station in no zone", "noted", int(outside.sum()), _some(stations, outside))
    if empty.all() and zones.locate is None:
        raise InputError(
            "No station lies in any of these zones. Check the points, the radius and the stations' places."
        )
    return zones


def _some(stations: pd.DataFrame, chosen: NDArray[np.bool_]) -> str:
    few = stations["station"][chosen].head(5).tolist()
    return ", ".join(few) + (" ..." if chosen.sum() > len(few) else "")
