"""Trips of which only the day or the hour is known."""

from __future__ import annotations

import pandas as pd
import pytest

from unmet import InputError
from unmet.mobility.panel import build_panel
from unmet.simulate import simulate_city

CITY = simulate_city(stations=2, days=8, seed=1)


def build(unit: str, every: str) -> float:
    started = pd.to_datetime(CITY.trips["started_at"]).dt.floor(unit)
    trips = CITY.trips.assign(started_at=started)
    made = build_panel(trips, stations=CITY.stations, timezone=CITY.settings.timezone, every=every)
    return float(made.panel["observed"].sum())


@pytest.mark.parametrize(("unit", "every", "told"), [("D", "1h", "at midnight"), ("h", "15min", "at a full hour")])
def test_bins_shorter_than_the_times_are_refused(unit, every, told):
    with pytest.raises(InputError, match=f"All 639 trips start {told}"):
        build(unit, every)


@pytest.mark.parametrize(("unit", "every"), [("D", "1d"), ("h", "1h"), ("min", "15min")])
def test_bins_as_long_as_the_times_are_counted(unit, every):
    assert build(unit, every) == 639


@pytest.mark.parametrize(
    ("unit", "every", "known"), [("h", "1h", False), ("h", "2h", True), ("30min", "1h", True), ("15min", "30min", True)]
)
def test_the_first_half_of_a_bin_is_known_or_missing(unit, every, known):
    """With full hours and hourly bins, all trips were in the first half."""
    trips = CITY.trips.assign(started_at=pd.to_datetime(CITY.trips["started_at"]).dt.floor(unit))
    rows = build_panel(trips, stations=CITY.stations, timezone=CITY.settings.timezone, every=every).panel
    assert rows["observed_early"].notna().all() == known
    assert rows["observed_early"].isna().all() != known
