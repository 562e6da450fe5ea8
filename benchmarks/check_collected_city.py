"""A simulated city is served over HTTP for a simulated month and collected. Lost trips must be as from its own files.

    python benchmarks/check_collected_city.py --stations 8 --days 30

The feed shows the state of the city at each poll, once a minute. Lost trips are estimated from the city's trips with
the collected status, and from the same trips with the simulator's own log of status. They should agree within 2 %.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from unmet.collect import Clock, System, collect
from unmet.pipeline import make_settings, run
from unmet.simulate import City, simulate_city

ZONE = "America/New_York"


class JumpingClock(Clock):
    """Jumps to the moment that is waited for."""

    def __init__(self, start: float) -> None:
        super().__init__(start)
        self.moment = start

    def now(self) -> float:
        """Seconds since 1970."""
        return self.moment

    async def sleep_until(self, moment: float, stop: asyncio.Event) -> None:
        """Jump."""
        await asyncio.sleep(0)
        self.moment = max(self.moment, moment)


class Feed:
    """The city's feed at the time of a clock."""

    def __init__(self, city: City, clock: JumpingClock) -> None:
        self.clock = clock
        self.stations = city.stations.drop(columns="station_ix").to_dict("records")
        log = city.status.sort_values("last_reported", kind="stable")
        self.times = log["last_reported"].to_numpy()
        names = city.stations["station_id"].to_numpy()
        self.rows = log.assign(station_id=names[log["station_ix"]]).drop(columns="station_ix").to_dict("records")
        self.now: dict[str, dict[str, Any]] = {}
        self.next = 0

    def document(self, name: str, address: str) -> str:
        """The document of a feed, as published now."""
        moment = int(self.clock.moment)
        if name == "gbfs.json":
            feeds = [{"name": n, "url": f"{address}/{n}"} for n in ("station_status", "station_information")]
            data: dict[str, Any] = {"feeds": feeds}
        elif name == "station_information":
            data = {"stations": self.stations}
        else:
            end = int(np.searchsorted(self.times, moment, side="right"))
            for row in self.rows[self.next : end]:
                self.now[row["station_id"]] = row
            self.next = end
            data = {"stations": list(self.now.values())}
        return json.dumps({"last_updated": moment, "ttl": 60, "data": data})


async def collect_city(city: City, out: Path) -> None:
    start = float(city.status["last_reported"].min())
    clock = JumpingClock(start)
    feed = Feed(city, clock)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1].decode()
                body = feed.document(path.strip("/"), address).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    begin = pd.Timestamp(start, unit="s", tz="UTC").tz_convert(ZONE)
    until = (begin + pd.DateOffset(days=city.settings.days)).timestamp()
    counts = await collect([System("city", f"{address}/gbfs.json")], out, clock=clock, until=until)
    print(counts["city"])
    server.close()


def estimate(folder: Path, files: dict[str, tuple[str, ...]], model: str) -> pd.Series:
    settings = make_settings(**files, timezone=ZONE, model=model, jobs=1, out=folder)
    outcome = run(settings)
    print(f"{folder.name:10} unknown minutes {outcome.panel['minutes']['unknown']:,}")
    return pd.Series({name: outcome.estimate.info["totals"][name]["mean"] for name in ("observed", "lost")})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("stations", 8), ("days", 30), ("seed", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--model", default="exposure")
    chosen = parser.parse_args()
    city = simulate_city(stations=chosen.stations, days=chosen.days, seed=chosen.seed, fleet_share=0.25)
    with tempfile.TemporaryDirectory() as folder:
        saved, began = city.save(f"{folder}/city"), time.monotonic()
        asyncio.run(collect_city(city, Path(folder, "feeds")))
        print(f"collected in {time.monotonic() - began:.0f} s")
        trips, stations = (f"{saved}/trips.parquet",), (f"{saved}/stations.csv",)
        own = {"trips": trips, "status": (f"{saved}/status.parquet",), "stations": stations}
        kept = {"trips": trips, "status": (f"{folder}/feeds",)}
        found = pd.DataFrame(
            {
                "own files": estimate(Path(folder, "own"), own, chosen.model),
                "collected": estimate(Path(folder, "collected"), kept, chosen.model),
            }
        )
    print(found.round(1).to_string())
    off = found.loc["lost", "collected"] / found.loc["lost", "own files"] - 1
    print(f"truly lost {city.summary()['lost']:,}; lost trips differ by {off:+.2%}")
    return 0 if abs(off) <= 0.02 else 1


if __name__ == "__main__":
    raise SystemExit(main())
