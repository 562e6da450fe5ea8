"""The standard deviation of the minutes out of stock: never more than that of minutes which are all or nothing."""

from __future__ import annotations

import numpy as np
import pytest

from unmet.mobility.panel import build_panel
from unmet.simulate import City, simulate_city

EASTERN = "America/New_York"


@pytest.fixture(scope="module")
def city() -> City:
    return simulate_city(6, 14, seed=5, realistic=True)


@pytest.mark.parametrize("zones", ["stations", "superhubs:300m"])
@pytest.mark.parametrize("with_trips", [True, False])
def test_it_fits_into_short_bins(city, zones, with_trips):
    """States that last for an hour made the deviation 7.7 of 5 minutes, and the zone was not estimated."""
    trips = city.trips if with_trips else None
    rows = build_panel(trips, city.status, city.stations, timezone=EASTERN, every="5min", zones=zones).panel
    open_ = rows["available_minutes"] + rows["stockout_minutes"]
    assert rows["out_sd"].max() > 1
    # Half of the minutes, if it is as likely as not that there is none in any of them.
    assert (rows["out_sd"] <= open_ / 2 + 1e-6).all()
    sure = (rows["unusable_minutes"] == 0) & (rows["out_minutes"] == rows["stockout_minutes"])
    assert (rows["out_sd"][sure] <= 1e-2).all()
    assert np.isfinite(rows["out_sd"]).all()
