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

# Bits of the packed record, from the top: station within its chunk; full minute at which it comes into force and second
# before that; vehicles; disabled ones; the reason that it gives by itself.
_STATION, _MINUTE, _SECOND, _COUNT, _REASON = 11, 24, 6, 10, 3
_MOST_STATIONS, _MOST_MINUTES, _MOST_VEHICLES = 1 << _STATION, 1 << _MINUTE, (1 << _COUNT) - 1
# A chunk of records takes 8 bytes each while it is sorted, as much again while it is fetched, and DuckDB needs room too.
_BYTES_PER_RECORD = 64
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
    """Sorted status on disk.

    Attributes
    ----------
    chunks : tuple of (array, int)
        Sorted packed records (on disk where they are many), and the place of the chunk's first station.
    group : array
        The zone of each station, in the given order: a block never ends within one.
    records : array
        How many records each station has.
    origin : int
        The minute from which the packed minutes count.
    first_minute, last_minute : int
        The full minutes at which the first and the last record come into force.
    """

    chunks: tuple[tuple[NDArray[np.uint64], int], ...]
    group: Minutes
    records: Minutes
    origin: int
    first_minute: int
    last_minute: int

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
    records = np.zeros(len(order), dtype=np.int64)
    for ix, count, *_ in stats:
        records[place[ix]] = count
    docked = {row[0] for row in stats if row[2]}
    earliest, latest = min(row[3] for row in stats), max(row[4] for row in stats)
    first_minute, last_minute = -(-earliest // 60_000_000), -(-latest // 60_000_000)
    zones = np.asarray(group, dtype=np.int64)
    chunks = []
    for number, (begin, end) in enumerate(_cut_chunks(records, zones, memory // _BYTES_PER_RECORD)):
        packed = _fetch_sorted(connection, order[begin:end], docked, first_minute)
        if records.sum() * packed.itemsize > memory // 4:
            path = folder / f"status-{number}.npy"
            np.save(path, packed)
            packed = np.load(path, mmap_mode="r")
        chunks.append((packed, begin))
    return StatusLog(tuple(chunks), zones, records, first_minute, first_minute, last_minute)


def _check_range(connection: DuckDBPyConnection, stats: Sequence[tuple[int, ...]]) -> None:
    if (max(r[4] for r in stats) - min(r[3] for r in stats)) // 60_000_000 + 1 >= _MOST_MINUTES:
        raise InputError(
            "The status records span more than 31 years. Check their times, or give fewer files."
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


def _fetch_sorted(
    connection: DuckDBPyConnection, stations: Sequence[int], docked: set[int], origin: int
) -> NDArray[np.uint64]:
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE chunk_of_stations (ix INTEGER, place UBIGINT, docked BOOLEAN)"
    )
    values = ", ".join(f"({int(ix)}, {place}, {ix in docked})" for place, ix in enumerate(stations))
    connection.execute(f"INSERT INTO chunk_of_stations VALUES {values}")
    # A record is in force at a full minute that it does not come after: seconds and minutes are rounded up. `late` is
    # the second plus 59: its whole minutes are that full minute, and what is left orders the records within it.
    late = f'(epoch_us("at") + 59999999) // 1000000 - {origin * 60}'
    reason = f"""CASE WHEN NOT installed THEN {NOT_INSTALLED} WHEN NOT renting THEN {NOT_RENTING}
        WHEN available > 0 THEN {VEHICLES} WHEN docked AND docks = 0 THEN {DEAD} ELSE {EMPTY} END"""
    low = 2 * _COUNT + _REASON
    found = connection.execute(
        f"""SELECT (place << {64 - _STATION}) | (((late // 60) << {low + _SECOND}) | ((late % 60) << {low})
            | (available::BIGINT << {_COUNT + _REASON}) | (coalesce(disabled, 0)::BIGINT << {_REASON})
            | reason)::UBIGINT AS packed
        FROM (SELECT place, {late} AS late, available, disabled, ({reason})::BIGINT AS reason
              FROM status JOIN chunk_of_stations USING (ix))"""
    ).fetchnumpy()
    packed = np.ascontiguousarray(found["packed"], dtype=np.uint64)
    packed.sort(
        kind="stable"
    )  # files come by station and time, or by time: runs, of which this sort makes use
    return packed


def _unpack(packed: NDArray[np.uint64], first: int, origin: int) -> Block:
    def bits(low: int, width: int, dtype: type[np.signedinteger[Any]]) -> NDArray[Any]:
        kept = (packed >> np.uint64(low)).astype(dtype)
        kept &= dtype((1 << width) - 1)
        return kept

    low = 2 * _COUNT + _REASON
    station = bits(64 - _STATION, _STATION, np.int64)
    is_new = np.ones(len(packed), dtype=bool)
    is_new[1:] = station[1:] != station[:-1]
    return Block(
        station + first,
        bits(low + _SECOND, _MINUTE, np.int64) + origin,
        bits(low, _SECOND, np.int8) == 59,
        bits(_COUNT + _REASON, _COUNT, np.int16),
        bits(_REASON, _COUNT, np.int16),
        bits(0, _REASON, np.int8),
        is_new,
    )
