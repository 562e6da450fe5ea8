"""A panel does not depend on the groups of zones that it is built by, nor on where they are worked on."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from unmet._exceptions import InputError, UnmetError
from unmet.execution import UnfitWorker, WorkerDied, in_processes, serially
from unmet.mobility.panel import Panel, build_panel, write_panel
from unmet.mobility.panel.groups import Workers
from unmet.mobility.records.read import read_records
from unmet.mobility.supply.feed_activity import watch_feed
from unmet.mobility.supply.silence import StationActivity
from unmet.mobility.supply.status_log import sort_status
from unmet.simulate import simulate_city

ZONE = "America/New_York"


@pytest.fixture(scope="module")
def city():
    return simulate_city(8, 16, seed=3, realistic=True, closures=1, feed_gaps=1, timezone=ZONE)


KINDS = {
    "trips and status": {},
    "hubs": {"zones": "superhubs:400m"},
    "polygons": {"zones": "squares.geojson"},
    "status alone": {"trips": None},
    "trips alone": {"status": None},
}


def build(city, kind: str, **more) -> Panel:
    given = {"trips": city.trips, "status": city.status, "stations": city.stations} | KINDS[kind]
    return build_panel(timezone=ZONE, **given, **more)


def assert_equal(panel: Panel, other: Panel) -> None:
    for name in ("panel", "zones", "quality", "reasons", "unusable"):
        pd.testing.assert_frame_equal(getattr(panel, name), getattr(other, name), check_exact=True)
    assert panel.summary == other.summary


def write_squares(city, path: Path) -> None:
    """Write a square around each of the first five stations: the others are in no zone."""
    features = []
    for row in city.stations.head(5).itertuples():
        (w, e), (s, n) = ([at - 1e-4, at + 1e-4] for at in (row.lon, row.lat))
        shape = {"type": "Polygon", "coordinates": [[[w, s], [e, s], [e, n], [w, n], [w, s]]]}
        features.append({"type": "Feature", "properties": {"id": row.station_id}, "geometry": shape})
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_one_group_three_and_one_per_zone_give_the_same_panel(city, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_squares(city, Path("squares.geojson"))
    whole = build(city, kind)
    if kind in ("trips and status", "hubs", "polygons"):
        assert whole.summary["usable_supply"]["method"] == "hidden"
    assert len(whole.zones) > 3
    for groups in (3, 99):
        assert_equal(whole, build(city, kind, groups=groups))


def test_processes_write_the_same_file(city, tmp_path):
    for name, where in {"here": {}, "there": {"executor": in_processes, "jobs": 2, "groups": 2}}.items():
        write_panel(tmp_path / f"{name}.parquet", city.trips, city.status, city.stations, timezone=ZONE, **where)
    assert (tmp_path / "here.parquet").read_bytes() == (tmp_path / "there.parquet").read_bytes()


def test_a_small_panel_is_built_in_this_process_and_a_worker_that_dies_ends_the_build(city):
    def dying(function, items, jobs):
        for item in items:
            yield item, WorkerDied("out of memory")

    build(city, "trips alone", executor=dying, jobs=4)
    with pytest.raises(UnmetError, match=r"ended twice .* \(out of memory\).*--jobs"):
        build(city, "trips alone", executor=dying, jobs=4, groups=2)


def test_an_unfit_worker_and_an_error_of_a_group_are_raised(city):
    class Unfit:
        def check(self):
            raise UnfitWorker("another NumPy")

        __call__ = staticmethod(serially)

    def failing(function, items, jobs):
        for item in items:
            yield item, ValueError("a defect")

    with pytest.raises(UnfitWorker, match="another NumPy"):
        build(city, "trips alone", executor=Unfit(), groups=2)
    with pytest.raises(ValueError, match="a defect"):
        build(city, "trips alone", executor=failing, groups=2)


@pytest.mark.parametrize("memory", [1 << 30, 1 << 16])
def test_counts_of_parts_of_a_feed_add_up_to_those_of_the_whole(city, memory):
    """With little memory the sorted records are in several files, and a part may have records of two of them."""
    with read_records(None, city.status, city.stations, timezone=ZONE, keep_duplicates=True) as records:
        rows = len(city.status)
        log = sort_status(records.connection, [*range(8)], [0, 0, 1, 2, 3, 4, 5, 6], records.folder, memory, rows)
        assert (len(log.chunks) > 1) == (memory < 1 << 20)
        moves = np.arange(log.first_minute, log.last_minute, 50)
        whole = watch_feed(log, moves, 5)
        parts = [log.cut(0, 3), log.cut(3, 4), log.cut(4, 8)]
        summed = watch_feed(log, moves, 5, over_parts=lambda count: [count(part) for part in parts])
    for one, other in zip(whole, summed, strict=True):
        for field in fields(one):
            if field.name != "cadence" or isinstance(one, StationActivity):
                np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), field.name)
    for name in ("minutes", "regular", "polled"):
        np.testing.assert_array_equal(getattr(whole[0].cadence, name), getattr(summed[0].cadence, name), name)


@pytest.mark.parametrize(
    "odd",
    [{"jobs": "x"}, {"jobs": 0}, {"jobs": 1.5}, {"groups": "x"}, {"groups": -1}, {"executor": "x"}, {"jobs": None}],
)
def test_workers_are_a_function_and_whole_numbers(odd):
    with pytest.raises(InputError, match=f"{next(iter(odd))}: expected"):
        Workers(**odd)
