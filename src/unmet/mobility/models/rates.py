"""The result of a demand model for one zone, and the form of its function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unmet._typing import Array
from unmet.mobility.models.kept import KeptFit
from unmet.mobility.models.zone_data import ZoneData

__all__ = ["ModelFunction", "Rates", "mid_quantiles"]


@dataclass(frozen=True)
class Rates:
    """The estimate of a demand model for the n bins of one zone.

    Attributes
    ----------
    mean, sd, q05, q95 : arrays of shape (n,)
        Posterior of the rate: the expected demand of a bin with full supply.
    lost : array of shape (draws, n)
        Joint draws of the trips lost in each bin, given its observed trips. Zero where nothing was observed.
    lost_mean : array of shape (n,)
        Mean of the lost trips; exact where the model has a formula for it.
    future : array of shape (draws, n) or None
        Joint draws of demand, used for bins without observations. None if every bin was observed.
    summary : dict
        Facts about the fit, such as ``converged`` and ``message``, for the table of zones.
    shared : array of shape (directions, n) or None
        Change of the rate per standard deviation of each error of the city's curve, which all zones share; None
        for a model that does not use the curve.
    usual : array of shape (n,) or None
        Mean of the rate without what is known of the bin's shock: the number to plan with. None if it is the rate.
    walked_on, walked_in : arrays of shape (draws, n) or None
        Riders who came here first and were served elsewhere, and riders recorded here who came to another zone first.
        None if nobody walks.
    kept : KeptFit or None
        The fit, for runs with later bins; None if the model has none to keep.
    """

    mean: Array
    sd: Array
    q05: Array
    q95: Array
    lost: Array
    lost_mean: Array
    future: Array | None = None
    summary: dict[str, Any] = field(default_factory=dict)
    shared: Array | None = None
    usual: Array | None = None
    walked_on: Array | None = None
    walked_in: Array | None = None
    kept: KeptFit | None = None


ModelFunction = Callable[[ZoneData, int, int], Rates]
"""Called with a zone's data, a number of draws and a seed; returns `Rates`."""


def mid_quantiles(draws: Array, levels: Sequence[float]) -> Array:
    """Quantiles of each column of draws of counts, shape (levels, n), with ties broken evenly.

    Ordinary quantiles of counts are counts, and an interval contains its ends: one of 90 % holds 95 % of small counts.
    Here a count stands for the middle of its step of the distribution function, with straight lines between counts
    (mid-quantiles; Ma, Genton & Parzen 2011). Without ties these are the quantiles of Hazen.

    Examples
    --------
    Of twenty draws, one is 1 and the others are 0:

    >>> mid_quantiles(np.array([[0.0]] * 19 + [[1.0]]), [0.05, 0.95]).ravel().round(2)
    array([0.  , 0.95])
    """
    found = np.repeat(np.asarray(draws[:1], dtype=float), len(levels), axis=0)
    # Most bins are known: there all draws are the same, and so are all quantiles.
    varies = (draws != draws[0]).any(axis=0)
    ordered = np.sort(draws[:, varies], axis=0)
    count = len(ordered)

    def middle(values: Array) -> tuple[Array, Array, Array]:
        """How many draws are less than a value and up to it, and the mean of the two."""
        less, up_to = (ordered < values).sum(axis=0), (ordered <= values).sum(axis=0)
        return less, up_to, 0.5 * (less + up_to)

    for row, level in enumerate(levels):
        wanted = level * count
        value = ordered[min(int(wanted), count - 1)]
        less, up_to, here = middle(value)
        # The next smaller or larger value; at the ends the value itself.
        beside = np.clip(np.where(here > wanted, less - 1, up_to), 0, count - 1)
        other = np.take_along_axis(ordered, beside[None], axis=0)[0]
        step = middle(other)[2] - here
        part = np.divide(wanted - here, step, out=np.zeros_like(step), where=step != 0)
        found[row, varies] = value + part * (other - value)
    return found
