"""Totals with intervals of their own, from joint draws.

Draw s of the system's total is the sum over zones of their draws s: what zones share is off by the same in all draws s,
the rest is independent given their records. Means add up, standard deviations and quantiles do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from unmet._typing import Array

__all__ = ["HOURS", "QUANTILES", "summarise_draws", "tabulate_totals"]

HOURS = 168
"""Hours of a week, from Monday 00:00 by the wall clock."""

QUANTILES = {"q025": 0.025, "q05": 0.05, "q50": 0.5, "q95": 0.95, "q975": 0.975}


def summarise_draws(draws: Array) -> dict[str, Array]:
    """Mean, standard deviation and quantiles over the last axis.

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


def tabulate_totals(zones: Iterable[tuple[str, Array, Array]], hours: Sequence[int] = range(HOURS)) -> pd.DataFrame:
    """Make the table of totals, holding the draws of one zone and of the system.

    Parameters
    ----------
    zones : iterable of (str, array, array)
        Name, lost (168, draws) and observed (168,) of each zone. The sums depend, in their last digits, on the order.
    hours : sequence of int
        Hours of the week that bins start in, which have rows: of bins of a day only midnights.

    Returns
    -------
    pandas.DataFrame
        ``level, zone, hour_of_week, quantity, mean, sd, q025, q05, q50, q95, q975``; levels ``system``, ``zone``,
        ``hour_of_week`` (of the system) and ``zone_hour_of_week``; quantities ``observed``, ``lost``, ``demand``.

    Examples
    --------
    >>> lost, observed = np.zeros((168, 2)), np.zeros(168)
    >>> lost[8], observed[8] = [1.0, 3.0], 5.0
    >>> table = tabulate_totals([("a", lost, observed), ("b", lost[:, ::-1], observed)])
    >>> table[table["level"] == "system"][["quantity", "mean", "sd"]]  # what one zone gains the other loses
       quantity  mean   sd
    0  observed  10.0  0.0
    1      lost   4.0  0.0
    2    demand  14.0  0.0
    """
    chosen = list(hours)
    total_lost: Array | None = None
    total_observed = np.zeros(HOURS)
    by_zone: list[pd.DataFrame] = []
    by_zone_hour: list[pd.DataFrame] = []
    for zone, lost, observed in zones:
        total_lost = lost.copy() if total_lost is None else total_lost + lost
        total_observed = total_observed + observed
        by_zone.append(_rows("zone", zone, *_summed(observed, lost)))
        by_zone_hour.append(_rows("zone_hour_of_week", zone, observed[chosen], lost[chosen], chosen))
    if total_lost is None:
        total_lost = np.zeros((HOURS, 1))
    system = _rows("system", None, *_summed(total_observed, total_lost))
    by_hour = _rows("hour_of_week", None, total_observed[chosen], total_lost[chosen], chosen)
    return pd.concat([system, *by_zone, by_hour, *by_zone_hour], ignore_index=True)


def _summed(observed: Array, lost: Array) -> tuple[Array, Array]:
    """Over the hours of the week, draw by draw."""
    return observed.sum(keepdims=True), lost.sum(axis=0, keepdims=True)


def _rows(
    level: str, zone: str | None, observed: Array, lost: Array, hours: Sequence[int | None] = (None,)
) -> pd.DataFrame:
    """Rows of one level: the three quantities of each hour, or of all hours together."""
    columns = {}
    for name, value in summarise_draws(lost).items():
        exactly = np.zeros_like(observed) if name == "sd" else observed
        # What was observed is a constant: demand is lost, shifted by it.
        columns[name] = np.column_stack([exactly, value, exactly + value]).ravel()
    count = len(observed)
    labels = {
        "level": pd.Series([level] * (3 * count), dtype="str"),
        "zone": pd.Series([zone] * (3 * count), dtype="str"),
        "hour_of_week": pd.array([hour for hour in hours for _ in range(3)], dtype="Int16"),
        "quantity": pd.Series(["observed", "lost", "demand"] * count, dtype="str"),
    }
    return pd.DataFrame({**labels, **columns})
