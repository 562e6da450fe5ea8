"""Demand model `share`: labels only, no minutes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unmet.mobility.models.zone_estimate import DemandModel, estimate_zone


def panel(seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Six weeks of hours; labelled ones show a share; the status of some is unknown. And what was lost in each."""
    rng = np.random.default_rng(seed)
    start = pd.date_range("2024-01-01", periods=24 * 42, freq="h", tz="UTC")
    rate = np.exp(1.2 + 0.8 * np.sin(2 * np.pi * start.hour.to_numpy() / 24))
    wanted = rng.poisson(rate)
    label = rng.random(len(start)) < 0.2
    seen = np.where(label, rng.binomial(wanted, rng.uniform(size=len(start))), wanted)
    unknown = rng.random(len(start)) < 0.05
    frame = pd.DataFrame({"zone": "a", "start": start, "start_local": start.tz_localize(None), "minutes": 60})
    frame = frame.assign(
        observed=seen,
        available_minutes=np.where(unknown, 0, np.where(label, 30, 60)),
        stockout_minutes=np.where(unknown, 0, np.where(label, 30, 0)),
        closed_minutes=0,
        unknown_minutes=np.where(unknown, 60, 0),
    )
    exposure = frame.available_minutes / 60
    return frame.assign(exposure=exposure, censored=label & ~unknown), wanted - seen


def days(seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Eight weeks of days; four in ten are labelled and show nine tenths of the truth. And what was lost in each."""
    rng = np.random.default_rng(seed)
    start = pd.date_range("2024-01-01", periods=56, freq="D", tz="UTC")
    wanted = rng.poisson(40, len(start))
    label = rng.random(len(start)) < 0.4
    seen = np.where(label, rng.binomial(wanted, 0.9), wanted)
    frame = pd.DataFrame({"zone": "a", "start": start, "start_local": start.tz_localize(None), "minutes": 1440})
    out = np.where(label, 300, 0)
    frame = frame.assign(observed=seen, available_minutes=1440 - out, stockout_minutes=out, closed_minutes=0)
    return frame.assign(unknown_minutes=0, exposure=1 - out / 1440, censored=label), wanted - seen


def test_intervals_of_days_have_both_readings_of_a_label() -> None:
    """Held at uniform, a labelled day that shows nine tenths would have lost too much, and intervals would miss it."""
    frame, lost = days()
    estimate = estimate_zone(frame, DemandModel("share", draws=100))
    total = estimate.lost.sum(axis=0)
    low, high = np.quantile(total, [0.05, 0.95])
    assert low < lost.sum() < high
    assert np.median(total[1::2]) > 1.5 * np.median(total[::2]), "every other draw is of the uniform share"
    assert np.abs(estimate.rows["lost_mean"].to_numpy()[~frame["censored"]]).max() == 0


def test_lost_trips_are_found_from_labels_alone() -> None:
    frame, lost = panel()
    rows = estimate_zone(frame, DemandModel("share", draws=60)).rows
    found = rows["lost"].to_numpy() if "lost" in rows else rows["lost_mean"].to_numpy()
    labelled = frame["censored"].to_numpy()
    assert found[labelled].sum() == np.clip(
        found[labelled].sum(), 0.75 * lost[labelled].sum(), 1.25 * lost[labelled].sum()
    )
    exact = (frame["unknown_minutes"] == 0).to_numpy() & ~labelled
    assert np.abs(found[exact]).max() == 0


def test_closed_time_is_no_loss_and_no_sign_of_a_low_rate() -> None:
    frame = panel()[0].iloc[: 14 * 24]
    closed = frame["start"].dt.day.isin([10, 11, 12]).to_numpy()
    shut = frame.assign(censored=frame["censored"] & ~closed, closed_minutes=np.where(closed, 60, 0))
    for name in ("observed", "available_minutes", "stockout_minutes", "unknown_minutes", "exposure"):
        shut[name] = shut[name].where(~closed, 0)
    rows = estimate_zone(shut, DemandModel("share", draws=20)).rows
    assert rows["lost_mean"][closed].abs().max() == 0
    assert 0.7 < rows["rate_mean"][closed].mean() / rows["rate_mean"][~closed].mean() < 1.4
