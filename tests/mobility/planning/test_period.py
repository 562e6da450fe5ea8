"""The period of a plan."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unmet import InputError
from unmet.mobility.planning import choose_period


def hourly(start: str, hours: int, ahead: int = 0, zone: str = "America/New_York") -> pd.DataFrame:
    starts = pd.date_range(pd.Timestamp(start, tz=zone), periods=hours + ahead, freq="h")
    local = starts.tz_localize(None)
    return pd.DataFrame({"start_local": local, "minutes": 60, "future": np.arange(hours + ahead) >= hours})


def test_the_default_is_the_first_day_after_the_records():
    bins = hourly("2024-01-01", 21 * 24)
    period = choose_period(bins)
    assert period.words == "Monday, 22 January 2024"
    assert period.follows
    assert not period.forecast
    assert [bins["start_local"][rows[0]].day for rows in period.similar] == [1, 8, 15]
    assert len(period.recent) == 21
    ends_at_noon = choose_period(hourly("2024-01-01", 21 * 24 + 12))
    assert ends_at_noon.words == "Tuesday, 23 January 2024"


def test_records_until_midnight_end_with_that_day():
    """A record of 23:59:34 is in force from midnight on, so the panel has one minute of the next day."""
    bins = hourly("2024-01-01", 21 * 24 + 1).assign(heard=60)
    assert choose_period(bins).words == "Tuesday, 23 January 2024"
    bins.loc[21 * 24, "heard"] = 1
    assert choose_period(bins).words == "Monday, 22 January 2024"
    bins.loc[21 * 24, "heard"] = 2
    assert choose_period(bins).words == "Tuesday, 23 January 2024"
    forecast = hourly("2024-01-01", 21 * 24 + 1, ahead=48).assign(heard=60)
    forecast.loc[21 * 24, "heard"] = 1  # the forecast has no whole Monday
    assert choose_period(forecast).words == "Tuesday, 23 January 2024"


def test_only_the_last_four_days_of_a_weekday_count():
    period = choose_period(hourly("2024-01-01", 70 * 24), "monday")
    assert period.day is None
    assert period.words == "the usual Monday"
    assert not period.follows
    assert len(period.similar) == 4
    assert len(period.recent) == 28


def test_a_period_may_cross_midnight_and_names_its_hours():
    bins = hourly("2024-01-01", 28 * 24)
    period = choose_period(bins, "sun", "20:00", 8)
    assert period.slots.tolist() == [164, 165, 166, 167, 0, 1, 2, 3]
    assert all(bins["start_local"][rows[0]].hour == 20 and len(rows) == 8 for rows in period.similar)
    assert period.words == "the usual Sunday, 20:00 to 04:00"


def test_a_forecast_of_the_day_is_used():
    period = choose_period(hourly("2024-01-01", 21 * 24, ahead=48), "2024-01-23")
    assert period.forecast
    assert not period.follows
    assert [rows[0] for rows in period.recent] == [24 * day for day in range(21)]  # shocks are drawn from these
    assert period.similar[0].tolist() == list(range(22 * 24, 23 * 24))


def test_days_on_which_the_clock_changes_are_left_out():
    bins = hourly("2024-03-01", 20 * 24)  # 10 March 2024 has 23 hours
    sundays = choose_period(bins, "sunday").similar
    assert [bins["start_local"][rows[0]].day for rows in sundays] == [3, 17]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"day": "someday"}, "YYYY-MM-DD or a weekday"),
        ({"start": "25:00"}, "'overnight' or a time of day"),
        ({"start": "²"}, "'overnight' or a time of day"),
        ({"start": "6:²"}, "'overnight' or a time of day"),
        ({"start": "1" * 5000}, "'overnight' or a time of day"),
        ({"hours": 2.5}, "multiple of the bins' 60 minutes"),
        ({"hours": 25}, "at most 24 hours"),
        ({"start": "06:30"}, "a time at which a bin starts, such as 00:00 with these bins of 60 minutes; got 06:30"),
        ({"day": "sunday"}, "No Sunday"),
    ],
)
def test_what_cannot_be_planned_is_refused(given, words):
    with pytest.raises(InputError, match=words):
        choose_period(hourly("2024-01-01", 5 * 24), **given)


def test_bins_of_a_day_are_refused():
    bins = pd.DataFrame({"start_local": pd.date_range("2024-01-01", periods=20), "minutes": 1440, "future": False})
    with pytest.raises(InputError, match="--every 1h"):
        choose_period(bins)
