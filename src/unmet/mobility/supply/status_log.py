"""Status records sorted by station and time, larger than memory if need be.

A record is packed into one 64-bit number (station, second, vehicles, disabled vehicles, report), so that sorting 50
million of them costs less than a tenth of a window function over the columns. Chunks of stations are sorted in memory,
one at a time, and kept on disk for the second pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

from unmet._exceptions import InputError
from unmet._storage.sql import fetch_one
from unmet.mobility.clock.bins import Integers
from unmet.mobility.supply.states import DEAD, EMPTY, NOT_INSTALLED, NOT_RENTING, VEHICLES

__all__ = ["DOCKS_UNKNOWN", "MANY_DOCKS", "NO_RETURNS", "StatusLog", "StatusRecords", "sort_status"]

MANY_DOCKS, NO_RETURNS, DOCKS_UNKNOWN = 5, 6, 7
"""Codes of `StatusRecords.docks` for five free docks or more, a station that accepts no returns, and no report."""

# Bits of the packed record, from the top: station within its chunk; second; vehicles; disabled vehicles; report; docks.
_STATION, _SECOND, _VEHICLES, _DISABLED, _REPORT, _DOCKS = 11, 29, 10, 9, 2, 3
_PAYLOAD = _VEHICLES + _DISABLED + _REPORT + _DOCKS
_MOST_STATIONS, _LAST_SECOND = 1 << _STATION, (1 << _SECOND) - 1
_ORIGIN = 1_420_070_400  # 2015-01-01; seconds from there reach to 2032, and other records get another origin
_REASON = np.array([VEHICLES, EMPTY, NOT_RENTING, NOT_INSTALLED], dtype=np.int8)  # by report
# Sorting needs twice 8 bytes per record, and DuckDB needs memory too.
_BYTES_PER_RECORD = 32
_BLOCK = 300_000  # records that fit into the cache
_NOTHING = "The station status has no accepted record, so no panel can be built from it."


@dataclass(frozen=True)
class StatusRecords:
    """Sorted records of some whole zones, one array per column.

    Attributes
    ----------
    station : array
        Position of the station in the order given to `sort_status`.
    minute : array
        The first full minute at which each record is in force.
    second, origin : array, int
        The second of each record, counted from `origin`.
    available, disabled : array
        Vehicles that can be rented, and those that cannot.
    docks : array
        Free docks, up to `MANY_DOCKS`, or `NO_RETURNS` or `DOCKS_UNKNOWN`.
    reason : array
        `VEHICLES`, `EMPTY`, `NOT_RENTING`, `DEAD` or `NOT_INSTALLED`.
    is_new : array of bool
        Whether a record is the first one of its station.
    """

    station: Integers
    minute: Integers
    second: NDArray[np.int32]
    origin: int
    available: NDArray[np.int16]
    disabled: NDArray[np.int16]
    docks: NDArray[np.int8]
    reason: NDArray[np.int8]
    is_new: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.station)

    def minute_of_arrival(self, rows: Integers) -> Integers:
        """Return the minutes in which some of the records came."""
        minutes: Integers = (self.second[rows].astype(np.int64) + self.origin) // 60
        return minutes

    @property
    def is_open(self) -> NDArray[np.bool_]:
        """Whether the station rents, with or without vehicles."""
        return (self.reason == VEHICLES) | (self.reason == EMPTY)


@dataclass(frozen=True)
class StatusLog:
    """Sorted status records.

    Attributes
    ----------
    chunks : tuple of (array or Path, int)
        Sorted packed records (in a file if they are many), and the position of the chunk's first station.
    group : array
        The zone of each station, in the given order. A block never ends within a zone.
    records : array
        Number of records of each station.
    origin : int
        The second from which packed seconds are counted.
    first_minute, last_minute : int
        The full minutes from which the first and the last record are in force, or of the last poll if that is later.
    duplicates : int
        Records of the chosen period that were left out because a later one has the same station and second.
    repeats : int
        Likewise, of the same content: a look that keeps the time at which a station last reported.
    """

    chunks: tuple[tuple[NDArray[np.uint64] | Path, int], ...]
    group: Integers
    records: Integers
    origin: int
    first_minute: int
    last_minute: int
    duplicates: int
    repeats: int

    def cut(self, begin: int, end: int) -> StatusLog:
        """Return the records of the stations from position `begin` up to `end`; positions stay the same.

        They are in memory, unless they are all.
        """
        if begin == 0 and end == len(self.records):
            return self
        chunks = []
        for packed, first in self.chunks:
            edges = np.concatenate([[0], np.cumsum(self.records[first:])])
            low, high = (min(int(edges[max(place - first, 0)]), _length(packed)) for place in (begin, end))
            if high > low:
                chunks.append((_read(packed, low, high), max(begin, first)))
        return replace(self, chunks=tuple(chunks))

    def of_stations(self, places: Integers) -> Iterator[StatusRecords]:
        """Yield the records of some stations, one station after the other."""
        for packed, first in self.chunks:
            edges = np.concatenate([[0], np.cumsum(self.records[first:])])
            for place in places[(places >= first) & (edges[np.maximum(places - first, 0)] < _length(packed))]:
                low, high = edges[place - first : place - first + 2]
                if high > low:
                    yield _unpack(_read(packed, low, high), self.records[place : place + 1], int(place), self.origin)

    def blocks(self) -> Iterator[StatusRecords]:
        """Yield all records in order, in blocks of whole zones, some hundred thousand records at a time."""
        for packed, first in self.chunks:
            behind = first + np.searchsorted(np.cumsum(self.records[first:]), _length(packed)) + 1
            edges = np.concatenate([[0], np.cumsum(self.records[first:behind])])
            zone_ends = np.flatnonzero(np.diff(self.group[first:behind], append=-1)) + 1
            begin = 0
            while begin < behind - first:
                fits = np.searchsorted(edges[zone_ends], edges[begin] + _BLOCK, side="right") - 1
                end = int(zone_ends[max(fits, np.searchsorted(zone_ends, begin, side="right"))])
                if edges[end] > edges[begin]:
                    some = _read(packed, edges[begin], edges[end])
                    yield _unpack(some, self.records[first + begin : first + end], first + begin, self.origin)
                begin = end


def _length(packed: NDArray[np.uint64] | Path) -> int:
    return packed.stat().st_size // 8 if isinstance(packed, Path) else len(packed)


def _read(packed: NDArray[np.uint64] | Path, begin: int, end: int) -> NDArray[np.uint64]:
    """Return some records. A file is read in pieces, because pages of a mapped file would stay in memory."""
    if isinstance(packed, Path):
        return np.fromfile(packed, dtype=np.uint64, count=int(end - begin), offset=int(begin) * 8)
    return packed[begin:end]


def sort_status(
    connection: DuckDBPyConnection,
    order: Sequence[int],
    group: Sequence[int],
    folder: Path,
    memory: int,
    rows: int,
    within: tuple[int | None, int | None] = (None, None),
    origin: int = _ORIGIN,
    *,
    docks_of_capacity: bool = True,
) -> StatusLog:
    """Sort the table ``status`` by station and time, and leave out duplicates.

    Parameters
    ----------
    connection : DuckDBPyConnection
        Database with the table ``status`` of `unmet.mobility.records.read`.
    order : sequence of int
        Numbers (``ix``) of the stations, sorted by zone.
    group : sequence of int
        The zone of each of them, ascending.
    folder : Path
        Folder for the sorted chunks.
    memory : int
        Memory limit in bytes.
    rows : int
        Number of records, or a little more.
    within : tuple of int or None
        The chosen period, in minutes. Duplicates outside are left out too, but not counted.
    origin : int
        The second from which packed seconds are counted.
    docks_of_capacity : bool
        Whether free docks that nobody reports are the capacity less all vehicles. Not if only some types count.
    """
    if rows == 0:
        raise InputError(_NOTHING)
    zones = np.asarray(group, dtype=np.int64)
    records = np.zeros(len(order), dtype=np.int64)
    chunks: list[tuple[NDArray[np.uint64] | Path, int]] = []
    ends: list[int] = []
    duplicates = repeats = 0
    for number, (begin, end) in enumerate(_cut_chunks(connection, order, zones, rows, memory // _BYTES_PER_RECORD)):
        packed, dropped, repeated = _fetch_sorted(connection, order[begin:end], len(order), origin, docks_of_capacity)
        if len(packed) == 0:
            continue
        duplicates += _count_within(dropped + origin, within)
        repeats += _count_within(repeated + origin, within)
        edges = np.searchsorted(packed, np.arange(end - begin, dtype=np.uint64) << np.uint64(64 - _STATION))
        edges = np.append(edges, len(packed))
        of_station = edges[:-1][np.diff(edges) > 0]
        seconds = _seconds(packed[np.concatenate([of_station, np.append(of_station[1:], len(packed)) - 1])])
        ends += [int(seconds.min()), int(seconds.max())]
        if end - begin == len(order):  # a single chunk is sorted by the numbers of the stations
            if list(order) != sorted(order):
                packed = np.concatenate([packed[edges[ix] : edges[ix + 1]] for ix in order])
            records[:] = np.diff(edges)[np.asarray(order)]
        else:
            records[begin:end] = np.diff(edges)
        _check_counts(connection, packed, order[begin:end], np.cumsum(records[begin:end]))
        if rows * packed.itemsize > memory // 4:
            path = folder / f"status-{number}.bin"
            packed.tofile(path)
            chunks.append((path, begin))
        else:
            chunks.append((packed, begin))
    if not ends:
        raise InputError(_NOTHING)
    if min(ends) == 0 or max(ends) == _LAST_SECOND:
        return _sort_old(connection, order, group, folder, memory, rows, within, origin, docks_of_capacity)
    first, last = -(-(origin + min(ends)) // 60), -(-(origin + max(ends)) // 60)
    return StatusLog(tuple(chunks), zones, records, origin, first, last, duplicates, repeats)


def _sort_old(
    connection: DuckDBPyConnection,
    order: Sequence[int],
    group: Sequence[int],
    folder: Path,
    memory: int,
    rows: int,
    within: tuple[int | None, int | None],
    origin: int,
    docks_of_capacity: bool,
) -> StatusLog:
    """Sort records that are older (or newer) than packed seconds allow, with another origin."""
    (earliest,) = fetch_one(connection, "SELECT min(second) FROM status")
    if origin == earliest - 60:
        raise InputError("The status records span more than 17 years. Check their times, or give fewer files.")
    return sort_status(
        connection, order, group, folder, memory, rows, within, earliest - 60, docks_of_capacity=docks_of_capacity
    )


def _count_within(seconds: Integers, within: tuple[int | None, int | None]) -> int:
    begin, end = (limit if minute is None else 60 * minute for minute, limit in zip(within, (0, 1 << 62), strict=True))
    return int(((seconds >= begin) & (seconds < end)).sum())


def _cut_chunks(
    connection: DuckDBPyConnection, order: Sequence[int], group: Integers, rows: int, most_records: int
) -> list[tuple[int, int]]:
    """Cut the stations into chunks of whole zones that fit into memory and into the packed number."""
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
                f"A zone has {stop - end:,} stations; at most {_MOST_STATIONS:,} are possible. Choose smaller zones."
            )
        if end > begin and (held + size > most_records or stop - begin > _MOST_STATIONS):
            chunks.append((begin, end))
            begin, held = end, 0
        held += size
        end = stop
    chunks.append((begin, end))
    return chunks


def _fetch_sorted(
    connection: DuckDBPyConnection, stations: Sequence[int], of_all: int, origin: int, docks_of_capacity: bool
) -> tuple[NDArray[np.uint64], Integers, Integers]:
    """Fetch the records of some stations, packed and sorted, and the seconds of those that were left out.

    These are duplicates with another content than a later one, and repeats with the same.

    Records are sorted by the station's number (``ix``) if `stations` are all, else by its position in `stations`.
    """
    number, source = "ix", "status"
    if len(stations) < of_all:
        values = ", ".join(f"({int(ix)}, {place})" for place, ix in enumerate(stations))
        connection.execute("CREATE OR REPLACE TEMP TABLE chunk_of_stations (ix INTEGER, place INTEGER)")
        connection.execute(f"INSERT INTO chunk_of_stations VALUES {values}")
        number, source = "place", "status JOIN chunk_of_stations USING (ix)"
    docks = "docks"
    reported = connection.execute("SELECT 1 FROM status WHERE docks IS NOT NULL LIMIT 1").fetchone() is not None
    if docks_of_capacity and not reported:
        source += " JOIN stations USING (ix)"
        docks = "greatest(capacity::INTEGER - available - coalesce(disabled, 0), 0)"
    report = "CASE WHEN NOT installed THEN 3 WHEN NOT renting THEN 2 WHEN available > 0 THEN 0 ELSE 1 END"
    # Without a vehicle or a free dock a station is dead, whatever it says of returns.
    free = f"""CASE WHEN available = 0 AND {docks} = 0 THEN 0 WHEN NOT accepting THEN {NO_RETURNS}
        WHEN {docks} IS NULL THEN {DOCKS_UNKNOWN} ELSE least({docks}, {MANY_DOCKS}) END"""
    select = f"""SELECT ({number}::UBIGINT << {64 - _STATION})
            | ((CASE WHEN second < {origin} THEN 0 WHEN second > {origin + _LAST_SECOND} THEN {_LAST_SECOND}
                ELSE second - {origin} END)::UBIGINT << {_PAYLOAD})
            | (least(available, {(1 << _VEHICLES) - 1}) * {1 << (_PAYLOAD - _VEHICLES)}
               + least(coalesce(disabled, 0), {(1 << _DISABLED) - 1}) * {1 << (_REPORT + _DOCKS)}
               + ({report}) * {1 << _DOCKS} + {free})::UBIGINT AS packed, rn
        FROM {source}"""
    found = connection.execute(f"SELECT packed FROM ({select})").fetchnumpy()
    packed = np.ascontiguousarray(found.pop("packed"), dtype=np.uint64)
    packed.sort(kind="stable")  # files are sorted by station and time, or by time: this sort is fast on sorted runs
    again = _repeated(packed)
    if len(again) == 0:
        return packed, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    same = packed[again] == packed[again - 1]
    seconds = _seconds(packed[again]).astype(np.int64)
    # The last record of a station and second, in the order of the files, is kept.
    keys = np.unique(packed[again] >> np.uint64(_PAYLOAD))
    connection.register("some_rows", {"key": keys})
    winners = connection.execute(
        f"""SELECT packed >> {_PAYLOAD} AS key, arg_max(packed, rn) AS packed FROM ({select})
        WHERE packed >> {_PAYLOAD} IN (SELECT key FROM some_rows) GROUP BY 1 ORDER BY 1"""
    ).fetchnumpy()
    connection.unregister("some_rows")
    packed[np.searchsorted(packed, keys << np.uint64(_PAYLOAD))] = np.asarray(winners["packed"], dtype=np.uint64)
    return np.delete(packed, again), seconds[~same], seconds[same]


def _repeated(packed: NDArray[np.uint64]) -> Integers:
    """Return the positions of sorted records with the same station and second as the one before."""
    found = []
    for begin in range(0, len(packed), _BLOCK):
        some = packed[begin : begin + _BLOCK + 1]
        found.append(begin + 1 + np.flatnonzero((some[1:] ^ some[:-1]) < np.uint64(1 << _PAYLOAD)))
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _seconds(packed: NDArray[np.uint64]) -> NDArray[np.int32]:
    kept = (packed >> np.uint64(_PAYLOAD)).astype(np.int32)
    kept &= np.int32(_LAST_SECOND)
    return kept


def _check_counts(
    connection: DuckDBPyConnection, packed: NDArray[np.uint64], stations: Sequence[int], ends: Integers
) -> None:
    """Refuse more vehicles than a packed record can contain. `ends` are the positions after each station's records."""
    for begin in range(0, len(packed), _BLOCK):
        some = packed[begin : begin + _BLOCK]
        for kind, low, width in (("disabled ", _REPORT + _DOCKS, _DISABLED), ("", _PAYLOAD - _VEHICLES, _VEHICLES)):
            most = (1 << width) - 1
            field = np.uint64(most << low)
            if (some & field).max() == field:
                row = begin + int(((some & field) == field).argmax())
                ix = stations[int(np.searchsorted(ends, row, side="right"))]
                (name,) = fetch_one(connection, "SELECT station FROM stations WHERE ix = ?", [ix])
                raise InputError(
                    f"Station {name!r} reports {most:,} {kind}vehicles or more at once; expected fewer. "
                    "Is this the right column for vehicles?"
                )


def _unpack(packed: NDArray[np.uint64], records: Integers, first: int, origin: int) -> StatusRecords:
    """Unpack records. `records` is the number of records of each station from `first` on."""

    def bits(low: int, width: int, dtype: type[np.signedinteger[Any]]) -> NDArray[Any]:
        kept = (packed >> np.uint64(low)).astype(dtype)
        kept &= dtype((1 << width) - 1)
        return kept

    station = np.repeat(np.arange(first, first + len(records)), records)
    is_new = np.zeros(len(packed), dtype=bool)
    is_new[(np.cumsum(records) - records)[records > 0]] = True
    second = _seconds(packed)
    # Rounded up to a full minute, in 32 bits as far as possible.
    whole, rest = divmod(origin + 59, 60)
    minute = ((second + np.int32(rest)) // np.int32(60)).astype(np.int64)
    minute += whole
    reason = _REASON[bits(_DOCKS, _REPORT, np.int8)]
    docks = bits(0, _DOCKS, np.int8)
    none = np.flatnonzero(docks == 0)
    if len(none):
        # A station with neither a vehicle nor a free dock is dead. One that never lists a free dock has no docks.
        docked = np.bincount(station - first, weights=(docks > 0) & (docks <= MANY_DOCKS)) > 0
        is_docked = docked[station[none] - first]
        docks[none[~is_docked]] = DOCKS_UNKNOWN
        none = none[is_docked]
        reason[none[reason[none] == EMPTY]] = DEAD
    return StatusRecords(
        station,
        minute,
        second,
        origin,
        bits(_PAYLOAD - _VEHICLES, _VEHICLES, np.int16),
        bits(_REPORT + _DOCKS, _DISABLED, np.int16),
        docks,
        reason,
        is_new,
    )
