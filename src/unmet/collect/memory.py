"""Latest rows of a system, between polls: enough to write only what changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from unmet.collect.documents import (
    MOST_ROWS,
    Document,
    LastRead,
    StationInfo,
    StationState,
    Vehicle,
    station_infos,
    station_states,
    vehicles,
)

__all__ = ["DISCOVERY", "INFORMATION", "STATUS", "VEHICLE_FEEDS", "Memory", "Seen"]

DISCOVERY = "gbfs"  # what the specification calls the list of feeds
STATUS, INFORMATION = "station_status", "station_information"
VEHICLE_FEEDS = ("vehicle_status", "free_bike_status")
Tables: TypeAlias = dict[str, list[list[Any]]]

# A station whose counts stay the same is written again when its last_reported has moved by this many seconds: a reader
# can then tell a quiet station from a dead one.
_HEARTBEAT = 3600.0


@dataclass(frozen=True)
class Seen:
    """Content of one document.

    Attributes
    ----------
    rows : int or None
        Stations or vehicles in the document; None if there was no document, or it is not a list of these.
    unreadable : int
        Further ones that could not be read.
    repeated : list of str
        Ids of further ones that were listed before.
    tables : dict
        Rows to write, by table of `unmet.collect.history.TABLES`.
    """

    rows: int | None = None
    unreadable: int = 0
    repeated: list[str] = field(default_factory=list)
    tables: Tables = field(default_factory=dict)

    @property
    def changes(self) -> int:
        """Number of rows to write."""
        return sum(map(len, self.tables.values()))


class Memory:
    """Latest rows of stations and vehicles, as they were last written.

    Vehicles that a document does not list stay if one of its rows is unreadable, up to `MOST_ROWS`: a feed with new ids
    in every document would otherwise fill the memory. Stations do not stay.
    """

    def __init__(self) -> None:
        self._states: dict[str, tuple[StationState, float | None]] = {}
        self._vehicles: dict[str, Vehicle] = {}
        self._infos: dict[str, StationInfo] = {}
        self._to_restate: set[str] = set()
        self._read_states: LastRead[tuple[StationState, float | None]] = []
        self._read_vehicles: LastRead[Vehicle] = []

    def copy(self) -> Memory:
        """Return a copy that sees a document on trial: if it cannot be kept, this one has not seen it."""
        other = Memory()
        other._states, other._vehicles, other._infos = dict(self._states), dict(self._vehicles), dict(self._infos)
        other._to_restate = set(self._to_restate)
        other._read_states, other._read_vehicles = list(self._read_states), list(self._read_vehicles)
        return other

    def begin_day(self) -> None:
        """Write all rows with the next document of each feed, so that the files of a day can be read alone."""
        self._to_restate = {"changes", "vehicles", "stations"}

    def see(self, feed: str, document: Document, at: float, text: str) -> Seen:
        """Compare a document with what was last written, and return what is new.

        Parameters
        ----------
        feed : str
            Name of the feed.
        document : Document
            Its parsed document.
        at : float
            Time of the poll.
        text : str
            The document as it came; kept whole for feeds that are not tables.
        """
        if feed == STATUS:
            return self._see_states(document, at)
        if feed == INFORMATION:
            return self._see_infos(document, at)
        if feed in VEHICLE_FEEDS:
            return self._see_vehicles(document, at)
        return Seen(tables={"documents": [[feed, at, text]]})

    def replay(self, tables: Mapping[str, list[list[Any]]]) -> None:
        """Take up rows that were written before."""
        for station, _, _, reported, *state, left, _ in tables.get("changes", ()):
            if left:
                self._states.pop(station, None)
            else:
                self._states[station] = (StationState(*state), reported)
        for vehicle, _, *row, left, _ in tables.get("vehicles", ()):
            if left:
                self._vehicles.pop(vehicle, None)
            else:
                self._vehicles[vehicle] = Vehicle(*row)
        for station, _, *row in tables.get("stations", ()):
            self._infos[station] = StationInfo(*row)
        self._to_restate -= tables.keys()

    def _see_states(self, document: Document, at: float) -> Seen:
        rows, unreadable, repeated = station_states(document, self._read_states)
        restate = "changes" in self._to_restate
        table: list[list[Any]] = []
        for station, row in rows.items():
            before = self._states.get(station)
            if before is row and not restate:  # not read again: see `LastRead`
                continue
            state, reported = row
            same = before is not None and before[0] == state and not _moved(before[1], reported)
            if not same or restate:
                self._states[station] = row
                table.append([station, at, document.updated, reported, *state, False, same])
        # Nobody knows the state of a station that could not be read. With its last one it may be out of stock for days.
        for station in sorted(self._states.keys() - rows.keys()):
            state, reported = self._states.pop(station)
            gone = state._replace(installed=False, renting=False, returning=False)
            table.append([station, at, document.updated, reported, *gone, True, False])
        self._to_restate.discard("changes")
        return Seen(len(rows), unreadable, repeated, {"changes": table})

    def _see_vehicles(self, document: Document, at: float) -> Seen:
        rows, unreadable, repeated = vehicles(document, self._read_vehicles)
        restate = "vehicles" in self._to_restate
        table: list[list[Any]] = []
        for name, vehicle in rows.items():
            same = self._vehicles.get(name) == vehicle
            if not same or restate:
                table.append([name, at, *vehicle, False, same])
        if not unreadable or len(self._vehicles) > MOST_ROWS:
            gone = self._vehicles.keys() - rows.keys()
            table += [[name, at, *self._vehicles[name], True, False] for name in sorted(gone)]
            self._vehicles = rows
        else:
            self._vehicles |= rows
        self._to_restate.discard("vehicles")
        return Seen(len(rows), unreadable, repeated, {"vehicles": table})

    def _see_infos(self, document: Document, at: float) -> Seen:
        rows, unreadable, repeated = station_infos(document)
        restate = "stations" in self._to_restate
        fresh = {name: info for name, info in rows.items() if restate or self._infos.get(name) != info}
        self._infos = rows if len(self._infos) > MOST_ROWS else self._infos | fresh
        self._to_restate.discard("stations")
        table: list[list[Any]] = [[name, at, *info] for name, info in fresh.items()]
        return Seen(len(rows), unreadable, repeated, {"stations": table})


def _moved(before: float | None, now: float | None) -> bool:
    return before is not None and now is not None and now - before >= _HEARTBEAT
