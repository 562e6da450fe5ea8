"""The forecast as a table: sums, and limits of the risk."""

from __future__ import annotations

import pandas as pd
import pytest

from unmet.report.forecast import FORECAST_COLUMNS, forecast_by_bin, forecast_data, forecast_rows, forecast_sentence
from unmet.report.source import open_run


@pytest.fixture(scope="module")
def forecast(plain_run):
    with open_run(plain_run.folder, plain_run.panel) as source:
        rows = forecast_rows(source)
        return rows, forecast_by_bin(source, rows), forecast_data(source), source.zones


def test_there_is_a_row_for_each_zone_and_hour_ahead(forecast, plain_run):
    rows, _, _, zones = forecast
    demand = pd.read_parquet(plain_run.folder / "demand.parquet")
    last = pd.read_parquet(plain_run.panel)["start"].max()
    ahead = demand[demand["start"] > last].sort_values(["zone", "start"], ignore_index=True)
    assert tuple(rows.columns) == FORECAST_COLUMNS
    assert rows["rate_mean"].tolist() == pytest.approx(ahead["rate_mean"].tolist())
    assert len(rows) == 48 * (zones["status"] == "ok").sum()


def test_the_risk_is_a_chance_for_one_day(forecast):
    rows, by_bin, _, _ = forecast
    first = rows["start"] < rows["start"].min() + pd.Timedelta(days=1)
    assert rows.loc[first, "risk"].between(0, 1).mean() > 0.5
    assert rows.loc[~first, "risk"].isna().all()
    assert rows["usual_out"].dropna().between(0, 1).all()
    assert by_bin["rate_mean"].sum() == pytest.approx(rows["rate_mean"].sum())
    assert by_bin["expected_lost"].sum() == pytest.approx(rows["expected_lost"].sum())
    assert (by_bin["rate_q05"] <= by_bin["rate_mean"]).all()


def test_the_page_has_the_sentence_and_the_worst_hours(forecast):
    rows, by_bin, data, zones = forecast
    assert data["sentence"] == forecast_sentence(by_bin)
    assert f"{by_bin['rate_mean'].sum():,.0f} riders are expected" in data["sentence"]
    worst = rows.loc[rows["expected_lost"].idxmax()]
    assert zones["zone"].iloc[data["worst"]["number"][0]] == worst["zone"]
    assert data["worst"]["expected_lost"][0] == pytest.approx(worst["expected_lost"], rel=1e-5)


def test_a_run_without_a_horizon_has_none(hostile_run):
    with open_run(hostile_run.folder, hostile_run.panel) as source:
        assert forecast_data(source) is None
        assert forecast_rows(source).empty
