"""Days, hours of the week and the system's sums, against pandas on the run's own files."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

from report.small_runs import run_on
from unmet.report.series import RateErrors, SystemSeries, each_zone
from unmet.report.source import open_run


@pytest.fixture(scope="module")
def together(plain_run) -> pd.DataFrame:
    """The panel and the estimates, row by row, future bins without a panel row."""
    panel = pd.read_parquet(plain_run.panel)
    demand = pd.read_parquet(plain_run.folder / "demand.parquet").drop(columns=["observed"])
    rows = panel.merge(demand, on=["zone", "start"], how="outer").sort_values(["zone", "start"])
    offset = (panel["start_local"] - panel["start"].dt.tz_localize(None)).iloc[-1]
    rows["start_local"] = rows["start_local"].fillna(rows["start"].dt.tz_localize(None) + offset)
    return rows


@pytest.fixture(scope="module")
def found(plain_run):
    with open_run(plain_run.folder, plain_run.panel) as source:
        system = SystemSeries(source)
        zones = {}
        for number, series in each_zone(source):
            system.add(series)
            zones[source.zones["zone"].iloc[number]] = series
        return zones, system.series()


def test_the_city_changes_its_clocks_within_the_panel(together):
    # Else the tests below would say nothing of days of 23 hours.
    hours = together[together["zone"] == "SIM001"].groupby(together["start_local"].dt.date).size()
    assert 23 in hours.tolist()


def test_days_are_sums_of_their_bins(found, together):
    for zone, series in found[0].items():
        own = together[together["zone"] == zone]
        by_day = own.groupby(own["start_local"].dt.date)
        sums = {"observed": "observed", "rate": "rate_mean", "low": "rate_q05", "high": "rate_q95", "lost": "lost_mean"}
        for name, column in sums.items():
            assert np.allclose(series.days[name], by_day[column].sum(min_count=1), equal_nan=True), name
        share = by_day["stockout_minutes"].sum(min_count=1) / by_day["minutes"].sum(min_count=1)
        assert np.allclose(series.days["stockout"], share, equal_nan=True)


def test_hours_of_the_week_are_sums_of_their_bins(found, together):
    for zone, series in found[0].items():
        own = together[(together["zone"] == zone) & together["observed"].notna()]
        slot = own["start_local"].dt.day_of_week * 24 + own["start_local"].dt.hour
        for name, column in (("observed", "observed"), ("lost", "lost_mean"), ("stockout", "stockout_minutes")):
            expected = own.groupby(slot)[column].sum().reindex(range(168))
            assert np.allclose(series.week[name], expected, equal_nan=True), name
        assert series.week["bins"].tolist() == slot.value_counts().reindex(range(168), fill_value=0).tolist()
        flagged = own["flags"].str.contains("extrapolation")
        assert series.week["extrapolated"].sum() == flagged.sum()


def test_limits_of_the_week_are_those_of_the_joint_draws(found, plain_run):
    totals = pd.read_parquet(plain_run.folder / "totals.parquet").query("quantity == 'lost'")
    zones, system = found
    for zone, series in zones.items():
        own = totals[(totals["level"] == "zone_hour_of_week") & (totals["zone"] == zone)].set_index("hour_of_week")
        assert series.week["low"].tolist() == own["q05"].tolist()
        assert series.week["high"].tolist() == own["q95"].tolist()
    own = totals[totals["level"] == "hour_of_week"].set_index("hour_of_week")
    assert system.week["high"].tolist() == own["q95"].tolist()


def test_the_system_is_the_sum_of_its_zones(found, together):
    _, system = found
    by_bin = together.groupby("start")
    for name, column in (("observed", "observed"), ("rate", "rate_mean"), ("lost", "lost_mean")):
        assert np.allclose(system.bins[name], by_bin[column].sum(min_count=1), equal_nan=True), name
    sd = np.sqrt((together["rate_sd"] ** 2).groupby(together["start"]).sum())  # this model's zones share no error
    assert np.allclose(system.bins["high"] - system.bins["rate"], 1.6448536 * sd)
    share = (together["stockout_minutes"] / together["minutes"]).groupby(together["start"]).mean()
    assert np.allclose(system.bins["stockout"], share, equal_nan=True)


def test_a_few_zones_at_a_time_give_the_same(found, plain_run, monkeypatch):
    monkeypatch.setattr("unmet.report.series._ROWS_AT_ONCE", 1000)
    with open_run(plain_run.folder, plain_run.panel) as source:
        for number, series in each_zone(source):
            once = found[0][source.zones["zone"].iloc[number]]
            for name, values in series.bins.items():
                assert np.array_equal(values, once.bins[name], equal_nan=True)


def test_bins_to_come_follow_the_local_clock_when_it_changes(city, tmp_path):
    run = run_on(city, tmp_path, end="2024-03-09", horizon=48)  # the clocks go forward on 10 March
    with open_run(run.folder, run.panel) as source:
        local = source.bins["start"].dt.tz_convert("America/New_York").dt.tz_localize(None)
        assert source.bins["start_local"].tolist() == local.tolist()
        assert source.bins["future"].sum() == 48


def test_days_to_come_are_as_long_as_the_clock_makes_them(city, tmp_path):
    run = run_on(city, tmp_path, end="2024-03-09", every="1d", horizon=3)
    with open_run(run.folder, run.panel) as source:
        assert source.bins.loc[source.bins["future"], "minutes"].tolist() == [1440, 1380, 1440]


def test_errors_that_bins_share_add_up_over_a_day_and_the_rest_lasts_all_day():
    rng = np.random.default_rng(5)
    shared, own = rng.normal(size=(6, 2)), rng.uniform(0.5, 2.0, 6)
    rates = pd.DataFrame({"rate_sd": np.sqrt(own**2 + (shared**2).sum(axis=1))})
    rates = rates.assign(rate_shared_1=shared[:, 0], rate_shared_2=shared[:, 1])
    errors = RateErrors.of(rates)
    assert np.allclose(errors.sd(), rates["rate_sd"])
    days = csr_matrix(np.repeat(np.eye(2), 3, axis=0))
    # The covariance of all bins: shared errors are the same in every bin, the rest in every bin of a day.
    covariance = shared @ shared.T + np.outer(own, own) * (days @ days.T).toarray()
    assert np.allclose(errors.summed(days) ** 2, np.diag(days.T @ covariance @ days))


def test_an_area_has_a_band_and_the_parts_of_a_day_add_up(plain_run):
    with open_run(plain_run.folder, plain_run.panel) as source:
        series = [own for _, own in each_zone(source)]
        sums = {}
        for area in ("North", "South", None):
            sums[area] = SystemSeries(source, area)
            for own, name, counted in zip(series, source.area_of, source.counted, strict=True):
                if counted and area in (None, name):
                    sums[area].add(own)
    north, south, everything = (own.series() for own in sums.values())
    for name in ("observed", "rate", "lost"):
        both = np.nan_to_num(north.bins[name]) + np.nan_to_num(south.bins[name])
        assert np.allclose(both, np.nan_to_num(everything.bins[name]))
        parts = np.sum([np.nan_to_num(days[name]) for days in north.parts.values()], axis=0)
        assert np.allclose(parts, np.nan_to_num(north.days[name]))
    half = [own.bins["high"] - own.bins["rate"] for own in (north, south, everything)]
    assert np.allclose(half[0] ** 2 + half[1] ** 2, half[2] ** 2)  # this model shares no errors between zones
    limits = pd.read_parquet(plain_run.folder / "totals.parquet").query("level == 'area_hour_of_week'")
    lost = limits[(limits["zone"] == "North") & (limits["quantity"] == "lost")]
    assert np.allclose(north.week["high"][lost["hour_of_week"].to_numpy(dtype=int)], lost["q95"])
    assert lost["mean"].sum() == pytest.approx(north.week["lost"].sum(), rel=0.2)


def test_the_band_of_all_zones_has_the_errors_that_they_share(plain_run, tmp_path):
    folder = shutil.copytree(plain_run.folder, tmp_path / "run")
    wider = pd.read_parquet(folder / "system.parquet")
    pd.DataFrame(wider.assign(rate_sd=3.0)).to_parquet(folder / "system.parquet")
    with open_run(folder, plain_run.panel, trust=True) as source:
        system = SystemSeries(source)
        for _, series in each_zone(source):
            system.add(series)
        bins = system.series().bins
        assert np.allclose(bins["high"] - bins["rate"], 3.0 * 1.6448536)
