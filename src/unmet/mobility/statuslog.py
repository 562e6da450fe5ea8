"""Status records in the order in which they are read off: station by station, each in time, out of core.

A record is packed into one 64-bit number (station, second, vehicles, disabled, what it says of the station), so that
sorting 50 million of them costs less than a tenth of a window over the columns. Chunks of stations go through memory
one at a time and wait on disk, sorted, for the second pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

from unmet._exceptions import InputError
from unmet.mobility.clock import Minutes
from unmet.mobility.sql import fetch_one
from unmet.mobility.states import DEAD, EMPTY, NOT_INSTALLED, NOT_RENTING, VEHICLES

__all__ = ["Block", "StatusLog", "sort_status"]

# Bits of the packed record, from the top: station within its chunk; second; vehicles; disabled ones; what it says.
_STATION, _SECOND, _COUNT, _SAYS = 11, 30, 10, 3
_PAYLOAD = 2 * _COUNT + _SAYS
_MOST_STATIONS, _LAST_SECOND, _TOO_MANY = 1 << _STATION, (1 << _SECOND) - 1, (1 << _COUNT) - 1
_ORIGIN = 1_104_537_600  # 2005-01-01: the seconds reach to 2039; for older records another origin is looked up
# What a record says, twice, plus one where it has a free dock (or does not know).
_SAYS_VEHICLES, _SAYS_EMPTY, _SAYS_NOT_RENTING, _SAYS_NOT_INSTALLED = 0, 2, 4, 6
_REASON = np.array([VEHICLES, VEHICLES, EMPTY, EMPTY, *[NOT_RENTING] * 2, *[NOT_INSTALLED] * 2], dtype=np.int8)
# Sorting takes 8 bytes a record twice, and DuckDB needs room too.
_BYTES_PER_RECORD = 32
_BLOCK = 300_000  # fits into the cache


@dataclass(frozen=True)
class Block:
    """Sorted records of some whole zones, one array per column.

    Attributes
    ----------
    station : array
        Place of the station in the order given to `sort_status`.
    minute : array
        The first full minute at which each record is in force.
    on_the_minute : array of bool
        Whether the record came just then, and not in the minute before.
    available, disabled : array
        Vehicles that can be rented, and those that cannot.
    reason : array
        `VEHICLES`, `EMPTY`, `NOT_RENTING`, `DEAD` or `NOT_INSTALLED`.
    is_new : array of bool
        Where the records of a station begin.
    """

    station: Minutes
    minute: Minutes
    on_the_minute: NDArray[np.bool_]
    available: NDArray[np.int16]
    disabled: NDArray[np.int16]
    reason: NDArray[np.int8]
    is_new: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.station)

    @property
    def is_open(self) -> NDArray[np.bool_]:
        """Whether the station rents, be it empty or not."""
        return (self.reason == VEHICLES) | (self.reason == EMPTY)


@dataclass(frozen=True)
class StatusLog:
    """Sorted status.

    Attributes
    ----------
    chunks : tuple of (array, int)
        Sorted packed records (on disk where they are many), and the place of the chunk's first station.
    group : array
        The zone of each station, in the given order: a block never ends within one.
    records : array
        How many records each station has.
    origin : int
        The second from which the packed seconds count.
    first_minute, last_minute : int
        The full minutes at which the first and the last record come into force.
    duplicates : int
        Records that were left out because a later one is of the same station and second.
    """

    chunks: tuple[tuple[NDArray[np.uint64], int], ...]
    group: Minutes
    records: Minutes
    origin: int
    first_minute: int
    last_minute: int
    duplicates: int

    def blocks(self) -> Iterator[Block]:
        """Go through all records in order, some hundred thousand at a time."""
        for packed, first in self.chunks:
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
    connection: DuckDBPyConnection,
    order: Sequence[int],
    group: Sequence[int],
    folder: Path,
    memory: int,
    origin: int = _ORIGIN,
) -> StatusLog:
    """Sort the table ``status`` by station and time, and leave out duplicates.

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
    origin : int
        The second from which to count.
    """
    (rows,) = fetch_one(connection, "SELECT count(*) FROM status")
    if rows == 0:
        raise InputError("The station status has no accepted record: there is nothing to build a panel from.")
    zones = np.asarray(group, dtype=np.int64)
    records = np.zeros(len(order), dtype=np.int64)
    chunks: list[tuple[NDArray[np.uint64], int]] = []
    ends: list[int] = []
    duplicates = 0
    for number, (begin, end) in enumerate(_cut_chunks(connection, order, zones, rows, memory // _BYTES_PER_RECORD)):
        packed, dropped = _fetch_sorted(connection, order[begin:end], origin)
        if len(packed) == 0:
            continue
        duplicates += dropped
        records[begin:end] = np.bincount(_station(packed), minlength=end - begin)
        ends += _check_range(connection, packed, order[begin:end])
        if rows * packed.itemsize > memory // 4:
            path = folder / f"status-{number}.npy"
            np.save(path, packed)
            packed = np.load(path, mmap_mode="r")
        chunks.append((packed, begin))
    if min(ends) == 0 or max(ends) == _LAST_SECOND:
        return _sort_old(connection, order, group, folder, memory, origin)
    first, last = -(-(origin + min(ends)) // 60), -(-(origin + max(ends)) // 60)
    return StatusLog(tuple(chunks), zones, records, origin, first, last, duplicates)


def _sort_old(
    connection: DuckDBPyConnection, order: Sequence[int], group: Sequence[int], folder: Path, memory: int, origin: int
) -> StatusLog:
    """Sort records that are older (or newer) than the packed seconds reach."""
    (earliest,) = fetch_one(connection, 'SELECT epoch_us(min("at")) // 1000000 FROM status')
    if origin == earliest - 60:
        raise InputError("The status records span more than 34 years. Check their times, or give fewer files.")
    return sort_status(connection, order, group, folder, memory, earliest - 60)


def _cut_chunks(
    connection: DuckDBPyConnection, order: Sequence[int], group: Minutes, rows: int, most_records: int
) -> list[tuple[int, int]]:
    """Cut the stations into runs of whole zones that fit into memory and into the packed number."""
    if rows <= most_records and len(group) <= _MOST_STATIONS:
        return [(0, len(group))]
    counts = dict(connection.execute("SELECT ix, count(*) FROM status GROUP BY ix").fetchall())
    records = np.array([counts.get(ix, 0) for ix in order])
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


def _fetch_sorted(
    connection: DuckDBPyConnection, stations: Sequence[int], origin: int
) -> tuple[NDArray[np.uint64], int]:
    """Fetch the records of some stations, packed and sorted, and say how many duplicates were left out."""
    values = ", ".join(f"({int(ix)}, {place})" for place, ix in enumerate(stations))
    connection.execute("CREATE OR REPLACE TEMP TABLE chunk_of_stations (ix INTEGER, place UBIGINT)")
    connection.execute(f"INSERT INTO chunk_of_stations VALUES {values}")
    # A record is in force at a full minute that it does not come after: times are rounded up.
    second = f'greatest(0, least({_LAST_SECOND}, (epoch_us("at") + 999999) // 1000000 - {origin}))'
    says = f"""CASE WHEN NOT installed THEN {_SAYS_NOT_INSTALLED} WHEN NOT renting THEN {_SAYS_NOT_RENTING}
        WHEN available > 0 THEN {_SAYS_VEHICLES} ELSE {_SAYS_EMPTY} END + (coalesce(docks, 1) > 0)::INTEGER"""
    select = f"""SELECT (place << {64 - _STATION}) | ({second}::UBIGINT << {_PAYLOAD})
            | (least(available, {_TOO_MANY}) * {1 << (_COUNT + _SAYS)}
               + least(coalesce(disabled, 0), {_TOO_MANY}) * {1 << _SAYS} + {says})::UBIGINT AS packed, rn
        FROM status JOIN chunk_of_stations USING (ix)"""
    found = connection.execute(f"SELECT packed FROM ({select})").fetchnumpy()
    packed = np.ascontiguousarray(found["packed"], dtype=np.uint64)
    packed.sort(kind="stable")  # files come by station and time, or by time: runs, of which this sort makes use
    key = packed >> np.uint64(_PAYLOAD)
    again = np.flatnonzero(key[1:] == key[:-1]) + 1
    if len(again) == 0:
        return packed, 0
    # Of each station and second the last record of the files holds.
    keys = np.unique(key[again])
    connection.register("some_rows", {"key": keys})
    winners = connection.execute(
        f"""SELECT packed >> {_PAYLOAD} AS key, arg_max(packed, rn) AS packed FROM ({select})
        WHERE packed >> {_PAYLOAD} IN (SELECT key FROM some_rows) GROUP BY 1 ORDER BY 1"""
    ).fetchnumpy()
    connection.unregister("some_rows")
    packed[np.searchsorted(key, keys)] = np.asarray(winners["packed"], dtype=np.uint64)
    return np.delete(packed, again), len(again)


def _station(packed: NDArray[np.uint64]) -> NDArray[np.int16]:
    return (packed >> np.uint64(64 - _STATION)).astype(np.int16)


def _check_range(
    connection: DuckDBPyConnection, packed: NDArray[np.uint64], stations: Sequence[int]
) -> tuple[int, int]:
    """Refuse more vehicles than a record can hold; return the first and the last second."""
    ends = []
    for begin in range(0, len(packed), _BLOCK):
        some = packed[begin : begin + _BLOCK]
        seconds = (some >> np.uint64(_PAYLOAD)) & np.uint64(_LAST_SECOND)
        ends += [int(seconds.min()), int(seconds.max())]
        for low in (_SAYS, _SAYS + _COUNT):
            full = ((some >> np.uint64(low)) & np.uint64(_TOO_MANY)) == _TOO_MANY
            if full.any():
                ix = stations[int(_station(some)[full.argmax()])]
                (name,) = fetch_one(connection, "SELECT station FROM stations WHERE ix = ?", [ix])
                raise InputError(
                    f"Station {name!r} reports {_TOO_MANY:,} vehicles or more at once; fewer were expected. "
                    "Is the column of vehicles the right one?"
                )
    return min(ends), max(ends)


def _unpack(packed: NDArray[np.uint64], first: int, origin: int) -> Block:
    def bits(low: int, width: int, dtype: type[np.signedinteger[Any]]) -> NDArray[Any]:
        kept = (packed >> np.uint64(low)).astype(dtype)
        kept &= dtype((1 << width) - 1)
        return kept

    station = bits(64 - _STATION, _STATION, np.int64)
    second = bits(_PAYLOAD, _SECOND, np.int64)
    second += origin
    minute = (second + 59) // 60
    is_new = np.ones(len(packed), dtype=bool)
    is_new[1:] = station[1:] != station[:-1]
    says = bits(0, _SAYS, np.int8)
    reason = _REASON[says]
    no_dock = np.flatnonzero(says == _SAYS_EMPTY)
    if len(no_dock):
        # Without a vehicle and a dock a station is dead; but one that never has a dock has none to lose.
        docked = np.bincount(station, weights=says & 1) > 0
        reason[no_dock[docked[station[no_dock]]]] = DEAD
    return Block(
        station + first,
        minute,
        minute * 60 == second,
        bits(_COUNT + _SAYS, _COUNT, np.int16),
        bits(_SAYS, _COUNT, np.int16),
        reason,
        is_new,
    )
