"""A panel in a Parquet file, read zone by zone: memory holds the rows of the zones under way, not the panel."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.sql import connect, fetch_all, fetch_frame, fetch_one, path_literal, reading, register
from unmet.mobility.clock.bins import hour_of_week
from unmet.mobility.panel.schema import NEEDED_COLUMNS, SCHEMA, STATE_MINUTES

__all__ = ["METADATA", "PanelFile", "open_panel", "read_metadata"]

METADATA = "unmet."
"""Prefix of the keys that `unmet` writes into the metadata of a panel file."""


@dataclass(frozen=True)
class PanelFile:
    """An open panel; what `open_panel` gives.

    Attributes
    ----------
    connection : duckdb.DuckDBPyConnection
        Has the view ``panel`` and, where they were given, the tables ``features`` and ``future``.
    label : str
        How messages call the panel.
    zones : tuple of str
        In order of name.
    columns : dict
        Name → DuckDB's type, of the panel.
    metadata : dict
        What `unmet.mobility.panel.build.write_panel` left in the file: ``zones, quality, reasons, summary``.
    """

    connection: duckdb.DuckDBPyConnection
    label: str
    zones: tuple[str, ...]
    columns: dict[str, str]
    metadata: dict[str, Any]

    def rows_of(self, zone: str) -> pd.DataFrame:
        """Give the rows of one zone, by start, with the features of their bins.

        One query per zone, whatever the chunks: where a column has missing values only in some zones, its type
        (and with it the last digit of a result) must not depend on which zones are read together.
        """
        rows = "SELECT * REPLACE (zone::VARCHAR AS zone) FROM panel WHERE zone::VARCHAR = $1"
        if self._has("future"):
            rows = f"SELECT *, false AS future FROM ({rows}) UNION ALL BY NAME SELECT $1 AS zone, * FROM future"
        joined = " LEFT JOIN features USING (start)" if self._has("features") else ""
        sql = f"SELECT * FROM ({rows}){joined} ORDER BY start"
        with reading(self.label):
            return fetch_frame(self.connection, sql, [zone])

    def bins(self) -> pd.DataFrame:
        """Give the distinct bins, ``start, start_local, minutes``; zones must agree about them."""
        with reading(self.label):
            bins = fetch_frame(
                self.connection,
                "SELECT DISTINCT start, start_local, minutes FROM panel ORDER BY start, start_local, minutes",
            )
        if bins["start"].isna().any():
            raise FileFormatError(f"{self.label}: some rows have no start; expected a moment in each.")
        unlike = bins["start"].duplicated()
        if unlike.any():
            raise InputError(self._disagreement(int(bins.loc[unlike, "start"].nunique())))
        return bins

    def _disagreement(self, starts: int) -> str:
        """Say about which bin zones disagree, and which do; the rarer opinion is the second one."""
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
            "in all zones: build their panel together, or estimate them apart."
        )

    def hours_of_week(self) -> list[int]:
        """Give the hours of the week that bins start in, by the wall clock; 0 is Monday from midnight."""
        with reading(self.label):
            local = fetch_frame(self.connection, "SELECT DISTINCT start_local FROM panel")["start_local"]
        return sorted(set(hour_of_week(local).tolist()))

    def zone_minutes(self) -> pd.DataFrame:
        """Give per zone the number of bins, what was observed, and the minutes in each state."""
        sums = [f"sum({c})::DOUBLE AS {c}" for c in ("observed", *STATE_MINUTES) if c in self.columns]
        with reading(self.label):
            return fetch_frame(
                self.connection,
                f"SELECT zone::VARCHAR AS zone, count(*) AS bins, {', '.join(sums)} FROM panel GROUP BY 1 ORDER BY 1",
            )

    def add_features(self, features: pd.DataFrame) -> None:
        """Have `rows_of` join these columns by ``start``; one row per bin, and no column that the panel has."""
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
                f"features: {twice} rows have the start of another; expected one row per bin of the panel."
            )
        self._keep("features", features)

    def add_future(self, bins: pd.DataFrame) -> None:
        """Have `rows_of` go on with these bins (``start, start_local, minutes``), told by a column ``future``."""
        states = dict.fromkeys((name for name in STATE_MINUTES if name in self.columns), 0)
        rows = bins.assign(**states, exposure=0.0, censored=False, future=True)
        self._keep("future", rows)

    def _keep(self, table: str, frame: pd.DataFrame) -> None:
        register(self.connection, "some_rows", frame)
        self.connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM some_rows")
        self.connection.unregister("some_rows")

    @property
    def timezone(self) -> str | None:
        """The zone whose wall clock cut the bins, where the file says so."""
        zone = self.metadata.get("summary", {}).get("timezone")
        return None if zone is None else str(zone)

    @property
    def names(self) -> dict[str, str]:
        """What each zone is called: the name of its station where the file tells one, else the zone itself."""
        zones = self.metadata.get("zones") or {}
        pairs = zip(zones.get("zone", []), zones.get("name", []), strict=False)
        known = {str(zone): name for zone, name in pairs if isinstance(name, str) and name}
        return {zone: known.get(zone, zone) for zone in self.zones}

    def _has(self, table: str) -> bool:
        sql = "SELECT count(*) FROM duckdb_tables() WHERE table_name = $1"
        return bool(fetch_one(self.connection, sql, [table])[0])


@contextmanager
def open_panel(path: str | os.PathLike[str]) -> Iterator[PanelFile]:
    """Open a panel's Parquet file, checked for the columns that every model needs and their types."""
    file = Path(path)
    if not file.is_file():
        raise InputError(f"There is no file {str(path)!r}. Make a panel with: unmet panel --out {file.name}")
    label = str(path)
    with connect() as connection:
        quoted = path_literal(str(file))
        with reading(label):
            connection.execute(f"CREATE VIEW panel AS SELECT * FROM read_parquet({quoted})")
            columns = {row[0]: row[1] for row in fetch_all(connection, "DESCRIBE panel")}
            metadata = read_metadata(connection, quoted)
        missing = [name for name in NEEDED_COLUMNS if name not in columns]
        if missing:
            raise FileFormatError(
                f"{label}: is not a panel: there is no column {', '.join(map(repr, missing))}; "
                f"found: {', '.join(columns)}."
            )
        _check_types(label, columns)
        yield PanelFile(connection, label, _zones(connection, label), columns, metadata)


def _check_types(label: str, columns: dict[str, str]) -> None:
    wrong = [
        f"column {column.name!r} is {columns[column.name]}; expected {column.type.words}"
        for column in SCHEMA
        if column.name in columns and not column.type.accepted.fullmatch(columns[column.name])
    ]
    if wrong:
        raise FileFormatError(f"{label}: {'. '.join(wrong)}. Build the panel with build_panel or `unmet panel`.")


def _zones(connection: duckdb.DuckDBPyConnection, label: str) -> tuple[str, ...]:
    with reading(label):
        found = fetch_all(connection, "SELECT DISTINCT zone::VARCHAR AS name FROM panel ORDER BY name")
    zones = tuple(row[0] for row in found)
    if not zones:
        raise InputError(f"{label}: the panel has no rows.")
    if None in zones:
        raise FileFormatError(f"{label}: some rows have no zone; expected a name in each.")
    return zones


def read_metadata(connection: duckdb.DuckDBPyConnection, file: str) -> dict[str, Any]:
    """Read the JSON documents in the metadata of a panel file (a quoted path); files of other software have none."""
    found = {}
    for key, value in fetch_all(connection, f"SELECT key, value FROM parquet_kv_metadata({file})"):
        name = bytes(key).decode("utf-8", "replace")
        if name.startswith(METADATA):
            try:
                found[name.removeprefix(METADATA)] = json.loads(bytes(value))
            except ValueError:
                continue
    return found
