"""Areas of zones: what lies in none or in several is said, and areas of another city are refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from unmet._exceptions import InputError
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.zones.areas import find_areas
from unmet.mobility.zones.build import Zones

ZONES = Zones(pd.DataFrame({"zone": ["a", "b"], "lat": [0.5, 2.5], "lon": [0.5, 0.5]}), np.array([0, 1]))
STATIONS = pd.DataFrame({"area": [None, None]})


def squares(path: Path, **south_west: float) -> str:
    features = []
    for name, at in south_west.items():
        ring = [[at, at], [at + 1, at], [at + 1, at + 1], [at, at + 1], [at, at]]
        features.append({"type": "Feature", "id": name, "geometry": {"type": "Polygon", "coordinates": [ring]}})
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return str(path)


def test_zones_in_no_area_and_in_several_are_noted(tmp_path):
    log = QualityLog()
    assert find_areas(squares(tmp_path / "a.geojson", one=0.0, two=0.2), ZONES, STATIONS, log) == ["one", None]
    assert [(row[1], row[3]) for row in log.findings] == [("zone in several areas", 1), ("zone in no area", 1)]


def test_areas_without_any_zone_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"no zone has an area of .*far.geojson"):
        find_areas(squares(tmp_path / "far.geojson", far=50.0), ZONES, STATIONS, QualityLog())
    with pytest.raises(InputError, match="no zone has an area of 'district'"):
        find_areas("district", ZONES, STATIONS, QualityLog())
