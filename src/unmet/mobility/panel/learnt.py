"""Continue an earlier panel: what it has learnt of usable supply is kept, and its settled bins are taken over.

Records are read and minutes are counted from all records each time: that is fast, and the counts of rows stay exact.
What is expensive is done for the last days only:

* The parameters of the hidden states of vehicles and docks are those of the last panel that learnt them.
* The hidden state runs from `WARM_DAYS` before the settled moment on: a vehicle stays broken for some days, so that
  what happened four weeks ago says nothing. Expected minutes of earlier bins are those of the earlier panel. Where
  the listed minutes of such a bin have changed, every listed vehicle counts as usable.

The settled moment is `SETTLED_DAYS` before the end of the records from which the parameters were learnt, because later
records change what is known of a bin: trips that arrive late, and listed vehicles that are found to be unrentable only
after some time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmet._exceptions import UnmetError
from unmet._storage.sql import connect, parquet_sql, path_literal
from unmet.mobility.clock.bins import DAY, Bins
from unmet.mobility.panel.file import read_metadata
from unmet.mobility.supply.broken import Fault
from unmet.mobility.supply.usable_learning import UsableSupply

__all__ = ["LEAST_DAYS", "MOST_DAYS", "SETTLED_DAYS", "Learnt", "NotSettled", "describe_learnt", "read_learnt"]

SETTLED_DAYS = 14
"""Days before the end of the records in which a bin may still change."""
WARM_DAYS = 28
LEAST_DAYS = 60
"""Days. A shorter record is processed fast, and what is learnt from it still changes."""
MOST_DAYS = 28
"""Days after which everything is learnt anew, so that slow changes do not accumulate."""
_FEW_CHANGES = 1e-3  # share of settled bins whose minutes may differ from those of the earlier panel
_OF_VEHICLES, _OF_DOCKS = ("available_minutes", "stockout_minutes"), ("dock_minutes", "full_minutes")
_LISTED = (*_OF_VEHICLES, *_OF_DOCKS)
_EXPECTED = {
    "unusable_minutes": _OF_VEHICLES,
    "out_minutes": _OF_VEHICLES,
    "out_sd": _OF_VEHICLES,
    "no_dock_minutes": _OF_DOCKS,
}
"""Columns of expected minutes and of their deviation, with the listed minutes that they are part of."""
_ARRAYS = ("worth", "correction", "explained")


class NotSettled(UnmetError):
    """Records of settled bins have changed, so that the panel has to be built in full."""


@dataclass(frozen=True)
class Learnt:
    """Parts of an earlier panel that a later one continues with.

    Attributes
    ----------
    path : Path
        File of the panel.
    vehicles, docks : dict
        Fields of `UsableSupply` except the rates, which are found from the records each time.
    zones : tuple of str
        Its zones.
    first, end : int
        First minute of the panel, and the one behind the records from which this was learnt.
    """

    path: Path
    vehicles: dict[str, Any]
    docks: dict[str, Any]
    zones: tuple[str, ...]
    first: int
    end: int

    @property
    def settled(self) -> int:
        """Minute before which bins are taken over."""
        return self.end - SETTLED_DAYS * DAY

    @property
    def warm(self) -> int:
        """Minute from which on the hidden state runs."""
        return self.settled - WARM_DAYS * DAY

    def fits(self, bins: Bins, zones: pd.DataFrame) -> bool:
        """Whether a panel with these bins and zones continues this one."""
        last = int(bins.edges[-1])
        same = self.first == int(bins.edges[0]) and self.zones == tuple(zones["zone"].astype(str))
        return same and self.end < last <= self.end + MOST_DAYS * DAY

    def take_over(self, bins: Bins, columns: dict[str, NDArray[Any]]) -> None:
        """Replace the expected minutes of settled bins, and their deviation, by those of the earlier panel.

        A bin whose listed minutes have changed keeps what is found now.

        Parameters
        ----------
        bins : Bins
            The bins.
        columns : dict
            Stored arrays of the panel, one value per zone and bin.

        Raises
        ------
        NotSettled
            If the listed minutes or the pickups of settled bins are not those of the earlier panel.
        """
        before = int(np.searchsorted(bins.edges[:-1], self.settled))
        names = [*_LISTED, "observed", *_EXPECTED]
        file = f"{path_literal(str(self.path))}, file_row_number=true"
        sql = f"""SELECT {", ".join(names)} FROM {parquet_sql(file)}
            WHERE epoch(start) < {60 * self.settled} ORDER BY file_row_number"""
        with connect() as connection:
            earlier = connection.execute(sql).fetchnumpy()
        shape = (len(self.zones), before)
        if len(earlier[names[0]]) != shape[0] * shape[1]:
            raise NotSettled("the earlier panel has other bins.")
        now = {name: columns[name].reshape(shape[0], -1)[:, :before] for name in names}
        known = {name: np.ma.filled(earlier[name], -1).reshape(shape) for name in names}
        same = {name: np.nan_to_num(now[name], nan=-1) == np.nan_to_num(known[name], nan=-1) for name in names}
        for name in (*_LISTED, "observed"):
            if (changed := np.mean(~same[name])) > _FEW_CHANGES:
                what = "pickups" if name == "observed" else "minutes"
                raise NotSettled(f"{changed:.1%} of the settled bins have other {what} than before.")
        for name, listed in _EXPECTED.items():  # of other minutes, the earlier panel knew nothing
            np.copyto(now[name], known[name], where=np.logical_and.reduce([same[minutes] for minutes in listed]))


def describe_learnt(
    vehicles: UsableSupply, docks: UsableSupply, bins: Bins, earlier: Learnt | None
) -> dict[str, Any] | None:
    """Describe what a later panel may keep, as JSON-able values; None for a short record, or without a hidden state."""
    first, last = int(bins.edges[0]), int(bins.edges[-1])
    end = last if earlier is None else earlier.end
    if vehicles.fault is None or end - first < LEAST_DAYS * DAY:
        return None
    return {"vehicles": _described(vehicles), "docks": _described(docks), "first": first, "end": end}


def _described(usable: UsableSupply) -> dict[str, Any]:
    fault = None if usable.fault is None else asdict(usable.fault)
    arrays = {name: getattr(usable, name).tolist() for name in _ARRAYS}
    return {"method": usable.method, "fault": fault, "gain": float(usable.gain), **arrays}


def _read(found: dict[str, Any]) -> dict[str, Any]:
    fault = None if found["fault"] is None else Fault(**found["fault"])
    return {**found, "fault": fault, **{name: np.array(found[name], dtype=float) for name in _ARRAYS}}


def read_learnt(path: Path) -> Learnt | None:
    """Read what a panel has learnt. None if there is no such file, or it has nothing that can be kept."""
    if not path.is_file():
        return None
    try:
        with connect() as connection:
            metadata = read_metadata(connection, path_literal(str(path)), str(path))
        found, zones = metadata["learnt"], metadata["zones"]["zone"]
        vehicles, docks = (_read(found[side]) for side in ("vehicles", "docks"))
        return Learnt(path, vehicles, docks, tuple(map(str, zones)), int(found["first"]), int(found["end"]))
    except (duckdb.Error, UnmetError, KeyError, TypeError, ValueError):
        return None
