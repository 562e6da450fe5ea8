"""A panel in a Parquet file, read zone by zone, so that the whole panel need not fit into memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.hashes import file_hash
from unmet._storage.sql import (
    INDEX_COLUMNS,
    connect,
    fetch_all,
    fetch_frame,
    fetch_one,
    identifier,
    parquet_rows,
    path_literal,
    reading,
    register,
)
from unmet.mobility.clock.bins import hour_of_week
from unmet.mobility.panel.columns import FEWER_COLUMNS, check_names, check_types, covariates_of, outer_names
from unmet.mobility.panel.schema import NEEDED_COLUMNS, STATE_MINUTES
from unmet.mobility.records.limits import check_covariates, check_parquet

__all__ = ["METADATA", "PanelFile", "open_panel", "read_metadata"]

METADATA = "unmet."
"""Prefix of the keys that `unmet` writes into the metadata of a panel file."""
_MOST_REMEMBERED = 500_000  # rows: some 200 MB
# Tables in the metadata, each with the columns that readers need.
_TABLES = {
    "zones": frozenset({"zone"}),
    "quality": frozenset({"source", "reason", "action", "rows", "share", "detail"}),
    "reasons": frozenset({"zone"}),
    "unusable": frozenset({"station", "zone", "unusable"}),
}
# Of a wall clock from UTC: a day, for what Samoa and Manila have skipped or repeated, and some.
_LONGEST_BIN = 366 * 24 * 60
_LARGEST_OFFSET = pd.Timedelta(hours=26)


@dataclass(frozen=True)
class PanelFile:
    """An open panel file.

    Attributes
    ----------
    connection : duckdb.DuckDBPyConnection
        Database with the view ``panel`` and, if they were added, the tables ``features`` and ``future``.
    label : str
        Name of the panel in messages.
    zones : tuple of str
        Names of the zones, sorted.
    columns : dict
        Column of the panel → its type in DuckDB.
    metadata : dict
        ``zones, quality, reasons, summary``, as `write_panel` stored them.
    sha256 : str
        Hash of the file's bytes.
    path : Path or None
        The file; None for a panel that was given in memory.
    first : Timestamp or None
        `rows_of` leaves out bins that start before: see `since`.
    tables : set of str
        Which of ``features`` and ``future`` the database has.
    remembered : dict or None
        Rows of the zones that were read; None if all together may be too many to be kept.
    """

    connection: duckdb.DuckDBPyConnection
    label: str
    zones: tuple[str, ...]
    columns: dict[str, str]
    metadata: dict[str, Any]
    sha256: str
    path: Path | None
    first: pd.Timestamp | None = None
    tables: set[str] = field(default_factory=set, repr=False)
    remembered: dict[str, pd.DataFrame] | None = field(default=None, repr=False)

    def since(self, first: pd.Timestamp) -> PanelFile:
        """Give the same panel, of which `rows_of` returns only the bins from a moment on.

        The features and the future of the panel must be set before.
        """
        # Read once: the rows of a zone are otherwise looked for in the whole file each time.
        with reading(self.label):
            self.connection.execute("CREATE OR REPLACE TABLE recent AS FROM panel WHERE start >= $1", [first])
            (count,) = fetch_one(self.connection, "SELECT count(*) FROM recent")
        return replace(self, first=first, remembered={} if count <= _MOST_REMEMBERED else None)

    def rows_of(self, zone: str) -> pd.DataFrame:
        """Return the rows of one zone, sorted by start, with the features of their bins.

        Each zone is one query. If a column has missing values only in some zones, its type (and with it the last digit
        of a result) must not depend on which zones are read together. The frame must not be changed.
        """
        if self.remembered is None:
            return self._read_rows(zone)
        if zone not in self.remembered:
            self.remembered[zone] = self._read_rows(zone)
        return self.remembered[zone]

    def _read_rows(self, zone: str) -> pd.DataFrame:
        source = "panel" if self.first is None else "recent"
        rows = f"SELECT * REPLACE (zone::VARCHAR AS zone) FROM {source} WHERE zone::VARCHAR = $1"
        if "future" in self.tables:
            rows = f"SELECT *, false AS future FROM ({rows}) UNION ALL BY NAME SELECT $1 AS zone, * FROM future"
        joined = " LEFT JOIN features USING (start)" if "features" in self.tables else ""
        later = "" if self.first is None else " WHERE start >= $2"
        sql = f"SELECT * FROM ({rows}){joined}{later} ORDER BY start"
        with reading(self.label):
            return fetch_frame(self.connection, sql, [zone] if self.first is None else [zone, self.first])

    def bins(self) -> pd.DataFrame:
        """Return the distinct bins, ``start, start_local, minutes``. All zones must have the same."""
        with reading(self.label):
            bins = fetch_frame(
                self.connection,
                "SELECT DISTINCT start, start_local, minutes FROM panel ORDER BY start, start_local, minutes",
            )
        for name in ("start", "start_local"):
            if bins[name].isna().any():
                raise FileFormatError(f"{self.label}: some rows have no {name}; expected a time in each.")
        odd = bins.loc[~bins["minutes"].between(1, _LONGEST_BIN), "minutes"]
        if len(odd):
            expected = f"minutes must be the length of the bin, 1 to {_LONGEST_BIN:,}"
            raise FileFormatError(f"{self.label}: {expected}; some rows have {odd.iloc[0]}.")
        apart = (bins["start_local"] - bins["start"].dt.tz_localize(None)).abs()
        if (wrong := apart > _LARGEST_OFFSET).any():
            raise InputError(
                f"{self.label}: start_local must be the local time of start; {wrong.sum():,} bins have another, such "
                f"as {bins.loc[wrong, 'start_local'].iloc[0]} for {bins.loc[wrong, 'start'].iloc[0]}."
            )
        unlike = bins["start"].duplicated()
        if unlike.any():
            raise InputError(self._disagreement(int(bins.loc[unlike, "start"].nunique())))
        self._check_cover(bins)
        return bins

    def _check_cover(self, bins: pd.DataFrame) -> None:
        """Refuse bins that overlap, and zones without some of them."""
        apart = (bins["start"].shift(-1) - bins["start"]).dt.total_seconds() / 60
        if (overlap := bins["minutes"] > apart).any():
            row = int(overlap.to_numpy().argmax())
            raise InputError(
                f"{self.label}: {overlap.sum():,} bins overlap the next one. The one that starts at "
                f"{bins['start'].iloc[row]} lasts {bins['minutes'].iloc[row]:g} minutes, but the next one starts "
                f"{apart.iloc[row]:g} minutes later. Correct minutes or start."
            )
        with reading(self.label):
            lacking = fetch_all(
                self.connection,
                f"""SELECT zone::VARCHAR AS name, count(*) AS found FROM panel
                GROUP BY ALL HAVING found < {len(bins)} ORDER BY name LIMIT 1""",
            )
        for zone, found in lacking:
            raise InputError(
                f"{self.label}: zone {zone!r} has {found:,} of the {len(bins):,} bins. Expected a row for each bin in "
                "every zone: add those without a record, with observed missing and unknown_minutes of the whole bin."
            )

    def _disagreement(self, starts: int) -> str:
        """Describe the first bin about which zones disagree, and two zones that do. The second is the rarer case."""
        sql = """
            SELECT start, start_local, minutes, min(zone::VARCHAR) AS zone, count(*) AS rows FROM panel
            WHERE start = (SELECT min(start) FROM
                (SELECT start FROM (SELECT DISTINCT start, start_local, minutes FROM panel)
                GROUP BY start HAVING count(*) > 1))
            GROUP BY ALL ORDER BY rows DESC, zone"""
        with reading(self.label):
            kinds = fetch_frame(self.connection, sql)
        usual, odd = (
            f"{row['minutes']:g} minutes from {row['start_local']} local time in zone {row['zone']!r}"
            for _, row in kinds.iloc[[0, -1]].iterrows()
        )
        return (
            f"{self.label}: zones disagree about {starts} {'bin' if starts == 1 else 'bins'}. The one that starts at "
            f"{kinds['start'].iloc[0]} has {usual}, but {odd}. Expected the same minutes and start_local for a start "
            "in all zones: build their panel together, or estimate them separately."
        )

    def hours_of_week(self) -> list[int]:
        """Return the hours of the week in which bins start, by the wall clock. 0 is Monday from midnight."""
        with reading(self.label):
            local = fetch_frame(self.connection, "SELECT DISTINCT start_local FROM panel")["start_local"]
        return sorted(set(hour_of_week(local).tolist()))

    def never_open(self) -> pd.DataFrame:
        """Return the column ``start`` of bins, future ones too, at times at which no zone was ever open.

        Times are those of the week, or of the day. One that was seen only once may have been closed by chance.
        """
        if not {"closed_minutes", "unknown_minutes"} <= set(self.columns):
            return pd.DataFrame({"start": pd.Series(dtype="datetime64[us, UTC]")})
        bins = "SELECT start, start_local FROM panel"
        if "future" in self.tables:
            bins += " UNION ALL SELECT start, start_local FROM future"
        shut = " OR ".join(
            f"""{time} IN (SELECT {time} FROM panel WHERE unknown_minutes < minutes GROUP BY ALL
                HAVING count(DISTINCT start) > 1 AND max(exposure) = 0
                    AND bool_and(closed_minutes >= minutes - unknown_minutes))"""
            for time in ("(isodow(start_local), start_local::TIME)", "start_local::TIME")
        )
        with reading(self.label):
            return fetch_frame(self.connection, f"SELECT DISTINCT start FROM ({bins}) WHERE {shut} ORDER BY start")

    def zone_minutes(self) -> pd.DataFrame:
        """Return the number of bins, the observed pickups and the minutes in each state, by zone."""
        sums = [f"sum({c})::DOUBLE AS {c}" for c in ("observed", *STATE_MINUTES) if c in self.columns]
        with reading(self.label):
            return fetch_frame(
                self.connection,
                f"SELECT zone::VARCHAR AS zone, count(*) AS bins, {', '.join(sums)} FROM panel GROUP BY 1 ORDER BY 1",
            )

    def set_features(self, features: pd.DataFrame | None) -> None:
        """Set the columns that `rows_of` joins by ``start``: one row per bin, and no column of the panel.

        None: no columns.
        """
        if features is None:
            self._drop("features")
            return
        if "start" not in features.columns:
            raise InputError(f"features: there is no column 'start'; found: {', '.join(map(str, features.columns))}.")
        taken = [str(c) for c in features.columns if c != "start" and c in self.columns]
        if taken:
            raise InputError(
                f"features: the panel already has {', '.join(map(repr, taken))}; rename or leave out these columns."
            )
        twice = int(features["start"].duplicated().sum())
        if twice:
            raise InputError(
                f"features: {twice} rows have the same start as another; expected one row per bin of the panel."
            )
        self._keep("features", features)

    def set_future(self, bins: pd.DataFrame | None) -> None:
        """Set the bins (``start, start_local, minutes``) that `rows_of` appends. Its column ``future`` marks them.

        None: no bins.
        """
        if bins is None:
            self._drop("future")
            return
        states = dict.fromkeys((name for name in STATE_MINUTES if name in self.columns), 0)
        rows = bins.assign(**states, exposure=0.0, censored=False, future=True)
        self._keep("future", rows)

    def _keep(self, table: str, frame: pd.DataFrame) -> None:
        register(self.connection, "some_rows", frame)
        self.connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM some_rows")
        self.connection.unregister("some_rows")
        self.tables.add(table)

    def _drop(self, table: str) -> None:
        self.connection.execute(f"DROP TABLE IF EXISTS {table}")
        self.tables.discard(table)

    @property
    def timezone(self) -> str | None:
        """Time zone whose wall clock cut the bins. None if the file does not contain it."""
        zone = self.metadata.get("summary", {}).get("timezone")
        return None if zone is None else str(zone)

    @property
    def names(self) -> dict[str, str]:
        """Name of each zone: that of its station if the file contains it, else the zone itself."""
        zones = self.metadata.get("zones") or {}
        pairs = zip(zones.get("zone", []), zones.get("name", []), strict=False)
        known = {str(zone): name for zone, name in pairs if isinstance(name, str) and name}
        return {zone: known.get(zone, zone) for zone in self.zones}

    @property
    def places(self) -> dict[str, tuple[float, float]]:
        """Latitude and longitude of the zones for which the file has them."""
        zones = self.metadata.get("zones") or {}
        columns = (zones.get(name, []) for name in ("zone", "lat", "lon"))
        return {
            str(zone): (float(lat), float(lon))
            for zone, lat, lon in zip(*columns, strict=False)
            if lat is not None and lon is not None
        }

    @property
    def areas(self) -> dict[str, str]:
        """Area of each zone that has one."""
        zones = self.metadata.get("zones") or {}
        pairs = zip(zones.get("zone", []), zones.get("area", []), strict=False)
        return {str(zone): area for zone, area in pairs if isinstance(area, str)}


@contextmanager
def open_panel(
    path: str | os.PathLike[str], *, sha256: str | None = None, label: str | None = None
) -> Iterator[PanelFile]:
    """Open a panel's Parquet file, and check that it has the needed columns and that types are right.

    Parameters
    ----------
    path : path
        The file.
    sha256 : str, optional
        Hash of the file's bytes, if known; computed otherwise.
    label : str, optional
        Name of the panel in errors; the path if not given.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"There is no file {str(path)!r}. Make a panel with: unmet panel --out {file.name}")
    label = label or str(path)
    with connect() as connection:
        quoted = path_literal(str(file))
        with reading(label):
            check_parquet(connection, quoted, label)
            names = outer_names(connection, quoted)
            index = [identifier(name) for name in names if INDEX_COLUMNS.fullmatch(name)]
            chosen = f"* EXCLUDE ({', '.join(index)})" if index else "*"
            connection.execute(f"CREATE VIEW panel AS SELECT {chosen} FROM ({parquet_rows(connection, quoted)})")
            columns = {row[0]: row[1] for row in fetch_all(connection, "DESCRIBE panel")}
            metadata = read_metadata(connection, quoted, label)
            check_names(names, label)
        missing = [name for name in NEEDED_COLUMNS if name not in columns]
        if missing:
            raise FileFormatError(
                f"{label}: this is not a panel: there is no column {', '.join(map(repr, missing))}; "
                f"found: {', '.join(columns)}."
            )
        check_types(label, columns)
        check_covariates(len(covariates_of(columns)), label, FEWER_COLUMNS)
        zones = _zones(connection, label)
        yield PanelFile(connection, label, zones, columns, metadata, sha256 or file_hash(file), file)


def _zones(connection: duckdb.DuckDBPyConnection, label: str) -> tuple[str, ...]:
    with reading(label):
        found = fetch_all(connection, "SELECT DISTINCT zone::VARCHAR AS name FROM panel ORDER BY name")
    zones = tuple(row[0] for row in found)
    if not zones:
        raise InputError(f"{label}: the panel has no rows.")
    if None in zones:
        raise FileFormatError(f"{label}: some rows have no zone; expected a name in each.")
    return zones


def read_metadata(connection: duckdb.DuckDBPyConnection, file: str, label: str) -> dict[str, Any]:
    """Read the JSON documents in the metadata of a panel file (a quoted path); files of other software have none."""
    found = {}
    for key, value in fetch_all(connection, f"SELECT key, value FROM parquet_kv_metadata({file})"):
        name = bytes(key).decode("utf-8", "replace")
        if name.startswith(METADATA):
            try:
                document = json.loads(bytes(value))
            except (ValueError, RecursionError):
                document = None
            short = name.removeprefix(METADATA)
            if not isinstance(document, dict) or (short in _TABLES and not _is_table(document, _TABLES[short])):
                raise FileFormatError(f"{label}: its metadata {name} is damaged. Build the panel again (unmet panel).")
            found[short] = document
    return found


def _is_table(document: dict[str, Any], needed: frozenset[str]) -> bool:
    """Whether this is a table, as columns of equal length. Readers compute with some; those are numbers."""
    columns = list(document.values())
    return not document or (
        needed <= document.keys()
        and all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns)
        and all(
            value is None or isinstance(value, int | float)
            for name in ("lat", "lon", "unusable")
            for value in document.get(name, ())
        )
        and all(
            isinstance(value, str | int | float) for name in needed for value in document[name] if value is not None
        )
    )
