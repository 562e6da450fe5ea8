"""A small city whose rates are known, in which stock-outs are brought about by demand; for the tests of backtests."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unmet.mobility.models.rates import Rates
from unmet.mobility.models.zone_data import ZoneData


def true_rate(slot: np.ndarray) -> np.ndarray:
    """Expected trips of an hour of the week."""
    return 2.5 * np.exp(0.8 * np.sin(2 * np.pi * (slot % 24 - 8) / 24)) * np.where(slot >= 120, 0.6, 1.0)


def known_panel(zones: int = 2, days: int = 56, seed: int = 0, stock: float | None = 40.0) -> pd.DataFrame:
    """Poisson pickups in hourly bins. Each day starts with a random stock about `stock`, and ends when it is gone."""
    rng = np.random.default_rng(seed)
    start = pd.date_range("2024-03-04", periods=24 * days, freq="h", tz="UTC")
    rate = true_rate((start.day_of_week * 24 + start.hour).to_numpy())
    frames = []
    for zone in range(zones):
        wanted = rng.poisson(rate)
        served, out = wanted.copy(), np.zeros(len(start))
        for day in range(days if stock is not None else 0):
            hour = np.repeat(np.arange(24), wanted[24 * day : 24 * day + 24])
            at = np.sort(hour + rng.uniform(size=hour.size))
            left = rng.poisson(stock)
            if at.size >= left:
                end = at[left - 1] if left else 0.0
                served[24 * day : 24 * day + 24] = np.bincount(at[:left].astype(int), minlength=24)
                out[24 * day : 24 * day + 24] = np.clip(np.arange(24) + 1 - end, 0, 1)
        panel = pd.DataFrame(
            {"zone": f"z{zone}", "start": start, "start_local": start.tz_localize(None), "minutes": 60}
        )
        panel["observed"], panel["stockout_minutes"] = served, 60 * out
        panel["closed_minutes"], panel["unknown_minutes"], panel["available_minutes"] = 0, 0, 60 * (1 - out)
        panel["exposure"], panel["censored"] = 1 - out, out > 0
        frames.append(panel)
    return pd.concat(frames, ignore_index=True)


def oracle(data: ZoneData, draws: int, seed: int) -> Rates:
    """The model that knows the rates."""
    rng = np.random.default_rng(seed)
    rate, sd = true_rate(data.slot), np.zeros(len(data))
    out = np.where(np.isnan(data.observed), 0.0, data.stockout)
    lost = rng.poisson(out * rate, (draws, len(data))).astype(float)
    future = rng.poisson(rate, (draws, len(data))).astype(float)
    return Rates(rate, sd, rate, rate, lost, out * rate, future, {"converged": True})
