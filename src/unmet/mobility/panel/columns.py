"""Columns of a panel's file: their names, their types, and which of them explain demand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

import duckdb

from unmet._exceptions import FileFormatError
from unmet._storage.sql import fetch_all
from unmet.mobility.panel.schema import COMPUTED_COLUMNS, INFERRED_COLUMNS, PANEL_COLUMNS, SCHEMA

__all__ = ["FEWER_COLUMNS", "check_names", "check_types", "covariates_of", "outer_names"]

FEWER_COLUMNS = "Remove columns of the panel that are not weather or alike."
"""What to do about a panel with too many covariates."""

_NUMBERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL\(.*\)|BOOLEAN")


def covariates_of(columns: Mapping[str, str]) -> list[str]:
    """Name the columns that a model would take for covariates, of a mapping from column to type in DuckDB.

    Examples
    --------
    >>> covariates_of({"observed": "DOUBLE", "rain": "DOUBLE", "note": "VARCHAR", "holiday": "BOOLEAN"})
    ['rain']
    """
    own = {*PANEL_COLUMNS, *INFERRED_COLUMNS, "holiday"}
    return [name for name, kind in columns.items() if name not in own and _NUMBERS.fullmatch(kind)]


def check_names(names: Iterable[str], label: str) -> None:
    """Refuse columns of a panel whose names differ at most by letter case, and names of columns that are computed.

    DuckDB ignores letter case and renames the second of two, which would then be taken for a covariate.
    """
    found = list(names)
    times = Counter(map(str.casefold, found))
    for name in found:
        if times[name.casefold()] > 1:
            raise FileFormatError(
                f"{label}: column {name!r} occurs {times[name.casefold()]} times (letter case is ignored); expected "
                "different names. Rename or leave out the others."
            )
        if COMPUTED_COLUMNS.fullmatch(name.casefold()):
            raise FileFormatError(
                f"{label}: {name!r} is the name of a column that is computed. Rename it, or leave it out."
            )


def outer_names(connection: duckdb.DuckDBPyConnection, file: str) -> list[str]:
    """List the columns of a Parquet file (a quoted path) as it names them, without fields within a column."""
    names, inner = [], 0
    for name, children in fetch_all(connection, f"SELECT name, num_children FROM parquet_schema({file}) OFFSET 1"):
        if not inner:
            names.append(name)
        inner = max(inner - 1, 0) + (children or 0)
    return names


def check_types(label: str, columns: Mapping[str, str]) -> None:
    """Refuse columns of a panel whose values are of another kind."""
    wrong = [
        f"column {column.name!r} is {columns[column.name]}; expected {column.type.words}"
        for column in SCHEMA
        if column.name in columns and not column.type.accepted.fullmatch(columns[column.name])
    ]
    if wrong:
        raise FileFormatError(f"{label}: {'. '.join(wrong)}. Build the panel with build_panel or `unmet panel`.")
