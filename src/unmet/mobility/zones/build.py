"""Zones: single stations, super-hubs, polygons or H3 cells.

====================================== ==================================================================
option                                 zones
====================================== ==================================================================
``stations``                           one per station
``superhubs:200m``                     groups of stations, any two of a group closer than 200 m
``superhubs:points.csv:200m``          the stations within 200 m of each point (columns ``lat``, ``lon`` and optionally
                                       ``name``), as in the paper
``districts.geojson``                  the stations within each polygon (named by its ``id`` or ``name``)
``h3:9``                               the stations within each H3 cell of that resolution
====================================== ==================================================================

A station is in at most one zone: near two points it belongs to the nearer, in two polygons to the first. The quality
log reports such stations, zones without stations, stations without a zone or coordinates, and stations that moved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from unmet._exceptions import FileFormatError, InputError, MissingExtraError
from unmet._storage.folders import check_regular
from unmet.mobility.records.heads import read_head
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.records.stations import MOVED_METRES
from unmet.mobility.records.unpacking import DEFAULT_MEMORY
from unmet.mobility.zones.distance import metres_between
from unmet.mobility.zones.polygons import inside, read_geojson

__all__ = ["Zones", "find_zones", "report_moved"]

Floats = NDArray[np.float64]
_NOWHERE = -1
_PACKED = (".gz", ".bz2", ".zip", ".xz", ".zst")  # which pandas unpacks
_BYTES_PER_PAIR = 48  # distances of all pairs of stations, and the arrays on the way to them
Locator = Callable[[Floats, Floats], NDArray[np.int64]]


@dataclass(frozen=True)
class Zones:
    """Zones and their stations.

    Attributes
    ----------
    frame : pandas.DataFrame
        ``zone, name, lat, lon, capacity, stations``: one row per zone. `stations` is a list of ids. If zones are
        polygons also ``polygon``: polygons of rings of (longitude, latitude), as in a MultiPolygon of GeoJSON.
    of_station : array of int
        Row of `frame` for each station, in the order of their numbers (``ix``). -1 for none.
    locate : callable, optional
        Returns rows of `frame` for arrays of latitudes and longitudes, for trips without a station.
    """

    frame: pd.DataFrame
    of_station: NDArray[np.int64]
    locate: Locator | None = None

    def __len__(self) -> int:
        return len(self.frame)


def find_zones(
    spec: str,
    stations: pd.DataFrame,
    log: QualityLog,
    loose: tuple[Floats, Floats] | None = None,
    memory: int = DEFAULT_MEMORY,
) -> Zones:
    """Make zones of stations.

    Parameters
    ----------
    spec : str
        An option of the table at the top of this module.
    stations : pandas.DataFrame
        ``station, name, lat, lon, capacity``, in the order of their numbers. It is not changed.
    log : QualityLog
        Log for odd stations and zones.
    loose : tuple of arrays, optional
        Latitudes and longitudes of the starts of trips without a station. They get H3 cells too.
    memory : int
        Memory limit in bytes, for super-hubs and for the file of polygons.

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
        return _around_points(Path(points), metres, stations, log) if points else _hubs(metres, stations, log, memory)
    if kind == "h3":
        return _h3_cells(rest, stations, log, loose)
    if spec.lower().endswith((".geojson", ".json")):
        return _polygons(Path(spec), stations, log, loose, memory)
    raise InputError(
        "zones: expected stations, superhubs:200m, superhubs:points.csv:200m, a .geojson file of polygons or h3:9; "
        f"got {spec!r}."
    )


def _parse_radius(text: str, spec: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(m|km)", text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise InputError(f"zones {spec!r}: expected a radius such as 200m or 0.5km, got {text!r}.")
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


def _hubs(radius: float, stations: pd.DataFrame, log: QualityLog, memory: int) -> Zones:
    """Group stations by complete linkage: merge the nearest groups while all stations stay closer than the radius.

    Single linkage would chain a dense quarter into one hub. A hub has the name of its largest station.
    """
    lat, lon, placed = _places(stations, log)
    group = np.full(len(stations), _NOWHERE)
    if placed.sum() == 1:
        group[placed] = 0
    elif placed.any():
        need = _BYTES_PER_PAIR * int(placed.sum()) ** 2
        if need > memory:
            raise InputError(
                f"zones: super-hubs of {placed.sum():,} stations need the distances of all pairs, {need / 1e9:.1f} GB. "
                "Raise the memory limit (--memory), or use h3:9 or polygons."
            )
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
    _report_twice(stations, near.sum(axis=1) > 1, "assigned to the nearer point", log)
    names = points["name"].tolist()
    return _report_empty(_make(names, names, of_station, stations, None), stations, placed, log)


def _read_points(path: Path) -> pd.DataFrame:
    check_regular(path)
    if path.is_file() and path.suffix.lower() not in _PACKED:
        read_head(path, str(path))  # refuses too many columns
    try:
        points = pd.read_csv(path, dtype=str, keep_default_na=False).fillna("")  # 007 is a name, not a number
    except FileNotFoundError:
        raise InputError(f"There is no file {str(path)!r} with the points of the super-hubs.") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: cannot be read as a CSV file of points: {error}") from error
    points.columns = [str(c).strip().lower() for c in points.columns]
    points = points.rename(columns={"latitude": "lat", "longitude": "lon", "lng": "lon"})
    missing = [c for c in ("lat", "lon") if c not in points]
    if missing:
        raise FileFormatError(f"{path}: expected columns lat and lon, found {', '.join(points.columns)}.")
    if points.empty:
        raise FileFormatError(f"{path}: there is no row below the header; expected one for each point.")
    for column, most in (("lat", 90), ("lon", 180)):
        points[column] = pd.to_numeric(points[column], errors="coerce")
        bad = ~points[column].abs().le(most)
        if bad.any():
            raise FileFormatError(f"{path}: row {int(bad.argmax()) + 2}: {column} is not a number within ±{most}.")
    given = points["name"] if "name" in points else [""] * len(points)
    points["name"] = [name or f"point {i + 1}" for i, name in enumerate(given)]
    if points["name"].duplicated().any():
        twice = points["name"][points["name"].duplicated()].iloc[0]
        raise FileFormatError(f"{path}: two points have the name {twice!r}; give each its own.")
    return points


def _polygons(
    path: Path, stations: pd.DataFrame, log: QualityLog, loose: tuple[Floats, Floats] | None, memory: int
) -> Zones:
    names, shapes = read_geojson(path, memory)

    def locate(lat: Floats, lon: Floats) -> NDArray[np.int64]:
        row = np.full(len(lat), _NOWHERE, dtype=np.int64)
        for number in reversed(range(len(shapes))):
            row[inside(lat, lon, shapes[number])] = number
        return row

    lat, lon, placed = _places(stations, log, loose)
    times = np.sum([inside(lat, lon, shape) for shape in shapes], axis=0)
    _report_twice(stations, (times > 1) & placed, "assigned to the first polygon", log)
    zones = _make(names, names, np.where(placed, locate(lat, lon), _NOWHERE), stations, locate)
    outlines = [[[_rounded(ring) for ring in polygon] for polygon in shape] for shape in shapes]
    zones.frame["polygon"] = pd.Series(outlines, dtype=object)
    return _report_empty(zones, stations, placed, log)


def _h3_cells(resolution: str, stations: pd.DataFrame, log: QualityLog, loose: tuple[Floats, Floats] | None) -> Zones:
    if not re.fullmatch(r"\d{1,2}", resolution) or int(resolution) > 15:
        raise InputError(
            f"zones: expected H3 zones such as h3:9, with a resolution from 0 to 15, got {'h3:' + resolution!r}."
        )
    try:
        import h3
    except ImportError:
        raise MissingExtraError("h3", "mobility", "H3 zones") from None

    def cells(lat: Floats, lon: Floats) -> list[str]:
        return [h3.latlng_to_cell(a, o, int(resolution)) for a, o in zip(lat, lon, strict=True)]

    lat, lon, placed = _places(stations, log, loose)
    of_placed = cells(lat[placed], lon[placed])
    names = sorted({*of_placed, *(cells(*loose) if loose is not None else [])})
    row_of = {cell: row for row, cell in enumerate(names)}

    def locate(lat: Floats, lon: Floats) -> NDArray[np.int64]:
        return np.array([row_of.get(cell, _NOWHERE) for cell in cells(lat, lon)], dtype=np.int64)

    of_station = np.full(len(stations), _NOWHERE, dtype=np.int64)
    of_station[placed] = [row_of[cell] for cell in of_placed]
    zones = _make(names, names, of_station, stations, locate)
    outlines = [[[_rounded(_ring(h3.cell_to_boundary(cell)))]] for cell in names]
    zones.frame["polygon"] = pd.Series(outlines, dtype=object)
    return zones


def _ring(corners: Sequence[tuple[float, float]]) -> Floats:
    """Convert corners (latitude, longitude) to a closed ring of (longitude, latitude)."""
    return np.array([*corners, corners[0]], dtype=float)[:, ::-1]


def _rounded(ring: Floats) -> list[list[float]]:
    """Convert a ring to lists, rounded to a tenth of a metre."""
    return [[float(x), float(y)] for x, y in np.round(ring, 6)]


def _places(
    stations: pd.DataFrame, log: QualityLog, loose: tuple[Floats, Floats] | None = None
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return coordinates and which stations have them. Raise an error if neither a station nor a trip has any."""
    lat, lon = (stations[c].to_numpy(dtype=float, na_value=np.nan) for c in ("lat", "lon"))
    placed = np.isfinite(lat) & np.isfinite(lon)
    if not placed.any() and (loose is None or not len(loose[0])):
        raise InputError(
            "These zones need the coordinates of the stations, and no station has any. Give a table with lat and lon "
            "(--stations)."
        )
    log.add(
        "stations",
        "station without coordinates",
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
    by_zone = np.argsort(of_station, kind="stable")
    edges = np.searchsorted(of_station[by_zone], np.arange(len(zones) + 1))
    members = [by_zone[low:high] for low, high in pairwise(edges)]
    capacity = stations["capacity"].to_numpy(dtype=float, na_value=np.nan)

    def mean(column: str) -> list[float]:
        values = stations[column].to_numpy(dtype=float, na_value=np.nan)
        return [_mean_angle(values[i]) if len(i) else float("nan") for i in members]

    frame = pd.DataFrame(
        {
            "zone": list(zones),
            "name": list(names),
            "lat": mean("lat"),
            "lon": mean("lon"),
            "capacity": [float(np.sum(capacity[i])) if len(i) else 0.0 for i in members],
            "stations": [stations["station"].iloc[i].tolist() for i in members],
        }
    )
    return Zones(frame, of_station, locate)


def _mean_angle(degrees: Floats) -> float:
    """Return the mean of angles near the first one, from -180 to 180: stations lie on both sides of the antimeridian.

    Examples
    --------
    >>> _mean_angle(np.array([179.0, -178.0]))
    -179.5
    """
    mean = np.mean(degrees - 360 * np.round((degrees - degrees[0]) / 360))
    return float(mean - 360 * np.round(mean / 360))


def _report_twice(stations: pd.DataFrame, twice: NDArray[np.bool_], fate: str, log: QualityLog) -> None:
    log.add("stations", "station in two zones", "noted", int(twice.sum()), f"{_some(stations, twice)}: {fate}")


def _report_empty(zones: Zones, stations: pd.DataFrame, placed: NDArray[np.bool_], log: QualityLog) -> Zones:
    empty = zones.frame["stations"].map(len) == 0
    log.add(
        "panel",
        "zone without stations",
        "noted",
        int(empty.sum()),
        ", ".join(zones.frame["zone"][empty].head(5)),
    )
    outside = (zones.of_station == _NOWHERE) & placed
    log.add("stations", "station in no zone", "noted", int(outside.sum()), _some(stations, outside))
    if empty.all() and (zones.locate is None or placed.any()):
        raise InputError(
            "No station is in any of these zones. Check the coordinates of the zones (GeoJSON has longitude before "
            "latitude), the radius, and the coordinates of the stations."
        )
    return zones


def _some(stations: pd.DataFrame, chosen: NDArray[np.bool_]) -> str:
    few = stations["station"][chosen].head(5).tolist()
    return ", ".join(few) + (" ..." if chosen.sum() > len(few) else "")


def report_moved(connection: DuckDBPyConnection, log: QualityLog) -> None:
    """Report stations that moved: the median start of their trips differs between months."""
    months = connection.execute(
        """SELECT start_station AS station, median(start_lat) AS lat, median(start_lon) AS lon FROM trips
        WHERE start_station IS NOT NULL AND start_lat <> 0 AND start_lon <> 0
        GROUP BY start_station, date_trunc('month', started_at)"""
    ).df()
    ends = months.groupby("station").agg(["min", "max"])
    apart = metres_between(
        *(ends[c].to_numpy(float) for c in (("lat", "min"), ("lon", "min"), ("lat", "max"), ("lon", "max")))
    )
    moved = ends.index[apart > MOVED_METRES].tolist()
    some = ", ".join(map(str, moved[:5])) + (" ..." if len(moved) > 5 else "")
    log.add(
        "stations",
        "station moved",
        "noted",
        len(moved),
        f"{some}: by the starts of their trips; the coordinates of the stations table were used",
    )
