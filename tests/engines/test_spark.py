"""Runs on a real Spark master with two workers: the tables of a local run, to the last byte, whatever dies."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_city import save_city
from test_cities import CONFIG as CITY
from toy_model import ToyModel, estimate_toy, toy_panel

from unmet import InputError
from unmet._exceptions import UnmetError
from unmet._stamp import stamp
from unmet._storage.parquet import write_parquet
from unmet.engines import find_executor, spark
from unmet.execution import UnfitWorker, serially
from unmet.mobility.backtest import backtest
from unmet.mobility.demand import LatentDemand
from unmet.mobility.panel import write_panel
from unmet.mobility.runs import run_estimates
from unmet.mobility.runs.outputs import TABLES
from unmet.pipeline.cities import PAGE, TABLE, find_cities, run_cities
from unmet.simulate import simulate_city

on_a_cluster = [pytest.mark.slow, pytest.mark.spark]
RUNS = Path(__file__).parents[1] / "mobility" / "runs"
ZONES = 12
LIMIT = 120  # seconds, on a machine with other work; half of it alone


@pytest.fixture(scope="module")
def panel(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("panel") / "panel.parquet"
    write_parquet(toy_panel(zones=ZONES), path)
    return path


@pytest.fixture(scope="module")
def quiet(panel, tmp_path_factory) -> dict[str, bytes]:
    """The tables of a local run that nothing happened to."""
    out = tmp_path_factory.mktemp("quiet")
    run(panel, out, serially)
    return tables(out)


def run(panel, out, executor, trouble=None, log=None, **options):
    model = ToyModel(trouble=trouble or {}, log=None if log is None else str(log))
    return run_estimates(panel, model, out, estimate=estimate_toy, executor=executor, **options)


def tables(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in TABLES}


# ------------------------------------------------------------------ without a cluster


def test_an_address_must_have_a_host_and_a_port():
    pytest.importorskip("pyspark")
    with pytest.raises(InputError, match="expected spark://host:port"):
        find_executor("spark://master")


def test_a_master_that_does_not_answer_is_reported_at_once():
    pytest.importorskip("pyspark")
    with pytest.raises(InputError, match=r"nothing answers at spark://127\.0\.0\.1:1 \(.*\)\. Start the Spark master"):
        find_executor("spark://127.0.0.1:1").check()


@pytest.mark.parametrize("host", ["..", "a" * 300, "\u2028"])
def test_a_master_that_no_host_can_be_named_after_is_refused(host: str):
    pytest.importorskip("pyspark")
    with pytest.raises(InputError, match=r"nothing answers at .* not the name of a host"):
        find_executor(f"spark://{host}:7077").check()


def test_an_executor_that_was_stopped_starts_no_other_session():
    pytest.importorskip("pyspark")
    executor = find_executor("spark://127.0.0.1:1")
    executor.stop()
    with pytest.raises(UnmetError, match="The Spark session has ended"):
        executor.check()


def test_executors_that_start_a_moment_later_are_counted(monkeypatch):
    """Right after its start, a session of 64 slots reports two, and a run would use no more."""
    now, counts = [1000.0], iter([2, 2, 16, 16, 16, 64])
    monkeypatch.setattr(spark.time, "time", lambda: now[0])
    monkeypatch.setattr(spark.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))

    class Context:
        startTime = 999_000

        @property
        def defaultParallelism(self):
            return next(counts, 64)

    spark._wait_for_executors(Context())
    assert next(counts, None) is None
    assert now[0] < 1000 + spark._EXECUTORS_START


def test_a_session_that_has_run_for_a_while_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(spark.time, "sleep", lambda seconds: pytest.fail("waits"))
    spark._wait_for_executors(SimpleNamespace(startTime=0, defaultParallelism=2))


# ------------------------------------------------------------------ on a cluster


class TestOnACluster:
    pytestmark = on_a_cluster

    @pytest.mark.parametrize("chunk", [1, 3, 8])
    def test_tables_are_those_of_a_local_run(self, on_spark, panel, quiet, tmp_path, chunk):
        result = run(panel, tmp_path / "out", on_spark, chunk=chunk)
        assert tables(tmp_path / "out") == quiet
        assert result.info["engine"]["name"] == "spark"
        assert result.info["engine"]["stamp"]["NumPy"]

    @pytest.mark.parametrize("ansi", ["true", "false"])
    def test_the_zones_of_session_and_driver_and_ansi_change_nothing(
        self, on_spark, panel, quiet, tmp_path, ansi, monkeypatch
    ):
        session = spark._start(on_spark.session)
        session.conf.set("spark.sql.session.timeZone", "America/New_York")
        session.conf.set("spark.sql.ansi.enabled", ansi)
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        try:
            run(panel, tmp_path / "out", on_spark)
        finally:
            monkeypatch.undo()
            time.tzset()
        assert tables(tmp_path / "out") == quiet

    def test_estimates_and_backtests_of_the_package_are_equal(self, on_spark, panel, tmp_path):
        for name, executor in (("local", serially), ("spark", on_spark)):
            LatentDemand("weekly-mean", draws=20).fit(panel, tmp_path / name, jobs=2, executor=executor)
        assert tables(tmp_path / "spark") == tables(tmp_path / "local")
        scores = [backtest(panel, ["weekly-mean"], executor=e, draws=20, jobs=2).scores for e in (serially, on_spark)]
        assert scores[0].equals(scores[1])

    def test_a_panel_built_by_groups_of_zones_is_the_same_file(self, on_spark, tmp_path):
        city = simulate_city(4, 10, seed=3, timezone="America/New_York")
        for name, where in {"local": {}, "spark": {"executor": on_spark, "jobs": 2, "groups": 3}}.items():
            given = (city.trips, city.status, city.stations)
            write_panel(tmp_path / f"{name}.parquet", *given, timezone="America/New_York", **where)
        assert (tmp_path / "spark.parquet").read_bytes() == (tmp_path / "local.parquet").read_bytes()

    def test_cities_of_a_fleet_are_run_by_the_workers(self, on_spark, tmp_path):
        for name in ("Bergen", "Oslo"):
            save_city(tmp_path / "cities" / name, stations=2, seed=len(name))
            (tmp_path / "cities" / name / "unmet.toml").write_text(CITY)
        both = [
            run_cities(find_cities(tmp_path / "cities", tmp_path / name), tmp_path / name, executor=executor, jobs=1)
            for name, executor in (("local", serially), ("spark", on_spark))
        ]
        assert both[0] == both[1]
        assert [row.reason for row in both[1]] == [None, None]
        assert tables(tmp_path / "spark" / "Oslo" / "estimate") == tables(tmp_path / "local" / "Oslo" / "estimate")

    def test_a_fleet_that_was_interrupted_is_resumed_to_the_same_tables(self, spark_cluster, tmp_path):
        names = ("Bergen", "Oslo", "Stavanger")
        for name in names:
            save_city(tmp_path / "cities" / name, stations=2, seed=len(name))
            (tmp_path / "cities" / name / "unmet.toml").write_text(CITY)
        run_cities(find_cities(tmp_path / "cities", tmp_path / "local"), tmp_path / "local", executor=serially, jobs=1)

        def fleet(interrupt_at: str) -> subprocess.CompletedProcess[str]:
            program = [str(Path(__file__).with_name("interrupted_fleet.py")), interrupt_at]
            where = ["--out", str(tmp_path / "spark"), "--engine", spark_cluster.url, "--jobs", "1"]
            return drive(spark_cluster, [*program, "fleet", str(tmp_path / "cities"), *where])

        stopped = fleet("Oslo")
        assert stopped.returncode == 130, stopped.stderr
        assert "run the same command to continue" in stopped.stderr
        assert "Traceback" not in stopped.stderr
        assert not (tmp_path / "spark" / PAGE).exists()
        assert not (tmp_path / "spark" / "Oslo" / "estimate" / "run.json").exists()
        began = tmp_path / "spark" / "Oslo" / "unfinished" / "panel.parquet"
        made = began.stat().st_mtime_ns
        ended = fleet("nowhere")
        assert ended.returncode == 0, ended.stderr
        assert (tmp_path / "spark" / "Oslo" / "panel.parquet").stat().st_mtime_ns == made  # was not built again
        for name in names:
            assert tables(tmp_path / "spark" / name / "estimate") == tables(tmp_path / "local" / name / "estimate")
        assert (tmp_path / "spark" / TABLE).read_bytes() == (tmp_path / "local" / TABLE).read_bytes()

    def test_a_zone_that_always_kills_its_worker_is_named_and_the_others_are_equal(
        self, on_spark, panel, quiet, tmp_path
    ):
        result = run(panel, tmp_path / "out", on_spark, trouble={"z3": "kill"}, chunk=3)
        assert [failure["zone"] for failure in result.info["failures"]] == ["z3"]
        assert "lost 3 times" in result.info["failures"][0]["reason"]
        # The same command tries the zone again.
        run(panel, tmp_path / "out", on_spark)
        assert tables(tmp_path / "out") == quiet

    @pytest.mark.parametrize("victim", ["python worker", "executor", "both executors", "worker"])
    def test_a_process_that_is_killed_costs_no_digit(self, spark_cluster, on_spark, panel, quiet, tmp_path, victim):
        words = {"python worker": "pyspark.daemon", "worker": "deploy.worker.Worker"}
        killed = []

        def kill(done, zones, note):
            if done and not killed:
                pids = spark_cluster.pids(words.get(victim, "CoarseGrainedExecutorBackend"))
                killed.extend(pids if victim == "both executors" else pids[-1:])
                for pid in killed:
                    os.kill(pid, signal.SIGKILL)

        try:
            began = time.monotonic()
            result = run(panel, tmp_path / "out", on_spark, chunk=1, jobs=2, progress=kill)
        finally:
            if victim == "worker":
                spark_cluster.add_workers(1)
        assert len(killed) == 1 + (victim == "both executors")
        assert result.info["failures"] == []
        assert tables(tmp_path / "out") == quiet
        assert time.monotonic() - began < LIMIT

    def test_a_driver_that_was_killed_is_resumed_on_another_engine(self, spark_cluster, panel, quiet, tmp_path):
        options = json.dumps({"executor": spark_cluster.url, "kill_after": 3, "chunk": 1, "jobs": 2})
        ended = drive(spark_cluster, [str(RUNS / "toy_run.py"), str(panel), str(tmp_path / "out"), options])
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        result = run(panel, tmp_path / "out", serially)
        assert result.info["zones"]["finished_before"] >= 3
        assert tables(tmp_path / "out") == quiet

    def test_a_local_run_is_resumed_on_spark(self, on_spark, panel, quiet, tmp_path):
        def stop(done, zones, note):
            if done >= 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(panel, tmp_path / "out", serially, chunk=1, progress=stop)
        result = run(panel, tmp_path / "out", on_spark)
        assert result.info["zones"]["finished_before"] >= 3
        assert tables(tmp_path / "out") == quiet

    def test_a_worker_of_another_version_ends_the_run_and_no_zone_failed(self, on_spark, panel, tmp_path, monkeypatch):
        real = spark._stamp.stamp()
        monkeypatch.setattr(spark._stamp, "stamp", lambda: {**real, "NumPy": "1.26.0"})
        with pytest.raises(UnfitWorker, match=rf"NumPy: {real['NumPy']}, here 1\.26\.0\).*install the same versions"):
            run(panel, tmp_path / "out", on_spark)
        # A worker that joins later is checked with its first item.
        with pytest.raises(UnfitWorker, match="No zone was tried there"):
            list(on_spark(abs, [1, 2], 2))
        assert not (tmp_path / "out" / "run.json").exists()

    @pytest.mark.parametrize("unfit", ["no unmet", "another NumPy", "another kernel"])
    def test_unfit_workers_end_the_command_with_one_sentence(self, spark_cluster, panel, tmp_path, unfit):
        """Their interpreter really finds another `unmet` or NumPy, or tells OpenBLAS to use another kernel."""
        python, sentence = make_unfit_python(tmp_path, unfit)
        command = "from unmet.cli import main; main()"
        began = time.monotonic()
        ended = drive(
            spark_cluster,
            ["-c", command, "estimate", str(panel), "--out", str(tmp_path / "out"), "--engine", spark_cluster.url],
            PYSPARK_PYTHON=str(python),
        )
        assert ended.returncode == 2
        words = " ".join(ended.stderr.split())
        assert re.search(rf"The Spark worker on \S+ would give other digits than this machine \({sentence}", words), (
            words
        )
        assert "No zone was tried there" in words
        assert time.monotonic() - began < LIMIT
        assert not (tmp_path / "out" / "run.json").exists()


def make_unfit_python(folder: Path, unfit: str) -> tuple[Path, str]:
    """Write an interpreter for workers that are not like the driver; return it and a pattern of the sentence."""
    import numpy as np

    extra, sentence = f"PYTHONPATH={folder}:$PYTHONPATH", ""
    if unfit == "no unmet":
        (folder / "unmet").mkdir()
        (folder / "unmet" / "__init__.py").write_text("raise ImportError('no unmet here')\n")
        sentence = r"unmet: missing \(ImportError: no unmet here\), here"
    elif unfit == "another NumPy":  # the same files, but one: the worker imports this folder
        source = Path(np.__file__).parent
        for name in ("numpy", "numpy.libs"):
            if (source.parent / name).is_dir():
                shutil.copytree(source.parent / name, folder / name, copy_function=os.symlink)
        version = folder / "numpy" / "version.py"
        text = version.read_text().replace(np.__version__, "1.26.0")
        version.unlink()
        version.write_text(text)
        sentence = rf"NumPy: 1\.26\.0, here {re.escape(np.__version__)}"
    else:
        kernel = "Nehalem" if "Haswell" in stamp()["BLAS"] else "Haswell"
        extra = f"OPENBLAS_CORETYPE={kernel}"
        sentence = rf"BLAS: [^)]*{kernel}[^)]*, here {re.escape(stamp()['BLAS'])}\).*set OPENBLAS_CORETYPE to the same"
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec env {extra} "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return python, sentence


def drive(cluster, arguments, **more) -> subprocess.CompletedProcess[str]:
    """Run a program with Python as a driver of its own, and as a process group of its own."""
    source = RUNS.parents[2] / "src"
    own = {"PYTHONPATH": os.pathsep.join([str(source), str(RUNS)]), "COLUMNS": "500", **more}
    environment = {**os.environ, **cluster.for_drivers, **own}
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        start_new_session=True,
    )
