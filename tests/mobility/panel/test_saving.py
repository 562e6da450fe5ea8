"""The bytes of a panel's file."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unmet._storage.hashes import file_hash
from unmet._storage.sql import connect
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
