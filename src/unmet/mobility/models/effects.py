"""Effects of weather and holidays on the demand of the whole city, read off the city's curve.

The covariance of the curve is a sum of terms, one for each weather column, so the effect of one column on log-demand
does not depend on the hour, the season or the other columns. It is a ratio to the demand at a usual value: no rain, or
the median temperature. The effect of a holiday is the ratio of a holiday's demand to that of a Wednesday.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from unmet._typing import Array
from unmet.estimators import CensoredGP
from unmet.mobility.models.zone_data import ZoneData

__all__ = ["find_effects"]

_POINTS, _DRAWS = 21, 200
_RANGE = (0.02, 0.98)  # quantiles of a column, between which its effect is shown
_WEDNESDAY, _SUNDAY = 2.0, 6.0  # holidays are like Sundays, see `unmet.mobility.models.zone_data`


def find_effects(gp: CensoredGP, data: ZoneData, at: pd.DataFrame, seed: int = 0) -> list[dict[str, Any]]:
    """Find the effects of each weather column and of holidays.

    Parameters
    ----------
    gp, data
        The fitted curve, and the city as one zone.
    at : DataFrame
        Inputs of the curve; the first row is where effects are looked at.
    seed : int
        Seed of the draws.

    Returns
    -------
    list of dict
        ``name`` of the column, ``usual`` value, ``values``, and ``mean``, ``q05``, ``q95`` of the ratio of demand there
        to demand at the usual value. The effect of holidays has one value.
    """
    assert data.scales is not None
    found = []
    for name, (median, unit) in data.scales.covariates.items():
        column = f"x:{name}"
        shown = data.inputs.loc[data.seen, column].to_numpy()
        low, high = np.quantile(shown, _RANGE)
        if not high > low:  # hardly ever anything but zero
            high = float(shown.max())
        grid = np.linspace(0.0 if unit is not None else low, high, _POINTS)
        usual = 0.0 if unit is not None else median
        rows = _repeated(at, _POINTS + 1).assign(**{column: [usual, *grid]})
        rates = gp.sample(rows, _DRAWS, random_state=seed)
        values = grid if unit is None else unit * np.expm1(grid)
        found.append(_effect(name, usual, values, rates[:, 1:] / rates[:, :1]))
    if data.inputs["holiday"].any() and not data.daily:
        found.append(_of_holidays(gp, at, seed))
    return found


def _of_holidays(gp: CensoredGP, at: pd.DataFrame, seed: int) -> dict[str, Any]:
    clock = (np.arange(24) + 0.5) / 24
    usual = _repeated(at, 24).assign(week=_WEDNESDAY + clock, weekend=0.0, holiday=0.0)
    holiday = usual.assign(week=_SUNDAY + clock, weekend=1.0, holiday=1.0)
    rates = gp.sample(pd.concat([usual, holiday], ignore_index=True), _DRAWS, random_state=seed)
    ratio = rates[:, 24:].sum(axis=1, keepdims=True) / rates[:, :24].sum(axis=1, keepdims=True)
    return _effect("holiday", 0.0, np.ones(1), ratio)


def _repeated(at: pd.DataFrame, count: int) -> pd.DataFrame:
    return pd.concat([at.iloc[:1]] * count, ignore_index=True)


def _effect(name: str, usual: float, values: Array, ratios: Array) -> dict[str, Any]:
    low, high = np.quantile(ratios, [0.05, 0.95], axis=0)
    columns = {"values": values, "mean": np.exp(np.log(ratios).mean(axis=0)), "q05": low, "q95": high}
    return {"name": name, "usual": float(usual), **{key: own.tolist() for key, own in columns.items()}}
