"""A simulated city knows its own exposure: the panel must find it again, and tell its outages apart."""

from __future__ import annotations

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


def test_exposure_is_the_true_one_to_the_minute_where_nothing_is_broken(city, panel):
    truth = city.true_rate.rename(columns={"station_id": "zone", "stockout": "true_stockout"})
    both = panel.merge(truth, on=["zone", "start"], suffixes=("", "_true"))
    assert len(both) == len(truth)
    for event in city.events.itertuples():
        touched = both["start"].between(pd.Timestamp(event.start).floor("1h"), pd.Timestamp(event.end))
        if isinstance(event.station_id, str):
            touched &= both["zone"] == event.station_id
        both = both[~touched]
    both = both[both["start"] > both["start"].min()]  # stations report for the first time within the first hour
    assert (both["unknown_minutes"] + both["closed_minutes"]).sum() <= 0.001 * both["minutes"].sum()
    open_ = both[both["unknown_minutes"] + both["closed_minutes"] == 0]
    assert ((open_["exposure"] - open_["exposure_true"]).abs() <= 0.1).all()  # each change is off by less than a minute
    assert open_["exposure"].mean() == pytest.approx(open_["exposure_true"].mean(), abs=1e-4)
    assert (open_["stockout_minutes"] / 60).mean() == pytest.approx(open_["true_stockout"].mean(), abs=1e-4)
