"""The city as one: shocks of known law, walkers of known paths, and accounts that add up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from known_city import known_panel, true_rate

from unmet import FileFormatError, InputError
from unmet.inference.ep import Sites, expectation_propagation
from unmet.likelihoods.base import Observations
from unmet.likelihoods.counts import Poisson
from unmet.mobility.models import joint, joint_city, shock_law
from unmet.mobility.models.factors import city_factor, local_factor, usual_rate
from unmet.mobility.models.joint import join_city
from unmet.mobility.models.joint_city import JointCity, hours_of_day
from unmet.mobility.models.shock_law import (
    ShockLaw,
    law_evidence,
    learn_law,
    own_dispersion,
    refine_law,
    spatial_features,
)
from unmet.mobility.models.shock_stretches import Pairs
from unmet.mobility.models.shocks import estimate_shocks, refine_dispersion
from unmet.mobility.models.surroundings import rough_rates, walks_between
from unmet.mobility.models.walking import DEFAULT_WALKING, NO_WALKING, PRIOR_SD, Walking
from unmet.mobility.models.zone_data import zone_data
from unmet.mobility.models.zone_table import ZoneTable, table_of
from unmet.mobility.zones.distance import metres_between

LAW = ShockLaw(city_variance=0.06, city_hours=5.0, local_variance=0.08, local_hours=4.0, local_metres=600.0)
WALKING = Walking.from_values(np.array([0.5, 0.35, 0.2, 0.1, 0.03]))


def simulated(seed: int, zones: int = 20, bins: int = 1000, *, law: ShockLaw = LAW, walking: Walking = WALKING):
    """Counts of zones with shocks and walkers; a sixth of the zone-hours are out, in spells, whatever the demand."""
    rng = np.random.default_rng(seed)
    place = rng.uniform(0, 1500, (zones, 2))
    metres = np.hypot(*np.subtract.outer(place, place).transpose(1, 3, 0, 2)[[0, 1], [0, 1]])
    h = np.zeros((zones, bins))
    for variance, hours, near in (
        (law.city_variance, law.city_hours, np.ones((zones, zones))),
        (law.local_variance, law.local_hours, np.exp(-metres / law.local_metres)),
    ):
        root = np.linalg.cholesky(near + 1e-9 * np.eye(zones)) * np.sqrt(variance)
        decay = np.exp(-1 / hours)
        now = root @ rng.standard_normal(zones)
        for t in range(bins):
            h[:, t] += now
            now = decay * now + np.sqrt(1 - decay**2) * (root @ rng.standard_normal(zones))
    slot = np.arange(bins) % 168
    usual = np.log(rng.uniform(1, 6, (zones, 1)) * (1 + 0.5 * np.sin(2 * np.pi * (slot / 24 + rng.random((zones, 1))))))
    out = np.repeat(rng.random((zones, bins // 4 + 1)) < 0.17, 4, axis=1)[:, :bins]
    exposure, rate = np.where(out, 0.0, 1.0), np.exp(usual + h)
    walks = walks_between(exposure, 1 - exposure, metres)
    walkers = walks.background(walking, rate)
    observed = rng.poisson(exposure * rate + walkers).astype(float)
    start = pd.date_range("2024-01-01", periods=bins, freq="h", tz="UTC")
    table = ZoneTable(
        tuple(f"z{i}" for i in range(zones)),
        start,
        observed,
        exposure,
        1 - exposure,
        usual + 0.5 * law.variance,
        np.zeros(usual.shape),
        usual + 0.5 * law.variance,
        np.zeros((zones, 2)),
        metres,
        1.0,
        slot,
        np.full(observed.shape, np.nan),
    )
    return table, h, rate, walkers


def test_the_law_is_found_in_the_residuals() -> None:
    found = []
    for seed in range(3):
        table, _, _, _ = simulated(seed, bins=3000, walking=NO_WALKING)
        expected = np.where(table.exposure > 0, np.exp(table.log_rate), np.nan)
        observed = np.where(table.exposure > 0, table.observed, np.nan)
        law = learn_law(observed, expected, table.metres)
        dispersion = own_dispersion(observed, expected, law)
        found.append([law.city_variance, law.city_hours, law.local_variance, law.local_hours, law.local_metres])
        assert (dispersion < 0.05).all()  # all of the spread is shared
    middle = np.median(found, axis=0)
    np.testing.assert_allclose(middle, [0.06, 5.0, 0.08, 4.0, 600.0], rtol=0.5)


def test_derivatives_of_the_evidence_by_the_law_equal_finite_differences() -> None:
    rng = np.random.default_rng(0)
    xy = rng.uniform(0, 1500, (6, 2))
    xy[1] = xy[0]  # two zones at one place
    metres = np.hypot(*(xy[:, None] - xy).T)
    metres[5, :5] = metres[:5, 5] = np.nan  # and one whose place is not known
    step, place = np.nonzero(rng.random((40, 6)) < 0.8)
    sites = Sites(rng.uniform(0.2, 3, len(step)), rng.normal(size=len(step)))
    given = (sites, place, step, rng.normal(size=len(step)), rng.uniform(0, 0.3, (6, 2)), 40, metres, 0.5)
    logs = np.log([0.04, 6.0, 0.09, 3.0, 700.0])

    def evidence(logs: np.ndarray) -> tuple[float, np.ndarray]:
        return law_evidence(ShockLaw(*np.exp(logs)), *given)

    for k, slope in enumerate(evidence(logs)[1]):
        up, down = (evidence(logs + sign * 1e-4 * np.eye(5)[k])[0] for sign in (1, -1))
        assert slope == pytest.approx((up - down) / 2e-4, rel=1e-5, abs=1e-7), k


@pytest.mark.slow
def test_the_evidence_leads_from_a_wrong_law_to_the_right_one() -> None:
    table, _, _, _ = simulated(5, zones=14, bins=900, walking=NO_WALKING)
    law, evidence = ShockLaw(0.01, 12.0, 0.02, 12.0, 1500.0), []
    for _ in range(4):
        usual = table.log_rate - 0.5 * law.variance
        found = estimate_shocks(table.observed, table.exposure, usual, None, law, table.metres, dispersion=0.0)
        y, exposure = (values[found.space.place, found.space.step] for values in (table.observed, table.exposure))
        ep = expectation_propagation(found.space, Poisson(), Observations(y, y, exposure), found.sites, tol=1e-3)
        evidence.append(ep.log_z)
        law = refine_law(law, found.space, found.sites, table.log_rate, table.apart_error, table.metres, 1.0)
    assert np.diff(evidence)[0] > 10
    assert (np.diff(evidence) > -0.5).all()  # up to EP's own error
    np.testing.assert_allclose(list(law.to_dict().values()), list(LAW.to_dict().values()), rtol=0.45)


def test_dispersion_beside_the_shocks_is_found_next_to_empty_zones_too() -> None:
    table, _, rate, walkers = simulated(3, zones=12, bins=600)
    spread = np.where(np.arange(12) < 6, 0.03, 0.12)[:, None]
    rng = np.random.default_rng(4)
    factor = rng.gamma(1 / spread, spread, rate.shape)
    observed = rng.poisson(factor * (table.exposure * rate + walkers)).astype(float)
    usual = table.log_rate - 0.5 * LAW.variance
    given = (observed, table.exposure, usual, walkers)
    shocks = estimate_shocks(*given, LAW, table.metres, dispersion=0.05)
    common, own = refine_dispersion(shocks, *given)
    assert 0.04 < common < 0.1
    np.testing.assert_allclose(own[6:].mean(), 0.12, rtol=0.25)
    assert own[:6].mean() < 0.6 * own[6:].mean()  # true: a quarter, shrunk to the value of all


def test_shocks_of_hidden_bins_are_found_and_their_intervals_hold() -> None:
    table, h, _, _ = simulated(4, walking=NO_WALKING)
    rng = np.random.default_rng(0)
    hidden = (table.exposure > 0) & (rng.random(table.exposure.shape) < 0.1)
    observed = np.where((table.exposure > 0) & ~hidden, table.observed, np.nan)
    exposure = np.where(hidden, 0.0, table.exposure)
    found = estimate_shocks(
        observed, exposure, table.log_rate - 0.5 * LAW.variance, None, LAW, table.metres, dispersion=0.0
    )
    error = (found.mean - h)[hidden]
    assert np.var(error) < 0.5 * np.var(h[hidden])
    assert 0.86 < np.mean(np.abs(error) < 1.645 * np.sqrt(found.var[hidden])) < 0.94
    # Without its own count, a bin is known less well than with it.
    seen = np.isfinite(observed)
    assert (found.left_out_var[seen] > found.var[seen]).all()


def few_features(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let components have a part of the local variance only."""
    monkeypatch.setattr(shock_law, "_FEATURES", count)
    monkeypatch.setattr(shock_law, "_WORK", 1.0)


@pytest.mark.parametrize("features", [60, 3], ids=["all features", "a part of them"])
def test_shocks_elsewhere_are_those_of_a_posterior_without_the_count(features: int, monkeypatch) -> None:
    few_features(monkeypatch, features)
    table, _, _, _ = simulated(6, zones=5, bins=12)
    zone, other = np.nonzero(~np.eye(5, dtype=bool))
    pairs = Pairs(zone, other, np.full(20, 7))
    given = (table.observed, np.ones((5, 12)), table.log_rate, None, LAW, table.metres)
    found = estimate_shocks(*given, dispersion=0.0, pairs=pairs)
    assert found.own.any() == (features == 3)
    space, sites = found.space, found.sites
    mean, var = found.elsewhere
    for row, (i, j) in enumerate(zip(zone, other, strict=True)):
        left_out = (space.place == j) & (space.step == 7)
        assert left_out.sum() == 1
        rest = Sites(np.where(left_out, 0.0, sites.tau), np.where(left_out, 0.0, sites.nu))
        without = space.marginals(rest)
        at = np.flatnonzero((space.place == i) & (space.step == 7))
        assert mean[row] == pytest.approx((without.mean - space.offset)[at[0]], abs=1e-9)
        assert var[row] == pytest.approx(without.var[at[0]], abs=1e-9)


def test_draws_of_shocks_have_their_mean_and_variance_whatever_components_leave_out(monkeypatch) -> None:
    few_features(monkeypatch, 4)
    table, _, _, _ = simulated(3, zones=10, bins=150)
    table.observed[2, 40:60] = np.nan  # bins without a count
    found = join_city(table, draws=1500, rounds=1)
    assert (found.own_var > 0.005).all()
    for i in (0, 2, 7):
        around = found.of(found.zones[i], found.start)
        assert around is not None
        error = np.sqrt(found.shock_var[i] / 1500)
        np.testing.assert_allclose(around.shock_draws.mean(axis=0), found.shock_mean[i], atol=5 * error.max())
        np.testing.assert_allclose(around.shock_draws.var(axis=0), found.shock_var[i], rtol=0.2)


def test_what_features_leave_out_keeps_the_variance_of_every_zone(monkeypatch) -> None:
    few_features(monkeypatch, 3)
    table, _, _, _ = simulated(1, zones=12, bins=10)
    features, _, own = spatial_features(LAW, table.metres, 1.0, 10)
    np.testing.assert_allclose(np.sum(features**2, axis=1) + own, LAW.variance)


@pytest.mark.slow
def test_walkers_are_found_beside_shocks() -> None:
    ratios = []
    for seed in range(3):
        table, _, _, walkers = simulated(seed, bins=600)
        city = join_city(table, draws=20)
        ratios.append(city.background.sum() / walkers.sum())
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.15)


@pytest.fixture(scope="module")
def city() -> tuple[ZoneTable, JointCity]:
    table, _, _, _ = simulated(7, zones=12, bins=400)
    return table, join_city(table, draws=30)


def test_a_curve_learnt_beside_shocks_is_known_less_well(monkeypatch) -> None:
    table, _, _, _ = simulated(7, zones=8, bins=150)
    found = join_city(table, draws=2, rounds=1).walking
    monkeypatch.setattr(joint, "_left_by_shocks", lambda *_: 1.0)
    held = join_city(table, draws=2, rounds=1).walking
    np.testing.assert_allclose(held.theta, found.theta)
    assert (np.diag(held.covariance) < np.diag(found.covariance)).all()


def test_draws_are_the_same_whether_remembered_or_not(city, monkeypatch) -> None:
    table, found = city
    for zone in table.zones:  # the draws of its neighbours are remembered
        found.of(zone, table.start)
    monkeypatch.setattr(joint_city, "_MOST_REMEMBERED", 0)
    again = replace(found)
    for zone in table.zones:
        one, other = found.of(zone, table.start), again.of(zone, table.start)
        np.testing.assert_array_equal(one.riders_on, other.riders_on)
        np.testing.assert_array_equal(one.riders_in, other.riders_in)
    assert len(again._splits) == 1


def test_accounts_add_up_draw_by_draw(city) -> None:
    table, found = city
    around = [found.of(zone, table.start) for zone in table.zones]
    on = sum(one.riders_on for one in around)
    came = sum(one.riders_in for one in around)
    np.testing.assert_array_equal(on.sum(axis=1), came.sum(axis=1))
    for i, one in enumerate(around):
        assert (one.riders_in <= table.observed[i]).all()
        assert not one.riders_on[:, table.stockout[i] == 0].any()
        assert ((one.walked_on >= 0) & (one.walked_on <= 1)).all()
        assert one.riders_in.mean(axis=0).sum() == pytest.approx(one.background.sum(), rel=0.35)


def test_it_describes_the_curve_and_the_days_that_were_unusual() -> None:
    table, _, _, _ = simulated(7, zones=12, bins=480, walking=NO_WALKING)
    odd = slice(10 * 24, 11 * 24)
    rng = np.random.default_rng(1)
    table.observed[:, odd] = rng.binomial(table.observed[:, odd].astype(int), 0.3)
    found = join_city(table, draws=20)
    local = (table.start + pd.Timedelta(hours=2)).tz_localize(None)
    told = found.describe(pd.DataFrame({"start": table.start, "start_local": local}))
    first = told["unusual_days"][0]
    assert first["day"] == "2024-01-11"
    assert -0.8 < first["change"] < -0.5
    assert told["walking"]["metres"][-1] == 700.0
    assert told["walking"]["chance"] == pytest.approx(found.walking.values.tolist())
    assert told["shocks"]["city_variance"] == found.law.city_variance


def test_a_zone_sees_the_same_alone_and_with_fewer_bins(city) -> None:
    table, found = city
    whole, part = found.of("z3", table.start), found.of("z3", table.start[50:150])
    np.testing.assert_array_equal(part.riders_in, whole.riders_in[:, 50:150])
    np.testing.assert_allclose(part.shock_draws, whole.shock_draws[:, 50:150])
    assert found.of("elsewhere", table.start) is None
    assert found.of("z3", table.start + pd.Timedelta("1min")) is None


def test_a_city_is_saved_whole(city, tmp_path: Path) -> None:
    table, found = city
    found.save(tmp_path / "city.npz")
    again = JointCity.load(tmp_path / "city.npz")
    one, other = found.of("z5", table.start), again.of("z5", table.start)
    for name, value in vars(one).items():
        np.testing.assert_array_equal(value, getattr(other, name))
    (tmp_path / "torn.npz").write_bytes((tmp_path / "city.npz").read_bytes()[:1000])
    with pytest.raises(FileFormatError, match="does not contain a saved city"):
        JointCity.load(tmp_path / "torn.npz")


def test_nobody_walks_where_it_is_said_so() -> None:
    table, _, _, _ = simulated(7, zones=12, bins=200)
    found = join_city(table, draws=20, walking=NO_WALKING)
    assert not found.background.any()
    assert not found.of("z0", table.start).riders_in.any()


def test_riders_that_the_fits_took_for_walkers_are_given_back_if_nobody_walks() -> None:
    table, _, _, _ = simulated(7, zones=8, bins=200, walking=NO_WALKING)
    far = Walking.from_values(np.array([0.9, 0.8, 0.7, 0.6, 0.5]))
    usual = (table.exposure * np.exp(table.log_rate)).sum()
    walks = walks_between(table.exposure, table.stockout, table.metres)
    rates = rough_rates(table.observed, table.exposure, table.slot)
    took = (table.exposure * walks.background(far, rates)).sum()
    assert took > 0.05 * usual
    fitted = replace(table, log_rate=table.log_rate + np.log(1 - took / usual))
    for start, low, high in ((far, 0.6, 1.0), (NO_WALKING, -0.01, 0.01)):  # levels of few riders are shrunk to 1
        found = join_city(fitted, draws=2, rounds=2, walking=NO_WALKING, start=start)
        own = (table.exposure * np.exp(fitted.log_rate + found.level[:, hours_of_day(table)])).sum()
        assert low < (own - (usual - took)) / took < high


def test_zones_whose_usual_rate_is_little_known_expect_as_many_riders_as_were_counted() -> None:
    table, _, rate, _ = simulated(5, zones=8, bins=600, walking=NO_WALKING)
    var = 0.3  # the same expected rates, from log-rates that are known less well
    unsure = replace(table, log_rate=table.log_rate - 0.5 * var, log_rate_var=np.full(table.log_rate.shape, var))
    found = join_city(unsure, draws=2, rounds=1, walking=NO_WALKING)
    assert found.own.sum() == pytest.approx(table.observed.sum(), rel=0.01)
    out = table.stockout > 0
    assert found.rate[out].sum() == pytest.approx(rate[out].sum(), rel=0.03)


def test_factors_are_one_in_a_city_as_usual_and_follow_the_city() -> None:
    rng = np.random.default_rng(0)
    zones, bins = 10, 168 * 8
    slot = np.arange(bins) % 168
    rate = rng.uniform(2, 9, (zones, 1)) * (1 + 0.5 * np.sin(slot / 24))
    busy = np.where(np.arange(bins) == 700, 3.0, 1.0)
    observed = rng.poisson(rate * busy).astype(float)
    exposure, metres = np.ones((zones, bins)), np.abs(np.subtract.outer(np.arange(zones), np.arange(zones))) * 300.0
    usual, whole = usual_rate(observed, exposure, slot), city_factor(observed, exposure, slot)
    assert usual.mean() == pytest.approx(observed.mean(), rel=0.01)
    assert whole[:, 700].sum() == pytest.approx(3 * rate[:, 700].sum(), rel=0.25)
    quiet = np.delete(np.arange(bins), 700)
    assert np.median(whole[:, quiet] / usual[:, quiet]) == pytest.approx(1.0, abs=0.03)
    local = local_factor(observed, exposure, slot, metres)
    assert local.shape == observed.shape
    hidden = np.where(np.arange(bins) == 700, np.nan, observed)
    hidden[1:] = observed[1:]
    assert city_factor(hidden, exposure, slot)[0, 700] > 1.8 * usual[0, 700]


def test_distances_are_those_of_the_globe() -> None:
    lat, lon = np.array([40.0, 41.0, np.nan]), np.array([-74.0, -74.0, -74.0])
    metres = metres_between(lat[:, None], lon[:, None], lat, lon)
    assert metres[0, 1] == pytest.approx(111_195, rel=1e-3)
    assert np.isnan(metres[0, 2])


def test_curves_that_rise_are_refused() -> None:
    with pytest.raises(InputError, match="chances of at least 0 and below 1 that do not rise"):
        Walking.from_values(np.array([0.1, 0.2, 0.3, 0.4, 0.5]))


def test_zones_without_places_are_joined_without_walkers() -> None:
    table = simulated(4, zones=4, bins=300)[0]
    apart = np.where(np.eye(4) > 0, 0.0, np.inf)
    found = join_city(replace(table, metres=apart), draws=2, rounds=1)
    assert not found.background.any()


def test_a_curve_that_no_record_tells_is_as_uncertain_as_its_prior() -> None:
    """It was the measured one of another system with no uncertainty: the page said 62% ± 0%."""
    table = simulated(4, zones=4, bins=300)[0]
    apart = np.where(np.eye(4) > 0, 0.0, 5000.0)
    found = join_city(replace(table, metres=apart), draws=2, rounds=1)
    assert np.diag(found.walking.covariance) == pytest.approx(np.full(5, PRIOR_SD**2))
    assert found.walking.sd()[0] > 0.05
    given = join_city(replace(table, metres=apart), draws=2, rounds=1, walking=DEFAULT_WALKING)
    assert not given.walking.covariance.any()


def test_trips_of_hours_without_status_are_no_shock():
    panel = known_panel(zones=8, days=14, stock=None).assign(evidence="status+trips")
    outage = panel["start"].dt.day == 9
    panel.loc[outage, ["available_minutes", "exposure"]] = 0
    panel.loc[outage, "unknown_minutes"] = 60
    zones = [zone_data(rows) for _, rows in panel.groupby("zone")]
    usual = {data.zone: np.log(true_rate(data.slot)) for data in zones}
    rates = {zone: (f, np.full(len(f), 0.01), f, np.zeros(2)) for zone, f in usual.items()}
    places = {data.zone: (40.0, -74.0 + 0.002 * i) for i, data in enumerate(zones)}
    found = join_city(table_of(zones, rates, places), draws=2, rounds=1)
    np.testing.assert_allclose(found.rate, [true_rate(zones[0].slot)] * 8, rtol=0.5)
