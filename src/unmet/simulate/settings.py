"""Settings of a simulated city, with every value checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from unmet._exceptions import InputError

__all__ = ["REALISTIC", "Settings"]

#: The settings of a city that behaves as real ones were measured to. Options given beside them win.
REALISTIC: dict[str, Any] = {
    "density": 14.0,
    "walk_probability": 0.54,
    "walk_reach": 220.0,
    "dispersion": 0.01,
    "shock_effect": 1.0,
    "unusable": 0.006,
    "briefly_unusable": 0.04,
    "polls": "log:3",
}

# name: (kind, lowest, highest, what it is)
_BOUNDS: dict[str, tuple[type, float, float, str]] = {
    "stations": (int, 2, 5_000, "the number of stations"),
    "days": (int, 1, 3_660, "the number of days"),
    "seed": (int, 0, 2**63 - 1, "the seed"),
    "demand": (float, 0.1, 5_000, "wanted trips per station on a mild dry day"),
    "fleet_share": (float, 0.05, 0.9, "bikes per dock"),
    "rebalancing": (float, 0.0, 1.0, "the share of the imbalance that trucks repair each night"),
    "density": (float, 0.1, 200.0, "stations per square kilometre"),
    "walk_probability": (float, 0.0, 1.0, "the probability of walking to another station"),
    "walk_reach": (float, 1.0, 5_000, "how far a rider would walk, in metres"),
    "dispersion": (float, 0.0, 10.0, "the extra-Poisson variance of arrivals"),
    "weather_effect": (float, 0.0, 3.0, "the strength of weather"),
    "trend_effect": (float, 0.0, 3.0, "the strength of the slow trend"),
    "shock_effect": (float, 0.0, 5.0, "the strength of shocks"),
    "breakage": (float, 0.0, 0.5, "the probability that a returned bike is broken"),
    "unusable": (float, 0.0, 0.5, "the probability that a returned bike is broken but still listed"),
    "briefly_unusable": (float, 0.0, 0.5, "the probability that a returned bike cannot be rented for some minutes"),
    "closures": (int, 0, 100, "the number of system closures"),
    "dead_stations": (int, 0, 5_000, "the number of stations that die for a while"),
    "feed_gaps": (int, 0, 100, "the number of gaps in the status feed"),
    "reopening_hours": (float, 0.0, 168.0, "the mean hours until a station is back after a closure"),
    "late_stations": (int, 0, 5_000, "the number of stations that open late"),
    "leaving_stations": (int, 0, 5_000, "the number of stations that leave for good"),
    "quiet_closures": (int, 0, 5_000, "the number of stations closed for weeks without saying so"),
    "stuck_terminals": (int, 0, 5_000, "the number of stations whose feed shows no bike for ever"),
    "valet_stations": (int, 0, 5_000, "the number of stations with bikes that the feed does not show"),
    "moving_stations": (int, 0, 5_000, "the number of stations that move"),
    "evening_polls": (float, 0.0, 360.0, "the minutes between two polls in the evening"),
}
_STATION_TROUBLES = (
    "late_stations",
    "leaving_stations",
    "quiet_closures",
    "stuck_terminals",
    "valet_stations",
    "moving_stations",
)
_SHORTEST_POLL, _LONGEST_POLL = 0.5, 360.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that decides what a simulated city does; equal settings give equal cities.

    Parameters
    ----------
    seed : int
        Where all randomness comes from. Each part of the city (weather, arrivals, destinations, walking, ...)
        has a stream of its own, so that changing one option leaves the others' draws alone.
    stations, days : int
        The size of the city and the number of local calendar days.
    start : str
        The first local day, ``YYYY-MM-DD``.
    timezone : str
        The city's IANA time zone; trips carry its naive wall-clock time, as operators' files do.
    demand : float
        Mean wanted trips per station on a mild dry day. More demand on the same fleet loses more trips.
    fleet_share : float
        Bikes per dock.
    rebalancing : float
        The share of the nightly distance to the target stock that trucks repair, 0 to 1.
    density : float
        Stations per square kilometre.
    walk_probability, walk_reach : float
        A rider turned away tries the stations that list a bike in order of distance d. The rider walks to each
        with probability ``walk_probability * exp(-(d / walk_reach)**1.5)``, and tries the next if nothing can be
        rented there either.
    dispersion : float
        Arrivals in a station-hour have variance ``m + dispersion * m**2`` (negative binomial); 0 is Poisson.
    weather_effect, trend_effect : float
        How strongly weather and the slow trend move demand on the log scale: 1 is usual, 0 is not at all.
    shock_effect : float
        The strength of shocks to the log rate that no covariate explains: 1 is as measured in a real city, 0 is
        none. City-wide shocks have a standard deviation of 0.18. Neighbourhood shocks have 0.25 and a correlation
        of ``exp(-d / 600 m)``. Both last for some three hours.
    breakage : float
        The probability that a returned bike is broken; it holds its dock, disabled, until a mechanic comes.
    unusable : float
        The probability that a returned bike is broken and the feed still lists it. Nobody can rent it. The
        operator finds it on an inspection (about one a day) or when a truck stops; then it is disabled.
    briefly_unusable : float
        The probability that a returned bike is listed but cannot be rented for some minutes (20 on average): it is
        reserved, or its dock did not lock.
    closures : int
        How often the whole system closes for 8 to 36 hours: ``is_renting`` is false and bikes turn disabled.
    dead_stations : int
        How many stations die once for one to seven days; they fall silent and report zero in turn.
    feed_gaps : int
        How often the whole feed is silent for 2 to 24 hours, while riders go on riding.
    reopening_hours : float
        After a closure, each station comes back after so many hours on average (exponential). Until then nobody
        can rent there; the feed claims that the station rents and has no bikes.
    late_stations, leaving_stations : int
        How many stations open only in the middle of the period, or leave the feed for good then.
    quiet_closures : int
        How many stations are closed for two to five weeks while the feed shows an empty station.
    stuck_terminals : int
        How many stations show no bike from some day on, for ever, while riders go on riding.
    valet_stations : int
        How many stations have twice as many bikes beside the docks as docks. The feed shows only the docks.
    moving_stations : int
        How many stations move by 250 m in the middle of the period. Trips before have the old position. Demand
        does not change.
    polls : str
        What the collector writes. ``log``: every change at its second. ``5``: every station, every five minutes.
        ``log:5``: changes, looked for every five minutes. A list such as ``log,60`` cuts the period into equal
        parts with one cadence each.
    evening_polls : float
        Minutes between two looks from 18:00 to midnight, where a collector slows down every evening; 0: as all day.

    Examples
    --------
    >>> Settings(seed=1, stations=12, days=30).demand
    75.0
    >>> Settings(seed=1, walk_probability=1.5)
    Traceback (most recent call last):
        ...
    unmet._exceptions.InputError: walk_probability: expected the probability of walking to another station,
    a number from 0 to 1; got 1.5.
    """

    seed: int
    stations: int = 40
    days: int = 120
    start: str = "2024-03-04"
    timezone: str = "America/New_York"
    demand: float = 75.0
    fleet_share: float = 0.4
    rebalancing: float = 0.6
    density: float = 8.0
    walk_probability: float = 0.0
    walk_reach: float = 220.0
    dispersion: float = 0.05
    weather_effect: float = 1.0
    trend_effect: float = 1.0
    shock_effect: float = 0.0
    breakage: float = 0.002
    unusable: float = 0.0
    briefly_unusable: float = 0.0
    closures: int = 0
    dead_stations: int = 0
    feed_gaps: int = 0
    reopening_hours: float = 0.0
    late_stations: int = 0
    leaving_stations: int = 0
    quiet_closures: int = 0
    stuck_terminals: int = 0
    valet_stations: int = 0
    moving_stations: int = 0
    polls: str = "log"
    evening_polls: float = 0.0

    def __post_init__(self) -> None:
        for name in _BOUNDS:
            object.__setattr__(self, name, _checked(name, getattr(self, name)))
        if self.dead_stations > self.stations:
            raise InputError(
                f"dead_stations: expected at most the number of stations, {self.stations}; got {self.dead_stations}."
            )
        for name in ("closures", "feed_gaps"):
            if 4 * getattr(self, name) > self.days:
                raise InputError(
                    f"{name}: expected at most one in four days, {self.days // 4} in {self.days} days; "
                    f"got {getattr(self, name)}. Simulate more days or ask for fewer."
                )
        struck = sum(getattr(self, name) for name in _STATION_TROUBLES)
        if struck > self.stations:
            raise InputError(
                f"{', '.join(_STATION_TROUBLES)}: expected at most the number of stations, {self.stations}, together; "
                f"got {struck}."
            )
        if 0 < self.evening_polls < _SHORTEST_POLL:
            raise InputError(
                f"evening_polls: expected 0 or at least {_SHORTEST_POLL:g} minutes; got {self.evening_polls!r}."
            )
        self.cadences()  # raises where the polls cannot be read
        self.hours()  # raises where the start or the time zone cannot be read

    def cadences(self) -> list[tuple[float, bool]]:
        """The parts of `polls`: minutes between two looks (0: every change), and whether only changes are written."""
        found = []
        for part in str(self.polls).split(","):
            kind, _, number = part.strip().rpartition(":")
            changes = kind == "log" or number == "log"
            try:
                minutes = 0.0 if part.strip() == "log" else float(number)
                good = kind in ("", "log") and (part.strip() == "log" or _SHORTEST_POLL <= minutes <= _LONGEST_POLL)
            except ValueError:
                good = False
            if not good:
                raise InputError(
                    "polls: expected 'log', minutes such as '5', or 'log:5', from "
                    f"{_SHORTEST_POLL:g} to {_LONGEST_POLL:g} minutes, or a list such as 'log,60'; got {self.polls!r}."
                )
            found.append((minutes, changes))
        return found

    def hours(self) -> pd.DatetimeIndex:
        """The starts of all hours of the period in local time; days of 23 and 25 hours have so many."""
        try:
            zone = ZoneInfo(self.timezone)
        except (KeyError, OSError, TypeError, ValueError) as error:
            raise InputError(
                f"timezone: expected an IANA name such as 'America/New_York'; got {self.timezone!r}."
            ) from error
        try:
            first = date.fromisoformat(self.start)
        except (TypeError, ValueError) as error:
            raise InputError(f"start: expected a day as YYYY-MM-DD; got {self.start!r}.") from error
        # Status records keep time as 32-bit seconds, as the real log does.
        if first.year < 1971 or first.year + self.days / 365 > 2037:
            raise InputError(f"start: expected a period within 1971 to 2037; got {self.days} days from {self.start}.")
        # A midnight that does not exist moves forward; one that comes twice is the first.
        edges = pd.DatetimeIndex([pd.Timestamp(first), pd.Timestamp(first) + pd.Timedelta(days=self.days)])
        begin, end = edges.tz_localize(zone, ambiguous=np.array([True, True]), nonexistent="shift_forward")
        hours = pd.date_range(begin.tz_convert("UTC"), end.tz_convert("UTC"), freq="h", inclusive="left")
        return hours.tz_convert(zone)


def _checked(name: str, value: Any) -> int | float:
    kind, low, high, meaning = _BOUNDS[name]
    noun = "whole number" if kind is int else "number"
    try:
        number = kind(value)
        good = not isinstance(value, bool | str) and math.isfinite(number) and number == value and low <= number <= high
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good:
        raise InputError(f"{name}: expected {meaning}, a {noun} from {low:g} to {high:g}; got {value!r}.")
    return int(number) if kind is int else float(number)
