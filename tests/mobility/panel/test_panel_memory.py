"""Inputs larger than the memory that may be used: the panel's peak, measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

pytest.importorskip("resource")

ROWS, STATIONS, LIMIT = 12_000_000, 500, 200
POLLS = ROWS // STATIONS
STATUS = f"""COPY (
    SELECT 's' || (i % {STATIONS}) AS station_id, 1609459200 + i // {STATIONS} * 120 AS last_reported,
        (hash(i) % 20)::INTEGER AS num_bikes_available, 0 AS num_bikes_disabled, 5 AS num_docks_available,
        true AS is_installed, true AS is_renting
    FROM range({ROWS}) t(i)) TO '{{}}/status.parquet' (FORMAT parquet)"""
TRIPS = f"""COPY (
    SELECT hash(i)::VARCHAR AS ride_id, to_timestamp(1609459200 + i * {POLLS * 120} // {ROWS // 5}) AS started_at,
        to_timestamp(1609459500 + i * {POLLS * 120} // {ROWS // 5}) AS ended_at,
        's' || (hash(i, 1) % {STATIONS}) AS start_station_id, 's' || (hash(i, 2) % {STATIONS}) AS end_station_id
    FROM range({ROWS // 5}) t(i)) TO '{{}}/trips.parquet' (FORMAT parquet)"""
CHILD = f"""
import json, resource, sys
from unmet.mobility.panel import write_panel

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)

before = peak()
folder = sys.argv[1]
made = write_panel(folder + "/panel.parquet", folder + "/trips.parquet", folder + "/status.parquet",
                   timezone="UTC", memory="{LIMIT}MB")
print(json.dumps({{"grown": peak() - before, "rows": made.summary["rows"], "trips": made.summary["trips_used"],
                  "observed": made.summary["observed"]}}))
"""


@pytest.mark.slow
def test_memory_stays_within_the_limit_when_the_input_is_several_times_larger(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET memory_limit = '500MB'")
        connection.execute("SET TimeZone = 'UTC'")
        for sql in (STATUS, TRIPS):
            connection.execute(sql.format(tmp_path))
        # What the columns take once they are read: 8 bytes a number, 16 a text.
        size = ROWS * (16 + 8 + 3 * 4 + 2) + ROWS // 5 * (3 * 16 + 2 * 8)
    assert size > 3 * LIMIT * 10**6
    done = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] == STATIONS * (POLLS * 120 // 3600)
    assert found["trips"] == found["observed"] == ROWS // 5
    # NumPy's temporary arrays and DuckDB's code come on top of the limit.
    assert found["grown"] < LIMIT * 1.5
