"""Whole runs on real records: Jersey City, six weeks of spring 2021."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from unmet.execution import serially
from unmet.pipeline import RunOutcome, RunSettings, run
from unmet.pipeline.decisions import compare_decisions
from unmet.pipeline.worlds import recorded_world

pytestmark = [pytest.mark.data, pytest.mark.slow]
# Grove Street PATH, Newport PATH, Hamilton Park: busy, middling, quiet.
POINTS = [("Grove St", 40.7196, -74.0431), ("Newport", 40.7272, -74.0338), ("Hamilton Park", 40.7276, -74.0442)]


def jersey_city(data_dir: Path, out: Path, **more: object) -> RunSettings:
    folder = data_dir / "citibike_jersey_city"
    usual = {
        "trips": (str(folder / "trips_2015-09_2021-04.parquet"),),
        "status": (str(folder / "station_status_2020-05_2022-06.parquet"),),
        "stations": (str(folder / "stations.csv"),),
        "timezone": "America/New_York",
        "start": "2021-03-15",
        "end": "2021-04-26",
        "holidays": "US:NJ",
        "jobs": 2,
        "draws": 100,
        "out": out,
    }
    return RunSettings(**(usual | more))


@pytest.fixture(scope="module")
def outcome(data_dir, tmp_path_factory) -> RunOutcome:
    """Three hubs by the default model."""
    folder = tmp_path_factory.mktemp("jersey")
    points = folder / "points.csv"
    pd.DataFrame(POINTS, columns=["name", "lat", "lon"]).to_csv(points, index=False)
    return run(jersey_city(data_dir, folder / "out", zones=f"superhubs:{points}:200m"))


def test_three_hubs_go_from_records_to_a_page_by_the_default_model(outcome):
    assert outcome.estimate.failures == {}
    zones = outcome.estimate.zones.set_index("zone")
    assert len(zones) == 3
    totals = outcome.estimate.info["totals"]
    # Stock-outs of a hub are rare: all its stations must be empty. What is lost is a small, uncertain share.
    assert 0 <= totals["lost"]["q05"] <= totals["lost"]["mean"] <= 0.2 * totals["observed"]["mean"]
    rows = outcome.estimate.demand()
    assert (rows["demand_mean"] >= rows["observed"]).all()
    assert len(rows) == 3 * 42 * 24
    page = outcome.report.read_text(encoding="utf-8")
    assert "Hamilton Park" in page
    assert outcome.report.stat().st_size < 15e6


def test_all_stations_by_a_plain_model_in_days(outcome, data_dir, tmp_path):
    made = run(jersey_city(data_dir, tmp_path / "out", every="1d", model="weekly-mean"))
    assert made.panel["zones"] == made.estimate.info["zones"]["all"] > 45
    assert made.estimate.info["zones"]["failed"] <= 3  # stations that were not there yet, or no more
    assert made.panel["trips_used"] == pytest.approx(made.estimate.info["totals"]["observed"]["mean"], rel=0.01)
    assert made.estimate.info["totals"]["lost"]["mean"] > 0


def test_recorded_days_are_planned_and_ridden_again(data_dir, tmp_path):
    """Four weeks of all stations; the last two days are planned, and ridden again from the planned levels."""
    settings = jersey_city(data_dir, tmp_path / "out", start="2021-03-29")
    world = recorded_world(settings, tmp_path, recover="weekly-mean", executor=serially)
    assert len(world.stations) > 45
    found = compare_decisions(world, models=["weekly-mean"], held_out=2, draws=20, executor=serially)
    total = found.summary().set_index("model")
    assert total["turned_away"]["weekly-mean"] < 0.7 * total["turned_away"]["none"]
    assert total["wanted"]["none"] > 1500
    assert total["accuracy_error"]["weekly-mean"] < 0.6
