"""Trips and status whose times are in different time zones."""

from __future__ import annotations

import pandas as pd
import pytest

from unmet import InputError
from unmet.mobility.panel import build_panel
from unmet.simulate import simulate_city

CITY = simulate_city(stations=4, days=8, seed=1)  # its clock is changed on the last day
QUIET = simulate_city(stations=2, days=6, seed=1, demand=3.0)


def build(shift: float, city=CITY, **options):
    """Build a panel with a status that is some hours late."""
    status = city.status.assign(last_reported=city.status["last_reported"] + round(3600 * shift))
    return build_panel(city.trips, status, city.stations, timezone=city.settings.timezone, every="1h", **options)


@pytest.mark.parametrize(
    ("shift", "told"), [(4, "4 hours later"), (-5.5, "5.5 hours earlier"), (1, "1 hour later"), (-14, "14 hours")]
)
def test_a_status_in_another_time_zone_is_refused(shift, told):
    with pytest.raises(InputError, match=f"the same moves {told}"):
        build(shift)


def test_local_times_that_are_those_of_utc_are_refused():
    utc = pd.to_datetime(CITY.status["last_reported"], unit="s")  # without an offset, so read as local
    with pytest.raises(InputError, match=r"the same moves 5 hours later.*with an offset"):
        build_panel(CITY.trips, CITY.status.assign(last_reported=utc), CITY.stations, timezone=CITY.settings.timezone)


def test_such_a_status_can_be_forced():
    assert build(4, force=True).panel["observed"].sum() >= len(CITY.trips)


@pytest.mark.parametrize("city", [CITY, QUIET])
@pytest.mark.parametrize("shift", [0, 0.25])
def test_equal_clocks_and_a_feed_that_lags_are_accepted(shift, city):
    assert build(shift, city).panel["observed"].sum() >= len(city.trips)


@pytest.mark.parametrize("polls", ["30", "60", "120"])
def test_looks_that_are_far_apart_are_no_shift(polls):
    city = simulate_city(stations=4, days=20, seed=1, demand=8.0, polls=polls)
    assert build(0, city).panel["observed"].sum() >= len(city.trips)


def test_few_moves_tell_nothing():
    assert build(4, QUIET).panel["observed"].sum() >= len(QUIET.trips)
