"""The panel of returns."""

from __future__ import annotations

import pandas as pd
import pytest

from unmet import InputError
from unmet.mobility.models.zone_data import zone_data
from unmet.mobility.panel import read_panel, write_panel
from unmet.mobility.panel.returns import write_returns_panel
from unmet.simulate import simulate_city


def test_returns_are_counts_and_free_docks_are_supply(tmp_path):
    city = simulate_city(3, 4, seed=4)
    given = {"trips": city.trips, "status": city.status, "stations": city.stations}
    write_panel(tmp_path / "panel.parquet", **given, timezone="America/New_York")
    whole = read_panel(tmp_path / "panel.parquet").panel.sort_values(["zone", "start"], ignore_index=True)
    side = read_panel(write_returns_panel(tmp_path / "panel.parquet", tmp_path / "returns.parquet"))
    rows = side.panel
    assert side.summary["side"] == "returns"
    pd.testing.assert_series_equal(rows["observed"], whole["returns"], check_names=False)
    known = whole["dock_minutes"].notna()
    assert (rows["exposure"][known] == whole["dock_exposure"][known]).all()
    assert (rows["stockout_minutes"][known] == whole["full_minutes"][known]).all()
    states = rows[["available_minutes", "stockout_minutes", "closed_minutes", "unknown_minutes"]]
    assert (states.sum(axis=1) == rows["minutes"]).all()
    assert (rows["censored"] == (rows["stockout_minutes"] > 0)).all()


def test_a_panel_without_docks_is_refused(tmp_path):
    city = simulate_city(3, 4, seed=4)
    status = city.status.drop(columns=[c for c in city.status.columns if "dock" in c])
    stations = city.stations.drop(columns="capacity")  # from which free docks would be computed
    write_panel(tmp_path / "panel.parquet", city.trips, status, stations, timezone="America/New_York")
    with pytest.raises(InputError, match="free docks are unknown"):
        write_returns_panel(tmp_path / "panel.parquet", tmp_path / "returns.parquet")


def test_returns_of_time_without_status_are_not_those_of_a_short_time(tmp_path):
    city = simulate_city(3, 14, seed=4)
    at = pd.to_datetime(city.status["last_reported"], unit="s", utc=True)
    begin = at.min() + pd.Timedelta(days=5, hours=12, minutes=40)
    status = city.status[~at.between(begin, begin + pd.Timedelta("30h"))]
    write_panel(tmp_path / "panel.parquet", city.trips, status, city.stations, timezone="America/New_York")
    side = read_panel(write_returns_panel(tmp_path / "panel.parquet", tmp_path / "returns.parquet")).panel
    data = zone_data(side[side["zone"] == side["zone"].iloc[0]])
    gap = (data.start >= begin.ceil("h")) & (data.start < (begin + pd.Timedelta("29h")).floor("h"))
    assert data.observed[gap].sum() > 5
    assert not data.seen[gap].any()
    partly = data.start == begin.floor("h")  # twenty minutes are unknown
    assert data.exposure[partly] == pytest.approx(1.0, abs=0.05)
