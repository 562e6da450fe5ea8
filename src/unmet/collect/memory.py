"""What the collector remembers of a system between two polls: enough to write down only what changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from unmet.collect.documents import Document, StationInfo, StationState, station_infos, station_states, vehicles

__all__ = ["INFORMATION", "STATUS", "VEHICLE_FEEDS", "Memory", "Seen"]

STATUS, INFORMATION = "station_status", "station_information"
VEHICLE_FEEDS = ("vehicle_status", "free_bike_status")

# A station whose counts stay the same is written again when its last_reported has moved by this many seconds: a reader
# can then tell a quiet station from a dead one.
_HEARTBEAT = 3600.0


@dataclass(frozen=True)
class Seen:
    """Content of one document.

    Attributes
    ----------
    rows : int
        Stations or vehicles in the document.
    unreadable : int
        Further ones that could not be read.
    tables : dict
        Rows to write, by table of `unmet.collect.history.TABLES`.
    """

    rows: int
    unreadable: int = 0
    tables: dict[str, list[list[Any]]] = field(default_factory=dict)

    @property
    def changes(self) -> int:
        """Number of rows to write."""
        return sum(map(len, self.tables.values()))


class Memory:
    """Latest rows of a system's stations, as they were last written."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[StationState, float | None]] = {}
        self._infos: dict[str, StationInfo] = {}

    def forget(self) -> None:
        """Begin a new day: the next poll writes all stations."""
        self._states.clear()
        self._infos.clear()

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
            rows, unreadable = vehicles(document)
            table = [[name, at, *vehicle] for name, vehicle in rows.items()]
            return Seen(len(rows), unreadable, {"vehicles": table})
        return Seen(0, 0, {"documents": [[feed, at, text]]})

    def replay(self, tables: dict[str, list[list[Any]]]) -> None:
        """Take up what a frame of the day in progress has written."""
        for station, _, _, reported, *counts, left in tables.get("changes", []):
            if left:
                self._states.pop(station, None)
            else:
                self._states[station] = (StationState(*counts), reported)
        for station, _, *description in tables.get("stations", []):
            self._infos[station] = StationInfo(*description)

    def _see_states(self, document: Document, at: float) -> Seen:
        rows, unreadable = station_states(document)
        changed = []
        for station, (state, reported) in rows.items():
            before = self._states.get(station)
            if before is not None and before[0] == state and not _moved(before[1], reported):
                continue
            self._states[station] = (state, reported)
            changed.append([station, at, document.updated, reported, *state, False])
        if not unreadable:  # a station that could not be read has not left
            for station in [name for name in self._states if name not in rows]:
                state, reported = self._states.pop(station)
                changed.append([station, at, document.updated, reported, *state, True])
        return Seen(len(rows), unreadable, {"changes": changed})

    def _see_infos(self, document: Document, at: float) -> Seen:
        rows, unreadable = station_infos(document)
        fresh = {name: info for name, info in rows.items() if self._infos.get(name) != info}
        self._infos.update(fresh)
        return Seen(len(rows), unreadable, {"stations": [[name, at, *info] for name, info in fresh.items()]})


def _moved(before: float | None, now: float | None) -> bool:
    return before is not None and now is not None and now - before >= _HEARTBEAT
