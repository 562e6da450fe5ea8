"""How long 2 million rows take to PostgreSQL: a table like ``bins``, into a server that is started for it, twice.

The target is 60 seconds. ``--rows`` chooses another number.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from unmet._storage.sql import connect
from unmet.report.databases import RunTables
from unmet.report.postgresql import write_to_postgresql

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from report.postgres_server import find_binaries, running_server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    rows = parser.parse_args().rows
    if find_binaries() is None:
        sys.exit("no PostgreSQL server here: apt-get install postgresql")
    with connect() as connection, running_server() as server:
        values = ", ".join(f"random() * 10 AS value_{i}" for i in range(36))
        connection.execute(
            f"""CREATE TABLE made AS SELECT 'zone ' || (i % 228) AS zone, 'Station at ' || (i % 228) AS name,
                TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_hours((i // 228)::BIGINT) AS start,
                TIMESTAMP '2024-01-01' + to_hours((i // 228)::BIGINT) AS start_local, 60 AS minutes, {values},
                i % 7 = 0 AS censored, '' AS flags FROM range({rows}) r(i)"""
        )
        for time_ in ("first", "again"):
            began, cpu, at_server = time.monotonic(), time.process_time(), _seconds_of_server()
            written = write_to_postgresql(
                RunTables(connection, {"bins": "FROM made"}, "unmet", "a", lambda _: None), server.url
            )
            seconds = time.monotonic() - began
            at_server = _seconds_of_server() - at_server
            print(
                f"  {time_}: {written['bins']:,} rows in {seconds:.1f} s; processor {time.process_time() - cpu:.1f} s "
                f"here, {at_server:.1f} s at the server"
            )


def _seconds_of_server() -> float:
    """Processor time of all processes of PostgreSQL, also of those that ended, by their parent."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().partition(") ")
        except OSError:
            continue
        if name.endswith("(postgres"):
            total += sum(int(value) for value in rest.split()[11:15])
    return total / 100


if __name__ == "__main__":
    main()
