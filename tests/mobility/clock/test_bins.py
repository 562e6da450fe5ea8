"""Bins by the wall clock, against a walk minute by minute."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

import numpy as np
import panel_reference as reference
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from unmet._exceptions import InputError
from unmet.mobility.clock.bins import cut_bins, parse_every

# Clocks that change at 2:00, by half an hour, at midnight, and to an odd quarter of an hour.
ZONES = ["America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kathmandu", "Etc/UTC"]
CHANGES = ["2021-03-14", "2021-11-07", "2021-04-04", "2021-10-03", "2023-04-28", "2023-10-27"]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(ZONES),
    st.sampled_from(CHANGES),
    st.integers(-1500, 1500),
    st.integers(0, 2000),
    st.sampled_from([5, 7, 15, 30, 45, 60, 90, 120, 360, 720, 1000, 1440, 2880, 10080]),
)
@example("America/New_York", "2021-11-07", 0, 1440, 60)
def test_bins_are_those_of_a_walk_along_the_wall_clock(zone, day, shift, length, every):
    first = reference.utc(day, zone) // 60 + shift
    bins = cut_bins(first, first + length, every, zone)
    expected = reference.cut(first, first + length, every, ZoneInfo(zone))
    assert list(zip(bins.edges[:-1].tolist(), bins.edges[1:].tolist(), strict=True)) == expected
    walls = [reference.wall(begin, ZoneInfo(zone)) for begin, _ in expected]
    assert bins.start_local.astype("datetime64[us]").tolist() == walls
    minutes = np.arange(first - 20000, first + length + 20000, 13)
    number = bins.of(minutes)
    inside = (number >= 0) & (number < len(bins))
    assert (inside == ((minutes >= bins.edges[0]) & (minutes < bins.edges[-1]))).all()
    assert (bins.edges[number[inside]] <= minutes[inside]).all()
    assert (bins.edges[number[inside] + 1] > minutes[inside]).all()


@pytest.mark.parametrize(("day", "hours"), [("2021-03-14", 23), ("2021-11-07", 25), ("2021-07-01", 24)])
def test_a_day_on_which_the_clocks_change_has_23_or_25_hourly_bins(day, hours):
    zone = "America/New_York"
    noon = reference.utc(f"{day} 12:00", zone) // 60
    whole = cut_bins(noon, noon, 1440, zone)
    assert whole.minutes.tolist() == [hours * 60]
    assert len(cut_bins(int(whole.edges[0]), int(whole.edges[1]) - 1, 60, zone)) == hours


def test_weeks_start_on_monday():
    minute = reference.utc("2021-07-01 12:00", "America/New_York") // 60
    bins = cut_bins(minute, minute, 10080, "America/New_York")
    assert str(bins.start_local[0]) == "2021-06-28T00:00:00"


@pytest.mark.parametrize("bad", ["", "1", "min", "4min", "8d", "36h", "-5min", "1.5h", timedelta(seconds=90)])
def test_bins_that_make_no_sense_are_refused(bad):
    with pytest.raises(InputError):
        parse_every(bad)
