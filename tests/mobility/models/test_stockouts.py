"""Uncertain stock-outs widen the draws of lost trips, and do not move their mean."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unmet.mobility.models.zone_estimate import DemandModel, estimate_zone


def rows(out_sd: float) -> pd.DataFrame:
    start = pd.date_range("2024-01-01", periods=336, freq="h", tz="UTC")
    rng = np.random.default_rng(4)
    out = np.where(np.arange(336) % 5 == 0, 20, 0)
    panel = pd.DataFrame({"zone": "a", "start": start, "start_local": start.tz_localize(None), "minutes": 60})
    panel["observed"] = rng.poisson(6 * (1 - out / 60)).astype(float)
    panel["stockout_minutes"], panel["closed_minutes"], panel["unknown_minutes"] = out, 0, 0
    panel["available_minutes"] = 60 - out
    panel["out_minutes"], panel["out_sd"] = out.astype(float), np.where(out > 0, out_sd, 0.0)
    panel["exposure"], panel["censored"] = 1 - out / 60, out > 0
    return panel


def test_draws_of_lost_trips_spread_as_the_stockouts_do():
    model = DemandModel("exposure", draws=1500)
    sure, unsure = (estimate_zone(rows(sd), model).lost.sum(axis=0) for sd in (0.0, 15.0))
    assert unsure.mean() == pytest.approx(sure.mean(), rel=0.02)
    # 68 bins, each with 6 riders an hour and a deviation of a quarter of an hour.
    assert unsure.var() - sure.var() == pytest.approx(68 * (6 * 15 / 60) ** 2, rel=0.25)


def test_pickups_of_a_mostly_unknown_bin_say_nothing_of_its_stockout():
    panel = rows(0.0)
    panel["observed"] = np.random.default_rng(5).negative_binomial(2, 0.25, len(panel)).astype(float)  # dispersed
    panel["evidence"], hidden = "status+trips", np.arange(len(panel)) % 40 == 7
    minutes = [f"{state}_minutes" for state in ("available", "stockout", "unknown")]
    panel.loc[hidden, minutes] = 10, 10, 40
    panel.loc[hidden, "out_minutes"], panel.loc[hidden, "exposure"], panel.loc[hidden, "censored"] = 10, 10 / 60, True
    model = DemandModel("exposure", draws=50)
    quiet, busy = (
        estimate_zone(panel.assign(observed=panel["observed"].mask(hidden, pickups)), model).rows[hidden]
        for pickups in (0.0, 30.0)
    )
    assert busy["lost_mean"].to_numpy() == pytest.approx(quiet["lost_mean"].to_numpy())
    assert busy["lost_mean"].to_numpy() == pytest.approx(busy["rate_mean"].to_numpy() / 6, rel=0.1)
