"""What all zones share, against a city whose curve is known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from toy_model import ToyModel, estimate_toy, toy_panel

from unmet._exceptions import InputError, NumericalError, UnmetError
from unmet._storage.parquet import write_parquet
from unmet.execution import serially
from unmet.kernels import Linear
from unmet.mobility.backtest import compare as backtests
from unmet.mobility.backtest.trials import blocks
from unmet.mobility.models import city as shareds
from unmet.mobility.models import city_curve as shared_curves
from unmet.mobility.models import zone_models
from unmet.mobility.models.city import CityModel, learn_city_from_rows, with_city
from unmet.mobility.models.city_curve import LEAST_ZONES
from unmet.mobility.models.zone_data import CITY_ERRORS, CITY_RATE, Hyperparameters, zone_data
from unmet.mobility.models.zone_estimate import DemandModel, estimate_zone
from unmet.mobility.panel.file import open_panel
from unmet.mobility.runs import run_estimates
from unmet.spreading import in_turn

ZONES, DAYS = 10, 42


@pytest.fixture(scope="module")
def truth() -> pd.DataFrame:
    """Bins, their weather, and how demand rises and falls in all zones."""
    start = pd.date_range("2024-01-01", periods=24 * DAYS, freq="h", tz="UTC")
    rng = np.random.default_rng(0)
    rain = np.repeat(rng.random(DAYS * 4) < 0.2, 6) * 1.0
    hour = start.hour.to_numpy()
    curve = np.cos(2 * np.pi * (hour - 17) / 24) - 0.6 * rain + 0.3 * np.sin(np.arange(len(start)) / 200)
    return pd.DataFrame({"start": start, "rain": rain, "curve": curve})


@pytest.fixture(scope="module")
def city(truth) -> list[pd.DataFrame]:
    """Zones that differ in level only; every other one runs out on most days in the busiest hours."""
    return [zone_rows(truth, number) for number in range(ZONES)]


def zone_rows(truth: pd.DataFrame, number: int) -> pd.DataFrame:
    rng = np.random.default_rng([1, number])
    rate = (0.5 + number) * np.exp(truth["curve"].to_numpy())
    count = rng.poisson(rate)
    exposure = np.ones(len(rate))
    if number % 2:
        busy = truth["start"].dt.hour.between(15, 20).to_numpy() & (rng.random(len(rate)) < 0.8)
        exposure[busy] = rng.uniform(0.0, 0.5, busy.sum())
    observed = rng.binomial(count, exposure)
    minutes = np.round(60 * exposure)
    frame = pd.DataFrame({"zone": f"z{number}", "start": truth["start"], "minutes": 60, "rain": truth["rain"]})
    frame["start_local"] = frame["start"].dt.tz_localize(None)
    frame["observed"] = observed.astype(float)
    frame["exposure"], frame["available_minutes"], frame["stockout_minutes"] = exposure, minutes, 60 - minutes
    return frame.assign(closed_minutes=0, unknown_minutes=0, censored=exposure < 1, truly=rate)


@pytest.fixture(scope="module")
def shared(city) -> CityModel:
    return learn_city_from_rows(drop_truth(city))


def off(found: pd.Series, truth: pd.DataFrame) -> np.ndarray:
    right = truth["curve"] - truth["curve"].mean()
    return (found - found.mean()).to_numpy() - right.to_numpy()


def drop_truth(city: list[pd.DataFrame]) -> list[pd.DataFrame]:
    return [rows.drop(columns="truly") for rows in city]


@pytest.mark.slow
def test_the_curve_is_that_which_made_the_trips_though_half_the_zones_run_out_when_it_is_highest(city, shared, truth):
    found = shared.curve
    assert (found["start"] == truth["start"]).all()
    assert np.sqrt(np.mean(off(found[CITY_RATE], truth) ** 2)) < 0.06
    seen = pd.concat(city).groupby("start")["observed"].sum()
    busy = truth["start"].dt.hour.between(15, 20).to_numpy()
    naive = off(np.log(seen.reset_index(drop=True) + 0.5), truth)
    assert naive[busy].mean() < -0.15
    assert abs(off(found[CITY_RATE], truth)[busy].mean()) < 0.03


@pytest.mark.slow
def test_good_and_bad_days_of_the_whole_city_are_left_out_and_do_not_bend_the_trend(truth):
    shock = np.repeat(np.random.default_rng(5).normal(0.0, 0.3, DAYS), 24)
    rows = [zone_rows(truth.assign(curve=truth["curve"] + shock), number) for number in range(ZONES)]
    found = learn_city_from_rows(drop_truth(rows)).curve
    by_day = pd.Series(off(found[CITY_RATE], truth)).groupby(truth["start"].dt.date.to_numpy()).mean()
    assert by_day.std() < 0.08  # without a term of their own: 0.12
    assert abs(np.corrcoef(by_day, shock[::24])[0, 1]) < 0.3  # 0.48


@pytest.mark.slow
def test_bins_to_come_have_a_curve_by_their_weather(city, truth):
    future = []
    for rows in drop_truth(city):
        ahead = rows["start"] >= truth["start"].iloc[-48]
        empty = {"observed": np.nan, "exposure": 0.0, "available_minutes": 0, "stockout_minutes": 0, "censored": False}
        future.append(
            rows.assign(**{name: rows[name].mask(ahead, value) for name, value in empty.items()}, future=ahead)
        )
    found = learn_city_from_rows(future).curve
    assert len(found) == len(truth)
    assert np.sqrt(np.mean(off(found[CITY_RATE], truth)[-48:] ** 2)) < 0.15
    # A trend may turn: a random walk from the last bin with records on.
    turn = found[CITY_ERRORS[-1]].to_numpy()
    assert not turn[:-48].any()
    assert np.square(turn[-48:]) == pytest.approx(0.15**2 * np.arange(1, 49) / 168)


def test_too_few_zones_share_nothing_and_neither_do_zones_without_trips(city):
    rows = drop_truth(city)
    assert learn_city_from_rows(rows[: LEAST_ZONES - 1]) is None
    assert learn_city_from_rows([zone.assign(observed=0.0) for zone in rows]) is None


@pytest.fixture
def short_search(monkeypatch) -> None:
    """For what holds wherever a search ends."""
    for module in (shareds, shared_curves):
        monkeypatch.setattr(module, "SEARCH_ITERATIONS", 2)


@pytest.mark.slow
def test_a_zone_that_cannot_be_read_does_not_keep_the_others_from_sharing(city, short_search):
    rows = drop_truth(city)
    broken = [rows[0].assign(zone="twice"), rows[0].drop(columns="exposure").assign(zone="lacking")]
    broken[0] = pd.concat([broken[0], broken[0]])
    for column, value in (("observed", 2.5), ("observed", -3.0), ("exposure", 1.7), ("exposure", np.nan)):
        broken.append(rows[0].assign(**{column: rows[0][column].where(rows[0].index != 5, value)}))
    assert learn_city_from_rows([*rows[:8], *broken]).to_dict() == learn_city_from_rows(rows[:8]).to_dict()


@pytest.mark.slow
def test_a_zone_of_few_trips_is_estimated_better_with_what_it_shares(city, shared):
    error = {}
    for name, known in (("alone", None), ("with all", shared)):
        found = estimate_zone(city[0].drop(columns="truly"), DemandModel(draws=20), known).rows
        error[name] = np.sqrt(np.mean(np.log(found["rate_mean"] / city[0]["truly"]) ** 2))
    assert error["with all"] < 0.85 * error["alone"]


@pytest.mark.slow
def test_what_a_trial_hides_does_not_come_in_by_way_of_the_other_zones(city, short_search, tmp_path):
    plan = backtests._Design({"exposure": backtests.MODELS["exposure"]}, ("held-out",), 1, 0.2, 0, 20)
    rows = drop_truth(city)
    hidden = backtests._trial(rows[0], "held-out", 0, plan).scored
    changed = [zone.assign(observed=zone["observed"].where(~hidden, 99.0)) for zone in rows]
    weeks = blocks(zone_data(rows[0]), 7)[hidden]
    assert len(set(weeks)) == 1  # a whole week of the six

    def known(city: list[pd.DataFrame], name: str) -> dict[str, Any]:
        write_parquet(pd.concat(city, ignore_index=True), tmp_path / name)
        with open_panel(tmp_path / name) as file:
            return backtests._learn_cities(file, plan, lambda *told: None, in_turn)["held-out", 0].to_dict()

    assert known(rows, "a.parquet") == known(changed, "b.parquet")


@pytest.mark.slow
def test_what_zones_share_comes_back_from_json_to_the_last_digit(shared):
    back = CityModel.from_dict(json.loads(json.dumps(shared.to_dict())))
    pd.testing.assert_frame_equal(back.curve, shared.curve)
    assert back.hyperparameters == shared.hyperparameters


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": {"kind": "os.system"}},
        {"kernel": {"kind": "Linear", "parameters": [1]}},
        {"start": ["x"]},
        {"dispersion": None},
        {"curve": {}},
        {"curve": []},
    ],
)
def test_what_is_not_a_description_of_it_is_refused(shared, change):
    with pytest.raises(UnmetError):
        CityModel.from_dict({**shared.to_dict(), **change})


def test_zones_that_differ_in_level_only_teach_that_they_hardly_differ_otherwise(shared):
    variances = {
        str(leaf.columns): float(leaf.parameters["variance"].array[0])
        for leaf in shared.hyperparameters.kernel.leaves()
        if "variance" in leaf.parameters and not leaf.parameters["variance"].fixed
    }
    assert variances
    assert max(variances.values()) < 0.01  # log-rates: a tenth
    assert shared.hyperparameters.dispersion < 0.02  # they are Poisson counts


def test_a_dispersion_that_is_not_known_widens_the_systems_total_more_than_it_would_if_zones_were_off_each_its_own_way(
    city, shared
):
    def total(sd: float, number: int) -> np.ndarray:
        learnt = replace(shared.hyperparameters, dispersion=0.5, dispersion_sd=sd)
        rows = city[number].drop(columns="truly")
        rows["observed"] += 10.0 * rows["censored"]  # it ran out because more came than usual
        return estimate_zone(rows, DemandModel(draws=400), replace(shared, hyperparameters=learnt)).lost.sum(axis=0)

    known, unknown = (np.array([total(sd, number) for number in (5, 7, 9)]) for sd in (0.0, 0.5))
    assert unknown.sum(axis=0).std() > 1.05 * known.sum(axis=0).std()
    assert np.corrcoef(unknown)[np.triu_indices(3, 1)].min() > np.corrcoef(known)[np.triu_indices(3, 1)].max()


def test_the_parts_of_a_rate_that_zones_share_give_the_spread_of_their_sum_as_joint_draws_do(city, shared, monkeypatch):
    draws = []
    sample = zone_models._rate_draws

    def keep(*arguments):
        draws.append(sample(*arguments)[0])
        return sample(*arguments)

    monkeypatch.setattr(zone_models, "_rate_draws", keep)
    rows = [estimate_zone(zone, DemandModel(), shared).rows for zone in drop_truth(city)]
    names = [name for name in rows[0].columns if name.startswith("rate_shared_")]
    parts = np.array([own[names] for own in rows])
    variances = np.array([own["rate_sd"] ** 2 for own in rows])
    joint = np.sum(draws, axis=0).std(axis=0)
    found = np.sqrt((variances - np.square(parts).sum(axis=2)).sum(axis=0) + np.square(parts.sum(axis=0)).sum(axis=1))
    assert abs(np.median(found / joint) - 1) < 0.05
    # The sum of variances, as if zones had no error in common, is far from it here.
    assert np.median(np.sqrt(variances.sum(axis=0)) / joint) < 0.8


def test_a_zone_with_most_of_the_citys_trips_and_one_with_a_longer_record_are_estimated_by_themselves(city, shared):
    rows = city[0].drop(columns="truly")
    busy = zone_data(rows.assign(observed=rows["observed"] + 100))
    assert with_city(busy, shared) is busy
    early = rows.iloc[:1].assign(start=rows["start"].iloc[0] - pd.Timedelta(hours=1))
    early["start_local"] -= pd.Timedelta(hours=1)
    longer = zone_data(pd.concat([early, rows]))
    assert with_city(longer, shared) is longer


@pytest.mark.slow
def test_a_covariate_that_differs_between_zones_is_not_taken_for_the_citys(city, short_search):
    rows = drop_truth(city)[:8]
    promoted = [zone.assign(promo=float(number % 2) + zone.index % 2) for number, zone in enumerate(rows)]
    without, found = learn_city_from_rows(rows), learn_city_from_rows(promoted)
    pd.testing.assert_frame_equal(found.curve, without.curve)
    assert "x:promo" in repr(found.hyperparameters.kernel)  # each zone may still explain itself by it


@pytest.mark.slow
def test_a_covariate_of_whole_numbers_is_the_citys_though_some_zone_has_it_as_fractions(city, short_search):
    rows = drop_truth(city)[:8]
    mixed = [zone.assign(rain=zone["rain"].astype(int)) if number else zone for number, zone in enumerate(rows)]
    pd.testing.assert_frame_equal(learn_city_from_rows(mixed).curve, learn_city_from_rows(rows).curve)


@pytest.mark.slow
def test_the_rate_of_bins_to_come_is_as_uncertain_as_the_trend_of_the_city(truth):
    day = np.arange(len(truth)) / 24
    rng = np.random.default_rng(3)
    cov = 0.09 * np.exp(-0.5 * ((day[::24, None] - day[None, ::24]) / 12.0) ** 2) + 1e-8 * np.eye(DAYS)
    inside = []
    for _ in range(2):
        trend = np.repeat(rng.multivariate_normal(np.zeros(DAYS), cov), 24)
        moved = truth.assign(curve=truth["curve"] + trend)
        ahead = truth["start"] >= truth["start"].iloc[24 * (DAYS - 14)]
        rows = [zone_rows(moved, number) for number in range(8)]
        empty = {"observed": np.nan, "exposure": 0.0, "available_minutes": 0, "stockout_minutes": 0, "censored": False}
        known = [
            zone.assign(**{name: zone[name].mask(ahead, value) for name, value in empty.items()}, future=ahead)
            for zone in rows
        ]
        shared = learn_city_from_rows(drop_truth(known))
        for number in (2, 6):
            found = estimate_zone(known[number].drop(columns="truly"), DemandModel(draws=20), shared).rows
            right = rows[number]["truly"].to_numpy()
            inside.append(((found["rate_q05"] <= right) & (right <= found["rate_q95"]))[ahead].mean())
    assert np.mean(inside) > 0.7  # with a curve taken for known: 0.4


def test_a_zone_that_lacks_a_covariate_of_the_others_is_learnt_by_itself(city, shared):
    rows = city[0].drop(columns="truly")
    dry = with_city(zone_data(rows.assign(rain=0.0)), shared)
    assert dry.hyperparameters is None
    assert dry.inputs[CITY_RATE].any()
    assert with_city(zone_data(rows), shared).hyperparameters == shared.hyperparameters
    assert estimate_zone(rows.assign(rain=0.0), DemandModel(draws=20), shared).summary["converged"]


def learn_once(log):
    def learn(zones, spread):
        log.append(len(list(zones)))
        start = toy_panel()["start"].drop_duplicates()
        curve = pd.DataFrame({"start": start, CITY_RATE: 1.0}).assign(**dict.fromkeys(CITY_ERRORS, 0.0))
        return CityModel(curve, Hyperparameters(Linear(2.0, columns=CITY_RATE), 0.1), trips=1000.0)

    return learn


def estimate_seeing(rows, model, city=None):
    if city is None or not (city.curve[CITY_RATE] == 1.0).all():
        raise InputError("without the city's curve")
    if city.hyperparameters.kernel != Linear(2.0, columns=CITY_RATE):
        raise InputError("without the city's hyper-parameters")
    if rows["zone"].iloc[0] == "z3" and model.trouble:
        raise MemoryError
    return estimate_toy(rows, ToyModel())


def test_a_run_works_out_what_is_shared_once_though_it_is_interrupted(tmp_path):
    log = []

    def stop_at_the_second(function, items, jobs):
        for number, item in enumerate(items):
            if number == 2:
                raise KeyboardInterrupt
            yield item, function(item)

    options = {"estimate": estimate_seeing, "learn_city": learn_once(log), "chunk": 1}
    with pytest.raises(KeyboardInterrupt):
        run_estimates(toy_panel(), ToyModel(), tmp_path, executor=stop_at_the_second, **options)
    done = run_estimates(toy_panel(), ToyModel(), tmp_path, executor=serially, **options)
    assert log == [6]
    assert not done.failures
    assert done.info["costs"]["cpu_seconds_city"] == 0.0  # that was before
    assert done.info["zones"]["finished_before"] == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"junk",
        lambda text: text[:-20],
        lambda text: text.replace(b"1.0", b"1.5"),
        lambda text: b"[" * 100_000,
        lambda text: b'{"seal": 1, "body": 2}',
    ],
    ids=["junk", "cut", "another number", "deep", "no text"],
)
def test_what_was_damaged_on_disk_is_learnt_again(damage, tmp_path):
    log = []
    options = {"estimate": estimate_seeing, "learn_city": learn_once(log), "chunk": 1}

    def stop_at_once(function, items, jobs):
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        run_estimates(toy_panel(), ToyModel(), tmp_path, executor=stop_at_once, **options)
    (kept,) = tmp_path.glob(".parts/*/city.json")
    kept.write_bytes(damage(kept.read_bytes()))
    done = run_estimates(toy_panel(), ToyModel(), tmp_path, executor=serially, **options)
    assert not done.failures
    assert len(log) == 2
    assert any("damaged" in note for note in done.info["notes"])


def test_where_it_cannot_be_learnt_each_zone_is_estimated_by_itself_and_that_is_told(tmp_path):
    def learn(zones, spread):
        raise NumericalError("no such matrix")

    done = run_estimates(toy_panel(), ToyModel(), tmp_path, estimate=estimate_toy, learn_city=learn, executor=serially)
    assert not done.failures
    assert any("no such matrix" in note and "by itself" in note for note in done.info["notes"])
