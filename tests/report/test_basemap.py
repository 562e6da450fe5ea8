"""Streets and water behind the map."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from unmet import FileFormatError, InputError
from unmet.report.basemap import check_basemap, read_basemap
from unmet.report.places import plane, simplified

BOX = (np.array([0.0, 0.0]), np.array([10.0, 10.0]))


def written(folder, *geometries):
    features = [{"type": "Feature", "properties": {}, "geometry": geometry} for geometry in geometries]
    path = folder / "lines.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def test_lines_are_cut_to_the_map_and_polygons_are_areas(tmp_path):
    line = {"type": "LineString", "coordinates": [[-50, 5], [1, 5], [2, 7], [9, 5], [60, 5], [80, 5]]}
    far = {"type": "MultiLineString", "coordinates": [[[100, 5], [101, 5]]]}
    water = {"type": "Polygon", "coordinates": [[[1, 1], [4, 1], [4, 4], [1, 1]]]}
    found = read_basemap(written(tmp_path, line, far, water), lambda points: points.copy(), BOX)
    assert found["lines"] == [[[-50, 5], [1, 5], [2, 7], [9, 5], [60, 5]]]
    assert found["areas"] == [[[1, 1], [4, 1], [4, 4], [1, 1]]]


@pytest.mark.slow
def test_a_large_file_is_made_coarser(tmp_path):
    rng = np.random.default_rng(0)
    walks = np.clip(np.cumsum(rng.normal(0, 0.02, (60, 2000, 2)), axis=1) + 5, 0, 10)
    path = written(tmp_path, {"type": "MultiLineString", "coordinates": walks.tolist()})
    found = read_basemap(path, lambda points: points.copy(), BOX)
    assert 1000 < sum(len(line) for line in found["lines"]) <= 40_000


def test_more_points_than_can_be_simplified_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("unmet.report.basemap._MOST_GIVEN", 100)
    line = {"type": "LineString", "coordinates": [[x / 20, 5] for x in range(101)]}
    with pytest.raises(InputError, match="has 101 points near the zones; a map takes at most 100"):
        read_basemap(written(tmp_path, line), lambda points: points.copy(), BOX)


def test_passes_over_a_large_file_have_fewer_points_each(tmp_path, monkeypatch):
    sizes = []

    def counted(line, tolerance):
        sizes.append(len(line))
        return simplified(line, tolerance)

    monkeypatch.setattr("unmet.report.basemap._MOST_POINTS", 50)
    monkeypatch.setattr("unmet.report.basemap.simplified", counted)
    rng = np.random.default_rng(0)
    walk = np.clip(np.cumsum(rng.normal(0, 0.02, (2000, 2)), axis=0) + 5, 0, 10)
    path = written(tmp_path, {"type": "LineString", "coordinates": walk.tolist()})
    found = read_basemap(path, lambda points: points.copy(), BOX)
    assert 2 <= len(found["lines"][0]) <= 50
    assert len(sizes) > 1
    assert (np.diff(sizes) < 0).all()


def test_the_map_projects_it_with_the_zones(tmp_path):
    zones = pd.DataFrame({"lat": [40.0, 40.1], "lon": [-74.0, -74.1], "polygon": [None, None]})
    line = {"type": "LineString", "coordinates": [[-74.0, 40.0], [-74.1, 40.1]]}
    path = written(tmp_path, line)
    found = plane(zones, lambda project, extent: read_basemap(path, project, extent))
    ends = [[found["x"][i], found["y"][i]] for i in (0, 1)]
    assert np.array(found["base"]["lines"][0]) == pytest.approx(np.array(ends), abs=1e-3)


def test_a_file_without_lines_is_refused(tmp_path):
    with pytest.raises(InputError, match="There is no file"):
        check_basemap(tmp_path / "none.geojson")
    with pytest.raises(FileFormatError, match="expected GeoJSON with geometries of type LineString"):
        check_basemap(written(tmp_path, {"type": "Point", "coordinates": [1, 2]}))
    with pytest.raises(FileFormatError, match="feature 0: expected the coordinates of a LineString"):
        check_basemap(written(tmp_path, {"type": "LineString", "coordinates": [[1, "x"], [2, 3]]}))


@pytest.mark.parametrize("coordinates", [[[10**400, 1], [1, 1]], [["a", 1], [1, 1]], [[float("nan"), 1], [1, 1]], 5])
def test_positions_that_are_no_numbers_of_degrees_are_refused(tmp_path, coordinates):
    with pytest.raises(FileFormatError, match="feature 0: expected the coordinates of a LineString"):
        check_basemap(written(tmp_path, {"type": "LineString", "coordinates": coordinates}))


def test_a_folder_is_no_file_of_streets(tmp_path):
    with pytest.raises(InputError, match="expected a file; this is a folder"):
        check_basemap(tmp_path)
