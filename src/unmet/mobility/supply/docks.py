"""Docks: the mirror image of vehicles.

A rider who returns a vehicle takes a free dock. So the status of a station has a second side: free docks in place of
vehicles, returns in place of pickups, and ``is_returning`` in place of ``is_renting``. `dock_records` shows records
from that side; everything that follows from records (spells, minutes by state, zones) is then found in the same way.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unmet.mobility.supply.states import DEAD, EMPTY, NOT_INSTALLED, NOT_RENTING, UNDETERMINED, VEHICLES
from unmet.mobility.supply.status_log import DOCKS_UNKNOWN, MANY_DOCKS, NO_RETURNS, StatusRecords

__all__ = ["dock_records"]

_PLENTY = 99  # stands for any number of docks from `MANY_DOCKS` on
_SIDE = np.full(DOCKS_UNKNOWN + 1, VEHICLES, dtype=np.int8)  # reason by code of docks
_SIDE[[0, NO_RETURNS, DOCKS_UNKNOWN]] = EMPTY, NOT_RENTING, UNDETERMINED


def dock_records(records: StatusRecords) -> StatusRecords:
    """Return the records as seen by riders who return: free docks are available, a full station is empty.

    A station that accepts no returns is closed. Docks that are not reported are ``undetermined``.
    """
    free = np.where(records.docks < MANY_DOCKS, records.docks, np.where(records.docks == MANY_DOCKS, _PLENTY, 0))
    closed = (records.reason == DEAD) | (records.reason == NOT_INSTALLED)
    reason = np.where(closed, records.reason, _SIDE[records.docks])
    return replace(records, available=free.astype(np.int16), disabled=np.zeros_like(records.disabled), reason=reason)
