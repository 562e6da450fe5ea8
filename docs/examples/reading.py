"""What a run has left, read back: as data frames, or asked in SQL."""

import duckdb

from unmet.mobility.runs import read_run
from unmet.pipeline import make_settings, run
from unmet.simulate import simulate_city

city = simulate_city(stations=2, days=15, seed=1).save("city")
files = {"trips": (f"{city}/trips.parquet",), "status": (f"{city}/status.parquet",)}
files["stations"] = (f"{city}/stations.csv",)
run(make_settings(**files, timezone="America/New_York", model="weekly-mean", jobs=1))

result = read_run("out/estimate")  # zones and totals are data frames; result.demand() gives the rows by zone and bin
print(result.zones[["name", "observed", "lost_mean"]].round(1))
print(
    duckdb.sql(
        """SELECT zone, hour(start AT TIME ZONE 'America/New_York') AS hour, sum(lost_mean) AS lost
        FROM 'out/estimate/demand.parquet' GROUP BY ALL ORDER BY lost DESC LIMIT 3"""
    ).df()
)
