"""Periods: against plain Python, hour by hour."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unmet.mobility.clock.bins import hour_of_week
from unmet.mobility.clock.periods import DAYS, PARTS, describe_periods, hours_of, period_numbers


def test_every_hour_is_in_the_period_that_its_date_and_clock_give():
    local = pd.date_range("1969-12-25", "1970-01-20", freq="h").append(
        pd.date_range("2024-02-26", periods=600, freq="h")
    )
    found = describe_periods(period_numbers(local))
    for time, row in zip(local, found.itertuples(), strict=True):
        assert row.week == (time - pd.Timedelta(days=time.weekday())).normalize()
        assert row.days == ("weekends" if time.weekday() >= 5 else "weekdays")
        assert time.hour in PARTS[row.part]


def test_numbers_ascend_by_week():
    local = pd.date_range("2023-12-18", periods=8 * 7 * 24, freq="h")
    weeks = describe_periods(np.unique(period_numbers(local)))["week"]
    assert weeks.is_monotonic_increasing
    assert weeks.nunique() == 8


def test_hours_of_the_week_are_split_without_rest():
    hours = [hour for days in DAYS for part in PARTS for hour in hours_of(days, part)]
    assert sorted(hours) == list(range(168))
    local = pd.date_range("2024-03-04", periods=168, freq="h")
    named = describe_periods(period_numbers(local))
    chosen = hour_of_week(local)[((named["days"] == "weekdays") & (named["part"] == "late")).to_numpy()]
    assert sorted(chosen) == hours_of("weekdays", "late")
