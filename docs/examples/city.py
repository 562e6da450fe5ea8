"""From records to demand in Python: a simulated city, its panel, the demand of every station and hour."""

from unmet.mobility.demand import LatentDemand
from unmet.mobility.panel import build_panel
from unmet.simulate import simulate_city

city = simulate_city(stations=3, days=42, seed=5, fleet_share=0.25)
made = build_panel(city.trips, city.status, city.stations, timezone=city.settings.timezone, every="1h")
print(made.panel[["zone", "start_local", "observed", "stockout_minutes", "exposure", "censored"]].head(3))

result = LatentDemand("exposure", weather=city.weather).fit(made, jobs=1)
print(result.zones[["zone", "observed", "lost_mean", "lost_q05", "lost_q95"]].round(0))
print(f"truly lost: {(city.truth['fate'] == 'lost').sum()}")
