"""Panels of two real systems: what is known of their closures, outages and trips must come out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unmet.mobility.panel import build_panel

pytestmark = [pytest.mark.data, pytest.mark.slow]
ZONE = "America/New_York"
STATES = ["available_minutes", "stockout_minutes", "closed_minutes", "unknown_minutes"]


@pytest.fixture(scope="module")
def jersey_city(data_dir):
    folder = data_dir / "citibike_jersey_city"
    return {
        "status": folder / "station_status_2020-05_2022-06.parquet",
        "stations": folder / "stations.csv",
        "trips": folder / "trips_2015-09_2021-04.parquet",
    }


@pytest.fixture(scope="module")
def overlap(jersey_city):
    """Station-days of November 2020 to April 2021: inferred from status alone, and with the trips given."""
    options = {"timezone": ZONE, "every": "1d", "start": "2020-11-01", "end": "2021-05-01"}
    status, stations = jersey_city["status"], jersey_city["stations"]
    inferred = build_panel(status=status, stations=stations, **options)
    return inferred, build_panel(jersey_city["trips"], status, stations, **options)


@pytest.fixture(scope="module")
def east_village(data_dir):
    folder = data_dir / "citibike_east_village"
    return {"status": folder / "station_status_2020-05_2022-06.parquet", "stations": folder / "stations.csv"}


def by_day(panel: pd.DataFrame, day: str) -> pd.Series:
    return panel[panel["start_local"] == day].drop(columns=["zone", "evidence"]).sum(numeric_only=True)


@pytest.mark.parametrize(
    ("by", "correlation"), [(["zone", "start_local"], 0.96), (["zone"], 0.99), (["start_local"], 0.98)]
)
def test_inferred_pickups_follow_the_true_trips(overlap, by, correlation):
    """Of each station and day, of each station over all days, of the whole system on each day."""
    inferred, true = (p.panel.set_index(["zone", "start_local"])["observed"] for p in overlap)
    both = pd.DataFrame({"inferred": inferred, "true": true}).dropna().groupby(by).sum()
    assert np.corrcoef(both["inferred"], both["true"])[0, 1] >= correlation
    ridden = both[both["true"] > 0]
    assert 0.93 <= (ridden["inferred"] / ridden["true"]).median() <= 1.0
    assert 0.93 <= both["inferred"].sum() / both["true"].sum() <= 1.0


def test_with_trips_given_observed_are_the_trips(overlap, jersey_city):
    stations = pd.read_csv(jersey_city["stations"], dtype=str)
    canonical = {row[c]: row["station_id"] for _, row in stations.iterrows() for c in ("legacy_id", "short_name")}
    trips = pd.read_parquet(jersey_city["trips"], columns=["started_at", "ended_at", "start_station_id"])
    trips = trips[(trips["started_at"] >= "2020-11-01") & (trips["ended_at"] >= trips["started_at"])]
    keys = [trips["start_station_id"].map(canonical), trips["started_at"].dt.normalize()]
    expected = trips.groupby(keys).size()
    found = overlap[1].panel.set_index(["zone", "start_local"])["observed"]
    compared = pd.DataFrame({"expected": expected.rename_axis(found.index.names), "found": found}).fillna(0)
    # The reader rejects a few staff and impossible trips, and counts them.
    rejected = len(trips) - overlap[1].summary["trips_used"]
    assert 0 <= rejected < 100
    assert (compared["expected"] - compared["found"]).abs().sum() == rejected


@pytest.mark.parametrize(("day", "trips"), [("2020-12-17", 3), ("2021-02-01", 2)])
def test_a_closure_for_snow_makes_no_pickups(overlap, day, trips):
    inferred, true = (by_day(p.panel, day) for p in overlap)
    assert true["observed"] == trips
    assert abs(inferred["observed"] - trips) <= 40
    assert inferred["rebalanced_out"] <= 40


@pytest.mark.parametrize("day", ["2020-12-17", "2021-02-02"])
def test_a_closure_for_snow_is_closed_and_no_stockout(overlap, day):
    for made in overlap:
        totals = by_day(made.panel, day)
        assert totals["closed_minutes"] >= 0.99 * (totals["minutes"] - totals["unknown_minutes"])
        assert totals["closed_minutes"] >= 0.9 * totals["minutes"]
        assert totals["stockout_minutes"] == 0


def test_the_outage_of_the_collector_is_unknown_and_quiet_nights_are_not(jersey_city):
    made = build_panel(
        status=jersey_city["status"],
        stations=jersey_city["stations"],
        timezone=ZONE,
        start="2020-06-20",
        end="2021-02-01",
    )
    hours = made.panel.groupby("start_local")[[*STATES, "minutes"]].sum()
    outage = hours["2020-06-24 03:00":"2020-06-25 01:00"]
    assert (outage["unknown_minutes"] == outage["minutes"]).all()
    # The collector was back for an hour or two the evening before, and heard next to nothing at first.
    evening = hours["2020-06-23 16:00":"2020-06-23 20:00"]
    assert (evening["unknown_minutes"] == evening["minutes"]).all()
    # Deep in winter, when the whole system says nothing for an hour or two: nights are as well known as noon is.
    there = made.panel[
        made.panel["zone"].isin(
            made.panel[made.panel["start_local"] < "2020-07-01"].query("available_minutes > 0")["zone"]
        )
    ]
    winter = there[there["start_local"] >= "2020-12-21"]
    unknown = winter.groupby(winter["start_local"].dt.hour)[["unknown_minutes", "minutes"]].sum()
    share = unknown["unknown_minutes"] / unknown["minutes"]
    assert share[2:5].max() <= share[11:14].max() + 0.005
    assert share[2:5].max() <= 0.01
    small = winter.groupby("zone")["observed"].sum().nsmallest(5).index
    quiet = winter[winter["zone"].isin(small) & winter["start_local"].dt.hour.between(1, 4)]
    assert quiet["unknown_minutes"].sum() <= 0.02 * quiet["minutes"].sum()


def test_quiet_nights_are_known_in_three_days_of_records_too(jersey_city):
    days = pd.read_parquet(jersey_city["status"])
    days["at"] = pd.to_datetime(days["last_reported"], unit="s", utc=True).dt.tz_convert(ZONE).dt.tz_localize(None)
    for first in ("2021-01-04", "2021-01-10", "2021-01-13"):
        begin = pd.Timestamp(first)
        some = days[(days["at"] >= begin) & (days["at"] < begin + pd.Timedelta(days=3))].drop(columns="at")
        made = build_panel(status=some, stations=jersey_city["stations"], timezone=ZONE)
        assert made.summary["feed_outages"] == 0
        assert "feed_silent" not in made.summary["reasons"]


def test_a_fifth_of_the_station_days_of_the_east_village_has_a_stockout(east_village):
    made = build_panel(**east_village, timezone=ZONE, every="1d", supply="listed")
    open_ = made.panel[made.panel["available_minutes"] + made.panel["stockout_minutes"] > 0]
    assert open_["censored"].mean() == pytest.approx(0.197, abs=0.01)
    curfew = by_day(
        build_panel(**east_village, timezone=ZONE, start="2020-06-05 22:00", end="2020-06-06 04:00").panel,
        "2020-06-05 23:00",
    )
    assert curfew["closed_minutes"] >= 0.95 * (curfew["minutes"] - curfew["unknown_minutes"])


def test_a_hub_of_the_east_village_is_out_only_when_all_its_open_stations_are(east_village):
    options = {**east_village, "timezone": ZONE, "every": "5min", "start": "2021-08-01", "end": "2021-08-08"}
    hubs = build_panel(**options, zones="superhubs:200m")
    single = build_panel(**options).panel.set_index(["zone", "start"])
    assert hubs.zones["stations"].map(len).max() >= 2
    many = hubs.zones[hubs.zones["stations"].map(len) > 1]
    rows = hubs.panel.set_index(["zone", "start"])
    for zone, members in zip(many["zone"], many["stations"], strict=True):
        of_hub = rows.loc[zone]
        of_each = [single.loc[s] for s in members]
        least = pd.concat(
            [s["stockout_minutes"] + s["closed_minutes"] + s["unknown_minutes"] for s in of_each], axis=1
        ).min(axis=1)
        most = pd.concat([s["available_minutes"] for s in of_each], axis=1).max(axis=1)
        assert (of_hub["stockout_minutes"] <= least).all()
        assert (of_hub["available_minutes"] >= most).all()
        assert of_hub["observed"].sum() == sum(s["observed"].sum() for s in of_each)


@pytest.mark.parametrize("zones", ["stations", "superhubs:200m"])
def test_the_panel_does_not_depend_on_the_groups_it_is_built_by(jersey_city, east_village, zones):
    """Jersey City with trips, and the hubs of the East Village by status alone."""
    given = jersey_city if zones == "stations" else east_village
    options = {"timezone": ZONE, "zones": zones, "start": "2020-11-01", "end": "2021-01-01"}
    whole = build_panel(**given, **options)
    for groups in (3, len(whole.zones)):
        cut = build_panel(**given, **options, groups=groups)
        for name in ("panel", "zones", "quality", "reasons", "unusable"):
            pd.testing.assert_frame_equal(getattr(whole, name), getattr(cut, name), check_exact=True)
        assert whole.summary == cut.summary


@pytest.mark.parametrize("minutes", [10, 60])
def test_rare_looks_without_trips_lose_what_the_log_with_trips_loses(jersey_city, minutes):
    """Lost trips at the usual rates; if every listed vehicle could be rented there were fewer still."""
    period = pd.Timestamp("2020-11-02", tz=ZONE), pd.Timestamp("2020-12-14", tz=ZONE)
    status = pd.read_parquet(jersey_city["status"]).sort_values("last_reported")
    first, last = (int(day.timestamp()) for day in period)
    status = status[status["last_reported"].between(first - 86_400, last)]
    looks = pd.DataFrame({"at": np.arange(first, last, 60 * minutes, dtype=np.int32)})
    polled = pd.concat(
        pd.merge_asof(looks, station, left_on="at", right_on="last_reported").dropna()
        for _, station in status.groupby("station_ix")
    )
    polled = polled.drop(columns="last_reported").rename(columns={"at": "last_reported"}).astype(status.dtypes)
    options = {"timezone": ZONE, "every": "1h", "start": "2020-11-03", "end": "2020-12-13"}
    stations = jersey_city["stations"]
    whole = build_panel(jersey_city["trips"], status, stations, **options).panel.set_index(["zone", "start"])
    rare = build_panel(None, polled, stations, **options).panel.set_index(["zone", "start"]).reindex(whole.index)
    hour = [whole.index.get_level_values("zone"), whole["start_local"].dt.hour]
    rate = (whole["observed"].groupby(hour).transform("sum") + 0.1) / (
        whole["exposure"].groupby(hour).transform("sum") + 0.1
    )
    lost = (rate * whole["out_minutes"]).sum()
    found = (rate * rare["out_minutes"]).sum()
    assert found == pytest.approx(lost, rel=0.15)
    assert (rate * rare["stockout_minutes"]).sum() < 0.97 * found
