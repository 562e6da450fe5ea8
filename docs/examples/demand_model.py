"""A demand model of one's own, in a run, a backtest and a report."""

# [start:model]
import numpy as np

from unmet.mobility.models.rates import Rates
from unmet.mobility.models.registry import ZoneModel
from unmet.mobility.models.zone_data import ZoneData


def hour_of_day(data: ZoneData, draws: int, seed: int) -> Rates:
    """Estimate one rate for each hour of the day: a gamma distribution of pickups per time with supply."""
    rng = np.random.default_rng(seed)
    hour, seen = data.slot % 24, data.seen
    pickups = np.bincount(hour[seen], data.observed[seen], minlength=24)
    supplied = np.bincount(hour[seen], data.exposure[seen], minlength=24)
    rate = rng.gamma(pickups + 0.5, 1 / (supplied + 0.1), size=(draws, 24))[:, hour]
    out = np.where(np.isfinite(data.observed), data.stockout, 0.0)
    q05, q95 = np.quantile(rate, [0.05, 0.95], axis=0)
    return Rates(
        mean=rate.mean(axis=0),
        sd=rate.std(axis=0),
        q05=q05,
        q95=q95,
        lost=rng.poisson(out * rate).astype(float),
        lost_mean=out * rate.mean(axis=0),
        future=rng.poisson(rate).astype(float),
        summary={"converged": True},
    )


HOUR_OF_DAY = ZoneModel(
    "hour-of-day", hour_of_day, "Pickups per time with supply, by hour of the day.", uses_covariates=False
)
# [end:model]

# [start:use]
from unmet.mobility.backtest import backtest
from unmet.mobility.demand import LatentDemand
from unmet.mobility.panel import write_panel
from unmet.report import write_report
from unmet.simulate import simulate_city

city = simulate_city(stations=3, days=28, seed=5, fleet_share=0.25)
write_panel("panel.parquet", city.trips, city.status, city.stations, timezone=city.settings.timezone)

result = LatentDemand(HOUR_OF_DAY).fit("panel.parquet", "run", jobs=1)
print(result.info["totals"]["lost"]["mean"])
print(write_report("run"))

scores = backtest("panel.parquet", [HOUR_OF_DAY, "weekly-mean"], jobs=1).summary
print(scores.query("metric == 'bias' and subset == 'all'")[["model", "task", "value"]])
# [end:use]
