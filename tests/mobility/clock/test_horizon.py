"""Bins ahead: whole days of the wall clock, whatever the clocks do."""

from __future__ import annotations

import pandas as pd
import pytest

from unmet.mobility.clock.horizon import bins_ahead, future_bins

ZONE = "America/New_York"


def before(day: str, minutes: int) -> pd.DataFrame:
    """The last bin before a day."""
    local = pd.Timestamp(day) - pd.Timedelta(minutes=minutes)
    return pd.DataFrame(
        {"start": [local.tz_localize(ZONE).tz_convert("UTC")], "start_local": local, "minutes": minutes}
    )


@pytest.mark.parametrize("day", ["2024-11-01", "2024-11-03", "2024-03-09", "2024-03-10", "2024-06-01"])
@pytest.mark.parametrize("minutes", [15, 60, 120, 360])
def test_days_ahead_are_whole(day: str, minutes: int) -> None:
    """Three days over the end of summer time were an hour short with hourly bins, and not with bins of two hours."""
    last = before(day, minutes)
    local = future_bins(last, bins_ahead("3d", last, ZONE), ZONE)
    wanted = (pd.Timestamp(day) + pd.Timedelta(days=3)).tz_localize(ZONE) - pd.Timestamp(day).tz_localize(ZONE)
    assert local["minutes"].sum() == wanted / pd.Timedelta(minutes=1)
    assert local["start_local"].dt.normalize().nunique() == 3
    assert len(future_bins(last, bins_ahead("72h", last, ZONE), ZONE)) == 72 * 60 // minutes
