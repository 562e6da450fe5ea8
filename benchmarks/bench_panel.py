"""Panels at scale, beside the least that DuckDB could do: printed as ratios measured in one run.

1. 50 million status rows and 10 million trips (generated) to a 15-minute panel of stations in a Parquet file,
   against a bare DuckDB query that only counts the minutes that stations were empty per bin. These trips do not
   depend on the status, so no listed vehicle is found to be unusable.
2. As many status rows of simulated cities with their trips, looked at every two minutes: usable supply against
   ``--supply listed`` (wanted: at most twice its time).
3. The hidden state of 600 stations and a year of minutes (wanted: two minutes), from that of one simulated city.
4. The East Village's change log (if the real data is there) to an hourly panel of super-hubs.

Run with ``--rows 5000000`` for a quick look.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from unmet.mobility.panel import build_panel, evidence, write_panel
from unmet.mobility.panel.usable import SupplyModel
from unmet.simulate import simulate_city

MEMORY = "2GB"
BARE = """
    COPY (
        SELECT station_id, make_timestamp(b * 900000000) AS start,
            sum(least(until, (b + 1) * 900) - greatest(since, b * 900)) / 60 AS empty_minutes
        FROM (
            SELECT station_id, since, until, unnest(range(since // 900, (until - 1) // 900 + 1)) AS b
            FROM (
                SELECT station_id, last_reported AS since, num_bikes_available,
                    lead(last_reported) OVER (PARTITION BY station_id ORDER BY last_reported) AS until
                FROM read_parquet('{folder}/status.parquet')
            )
            WHERE num_bikes_available = 0 AND until > since
        )
        GROUP BY ALL
    ) TO '{folder}/bare.parquet' (FORMAT parquet)
"""


STATIONS = 760
STATUS = """COPY (
    SELECT 's' || s AS station_id, 1609459200 + poll * 120 + (hash(s, poll) % 110)::BIGINT AS last_reported,
        greatest(0, 12 + 10 * sin(poll / 720.0 * 6.2832 + s) + (hash(poll, s) % 7)::INT - 3)::INT
            AS num_bikes_available,
        (hash(s, poll // 50) % 3)::INT AS num_bikes_disabled, 10 AS num_docks_available, true AS is_installed,
        (hash(s, poll, 1) % 5000) <> 0 AS is_renting
    FROM (SELECT {station} AS s, {poll} AS poll FROM range({rows}) t(i))
) TO '{folder}/status.parquet' (FORMAT parquet)"""
TRIPS = """COPY (
    SELECT i::VARCHAR AS ride_id, make_timestamp(started * 1000000) AS started_at,
        make_timestamp((started + 60 + (hash(i) % 3000)::BIGINT) * 1000000) AS ended_at,
        's' || (hash(i, 1) % {stations}) AS start_station_id, 's' || (hash(i, 2) % {stations}) AS end_station_id
    FROM (SELECT i, 1609459200 + i * {span} // {trips} AS started FROM range({trips}) t(i))
) TO '{folder}/trips.parquet' (FORMAT parquet)"""


def generate(rows: int, by_station: bool) -> Callable[[Path], None]:
    """A quarter of a large system: 760 stations, one record every two minutes or so, a fifth as many trips."""
    polls = rows // STATIONS
    order = {"station": f"i // {polls}", "poll": f"i % {polls}"}
    if not by_station:
        order = {"station": f"i % {STATIONS}", "poll": f"i // {STATIONS}"}

    def run(folder: Path) -> None:
        with connect() as connection:
            connection.execute(STATUS.format(folder=folder, rows=polls * STATIONS, **order))
            connection.execute(TRIPS.format(folder=folder, stations=STATIONS, span=polls * 120, trips=rows // 5))

    return run


def connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(f"SET memory_limit = '{MEMORY}'")
    connection.execute(f"SET temp_directory = '{tempfile.gettempdir()}/unmet-bench-spill'")
    return connection


def bare(folder: Path) -> None:
    with connect() as connection:
        connection.execute(BARE.format(folder=folder))


def panel(supply: str, timezone: str = "Etc/UTC") -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        made = write_panel(
            folder / "panel.parquet",
            folder / "trips.parquet",
            folder / "status.parquet",
            timezone=timezone,
            every="15min",
            memory=MEMORY,
            supply=supply,
        )
        minutes, usable = made.summary["minutes"], made.summary["usable_supply"]
        print(
            f"  {made.summary['rows']:,} rows, {made.summary['trips_used']:,} trips,"
            f" stock-out {minutes['stockout']:,} min, supply {usable['method'] if usable else supply}"
        )

    return run


CITY = {"stations": 38, "days": 92, "realistic": True, "polls": "2"}  # 2.5 million status rows
CITY_STATUS = """COPY (
    SELECT s.* EXCLUDE (station_ix), station_id || '-' || copy AS station_id
    FROM read_parquet('{folder}/one_status.parquet') s
    JOIN read_parquet('{folder}/one_stations.parquet') USING (station_ix), range({copies}) t(copy)
    ORDER BY last_reported
) TO '{folder}/status.parquet' (FORMAT parquet)"""
CITY_TRIPS = """COPY (
    SELECT * REPLACE (ride_id || '-' || copy AS ride_id, start_station_id || '-' || copy AS start_station_id,
        end_station_id || '-' || copy AS end_station_id)
    FROM read_parquet('{folder}/one_trips.parquet'), range({copies}) t(copy)
) TO '{folder}/trips.parquet' (FORMAT parquet)"""


def copies_of_a_city(rows: int) -> Callable[[Path], None]:
    """One simulated city many times, each with stations of its own."""

    def run(folder: Path) -> None:
        city = simulate_city(seed=1, **CITY)
        for name in ("status", "trips", "stations"):
            getattr(city, name).to_parquet(folder / f"one_{name}.parquet")
        with connect() as connection:
            for sql in (CITY_STATUS, CITY_TRIPS):
                connection.execute(sql.format(folder=folder, copies=max(rows // len(city.status), 1)))

    return run


STATION_DAYS = 600 * 365


def hidden_state(_: Path) -> None:
    """Time learning and the hidden state (vehicles and docks) in one city, and scale the latter to a year."""
    spent = {"learning": 0.0, "served": 0.0}

    def timed(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            start = time.process_time()
            try:
                return work(*given)
            finally:
                spent[name] += time.process_time() - start

        return run

    evidence.learn_supply = timed("learning", evidence.learn_supply)
    SupplyModel.served = timed("served", SupplyModel.served)  # type: ignore[method-assign]
    city = simulate_city(60, 70, seed=2, realistic=True)
    build_panel(city.trips, city.status, city.stations, timezone=city.settings.timezone)
    year = spent["learning"] + spent["served"] * STATION_DAYS / (60 * 70)
    print(
        f"  learning {spent['learning']:.1f} s, states of 4,200 station-days {spent['served']:.2f} s of CPU:"
        f" {year:.0f} s for 600 stations and a year"
    )


def east_village(data: Path, supply: str) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        source = data / "citibike_east_village"
        made = write_panel(
            folder / "hubs.parquet",
            None,
            source / "station_status_2020-05_2022-06.parquet",
            source / "stations.csv",
            timezone="America/New_York",
            zones="superhubs:200m",
            supply=supply,
        )
        print(f"  {made.summary['rows']:,} rows of {made.summary['zones']} super-hubs")

    return run


def bare_hubs(data: Path) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        source = data / "citibike_east_village" / "station_status_2020-05_2022-06.parquet"
        with connect() as connection:
            sql = BARE.format(folder=folder).replace(f"{folder}/status.parquet", str(source))
            connection.execute(
                sql.replace("station_id", "station_ix").replace("900000000", "3600000000").replace("900", "3600")
            )

    return run


def measure(work: Callable[[Path], None], folder: Path) -> tuple[float, float, float]:
    """CPU and wall seconds and peak memory in GB, in a process of its own."""
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        try:
            work(folder)
            sys.stdout.flush()
            os._exit(0)
        except BaseException as error:
            print(f"  failed: {type(error).__name__}: {error}")
            sys.stdout.flush()
            os._exit(1)
    _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit("a benchmark failed")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - start, usage.ru_maxrss / 1e6


def compare(title: str, works: dict[str, Callable[[Path], None]], folder: Path) -> None:
    """Print times and peaks, and the CPU time of the last over that of each other."""
    print(title, flush=True)
    # Twice, and the lesser: other work on the machine only ever adds.
    found = {name: min(measure(work, folder) for _ in range(2)) for name, work in works.items()}
    for name, (cpu, wall, peak) in found.items():
        print(f"  {name:6s} CPU {cpu:6.1f} s   wall {wall:6.1f} s   peak {peak:.2f} GB")
    *others, last = found
    for name in others:
        print(f"  ratio of CPU time, {last} over {name}: {found[last][0] / found[name][0]:.2f}")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory(prefix="unmet-bench-") as name:
        folder = Path(name)
        title = f"{rows:,} status rows and {rows // 5:,} trips to a 15-minute panel, status"
        measure(generate(rows, by_station=False), folder)
        works = {"bare": bare, "listed": panel("listed"), "usable": panel("usable")}
        compare(f"{title} poll after poll, as it is collected", works, folder)
        measure(generate(rows, by_station=True), folder)
        compare(f"{title} station after station (DuckDB's window finds it sorted)", works, folder)
        measure(copies_of_a_city(rows), folder)
        works = {supply: panel(supply, "America/New_York") for supply in ("listed", "usable")}
        compare("as many status rows of simulated cities, with their trips", works, folder)
        print("hidden state", flush=True)
        measure(hidden_state, folder)
        print()
        data = Path(os.environ.get("UNMET_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
        if (data / "citibike_east_village").is_dir():
            compare(
                "East Village, 5.2 million rows, to an hourly panel of super-hubs",
                {
                    "bare": bare_hubs(data),
                    "listed": east_village(data, "listed"),
                    "usable": east_village(data, "usable"),
                },
                folder,
            )
        else:
            print(f"no East Village data in {data}: skipped")


if __name__ == "__main__":
    main()
