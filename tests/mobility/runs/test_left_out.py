"""Zones whose estimates exceed all that was ever observed there are left out of the totals, unless they are kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from unmet._storage.parquet import write_parquet
from unmet.mobility.runs import outputs


@pytest.mark.parametrize(
    ("most", "keep", "found"),
    [(35.0, None, {}), (35.2, None, {"b"}), (35.2, "Busy Street", {}), (35.2, "all", {}), (35.2, "a", {"b"})],
)
def test_an_estimate_far_above_all_that_was_seen_is_not_believed(
    most: float, keep: str | None, found: set[str], tmp_path: Path
) -> None:
    demand = pd.DataFrame(
        {
            "zone": ["a", "a", "b", "b", "b"],
            "observed": [10.0, 4.0, 10.0, 3.0, np.nan],
            "demand_mean": [12.0, 30.0, 11.0, most, 900.0],  # the last bin is a forecast
        }
    )
    write_parquet(demand, tmp_path / "demand.parquet")
    zones = pd.DataFrame({"zone": ["a", "b"], "name": ["Quiet Street", "Busy Street"]})
    left = outputs._left_out(zones, tmp_path / "demand.parquet", {"keep": keep})
    assert set(left) == set(found)
    assert all(why == "estimated 35 trips in a bin, observed 10 at most" for why in left.values())
