"""Walking on: chances against riders walked one by one; curves and their files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from walking_cities import TRUE, city

from unmet import FileFormatError, InputError
from unmet.mobility.demand import LatentDemand
from unmet.mobility.models.surroundings import walks_between
from unmet.mobility.models.walking import (
    DEFAULT_WALKING,
    KNOTS,
    NO_WALKING,
    Walking,
    Walks,
    read_curve,
)


def test_chances_equal_riders_walked_one_by_one() -> None:
    rng = np.random.default_rng(0)
    distance, available = np.array([120.0, 200.0, 320.0, 460.0]), np.array([0.5, 1.0, 0.0, 1.0])
    zero = np.zeros(4, dtype=int)
    walks = Walks(zero, np.arange(1, 5), zero, distance, np.ones(4), available)
    chance = walks.chances(DEFAULT_WALKING)
    riders = 200_000
    served, waiting = np.zeros(4), np.ones(riders, dtype=bool)
    for k in range(4):
        goes = waiting & (rng.random(riders) < DEFAULT_WALKING(distance[k])) & (rng.random(riders) < available[k])
        served[k], waiting = goes.sum(), waiting & ~goes
    np.testing.assert_allclose(chance, served / riders, atol=5 * np.sqrt(0.25 / riders))
    assert walks.walked_on(DEFAULT_WALKING, (5, 1))[0, 0] == pytest.approx(chance.sum())


def test_rows_in_any_order_give_the_same_background() -> None:
    walks, _, _ = city(0, zones=10, bins=20)
    rate = np.random.default_rng(1).uniform(1, 5, (10, 20))
    mixed = np.random.default_rng(2).permutation(len(walks))
    columns = (walks.source, walks.target, walks.bin, walks.distance, walks.out, walks.available)
    again = Walks(*(column[mixed] for column in columns))
    np.testing.assert_allclose(again.background(DEFAULT_WALKING, rate), walks.background(DEFAULT_WALKING, rate))
    assert not walks.background(NO_WALKING, rate).any()


def test_a_curve_is_read_from_a_file(tmp_path) -> None:
    path = tmp_path / "curve.csv"
    path.write_text("metres,chance\n300,0.0\n100,0.4\n", encoding="utf-8-sig")  # as Excel writes it
    assert read_curve(path) == pytest.approx((0.4, 0.3, 0.1, 0.0, 0.0))
    curve = Walking.from_values(np.array(read_curve(path)))
    # PCHIP by hand: slopes of the four intervals, their weighted harmonic mean at 150 and 250 m, and 0 at 350 m.
    s1, s2, s3 = -0.1 / 150, -0.002, -0.001
    at_150, at_250 = (350 + 400) / (350 / s1 + 400 / s2), 2 / (1 / s2 + 1 / s3)
    at_200, at_300 = 0.2 + 12.5 * (at_150 - at_250), 0.05 + 12.5 * at_250
    assert curve(np.array([0.0, 200.0, 300.0, 600.0])) == pytest.approx([0.4, at_200, at_300, 0.0])
    at = np.array([0.0, 220.0, 650.0])
    np.testing.assert_allclose(curve.draws(3, np.random.default_rng(0), at), np.tile(curve(at), (3, 1)), rtol=1e-14)
    unsure = replace(curve, theta=np.zeros(5), covariance=np.eye(5))
    drawn = unsure.draws(50, np.random.default_rng(1), at)
    noise = np.random.default_rng(1).multivariate_normal(np.zeros(5), np.eye(5), size=50, method="eigh")
    np.testing.assert_allclose(drawn, [Walking(theta)(at) for theta in noise], rtol=1e-12)


def test_decimal_commas_are_not_taken_for_another_column(tmp_path) -> None:
    (tmp_path / "curve.csv").write_text("metres,chance\n0,0,8\n300,0,3\n")  # a chance of 0 everywhere
    with pytest.raises(InputError, match=r"more fields than its header\. Write decimals with a point"):
        read_curve(tmp_path / "curve.csv")


def test_the_file_of_a_curve_may_be_a_path(tmp_path) -> None:
    (tmp_path / "curve.csv").write_text("metres,chance\n0,0.8\n300,0.3\n")
    assert LatentDemand(walk=tmp_path / "curve.csv").settings() == LatentDemand(walk=f"{tmp_path}/curve.csv").settings()


@pytest.mark.parametrize("model", ["weekly-mean", "cgp"])
def test_a_curve_is_refused_where_it_would_have_no_effect(model) -> None:
    with pytest.raises(InputError, match=f"walk: .* no effect on model {model}.* Leave it out"):
        LatentDemand(model, walk=(0.5, 0.3, 0.2, 0.1, 0.0))
    assert LatentDemand(model, walk="none").settings().walking() is NO_WALKING


def test_the_default_curve_has_the_measured_means_of_rings() -> None:
    measured = [0.40, 0.22, 0.11, 0.034, 0.003]
    for low, high, share in zip(KNOTS[:-1], KNOTS[1:], measured, strict=True):
        riders, _ = quad(lambda d: d * float(DEFAULT_WALKING(np.array([d]))[0]), low, high)
        assert riders / ((high**2 - low**2) / 2) == pytest.approx(share, abs=0.0006)


def test_a_convex_curve_between_its_knots_is_near_the_true_one() -> None:
    """The curve of simulated cities, given at the knots: straight lines between them are 24 % too high at 450 m."""

    def true(metres: np.ndarray) -> np.ndarray:
        return 0.54 * np.exp(-((metres / 220.0) ** 1.5))

    at = np.arange(0.0, 501.0, 5.0)
    np.testing.assert_allclose(Walking.from_values(true(KNOTS[:-1]))(at), true(at), rtol=0.05)
    assert np.interp(450.0, KNOTS[:-1], true(KNOTS[:-1])) > 1.2 * true(np.array(450.0))


def test_curves_fall_to_nothing_whatever_their_values() -> None:
    at = np.arange(0.0, 900.0)
    for theta in np.random.default_rng(0).normal(0, 3, (50, 5)):
        w = Walking(theta)(at)
        assert (np.diff(w) <= 0).all()
        assert w[0] == pytest.approx(Walking(theta).values[0])
        assert w[at >= 700] == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("metres,chance\n", "in 1 to 10,000 rows"),
        ("metres,chance\n" + "1,0.1\n" * 10_001, "in 1 to 10,000 rows"),
        ("metres,chance\n0,nan\n", "finite numbers"),
        ("distance,chance\n0,0.5\n", "columns metres and chance"),
        ("metres,chance\n0\n", "columns metres and chance"),
        ("metres,chance\n0,many\n", "columns metres and chance"),
        ("metres,chance\n0,0.5\n0,0.1\n", "each once"),
        ("metres,chance\n-100,0.5\n", "distances from 0"),
        ("metres,chance,chance\n0,0.5,0.1\n", "one chance"),
        ("metres,chance\n1000,0.3\n1500,0.1\n", "got 1,000 to 1,500"),
        ("metres,chance\n0,0.5\n0.3,0.2\n0.5,0\n", "got 0 to 0.5"),  # kilometres
        (None, "could not be read"),
    ],
)
def test_a_file_without_a_curve_is_refused(text, says, tmp_path) -> None:
    path = tmp_path / "curve.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=says):
        read_curve(path)


@pytest.mark.parametrize("values", [[0.1, 0.2, 0.1, 0.1, 0.1], [1.0, 0.5, 0.4, 0.3, 0.2], [0.5, 0.4, 0.3, 0.2, -0.1]])
def test_chances_that_rise_or_are_no_chances_are_refused(values) -> None:
    with pytest.raises(InputError, match="chances of at least 0 and below 1 that do not rise"):
        Walking.from_values(np.array(values))


def test_whoever_walks_on_arrives() -> None:
    walks, exposure, _ = city(3, shares=True)
    rate = np.random.default_rng(1).uniform(1, 5, exposure.shape)
    on = (rate * (1 - exposure) * walks.walked_on(DEFAULT_WALKING, exposure.shape)).sum()
    assert walks.background(DEFAULT_WALKING, rate).sum() == pytest.approx(on)


def test_less_information_leads_from_the_covariance_to_the_prior() -> None:
    known = Walking(DEFAULT_WALKING.theta, np.diag([0.01, 0.02, 0.03, 0.04, 0.05]))
    np.testing.assert_allclose(known.with_information(1.0).covariance, known.covariance)
    np.testing.assert_allclose(known.with_information(0.0).covariance, 0.35**2 * np.eye(5), atol=1e-12)
    assert (known.sd()[:-1] < known.with_information(0.5).sd()[:-1]).all()


def test_curves_are_saved_and_refused() -> None:
    again = Walking.from_dict(TRUE.to_dict())
    np.testing.assert_array_equal(again.theta, TRUE.theta)
    with pytest.raises(FileFormatError, match="does not contain a walking curve"):
        Walking.from_dict({"theta": "x"})
    with pytest.raises(InputError, match="chances of at least 0 and below 1 that do not rise"):
        Walking.from_values(np.array([0.1, 0.2, 0.3, 0.4, 0.5]))


def test_a_curve_in_doubt_varies_along_its_distance_to_the_other_one() -> None:
    curve = replace(DEFAULT_WALKING, covariance=0.04 * np.eye(5))
    gap = np.array([0.3, 0.0, -0.1, 0.0, 0.2])
    found = curve.in_doubt(replace(curve, theta=curve.theta + gap))
    np.testing.assert_allclose(found.theta, curve.theta)
    along = gap / np.linalg.norm(gap)
    assert along @ found.covariance @ along == pytest.approx(0.04 + gap @ gap)
    across = np.array([0.0, 1.0, 0.0, 0.0, 0.0])
    assert across @ found.covariance @ across == pytest.approx(0.04)
    assert curve.in_doubt(NO_WALKING) is curve


def test_rows_of_a_zone_are_found_in_order():
    rng = np.random.default_rng(5)
    exposure = rng.random((6, 40))
    metres = rng.uniform(50, 900, (6, 6))
    walks = walks_between(exposure, 1 - exposure, (metres + metres.T) / 2)
    for zone in range(7):
        np.testing.assert_array_equal(walks.of_source(zone), np.flatnonzero(walks.source == zone))
        np.testing.assert_array_equal(walks.of_target(zone), np.flatnonzero(walks.target == zone))
