"""A Spark master with two workers on this machine. All of their processes end with this one."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_PR_SET_PDEATHSIG = 1
_SECONDS = 90
# The REST server of the master would open port 6066. Workers import the modules of the tests.
_FOR_DAEMONS = {
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    "PYTHONPATH": ":".join(str(path) for path in (ROOT / "src", ROOT, ROOT / "tests", ROOT / "tests/mobility/runs")),
}


def need_java() -> None:
    """Skip if there is no Java or no pyspark; fail where both were promised."""
    missing = [name for name, found in (("Java", shutil.which("java")), ("pyspark", _pyspark())) if not found]
    if missing:
        reason = f"needs {' and '.join(missing)}: install openjdk-17-jre-headless and unmet[spark]"
        pytest.fail(reason) if os.environ.get("UNMET_CI") else pytest.skip(reason)


def _pyspark() -> Path | None:
    from importlib.util import find_spec

    spec = find_spec("pyspark")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass
class Cluster:
    """A running master and its workers."""

    folder: Path
    for_drivers: dict[str, str]
    url: str = ""
    cores: int = 2
    started: list[subprocess.Popen] = field(default_factory=list)

    def start(self, name: str, *arguments: str) -> Path:
        """Start a daemon of Spark; return its log. Children end with the thread that starts them."""
        log = self.folder / f"{uuid.uuid4().hex}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [_pyspark() / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
                env={**os.environ, **self.for_drivers, **_FOR_DAEMONS},
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                preexec_fn=_die_with_parent,
            )
        self.started.append(process)
        return log

    def add_workers(self, count: int) -> None:
        """Start workers. An application gets two of their cores, so that two applications fit."""
        common = (
            "worker.Worker",
            "--host",
            "127.0.0.1",
            "--cores",
            str(self.cores),
            "--memory",
            "2g",
            "--webui-port",
            "0",
        )
        folders = [self.folder / f"work-{uuid.uuid4().hex}" for _ in range(count)]
        logs = [self.start(*common, "--work-dir", str(folder), self.url) for folder in folders]
        for log in logs:
            wait_for_line("(Successfully registered)", log)

    def pids(self, words: str) -> list[int]:
        """Processes that work in the folder of this cluster and have these words in their command."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                here = entry.name.isdigit() and Path(os.readlink(entry / "cwd")).is_relative_to(self.folder)
                if here and words in (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode():
                    found.append(int(entry.name))
            except OSError:  # has ended, or is not ours
                continue
        return sorted(found)

    def stop(self) -> None:
        """End everything that was started."""
        for process in self.started:
            process.kill()
            process.wait()


def wait_for_line(pattern: str, log: Path) -> str:
    """Wait for a line of a log; return what the pattern finds in it."""
    for _ in range(10 * _SECONDS):
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found.group(1)
        time.sleep(0.1)
    raise AssertionError(f"{pattern!r} not within {_SECONDS} s: {log.read_text(errors='replace')[-2000:]}")


@contextmanager
def running_cluster(folder: Path, cores: int = 2):
    """Start a master and two workers, and stop them in the end."""
    (folder / "spark-defaults.conf").write_text(
        f"spark.cores.max {cores}\n"
        "spark.executor.memory 512m\nspark.driver.memory 512m\nspark.ui.enabled false\n"
        f"spark.local.dir {folder}\nspark.driver.host 127.0.0.1\n"
    )
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(folder), "PYSPARK_PYTHON": sys.executable}
    cluster = Cluster(folder, own, cores=cores)
    try:
        name = "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
        cluster.url = wait_for_line(r"Starting Spark master at (spark://\S+)", cluster.start(*name))
        cluster.add_workers(2)
        yield cluster
    finally:
        cluster.stop()
