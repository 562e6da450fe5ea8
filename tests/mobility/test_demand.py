"""The models of one zone, on panels whose true demand is known."""

import json
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, nbinom

from unmet import InputError, NumericalError, UninformativeWarning
from unmet._storage.parquet import write_parquet
from unmet.execution import serially
from unmet.mobility.demand import DemandModel, LatentDemand, estimate_zone
from unmet.mobility.features.bins import bin_features
from unmet.mobility.models.kernel import demand_kernel
from unmet.mobility.models.registry import MODELS
from unmet.mobility.models.zone_data import zone_data
from unmet.mobility.panel import build_panel, read_panel
from unmet.mobility.panel.file import open_panel
from unmet.simulate import simulate_city

COLUMNS = [
    "zone",
    "start",
    "observed",
    "exposure",
    "censored",
    "rate_mean",
    "rate_sd",
    "rate_q05",
    "rate_q95",
    "demand_mean",
    "demand_sd",
    "demand_q05",
    "demand_q50",
    "demand_q95",
    "lost_mean",
    "lost_sd",
    "lost_q05",
    "lost_q95",
    "usual_rate",
    *(f"{name}_{k}" for name in ("served", "walked_on", "walked_in", "wanted") for k in ("mean", "sd", "q05", "q95")),
    "flags",
]


def make_panel(days=28, seed=0, level=6.0, dispersion=0.05):
    """An hourly zone with a daily and weekly pattern, stock-outs more often when demand is high; and its truth."""
    rng = np.random.default_rng(seed)
    start = pd.date_range("2024-03-04", periods=24 * days, freq="h", tz="UTC")
    hour, weekend = start.hour.to_numpy(), start.day_of_week.to_numpy() >= 5
    rain = np.where(rng.random(len(start)) < 0.1, rng.gamma(2.0, 1.0, len(start)), 0.0)
    rate = level * np.exp(0.9 * np.sin(2 * np.pi * (hour - 9) / 24) - 0.5 * weekend - 0.3 * np.log1p(rain))
    wanted = rng.poisson(rate * rng.gamma(1 / dispersion, dispersion, len(start)))
    stockout = np.where(rng.random(len(start)) < rate / rate.max() * 0.5, rng.integers(5, 61, len(start)), 0)
    exposure = 1 - stockout / 60
    panel = pd.DataFrame({"zone": "z", "start": start, "start_local": start.tz_localize(None), "minutes": 60})
    panel["observed"] = rng.binomial(wanted, exposure)
    panel["stockout_minutes"], panel["closed_minutes"], panel["unknown_minutes"] = stockout, 0, 0
    panel["available_minutes"] = 60 - stockout
    panel["exposure"], panel["censored"] = exposure, stockout > 0
    panel["holiday"], panel["rain"] = False, rain
    return panel, wanted, rate


PANEL, WANTED, RATE = make_panel()
NOTHING_KNOWN = {"available_minutes": 0, "stockout_minutes": 0, "closed_minutes": 0, "unknown_minutes": 60}


@pytest.fixture(scope="module")
def default():
    return estimate_zone(PANEL, DemandModel(draws=200))


def test_the_output_has_the_columns_promised_one_row_per_bin(default):
    assert list(default.rows.columns) == COLUMNS
    assert len(default.rows) == len(PANEL)
    assert default.lost.shape == (168, 200)
    assert default.summary["converged"]


def test_the_default_model_finds_the_demand_that_was_lost(default):
    short = PANEL["observed"].sum() / WANTED.sum() - 1
    assert short < -0.15
    assert abs(default.rows["demand_mean"].sum() / WANTED.sum() - 1) < 0.03
    low, high = np.quantile(default.lost.sum(axis=0), [0.025, 0.975])
    assert low <= (WANTED - PANEL["observed"]).sum() <= high


def test_intervals_of_rate_and_demand_hold_what_they_promise(default):
    rows = default.rows
    partial = PANEL["exposure"].to_numpy() < 1
    inside = (rows["demand_q05"] <= WANTED) & (rows["demand_q95"] >= WANTED)
    assert 0.85 <= inside[partial].mean() <= 1.0
    log_sd = np.sqrt(np.log1p((rows["rate_sd"] / rows["rate_mean"]) ** 2))
    z = (np.log(rows["rate_mean"]) - 0.5 * log_sd**2 - np.log(RATE)) / log_sd
    assert (np.abs(z) < 1.96).mean() > 0.85


@pytest.mark.parametrize("name", MODELS)
def test_demand_is_what_was_observed_where_supply_lasted_and_never_below_it(name):
    panel, _, _ = make_panel(days=15, seed=1)
    rows = estimate_zone(panel, DemandModel(name, draws=50)).rows
    full = panel["exposure"].to_numpy() == 1
    assert np.array_equal(rows["demand_mean"][full], panel["observed"][full])
    assert (rows["lost_sd"][full] == 0).all()
    for column in ("demand_mean", "demand_q05", "demand_q50", "demand_q95"):
        assert (rows[column] >= rows["observed"]).all()
    assert (rows["demand_q05"] <= rows["demand_q95"]).all()
    assert np.isfinite(rows.select_dtypes("number").to_numpy()).all()


def test_lost_trips_given_what_was_seen_follow_the_formula():
    """With the rate all but known, lost given y has mean (1 − a)λ(r + y)/(r + aλ), by brute force over demand."""
    a, lam, r, y = 0.4, 5.0, 4.0, 3
    total = np.arange(y, 400)  # negative binomial with mean λ and shape r, of which a share a is seen
    weight = nbinom.pmf(total, r, r / (r + lam)) * binom.pmf(y, total, a)
    brute = (weight * (total - y)).sum() / weight.sum()
    assert brute == pytest.approx((1 - a) * lam * (r + y) / (r + a * lam), rel=1e-9)


def test_closed_and_unknown_time_is_neither_exposure_nor_loss():
    panel, _, _ = make_panel(days=15, seed=2)
    dark = np.arange(100, 110)
    panel.loc[dark, ["available_minutes", "stockout_minutes", "observed"]] = 0
    panel.loc[dark, "exposure"] = 0.0
    panel.loc[dark, "censored"] = False
    panel.loc[dark[:5], "closed_minutes"] = 60
    panel.loc[dark[5:], "unknown_minutes"] = 60
    rows = estimate_zone(panel, DemandModel("weekly-mean", draws=50)).rows
    assert (rows.loc[dark, "lost_mean"] == 0).all()
    assert rows.loc[dark[0], "flags"] == "closed"
    assert rows.loc[dark[5], "flags"] == "unknown"


def test_an_hour_of_the_week_never_seen_with_supply_is_flagged_as_extrapolation():
    panel, _, _ = make_panel(days=15, seed=3)
    monday_nine = (panel["start"].dt.day_of_week == 0) & (panel["start"].dt.hour == 9)
    panel.loc[monday_nine, ["available_minutes", "exposure", "observed"]] = 0
    panel.loc[monday_nine, "stockout_minutes"] = 60
    rows = estimate_zone(panel, DemandModel("weekly-mean", draws=50)).rows
    assert rows.loc[monday_nine, "flags"].str.contains("extrapolation").all()
    assert not rows.loc[~monday_nine, "flags"].str.contains("extrapolation").any()


def test_future_bins_get_a_rate_and_demand_but_no_loss():
    panel, _, _ = make_panel(days=21, seed=4)
    whole, _, _ = make_panel(days=22, seed=4)
    whole.loc[len(panel) :, ["observed", "exposure"]] = np.nan, 0.0
    whole["future"] = np.arange(len(whole)) >= len(panel)
    rows = estimate_zone(whole, DemandModel(draws=100)).rows
    ahead = rows.iloc[-24:]
    assert len(rows) == len(panel) + 24
    assert ahead["flags"].str.contains("future").all()
    assert ahead["observed"].isna().all()
    assert (ahead["lost_mean"] == 0).all()
    assert (ahead["demand_q05"] <= ahead["demand_q95"]).all()
    assert ahead["demand_mean"].sum() == pytest.approx(ahead["rate_mean"].sum(), rel=0.2)
    peak, night = ahead["rate_mean"].to_numpy()[15], ahead["rate_mean"].to_numpy()[3]
    assert peak > 2 * night  # the daily pattern goes on


def test_results_depend_on_the_zone_and_the_seed_only():
    panel, _, _ = make_panel(days=15, seed=5)
    first, second = (estimate_zone(panel, DemandModel("weekly-mean", draws=50)) for _ in range(2))
    pd.testing.assert_frame_equal(first.rows, second.rows)
    assert np.array_equal(first.lost, second.lost)
    other = estimate_zone(panel, DemandModel("weekly-mean", draws=50, seed=1))
    assert not np.array_equal(first.lost, other.lost)


def test_totals_by_hour_of_week_add_up_to_the_rows(default):
    assert default.observed.sum() == PANEL["observed"].sum()
    assert default.lost.mean(axis=1).sum() == pytest.approx(default.rows["lost_mean"].sum(), rel=0.05)


@pytest.mark.parametrize("name", ["weekly-mean", "drop-censored"])
def test_totals_by_hour_of_the_week_agree_with_the_rows_where_pickups_are_few(name):
    panel, _, _ = make_panel(days=15, seed=4, level=0.4)
    never = (panel["start"].dt.day_of_week == 1) & (panel["start"].dt.hour == 9)
    panel.loc[never, ["available_minutes", "exposure", "observed"]] = 0
    panel.loc[never, "stockout_minutes"], panel.loc[never, "censored"] = 60, True
    estimate = estimate_zone(panel, DemandModel(name, draws=4000))
    slot = panel["start"].dt.day_of_week * 24 + panel["start"].dt.hour
    rows = estimate.rows["lost_mean"].groupby(slot).sum().reindex(range(168)).to_numpy()
    error = estimate.lost.std(axis=1) / np.sqrt(4000)
    assert (np.abs(estimate.lost.mean(axis=1) - rows) <= 5 * error).all()
    total = estimate.lost.sum(axis=0)
    assert total.mean() == pytest.approx(rows.sum(), abs=4 * total.std() / np.sqrt(4000))
    assert rows[24 + 9] > 0  # never seen: the zone's mean
    out = panel["stockout_minutes"].groupby(slot).sum() > 0
    assert (rows[out] == 0).any()  # seen, and nobody came


def test_many_pickups_in_a_short_time_do_not_lengthen_it():
    # 250 an hour, three tenths of the hours half out of stock.
    rng = np.random.default_rng(3)
    start = pd.date_range("2024-01-01", periods=14 * 24, freq="h", tz="UTC")
    out = rng.random(len(start)) < 0.3
    wanted = rng.poisson(250.0, len(start))
    observed = np.where(out, rng.binomial(wanted, 0.5), wanted).astype(float)
    panel = pd.DataFrame({"zone": "busy", "start": start, "start_local": start.tz_localize(None), "minutes": 60})
    panel["observed"], panel["exposure"], panel["censored"] = observed, np.where(out, 0.5, 1.0), out
    panel["available_minutes"], panel["stockout_minutes"] = np.where(out, 30, 60), np.where(out, 30, 0)
    panel["closed_minutes"] = panel["unknown_minutes"] = 0
    estimate = estimate_zone(panel, DemandModel(draws=100))
    assert estimate.summary["exposure_raised_to_a_moment"] == 0
    assert estimate.rows["lost_mean"].sum() == pytest.approx(wanted.sum() - observed.sum(), rel=0.035)


def test_a_pickup_without_a_minute_of_supply_still_counts_for_a_moment():
    panel, _, _ = make_panel(days=15, seed=6)
    panel.loc[50, ["exposure", "available_minutes"]] = 0
    panel.loc[50, "stockout_minutes"] = 60
    panel.loc[50, "observed"] = 2
    estimate = estimate_zone(panel, DemandModel("weekly-mean", draws=50))
    assert estimate.rows.loc[50, "exposure"] == pytest.approx(0.5 / 60)
    assert estimate.summary["exposure_raised_to_a_moment"] >= 1


@pytest.mark.parametrize("state", ["closed", "half unknown"])
def test_pickups_of_closed_time_are_not_those_of_a_moment(state):
    panel, _, _ = make_panel(days=15, seed=6)
    night = (panel["start"].dt.hour < 4) & (panel["start"].dt.day > 2)
    panel.loc[night, ["exposure", "available_minutes", "stockout_minutes", "observed"]] = 0
    panel.loc[night, "closed_minutes"] = 60 if state == "closed" else 30
    panel.loc[night, "unknown_minutes"] = 0 if state == "closed" else 30
    panel.loc[panel.index[night][:5], "observed"] = 2
    rows = estimate_zone(panel, DemandModel("weekly-mean", draws=50)).rows
    assert (rows.loc[night, "exposure"] == 0).all()
    assert rows["rate_mean"].max() < 30


class TestPickupsWithoutSupply:
    def emptied(self, rows: slice | np.ndarray) -> pd.DataFrame:
        panel, _, _ = make_panel(days=15, seed=6)
        panel["observed"] = 5.0
        panel.loc[rows, ["exposure", "available_minutes", "unknown_minutes", "closed_minutes"]] = 0
        panel.loc[rows, "stockout_minutes"] = 60
        panel.loc[rows, "censored"] = True
        return panel

    @pytest.mark.parametrize("model", ["weekly-mean", "drop-censored"])
    def test_in_one_hour_of_the_week_count_as_one_bin(self, model):
        hour = np.arange(15 * 24) % 168 == 40
        estimate = estimate_zone(self.emptied(hour), DemandModel(model, draws=50))
        assert estimate.rows["rate_mean"].max() < 25  # and not 5 pickups in half a minute: 600 an hour

    @pytest.mark.parametrize("model", ["weekly-mean", "exposure"])
    @pytest.mark.parametrize("share", [2, 1])
    def test_all_the_time_are_a_contradiction(self, model, share):
        panel = self.emptied(np.arange(15 * 24) % share == 0)
        with pytest.raises(InputError, match="pickups are in bins whose exposure says that nobody could be served"):
            estimate_zone(panel, DemandModel(model, draws=50))

    def test_all_the_time_are_one_whatever_the_length_of_bins(self):
        """A day of 23 hours made the median of the bins, by which half a minute was measured, another one."""
        panel = self.emptied(np.ones(15 * 24, dtype=bool))
        panel.loc[panel.index[5:], ["minutes", "stockout_minutes"]] = 61
        with pytest.raises(InputError, match="pickups are in bins whose exposure says that nobody could be served"):
            estimate_zone(panel, DemandModel("weekly-mean", draws=50))

    def test_with_netted_supply_that_is_unknown_are_none(self):
        panel, _, _ = make_panel(days=15, seed=6)
        panel["evidence"] = "netted"
        known = estimate_zone(panel, DemandModel("weekly-mean", draws=50)).rows
        gone = np.arange(15 * 24) < 48
        panel.loc[gone, ["exposure", "available_minutes", "stockout_minutes", "closed_minutes"]] = 0
        panel.loc[gone, ["unknown_minutes", "observed"]] = [60, 5]
        panel.loc[gone, "evidence"] = "trips"
        rows = estimate_zone(panel, DemandModel("weekly-mean", draws=50)).rows
        assert (rows.loc[gone, "exposure"] == 0).all()
        assert rows["rate_mean"].mean() == pytest.approx(known["rate_mean"].mean(), rel=0.1)

    def test_all_the_time_do_not_concern_models_of_labels(self):
        panel = self.emptied(np.arange(15 * 24) % 2 == 0)
        assert np.isfinite(estimate_zone(panel, DemandModel("cgp", draws=50)).rows["rate_mean"]).all()


class TestOddPanels:
    @pytest.mark.parametrize("given", [None, 5, {"zone": ["a"]}, [1, 2]])
    def test_what_is_no_panel_is_named(self, given):
        with pytest.raises(InputError, match=f"expected a panel's file, .* got {type(given).__name__}"):
            LatentDemand("weekly-mean").fit(given, executor=serially)

    def test_polars_and_arrow_frames_are_panels(self):
        polars = pytest.importorskip("polars")
        model = LatentDemand("weekly-mean", draws=20)
        expected = model.fit(PANEL, executor=serially).demand()
        for frame in (polars.from_pandas(PANEL), polars.from_pandas(PANEL).to_arrow()):
            pd.testing.assert_frame_equal(model.fit(frame, executor=serially).demand(), expected)

    @pytest.mark.parametrize(
        ("column", "value", "words"),
        [
            ("start_local", pd.NaT, "^panel: some rows have no start_local"),
            ("minutes", np.nan, "^panel: minutes must be the length of the bin.* some rows have nan"),
            ("minutes", np.inf, "^panel: minutes must be the length of the bin.* some rows have inf"),
            ("minutes", 0.25, "^panel: minutes must be the length of the bin.* some rows have 0.25"),
        ],
    )
    def test_bins_without_a_time_or_a_length_are_refused(self, column, value, words):
        panel = PANEL.astype({"minutes": float})
        panel.loc[9, column] = value
        with pytest.raises(InputError, match=words):
            LatentDemand("weekly-mean").fit(panel, executor=serially)

    def test_a_column_that_a_horizon_adds_is_named(self):
        with pytest.raises(InputError, match="'future' is the name of a column that is computed"):
            LatentDemand("weekly-mean", horizon="1d").fit(PANEL.assign(future=False), executor=serially)

    def test_holidays_in_words_are_refused(self):
        with pytest.raises(InputError, match="holiday must be true or false"):
            estimate_zone(PANEL.assign(holiday="yes"), DemandModel("weekly-mean"))


@pytest.mark.parametrize(
    ("option", "value"),
    [("draws", 40.5), ("draws", None), ("seed", "a"), ("walk", None), ("walk", "ab")],
)
def test_settings_of_another_kind_are_named(option, value):
    with pytest.raises(InputError, match=f"^{option}"):
        LatentDemand("weekly-mean", **{option: value})


def test_a_model_that_is_no_name_is_refused():
    with pytest.raises(InputError, match="no model"):
        LatentDemand(["cgp"])


def test_labels_are_true_or_false():
    panel, _, _ = make_panel(days=15, seed=6)
    panel["censored"] = np.where(panel["censored"], 1, -1)  # -1 is a bound from above, of which a panel has none
    with pytest.raises(InputError, match="censored must be true or false"):
        estimate_zone(panel, DemandModel("cgp", draws=50))


def test_gaps_in_a_covariate_are_told_and_leave_the_frame_as_it_was():
    panel, _, _ = make_panel(days=15, seed=7)
    panel.loc[10:12, "rain"] = np.nan
    before = panel.copy()
    estimate = estimate_zone(panel, DemandModel("weekly-mean", draws=50))
    pd.testing.assert_frame_equal(panel, before)
    assert estimate.summary["covariate_gaps_filled"] == 3
    assert (estimate.rows.loc[10:12, "flags"] == "covariate-missing").all()


def test_holidays_are_sundays_in_the_weekly_pattern():
    panel, _, _ = make_panel(days=15)
    monday = panel["start"].dt.date == panel["start"].dt.date.iloc[0]
    panel.loc[monday, "holiday"] = True
    inputs = zone_data(panel).inputs
    assert (inputs["week"][monday.to_numpy()].between(6, 7, inclusive="left")).all()


def test_the_kernel_grows_with_what_the_data_can_tell():
    short, long = zone_data(make_panel(days=10)[0]), zone_data(make_panel(days=100)[0])
    assert "period=7.0" not in repr(demand_kernel(short))
    assert "lengthscale=90.0" in repr(demand_kernel(long))
    assert "x:rain" in repr(demand_kernel(short))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda p: p.drop(columns="exposure"), "lacks the columns exposure"),
        (lambda p: p.assign(zone=["a", "b"] * (len(p) // 2)), "rows of one zone"),
        (lambda p: p.iloc[:0], "rows of one zone"),
        (
            lambda p: p.assign(exposure=0.0, observed=np.nan, **NOTHING_KNOWN),
            "has no record",
        ),
        (
            lambda p: p.assign(exposure=0.0, observed=1.0, evidence="trips", **NOTHING_KNOWN),
            r"Its [\d,]+ pickups are recorded, but its supply is unknown in every bin, .* Give its status",
        ),
        (
            lambda p: p.assign(exposure=0.0, observed=np.nan, **NOTHING_KNOWN).assign(
                future=p.index > 900, unknown_minutes=np.where(p.index > 900, 0, 60)
            ),
            "has no record",
        ),
        (lambda p: p.assign(exposure=0.0, observed=0), "No bin had anything to rent"),
        (lambda p: p.assign(observed=1e8), r"observed must be 0 to 10,000,000, or missing"),
        (lambda p: p.assign(available_minutes=500), "unknown_minutes must sum to minutes"),
        (lambda p: p.assign(minutes=np.nan), "unknown_minutes must sum to minutes"),
    ],
)
def test_what_cannot_be_estimated_is_refused_with_the_reason(spoil, message):
    with pytest.raises(InputError, match=message):
        estimate_zone(spoil(PANEL), DemandModel("weekly-mean"))


def test_tobit_refuses_an_hour_that_ran_out_every_time_with_the_models_words():
    panel, _, _ = make_panel(days=15, seed=5)
    nine = (panel["start"].dt.hour == 9) & (panel["start"].dt.day_of_week < 5)
    panel.loc[nine, ["available_minutes", "stockout_minutes"]] = 30
    panel.loc[nine, "exposure"], panel.loc[nine, "censored"] = 0.5, True
    with pytest.raises(NumericalError, match=r"'hour_9'.*coefficients diverge"):
        estimate_zone(panel, DemandModel("tobit", draws=50))


def test_unknown_models_and_too_few_draws_are_refused():
    with pytest.raises(InputError, match="no model 'magic'; expected one of exposure"):
        DemandModel("magic")
    with pytest.raises(InputError, match="draws"):
        DemandModel(draws=3)


def test_a_bin_without_a_record_in_the_past_is_unobserved_not_future():
    panel, _, _ = make_panel(days=15, seed=7)
    panel["observed"] = panel["observed"].astype(float)
    panel.loc[40, "observed"] = np.nan
    rows = estimate_zone(panel, DemandModel("weekly-mean", draws=50)).rows
    assert rows.loc[40, "flags"] == "unobserved"
    assert not rows["flags"].str.contains("future").any()
    assert rows.loc[40, "demand_mean"] > 0


@pytest.fixture(scope="module")
def two_zones():
    """Two zones in New York up to two days before the clocks go back, and weather that reaches beyond them."""
    start = pd.date_range("2020-10-08 04:00", periods=23 * 24, freq="h", tz="UTC")
    local = start.tz_convert("America/New_York").tz_localize(None)
    frames = []
    for zone in ("a", "b"):
        panel, _, _ = make_panel(days=23, seed=len(frames))
        panel["zone"], panel["start"], panel["start_local"] = zone, start, local
        frames.append(panel.drop(columns=["holiday", "rain"]))
    hours = pd.date_range(start[0], periods=30 * 24, freq="h")
    weather = pd.DataFrame({"time": hours, "rain": np.random.default_rng(3).gamma(1.0, size=len(hours))})
    return pd.concat(frames, ignore_index=True), weather


def test_latent_demand_takes_a_frame_and_leaves_it_as_it_was(two_zones):
    panel, weather = two_zones
    before = panel.copy()
    model = LatentDemand("weekly-mean", draws=50, weather=weather, timezone="America/New_York", holidays="US")
    result = model.fit(panel, executor=serially)
    pd.testing.assert_frame_equal(panel, before)
    rows = result.demand()
    assert list(rows.columns) == COLUMNS
    assert len(rows) == len(panel)
    lone = estimate_zone(panel[panel["zone"] == "a"], DemandModel("weekly-mean", draws=50)).rows
    assert np.allclose(rows[rows["zone"] == "a"]["demand_mean"], lone["demand_mean"])
    assert result.info["provenance"]["holidays"] == "US"


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("minutes", 30, "60 minutes from 2020-10-08 05:00.* in zone 'a', but 30 minutes from .* in zone 'b'"),
        ("start_local", pd.Timestamp("2020-10-08 07:00"), "05:00.* in zone 'a', but .* 07:00.* in zone 'b'"),
    ],
)
def test_zones_that_disagree_about_a_bin_are_named_with_its_start(two_zones, column, value, said):
    panel = two_zones[0].copy()
    panel.loc[(panel["zone"] == "b") & (panel["start"] == "2020-10-08 09:00+00:00"), column] = value
    with pytest.raises(InputError, match=f"2020-10-08 09:00:00.*{said}"):
        LatentDemand("weekly-mean", draws=50).fit(panel, executor=serially)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: p.assign(start_local=p["start_local"].iloc[0]), "start_local must be the local time of start"),
        (lambda p: p.assign(observed=p["observed"] + 1j), "cannot be read as the rows of a panel: .*complex128"),
        (lambda p: p.assign(start=p["start_local"].dt.to_period("h")), "cannot be read as the rows of a panel: "),
        (lambda p: p[[]], "cannot be read as the rows of a panel: "),
    ],
)
def test_frames_that_are_no_panel_are_refused_with_a_sentence(two_zones, change, said):
    with pytest.raises(InputError, match=said):
        LatentDemand("weekly-mean", draws=50).fit(change(two_zones[0]), executor=serially)


@pytest.mark.parametrize("setting", ["horizon", "holidays"])
def test_settings_that_are_no_text_are_refused_with_a_sentence(two_zones, setting):
    with pytest.raises(InputError, match="5"):
        LatentDemand("weekly-mean", draws=50, **{setting: 5}).fit(two_zones[0], executor=serially)


def test_latent_demand_keeps_its_run_where_a_folder_is_named(two_zones, tmp_path):
    panel, _ = two_zones
    model = LatentDemand("weekly-mean", draws=50)
    kept = model.fit(panel, tmp_path / "run", executor=serially)
    assert kept.rows is None
    assert (tmp_path / "run" / "totals.parquet").is_file()
    pd.testing.assert_frame_equal(kept.demand(), model.fit(panel, executor=serially).demand())


def test_the_executor_of_the_model_works_unless_a_call_names_another(two_zones):
    panel, _ = two_zones
    used = []

    def noting(name):
        def executor(*args, **options):
            used.append(name)
            return serially(*args, **options)

        return executor

    model = LatentDemand("weekly-mean", draws=50, executor=noting("model"))
    expected = model.fit(panel).demand()
    assert set(used) == {"model"}
    pd.testing.assert_frame_equal(model.fit(panel, executor=noting("call")).demand(), expected)
    assert set(used) == {"model", "call"}


def test_bins_still_to_come_follow_the_wall_clock_and_have_their_weather(two_zones, tmp_path):
    panel, weather = two_zones
    made = tmp_path / "panel.parquet"
    summary = json.dumps({"timezone": "America/New_York"})
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", panel)
        connection.execute(f"COPY rows TO '{made}' (FORMAT parquet, KV_METADATA {{'unmet.summary': '{summary}'}})")
    model = LatentDemand("weekly-mean", draws=50, weather=weather, horizon="3d")
    rows = model.fit(made, executor=serially).demand()
    ahead = rows[(rows["zone"] == "a") & rows["flags"].str.contains("future")]
    assert len(ahead) == 73  # one of the three days has 25 hours
    assert not ahead["flags"].str.contains("covariate-missing").any()
    # On 1 November 2020 the hour from one to two comes twice: both take the rate of that hour of a Sunday.
    local = ahead["start"].dt.tz_convert("America/New_York")
    twice = ahead[(local.dt.day == 1) & (local.dt.hour == 1)]
    assert len(twice) == 2
    seen = rows[rows["zone"] == "a"].set_index("start")
    before = seen.loc[pd.Timestamp("2020-10-25 05:00", tz="UTC"), "rate_mean"]  # that hour, a week earlier
    assert np.allclose(twice["rate_mean"], before)


def test_what_is_odd_about_the_weather_is_told(two_zones):
    panel, weather = two_zones
    notes = []
    again = pd.concat([weather, weather.iloc[:3]], ignore_index=True)  # three readings come twice
    model = LatentDemand("weekly-mean", draws=50, weather=again, timezone="America/New_York", horizon="14d")
    rows = model.fit(panel, executor=serially, tell=notes.append).demand()
    assert any(note.startswith("No rain for ") and "usual value of the season" in note for note in notes)
    unknown = rows["start"] > weather["time"].max().tz_convert("UTC") + pd.Timedelta(hours=1)
    assert (rows["flags"].str.contains("covariate-missing") == unknown).all()
    with open_panel_of(panel) as file:
        frame = bin_features(file, weather=weather, timezone="America/New_York", horizon=14 * 24).frame
    assert np.isfinite(frame["rain"]).all()
    assert frame["weather_usual"].sum() > 24
    assert frame.loc[frame["weather_usual"], "rain"].between(0, weather["rain"].max()).all()
    assert any("3 rows" in note for note in notes)


def test_rows_of_the_weather_that_are_not_used_are_warned_of_if_nobody_is_told(two_zones):
    panel, weather = two_zones
    odd = weather.assign(time=weather["time"].astype(str))
    odd.loc[:4, "time"] = "yesterday"
    model = LatentDemand("weekly-mean", draws=50, weather=odd, timezone="America/New_York")
    with pytest.warns(UninformativeWarning, match=r"Weather, rejected: .*, 5 rows") as caught:
        model.fit(panel, executor=serially)
    assert len(caught) == 1
    notes = []
    model.fit(panel, executor=serially, tell=notes.append)  # a warning would be an error here
    assert str(caught[0].message) in notes


def test_only_the_chosen_weather_is_used_and_it_is_told(two_zones):
    panel, weather = two_zones
    more = weather.assign(wind=np.arange(len(weather)), snow=0.0, sky="clear")
    notes = []
    model = LatentDemand("weekly-mean", draws=50, weather=more, timezone="UTC")
    every = model.fit(panel, executor=serially, tell=notes.append)
    assert every.info["provenance"]["weather_columns"] == ["rain", "wind"]
    assert "Weather columns: rain, wind." in notes
    assert any("same in every bin" in note and "snow: not used" in note for note in notes)
    assert "Weather, noted: column without numbers, not used. sky" in notes
    chosen = replace(model, weather_columns=["wind"])
    with open_panel_of(panel) as file:
        frame = bin_features(file, weather=more, weather_columns=["wind"], timezone="UTC").frame
    assert "wind" in frame
    assert not {"rain", "snow"} & set(frame)
    notes.clear()
    result = chosen.fit(panel, executor=serially, tell=notes.append)
    assert notes == ["Weather columns: wind."]  # what is odd about the others does not matter
    assert result.info["provenance"]["weather_columns"] == ["wind"]
    assert result.info["inputs"]["features"] != every.info["inputs"]["features"]


def test_weather_that_is_not_there_cannot_be_chosen(two_zones):
    panel, weather = two_zones
    model = LatentDemand("weekly-mean", draws=50, weather=weather, weather_columns=["Rain"], timezone="UTC")
    with pytest.raises(InputError, match=r"no column of numbers 'Rain' in .*; found: 'rain'"):
        model.fit(panel, executor=serially)
    with pytest.raises(InputError, match="columns were given, but no weather"):
        LatentDemand(weather_columns=["rain"]).fit(panel, executor=serially)


@contextmanager
def open_panel_of(frame):
    with tempfile.TemporaryDirectory() as folder:
        write_parquet(frame, Path(folder) / "panel.parquet")
        with open_panel(Path(folder) / "panel.parquet") as file:
            yield file


def test_a_panel_in_memory_knows_its_time_zone(tmp_path):
    city = simulate_city(stations=2, days=15, seed=3)
    place = city.save(tmp_path / "city")
    files = (place / name for name in ("trips.parquet", "status.parquet", "stations.csv"))
    made = build_panel(*files, timezone="America/New_York")
    again = read_panel(made.save(tmp_path / "panel.parquet"))
    pd.testing.assert_frame_equal(again.panel, made.panel, check_dtype=False)
    assert again.summary == made.summary
    model = LatentDemand("weekly-mean", draws=50, weather=city.weather, horizon="1d")
    rows = model.fit(made, executor=serially).demand()
    pd.testing.assert_frame_equal(rows, model.fit(tmp_path / "panel.parquet", executor=serially).demand())
    assert rows["flags"].str.contains("future").sum() == 48


def test_an_unknown_model_is_refused_before_any_work():
    with pytest.raises(InputError, match="weekly-mean"):
        LatentDemand("magic")
