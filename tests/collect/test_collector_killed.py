from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from subprocess import PIPE

import pandas as pd
import pytest
from feed_server import NOON, FeedServer, Reply, Request, status

from unmet._storage.parquet import read_parquet
from unmet.collect import SystemHistory

KILLS = 20


@pytest.mark.slow
def test_a_collector_killed_at_random_moments_loses_no_answered_poll_and_repeats_none(tmp_path: Path) -> None:
    """Each answer has a number of its own as the count of station ``a``: it must be found once.

    An answer is *answered before* once the same connection asks for the next one: the collector polls its feeds in
    turn, and writes each before it asks again. The last answer before a kill may be lost, and no other.
    """
    numbers = itertools.count()
    answered: list[list[int]] = []
    kill_at = threading.Event()
    left = [0]

    def numbered(_: Request) -> Reply:
        number = next(numbers)
        answered[-1].append(number)
        left[0] -= 1
        if left[0] <= 0:
            kill_at.set()
        return status({"a": number}, NOON + number)

    chance = random.Random(19)
    folder = tmp_path / "feeds"
    script = Path(__file__).with_name("killed_collector.py")
    with FeedServer() as server:
        server.list_feeds("station_status")
        server.routes["/station_status"] = numbered
        command = [sys.executable, str(script), f"{server.url}/gbfs.json", str(folder)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True, env=environment) as parent:
            assert parent.stdin is not None
            assert parent.stdout is not None
            for kill in range(KILLS):
                answered.append([])
                kill_at.clear()
                left[0] = chance.randrange(1, 40)
                print(kill * 10_000, file=parent.stdin, flush=True)  # nine lives to a day: days turn over too
                process = int(parent.stdout.readline())
                try:
                    assert kill_at.wait(60)
                    for _ in range(chance.randrange(200_000)):  # a moment between this answer and the next request
                        pass
                finally:
                    os.kill(process, signal.SIGKILL)
                    assert parent.stdout.readline() == "ended\n"
            parent.stdin.close()
    history = SystemHistory(folder / "city")
    tables = {
        table: pd.concat([read_parquet(path) for path in history.files(table, tmp_path)])
        for table in ("changes", "polls")
    }
    found = tables["changes"]
    found = found[~found["restated"]]["num_bikes_available"].tolist()
    assert len(found) == len(set(found))
    must = {number for life in answered for number in life[:-1]}
    may = {number for life in answered for number in life}
    assert must <= set(found) <= may
    polls = tables["polls"]
    good = polls[(polls["feed"] == "station_status") & polls["error"].isna()]
    assert len(good) == len(found)
    assert not good["poll_time"].duplicated().any()
    assert len(history.finished_days()) >= 2
    assert history.damaged() == []
