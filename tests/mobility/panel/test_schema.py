"""The schema describes the panel: columns, types, and what a new column takes."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pytest

from unmet import _exceptions
from unmet.mobility.panel import assembly as panel_assembly
from unmet.mobility.panel import build_panel, schema, write_panel
from unmet.mobility.panel.file import open_panel

ZONE = "America/New_York"
STATUS = pd.DataFrame(
    {
        "station_id": "a",
        "last_reported": pd.to_datetime(["2021-07-01 08:00", "2021-07-01 08:30", "2021-07-01 10:00"]),
        "num_bikes_available": [2, 0, 3],
    }
)


def types_in(path):
    with duckdb.connect() as connection:
        rows = connection.execute(f"DESCRIBE SELECT * FROM '{path}'").fetchall()
    return {row[0]: row[1] for row in rows}


def test_a_file_has_the_columns_and_types_of_the_schema(tmp_path):
    path = tmp_path / "panel.parquet"
    write_panel(path, status=STATUS, timezone=ZONE)
    assert types_in(path) == {column.name: column.type.name for column in schema.SCHEMA}


def test_a_column_that_sql_makes_takes_one_record(monkeypatch, tmp_path):
    meaning = "Share of the bin in stock-out."
    column = schema.PanelColumn("empty_share", schema.FLOAT, meaning, "stockout_minutes / minutes")
    monkeypatch.setattr(schema, "SCHEMA", (*schema.SCHEMA, column))
    path = tmp_path / "panel.parquet"
    write_panel(path, status=STATUS, timezone=ZONE)
    assert types_in(path)["empty_share"] == "DOUBLE"
    assert build_panel(status=STATUS, timezone=ZONE).panel["empty_share"].tolist() == [0.5, 1.0, 0.0]


def test_a_column_of_its_own_array_takes_a_record_and_an_array(monkeypatch):
    column = schema.PanelColumn("number", schema.INTEGER, "Number of the bin.", "number::INTEGER", np.int16)
    monkeypatch.setattr(schema, "SCHEMA", (*schema.SCHEMA, column))
    rows = panel_assembly.zone_rows
    monkeypatch.setattr(
        panel_assembly, "zone_rows", lambda evidence, *more: rows(evidence, *more) | {"number": np.arange(3)}
    )
    assert build_panel(status=STATUS, timezone=ZONE).panel["number"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("column", [c for c in schema.SCHEMA if c.type.accepted.pattern != ".*"], ids=lambda c: c.name)
def test_a_file_with_a_column_of_another_type_is_refused(column, tmp_path):
    path, odd = tmp_path / "panel.parquet", tmp_path / "odd.parquet"
    write_panel(path, status=STATUS, timezone=ZONE)
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT * REPLACE ('x' AS {column.name}) FROM '{path}') TO '{odd}'")
    with (
        pytest.raises(
            _exceptions.FileFormatError, match=f"column '{column.name}' is VARCHAR; expected {column.type.words}"
        ),
        open_panel(odd),
    ):
        pass


@pytest.mark.parametrize("name", schema.NEEDED_COLUMNS)
def test_a_file_without_a_needed_column_is_refused(name, tmp_path):
    path, odd = tmp_path / "panel.parquet", tmp_path / "odd.parquet"
    write_panel(path, status=STATUS, timezone=ZONE)
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT * EXCLUDE ({name}) FROM '{path}') TO '{odd}'")
    with pytest.raises(_exceptions.FileFormatError, match=f"no column '{name}'"), open_panel(odd):
        pass
