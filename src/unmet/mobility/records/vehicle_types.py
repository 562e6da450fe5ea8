"""Vehicles of one type: SQL to choose them from status and trips.

``electric`` and ``classic`` are known from the columns that operators publish (``num_ebikes_available``,
``rideable_type``) or from ``vehicle_types.json``. Any other name is a ``vehicle_type_id`` of GBFS documents, or a value
of the trips' column.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from unmet._exceptions import InputError

__all__ = ["CLASSIC", "ELECTRIC", "available_by_types", "available_of_type", "is_of_type"]

ELECTRIC, CLASSIC = "electric", "classic"
_ELECTRIC_NAMES = "electr|elektr|pedelec|(^|[^a-z])e[-_ ]?(bike|scooter)"


def available_of_type(kind: str, available: str, electric: str | None, label: str) -> str:
    """Return SQL for the vehicles of a type that are available, from those of all types and the electric ones."""
    if kind not in (ELECTRIC, CLASSIC):
        raise InputError(
            f"vehicle_type: {label} does not have the types of GBFS documents; expected {ELECTRIC} or {CLASSIC}, "
            f"got {kind!r}."
        )
    if electric is None:
        raise InputError(
            f"vehicle_type: {label} has no column of electric vehicles, such as num_ebikes_available. Name it with "
            "--map electric=THEIR_COLUMN."
        )
    if kind == ELECTRIC:
        return electric
    # A number of electric vehicles that is missing, or above that of all, says nothing of the others.
    return f"CASE WHEN {electric} BETWEEN 0 AND {available} THEN {available} - {electric} END"


def available_by_types(types: Sequence[str], column: str) -> str:
    """Return SQL for the vehicles of some types, from a JSON object of counts by type; NULL if types are unknown."""
    paths = ("$." + json.dumps(name, ensure_ascii=False).replace("'", "''") for name in types)
    counts = (f"coalesce(CAST(json_extract({column}, '{path}') AS INTEGER), 0)" for path in paths)
    return f"CASE WHEN {column} IS NOT NULL THEN {' + '.join(counts)} END"


def is_of_type(kind: str, column: str) -> str:
    """Return the SQL condition that a trip was made on a vehicle of a type.

    Examples
    --------
    >>> is_of_type("electric", "vehicle")
    "regexp_matches(lower(vehicle), 'electr|elektr|pedelec|(^|[^a-z])e[-_ ]?(bike|scooter)')"
    """
    electric = f"regexp_matches(lower({column}), '{_ELECTRIC_NAMES}')"
    if kind == ELECTRIC:
        return electric
    if kind == CLASSIC:
        return f"NOT {electric}"
    quoted = kind.lower().replace("'", "''")
    return f"lower({column}) = '{quoted}'"
