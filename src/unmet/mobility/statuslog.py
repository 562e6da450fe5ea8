"""Status records in the order in which they are read off: station by station, each in time, out of core.

A record is packed into one 64-bit number (station, second, vehicles, disabled, what it says of the station), so that
sorting 50 million of them costs less than a tenth of a window over the columns. Chunks of stations go through memory
one at a time and wait on disk, sorted, for the second pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

from unmet._exceptions import InputError
from unmet.mobility.clock import Minutes
from unmet.mobility.sql import fetch_one

__all__ = ["OPEN", "Block", "StatusLog", "sort_status"]

OPEN, NOT_RENTING, NOT_INSTALLED, NOTHING_AT_ALL = range(4)
"""What a record says: it rents; it does not; it is not there; it rents but has neither a vehicle nor a dock to use."""

# Bits of the packed record, from the top: station within its chunk, second, vehicles, disabled, what it says.
_STATION, _SECOND, _COUNT, _SAYS = 12, 30, 10, 2
_MOST_STATIONS, _MOST_SECONDS, _MOST_VEHICLES = 1 << _STATION, 1 << _SECOND, (1 << _COUNT) - 1
# A chunk of records takes 8 bytes each while it is sorted, as much again while it is fetched, and DuckDB needs room too.
_BYTES_PER_RECORD = 64
_BLOCK = 1_000_000


@dataclass(frozen=True)
class Block:
    """Sorted records of some whole zones, one array per column.

    Attributes
    ----------
    station : array
        Place of the station in the order given to `sort_status`.
    second : array
        Seconds since 1970-01-01 UTC, rounded up: a record is in force at a full minute that it does not come after.
    available, disabled, says : array
        Vehicles that can be rented, those that cannot, and `OPEN`, `NOT_RENTING` ...
    """

    station: Minutes
    second: Minutes
    available: Minutes
    disabled: Minutes
    says: Minutes

    def __len__(self) -> int:
        return len(self.station)

    @property
    def minute(self) -> Minutes:
        """The first full minute at which each record is in force."""
        return -(-self.second // 60)


@dataclass(frozen=True)
class StatusLog:
    """Sorted status on disk.

    Attributes
    ----------
    chunks : tuple of (Path, int)
        Sorted numbers, and the place of the chunk's first station.
    group : array
        The zone of each station, in the given order: a block never ends within one.
    records : array
        How many records each station has.
    has_docks : array of bool
        Whether a station ever had a free dock: one without docks may be empty and have none.
    origin : int
        The second from which the packed seconds count.
    first_minute, last_minute : int
        The full minutes at which the first and the last record come into force.
    """

    chunks: tuple[tuple[Path, int], ...]
    group: Minutes
    records: Minutes
    has_docks: NDArray[np.bool_]
    origin: int
    first_minute: int
    last_minute: int

    def blocks(self) -> Iterator[Block]:
        """Go through all records in order, about a million at a time."""
        for path, first in self.chunks:
            packed = np.load(path, mmap_mode="r")
            begin = 0
            while begin < len(packed):
                end = self._block_end(packed, first, begin)
                yield _unpack(np.asarray(packed[begin:end]), first, self.origin)
                begin = end

    def _block_end(self, packed: NDArray[np.uint64], first: int, begin: int) -> int:
        end = min(begin + _BLOCK, len(packed))
        if end == len(packed):
            return end
        station = first + int(packed[end - 1] >> np.uint64(64 - _STATION))
        behind = int(np.searchsorted(self.group, self.group[station], side="right")) - first
        if behind >= _MOST_STATIONS:
            return len(packed)
        return int(np.searchsorted(packed, np.uint64(behind << (64 - _STATION))))


def sort_status(
    connection: DuckDBPyConnection, order: Sequence[int], group: Sequence[int], folder: Path, memory: int
) -> StatusLog:
    """Sort the table ``status`` by station and time.

    Parameters
    ----------
    connection : DuckDBPyConnection
        Has ``status`` as `unmet.mobility.records` makes it.
    order : sequence of int
        Numbers (``ix``) of the stations, zone by zone.
    group : sequence of int
        The zone of each of them, never falling.
    folder : Path
        For the sorted chunks.
    memory : int
        Bytes that the work may take.
    """
    stats = connection.execute(
        """SELECT ix, count(*), coalesce(max(docks), 0) > 0, min(epoch_us("at")), max(epoch_us("at")),
        max(available), coalesce(max(disabled), 0) FROM status GROUP BY ix"""
    ).fetchall()
    if not stats:
        raise InputError("The station status has no accepted record: there is nothing to build a panel from.")
    _check_range(connection, stats)
    place = {ix: i for i, ix in enumerate(order)}
    records, has_docks = np.zeros(len(order), dtype=np.int64), np.zeros(len(order), dtype=bool)
    for ix, count, docks, *_ in stats:
        records[place[ix]], has_docks[place[ix]] = count, docks
    earliest, latest = min(row[3] for row in stats), max(row[4] for row in stats)
    origin = earliest // 1_000_000
    zones = np.asarray(group, dtype=np.int64)
    chunks = []
    for number, (begin, end) in enumerate(_cut_chunks(records, zones, memory // _BYTES_PER_RECORD)):
        packed = _fetch_sorted(connection, order[begin:end], origin)
        path = folder / f"status-{number}.npy"
        np.save(path, packed)
        chunks.append((path, begin))
    first_minute, last_minute = -(-earliest // 60_000_000), -(-latest // 60_000_000)
    return StatusLog(tuple(chunks), zones, records, has_docks, origin, first_minute, last_minute)


def _check_range(connection: DuckDBPyConnection, stats: Sequence[tuple[int, ...]]) -> None:
    if (max(r[4] for r in stats) - min(r[3] for r in stats)) // 1_000_000 + 1 >= _MOST_SECONDS:
        raise InputError(
            "The status records span more than 34 years. Check their times, or give fewer files."
        )
    for row in stats:
        if max(row[5], row[6]) > _MOST_VEHICLES:
            (station,) = fetch_one(connection, "SELECT station FROM stations WHERE ix = ?", [row[0]])
            raise InputError(
                f"Station {station!r} reports {max(row[5], row[6]):,} vehicles at once; "
                f"up to {_MOST_VEHICLES:,} were expected. Is the column of available vehicles the right one?"
            )


def _cut_chunks(records: Minutes, group: Minutes, most_records: int) -> list[tuple[int, int]]:
    """Cut the stations into runs of whole zones that fit into memory and into the packed number."""
    chunks = []
    begin = end = held = 0
    for stop in [*(np.flatnonzero(np.diff(group)) + 1).tolist(), len(group)]:
        size = int(records[end:stop].sum())
        if stop - end > _MOST_STATIONS:
            raise InputError(
                f"A zone with {stop - end:,} stations is too large; up to {_MOST_STATIONS:,} are possible."
            )
        if end > begin and (held + size > most_records or stop - begin > _MOST_STATIONS):
            chunks.append((begin, end))
            begin, held = end, 0
        held += size
        end = stop
    chunks.append((begin, end))
    return chunks


def _fetch_sorted(connection: DuckDBPyConnection, stations: Sequence[int], origin: int) -> NDArray[np.uint64]:
    connection.execute("CREATE OR REPLACE TEMP TABLE chunk_of_stations (ix INTEGER, place UBIGINT)")
    values = ", ".join(f"({int(ix)}, {place})" for place, ix in enumerate(stations))
    connection.execute(f"INSERT INTO chunk_of_stations VALUES {values}")
    says = f"""CASE WHEN NOT installed THEN {NOT_INSTALLED} WHEN NOT renting THEN {NOT_RENTING}
        WHEN available = 0 AND docks = 0 THEN {NOTHING_AT_ALL} ELSE {OPEN} END"""
    packed: NDArray[np.uint64] = connection.execute(
        f"""SELECT place * {1 << (64 - _STATION)}
        + ((epoch_us("at") + 999999) // 1000000 - {origin})::UBIGINT * {1 << (2 * _COUNT + _SAYS)}
        + available::UBIGINT * {1 << (_COUNT + _SAYS)} + coalesce(disabled, 0)::UBIGINT * {1 << _SAYS}
        + ({says})::UBIGINT AS packed
        FROM status JOIN chunk_of_stations USING (ix)"""
    ).fetchnumpy()["packed"]
    packed = np.ascontiguousarray(packed, dtype=np.uint64)
    packed.sort()
    return packed


def _unpack(packed: NDArray[np.uint64], first: int, origin: int) -> Block:
    def bits(low: int, width: int) -> Minutes:
        return ((packed >> np.uint64(low)) & np.uint64((1 << width) - 1)).astype(np.int64)

    return Block(
        bits(64 - _STATION, _STATION) + first,
        bits(2 * _COUNT + _SAYS, _SECOND) + origin,
        bits(_COUNT + _SAYS, _COUNT),
        bits(_SAYS, _COUNT),
        bits(0, _SAYS),
    )
