"""The trend of zones, learnt from days, against zones whose levels are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from unmet.mobility.models.kernel import demand_kernel
from unmet.mobility.models.trend import daily_counts, learn_trend
from unmet.mobility.models.zone_data import CITY_ERRORS, CITY_RATE, ZoneData, zone_data

DAYS = 84
HOURS = 24 * DAYS
CURVE = np.cos(2 * np.pi * (np.arange(HOURS) % 24 - 17) / 24)


def zone(number: int, level: np.ndarray, exposure: np.ndarray | None = None, every: str = "h") -> ZoneData:
    """Return a zone with a known log-level in each hour about the city's curve."""
    rng = np.random.default_rng([3, number])
    start = pd.date_range("2024-01-01", periods=len(level), freq=every, tz="UTC")
    minutes = 60 if every == "h" else 1440
    share = np.ones(len(level)) if exposure is None else exposure
    curve = CURVE[: len(level)]
    rows = pd.DataFrame({"zone": f"z{number}", "start": start, "start_local": start.tz_localize(None)})
    rows = rows.assign(minutes=minutes, observed=rng.poisson(share * 3.0 * np.exp(curve + level)).astype(float))
    rows = rows.assign(exposure=share, censored=False, available_minutes=minutes * share)
    rows = rows.assign(stockout_minutes=minutes * (1 - share), closed_minutes=0, unknown_minutes=0)
    data = zone_data(rows)
    errors = dict.fromkeys(CITY_ERRORS, 0.0)
    return replace(data, inputs=data.inputs.assign(**{CITY_RATE: curve}, **errors))


def spells(number: int) -> np.ndarray:
    """Return good and bad hours that last for some three hours, with a standard deviation of 0.3."""
    rng = np.random.default_rng([4, number])
    noise, keeps = rng.standard_normal(HOURS), np.exp(-1 / 3)
    for k in range(1, HOURS):
        noise[k] = keeps * noise[k - 1] + np.sqrt(1 - keeps**2) * noise[k]
    return 0.3 * noise


def slow(number: int) -> np.ndarray:
    """Return a level that goes up and down by 0.2 within twelve weeks."""
    return 0.2 * np.sin(2 * np.pi * (np.arange(HOURS) / HOURS + number / 8))


def test_days_add_up_the_bins_that_were_seen_and_expect_what_the_curve_and_the_usual_hours_give():
    exposure = np.ones(HOURS)
    exposure[:24] = 0.0  # a day without a vehicle
    exposure[24:36] = 0.5
    data = zone(0, np.zeros(HOURS), exposure)
    days = daily_counts(data)
    assert len(days) == DAYS - 1
    assert days["observed"].sum() == data.observed[data.seen].sum()
    # All days have the same rate, so the exposure of a day is the share of its riders who could be served.
    rate = np.exp(CURVE[:24])
    assert days["exposure"].max() == 1.0
    assert days["exposure"].iloc[0] == pytest.approx(1 - 0.5 * rate[:12].sum() / rate.sum(), abs=0.05)
    assert days["exposure"].iloc[1:].to_numpy() == pytest.approx(1.0, abs=0.1)
    assert days["t"].iloc[0] == pytest.approx(1 + 11.5 / 24)


def test_a_slow_trend_is_found_beside_spells_of_some_hours():
    trend = learn_trend([zone(number, slow(number) + spells(number)) for number in range(8)])
    assert trend is not None
    assert 0.5 * 0.02 < trend.value("variance") < 3 * 0.02
    # The sine has a period of 84 days: a squared exponential with its curvature has a length-scale of 13.
    assert 10 < trend.value("lengthscale") < 40
    assert not trend.theta.size  # no search changes it


def test_spells_of_some_hours_are_not_taken_for_a_trend():
    trend = learn_trend([zone(number, spells(number)) for number in range(8)])
    assert trend is not None
    assert trend.value("variance") < 0.005  # a quarter of where the search starts


def test_the_kernel_of_hours_keeps_the_trend_that_days_have_shown():
    data = zone(0, slow(0))
    trend = learn_trend([data])
    assert trend is not None
    kernel = demand_kernel(data, city=True, trend=trend)
    assert kernel.leaves()[0] == trend
    assert len(kernel.theta) == len(demand_kernel(data, city=True).theta) - 2


def test_bins_of_a_day_and_short_records_are_left_to_the_search():
    assert learn_trend([zone(0, np.zeros(60), every="D")]) is None
    assert learn_trend([zone(0, np.zeros(24 * 20))]) is None
