"""One day of a simulated city, from any stock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unmet import InputError
from unmet.simulate import Settings, read_city, ride_day, simulate_city

CITY = Settings(seed=5, stations=4, days=3, rebalancing=0.0)


def test_the_first_day_from_the_operators_stock_is_that_of_the_city():
    city = simulate_city(4, 3, seed=5, rebalancing=0.0)
    first = city.states.groupby("station_id")["rentable"].first().loc[city.stations["station_id"]]
    found = ride_day(CITY, "2024-03-04", first.to_numpy().tolist())
    midnight = (city.true_rate["start"].min() + np.timedelta64(24, "h")).to_datetime64()
    of_day = city.truth[city.truth["wanted_at"].dt.tz_localize(None).to_numpy() < midnight]
    assert found.wanted == len(of_day)
    assert found.lost == (of_day["fate"] == "lost").sum()
    rode = of_day[of_day["arrived_at"].notna()]
    # Riders still on the way at midnight meet the next day's riders in the city, and nobody here.
    assert found.no_dock == pytest.approx((rode["arrived_at"] != rode["returned_at"]).sum(), abs=3)


def test_an_empty_city_turns_everybody_away_and_a_full_one_takes_no_return():
    capacity = simulate_city(4, 3, seed=5).stations["capacity"]
    empty, full = ride_day(CITY, "2024-03-05", [0] * 4), ride_day(CITY, "2024-03-05", capacity.tolist())
    assert empty.no_bike == empty.lost == empty.wanted == empty.turned_away > 0
    assert full.no_bike < empty.no_bike
    assert full.no_dock > 0


def test_a_day_can_be_ridden_again_by_other_riders_with_the_same_usual_rates():
    city = replace(CITY, shock_effect=1.0)
    stock = [5] * 4
    days = [ride_day(city, "2024-03-05", stock, again) for again in range(1, 101)]
    assert days[2] == ride_day(city, "2024-03-05", stock, 3)
    assert days[2].wanted == ride_day(city, "2024-03-05", [0] * 4, 3).wanted
    wanted = np.array([day.wanted for day in days])
    rate = simulate_city(4, 3, seed=5, rebalancing=0.0).true_rate
    usual = rate[rate["start"].dt.tz_convert(CITY.timezone).dt.strftime("%Y-%m-%d") == "2024-03-05"]
    assert wanted.mean() == pytest.approx(usual["rate"].sum(), abs=4 * wanted.std() / np.sqrt(len(days)))
    assert wanted.var() > 1.5 * wanted.mean()  # days have shocks of their own
    with pytest.raises(InputError, match="again"):
        ride_day(city, "2024-03-05", stock, -1)


@pytest.mark.parametrize(
    ("day", "stock", "words"),
    [
        ("2024-03-09", [1] * 4, "a day of the city"),
        ("2024-03-04", [1] * 3, "stock"),
        ("2024-03-04", [999] * 4, "stock"),
    ],
)
def test_what_the_city_does_not_have_is_refused(day, stock, words):
    with pytest.raises(InputError, match=words):
        ride_day(CITY, day, stock)


def test_a_saved_city_is_read_again(tmp_path):
    city = simulate_city(3, 2, seed=2, walk_probability=0.3)
    again = read_city(city.save(tmp_path / "city"))
    assert again.settings == city.settings
    assert again.trips.equals(city.trips)
    with pytest.raises(InputError, match="not the folder of a simulated city"):
        read_city(tmp_path)
