"""Times of the week at which a system is never open: nobody comes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unmet.mobility.demand import LatentDemand
from unmet.mobility.panel import build_panel
from unmet.simulate import simulate_city


@pytest.fixture(scope="module")
def estimated(tmp_path_factory):
    city = simulate_city(stations=2, days=15, seed=3)
    trips = city.trips[pd.to_datetime(city.trips["started_at"]).dt.hour.between(7, 20)]
    zone = city.settings.timezone
    made = build_panel(trips, city.status, city.stations, timezone=zone, hours="07:00-21:00")
    folder = tmp_path_factory.mktemp("run")
    LatentDemand("exposure", horizon="1d").fit(made, folder, jobs=1)
    tables = {name: pd.read_parquet(folder / f"{name}.parquet") for name in ("demand", "system")}
    return {name: table.assign(hour=table["start"].dt.tz_convert(zone).dt.hour) for name, table in tables.items()}


@pytest.mark.parametrize("table", ["demand", "system"])
def test_rates_of_closed_hours_are_0(estimated, table):
    rows = estimated[table]
    shut = ~rows["hour"].between(7, 20)
    assert shut.any()
    rates = [c for c in rows if c.startswith(("rate_", "usual_rate"))]
    assert (rows.loc[shut, rates] == 0).all(axis=None)
    assert (rows.loc[~shut, ["rate_mean", "rate_sd"]] > 0).all(axis=None)


def test_no_rider_is_forecast_for_closed_hours_and_records_stay(estimated):
    rows = estimated["demand"]
    shut, future = ~rows["hour"].between(7, 20), rows["flags"].str.contains("future")
    assert rows.loc[shut & future, ["demand_mean", "demand_q95", "wanted_mean"]].eq(0).all(axis=None)
    assert (rows.loc[~shut & future, "demand_mean"] > 0).all()
    past = rows[~future]
    assert np.allclose(past["demand_mean"], past["observed"] + past["lost_mean"])
