"""Places on a plane, polygons with fewer corners, geometries for others."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest

from unmet.mobility.zones.distance import metres_between
from unmet.report.places import geometry, plane, simplified


def zones(lat, lon, polygon=None) -> pd.DataFrame:
    count = len(lat)
    shapes = polygon or [None] * count
    return pd.DataFrame({"zone": [f"z{i}" for i in range(count)], "lat": lat, "lon": lon, "polygon": shapes})


@pytest.mark.parametrize(("lat", "lon"), [(40.7, -74.0), (-33.9, 151.2), (59.9, 10.7), (64.1, 179.99)])
def test_distances_on_the_plane_are_those_on_the_ground(lat, lon):
    rng = np.random.default_rng(1)
    lats = lat + rng.uniform(-0.05, 0.05, 20)
    lons = (lon + rng.uniform(-0.05, 0.05, 20) + 180) % 360 - 180  # over the date line and back
    found = plane(zones(lats, lons))
    x, y = np.array(found["x"]), np.array(found["y"])
    true = metres_between(lats[:, None], lons[:, None], lats[None], lons[None]) / 1000
    drawn = np.hypot(x[:, None] - x, y[:, None] - y)
    assert np.abs(drawn - true).max() < 0.004 * true.max()


def test_zones_without_a_place_are_not_on_the_map():
    found = plane(zones([40.0, np.nan, 40.1], [-74.0, -74.0, np.nan]))
    assert [v is None for v in found["x"]] == [False, True, True]
    assert plane(zones([np.nan], [np.nan])) is None


def circle(corners: int, radius: float) -> list[list[float]]:
    angle = np.linspace(0, 2 * np.pi, corners + 1)
    return [[float(-74 + radius * np.cos(a)), float(40 + radius * np.sin(a))] for a in angle]


def test_polygons_are_drawn_with_no_more_corners_than_can_be_seen():
    found = plane(zones([40.0, 40.0], [-74.0, -74.0], [[[circle(5000, 0.1)]], [[circle(6, 0.01)]]]))
    large, small = found["shapes"][0][0], found["shapes"][1][0]
    assert 20 < len(large) < 400
    assert len(small) == 7
    true = 0.1 * 111.195
    corners = np.array(large) / [np.cos(np.radians(40.0)), 1]
    middles = (corners[1:] + corners[:-1]) / 2
    assert np.abs(np.hypot(*corners.T) - true).max() < 0.002 * true
    assert np.abs(np.hypot(*middles.T) - true).max() < 0.005 * true


def test_a_polygon_without_stations_is_placed_by_its_corners():
    found = plane(zones([np.nan, 40.5], [np.nan, -74.0], [[[circle(8, 0.1)]], [[circle(8, 0.1)]]]))
    assert found["x"][0] == pytest.approx(0.0, abs=0.01)


def test_geometries_are_longitude_first():
    table = zones([40.0, np.nan], [-74.0, np.nan])
    assert geometry(table.iloc[0]) == {"type": "Point", "coordinates": [-74.0, 40.0]}
    assert geometry(table.iloc[1]) is None
    shape = [[circle(6, 0.1)]]
    assert geometry(zones([40.0], [-74.0], [shape]).iloc[0]) == {"type": "MultiPolygon", "coordinates": shape}


def test_a_line_that_is_made_to_take_long_is_simplified_soon():
    """Of a zigzag that narrows, the furthest point is always the next one: cut there, its time would be quadratic."""
    along = np.linspace(0.0, 1.0, 60_000)
    began = time.process_time()
    kept = simplified(np.column_stack([along, 10.0 * (1.0 - along) * (-1.0) ** np.arange(60_000)]), 1e-4)
    assert len(kept) > 59_000
    assert time.process_time() - began < 4.0  # 0.6 on a machine on which it took 8
