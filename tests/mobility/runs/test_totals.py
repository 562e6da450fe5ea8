"""Totals against a plain count over all draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from toy_model import ToyModel, estimate_toy, toy_panel

from unmet.execution import serially
from unmet.mobility.clock.bins import HOURS_OF_WEEK
from unmet.mobility.clock.periods import hours_of
from unmet.mobility.runs import run_estimates
from unmet.mobility.runs.totals import QUANTILES, QUANTITIES, ZoneDraws, error_of_pickups, tabulate_totals


@pytest.fixture(scope="module")
def zones():
    rng = np.random.default_rng(5)
    size = (HOURS_OF_WEEK, 50)
    return [
        (
            name,
            ZoneDraws(rng.poisson(4.0, HOURS_OF_WEEK) + 9.0, rng.gamma(2.0, size=size), *rng.poisson(1.0, (2, *size))),
        )
        for name in "ab"
    ]


@pytest.fixture(scope="module")
def table(zones):
    return tabulate_totals(zones)


def expected(draws: np.ndarray) -> list[float]:
    return [draws.mean(), draws.std(ddof=1), *(np.quantile(draws, q) for q in QUANTILES.values())]


@pytest.mark.parametrize("level", ["system", "zone", "hour_of_week", "zone_hour_of_week"])
def test_every_total_is_that_of_the_summed_draws(zones, table, level):
    some = table[table["level"] == level]
    names = [("a", "b")] if level in ("system", "hour_of_week") else [("a",), ("b",)]
    hours = [range(HOURS_OF_WEEK)] if level in ("system", "zone") else [[hour] for hour in range(HOURS_OF_WEEK)]
    assert len(some) == len(QUANTITIES) * len(names) * len(hours)
    rows = iter(some.itertuples())
    for chosen in names:
        for few in hours:
            of = [draws for name, draws in zones if name in chosen]
            lost, on, came = (
                sum(getattr(draws, kind)[list(few)].sum(axis=0) for draws in of)
                for kind in ("lost", "walked_on", "walked_in")
            )
            seen = 0 * lost + sum(draws.observed[list(few)].sum() for draws in of)
            wanted = seen - came + on + lost
            values = (seen, lost, wanted, wanted, seen - came, on, came)
            for quantity, draws in zip(QUANTITIES, values, strict=True):
                row = next(rows)
                assert row.quantity == quantity
                np.testing.assert_allclose(row[7:], expected(draws), rtol=1e-12, atol=1e-12)
                assert row.zone == chosen[0] if level.startswith("zone") else row.zone != row.zone
                if level.endswith("hour_of_week"):
                    assert row.hour_of_week == few[0]


def test_parts_of_the_day_and_kinds_of_days_are_sums_of_hours(zones, table):
    some = table[table["level"] == "zone_part"]
    assert len(some) == 17 * len(QUANTITIES) * len(zones)
    for name, draws in zones:
        for days, part in ((None, "morning"), ("weekends", None), ("weekdays", "late")):
            rows = some[some["zone"] == name]
            rows = rows[rows["days"].isna() if days is None else rows["days"] == days]
            rows = rows[rows["part"].isna() if part is None else rows["part"] == part].set_index("quantity")
            lost = draws.lost[hours_of(days, part)].sum(axis=0)
            np.testing.assert_allclose(
                rows.loc["lost", ["mean", "q05", "q95"]].to_list(), [lost.mean(), *np.quantile(lost, [0.05, 0.95])]
            )


def test_every_row_is_widened_and_keeps_its_mean(zones, table):
    wider = tabulate_totals(zones, widening=(0.1, 1.5, 0.0))
    lost = (table["quantity"] == "lost").to_numpy()
    np.testing.assert_allclose(wider["mean"], table["mean"], rtol=1e-9)
    assert (wider["sd"] > table["sd"])[lost & (table["level"] == "zone").to_numpy()].all()


def test_pickups_that_are_expected_widen_demand_in_all_zones_alike(zones, table):
    """Served trips and rates are wrong together, so errors of demand are those of pickups times what was recorded."""
    error = error_of_pickups({"observed": 200.0, "cancelled": 80.0})
    assert error == pytest.approx(0.1)
    assert error_of_pickups({"observed": 0.0}) == 0.0
    wider = tabulate_totals(zones, widening=(0.0, 1.0, error)).set_index(["level", "quantity"])
    system, before = wider.loc["system"], table.set_index(["level", "quantity"]).loc["system"]
    np.testing.assert_allclose(system["mean"], before["mean"], rtol=1e-3)
    assert before.loc["observed", "sd"] == 0
    assert system.loc["observed", "sd"] == pytest.approx(error * before.loc["observed", "mean"], rel=0.05)
    of = dict(zip(QUANTITIES, zones[0][1].widened(pickups=error).quantities(error), strict=True))
    np.testing.assert_allclose(of["observed"], of["served"] + of["walked_in"])  # draw by draw
    np.testing.assert_allclose(of["wanted"], of["served"] + of["walked_on"] + of["lost"])
    expected = np.hypot(before.loc["demand", "sd"], error * before.loc["demand", "mean"])
    assert system.loc["demand", "sd"] == pytest.approx(expected, rel=0.2)


def test_the_systems_spread_is_not_the_sum_of_the_zones_spreads(table):
    sd = table[table["quantity"] == "lost"].set_index("level")["sd"]
    assert sd["system"] < 0.9 * sd["zone"].sum()


def test_no_zones_have_totals_of_nothing():
    table = tabulate_totals([])
    assert set(table["level"]) == {"system", "hour_of_week"}
    assert (table["mean"] == 0).all()


def test_hours_in_which_no_bin_starts_have_no_rows_and_change_no_total(zones, table):
    midnights = range(0, HOURS_OF_WEEK, 24)
    at_midnight = np.isin(np.arange(HOURS_OF_WEEK), midnights)
    daily = [
        (name, ZoneDraws(*(np.where(at_midnight, v.T, 0.0).T for v in vars(draws).values()))) for name, draws in zones
    ]
    few = tabulate_totals(daily, midnights)
    assert few["hour_of_week"].dropna().unique().tolist() == list(midnights)
    every = tabulate_totals(daily).query("level != 'zone_part'")
    kept = every[every["hour_of_week"].isna() | every["hour_of_week"].isin(midnights)].reset_index(drop=True)
    pd.testing.assert_frame_equal(few, kept)


def estimate_with_shared_errors(rows, model, shared=None):
    """Rates of three zones, two of which have errors in common."""
    estimate = estimate_toy(rows, model)
    zone = estimate.rows["zone"].iloc[0]
    columns = {"rate_mean": 10.0, "rate_sd": SPREADS[zone]}
    if zone in LOADINGS:
        columns |= {f"rate_shared_{k}": value for k, value in enumerate(LOADINGS[zone], start=1)}
    return replace(estimate, rows=estimate.rows.assign(**columns))


SPREADS = {"z0": 3.0, "z1": 2.0, "z2": 1.0}
LOADINGS = {"z0": (2.0, -1.0), "z1": (1.5, 0.5)}


def test_the_rate_of_the_whole_system_has_the_errors_that_zones_share(tmp_path):
    panel = toy_panel(zones=3)
    run_estimates(panel, ToyModel(), tmp_path, estimate=estimate_with_shared_errors, executor=serially, chunk=2)
    system = pd.read_parquet(tmp_path / "system.parquet")
    loadings = np.array([LOADINGS.get(zone, (0.0, 0.0)) for zone in SPREADS])
    own = np.square(list(SPREADS.values())) - np.square(loadings).sum(axis=1)
    covariance = loadings @ loadings.T + np.diag(own)
    assert np.allclose(np.sqrt(np.diag(covariance)), list(SPREADS.values()))
    assert np.allclose(system["rate_sd"], np.sqrt(covariance.sum()))
    assert np.allclose(system["rate_mean"], 30.0)
    assert sorted(system["start"]) == system["start"].tolist() == sorted(panel["start"].unique())
    assert np.allclose(system[["rate_shared_1", "rate_shared_2"]], loadings.sum(axis=0))
    demand = pd.read_parquet(tmp_path / "demand.parquet")
    assert not [name for name in demand.columns if "shared" in name]


def test_areas_are_sums_draw_by_draw_and_zones_that_are_left_out_count_nowhere():
    rng = np.random.default_rng(4)
    zones = [(name, ZoneDraws.by_itself(rng.random(168), rng.random((168, 50)))) for name in "abcd"]
    areas = {"a": "north", "b": "north", "c": "south"}
    table = tabulate_totals(zones, left_out={"b"}, areas=areas)
    drawn = {name: draws.lost.sum(axis=0) for name, draws in zones}

    def lost(level: str, name: str | None) -> pd.Series:
        rows = table[(table["level"] == level) & (table["quantity"] == "lost")]
        return rows[rows["zone"].isna() if name is None else rows["zone"] == name].iloc[0]

    for row, draws in (
        (lost("system", None), drawn["a"] + drawn["c"] + drawn["d"]),
        (lost("area", "north"), drawn["a"]),
        (lost("area", "south"), drawn["c"]),
        (lost("zone", "b"), drawn["b"]),
    ):
        assert row["mean"] == pytest.approx(draws.mean())
        assert row["q95"] == pytest.approx(np.quantile(draws, 0.95))
    assert set(table.loc[table["level"] == "area", "zone"]) == {"north", "south"}
    hour = table[(table["level"] == "area_hour_of_week") & (table["zone"] == "south") & (table["quantity"] == "lost")]
    assert hour["q95"].to_numpy() == pytest.approx(np.quantile(dict(zones)["c"].lost, 0.95, axis=1))
