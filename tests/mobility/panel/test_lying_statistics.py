"""A Parquet file whose statistics do not hold: DuckDB leaves checks out that they make look needless."""

from __future__ import annotations

import struct

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unmet import InputError
from unmet.mobility.panel import build_panel


def test_times_before_those_that_the_footer_tells_are_a_fault_of_the_file(tmp_path) -> None:
    times = pd.date_range("2001-03-04", periods=400, freq="10min", tz="UTC").as_unit("s").astype("int64")
    later = pd.Timestamp("2024-03-04", tz="UTC").value // 10**9
    status = pd.DataFrame(
        {"station_id": "a", "last_reported": times, "num_bikes_available": [i % 4 for i in range(400)]}
    )
    status = pd.concat([status, status.assign(station_id="b")], ignore_index=True)
    path = tmp_path / "status.parquet"
    pq.write_table(pa.Table.from_pandas(status, preserve_index=False), path, use_dictionary=False, compression="none")
    content = path.read_bytes()
    footer = len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]
    told = content[footer:]
    for known, lie in ((times[0], later), (times[-1], later + 86_400)):
        assert struct.pack("<q", known) in told
        told = told.replace(struct.pack("<q", known), struct.pack("<q", lie))
    path.write_bytes(content[:footer] + told)
    trips = pd.DataFrame(
        {
            "started_at": pd.date_range("2024-03-04", periods=300, freq="10min", tz="UTC"),
            "start_station_id": "a",
            "ended_at": pd.date_range("2024-03-04 00:05", periods=300, freq="10min", tz="UTC"),
            "end_station_id": "b",
        }
    )
    with pytest.raises(InputError, match="status"):
        build_panel(trips, path, timezone="UTC")
