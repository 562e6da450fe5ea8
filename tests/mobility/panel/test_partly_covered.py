"""Bins of which the trip files cover a part only: their pickups are those of the whole bin."""

from __future__ import annotations

import pandas as pd
import pytest

from unmet.mobility.panel import Panel, build_panel
from unmet.simulate import City, simulate_city

EASTERN = "America/New_York"


@pytest.fixture(scope="module")
def city() -> City:
    return simulate_city(6, 14, seed=5, realistic=True)


def daily(city: City, trips: pd.DataFrame, status: pd.DataFrame | None) -> Panel:
    return build_panel(trips, status, city.stations, timezone=EASTERN, every="1d", supply="listed")


def pickups(rows: pd.DataFrame) -> pd.Series:
    return rows.groupby(rows["start_local"].dt.strftime("%d"))["observed"].sum()


def without(trips: pd.DataFrame, begin: str, end: str) -> pd.DataFrame:
    return trips[(trips["started_at"] < begin) | (trips["started_at"] >= end)]


@pytest.mark.parametrize(("end", "partly", "inferred"), [("10", 2, 3), ("18", 1, 10)], ids=["gap", "end of the files"])
def test_days_that_are_half_outside_the_files_are_inferred(city, end, partly, inferred):
    """They had the trips of one half, and the supply of both."""
    begin = "2024-03-08 12:00"
    left = without(city.trips, begin, f"2024-03-{end} 12:00")
    found = daily(city, left, city.status)
    here, true = pickups(found.panel), city.trips.groupby(city.trips["started_at"].dt.strftime("%d")).size()
    lost = here.index[4 : 4 + inferred]  # from the 8th on
    assert (here[lost] > 0.8 * true[lost]).all()
    assert here.drop(lost).to_dict() == true.drop(lost, errors="ignore").to_dict()
    told = found.quality.set_index("reason")["rows"]
    halves = list(lost[[0, -1]][:partly])
    assert told["part of a bin without trip files"] == left["started_at"].dt.strftime("%d").isin(halves).sum()


def test_days_whose_quiet_hours_are_outside_the_files_keep_their_trips(city):
    found = daily(city, city.trips, city.status)
    assert found.panel["observed"].sum() == len(city.trips)
    assert "part of a bin without trip files" not in set(found.quality["reason"])
    assert set(found.panel["evidence"]) == {"status+trips"}
