"""The period follows from where the records are."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmet._exceptions import InputError
from unmet.mobility.panel import build_panel
from unmet.mobility.records.extent import main_days


def make_trips(count: int = 2000) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    start = pd.Timestamp("2021-07-01") + pd.to_timedelta(rng.integers(0, 20 * 1440, count), unit="min")
    return pd.DataFrame(
        {"started_at": start, "ended_at": start + pd.Timedelta("9min"), "start_station_id": rng.integers(0, 3, count)}
    )


@pytest.mark.parametrize("year", [1995, 2019, 2040, 2090])
def test_one_trip_in_another_year_does_not_set_the_period(year: int) -> None:
    trips = make_trips()
    usual = build_panel(trips.drop(index=7), timezone="UTC")
    trips.loc[7, ["started_at", "ended_at"]] += pd.Timestamp(year, 1, 1) - pd.Timestamp(2021, 1, 1)
    panel = build_panel(trips, timezone="UTC")
    pd.testing.assert_frame_equal(panel.panel, usual.panel)
    finding = panel.quality.query("reason == 'impossible time'").iloc[0]
    assert finding["rows"] == 1
    assert ("before 2021-07-01" if year < 2021 else "after 2021-07-20") in finding["detail"]


@pytest.mark.parametrize("as_numbers", [True, False])
def test_one_record_of_status_in_another_year_does_not_set_the_period(as_numbers: bool) -> None:
    at = pd.Series(pd.date_range("2021-07-01", periods=200, freq="h").as_unit("s"))
    wild = at.where(at.index < 199, at + pd.Timedelta(days=7000))
    panels = []
    for moments in (at[:199], wild):
        status = pd.DataFrame({"station_id": "a", "num_bikes_available": np.arange(len(moments)) % 5})
        status["last_reported"] = moments.astype("int64") if as_numbers else moments
        panels.append(build_panel(status=status, timezone="UTC"))
    assert panels[0].summary["end_local"] == panels[1].summary["end_local"]
    assert panels[1].quality.query("reason == 'impossible time'")["rows"].tolist() == [1]


def test_an_end_years_later_is_left_blank() -> None:
    trips = make_trips()
    trips.loc[7, "ended_at"] += pd.Timedelta(days=20_000)
    quality = build_panel(trips, timezone="UTC").quality
    assert quality.query("reason == 'impossible end time'")["rows"].tolist() == [1]


def test_a_chosen_period_keeps_its_rows() -> None:
    trips = make_trips()
    trips.loc[7, ["started_at", "ended_at"]] += pd.Timedelta(days=100)
    panel = build_panel(trips, timezone="UTC", end="2021-12-01")
    assert panel.summary["observed"] == len(trips)


def test_too_many_bins_ask_for_the_period() -> None:
    trips = make_trips(4)
    trips.loc[0, ["started_at", "ended_at"]] += pd.Timedelta(days=20_000)
    with pytest.raises(InputError, match="Choose the period with --start and --end"):
        build_panel(trips, timezone="UTC")


def test_a_panel_larger_than_the_disk_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unmet.mobility.panel.period.shutil.disk_usage", lambda _: SimpleNamespace(free=10_000))
    with pytest.raises(InputError, match=r"would have 1,4\d\d rows \(3 zones, 4\d\d bins\)"):
        build_panel(make_trips(), timezone="UTC")


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=300))
def test_the_main_days_contain_all_but_one_percent_of_the_rows(drawn: list[int]) -> None:
    days, rows = np.unique(drawn, return_counts=True)
    first, last = main_days(days, rows)
    kept = rows[(days >= first) & (days <= last)].sum()
    assert first in days
    assert last in days
    assert len(drawn) - kept <= max(1, len(drawn) // 100)
    if len(drawn) < 20:
        assert kept == len(drawn)


def test_days_without_gaps_and_sparse_days_are_all_kept() -> None:
    for step in (1, 7, 60):
        days = np.arange(0, 100 * step, step)
        assert main_days(days, np.ones(100, dtype=np.int64)) == (0, 99 * step)
