"""Single days of a simulated city, started from any stock: the riders are the same, whatever the stock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from unmet._exceptions import InputError
from unmet._typing import Array
from unmet.simulate.demand import Layout, Riders, draw_riders, layout, rates, shocks, weather
from unmet.simulate.operation import Fate, operate
from unmet.simulate.settings import Settings

__all__ = ["DayOutcome", "ride_day"]


@dataclass(frozen=True)
class DayOutcome:
    """Riders of one day, by what became of them.

    Attributes
    ----------
    wanted : int
        Riders who wanted a bike.
    no_bike : int
        Riders who found no bike at the station they came to first; `lost` of them found none elsewhere.
    lost : int
        Riders who got no bike at all.
    no_dock : int
        Riders who found no dock at the station they came to first.
    """

    wanted: int
    no_bike: int
    lost: int
    no_dock: int

    @property
    def turned_away(self) -> int:
        """Riders who found no bike or no dock at the station they came to first."""
        return self.no_bike + self.no_dock


def ride_day(settings: Settings, day: str, stock: Sequence[int], again: int = 0) -> DayOutcome:
    """Let the riders of one day of a city ride, with no truck on the road.

    Parameters
    ----------
    settings : Settings
        The city. Its troubles are left out.
    day : str
        A local day within the city's period, ``YYYY-MM-DD``.
    stock : sequence of int
        Bikes at each station at midnight.
    again : int
        0: the riders of the records. Any other number: other riders and shocks of the same day, with the same usual
        rates (weather and trend are the same), one set for each number.

    Examples
    --------
    >>> city = Settings(seed=1, stations=4, days=3)
    >>> full, empty = (ride_day(city, "2024-03-05", [bikes] * 4) for bikes in (8, 0))
    >>> full.wanted == empty.wanted, full.no_bike < empty.no_bike == empty.wanted
    (True, True)
    """
    hours = settings.hours()
    of_day = np.flatnonzero(hours.strftime("%Y-%m-%d") == day)
    if not of_day.size:
        raise InputError(f"day: expected a day of the city, {hours[0]:%Y-%m-%d} to {hours[-1]:%Y-%m-%d}; got {day!r}.")
    city = _city(settings)
    if len(stock) != settings.stations or min(stock) < 0 or (np.asarray(stock) > city.place.capacity).any():
        raise InputError("stock: expected 0 to the capacity of each station.")
    if again < 0:
        raise InputError(f"again: expected a whole number of at least 0, got {again}.")
    alone = replace(settings, days=1, start=day, rebalancing=0.0)
    if again:
        alone = replace(alone, seed=_another_seed(settings.seed, again, int(of_day[0])))
        riders = draw_riders(alone, city.place, city.usual[of_day] * np.exp(shocks(alone, city.place)))
    else:
        riders = _between(city.riders, 3600 * int(of_day[0]), 3600 * int(of_day[-1] + 1))
    history = operate(alone, city.place, riders, [], stock=[int(bikes) for bikes in stock])
    rode = history.started >= 0
    return DayOutcome(
        wanted=len(riders.time),
        no_bike=int((history.fate != Fate.SERVED).sum()),
        lost=int((history.fate == Fate.LOST).sum()),
        no_dock=int((rode & (history.ended != history.arrived)).sum()),
    )


@dataclass(frozen=True)
class _City:
    """Stations, rates without shocks of shape (hours, stations), and all riders of the period."""

    place: Layout
    usual: Array
    riders: Riders


@lru_cache(maxsize=2)
def _city(settings: Settings) -> _City:
    place = layout(settings)
    usual = rates(replace(settings, shock_effect=0.0), place, weather(settings))
    return _City(place, usual, draw_riders(settings, place, usual * np.exp(shocks(settings, place))))


def _between(riders: Riders, first: int, end: int) -> Riders:
    """Return the riders between two seconds, with times from the first one on."""
    inside = (riders.time >= first) & (riders.time < end)
    some = Riders(**{f.name: getattr(riders, f.name)[inside] for f in fields(Riders)})
    return replace(some, time=some.time - first)


def _another_seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
