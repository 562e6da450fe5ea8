"""Expected minutes of an earlier panel: taken over for bins with the same listed minutes, and for no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from unmet.mobility.clock.bins import DAY, cut_bins
from unmet.mobility.panel.learnt import SETTLED_DAYS, Learnt, NotSettled

FIRST, DAYS = 54 * 365 * DAY, 70
BINS = cut_bins(FIRST, FIRST + DAYS * DAY - 1, 60, "UTC")
SETTLED = len(BINS) - SETTLED_DAYS * 24
LISTED = {"available_minutes": 50, "stockout_minutes": 10, "observed": 2, "dock_minutes": 60, "full_minutes": 0}
EXPECTED = ("unusable_minutes", "out_minutes", "out_sd", "no_dock_minutes")


def columns(**values: float) -> dict[str, np.ndarray[Any, Any]]:
    """Stored columns of one zone."""
    return {name: np.full(len(BINS), value) for name, value in (LISTED | values).items()}


@pytest.fixture
def earlier(tmp_path: Path) -> Learnt:
    stored = columns(unusable_minutes=5.0, out_minutes=15.0, out_sd=4.0, no_dock_minutes=3.0)
    rows = pd.DataFrame(stored).assign(start=pd.DatetimeIndex(BINS.start).tz_localize("UTC"))  # noqa: F841
    duckdb.sql(f"COPY rows TO '{tmp_path}/panel.parquet'")
    first, end = int(BINS.edges[0]), int(BINS.edges[-1])
    return Learnt(tmp_path / "panel.parquet", {}, {}, ("a",), first, end)


def fresh() -> dict[str, np.ndarray[Any, Any]]:
    return columns(unusable_minutes=0.0, out_minutes=10.0, out_sd=0.0, no_dock_minutes=0.0)


def test_settled_bins_take_over_expected_minutes_with_their_deviation(earlier):
    now = fresh()
    earlier.take_over(BINS, now)
    for name, before in zip(EXPECTED, (5.0, 15.0, 4.0, 3.0), strict=True):
        assert (now[name][:SETTLED] == before).all()
        assert (now[name][SETTLED:] == fresh()[name][SETTLED:]).all()


def test_bins_whose_listed_minutes_changed_keep_what_is_found_now(earlier):
    """A bin that is now closed all the time had 15 minutes out of stock, and an exposure below 0."""
    now = fresh()
    now["available_minutes"][7], now["stockout_minutes"][7], now["out_minutes"][7] = 0, 0, 0.0
    now["dock_minutes"][9], now["full_minutes"][9], now["no_dock_minutes"][9] = 0, 60, 60.0
    earlier.take_over(BINS, now)
    assert [now[name][7] for name in EXPECTED] == [0.0, 0.0, 0.0, 3.0]  # its docks are as before
    assert [now[name][9] for name in EXPECTED] == [5.0, 15.0, 4.0, 60.0]
    open_ = now["available_minutes"] + now["stockout_minutes"]
    assert (now["out_minutes"] <= open_).all()


@pytest.mark.parametrize("name", LISTED)
def test_many_changed_bins_are_refused(earlier, name):
    now = fresh()
    now[name][:10] -= 1
    with pytest.raises(NotSettled, match="pickups" if name == "observed" else "minutes"):
        earlier.take_over(BINS, now)


def test_this_city_has_settled_bins():
    assert BINS.edges[SETTLED] == BINS.edges[-1] - SETTLED_DAYS * DAY
