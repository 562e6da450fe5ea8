"""The result of a demand model for one zone, and the form of its function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from unmet._typing import Array
from unmet.mobility.models.kept import KeptFit
from unmet.mobility.models.zone_data import ZoneData

__all__ = ["ModelFunction", "Rates"]


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
