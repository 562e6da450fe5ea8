"""The plan as the page shows it: public holidays, and its limits."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from unmet.mobility.planning.period import Period
from unmet.report.plan import holiday_of, plan_data
from unmet.report.source import open_run

MEMORIAL_DAY, TUESDAY = pd.Timestamp("2024-05-27"), pd.Timestamp("2024-05-28")


def source_with(holidays: str | None, *, uses: bool = True, timezone: str = "America/New_York") -> SimpleNamespace:
    info = {"provenance": {"holidays": holidays}, "model": {"uses_covariates": uses}}
    return SimpleNamespace(info=info, summary={"timezone": timezone})


def period_of(day: pd.Timestamp | None, *, forecast: bool) -> Period:
    weekday = 0 if day is None else day.weekday()
    return Period(day, weekday, 0, 1.0, (np.arange(24),), (), forecast, True)


def test_a_holiday_in_the_forecast_is_named_without_a_warning():
    found = holiday_of(source_with("US"), period_of(MEMORIAL_DAY, forecast=True))
    assert (found["name"], found["included"]) == ("Memorial Day", True)


@pytest.mark.parametrize(
    ("given", "uses", "forecast", "advice"),
    [
        ("US", True, False, "run again with --horizon 1d."),
        (None, True, True, "run again with --holidays US."),
        (None, True, False, "run again with --holidays US and --horizon 1d."),
        ("US", False, True, "run again with a --model that uses holidays."),
    ],
)
def test_a_holiday_planned_as_a_usual_day_is_a_warning_with_what_to_do(given, uses, forecast, advice):
    found = holiday_of(source_with(given, uses=uses), period_of(MEMORIAL_DAY, forecast=forecast))
    assert not found["included"]
    assert "(Memorial Day), planned like a usual Monday" in found["sentence"]
    assert found["sentence"].endswith(advice)


def test_other_days_and_unknown_countries_have_no_holiday():
    assert holiday_of(source_with("US"), period_of(TUESDAY, forecast=False)) is None
    assert holiday_of(source_with("US"), period_of(None, forecast=False)) is None
    assert holiday_of(source_with(None, timezone="Etc/UTC"), period_of(MEMORIAL_DAY, forecast=False)) is None


def test_the_limits_say_how_holidays_count(plain_run):
    with open_run(plain_run.folder, plain_run.panel) as source:
        found = plan_data(source)
    assert found["holiday"] is None  # 20 March 2024
    # The run has a forecast, but neither holidays nor a model that uses them.
    assert found["limits"][-1].startswith("A public holiday counts as any other day of its weekday.")
    assert not [text for text in found["limits"] if "unless the run has a forecast" in text]
