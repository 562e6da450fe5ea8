"""Panels that continue an earlier one: as from scratch within the stated tolerance, and never where records changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unmet.mobility.panel import read_panel, write_panel
from unmet.mobility.panel.learnt import DAY, LEAST_DAYS, MOST_DAYS, SETTLED_DAYS, read_learnt
from unmet.simulate import City, simulate_city

ZONE, FIRST = "America/New_York", pd.Timestamp("2024-03-04")
DAYS, MORE = 61, 3
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def city() -> City:
    return simulate_city(4, DAYS + MORE, seed=21, start=str(FIRST.date()), demand=40.0, realistic=True)


def records(city: City, days: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The first days of the city's records."""
    end = FIRST + pd.Timedelta(days=days)
    seconds = end.tz_localize(ZONE).timestamp()
    status = city.status[city.status["last_reported"] < seconds]
    return city.trips[city.trips["started_at"] < end], status, city.stations


@pytest.fixture(scope="module")
def earlier(city: City, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("earlier") / "panel.parquet"
    write_panel(path, *records(city, DAYS), timezone=ZONE)
    return path


def write(path: Path, given: tuple[pd.DataFrame, ...], **options: Any) -> tuple[pd.DataFrame, list[str]]:
    steps: list[str] = []
    write_panel(path, *given, progress=steps.append, timezone=ZONE, **options)
    return read_panel(path).panel, steps


def test_a_continued_panel_is_as_one_from_scratch(city, earlier, tmp_path):
    found, steps = write(tmp_path / "a.parquet", records(city, DAYS + MORE), earlier=earlier)
    scratch, _ = write(tmp_path / "b.parquet", records(city, DAYS + MORE))
    assert any("as learnt until 2024-05-04" in step for step in steps)
    learnt = ["unusable_minutes", "out_minutes", "out_sd", "exposure", "censored", "no_dock_minutes", "dock_exposure"]
    pd.testing.assert_frame_equal(found.drop(columns=learnt), scratch.drop(columns=learnt))
    # The tolerance of docs/guide/current.md.
    for name in ("exposure", "dock_exposure"):
        assert np.abs(found[name] - scratch[name]).mean() < 0.003
    assert found["out_minutes"].sum() == pytest.approx(scratch["out_minutes"].sum(), rel=0.02)
    end = (FIRST + pd.Timedelta(days=DAYS)).tz_localize(ZONE)
    settled = found["start"] < end - pd.Timedelta(days=SETTLED_DAYS)
    before = read_panel(earlier).panel
    same = before["start"].isin(found["start"][settled])
    np.testing.assert_array_equal(found["out_minutes"][settled], before["out_minutes"][same])
    assert settled.sum() == same.sum() > 0


def test_errors_do_not_add_up(city, earlier, tmp_path):
    """A panel that continues a continued one is the one that continues the first."""
    write(tmp_path / "a.parquet", records(city, DAYS + 1), earlier=earlier)
    again, _ = write(tmp_path / "b.parquet", records(city, DAYS + MORE), earlier=tmp_path / "a.parquet")
    once, _ = write(tmp_path / "c.parquet", records(city, DAYS + MORE), earlier=earlier)
    pd.testing.assert_frame_equal(again, once)


def test_a_panel_is_built_in_full_if_old_records_changed(city, earlier, tmp_path):
    trips, status, stations = records(city, DAYS + MORE)
    old = status["last_reported"] < FIRST.tz_localize(ZONE).timestamp() + 20 * 86_400
    changed = status.assign(num_bikes_available=status["num_bikes_available"].where(~old, 0))
    found, steps = write(tmp_path / "a.parquet", (trips, changed, stations), earlier=earlier)
    assert any("building the panel in full" in step for step in steps)
    scratch, _ = write(tmp_path / "b.parquet", (trips, changed, stations))
    pd.testing.assert_frame_equal(found, scratch)


@pytest.mark.parametrize("given", ["no trips", "half of the trips"])
def test_a_panel_is_built_in_full_if_old_trips_changed(city, earlier, tmp_path, given):
    """Supply learnt with trips was used without them, and the reverse: time out of stock was 5 % off."""
    trips, status, stations = records(city, DAYS + MORE)
    some = None if given == "no trips" else trips.iloc[::2]
    found, steps = write(tmp_path / "a.parquet", (some, status, stations), earlier=earlier)
    assert any("building the panel in full" in step for step in steps)
    scratch, _ = write(tmp_path / "b.parquet", (some, status, stations))
    pd.testing.assert_frame_equal(found, scratch)


def test_what_is_kept_is_used_only_where_it_fits(city, earlier, tmp_path):
    learnt = read_learnt(earlier)
    assert learnt is not None
    assert learnt.end - learnt.first >= LEAST_DAYS * DAY
    zones = pd.DataFrame({"zone": list(learnt.zones)})
    for days, expected in ((0, False), (1, True), (MOST_DAYS, True), (MOST_DAYS + 1, False)):
        bins = type("Bins", (), {"edges": np.array([learnt.first, learnt.end + days * DAY])})
        assert learnt.fits(bins, zones) is expected
        assert not learnt.fits(bins, zones.iloc[:-1])
    assert read_learnt(tmp_path / "none.parquet") is None
    (tmp_path / "other.parquet").write_bytes(b"PAR1 but no panel")
    assert read_learnt(tmp_path / "other.parquet") is None
    write(tmp_path / "short.parquet", records(city, LEAST_DAYS - 1))
    assert read_learnt(tmp_path / "short.parquet") is None  # what is learnt from a short record still changes
