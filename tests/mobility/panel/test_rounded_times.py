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
