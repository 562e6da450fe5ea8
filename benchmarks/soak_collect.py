"""A soak of the collector: many systems at many times the speed of the world, on loopback.

    python benchmarks/soak_collect.py --systems 50 --stations 500 --speed 200 --seconds 600

A server in a process of its own answers with documents in which some stations changed, and counts its answers. At the
end the history must contain every answer once. Printed are polls and ticks that are missing, memory and processor time
of the collector. The exit code is 1 if an answer is missing or there twice.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import resource
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from unmet._storage.parquet import read_parquet
from unmet.collect import Clock, System, SystemHistory, collect

START = 1_767_310_200.0  # 2026-01-01 23:30 UTC: a day turns over soon
INTERVAL = 60.0
CHANGING = 0.1  # share of stations that change between two polls


class Feeds:
    """Documents of all systems. The number of an answer is in its ``last_updated``."""

    def __init__(self, systems: int, stations: int, address: str) -> None:
        self.address, self.chance = address, random.Random(0)
        self.rows = [[self.station(i) for i in range(stations)] for _ in range(systems)]
        self.answers = [0] * systems

    def station(self, number: int) -> str:
        """A station with some number of bikes."""
        bikes = self.chance.randrange(20)
        return (
            f'{{"station_id":"s{number:05d}","num_bikes_available":{bikes},"num_docks_available":{20 - bikes},'
            '"num_bikes_disabled":1,"num_docks_disabled":0,"is_installed":true,"is_renting":true,"is_returning":true,'
            '"last_reported":1760011200}'
        )

    def answer(self, path: str) -> str:
        """The document of a path."""
        system, name = path.strip("/").split("/")
        if name == "gbfs.json":
            feeds = [{"name": "station_status", "url": f"{self.address}/{system}/station_status"}]
            return json.dumps({"last_updated": 1, "ttl": 0, "data": {"feeds": feeds}})
        number = int(system)
        rows = self.rows[number]
        for _ in range(int(len(rows) * CHANGING)):
            i = self.chance.randrange(len(rows))
            rows[i] = self.station(i)
        self.answers[number] += 1
        stations = ",".join(rows)
        return f'{{"last_updated":{self.answers[number]},"ttl":60,"data":{{"stations":[{stations}]}}}}'


def serve(systems: int, stations: int, pipe: Connection) -> None:
    """Serve until the pipe says something; then send the numbers of answers."""

    async def work() -> None:
        feeds: Feeds | None = None

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert feeds is not None
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    body = feeds.answer(head.split(b" ", 2)[1].decode()).encode()
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                    await writer.drain()
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        feeds = Feeds(systems, stations, address)
        pipe.send(address)
        while not pipe.poll():
            await asyncio.sleep(0.2)
        pipe.send(feeds.answers)

    asyncio.run(work())


async def watch_memory(sizes: list[float], every: float) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    while True:
        sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * page / 1e6)
        await asyncio.sleep(every)


async def soak(systems: list[System], out: Path, speed: float, seconds: float, sizes: list[float]) -> None:
    watching = asyncio.create_task(watch_memory(sizes, seconds / 60))
    clock = Clock(START, speed)
    await collect(systems, out, clock=clock, until=clock.now() + seconds * speed, note=print)
    watching.cancel()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("systems", 50), ("stations", 500), ("speed", 200), ("seconds", 120)):
        parser.add_argument(f"--{name}", type=int, default=default)
    chosen = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(chosen.systems, chosen.stations, theirs), daemon=True)
    server.start()
    address = ours.recv()
    systems = [System(f"city{i:03d}", f"{address}/{i}/gbfs.json") for i in range(chosen.systems)]
    with tempfile.TemporaryDirectory() as folder:
        sizes: list[float] = []
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        asyncio.run(soak(systems, Path(folder), chosen.speed, chosen.seconds, sizes))
        took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
        ours.send("enough")
        answers = ours.recv()
        server.join()
        return report(Path(folder), systems, answers, sizes, took, _seconds(after) - _seconds(before))


def _seconds(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def report(
    out: Path, systems: list[System], answers: list[int], sizes: list[float], took: float, processor: float
) -> int:
    lost = repeated = missed = failed = polls = size = 0
    for system, answered in zip(systems, answers, strict=True):
        history = SystemHistory(out / system.name)
        numbers, times = [], []
        for path in history.files("polls", out):
            table = read_parquet(path)
            table = table[table["feed"] == "station_status"]
            polls, failed = polls + len(table), failed + int(table["error"].notna().sum())
            good = table[table["error"].isna()]
            numbers += [t.timestamp() for t in good["last_updated"]]
            times += [t.timestamp() for t in table["poll_time"]]
        lost += answered - len(set(numbers))
        repeated += len(numbers) - len(set(numbers))
        missed += int(np.sum(np.round(np.diff(times[1:]) / INTERVAL) - 1))  # the first poll is off the clock
        size += sum(path.stat().st_size for path in history.folder.rglob("*") if path.is_file())
    settled = sizes[len(sizes) // 4]
    print(f"{polls:,} polls of {len(systems)} systems in {took:.0f} s; {failed:,} failed")
    print(f"answers lost {lost:,}, there twice {repeated:,}; ticks missed {missed:,}")
    print(f"memory {settled:.0f} MB after a quarter, {sizes[-1]:.0f} at the end, {max(sizes):.0f} at most")
    print(f"processor {processor / took:.2f} cores; {size / 1e6:,.0f} MB on disk")
    return 1 if lost or repeated else 0


if __name__ == "__main__":
    raise SystemExit(main())
