"""The panel of returns."""

from __future__ import annotations

import pandas as pd
import pytest

from unmet import InputError
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
