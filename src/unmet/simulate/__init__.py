"""A city whose true demand is known: who wanted to ride, and what the records show of it.

>>> from unmet.simulate import simulate_city
>>> city = simulate_city(stations=6, days=3, seed=1)
>>> sorted(city.truth["fate"].unique())
['lost', 'served']
"""

from __future__ import annotations

from unmet.simulate.city import City, check_folder, read_city, simulate_city
from unmet.simulate.days import DayOutcome, ride_day
from unmet.simulate.settings import REALISTIC, Settings

__all__ = ["REALISTIC", "City", "DayOutcome", "Settings", "check_folder", "read_city", "ride_day", "simulate_city"]
