"""The zones of a city as they were estimated by themselves, arranged for learning what they share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unmet._typing import Array, BoolArray, IntArray
from unmet.mobility.models.joint_city import hours_of_day
from unmet.mobility.models.surroundings import walks_between
from unmet.mobility.models.walking import DEFAULT_WALKING, Walking, Walks
from unmet.mobility.models.walking_learning import Absorbed
from unmet.mobility.models.zone_table import ZoneTable

__all__ = ["JointRecords", "joint_records"]

_GROUPS = 48  # hours of a day, apart at weekends
# A zone and bin that gets less of the riders of an empty neighbour than this is taken to have no walkers.
_FEW_WALKERS = 0.02


@dataclass(frozen=True)
class JointRecords:
    """The zones as they were estimated by themselves, of shape (zones, bins), and who was out when.

    Attributes
    ----------
    table : ZoneTable
        The zones.
    observed : array
        Pickups to learn from; NaN elsewhere.
    log_rate : array
        Logarithm of the expected usual rate, by the zone's own fit: the mean of the log-rate and half of its variance.
    group : array of int
        Number of the zone and the hour of the day: each has a level of its own.
    walks : Walks
        Who was out and who had stock.
    alone : array of bool
        Bins without walkers.
    """

    table: ZoneTable
    observed: Array
    log_rate: Array
    group: IntArray
    walks: Walks
    alone: BoolArray

    def own(self, log_rate: Array, shock_var: Array | float = 0.0) -> Array:
        """Pickups expected of a zone's own riders, from the mean of a log-rate and the variance of its shock."""
        return np.asarray(self.table.exposure * np.exp(log_rate + 0.5 * shock_var))

    def absorbed(self, background: Array) -> Absorbed:
        """How own levels change with the walkers: the fits were made with this background."""
        own = np.nan_to_num(self.own(self.log_rate))
        return Absorbed.by(self.group, _GROUPS * len(self.table.zones), own, background, np.isfinite(self.observed))


def joint_records(table: ZoneTable, hidden: BoolArray, curve: Walking) -> JointRecords:
    """Arrange the zones for learning what they share.

    Parameters
    ----------
    table : ZoneTable
        The zones.
    hidden : array of bool of shape (zones, bins)
        Bins to hold out.
    curve : Walking
        The curve of walking. If nobody walks by it, all bins are without walkers.
    """
    known = np.isfinite(table.log_rate)
    observed = np.where(known & (table.exposure > 0) & ~hidden, table.observed, np.nan)
    walks = walks_between(table.exposure, np.where(np.isfinite(table.observed), table.stockout, 0.0), table.metres)
    alone = (
        np.ones(observed.shape, dtype=bool)
        if not curve.theta.size
        else walks.background(DEFAULT_WALKING, np.ones(observed.shape)) < _FEW_WALKERS
    )
    return JointRecords(
        table=table,
        observed=observed,
        log_rate=np.where(known, table.log_rate + 0.5 * table.log_rate_var, np.nan),
        group=_GROUPS * np.arange(len(table.zones))[:, None] + hours_of_day(table),
        walks=walks,
        alone=alone,
    )
