"""Riders one by one, against closed forms and against the simulated city, which is written differently."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import poisson

from unmet import InputError
from unmet.decisions import Network, Riders, draw_riders, ride
from unmet.simulate import Settings
from unmet.simulate.days import ride_day
from unmet.simulate.demand import draw_riders as draw_riders_of_a_city
from unmet.simulate.demand import layout, rates, weather

APART = np.array([[0.0, 0.1], [0.1, 0.0]])


def leaving(count: int, *, temper: np.ndarray | None = None) -> Riders:
    """Riders from station 0 to station 1, a minute apart."""
    zeros = np.zeros(count, dtype=np.intp)
    ease = np.zeros(count) if temper is None else temper
    return Riders(np.arange(count) / 60.0, zeros, zeros + 1, np.full(count, 0.1), ease, np.zeros(count, dtype=bool))


def test_without_returns_riders_beyond_the_stock_find_no_bike():
    network = Network(np.array([8, 2000]), APART, np.zeros((2, 2)))
    generator = np.random.default_rng(3)
    rentals, returns = [[5.0], [0.0]], [[0.0], [1.0]]
    lost = [ride(draw_riders(rentals, returns, APART, generator), network, [4, 0]).no_bike[0] for _ in range(4000)]
    expected = poisson(5.0).expect(lambda d: np.maximum(d - 4, 0))
    assert np.mean(lost) == pytest.approx(expected, abs=3 * np.std(lost) / 4000**0.5)


def test_a_rider_walks_on_with_the_chance_of_the_distance():
    walk = np.array([[0.0, 0.4], [0.4, 0.0]])
    network = Network(np.array([5, 4000]), APART, walk)
    riders = leaving(2000, temper=np.random.default_rng(0).random(2000))
    found = ride(riders, network, [0, 2000])
    assert found.no_bike.tolist() == [2000, 0]
    assert found.walked[0] == pytest.approx(0.4 * 2000, abs=3 * (2000 * 0.24) ** 0.5)


def test_a_full_station_turns_a_rider_away_once_and_the_bike_finds_a_dock():
    network = Network(np.array([3, 1]), APART, np.zeros((2, 2)))
    found = ride(leaving(3), network, [3, 1])
    assert found.no_dock.tolist() == [0, 3]  # all docks at the destination are taken; they ride back to station 0
    assert found.no_bike.tolist() == [0, 0]
    assert found.turned_away == 3


def test_a_bike_that_breaks_takes_a_dock_and_is_not_rented_again():
    riders = leaving(2)
    back = Riders(riders.time + 1.0, riders.destination, riders.origin, riders.hours, riders.temper, riders.breaks)
    both = Riders(*(np.concatenate([getattr(part, f) for part in (riders, back)]) for f in vars(riders)))
    network = Network(np.array([2, 2]), APART, np.zeros((2, 2)))
    assert ride(both, network, [2, 0]).turned_away == 0
    broken = Riders(**{**vars(both), "breaks": np.array([True, False, False, False])})
    assert ride(broken, network, [2, 0]).no_bike.tolist() == [0, 1]


def test_levels_must_fit_the_docks():
    with pytest.raises(InputError, match="levels"):
        ride(leaving(1), Network(np.array([3, 1]), APART, np.zeros((2, 2))), [4, 0])


def test_the_same_riders_fare_as_in_the_simulated_city():
    """The two are written separately: one counts whole seconds and keeps books, the other counts hours."""
    settings = Settings(
        seed=5, stations=10, days=4, density=14.0, walk_probability=0.54, walk_reach=220.0, demand=240.0, breakage=0.0
    )
    place = layout(settings)
    riders = draw_riders_of_a_city(settings, place, rates(settings, place, weather(settings)))
    walk = settings.walk_probability * np.exp(-((place.distance / settings.walk_reach) ** 1.5))
    network = Network(place.capacity, place.distance / 1000.0, walk)
    travel = 90.0 + place.distance / 2.5
    np.fill_diagonal(travel, 1200.0)
    ours, theirs = np.zeros(3), np.zeros(3)
    for number, day in enumerate(sorted(set(settings.hours().strftime("%Y-%m-%d")))):
        inside = riders.time // 86_400 == number
        origin, destination = riders.origin[inside], riders.destination[inside]
        same = Riders(
            time=(riders.time[inside] - 86_400 * number) / 3600.0,
            origin=origin,
            destination=destination,
            hours=travel[origin, destination] * riders.pace[inside] / 3600.0,
            temper=riders.temper[inside],
            breaks=np.zeros(inside.sum(), dtype=bool),
        )
        levels = place.capacity // 2
        found, known = ride(same, network, levels), ride_day(settings, day, levels.tolist())
        ours += [found.no_bike.sum(), found.no_bike.sum() - found.walked.sum(), found.no_dock.sum()]
        theirs += [known.no_bike, known.lost, known.no_dock]
    assert theirs.min() > 50
    assert ours == pytest.approx(theirs, rel=0.03)
