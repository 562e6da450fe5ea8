"""Histories that `unmet collect` keeps, as status, stations and polls."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from os import PathLike
from pathlib import Path
from typing import Any

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.sql import fetch_all, fetch_one, identifier, parquet_sql, path_literal, reading
from unmet.collect.history import SystemHistory, find_histories
from unmet.mobility.clock.timezones import FIRST_TIME, LAST_TIME
from unmet.mobility.records.files import Column, Given, InputTable, Workspace, is_frame
from unmet.mobility.records.vehicle_types import CLASSIC, ELECTRIC

__all__ = ["counted_types", "make_polls", "open_changes", "split_histories", "station_rows"]


def split_histories(given: Given) -> tuple[list[SystemHistory], Given]:
    """Split what was given into histories of `unmet collect` and all else.

    A folder with the histories of several systems is refused: their stations must not be mixed.
    """
    if given is None or is_frame(given) or not isinstance(given, str | PathLike | Iterable):  # refused where opened
        return [], given
    items = [given] if isinstance(given, str | PathLike) else list(given)
    histories: list[SystemHistory] = []
    others: list[Any] = []
    for item in items:
        found = find_histories(Path(os.path.expanduser(item))) if isinstance(item, str | PathLike) else {}
        if len(found) > 1:
            some = ", ".join(str(Path(item) / name) for name in list(found)[:5])
            raise InputError(
                f"{item}: contains {len(found)} systems. Name the one to read: {some}{' ...' if len(found) > 5 else ''}"
            )
        histories += found.values()
        others += [] if found else [item]
    return histories, others


def open_changes(workspace: Workspace, history: SystemHistory) -> InputTable:
    """Open the changes of stations, without the rows that a new day only restates.

    Where the day before is missing, restated rows are kept: they may contain what changed in between.
    """
    history.check_content("changes", "polls")
    files = history.files("changes", workspace.folder)
    if not files:
        raise InputError(f"{history.folder}: no station was collected yet. `unmet collect status` shows why.")
    days = [date.fromisoformat(path.parent.name[-10:]) for path in files]
    whole = ", ".join(str(i) for i, day in enumerate(days) if day - timedelta(days=1) not in days)
    relation = f"""(SELECT *, file_index::BIGINT << 40 | file_row_number AS row_in_history
        FROM {parquet_sql(_listed(files))} WHERE NOT restated OR file_index IN ({whole}))"""
    with reading(str(history.folder)):
        described = fetch_all(workspace.connection, f"DESCRIBE SELECT * EXCLUDE row_in_history FROM {relation}")
    columns = {name: Column(identifier(name), kind) for name, kind, *_ in described}
    return InputTable(str(history.folder), relation, columns, lazy=True, row="row_in_history")


def counted_types(workspace: Workspace, history: SystemHistory, kind: str) -> list[str]:
    """Return the ids of vehicle types that count if only vehicles of one kind do.

    ``electric`` and ``classic`` are found by `propulsion_type` in the last document ``vehicle_types``, or are ids
    themselves where the feed counts electric vehicles without types.
    """
    if kind not in (ELECTRIC, CLASSIC):
        return [kind]
    history.check_content("documents")
    files = history.files("documents", workspace.folder)
    query = "SELECT max_by(text, poll_time) FROM read_parquet({}, hive_partitioning=false) WHERE feed = 'vehicle_types'"
    with reading(str(history.folder)):
        text = fetch_all(workspace.connection, query.format(_listed(files)))[0][0] if files else None
    data = (_fields(history, text).get("data") or {}) if text else {}
    listed = data.get("vehicle_types")
    types = [t for t in listed if isinstance(t, dict)] if isinstance(listed, list) else []
    found = [
        str(t.get("vehicle_type_id"))
        for t in types
        if (kind == ELECTRIC) == str(t.get("propulsion_type")).startswith("electric")
    ]
    return [kind, *found]


def make_polls(workspace: Workspace, histories: Sequence[SystemHistory]) -> None:
    """Make the table ``polls`` of the good polls of station status."""
    workspace.connection.execute('CREATE TABLE polls ("at" TIMESTAMP, fresh BOOLEAN)')
    for history in histories:
        files = _listed(history.files("polls", workspace.folder))
        with reading(str(history.folder)):
            workspace.connection.execute(
                f"""INSERT INTO polls
                SELECT poll_time AT TIME ZONE 'UTC',
                    last_updated IS NULL OR last_updated IS DISTINCT FROM lag(last_updated) OVER (ORDER BY poll_time)
                FROM {parquet_sql(files)} WHERE feed = 'station_status' AND error IS NULL"""
            )
        wrong = f""" "at" IS NULL OR "at" NOT BETWEEN TIMESTAMP '{FIRST_TIME}' AND TIMESTAMP '{LAST_TIME}'"""
        if fetch_one(workspace.connection, f"SELECT count(*) FROM polls WHERE {wrong}")[0]:
            raise FileFormatError(
                f"{history.folder}: expected a possible time with every poll, found others. The history was changed "
                "after it was collected: restore it, or move the days away that `unmet collect status` names."
            )


def station_rows(workspace: Workspace, history: SystemHistory) -> list[dict[str, Any]]:
    """Return the descriptions of stations, the last version of each last; with all their ids."""
    history.check_content("stations")
    files = history.files("stations", workspace.folder)
    if not files:
        return []
    columns = ("station_id", "name", "lat", "lon", "capacity")
    with reading(str(history.folder)):
        found = fetch_all(
            workspace.connection,
            f"""SELECT {", ".join(columns)}, fields FROM {parquet_sql(_listed(files))}
            GROUP BY ALL ORDER BY max(valid_from), station_id""",
        )
    return [{**_fields(history, fields), **dict(zip(columns, row, strict=True))} for *row, fields in found]


def _fields(history: SystemHistory, text: str | None) -> dict[str, Any]:
    """Parse a JSON object: the other fields of a station, or a document."""
    try:
        fields = json.loads(text or "{}")
        if isinstance(fields, dict):
            return fields
    except (ValueError, RecursionError):
        pass
    raise FileFormatError(f"{history.folder}: expected a JSON object, got {text!r:.60}")


def _listed(paths: Sequence[Path]) -> str:
    return "[" + ", ".join(path_literal(str(path)) for path in paths) + "]"
