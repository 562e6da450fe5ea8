"""Scenarios of rates, and levels, from tables that are known."""

from __future__ import annotations

from datetime import timedelta

import duckdb
import numpy as np
import pandas as pd
import pytest

from unmet import InputError
from unmet._storage.sql import fetch_frame
from unmet.mobility.planning import choose_period, levels_from_panel, levels_from_status, rates, scenario_rates

HOURS = 28 * 24
ZONES = ("a", "b")


def tables(spread: float = 0.0, together: float | None = None):
    """Two zones whose usual rate is their own times that of the hour; on every seventh day all is doubled."""
    starts = pd.date_range("2024-01-01", periods=HOURS, freq="h", tz="UTC")
    hour = np.arange(HOURS) % 24
    shock = np.where(np.arange(HOURS) // 24 % 7 == 3, 2.0, 1.0)
    frames = []
    for level, zone in zip((1.0, 3.0), ZONES, strict=True):
        usual = level * (1.0 + (hour > 11))
        frames.append(pd.DataFrame({
            "zone": zone, "start": starts, "start_local": starts.tz_localize(None), "minutes": 60,
            "usual_rate": usual, "rate_mean": usual * shock, "rate_sd": spread * usual,
            "returns": 4.0 - level, "supply_mean": level + 0.25 * (hour == 23),
        }))  # fmt: skip
    rows = pd.concat(frames, ignore_index=True)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("demand", rows[["zone", "start", "usual_rate", "rate_mean", "rate_sd"]])
    connection.register("panel", rows[["zone", "start", "start_local", "minutes", "returns", "supply_mean"]])
    bins = pd.DataFrame({"start": starts, "start_local": starts.tz_localize(None), "minutes": 60, "future": False})
    zones = pd.DataFrame({"zone": ZONES, "status": "ok", "stations": [["a1", "a2"], ["b1"]]})
    connection.register("zone_numbers", zones[["zone"]].assign(number=np.arange(2)))
    connection.register("bin_numbers", bins[["start", "start_local", "minutes"]].assign(number=np.arange(HOURS)))
    sum_sd = 4.0 * (1.0 + (hour > 11)) * spread if together is None else together * (1.0 + (hour > 11))
    system = pd.DataFrame({"rate_sd": sum_sd}, index=starts)
    return connection, zones, system, bins


def test_without_errors_rates_are_the_usual_ones_times_the_shocks_of_recent_days():
    connection, zones, system, bins = tables()
    period = choose_period(bins)
    found = scenario_rates(connection, zones, system, bins, period, scenarios=400)
    assert found.rentals.shape == (2, 400, 24)
    ratio = found.rentals[:, :, 0] / np.array([[1.0], [3.0]])
    assert set(np.unique(ratio.round(9))) == {1.0, 2.0}
    np.testing.assert_allclose(ratio[0], ratio[1])  # a scenario is one day for all zones
    assert ratio.mean() == pytest.approx(8 / 7, abs=0.06)


def test_nobody_comes_in_hours_in_which_the_system_was_always_closed():
    """Their rates were never seen: those of a system with opening hours were a multiple of the true ones."""
    connection, zones, system, bins = tables()
    panel = fetch_frame(connection, "FROM panel")
    hour, day = panel["start_local"].dt.hour, panel["start_local"].dt.day
    closed = np.select([hour < 5, hour == 5, hour == 6], [60, 30, np.where(day == 9, 0, 60)], 0)
    closed = np.where(panel["zone"] == "b", 60, closed)  # a station that is closed for long is no closed system
    panel = panel.assign(closed_minutes=closed, unknown_minutes=0)
    usual = scenario_rates(connection, zones, system, bins, choose_period(bins, "tuesday"), scenarios=40)
    connection.register("panel", panel)
    found = scenario_rates(connection, zones, system, bins, choose_period(bins, "tuesday"), scenarios=40)
    assert not found.rentals[:, :, :5].any()
    assert not found.returns[:, :, :5].any()
    np.testing.assert_allclose(found.rentals[:, :, 5], usual.rentals[:, :, 5] / 2)
    np.testing.assert_allclose(found.rentals[:, :, 6:], usual.rentals[:, :, 6:])


def test_as_many_vehicles_come_back_as_leave_in_every_scenario():
    connection, zones, system, bins = tables(spread=0.2)
    found = scenario_rates(connection, zones, system, bins, choose_period(bins), scenarios=50)
    np.testing.assert_allclose(found.returns.sum(axis=(0, 2)), found.rentals.sum(axis=(0, 2)))
    shares = found.returns.mean(axis=(1, 2))
    assert shares[0] / shares[1] == pytest.approx(3.0, rel=0.1)  # three returns an hour against one


@pytest.mark.parametrize(("together", "correlation"), [(4.0, 1.0), (np.sqrt(10.0), 0.0)])
def test_errors_of_zones_are_as_alike_as_the_band_of_all_zones_implies(together, correlation):
    spread = 0.2
    connection, zones, system, bins = tables(spread, spread * together)
    found = scenario_rates(connection, zones, system, bins, choose_period(bins, "wednesday"), scenarios=2000)
    # Without the shocks, which all zones share: the ratio to the first zone's usual rate has only two values of those.
    logs = np.log(found.rentals[:, :, 0])
    apart = logs[0] - logs[1]
    log_sd = np.sqrt(np.log1p(spread**2))
    assert apart.std() == pytest.approx(np.sqrt(2 * (1 - correlation)) * log_sd, abs=0.02)


@pytest.mark.parametrize("shocks", [0.0, 0.09])
def test_the_shocks_of_a_forecast_hit_all_zones_together_and_its_errors_do_not_have_them_twice(shocks):
    """The error of a forecast contains the shocks to come: its variance is the same, drawn for all zones at once."""
    of_errors = 0.04
    spread = np.sqrt(np.expm1(shocks + of_errors))
    connection, zones, system, bins = tables(spread, spread * np.sqrt(10.0))  # errors of zones are independent
    bins.loc[HOURS - 24 :, "future"] = True
    period = choose_period(bins)
    assert period.forecast
    found = scenario_rates(connection, zones, system, bins, period, scenarios=4000, shock_variance=shocks)
    logs = np.log(found.rentals[:, :, 0])
    assert (logs[0] - logs[1]).var() == pytest.approx(2 * of_errors, rel=0.1)
    assert logs.var(axis=1).tolist() == pytest.approx([shocks + of_errors] * 2, rel=0.1)
    assert found.rentals[:, :, 0].mean(axis=1).tolist() == pytest.approx([1.0, 3.0], rel=0.03)


def test_estimated_returns_are_used_if_there_are_any():
    connection, zones, system, bins = tables()
    connection.execute("CREATE VIEW returned AS SELECT * REPLACE (5.0 AS usual_rate, 5.0 AS rate_mean) FROM demand")
    found = scenario_rates(connection, zones, system, bins, choose_period(bins), scenarios=20, returned="returned")
    np.testing.assert_allclose(found.returns[0], found.returns[1])


def test_zones_without_estimates_are_left_out():
    connection, zones, system, bins = tables()
    found = scenario_rates(
        connection, zones.assign(status=["failed", "ok"]), system, bins, choose_period(bins), scenarios=20
    )
    assert found.number.tolist() == [1]
    with pytest.raises(InputError, match="nothing to plan"):
        scenario_rates(connection, zones.assign(status="failed"), system, bins, choose_period(bins), scenarios=20)


def test_the_level_is_that_at_the_end_of_the_records_or_the_usual_one():
    connection, zones, _, bins = tables()
    tomorrow = levels_from_panel(connection, zones, bins, choose_period(bins))
    assert tomorrow.level.tolist() == [1.0, 3.0]
    assert "end of the records" in tomorrow.source
    usual = levels_from_panel(connection, zones, bins, choose_period(bins, "friday", "23:00", 1))
    assert usual.level.tolist() == [1.0, 3.0]
    assert "usual" in usual.source


def test_a_later_day_of_the_forecast_begins_with_the_usual_level():
    """Vans come in between: the level at the end of the records is that of days before."""
    connection, zones, _, bins = tables()
    three_days = bins.assign(future=np.arange(len(bins)) >= len(bins) - 72)
    first = three_days[three_days["future"]]["start_local"].iloc[0]
    levels = [
        levels_from_panel(connection, zones, three_days, choose_period(three_days, str(first.date() + timedelta(days))))
        for days in range(3)
    ]
    assert ["usual" in found.source for found in levels] == [False, True, True]
    assert levels[1].level.tolist() == [1.0, 3.0]


def test_listed_vehicles_that_nobody_can_rent_are_no_part_of_the_level():
    connection, zones, _, bins = tables()
    unusable = pd.DataFrame({"zone": [zones["zone"][1], zones["zone"][1], "elsewhere"], "unusable": [1.2, 0.9, 5.0]})
    tomorrow = levels_from_panel(connection, zones, bins, choose_period(bins), unusable)
    assert tomorrow.level.tolist() == [1.0, 1.0]
    assert tomorrow.broken.tolist() == [0, 2]
    assert "without 2 listed vehicles" in tomorrow.source
    many = unusable.assign(zone=zones["zone"][0], unusable=9.0)
    assert levels_from_panel(connection, zones, bins, choose_period(bins), many).level.tolist() == [0.0, 3.0]
    # They were there at the end of the records, not on a usual day.
    usual = levels_from_panel(connection, zones, bins, choose_period(bins, "friday", "23:00", 1), unusable)
    assert usual.level.tolist() == [1.0, 3.0]
    assert not usual.broken.any()


def test_the_last_record_of_each_station_counts():
    _, zones, _, _ = tables()
    status = pd.DataFrame(
        {
            "station_id": ["a1", "a1", "a2", "b1", "z9"],
            "last_reported": pd.to_datetime(
                ["2024-01-29 08:00", "2024-01-29 09:00", "2024-01-29 08:30", "2024-01-29 07:00", "2024-01-29 07:00"]
            ),
            "num_bikes_available": [9, 2, 3, 4, 7],
            "num_bikes_disabled": [0, 1, 0, 0, 0],
        }
    )
    found = levels_from_status(zones, status, None, "UTC")
    assert found.level.tolist() == [5.0, 4.0]
    assert found.broken.tolist() == [1, 0]
    assert found.source.endswith("without 1 station that is not in this run (z9)")
    moment = found.source.split("status of ")[1][:10]
    for days, words in ((1, ""), (30, ", 30 days before the day of the plan"), (-3, ", 3 days after the day")):
        day = pd.Timestamp(moment) + timedelta(days)
        source = levels_from_status(zones, status, None, "UTC", day).source
        assert words in source
        assert ("days" in source) == bool(words)
    with pytest.raises(InputError, match="none of its stations"):
        levels_from_status(zones, status[status["station_id"] == "z9"], None, "UTC")
    closed = status.assign(is_installed=[True, False, True, True, True])
    found = levels_from_status(zones, closed, None, "UTC")
    assert found.level.tolist() == [3.0, 4.0]
    assert "without 1 station that is not installed" in found.source
    with pytest.raises(InputError, match="none of its 4 stations is installed"):
        levels_from_status(zones, status.assign(is_installed=False), None, "UTC")


@pytest.mark.parametrize("together", [True, False])
def test_returns_share_the_error_of_their_zone_if_both_sides_were_busy_on_the_same_days(together):
    """Eight zones, each with a factor of the day for rentals, and the same or another one for returns."""
    rng, zones, days = np.random.default_rng(5), [f"z{i}" for i in range(8)], 28
    starts = pd.date_range("2024-01-01", periods=24 * days, freq="h", tz="UTC")
    frames = []
    for zone in zones:
        rent = np.repeat(rng.gamma(4.0, 0.25, days), 24)
        back = rent if together else np.repeat(rng.gamma(4.0, 0.25, days), 24)
        frames.append(pd.DataFrame({
            "zone": zone, "start": starts, "start_local": starts.tz_localize(None), "minutes": 60, "exposure": 1.0,
            "observed": rng.poisson(3.0 * rent), "usual_rate": 3.0, "rate_mean": 3.0, "rate_sd": 1.5,
            "returns": rng.poisson(3.0 * back),
        }))  # fmt: skip
    rows = pd.concat(frames, ignore_index=True)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    columns = ["zone", "start", "observed", "exposure", "usual_rate", "rate_mean", "rate_sd"]
    connection.register("demand", rows[columns])
    connection.register("panel", rows[["zone", "start", "start_local", "minutes", "returns"]])
    bins = pd.DataFrame({"start": starts, "start_local": starts.tz_localize(None), "minutes": 60, "future": False})
    named = pd.DataFrame({"zone": zones, "status": "ok"})
    connection.register("zone_numbers", named[["zone"]].assign(number=np.arange(8)))
    connection.register("bin_numbers", bins[["start", "start_local", "minutes"]].assign(number=np.arange(len(bins))))
    system = pd.DataFrame({"rate_sd": 1.5 * np.sqrt(8.0)}, index=starts)
    found = scenario_rates(connection, named, system, bins, choose_period(bins), scenarios=400)
    shares = [rates.sum(axis=2) / rates.sum(axis=(0, 2)) for rates in (found.rentals, found.returns)]
    rentals, returns = (share / share.mean(axis=1, keepdims=True) for share in shares)
    correlation = np.corrcoef(rentals.ravel(), returns.ravel())[0, 1]
    assert correlation == pytest.approx(1.0 if together else 0.0, abs=0.12)


def test_days_on_which_nobody_is_expected_do_not_make_returns_unknown():
    """`weekly-mean` expects nobody at all in hours without a pickup; a day of such hours made the correlation NaN."""
    with duckdb.connect() as connection:
        connection.execute("""CREATE TABLE bin_numbers AS SELECT TIMESTAMP '2024-03-04' + to_hours(i::INT) AS start,
            TIMESTAMP '2024-03-04' + to_hours(i::INT) AS start_local FROM range(240) t(i)""")
        connection.execute("""CREATE TABLE panel AS SELECT zone, b.*, 1 + (hour(start) + day(start)) % 3 AS returns
            FROM bin_numbers b, (VALUES ('a'), ('b')) z(zone)""")
        rate = "CASE WHEN day(start) = 5 THEN 0.0 ELSE 2.0 END"
        connection.execute(f"""CREATE TABLE demand AS SELECT zone, start, 1.0 AS exposure, {rate} AS rate_mean,
            CASE WHEN day(start) = 5 THEN 0 ELSE (hour(start) + 2 * day(start)) % 5 END AS observed FROM panel""")
        found = rates._busyness(connection, None)
        connection.execute("DELETE FROM demand WHERE day(start) = 5")
        assert found == rates._busyness(connection, None)
