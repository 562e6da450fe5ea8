"""Recovered demand as Prophet wants it: ``ds`` and ``y`` for each zone."""

import duckdb

from unmet.pipeline import make_settings, run
from unmet.simulate import simulate_city

city = simulate_city(stations=2, days=15, seed=1).save("city")
files = {"trips": (f"{city}/trips.parquet",), "status": (f"{city}/status.parquet",)}
files["stations"] = (f"{city}/stations.csv",)
run(make_settings(**files, timezone="America/New_York", model="weekly-mean", jobs=1))

history = duckdb.sql(
    """SELECT zone, start AT TIME ZONE 'America/New_York' AS ds, demand_mean AS y
    FROM 'out/estimate/demand.parquet' ORDER BY zone, ds"""
).df()
for zone, series in history.groupby("zone"):
    print(zone, len(series), series["y"].sum())  # Prophet().fit(series[["ds", "y"]])
