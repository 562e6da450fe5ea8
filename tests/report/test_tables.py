"""The report's numbers: they are the run's, and the ranking is what it says it is."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import duckdb
import numpy as np
import pandas as pd
import pytest

from report.small_runs import run_on
from unmet._exceptions import FileFormatError, InputError
from unmet.mobility.models.city_curve import LEAST_ZONES
from unmet.mobility.models.registry import MODELS
from unmet.report.series import each_zone
from unmet.report.source import open_run
from unmet.report.tables import act_table, flag_counts, headline, true_demand, week_table, zone_table
from unmet.report.words import assumptions, minutes_by_state, span


@pytest.fixture(scope="module")
def tables(plain_run):
    with open_run(plain_run.folder, plain_run.panel) as source:
        weeks = week_table(source, [series.week for _, series in each_zone(source)])
        zones = zone_table(source, true_demand(source, plain_run.truth))
        return zones, weeks, headline(source, zones), minutes_by_state(source)


def test_flags_are_counted_in_the_same_order_each_time():
    with duckdb.connect() as connection:
        connection.sql("CREATE TABLE panel AS SELECT 0 AS start")
        connection.sql(
            """CREATE TABLE demand AS SELECT 'z' || i % 7 AS zone, 0 AS start, 'w' || i % 91 || ';w' || i % 89 AS flags
            FROM range(5000) t(i)"""
        )
        found = flag_counts(SimpleNamespace(connection=connection, demand_columns=("flags",)))
    assert len(found) == 91
    assert list(found) == sorted(found)
    assert all(list(zones) == sorted(zones) for zones in found.values())


def test_the_headline_is_the_runs_own(tables, plain_run):
    _, _, found, _ = tables
    totals = json.loads((plain_run.folder / "run.json").read_text())["totals"]
    for name in ("observed", "demand", "lost"):
        assert found[name] == {limit: totals[name][limit] for limit in ("mean", "q05", "q95")}
    panel = pd.read_parquet(plain_run.panel)
    stockout, available = panel["stockout_minutes"].sum(), panel["available_minutes"].sum()
    assert found["stockout_share"] == pytest.approx(stockout / (stockout + available))


def test_the_headline_leaves_out_what_the_totals_leave_out(plain_run):
    with open_run(plain_run.folder, plain_run.panel) as source:
        source.zones["left_out"] = pd.Series([None] * 11 + ["it has a valet"], dtype=object)
        source.zones.loc[11, ["available_minutes", "stockout_minutes"]] = 1e6
        zones = zone_table(source, true_demand(source, plain_run.truth))
        found = headline(source, zones)
    rest = source.zones[:11]
    stockout = rest["stockout_minutes"].sum()
    assert found["stockout_hours"] == pytest.approx(stockout / 60)
    assert found["stockout_share"] == pytest.approx(stockout / (stockout + rest["available_minutes"].sum()))
    assert found["true_demand"] == zones["true_demand"][:11].sum()


def test_the_truth_is_what_was_wanted_at_open_stations(tables, city):
    zones, _, found, _ = tables
    wanted = city.truth[city.truth["fate"] != "closed"]
    assert found["true_demand"] == len(wanted)
    by_station = wanted["station_id"].value_counts()
    assert zones.set_index("zone")["true_demand"].to_dict() == by_station.reindex(zones["zone"]).to_dict()


def test_shares_of_the_time_sum_to_one(tables, plain_run):
    _, _, _, states = tables
    assert sum(row["share"] for row in states) == pytest.approx(1.0)
    panel = pd.read_parquet(plain_run.panel)
    hours = {row["state"]: row["hours"] for row in states}
    assert hours["closed"] == pytest.approx(panel["closed_minutes"].sum() / 60)
    assert hours["closed"] > 0


def test_where_to_act_is_ranked_by_lost_trips_per_hour_out_of_stock(tables, plain_run):
    _, weeks, _, _ = tables
    panel = pd.read_parquet(plain_run.panel)
    demand = pd.read_parquet(plain_run.folder / "demand.parquet")[["zone", "start", "lost_mean"]]
    rows = panel.merge(demand, on=["zone", "start"]).dropna(subset=["observed"])
    rows["slot"] = rows["start_local"].dt.day_of_week * 24 + rows["start_local"].dt.hour
    rows["open"] = rows["available_minutes"] + rows["stockout_minutes"]
    sums = rows.groupby(["zone", "slot"])[["lost_mean", "stockout_minutes", "open"]].sum()
    often = sums[(sums["stockout_minutes"] >= 60) & (sums["stockout_minutes"] >= 0.05 * sums["open"])]
    cost = (often["lost_mean"] / (often["stockout_minutes"] / 60))[often["lost_mean"] > 0].sort_values(ascending=False)
    found = act_table(weeks, rows=1000)
    assert len(found) == len(cost) > 5
    assert found["lost_per_stockout_hour"].to_numpy() == pytest.approx(cost.to_numpy())
    keys = list(zip(found["zone"], found["hour_of_week"], strict=True))
    assert found["lost_per_stockout_hour"].to_numpy() == pytest.approx(cost.loc[keys].to_numpy())


def test_demand_of_the_hours_of_the_week_is_that_of_their_bins_where_riders_walk(plain_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(plain_run.folder, run)
    demand = pd.read_parquet(run / "demand.parquet")
    past = demand["observed"].notna()
    demand.loc[past, "demand_mean"] += np.where(demand["zone"][past] == demand["zone"].iloc[0], 0.5, -0.25)
    demand.to_parquet(run / "demand.parquet")
    with open_run(run, plain_run.panel, trust=True) as source:
        weeks = week_table(source, [series.week for _, series in each_zone(source)])
    expected = demand[past].groupby("zone")["demand_mean"].sum()
    assert weeks.groupby("zone")["demand_mean"].sum().to_dict() == pytest.approx(expected.to_dict())


def test_a_minute_out_of_stock_is_no_habit():
    week = pd.DataFrame(
        {
            "number": [0, 0, 1],
            "hour_of_week": [8, 9, 8],
            "lost_mean": [5.0, 5.0, 5.0],
            "stockout_hours": [0.5, 2.0, 2.0],
            "open_hours": [10.0, 10.0, 50.0],
            "lost_per_stockout_hour": [10.0, 2.5, 2.5],
        }
    )
    assert act_table(week)[["number", "hour_of_week"]].to_numpy().tolist() == [[0, 9]]


def test_the_truth_of_another_city_is_refused(plain_run, city, tmp_path):
    city.truth.assign(station_id="elsewhere").to_parquet(tmp_path / "other.parquet")
    city.truth.drop(columns=["fate"]).to_parquet(tmp_path / "lacking.parquet")
    with open_run(plain_run.folder, plain_run.panel) as source:
        with pytest.raises(InputError, match="another city"):
            true_demand(source, tmp_path / "other.parquet")
        with pytest.raises(FileFormatError, match="'fate'"):
            true_demand(source, tmp_path / "lacking.parquet")
        with pytest.raises(InputError, match="There is no file"):
            true_demand(source, tmp_path / "nowhere.parquet")


def test_every_model_is_explained():
    assert all(model.sentence.endswith(".") for model in MODELS.values())


def test_assumptions_speak_of_those_who_walk_on(plain_run):
    with open_run(plain_run.folder, plain_run.panel) as source:
        told = " ".join(assumptions(source))
    assert "walks on" in told
    assert "full hour" in told
    assert "rush hour" not in told


def test_bins_of_a_day_are_told_to_mix_nights_and_rush_hours(city, tmp_path):
    made = run_on(city, tmp_path, every="1d")
    with open_run(made.folder, made.panel) as source:
        assert "With bins of one day, an empty hour at night" in " ".join(assumptions(source))


def test_the_words_of_the_default_model_say_that_zones_learn_from_the_city():
    words = MODELS["exposure"].sentence
    assert "zone by zone" not in words
    assert f"With {['no', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight'][LEAST_ZONES]} zones" in words


def test_lengths_of_time_are_words():
    assert [span(m) for m in (5, 15, 60, 120, 1440, 10080)] == [
        "5 minutes", "15 minutes", "hour", "2 hours", "day", "week",
    ]  # fmt: skip


def test_a_zone_never_open_has_no_share(plain_run):
    with open_run(plain_run.folder, plain_run.panel) as source:
        source.zones.loc[0, ["available_minutes", "stockout_minutes"]] = 0.0
        table = zone_table(source)
    assert np.isnan(table["stockout_share"].iloc[0])
    assert table["stockout_share"].iloc[1:].between(0, 1).all()
