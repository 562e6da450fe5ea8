"""The usual weather of a season: waves are found again, and short records are continued with care."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unmet._exceptions import InputError
from unmet.mobility.features.season import usual_weather


def wave(times: pd.DatetimeIndex) -> np.ndarray:
    year = 2 * np.pi * times.day_of_year.to_numpy() / 365.25
    return 12 - 10 * np.cos(year) + 4 * np.sin(2 * np.pi * (times.hour.to_numpy() - 9) / 24)


@pytest.mark.parametrize(("days", "within"), [(730, 0.3), (200, 1.0), (60, 3.0)])
def test_the_waves_of_the_year_and_the_day_are_found_again(days, within):
    rng = np.random.default_rng(1)
    past = pd.date_range("2021-02-01", periods=24 * days, freq="h")
    ahead = pd.date_range(past[-1], periods=7 * 24, freq="h")
    noise = np.repeat(rng.normal(0, 2, days), 24)  # a warm or cold day
    found = usual_weather(past, wave(past) + noise, ahead)
    assert np.abs(found - wave(ahead)).mean() < within
    # The median of the record is further off than the season.
    assert np.abs(found - wave(ahead)).mean() < 0.5 * np.abs(np.median(wave(past)) - wave(ahead)).mean()


def test_one_reading_a_day_says_nothing_about_hours():
    past = pd.date_range("2021-02-01 20:00", periods=90, freq="D")
    day = pd.date_range("2021-05-03", periods=24, freq="h")
    assert np.ptp(usual_weather(past, wave(past), day)) < 1e-9


def test_rain_is_averaged_on_the_scale_of_the_models():
    values = np.tile([0.0, 0.0, 4.0], 400)
    past = pd.date_range("2021-01-01", periods=1200, freq="D")
    found = usual_weather(past, values, past[:3])
    assert found == pytest.approx(4 * np.expm1(np.log(2) / 3), rel=0.02)


def test_gaps_of_the_record_are_left_out_and_a_constant_stays():
    past = pd.date_range("2021-01-01", periods=10, freq="D")
    assert usual_weather(past, np.where(np.arange(10) % 2, np.nan, 7.0), past[:2]).tolist() == [7.0, 7.0]
    with pytest.raises(InputError, match="at least one reading"):
        usual_weather(past, np.full(10, np.nan), past)
