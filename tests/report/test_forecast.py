"""The forecast as a table: sums, and limits of the risk."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from unmet.report.forecast import (
    COLUMNS_OF_RETURNS,
    FORECAST_COLUMNS,
    forecast_by_bin,
    forecast_data,
    forecast_rows,
    forecast_sentence,
    missing_weather,
)
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


def test_wanted_returns_are_beside_riders_with_the_risk_to_find_no_dock(forecast, plain_run, tmp_path):
    """A run of returns that wants twice as many returns as rentals fills the docks."""
    alone = forecast[0]
    demand = pd.read_parquet(plain_run.folder / "demand.parquet")
    doubled = [name for name in demand.columns if name.startswith(("rate_", "demand_"))]
    demand.assign(**{name: 2.0 * demand[name] for name in doubled}).to_parquet(tmp_path / "demand.parquet")
    with open_run(plain_run.folder, plain_run.panel) as source:
        rows = forecast_rows(replace(source, returns=tmp_path))
    assert tuple(rows.columns) == FORECAST_COLUMNS + COLUMNS_OF_RETURNS
    for name in ("rate_mean", "demand_mean", "demand_q95"):
        assert rows[f"returns_{name}"].tolist() == pytest.approx((2.0 * alone[name]).tolist()), name
    first = rows["start"] < rows["start"].min() + pd.Timedelta(days=1)
    assert rows.loc[first, "dock_risk"].between(0, 1).mean() > 0.5
    assert rows.loc[~first, "dock_risk"].isna().all()
    assert ((rows["risk"] + rows["dock_risk"]).dropna() <= 1 + 1e-9).all()
    lost = (rows["returns_rate_mean"] * rows["dock_risk"]).sum()
    assert rows["expected_no_dock"].sum() == pytest.approx(lost)
    assert lost > 0


def test_the_page_has_the_sentence_and_the_worst_hours(forecast):
    rows, by_bin, data, zones = forecast
    everything = data["areas"][0]
    assert everything["area"] is None
    sentences = {(own["days"], own["part"]): own["sentence"] for own in everything["sentences"]}
    assert sentences[None, None] == forecast_sentence(by_bin)
    assert f"{by_bin['rate_mean'].sum():,.0f} riders are expected" in sentences[None, None]
    morning = by_bin[by_bin["start_local"].dt.hour.isin(range(6, 10))]
    assert f"{morning['rate_mean'].sum():,.0f} riders are expected" in sentences[None, "morning"]
    assert sentences["weekends", None] == "The forecast has no such hours."
    worst = rows.loc[rows["expected_lost"].idxmax()]
    assert zones["zone"].iloc[data["worst"]["number"][0]] == worst["zone"]
    assert data["worst"]["expected_lost"][0] == pytest.approx(worst["expected_lost"], rel=1e-5)


def test_areas_add_up_and_their_bands_come_from_the_errors_of_their_zones(forecast, plain_run):
    _, by_bin, data, zones = forecast
    everything, *areas = data["areas"]
    assert [own["area"] for own in areas] == ["North", "South"]
    for name in ("rate_mean", "expected_lost"):
        sums = np.nansum([np.array(own["bins"][name], dtype=float) for own in areas], axis=0)
        assert sums == pytest.approx(np.nan_to_num(np.array(everything["bins"][name], dtype=float)), rel=1e-4)
    demand = pd.read_parquet(plain_run.folder / "demand.parquet")
    demand = demand[demand["start"].isin(by_bin["start"])]
    for own in areas:
        some = demand[demand["zone"].isin(zones["zone"][zones["area"] == own["area"]])]
        sd = np.sqrt((some["rate_sd"] ** 2).groupby(some["start"]).sum()).to_numpy()  # this model shares no errors
        half = np.array(own["bins"]["rate_q95"]) - np.array(own["bins"]["rate_mean"])
        assert half == pytest.approx(1.6448536 * sd, rel=1e-4)


def test_the_first_rows_of_every_choice_are_on_the_page(forecast):
    rows, _, data, zones = forecast
    worst = pd.DataFrame({"zone": zones["zone"].to_numpy()[data["worst"]["number"]], "at": data["worst"]["at"]})
    hour = pd.to_datetime(worst["at"], unit="ms").dt.hour
    area = dict(zip(zones["zone"], zones["area"], strict=True))
    own = rows[(rows["zone"].map(area) == "South") & rows["start_local"].dt.hour.isin(range(16, 20))]
    best = own.nlargest(60, "expected_lost", keep="first").dropna(subset="expected_lost")
    page = worst[(worst["zone"].map(area) == "South") & hour.isin(range(16, 20))]
    assert len(best) > 10
    assert page["zone"].tolist()[: len(best)] == best["zone"].tolist()


def test_a_run_without_a_horizon_has_none(hostile_run):
    with open_run(hostile_run.folder, hostile_run.panel) as source:
        assert forecast_data(source) is None
        assert forecast_rows(source).empty


def test_hours_without_riders_count_as_hours(forecast):
    """An hour in which nobody is expected has a known risk; the sentence is about the first day, not less."""
    _, by_bin, data, _ = forecast
    assert (by_bin["rate_mean"] == 0).any()
    assert by_bin["expected_lost"].notna().sum() == 24
    assert "in the first 24 hours find nothing" in data["areas"][0]["sentences"][0]["sentence"]


@pytest.mark.parametrize(
    ("last", "uses", "says"),
    [
        ("2024-03-21 23:00", True, "no rain for 24 of its 48 bins"),
        ("2024-03-19 12:00", True, None),
        ("2024-03-21 23:00", False, None),
    ],
)
def test_weather_that_the_forecast_lacks_is_told(last, uses, says):
    ahead = pd.date_range("2024-03-20", periods=48, freq="h", tz="UTC")
    gap = {"column": "rain_mm", "first": "2024-03-21 00:00+00:00" if says else "2024-03-19 00:00+00:00"}
    source = SimpleNamespace(
        bins=pd.DataFrame({"start": ahead, "future": True}),
        info={"model": {"uses_covariates": uses}, "provenance": {"weather_gaps": [{**gap, "last": f"{last}+00:00"}]}},
    )
    found = missing_weather(source)
    assert found is None if says is None else says in found
