"""Totals with intervals, from joint draws.

Draw s of the system's total is the sum of draw s of all zones. Draw s uses the same shared error (of the city's curve
and of the dispersion) in every zone; the other errors are independent between zones, given their records. Means add up
over zones; standard deviations and quantiles do not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from unmet._typing import Array
from unmet.mobility.clock.bins import HOURS_OF_WEEK
from unmet.mobility.clock.periods import DAYS, PARTS, hours_of

__all__ = ["QUANTILES", "QUANTITIES", "ZoneDraws", "error_of_pickups", "summarise_draws", "tabulate_totals"]

QUANTILES = {"q025": 0.025, "q05": 0.05, "q50": 0.5, "q95": 0.95, "q975": 0.975}


def summarise_draws(draws: Array) -> dict[str, Array]:
    """Give mean, standard deviation and quantiles over the last axis.

    Examples
    --------
    >>> summary = summarise_draws(np.array([[1.0, 2.0, 3.0]]))
    >>> {name: float(value[0]) for name, value in summary.items() if name in ("mean", "sd", "q50")}
    {'mean': 2.0, 'sd': 1.0, 'q50': 2.0}
    """
    ddof = 1 if draws.shape[-1] > 1 else 0
    quantiles = np.quantile(draws, list(QUANTILES.values()), axis=-1)
    return {
        "mean": draws.mean(axis=-1),
        "sd": draws.std(axis=-1, ddof=ddof),
        **dict(zip(QUANTILES, quantiles, strict=True)),
    }


_WIDENING_SEED = 6  # errors that all zones share

_EXPECTED_ERROR = 0.25
"""Relative standard deviation of the pickups of a system that are expected between looks, and not seen.

They were 0.28 too few to 0.35 too many in ten simulated cities, and up to 0.24 too few in Jersey City."""


def _common_errors(draws: int) -> Array:
    """Standard normal values of two errors that all zones share, evenly spread over the draws; shape (2, draws)."""
    normal = norm.ppf((np.arange(draws) + 0.5) / draws)
    rng = np.random.default_rng(_WIDENING_SEED)
    return np.stack([rng.permutation(normal) for _ in range(2)])


def error_of_pickups(summary: Mapping[str, Any]) -> float:
    """Return the relative standard deviation of recorded trips, by the summary of a panel; 0 if all were seen."""
    expected, observed = (float(summary.get(name) or 0.0) for name in ("cancelled", "observed"))
    return _EXPECTED_ERROR * expected / observed if observed > 0 else 0.0


QUANTITIES = ("observed", "lost", "demand", "wanted", "served", "walked_on", "walked_in")
"""Of each row of totals. Wanted = served + walked on + lost; observed = served + walked in; demand is wanted."""


@dataclass(frozen=True)
class ZoneDraws:
    """Draws of one zone, by hour of the week.

    Attributes
    ----------
    observed : array of shape (168,)
        Trips that were recorded.
    lost, walked_on, walked_in : arrays of shape (168, draws)
        Riders who came here first and were served nowhere, or elsewhere; riders recorded here who came from elsewhere.
    """

    observed: Array
    lost: Array
    walked_on: Array
    walked_in: Array

    @classmethod
    def by_itself(cls, observed: Array, lost: Array) -> ZoneDraws:
        """Draws of a zone that nobody walks to or from."""
        return cls(observed, lost, np.zeros_like(lost), np.zeros_like(lost))

    def __add__(self, other: ZoneDraws) -> ZoneDraws:
        """Draw by draw."""
        return ZoneDraws(*(a + b for a, b in zip(self._all(), other._all(), strict=True)))

    def __getitem__(self, hours: Sequence[int]) -> ZoneDraws:
        """Some hours of the week."""
        return ZoneDraws(*(values[hours] for values in self._all()))

    def widened(self, error: float = 0.0, spread: float = 1.0, pickups: float = 0.0) -> ZoneDraws:
        """Draws of lost trips with another relative error, alike in all zones, and another spread about their mean.

        `pickups` is the relative standard deviation of recorded trips, if some of them are expected and not seen. Rates
        and lost trips are wrong by as much as they are.

        Draws below 0 are set to 0, and all of them scaled so that their mean stays. So widen a sum, not its terms:
        rare counts are mostly 0 and cannot become wider.
        """
        if (error, spread, pickups) == (0.0, 1.0, 0.0):
            return self
        own, of_pickups = _common_errors(self.lost.shape[1])
        mean = self.lost.mean(axis=1, keepdims=True)
        wider = (mean + spread * (self.lost - mean) + error * own * mean) * (1.0 + pickups * of_pickups)
        wider = np.maximum(wider, 0.0)
        now = wider.mean(axis=1, keepdims=True)
        return replace(self, lost=wider * np.divide(mean, now, out=np.ones_like(mean), where=now > 0))

    def summed(self) -> ZoneDraws:
        """All hours of the week together."""
        return ZoneDraws(*(values.sum(axis=0, keepdims=True) for values in self._all()))

    def _all(self) -> tuple[Array, Array, Array, Array]:
        return self.observed, self.lost, self.walked_on, self.walked_in

    def quantities(self, pickups: float = 0.0) -> list[Array]:
        """In the order of `QUANTITIES`, each of shape (hours, draws); `pickups` as in `widened`."""
        observed = self.observed[:, None] * (1.0 + pickups * _common_errors(self.lost.shape[1])[1])
        served = observed - self.walked_in
        wanted = served + self.walked_on + self.lost
        return [observed, self.lost, wanted, wanted, served, self.walked_on, self.walked_in]


def tabulate_totals(
    zones: Iterable[tuple[str, ZoneDraws]],
    hours: Sequence[int] = range(HOURS_OF_WEEK),
    *,
    left_out: Collection[str] = (),
    areas: Mapping[str, str] | None = None,
    widening: tuple[float, float, float] = (0.0, 1.0, 0.0),
) -> pd.DataFrame:
    """Make the table of totals, holding the draws of one zone and of the system.

    Parameters
    ----------
    zones : iterable of (str, ZoneDraws)
        Name and draws of each zone. The sums depend, in their last digits, on the order.
    hours : sequence of int
        Hours of the week that bins start in, which have rows: of bins of a day only midnights.
    left_out : collection of str
        Zones that have rows of their own, but do not count for the system or an area.
    areas : mapping, optional
        Zone → area. An area is the sum of its zones, draw by draw.
    widening : tuple of float
        Error, spread and error of pickups of `ZoneDraws.widened`, for every row.

    Returns
    -------
    pandas.DataFrame
        ``level, zone, hour_of_week, days, part, quantity, mean, sd, q025, q05, q50, q95, q975``; levels ``system``,
        ``area`` (named in ``zone``), ``zone``, ``zone_part`` (of a zone on `unmet.mobility.clock.periods.DAYS`, in a
        part of the day, or both; missing: all), ``hour_of_week`` (of the system), ``area_hour_of_week`` and
        ``zone_hour_of_week``; quantities as in `QUANTITIES`.

    Examples
    --------
    >>> lost, observed = np.zeros((168, 2)), np.zeros(168)
    >>> lost[8], observed[8] = [1.0, 3.0], 5.0
    >>> a, b = ZoneDraws.by_itself(observed, lost), ZoneDraws.by_itself(observed, lost[:, ::-1])
    >>> table = tabulate_totals([("a", a), ("b", b)])
    >>> table[table["level"] == "system"][["quantity", "mean", "sd"]].head(3)  # what one zone gains the other loses
       quantity  mean   sd
    0  observed  10.0  0.0
    1      lost   4.0  0.0
    2    demand  14.0  0.0
    """
    chosen = list(hours)
    rows_of = partial(_rows, widening=widening)
    total: ZoneDraws | None = None
    by_area: dict[str, ZoneDraws] = {}
    by_zone: list[pd.DataFrame] = []
    by_zone_hour: list[pd.DataFrame] = []
    by_zone_part: list[pd.DataFrame] = []
    hourly = len(chosen) >= _HOURLY
    for zone, draws in zones:
        if zone not in left_out:
            total = draws if total is None else total + draws
            if areas and zone in areas:
                area = areas[zone]
                by_area[area] = by_area[area] + draws if area in by_area else draws
        by_zone.append(rows_of("zone", zone, draws.summed()))
        by_zone_hour.append(rows_of("zone_hour_of_week", zone, draws[chosen], chosen))
        if hourly:
            by_zone_part.append(_part_rows(zone, draws, widening))
    if total is None:
        total = ZoneDraws.by_itself(np.zeros(HOURS_OF_WEEK), np.zeros((HOURS_OF_WEEK, 1)))
    system = rows_of("system", None, total.summed())
    by_hour = rows_of("hour_of_week", None, total[chosen], chosen)
    of_areas = [rows_of("area", area, by_area[area].summed()) for area in sorted(by_area)]
    by_area_hour = [rows_of("area_hour_of_week", area, by_area[area][chosen], chosen) for area in sorted(by_area)]
    of_hours = [by_hour, *by_area_hour, *by_zone_hour]
    return pd.concat([system, *of_areas, *by_zone, *by_zone_part, *of_hours], ignore_index=True)


_HOURLY = HOURS_OF_WEEK // 2  # bins of at most two hours lie within one part of the day
_CHOICES = list(product((None, *DAYS), (None, *PARTS)))[1:]


def _part_rows(zone: str, draws: ZoneDraws, widening: tuple[float, float, float]) -> pd.DataFrame:
    """Rows of a zone on weekdays or weekends, in a part of the day, or both."""
    sums = [draws[hours_of(*choice)].summed() for choice in _CHOICES]
    together = ZoneDraws(*(np.concatenate(columns) for columns in zip(*(s._all() for s in sums), strict=True)))
    rows = _rows("zone_part", zone, together, [None] * len(sums), widening=widening)
    for column, values in zip(("days", "part"), zip(*_CHOICES, strict=True), strict=True):
        rows[column] = pd.Series([value for value in values for _ in QUANTITIES], dtype="str")
    return rows


def _rows(
    level: str,
    zone: str | None,
    draws: ZoneDraws,
    hours: Sequence[int | None] = (None,),
    *,
    widening: tuple[float, float, float],
) -> pd.DataFrame:
    """Rows of one level: all quantities of each hour, or of all hours together."""
    summaries = [summarise_draws(values) for values in draws.widened(*widening).quantities(widening[2])]
    columns = {name: np.column_stack([summary[name] for summary in summaries]).ravel() for name in summaries[0]}
    count, kinds = len(draws.observed), len(QUANTITIES)
    labels = {
        "level": pd.Series([level] * (kinds * count), dtype="str"),
        "zone": pd.Series([zone] * (kinds * count), dtype="str"),
        "hour_of_week": pd.array([hour for hour in hours for _ in range(kinds)], dtype="Int16"),
        **{name: pd.Series([None] * (kinds * count), dtype="str") for name in ("days", "part")},
        "quantity": pd.Series(list(QUANTITIES) * count, dtype="str"),
    }
    return pd.DataFrame({**labels, **columns})
