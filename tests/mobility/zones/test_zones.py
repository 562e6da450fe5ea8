"""Zones: hubs, points, polygons and cells, and what is reported about them."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmet import _exceptions
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.zones.build import find_zones
from unmet.mobility.zones.distance import metres_between


def stations(*places, capacity=10):
    return pd.DataFrame(
        {
            "station": [chr(ord("a") + i) for i in range(len(places))],
            "name": [f"Station {i}" for i in range(len(places))],
            "lat": [p[0] for p in places],
            "lon": [p[1] for p in places],
            "capacity": [capacity] * len(places),
        }
    )


def reasons(log: QualityLog) -> dict[str, int]:
    return {f[1]: f[3] for f in log.findings}


def square(west, south, east, north):
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


def geojson(tmp_path, *features):
    path = tmp_path / "zones.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": list(features)}))
    return str(path)


def feature(name, *rings, kind="Polygon"):
    coordinates = list(rings) if kind == "Polygon" else [[ring] for ring in rings]
    return {"type": "Feature", "properties": {"name": name}, "geometry": {"type": kind, "coordinates": coordinates}}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(40.70, 40.72), st.floats(-74.01, -73.99)), min_size=1, max_size=25))
def test_any_two_stations_of_a_hub_are_closer_than_the_radius_and_no_two_hubs_could_be_one(places):
    table = stations(*places)
    zones = find_zones("superhubs:300m", table, QualityLog())
    lat, lon = table["lat"].to_numpy(), table["lon"].to_numpy()
    apart = metres_between(lat[:, None], lon[:, None], lat[None], lon[None])
    hub = zones.of_station
    assert sorted(s for row in zones.frame["stations"] for s in row) == sorted(table["station"])
    assert (apart[hub[:, None] == hub[None]] < 300).all()
    for one in range(len(zones)):
        for other in range(one):
            assert apart[np.ix_(hub == one, hub == other)].max() >= 300


def test_a_hub_bears_the_name_of_its_largest_station():
    table = stations((40.7, -74.0), (40.7005, -74.0))
    table["capacity"] = [5, 30]
    zones = find_zones("superhubs:200m", table, QualityLog())
    assert zones.frame[["zone", "name", "capacity"]].values.tolist() == [["hub:b", "Station 1", 35.0]]


@pytest.mark.parametrize(
    ("west", "east", "centre"), [(179.999, -179.999, 180.0), (179.998, -180.0, 179.999), (-179.998, 180.0, -179.999)]
)
def test_the_centre_of_a_hub_across_the_antimeridian_is_between_its_stations(west, east, centre):
    frame = find_zones("superhubs:500m", stations((10.0, west), (10.001, east)), QualityLog()).frame
    assert frame["lat"].tolist() == pytest.approx([10.0005])
    assert frame["lon"].abs().tolist() == pytest.approx([abs(centre)], abs=1e-6)
    assert abs(centre) == 180 or np.sign(frame["lon"].item()) == np.sign(centre)


def test_a_station_near_two_points_goes_to_the_nearer_and_is_reported(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("name,lat,lon\nwest,40.7,-74.001\neast,40.7,-73.999\nfar,41,-73\n")
    log = QualityLog()
    zones = find_zones(f"superhubs:{path}:200m", stations((40.7, -74.0003), (40.7, -73.9985), (40.75, -74.0)), log)
    assert zones.of_station.tolist() == [0, 1, -1]
    assert reasons(log) == {"station in two zones": 1, "zone without stations": 1, "station in no zone": 1}


def test_names_of_points_stay_as_written_and_points_without_one_are_numbered(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("name,lat,lon\n007,40.7,-74\n7.10,40.71,-74\nNA,40.72,-74\n,40.73,-74\n")
    found = find_zones(f"superhubs:{path}:200m", stations((40.7, -74)), QualityLog())
    assert found.frame["zone"].tolist() == ["007", "7.10", "NA", "point 4"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,x,y\na,1,2\n", "columns lat and lon"),
        ("name,lat,lon\na,40,here\n", "row 2: lon"),
        ("name,lat,lon\na,40,-74\na,41,-74\n", "two points have the name"),
        ("name,lat,lon\n", "no row below the header"),
        ("", "the file is empty"),
        ('name,lat,lon\na,40,-74,1,2\n\n\nb,1\n"', "cannot be read"),
    ],
)
def test_a_bad_file_of_points_is_refused_by_name(tmp_path, text, message):
    path = tmp_path / "points.csv"
    path.write_text(text)
    with pytest.raises(_exceptions.FileFormatError, match=message):
        find_zones(f"superhubs:{path}:200m", stations((40.7, -74.0)), QualityLog())


def test_polygons_with_holes_and_several_parts_take_what_lies_inside(tmp_path):
    donut = feature("donut", square(0, 0, 10, 10), square(4, 4, 6, 6))
    two = feature("two", square(20, 0, 22, 2), square(30, 0, 32, 2), kind="MultiPolygon")
    log = QualityLog()
    table = stations((1, 1), (5, 5), (1, 21), (1, 31), (1, 25))
    zones = find_zones(geojson(tmp_path, donut, two), table, log)
    assert zones.of_station.tolist() == [0, -1, 1, 1, -1]
    assert zones.frame["zone"].tolist() == ["donut", "two"]
    assert reasons(log) == {"station in no zone": 2}


@settings(max_examples=30, deadline=None)
@given(st.integers(3, 12), st.integers(0, 10_000))
def test_a_convex_polygon_holds_just_the_points_on_the_inner_side_of_all_its_edges(corners, seed):
    from unmet.mobility.zones.polygons import inside

    rng = np.random.default_rng(seed)
    angle = np.sort(rng.uniform(0, 2 * np.pi, corners))
    ring = np.column_stack([np.cos(angle), np.sin(angle)])
    lon, lat = rng.uniform(-1.2, 1.2, (2, 200))
    following = np.roll(ring, -1, axis=0)
    cross = (following[:, 0] - ring[:, 0])[:, None] * (lat - ring[:, 1][:, None]) - (following[:, 1] - ring[:, 1])[
        :, None
    ] * (lon - ring[:, 0][:, None])
    np.testing.assert_array_equal(inside(lat, lon, [[np.vstack([ring, ring[:1]])]]), (cross > 0).all(axis=0))


def test_a_station_in_two_polygons_goes_to_the_first_and_is_reported(tmp_path):
    path = geojson(tmp_path, feature("one", square(0, 0, 10, 10)), feature("other", square(5, 0, 15, 10)))
    log = QualityLog()
    zones = find_zones(path, stations((1, 7)), log)
    assert zones.of_station.tolist() == [0]
    assert reasons(log) == {"station in two zones": 1, "zone without stations": 1}


def test_superhubs_of_more_stations_than_memory_allows_are_refused():
    table = stations(*((40.7 + i / 1000, -74.0) for i in range(50)))
    with pytest.raises(_exceptions.InputError, match="distances of all pairs"):
        find_zones("superhubs:200m", table, QualityLog(), memory=48 * 49**2)
    find_zones("superhubs:200m", table, QualityLog(), memory=48 * 50**2)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([], "found none"),
        ([{"geometry": {"type": "Point", "coordinates": [0, 0]}}], r"features\[0\].geometry should be a Polygon"),
        ([feature("a", [[0, 0], [1, 1]])], r"features\[0\].geometry.coordinates"),
        ([feature("a", square(0, 100, 1, 101))], "swapped"),
        ([feature("a", square(580_000, 4_500_000, 580_100, 4_500_100))], "Convert the file to EPSG:4326"),
        ([feature("a", square(0, 0, 1, 1)), feature("a", square(2, 0, 3, 1))], "two features have the name 'a'"),
        (["no feature"], r"features\[0\]"),
        ([feature("a", [[1], [2], [3], [4]])], r"features\[0\].geometry.coordinates: expected rings of positions"),
        ([feature("a", [[], [], [], []])], "expected rings of positions"),
        ([feature("a", [[0, 0], [1, 0], [1, 1], None])], "expected rings of positions"),
        ([feature("a", [[0, 0], [1], [1, 1], [0, 0]])], "expected rings of positions"),
        ([feature("a", 5)], "expected rings of positions"),
    ],
)
def test_bad_geojson_is_refused_with_the_field_named(tmp_path, features, message):
    with pytest.raises(_exceptions.FileFormatError, match=message):
        find_zones(geojson(tmp_path, *features), stations((0.5, 0.5)), QualityLog())


def test_cells_hold_their_stations_and_trips_without_a_station():
    h3 = pytest.importorskip("h3")
    table = stations((40.7, -74.0), (40.70001, -74.0), (40.8, -74.0))
    loose = (np.array([41.0]), np.array([-74.0]))
    zones = find_zones("h3:9", table, QualityLog(), loose)
    cells = [h3.latlng_to_cell(lat, -74.0, 9) for lat in (40.7, 40.8, 41.0)]
    assert zones.frame["zone"].tolist() == sorted(cells)
    assert [zones.frame["zone"][i] for i in zones.of_station] == [cells[0], cells[0], cells[1]]
    assert zones.locate(np.array([40.7, 10.0]), np.array([-74.0, 10.0])).tolist() == [sorted(cells).index(cells[0]), -1]


def test_polygons_and_cells_travel_with_their_zones(tmp_path):
    hole = square(2, 2, 4, 4)
    path = geojson(tmp_path, feature("donut", square(0, 0, 10, 10), hole), feature("far", square(20, 0, 30, 10)))
    zones = find_zones(path, stations((1.0, 1.0), (5.0, 25.0)), QualityLog())
    assert zones.frame["polygon"].tolist() == [[[square(0, 0, 10, 10), hole]], [[square(20, 0, 30, 10)]]]
    h3 = pytest.importorskip("h3")
    cells = find_zones("h3:9", stations((40.7, -74.0), (40.8, -74.0)), QualityLog())
    for cell, ((ring,),) in zip(cells.frame["zone"], cells.frame["polygon"], strict=True):
        assert ring[0] == ring[-1]
        assert [(y, x) for x, y in ring[:-1]] == [pytest.approx(c, abs=1e-6) for c in h3.cell_to_boundary(cell)]
    assert "polygon" not in find_zones("stations", stations((40.7, -74.0)), QualityLog()).frame


@pytest.mark.parametrize("spec", ["hubs", "superhubs:200", "superhubs:0m", "h3:16", "h3:x", "superhubs:"])
def test_zones_that_are_not_understood_are_refused(spec):
    with pytest.raises(_exceptions.InputError):
        find_zones(spec, stations((40.7, -74.0)), QualityLog())


def test_stations_without_a_place_are_reported_and_none_at_all_is_an_error():
    table = stations((40.7, -74.0), (np.nan, np.nan))
    log = QualityLog()
    assert find_zones("superhubs:200m", table, log).of_station.tolist() == [0, -1]
    assert reasons(log) == {"station without coordinates": 1}
    with pytest.raises(_exceptions.InputError, match="no station has any"):
        find_zones("superhubs:200m", table.iloc[1:].reset_index(drop=True), QualityLog())


def test_making_zones_leaves_the_stations_as_they_were():
    table = stations((40.7, -74.0), (40.7005, -74.0))
    before = table.copy()
    find_zones("superhubs:200m", table, QualityLog())
    pd.testing.assert_frame_equal(table, before)
