"""Feeds at any cadence, and feeds with stations that say what is not so: made by the simulator, held against its truth.

Lost trips are counted at the true rates, so that only the panel is judged.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unmet.mobility.models.zone_data import zone_data
from unmet.mobility.panel import Panel, build_panel
from unmet.simulate import City, simulate_city

ZONE = "America/New_York"
SIZE: dict[str, Any] = {"stations": 12, "days": 28, "seed": 32}


@functools.cache
def city(**options: Any) -> City:
    return simulate_city(**SIZE, **options)


def panel_of_city(one: City, *, trips: bool = True, **options: Any) -> Panel:
    given = {"timezone": ZONE, "supply": "listed", **options}
    return build_panel(one.trips if trips else None, one.status, one.stations, **given)


def lost(one: City, panel: Panel) -> tuple[float, float]:
    """Lost trips by the panel and by the truth, of zones that are in the totals and time that is known."""
    truth = one.true_rate.rename(columns={"station_id": "zone", "stockout": "truly_out"})
    rows = panel.panel.merge(truth[["zone", "start", "rate", "truly_out"]], on=["zone", "start"])
    rows = rows[~rows["zone"].isin(panel.summary["left_out"])]
    known = 1 - rows["unknown_minutes"] / rows["minutes"]
    true = float((rows["rate"] * rows["truly_out"] * known).sum())
    return float((rows["rate"] * rows["out_minutes"] / 60).sum()), true


def unknown_share(panel: Panel) -> float:
    minutes = panel.summary["minutes"]
    return minutes["unknown"] / sum(minutes.values())


def outage_share(one: City) -> float:
    gaps = one.events[one.events["kind"] == "feed gap"]
    return float((gaps["end"] - gaps["start"]).dt.total_seconds().sum()) / (SIZE["days"] * 86_400)


@pytest.mark.parametrize("polls", ["3", "10", "60", "log:60", "log,60"])
def test_lost_trips_do_not_depend_on_how_often_the_feed_is_looked_at(polls):
    one = city(polls=polls, feed_gaps=1)
    # Between rare looks, trips show when the last vehicle was taken.
    panel = panel_of_city(one, supply="usable" if "60" in polls else "listed")
    found, true = lost(one, panel)
    assert found == pytest.approx(true, rel=0.05)
    assert outage_share(one) - 0.005 <= unknown_share(panel) <= outage_share(one) + 0.02
    assert panel.summary["cadence"][0]["minutes"] == pytest.approx(float(polls.split(":")[-1].split(",")[-1]), rel=0.1)


def test_the_stations_of_one_look_may_be_recorded_minutes_apart():
    one = city(polls="60")
    status = one.status.copy()
    status["last_reported"] += 20 * status["station_ix"].to_numpy()  # a look takes four minutes
    panel = build_panel(one.trips, status, one.stations, timezone=ZONE, supply="listed")
    assert panel.summary["status"] == "polled snapshots"
    assert panel.summary["feed_outages"] == 0
    assert unknown_share(panel) < 0.01


def test_pickups_of_hourly_looks_are_in_the_hour_in_which_they_happened():
    one = city(polls="60")
    inferred, true = (panel_of_city(one, trips=t).panel.groupby("start")["observed"].sum() for t in (False, True))
    at_once, an_hour_later = (np.corrcoef(inferred[2:-2], true.shift(s)[2:-2])[0, 1] for s in (0, 1))
    assert at_once > an_hour_later + 0.02
    remarks = " ".join(panel_of_city(one, trips=False).summary["remarks"])
    assert "60 minutes apart" in remarks
    assert "give trips" in remarks


@pytest.mark.parametrize("supply", ["usable", "listed"])
def test_a_feed_that_was_looked_at_once_has_one_minute(supply):
    """Warnings are errors here: there is no time between looks, and nothing is computed with it."""
    status = pd.DataFrame(
        {
            "station_id": ["a", "b", "c"],
            "last_reported": pd.Timestamp("2024-03-04 12:00:30", tz="UTC"),
            "num_bikes_available": [5, 0, 3],
        }
    )
    panel = build_panel(status=pd.concat([status, status]), timezone=ZONE, supply=supply).panel
    assert panel["observed"].tolist() == [0.0, 0.0, 0.0]
    assert panel["out_minutes"].max() <= 1


def test_trips_that_begin_some_hours_after_the_feed_are_not_called_missing():
    one = city(polls="10")
    late = one.trips[one.trips["started_at"] >= one.trips["started_at"].min() + pd.Timedelta(hours=6)]
    made = build_panel(late, one.status, one.stations, timezone=ZONE, supply="listed")
    assert made.summary["pickups_from"] == "trips and status"
    assert not made.summary["misses_pickups"]
    assert made.summary["remarks"] == []


TROUBLES = {
    "valet": {"valet_stations": 1},
    "stuck terminal": {"stuck_terminals": 1},
    "quiet closure": {"quiet_closures": 1},
    "slow evenings": {"evening_polls": 45.0},
    "re-opening": {"closures": 1, "reopening_hours": 24.0},
}
NAMED = {
    "valet": "of its trips start while the feed shows no vehicle",
    "stuck terminal": "of its trips start while the feed shows no vehicle",
    "quiet closure": "closed without saying so",
    "slow evenings": "45 minutes apart on some days in these hours: 18, 19, 20, 21, 22, 23",
    "re-opening": "not yet open again",
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_troubles_of_stations_and_feed_are_named_and_do_not_become_lost_trips(trouble):
    one = city(polls="5", **TROUBLES[trouble])
    panel = panel_of_city(one)
    found, true = lost(one, panel)
    assert found == pytest.approx(true, rel=0.05)
    (remark,) = [remark for remark in panel.summary["remarks"] if NAMED[trouble] in remark]
    victims = one.events["station_id"].dropna().unique()
    if trouble in ("valet", "stuck terminal"):
        assert panel.summary["left_out"] == list(victims)
        assert "implausible records" in set(panel.quality["reason"])
    if trouble in ("valet", "stuck terminal", "quiet closure"):
        assert victims[0] in remark
    plain = panel_of_city(city(polls="5"))
    assert plain.summary["remarks"] == []
    assert lost(city(polls="5"), plain)[0] == pytest.approx(lost(city(polls="5"), plain)[1], rel=0.05)


def test_somebody_who_knows_better_keeps_a_station():
    one = city(polls="5", valet_stations=1)
    victim = one.events["station_id"].iloc[0]
    kept = panel_of_city(one, keep=victim)
    assert kept.summary["left_out"] == []
    assert kept.panel.loc[kept.panel["zone"] == victim, "stockout_minutes"].sum() > 0
    with pytest.raises(ValueError, match="no zone is 'nobody'"):
        panel_of_city(one, keep="nobody")


def test_a_zone_rests_on_its_other_stations_if_one_is_not_believed():
    one = city(polls="5", valet_stations=1)
    victim = one.events["station_id"].iloc[0]
    # Two hubs; the one of the valet has a busy plausible neighbour.
    hub = np.where(one.stations["station_id"] == victim, "A", np.where(np.arange(12) % 2, "A", "B"))
    corner = {"A": (40.70, -74.00), "B": (40.75, -74.05)}
    lat, lon = (np.array([corner[h][i] for h in hub]) + 1e-4 * np.arange(12) for i in range(2))
    stations = one.stations.assign(lat=lat, lon=lon)
    panel = build_panel(one.trips, one.status, stations, timezone=ZONE, supply="listed", zones="superhubs:300m")
    assert len(panel.zones) == 2
    assert panel.summary["left_out"] == []
    (remark,) = panel.summary["remarks"]
    assert f"({victim}): 52% of its trips" in remark
    assert "rests on its other stations" in remark
    (row,) = panel.summary["implausible"]
    assert not row["left_out"]


@pytest.mark.parametrize("minutes", [45.0, 120.0])
def test_a_collector_that_slows_down_takes_exposure_and_pickups_with_it(minutes):
    one = city(polls="5", evening_polls=minutes)
    rows = panel_of_city(one, trips=False).panel
    hour = rows["start_local"].dt.hour
    evening = rows[hour.between(19, 22)]
    assert evening["observed"].isna().mean() > 0.95
    assert evening["exposure"].mean() < 0.03
    # Hours with pickups have the pace of the same hours without the trouble.
    plain = panel_of_city(city(polls="5"), trips=False).panel
    for h in (16, 17, 18):
        with_, without = (
            f.loc[(f["start_local"].dt.hour == h) & f["observed"].notna(), ["observed", "exposure"]].sum()
            for f in (rows, plain)
        )
        if with_["exposure"] > 20:
            pace = with_["observed"] / with_["exposure"]
            assert pace == pytest.approx(without["observed"] / without["exposure"], rel=0.1)


def test_a_gap_at_the_same_hour_of_every_day_is_unknown_and_not_without_pickups():
    """A log of changes that is not written from 18:00 to 19:30: without trips the hour is unknown, never zero."""
    one = city(polls="log")
    local = pd.to_datetime(one.status["last_reported"], unit="s", utc=True).dt.tz_convert(ZONE)
    minute = local.dt.hour * 60 + local.dt.minute
    status = one.status[~minute.between(18 * 60, 19 * 60 + 29)]
    rows = build_panel(None, status, one.stations, timezone=ZONE, supply="listed").panel
    evening = rows[rows["start_local"].dt.hour == 18]
    assert evening["observed"].isna().mean() > 0.85
    assert evening["exposure"].mean() < 0.12


def test_trips_of_a_gap_at_the_same_hour_of_every_day_tell_its_demand():
    """With trips, the hours of the gap are taken to be as available as others."""
    one = city(polls="5")
    local = pd.to_datetime(one.status["last_reported"], unit="s", utc=True).dt.tz_convert(ZONE)
    status = one.status[local.dt.hour != 18]
    panel = build_panel(one.trips, status, one.stations, timezone=ZONE, supply="listed").panel
    zone = panel["zone"].iloc[0]
    data = zone_data(panel[panel["zone"] == zone])
    evening = data.local.hour == 18
    assert not data.hidden[evening].any()
    assert data.exposure[evening].mean() == pytest.approx(data.exposure[~evening].mean(), abs=0.05)
    outage = panel.copy()
    states = [f"{state}_minutes" for state in ("available", "stockout", "closed", "out", "unknown")]
    outage.loc[outage["start_local"].dt.day == 9, states] = [0, 0, 0, 0, 60]
    once = zone_data(outage[outage["zone"] == zone])
    assert once.hidden[(once.local.day == 9) & (once.local.hour != 18)].all()  # a day teaches nothing
    assert (once.exposure[once.hidden] == 0).all()


def test_trips_of_a_silent_feed_are_no_trips_of_an_empty_station():
    one = city(polls="5", fleet_share=0.2)
    at = pd.to_datetime(one.status["last_reported"], unit="s", utc=True).dt.tz_convert(ZONE)
    empty = one.status["num_bikes_available"] == 0
    begin = at[empty & (at.dt.day > 9)].min()
    station = one.status.loc[empty & (at == begin), "station_ix"].iloc[0]
    status = one.status[~((at > begin) & (at < begin + pd.Timedelta(days=3)))]
    panel = panel_of_city(replace(one, status=status))
    name = one.stations.set_index("station_ix").loc[station, "station_id"]
    gone = panel.panel[(panel.panel["zone"] == name) & (panel.panel["unknown_minutes"] == 60)]
    assert gone["observed"].sum() >= 20
    assert panel.summary["implausible"] == []
    assert panel.summary["minutes"]["closed"] == 0  # nobody saw that nothing was brought for days
    assert panel.summary["feed_outages"] == 1


@pytest.mark.parametrize("polls", ["5", "log"])
def test_trips_of_a_station_that_fell_silent_are_none_of_an_empty_one(polls):
    one = city(polls=polls, fleet_share=0.2)
    at = pd.to_datetime(one.status["last_reported"], unit="s", utc=True).dt.tz_convert(ZONE)
    own = one.status["station_ix"] == 9
    begin = at[own & (one.status["num_bikes_available"] == 0) & (at.dt.day > 9)].min()
    status = one.status[~(own & (at > begin) & (at < begin + pd.Timedelta(days=4)))]
    panel = panel_of_city(replace(one, status=status))
    rows = panel.panel[panel.panel["zone"] == one.stations.set_index("station_ix").loc[9, "station_id"]]
    assert rows.loc[rows["unknown_minutes"] == 60, "observed"].sum() >= 50
    assert panel.summary["implausible"] == []
    assert rows["stockout_minutes"].sum() > 0


def test_a_station_whose_trips_are_those_of_another_is_found():
    one = city(polls="5")
    busy, quiet = one.trips["start_station_id"].value_counts().index[[0, -1]]
    trips = one.trips.copy()
    trips["start_station_id"] = trips["start_station_id"].replace({busy: quiet})
    panel = build_panel(trips, one.status, one.stations, timezone=ZONE, supply="listed")
    checks = {row["station"]: row["check"] for row in panel.summary["implausible"]}
    assert checks[quiet] in ("mismatch", "unseen")


def test_a_station_that_leaves_is_closed_and_one_without_records_has_none():
    one = city(polls="5", leaving_stations=1)
    gone = one.events["station_id"].iloc[0]
    never, number = next(s for s in one.stations[["station_id", "station_ix"]].to_numpy() if s[0] != gone)
    status = one.status[one.status["station_ix"] != number]
    panel = build_panel(None, status, one.stations, timezone=ZONE, supply="listed")
    reasons = panel.reasons.set_index(["zone", "reason"])["minutes"]
    left = one.events["start"].iloc[0]
    after = panel.panel[(panel.panel["zone"] == gone) & (panel.panel["start"] > left)]
    after = after[:-1]  # the feed ends within the last hour
    assert (after["closed_minutes"] == after["minutes"]).all()
    assert reasons[(gone, "left")] >= len(after) * 60
    assert set(panel.reasons.loc[panel.reasons["zone"] == never, "reason"]) == {"no_record"}
    (leaver,) = [remark for remark in panel.summary["remarks"] if "left the feed" in remark]
    (silent,) = [remark for remark in panel.summary["remarks"] if "without any status record" in remark]
    assert gone in leaver
    assert never in silent


def test_areas_are_sums_and_wide_zones_are_reported(tmp_path):
    one = city(polls="5")
    stations = one.stations.assign(district=["north", "south"] * 6)
    panel = build_panel(None, one.status, stations, timezone=ZONE, supply="listed", areas="district")
    assert panel.zones["area"].tolist() == ["north", "south"] * 6
    with pytest.raises(ValueError, match="no file has a column 'borough'"):
        build_panel(None, one.status, stations, timezone=ZONE, supply="listed", areas="borough")
    lat, lon = stations["lat"], stations["lon"]
    ring = [[lon.min() - 1, lat.min() - 1], [lon.max() + 1, lat.min() - 1], [lon.max() + 1, lat.max() + 1]]
    ring += [[lon.min() - 1, lat.max() + 1], ring[0]]
    shape = {"type": "Polygon", "coordinates": [ring]}
    document = {"type": "FeatureCollection", "features": [{"type": "Feature", "id": "all", "geometry": shape}]}
    path = tmp_path / "all.geojson"
    path.write_text(pd.Series([document]).to_json(orient="values")[1:-1], encoding="utf-8")
    panel = build_panel(None, one.status, stations, timezone=ZONE, supply="listed", areas=str(path))
    assert set(panel.zones["area"]) == {"all"}
    wide = build_panel(None, one.status, stations, timezone=ZONE, supply="listed", zones=str(path))
    assert "zone wider than a walk" in set(wide.quality["reason"])
    assert "wider than a walk" in wide.summary["remarks"][-1]


@pytest.mark.parametrize("spread", [0, 3], ids=["at once", "over minutes"])
def test_hourly_looks_at_a_large_city_are_not_outages(spread):
    rng = np.random.default_rng(7)
    stations, hours = 120, 24 * 9
    at = pd.Timestamp("2021-07-01", tz=ZONE).timestamp() + 3600 * np.arange(hours)
    status = pd.DataFrame(
        {
            "station_id": np.repeat(np.arange(stations), hours),
            "last_reported": np.tile(at, stations).astype(int) + spread * np.repeat(np.arange(stations), hours),
            "num_bikes_available": rng.integers(0, 12, stations * hours),
        }
    )
    summary = build_panel(status=status, timezone=ZONE, supply="listed").summary
    assert summary["status"] == "polled snapshots"
    assert summary["feed_outages"] == 0
    assert summary["minutes"]["unknown"] < 0.01 * sum(summary["minutes"].values())


@pytest.mark.parametrize("with_trips", [False, True])
def test_a_gap_every_evening_is_no_outage(with_trips):
    city = simulate_city(4, 14, seed=3, polls="10", demand=40.0)
    hour = (
        pd.to_datetime(city.status["last_reported"], unit="s", utc=True).dt.tz_convert(city.settings.timezone).dt.hour
    )
    status = city.status[~hour.isin([18, 19])]
    trips = city.trips if with_trips else None
    made = build_panel(trips, status, city.stations, timezone=city.settings.timezone, every="1h")
    assert made.summary["feed_outages"] == 0
    assert any(
        "gap at the same time of 14 days, in these hours: 18, 19" in remark for remark in made.summary["remarks"]
    )
    evening = made.panel[made.panel["start_local"].dt.hour == 19]
    assert (evening["unknown_minutes"] == 60).all()
    assert (evening["exposure"] == 0).all()


def test_the_list_for_the_workshop_is_that_of_the_end_of_the_period():
    one = simulate_city(6, 16, seed=17, unusable=0.02, demand=60.0, polls="10")
    begin, end = (int(pd.Timestamp(t, tz=ZONE).timestamp()) for t in ("2024-03-11 07:00", "2024-03-13 20:00"))
    status = one.status.copy()
    third, at = status["station_ix"] == 2, status["last_reported"]
    counts = ["num_bikes_available", "num_bikes_disabled", "num_docks_available"]
    status.loc[third & (at > begin) & (at <= end), counts] = [1, 0, 10]  # nobody takes it
    later = third & (at > end)

    def listed(rows: pd.DataFrame, **options: Any) -> pd.DataFrame:
        return build_panel(None, rows, one.stations, timezone=ZONE, **options).unusable

    now = listed(status[at <= end])
    assert now["station"].to_list() == ["SIM003"]
    chosen = listed(status, end="2024-03-13 20:00")
    assert chosen["station"].to_list() == ["SIM003"]
    assert chosen["since_local"].to_list() < ["2024-03-13 20:00:00"]
    assert listed(status[~later]).empty  # it fell silent
    assert listed(status.assign(is_renting=~later)).empty


def test_records_outside_the_period_say_nothing_about_moves_between_two_looks():
    one = simulate_city(6, 42, seed=5, polls="10", demand=50.0)
    begin, end = (int(pd.Timestamp(day, tz=ZONE).timestamp()) for day in ("2024-03-18", "2024-04-01"))
    inside = one.status["last_reported"].between(begin - 3600, end + 3600)
    period = {"timezone": ZONE, "start": "2024-03-18", "end": "2024-04-01"}
    whole, cut = (build_panel(None, rows, one.stations, **period) for rows in (one.status, one.status[inside]))
    for column in ("observed", "cancelled", "out_minutes"):
        assert whole.panel[column].sum() == pytest.approx(cut.panel[column].sum(), rel=0.01)


@pytest.mark.parametrize("polls", ["log", "5"])
def test_a_missing_file_of_trips_is_no_day_without_riders(polls):
    one = simulate_city(6, 14, seed=3, polls=polls, demand=40.0)
    day = one.trips["started_at"].dt.strftime("%m-%d")
    made = build_panel(one.trips[day != "03-12"], one.status, one.stations, timezone=ZONE, supply="listed")
    whole = build_panel(one.trips, one.status, one.stations, timezone=ZONE, supply="listed")
    of_day = made.panel["start_local"].dt.strftime("%m-%d") == "03-12"
    assert made.panel.loc[of_day, "observed"].sum() == pytest.approx(whole.panel.loc[of_day, "observed"].sum(), rel=0.2)
    assert made.panel.loc[~of_day, "observed"].equals(whole.panel.loc[~of_day, "observed"])
    (remark,) = [text for text in made.summary["remarks"] if "trips seem to be missing" in text]
    assert "from 2024-03-1" in remark
    assert made.summary["pickups_from"] == "trips and status"
    assert not any("trips seem to be missing" in text for text in whole.summary["remarks"])


def test_a_day_of_which_all_records_are_missing_is_unknown_and_not_without_riders():
    one = simulate_city(6, 14, seed=3, demand=40.0)
    day = one.trips["started_at"].dt.strftime("%m-%d")
    at = pd.to_datetime(one.status["last_reported"], unit="s", utc=True).dt.tz_convert(ZONE)
    status = one.status[at.dt.strftime("%m-%d") != "03-12"]
    made = build_panel(one.trips[day != "03-12"], status, one.stations, timezone=ZONE, supply="listed")
    hours = made.panel["start_local"]
    of_day = (hours.dt.strftime("%m-%d") == "03-12") & hours.dt.hour.between(1, 22)
    assert made.panel.loc[of_day, "observed"].isna().all()
    assert made.panel.loc[~of_day, "observed"].sum() > 0
    assert any("trips seem to be missing" in text for text in made.summary["remarks"])
    with_trips = build_panel(one.trips, status, one.stations, timezone=ZONE, supply="listed")
    assert with_trips.panel["observed"].notna().all()
    assert not any("trips seem to be missing" in text for text in with_trips.summary["remarks"])


def test_a_closed_system_without_trips_misses_none():
    one = simulate_city(6, 14, seed=3, demand=40.0)
    day = one.trips["started_at"].dt.strftime("%m-%d")
    status = one.status.sort_values(["station_ix", "last_reported"])
    at = pd.to_datetime(status["last_reported"], unit="s", utc=True).dt.tz_convert(ZONE).dt.strftime("%m-%d")
    counts = ["num_bikes_available", "num_docks_available"]
    still = status.copy()
    still[counts] = still[counts].where(at != "03-12").groupby(status["station_ix"]).ffill().astype(int)
    made = build_panel(one.trips[day != "03-12"], still, one.stations, timezone=ZONE, supply="listed")
    assert not any("trips seem to be missing" in text for text in made.summary["remarks"])
    assert made.panel["observed"].notna().all()
