"""Riders lost on wet and dry days: against sums by hand, and by chance alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from unmet.report.source import open_run
from unmet.report.wet_days import compare_days, wet_days


def test_shares_are_those_of_the_run_by_hand(plain_run):
    days = [f"{day:%Y-%m-%d}" for day in pd.date_range("2024-03-04", "2024-03-21")]
    wet = [k % 3 == 0 for k in range(len(days))]
    weather = {"day": days, "rain": [0.4 * w for w in wet], "temperature": [10.0] * len(days)}
    with open_run(plain_run.folder, plain_run.panel) as source:
        info = {**source.info, "provenance": {**source.info.get("provenance", {}), "weather_by_day": weather}}
        (found,) = wet_days(replace(source, info=info))  # temperature has no days without it
        assert wet_days(source) == []
    demand = pd.read_parquet(plain_run.folder / "demand.parquet")
    local = pd.read_parquet(plain_run.panel)[["zone", "start", "start_local"]]
    rows = demand[demand["observed"].notna()].merge(local, on=["zone", "start"])
    is_wet = rows["start_local"].dt.strftime("%Y-%m-%d").map(dict(zip(days, wet, strict=True)))
    for kind, some in (("wet", rows[is_wet]), ("dry", rows[~is_wet])):
        assert found[f"{kind}_share"] == pytest.approx(some["lost_mean"].sum() / some["demand_mean"].sum())
    assert (found["wet_days"], found["dry_days"]) == (6, 10)
    assert f"{found['wet_share']:.1%} on 6 days with it" in found["sentence"]


def test_the_interval_covers_no_difference_nine_times_in_ten():
    rng = np.random.default_rng(5)
    covered = 0
    for seed in range(100):
        wanted = rng.poisson(200.0, 60).astype(float)
        lost = rng.binomial(wanted.astype(int), rng.beta(4, 36, 60)).astype(float)
        found = compare_days(wanted, lost, np.arange(60) % 3 == 0, seed)
        covered += found["change_q05"] <= 0 <= found["change_q95"]
    assert 80 <= covered <= 97  # days are resampled: a little narrow with twenty
