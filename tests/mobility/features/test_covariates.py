from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmet._exceptions import InputError, MissingExtraError
from unmet.mobility.features.covariates import add_calendar, add_daylight, add_holidays, add_weather, solar_elevation


def make_panel(first: str, periods: int, freq: str, timezone: str = "America/New_York") -> pd.DataFrame:
    start = pd.date_range(first, periods=periods, freq=freq, tz="UTC")
    minutes = int(pd.Timedelta(freq) / pd.Timedelta(minutes=1))
    local = start.tz_convert(timezone).tz_localize(None)
    return pd.DataFrame({"zone": "a", "start": start, "start_local": local, "minutes": minutes})


def test_the_calendar_follows_the_wall_clock_through_a_change() -> None:
    panel = make_panel("2021-11-07 04:00", 4, "1h")  # 00:00, 01:00, 01:00 again, 02:00
    result = add_calendar(panel)
    assert result["hour"].to_list() == [0, 1, 1, 2]
    assert result["hour_of_week"].to_list() == [144, 145, 145, 146]
    assert result["t"].to_list() == pytest.approx([0, 1 / 24, 2 / 24, 3 / 24])
    assert "hour" not in panel.columns


def test_an_aware_wall_clock_counts_as_it_shows() -> None:
    panel = make_panel("2021-06-01", 1, "1h")
    panel["start_local"] = panel["start"].dt.tz_convert("America/New_York")
    assert add_calendar(panel)["hour"].to_list() == [20]


def test_holidays_are_by_the_local_day() -> None:
    panel = make_panel("2021-07-05 03:00", 3, "1h")  # 23:00 on the 4th, 0:00 and 1:00 on the 5th
    assert add_holidays(panel, "US", "NY")["holiday"].to_list() == [True, True, True]  # the 5th is observed
    assert add_holidays(panel, "FR")["holiday"].to_list() == [False, False, False]
    with pytest.raises(InputError, match="ISO codes"):
        add_holidays(panel, "Atlantis")


def test_holidays_without_the_package_say_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "holidays", None)
    with pytest.raises(MissingExtraError, match=r"unmet\[mobility\]"):
        add_holidays(make_panel("2021-07-05", 1, "1h"), "US")


# Sunrise and sunset, UTC, as published by the US Naval Observatory and timeanddate.com, to the minute.
@pytest.mark.parametrize(
    ("place", "day", "sunrise", "sunset"),
    [
        ((40.7128, -74.0060), "2021-06-21", "09:25", "00:31"),
        ((40.7128, -74.0060), "2021-12-21", "12:17", "21:32"),
        ((51.5074, -0.1278), "2021-03-20", "06:04", "18:14"),
        ((-33.8688, 151.2093), "2021-01-01", "18:48", "09:10"),
    ],
)
def test_the_sun_rises_and_sets_when_the_almanac_says(
    place: tuple[float, float], day: str, sunrise: str, sunset: str
) -> None:
    seconds = pd.Timestamp(day).timestamp() + np.arange(0, 86400, 10.0)
    up = solar_elevation(seconds, *place) > -0.833
    change = np.diff(up.astype(int))
    for direction, expected in ((1, sunrise), (-1, sunset)):
        (moment,) = seconds[1:][change == direction]
        wanted = pd.Timestamp(f"{day} {expected}").timestamp()
        assert abs(moment - wanted) <= 90


def test_daylight_is_the_share_of_lit_minutes_of_each_bin() -> None:
    hours, days = make_panel("2021-06-20", 48, "1h"), make_panel("2021-06-20", 2, "24h")
    by_hour = add_daylight(hours, 40.7, -74.0)["daylight"].to_numpy()
    by_day = add_daylight(days, 40.7, -74.0)["daylight"].to_numpy()
    assert by_day == pytest.approx(by_hour.reshape(2, 24).mean(axis=1))
    assert set(np.unique(by_hour)) > {0.0, 1.0}
    # The zones of a panel share their bins, in any order.
    mixed = pd.concat([hours, hours.assign(zone="b")]).sample(frac=1, random_state=1)
    again = add_daylight(mixed, 40.7, -74.0)
    assert again.loc[again["zone"] == "b", "daylight"].sort_index().to_numpy() == pytest.approx(by_hour)


def test_polar_day_and_night_have_all_and_no_daylight() -> None:
    assert add_daylight(make_panel("2021-06-21", 24, "1h"), 78.2, 15.6)["daylight"].min() == 1.0
    assert add_daylight(make_panel("2021-12-21", 24, "1h"), 78.2, 15.6)["daylight"].max() == 0.0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 200), unique=True, max_size=15),
    st.lists(st.integers(0, 200), min_size=1, max_size=30),
    st.one_of(st.none(), st.integers(0, 100)),
    st.integers(0, 14),
)
def test_weather_is_the_last_reading_before_the_bin_and_gaps_are_all_reported(
    readings: list[int], bins: list[int], max_age: int | None, missing: int
) -> None:
    origin = pd.Timestamp("2021-01-01")
    values = {hour: np.nan if i == missing else float(i) for i, hour in enumerate(readings)}
    weather = pd.DataFrame(
        {
            "at": pd.to_datetime([origin + pd.Timedelta(hours=h) for h in readings]),
            "rain": list(values.values()),
        }
    )
    weather = weather.astype({"at": "datetime64[us]", "rain": "float64"})
    panel = pd.DataFrame({"start": pd.to_datetime([origin + pd.Timedelta(hours=h) for h in bins], utc=True)})
    before = panel.copy()
    result = add_weather(panel, weather, None if max_age is None else f"{max_age}h")
    if max_age is None:
        steps = np.diff(sorted(readings))
        limit = float(np.median(steps)) * 1.05 if len(steps) else 24.0
    else:
        limit = max_age
    expected = []
    for hour in bins:
        past = [h for h in readings if h <= hour]
        expected.append(values[max(past)] if past and hour - max(past) <= limit else np.nan)
    np.testing.assert_array_equal(result.panel["rain"].to_numpy(), expected)
    blank = {h for h, v in zip(bins, expected, strict=True) if np.isnan(v)}
    assert result.gaps["bins"].sum() == len(blank)
    for row in result.gaps.itertuples():
        first, last = ((t.tz_localize(None) - origin) / pd.Timedelta(hours=1) for t in (row.first, row.last))
        assert {h for h in set(bins) if first <= h <= last} <= blank
    pd.testing.assert_frame_equal(panel, before)


def test_a_daily_reading_holds_through_a_day_of_25_hours() -> None:
    at = pd.date_range("2021-11-01", periods=14, freq="D", tz="America/New_York").tz_convert("UTC")
    weather = pd.DataFrame({"at": at, "rain": range(14)})
    panel = make_panel("2021-11-01 04:00", 24 * 14 + 1, "1h")
    result = add_weather(panel, weather)
    assert result.gaps.empty
    assert (result.panel["rain"].to_numpy() == panel["start_local"].dt.day - 1).all()


@pytest.mark.parametrize(
    ("weather", "message"),
    [
        (pd.DataFrame({"rain": [1.0]}), "expected a column 'at'"),
        (pd.DataFrame({"at": ["soon"], "rain": [1.0]}), "expected times"),
        (pd.DataFrame({"at": pd.to_datetime(["2021-01-01"]), "minutes": [1.0]}), "already has 'minutes'"),
        (pd.DataFrame({"at": pd.to_datetime(["2021-01-01"] * 2), "rain": [1.0, 2.0]}), "same time as another"),
    ],
)
def test_weather_that_cannot_be_joined_is_refused(weather: pd.DataFrame, message: str) -> None:
    with pytest.raises(InputError, match=message):
        add_weather(make_panel("2021-01-01", 3, "1h"), weather)


@pytest.mark.filterwarnings("error")
def test_many_columns_are_joined_without_a_warning() -> None:
    weather = pd.DataFrame({f"c{i}": [float(i)] for i in range(300)}).assign(at=pd.to_datetime(["2021-01-01"]))
    panel = make_panel("2021-01-01", 3, "1h").set_index(pd.Index([4, 4, 2]))
    result = add_weather(panel, weather).panel
    assert result.shape == (3, len(panel.columns) + 300)
    assert result["c7"].tolist() == [7.0] * 3
    assert list(result.index) == [4, 4, 2]
