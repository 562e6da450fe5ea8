"""Riders who walk to the next station: what they do to zones, and what larger zones do about it."""

from unmet.mobility.demand import LatentDemand
from unmet.mobility.panel import build_panel
from unmet.simulate import simulate_city

city = simulate_city(20, 56, seed=8, fleet_share=0.3, density=20.0, walk_probability=0.54)
fates = city.truth["fate"].value_counts()
print(f"wanted {len(city.truth):,}: walked on {fates['walked']:,}, went home {fates['lost']:,}")
for zones in ("stations", "superhubs:200m"):
    made = build_panel(city.trips, city.status, city.stations, timezone=city.settings.timezone, zones=zones, every="1h")
    totals = LatentDemand("weekly-mean").fit(made.panel, jobs=1).totals
    system = totals[totals["level"] == "system"].set_index("quantity")["mean"]
    over = system["demand"] / len(city.truth) - 1
    print(f"{zones:<15}{len(made.zones):>3} zones: lost {system['lost']:6,.0f}, total demand {over:+.1%} off the truth")
