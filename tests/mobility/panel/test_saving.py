"""The bytes of a panel's file."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from unmet._exceptions import FileFormatError
from unmet._storage.hashes import file_hash
from unmet._storage.sql import connect
from unmet.mobility.panel import build_panel, read_panel
from unmet.mobility.panel.file import open_panel
from unmet.mobility.panel.saving import Panel, copy_panel


def test_equal_panels_are_equal_bytes_with_any_number_of_threads(tmp_path):
    # Several row groups, of 122,880 rows each, so that threads have something to divide.
    rows = 400_000
    rng = np.random.default_rng(1)
    zone = pd.Categorical.from_codes(np.repeat(np.arange(rows // 1000), 1000), [f"z{k}" for k in range(rows // 1000)])
    frame = pd.DataFrame({"zone": zone, "observed": rng.poisson(3.0, rows), "supply_mean": rng.random(rows)})
    nothing = pd.DataFrame()
    panel = Panel(frame, nothing, nothing, nothing, {"rows": rows})
    found = set()
    for threads in (1, 4, 4, 4):
        with connect(threads=threads) as connection:
            connection.register("given", frame)
            copy_panel(connection, "SELECT * FROM given", panel, tmp_path / "panel.parquet")
        found.add(file_hash(tmp_path / "panel.parquet"))
    assert len(found) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("zones", "[" * 100_000),
        ("zones", "5"),
        ("zones", '{"zone": 5}'),
        ("zones", '{"zone": ["a", "b"], "name": ["A"]}'),
        ("zones", '{"zone": ["a"], "lat": ["north"], "lon": [1]}'),
        ("quality", '{"source": [[]]}'),
        ("quality", '{"zone": ["a"]}'),
        ("reasons", '["a"]'),
        ("summary", '"UTC"'),
        ("summary", '{"timezone": '),
    ],
)
def test_damaged_metadata_is_refused(tmp_path, name, text):
    status = pd.DataFrame({"station_id": "a", "last_reported": ["2021-07-01", "2021-07-02"], "num_bikes_available": 3})
    path = build_panel(status=status, timezone="UTC").save(tmp_path / "panel.parquet")
    table = pq.read_table(path)
    whole = pq.read_metadata(path).metadata
    pq.write_table(table.replace_schema_metadata({**whole, f"unmet.{name}".encode(): text.encode()}), path)
    with pytest.raises(FileFormatError, match=rf"metadata unmet.{name} is damaged"):
        read_panel(path)
    with pytest.raises(FileFormatError, match=rf"metadata unmet.{name} is damaged"), open_panel(path):
        pass
