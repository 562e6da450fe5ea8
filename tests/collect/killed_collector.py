"""Collectors to kill: for every start time on stdin, fork one and print its process id."""

import asyncio
import os
import sys
from pathlib import Path

import httpx  # noqa: F401 - imported here once, instead of in every child
from feed_server import NOON, JumpingClock

from unmet.collect import System, collect

if __name__ == "__main__":
    url, folder = sys.argv[1:]
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            asyncio.run(collect([System("city", url)], Path(folder), clock=JumpingClock(NOON + float(line))))
            os._exit(1)  # it never ends by itself
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print("ended", flush=True)
