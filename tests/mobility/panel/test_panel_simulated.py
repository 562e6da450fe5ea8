"""A simulated city knows its own exposure: the panel must find it again, and tell its outages apart."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unmet.mobility.panel import build_panel
from unmet.simulate import simulate_city


@pytest.fixture(scope="module")
def city():
    return simulate_city(14, 32, seed=5, closures=1, dead_stations=3, feed_gaps=2, timezone="America/New_York")


@pytest.fixture(scope="module", params=["with trips", "status alone"])
def panel(request, city):
    trips = city.trips if request.param == "with trips" else None
    return build_panel(trips, city.status, city.stations, timezone="America/New_York", every="1h").panel


def test_where_every_listed_bike_can_be_rented_usable_supply_is_nearly_the_listed(panel):
    assert panel["exposure"].mean() == pytest.approx(panel["listed_exposure"].mean(), abs=0.003)
    assert panel["exposure"].between(0, 1).all()
    assert panel["unusable_minutes"].sum() < 0.05 * panel["stockout_minutes"].sum()


def during(panel: pd.DataFrame, event: object) -> pd.Series:
    """Shares of the states in the whole hours of an event."""
    start, end = pd.Timestamp(event.start), pd.Timestamp(event.end)
    rows = panel[(panel["start"] >= start) & (panel["start"] + pd.Timedelta("1h") <= end)]
    if isinstance(event.station_id, str):
        rows = rows[rows["zone"] == event.station_id]
    totals = rows[["available_minutes", "stockout_minutes", "closed_minutes", "unknown_minutes"]].sum()
    return totals / totals.sum()


def test_outages_of_every_kind_are_told_apart_and_none_is_a_stockout(city, panel):
    state = {
        "closure": "closed_minutes",
        "feed gap": "unknown_minutes",
        "silent station": "unknown_minutes",
        "zero station": "closed_minutes",
    }
    assert set(city.events["kind"]) == set(state)
    for event in city.events.itertuples():
        shares = during(panel, event)
        assert shares[state[event.kind]] >= 0.97, (event, shares)
        assert shares["stockout_minutes"] == 0, (event, shares)


def away_from_events(city, panel: pd.DataFrame) -> pd.DataFrame:
    """Rows of the panel beside the truth, without the hours of any outage."""
    truth = city.true_rate.rename(columns={"station_id": "zone", "stockout": "true_stockout"})
    both = panel.merge(truth, on=["zone", "start"], suffixes=("", "_true"))
    assert len(both) == len(truth)
    for event in city.events.itertuples():
        touched = both["start"].between(pd.Timestamp(event.start).floor("1h"), pd.Timestamp(event.end))
        if isinstance(event.station_id, str):
            touched &= both["zone"] == event.station_id
        both = both[~touched]
    return both[both["start"] > both["start"].min()]  # stations report for the first time within the first hour


def test_exposure_is_the_true_one_to_the_minute_where_nothing_is_broken(city, panel):
    both = away_from_events(city, panel)
    assert (both["unknown_minutes"] + both["closed_minutes"]).sum() <= 0.001 * both["minutes"].sum()
    open_ = both[both["unknown_minutes"] + both["closed_minutes"] == 0]
    apart = (open_["listed_exposure"] - open_["exposure_true"]).abs()
    assert (apart <= 0.1).all()  # each change is off by less than a minute
    assert open_["listed_exposure"].mean() == pytest.approx(open_["exposure_true"].mean(), abs=1e-4)
    assert (open_["stockout_minutes"] / 60).mean() == pytest.approx(open_["true_stockout"].mean(), abs=1e-4)


def test_time_with_a_free_dock_and_returns_are_the_true_ones_where_nothing_is_broken(city, panel):
    both = away_from_events(city, panel)
    both = both[both["unknown_minutes"] == 0]
    assert both["full_minutes"].sum() > 1000
    listed = both["dock_minutes"] / 60
    assert ((listed - both["dock_exposure_true"]).abs() <= 0.1).all()
    assert listed.mean() == pytest.approx(both["dock_exposure_true"].mean(), abs=1e-4)
    assert both["dock_exposure"].mean() == pytest.approx(both["dock_exposure_true"].mean(), abs=0.005)
    assert (both["full_minutes"] / 60).mean() == pytest.approx(both["full"].mean(), abs=1e-4)
    counted = (both["returned_here"] + both["rode_in"]).sum()
    from_trips = both["evidence"].iloc[0] == "status+trips"
    # Without trips, small loads of vans look like returns.
    assert both["returns"].sum() == pytest.approx(counted, rel=0.001 if from_trips else 0.2)


@pytest.mark.parametrize("with_trips", [True, False])
def test_few_records_give_an_average_curve_that_leans_towards_one(with_trips):
    """Six days of four stations: the panel's chance to be served is the average at each listed number."""
    city = simulate_city(4, 6, seed=3, realistic=True, walk_probability=0.0, shock_effect=0.0, unusable=0.05)
    trips = city.trips if with_trips else None
    made = build_panel(trips, city.status, city.stations, timezone=city.settings.timezone, every="1h")
    learnt = made.summary["usable_supply"]
    assert learnt["method"] == "curve"
    assert learnt["parameters"] == {}
    assert 0.4 < learnt["curve_listed"]["1"] < 0.9
    assert learnt["curve_listed"]["1"] < learnt["curve_usable"]["1"] <= 1.0  # half of what is missing, or more
    frame = made.panel
    truth = city.true_rate.rename(columns={"station_id": "zone"})
    both = frame.merge(truth, on=["zone", "start"], suffixes=("", "_true"))
    listed, usable, true = (both[c].sum() for c in ("listed_exposure", "exposure", "exposure_true"))
    assert listed > true
    assert abs(usable - true) < 0.7 * abs(listed - true)


def test_docks_are_the_mirror_image_of_vehicles():
    """With bikes and docks exchanged, the panel's docks are what its vehicles were, hidden state and all."""
    city = simulate_city(6, 21, seed=17, unusable=0.06, demand=80.0)
    capacity = city.status["station_ix"].map(city.stations["capacity"].reset_index(drop=True))
    bikes, docks = "num_bikes_available", "num_docks_available"
    status = city.status[["station_ix", "last_reported", bikes]].assign(**{docks: capacity - city.status[bikes]})
    mirror = status.rename(columns={bikes: docks, docks: bikes})
    one, other = (
        build_panel(status=rows, stations=city.stations, timezone=city.settings.timezone, every="1h")
        for rows in (status, mirror)
    )
    assert one.summary["usable_supply"]["method"] == "hidden"
    assert one.summary["usable_supply"]["log_likelihood_gain"] > 20
    assert other.summary["usable_docks"]["curve_usable"] == pytest.approx(
        one.summary["usable_supply"]["curve_usable"], abs=2e-3
    )
    np.testing.assert_allclose(one.panel["exposure"], other.panel["dock_exposure"], atol=2e-3)
    np.testing.assert_allclose(one.panel["dock_exposure"], other.panel["exposure"], atol=2e-3)
    assert one.panel["unusable_minutes"].sum() > 1000
