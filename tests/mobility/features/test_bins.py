"""Features of the bins of a panel."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unmet import InputError
from unmet.mobility.features.bins import bin_features, read_weather
from unmet.mobility.panel.opening import opened

ZONE = "America/New_York"


def days_of_march() -> pd.DataFrame:
    """A panel of whole days about a change of the clock."""
    local = pd.date_range("2024-03-08", periods=5, freq="D")
    start = local.tz_localize(ZONE).tz_convert("UTC")
    minutes = [1440, 1440, 1380, 1440, 1440]
    frame = pd.DataFrame({"zone": "a", "start": start, "start_local": local, "minutes": minutes})
    frame["available_minutes"] = frame["minutes"]
    return frame.assign(
        observed=1.0, exposure=1.0, censored=False, stockout_minutes=0, closed_minutes=0, unknown_minutes=0
    )


def weather(first: str, hours: int, every: str = "h") -> pd.DataFrame:
    at = pd.date_range(first, periods=hours, freq=every, tz=ZONE)
    return pd.DataFrame({"time": at, "rain": np.random.default_rng(0).gamma(0.3, 1.0, hours)})


@pytest.mark.parametrize("first", ["2024-03-05 00:00", "2024-03-08 00:51"])
def test_the_weather_of_a_day_is_the_mean_of_its_hours(first):
    readings = weather(first, 24 * 12)
    with opened(days_of_march()) as file:
        found = bin_features(file, weather=readings, timezone=ZONE)
    by_day = readings.groupby(readings["time"].dt.tz_localize(None).dt.normalize())["rain"].mean()
    np.testing.assert_allclose(found.frame["rain"], by_day[days_of_march()["start_local"]])
    np.testing.assert_allclose(found.by_day["rain"], found.frame["rain"], atol=1e-4)


def test_the_usual_weather_of_a_day_is_that_of_its_hours_too():
    readings = weather("2023-03-01", 24 * 375)  # until the second day of the panel
    readings["rain"] = readings["time"].dt.hour + readings["time"].dt.day_of_year / 1000
    with opened(days_of_march()) as file:
        found = bin_features(file, weather=readings, timezone=ZONE)
    assert found.frame["weather_usual"].tolist() == [False, False, False, True, True]  # the third has yesterday's
    np.testing.assert_allclose(found.frame["rain"], 11.5, atol=0.5)


def test_readings_as_rare_as_bins_are_those_known_at_the_start():
    readings = weather("2024-03-07", 7, "D")
    with opened(days_of_march()) as file:
        found = bin_features(file, weather=readings, timezone=ZONE)
    np.testing.assert_allclose(found.frame["rain"], readings["rain"].iloc[1:6])


def test_columns_of_the_calendar_in_the_weather_are_left_out_and_named():
    readings = weather("2024-03-07", 7 * 24).assign(day_of_week=lambda frame: frame["time"].dt.day_of_week)
    with opened(days_of_march()) as file:
        found = bin_features(file, weather=readings, timezone=ZONE)
    assert found.weather == ("rain",)
    assert "day_of_week: not used" in found.quality["detail"].tolist()


@pytest.mark.parametrize(("first", "horizon"), [("2023-03-01 00:00", 0), ("2025-03-01 00:00", 0), ("2024-03-13", 3)])
def test_weather_of_another_period_is_refused_with_both_periods(first, horizon):
    """Also weather of days to come alone: nothing tells its effect."""
    readings = weather(first, 100)
    said = (
        rf"no reading in the period of the records\. Readings are of {first[:10]} .* UTC, "
        r"bins of 2024-03-08 05:00 to 2024-03-12 04:00 UTC\. Give the weather of that period, or none"
    )
    with opened(days_of_march()) as file, pytest.raises(InputError, match=said):
        bin_features(file, weather=readings, timezone=ZONE, horizon=horizon)


def test_weather_without_a_time_that_can_be_read_is_refused():
    with opened(days_of_march()) as file, pytest.raises(InputError, match="Readings are of no time, bins of 2024"):
        bin_features(file, weather=weather("1800-01-01", 50), timezone=ZONE)


def test_a_column_with_hardly_any_reading_is_not_the_same_in_every_bin():
    readings = weather("2024-03-07", 7 * 24).assign(snow=0.0, wind=np.nan)
    readings.loc[30, "wind"] = 5.0
    readings["sun"] = readings["rain"].where(readings["time"] >= "2024-03-13")
    with opened(days_of_march()) as file:
        found = bin_features(file, weather=readings, timezone=ZONE, horizon=1)
    assert found.weather == ("rain",)
    of = dict(found.quality[["detail", "reason"]].to_numpy().tolist())
    assert of["snow: not used"] == "same in every bin"
    assert of["wind: not used: 1 of 5 bins have one"] == "hardly any reading in the period"
    assert of["sun: not used: 0 of 5 bins have one"] == "hardly any reading in the period"


def many_readings(columns: int) -> pd.DataFrame:
    readings = weather("2024-03-07", 7 * 24)
    more = {f"c{i}": np.roll(readings["rain"], i) for i in range(1, columns)}
    return pd.concat([readings, pd.DataFrame(more), pd.DataFrame({"sky": ["clear"] * len(readings)})], axis=1)


def test_more_columns_of_weather_than_a_model_should_have_are_refused():
    readings = many_readings(51)
    with pytest.raises(InputError, match=r"weather frame: 51 columns of numbers .* at most 50\. .*--weather-columns"):
        read_weather(readings, ZONE)
    with pytest.raises(InputError, match=r"51 columns of numbers"):
        read_weather(readings, ZONE, list(readings.columns.drop(["time", "sky"])))
    assert len(read_weather(many_readings(50), ZONE)[0].columns) == 51
    assert list(read_weather(readings, ZONE, ["c7", "rain"])[0].columns) == ["at", "c7", "rain"]


def test_covariates_of_the_panel_and_the_weather_count_together():
    days = days_of_march().assign(events=[0.0, 1.0, 0.0, 2.0, 0.0])
    with opened(days) as file, pytest.raises(InputError, match=r"panel and the weather: 51 columns .* of the panel"):
        bin_features(file, weather=many_readings(50), timezone=ZONE)
    with opened(days) as file:
        assert len(bin_features(file, weather=many_readings(49), timezone=ZONE).weather) == 49


@pytest.mark.parametrize(("value", "noted"), [(9999.0, True), (-500.0, True), (3.0, False)])
def test_readings_ahead_far_from_those_of_the_records_are_noted(value, noted):
    """A code for missing, such as 9999, was forecast from without a word."""
    readings = weather("2024-03-07", 24 * 9)
    readings["rain"] = np.where(readings["time"] >= pd.Timestamp("2024-03-13", tz=ZONE), value, readings["rain"] * 10)
    with opened(days_of_march()) as file:
        found = bin_features(file, weather=readings, timezone=ZONE, horizon=3)
    far = found.quality[found.quality["reason"] == "far from all readings of the records"]
    assert len(far) == noted
    if noted:
        assert far["rows"].item() == 3
        assert far["detail"].item().startswith(f"rain: {value:g} to {value:g}, where the records have ")
