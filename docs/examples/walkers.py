"""Riders who walk to the next station: what they do to an estimate of each zone by itself, and to one of the city."""

from unmet.mobility.demand import LatentDemand
from unmet.mobility.panel import build_panel
from unmet.simulate import simulate_city

city = simulate_city(20, 56, seed=8, fleet_share=0.3, density=20.0, walk_probability=0.54)
fates = city.truth["fate"].value_counts()
print(f"wanted {len(city.truth):,}, walked on {fates['walked']:,}, lost {fates['lost']:,}: the truth")
made = build_panel(city.trips, city.status, city.stations, timezone=city.settings.timezone, every="1h")
for name, model in {"zones alone": LatentDemand("weekly-mean"), "one city": LatentDemand("exposure")}.items():
    totals = model.fit(made, jobs=1).totals
    system = totals[totals["level"] == "system"].set_index("quantity")["mean"]
    wanted, walked, lost = (f"{system[quantity]:,.0f}" for quantity in ("wanted", "walked_on", "lost"))
    print(f"wanted {wanted}, walked on {walked}, lost {lost}: {name}")
