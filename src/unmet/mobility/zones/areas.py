"""Areas: sums of zones, such as districts.

A *zone* is out of stock when all of its stations are, because riders walk within it. An *area* is only a sum: its lost
trips are those of its zones. So districts are areas, and zones that are wider than a walk are a mistake.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.records.unpacking import DEFAULT_MEMORY
from unmet.mobility.zones.build import Zones
from unmet.mobility.zones.distance import metres_between
from unmet.mobility.zones.polygons import inside, read_geojson

__all__ = ["WALK", "find_areas", "is_polygon_file", "report_wide_zones"]

WALK = 700.0
"""Metres. Hardly anybody who finds a station empty walks further to another."""


def is_polygon_file(spec: str) -> bool:
    """Return whether areas are polygons of a file; else they are a column of the stations table.

    Examples
    --------
    >>> is_polygon_file("districts.geojson"), is_polygon_file("district")
    (True, False)
    """
    return spec.lower().endswith((".geojson", ".json"))


def find_areas(
    spec: str, zones: Zones, stations: pd.DataFrame, log: QualityLog, memory: int = DEFAULT_MEMORY
) -> list[str | None]:
    """Return the area of each zone, or None.

    Parameters
    ----------
    spec : str
        A GeoJSON file, in which the middle of a zone is looked up; or a column of the stations table, which is read as
        ``area``: the value that most stations of the zone have.
    zones : Zones
        The zones.
    stations : pandas.DataFrame
        Stations in the order of their numbers, with the column ``area``.
    log : QualityLog
        Log for zones in no area, or in several.
    memory : int
        Memory limit in bytes, for the file of polygons.
    """
    if is_polygon_file(spec):
        areas = _in_polygons(Path(spec), zones, log, memory)
    else:
        areas = []
        mixed = 0
        for zone in range(len(zones)):
            named = Counter(stations["area"].iloc[zones.of_station == zone].dropna().astype(str))
            areas.append(named.most_common(1)[0][0] if named else None)
            mixed += len(named) > 1
        log.add("panel", "zone in several areas", "noted", mixed, "counted in the area of most of its stations")
    if not any(area is not None for area in areas):
        raise InputError(f"areas: no zone has an area of {spec!r}. Check the coordinates, or the values of the column.")
    nowhere = [str(name) for name, area in zip(zones.frame["zone"], areas, strict=True) if area is None]
    log.add("panel", "zone in no area", "noted", len(nowhere), ", ".join(nowhere[:5]))
    return areas


def _in_polygons(path: Path, zones: Zones, log: QualityLog, memory: int) -> list[str | None]:
    names, shapes = read_geojson(path, memory)
    lat, lon = (zones.frame[c].to_numpy(dtype=float, na_value=np.nan) for c in ("lat", "lon"))
    areas: list[str | None] = [None] * len(zones)
    placed = np.flatnonzero(np.isfinite(lat) & np.isfinite(lon))
    several = set()
    for name, shape in reversed(list(zip(names, shapes, strict=True))):
        for row in placed[inside(lat[placed], lon[placed], shape)]:
            if areas[row] is not None:
                several.add(row)
            areas[row] = name
    log.add("panel", "zone in several areas", "noted", len(several), "counted in the first area of the file")
    return areas


def report_wide_zones(zones: Zones, stations: pd.DataFrame, log: QualityLog) -> list[str]:
    """Report zones whose stations are further apart than a walk; return their names."""
    wide = []
    lat, lon = (stations[c].to_numpy(dtype=float, na_value=np.nan) for c in ("lat", "lon"))
    for zone, name in enumerate(zones.frame["zone"].astype(str)):
        here = (zones.of_station == zone) & np.isfinite(lat) & np.isfinite(lon)
        if here.sum() > 1:
            corners = (lat[here].min(), lon[here].min(), lat[here].max(), lon[here].max())
            if metres_between(*(np.asarray(corner) for corner in corners)) > WALK:
                wide.append(name)
    some = ", ".join(wide[:5]) + (" ..." if len(wide) > 5 else "")
    detail = f"{some}: out of stock only when all stations are; sum stations by area instead (--areas)"
    log.add("panel", "zone wider than a walk", "noted", len(wide), detail)
    return wide
