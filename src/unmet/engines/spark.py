"""Apache Spark as an executor: one Spark job of one task for each work item.

Spark schedules the tasks and replaces lost machines. Items, functions and results travel as bytes, never as Spark rows:
Spark would convert times to the session's time zone. Install ``unmet[spark]`` and Java 17 on the driver, and the same
versions of `unmet`, NumPy and SciPy on driver and workers.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from unmet import _stamp
from unmet._exceptions import InputError, MissingExtraError, UnmetError
from unmet.engines import _task
from unmet.execution import ONE_THREAD, UnfitWorker, WorkerDied

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["OnSpark"]

Item = TypeVar("Item")
Result = TypeVar("Result")

# Seconds: a master answers at once, a worker within a minute.
_MASTER_ANSWERS, _WORKERS_ANSWER = 10.0, 60.0
_MOMENT = 0.2
# Seconds: executors of a new session start within some seconds of each other.
_EXECUTORS_START, _NO_MORE_CAME = 30.0, 3.0


@dataclass(frozen=True)
class OnSpark:
    """Work on the workers of a Spark session.

    Each item is a Spark job of one task, started from a thread of this process. The function is broadcast once per
    call. A worker checks its versions and its kernel of linear algebra before each item. A worker that dies gives its
    item the outcome `unmet.execution.WorkerDied`; Spark starts a new one.

    Parameters
    ----------
    session : SparkSession or str
        A session, or the address of a standalone master, ``spark://host:port``. A session of an address is started
        when it is first needed and stopped when this process ends. Spark Connect (``sc://``) has no jobs of this kind
        and is not supported. Set ``spark.task.maxFailures`` of a session of your own to 1, so that lost work is tried
        again by `unmet`, which then finds a zone that kills its workers.

    Examples
    --------
    >>> from pyspark.sql import SparkSession  # doctest: +SKIP
    >>> session = SparkSession.builder.master("local[2]").getOrCreate()  # doctest: +SKIP
    >>> dict(OnSpark(session)(abs, [-1, -2], jobs=2))  # doctest: +SKIP
    {-1: 1, -2: 2}
    """

    session: SparkSession | str
    _ended: Event = field(default_factory=Event, init=False, repr=False, compare=False)
    by_reference: ClassVar[bool] = True
    from_threads: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.session, str):
            _import()
            _address(self.session)

    def __call__(
        self, function: Callable[[Item], Result], items: Iterable[Item], jobs: int
    ) -> Generator[tuple[Item, Result | Exception], None, None]:
        """Yield ``(item, result or exception)`` as the items finish: see `unmet.execution.Executor`."""
        from pyspark import cloudpickle

        context = self._context()
        group = f"unmet-{uuid.uuid4().hex}"
        broadcast = context.broadcast(cloudpickle.dumps(function))
        task = partial(_task.call, expected=_stamp.stamp(), function=broadcast)
        pool = ThreadPoolExecutor(jobs, thread_name_prefix="unmet-spark")
        remaining, under_way = iter(items), dict[Future[Any], Item]()
        try:
            while True:
                for item in islice(remaining, jobs - len(under_way)):
                    under_way[pool.submit(_run_job, context, group, task, item)] = item
                if not under_way:
                    return
                for future in wait(under_way, timeout=_MOMENT, return_when=FIRST_COMPLETED).done:
                    yield under_way.pop(future), future.result()
        finally:
            while under_way and wait(under_way, timeout=_MOMENT).not_done:
                with suppress(Exception):  # the session may have ended
                    context.cancelJobGroup(group)  # again and again: a thread may be about to start its job
            pool.shutdown()
            if not _stopped(context):
                broadcast.destroy()

    @property
    def slots(self) -> int:
        """Number of tasks that the workers run at a time."""
        return int(self._context().defaultParallelism)

    def check(self) -> dict[str, Any]:
        """Check that workers answer, and that their versions and kernels are those of this process.

        Returns
        -------
        dict
            Address of the master, version of Spark, number of tasks at a time, and stamp, for ``run.json``.

        Raises
        ------
        UnfitWorker
            If a worker differs, or no worker answers within a minute.
        """
        context = self._context()
        group = f"unmet-{uuid.uuid4().hex}"
        with ThreadPoolExecutor(1, thread_name_prefix="unmet-spark") as pool:
            future = pool.submit(_probe, context, group, 2 * self.slots)
            if wait([future], timeout=_WORKERS_ANSWER).not_done:
                context.cancelJobGroup(group)
                raise UnfitWorker(
                    f"No worker of {context.master} took up work within {_WORKERS_ANSWER:.0f} s. Start workers, or "
                    "wait until other applications leave them free."
                )
            expected = _stamp.stamp()
            for host, stamp in future.result():
                if stamp != expected:
                    raise UnfitWorker(_difference(host, stamp, expected))
        _wait_for_executors(context)
        found = {"name": "spark", "master": context.master, "spark": context.version}
        return {**found, "slots": self.slots, "stamp": expected}

    def stop(self) -> None:
        """Stop the session for good: a thread that goes on gets an error, not a new session.

        A session that was started for an address is stopped at the end of this process anyway.
        """
        from pyspark.sql import SparkSession

        self._ended.set()
        session = SparkSession.getActiveSession() if isinstance(self.session, str) else self.session
        if session is not None and not _stopped(session.sparkContext):
            session.sparkContext.stop()

    def _context(self) -> SparkContext:
        if not self._ended.is_set():
            session = _start(self.session) if isinstance(self.session, str) else self.session
            context = session.sparkContext
        if self._ended.is_set() or _stopped(context):
            raise UnmetError("The Spark session has ended. Start a new one; finished zones are kept.")
        return context


def _run_job(context: SparkContext, group: str, task: Callable[..., Iterator[bytes]], item: Any) -> Any:
    """Run one item as a Spark job; raise only what concerns all items."""
    from pyspark import cloudpickle
    from pyspark.errors import PySparkException

    try:
        context.setJobGroup(group, "unmet")
        _by_value()
        (reply,) = context.parallelize([cloudpickle.dumps(item)], 1).mapPartitions(task).collect()
    except Exception as error:
        if _stopped(context):
            raise UnmetError(
                "The Spark application was ended by its master, or lost it. Finished zones are kept: the same command "
                "continues."
            ) from error
        from py4j.protocol import Py4JError

        if isinstance(error, Py4JError | PySparkException):
            return WorkerDied(f"the Spark task ended without a result: {_cause(error)}")
        return error
    kind, content = cloudpickle.loads(reply)
    if kind == _task.UNFIT:
        raise UnfitWorker(_difference(content[0], content[1], _stamp.stamp()))
    return content


def _probe(context: SparkContext, group: str, tasks: int) -> list[tuple[str, dict[str, str]]]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        context.setJobGroup(group, "unmet: versions of the workers")
        _by_value()
        return list(context.parallelize(range(tasks), tasks).mapPartitions(_task.probe).collect())
    except (Py4JError, PySparkException) as error:
        raise UnfitWorker(
            f"The workers of Spark cannot run Python: {_cause(error)}. Install the same Python and unmet on each, and "
            "name its interpreter in PYSPARK_PYTHON."
        ) from error


def _wait_for_executors(context: SparkContext) -> None:
    """Wait until no more executors join a new session: a run counts the slots once, and would leave later ones idle."""
    slots, since = context.defaultParallelism, time.time()
    end = context.startTime / 1000 + _EXECUTORS_START
    while time.time() < min(since + _NO_MORE_CAME, end):
        time.sleep(_MOMENT)
        if context.defaultParallelism != slots:
            slots, since = context.defaultParallelism, time.time()


def _by_value() -> None:
    """Let Spark send the functions of a task as code: a worker without `unmet` must be able to report that."""
    from pyspark import cloudpickle

    for module in (_task, _stamp):
        cloudpickle.register_pickle_by_value(module)


def _difference(host: str, found: dict[str, str], expected: dict[str, str]) -> str:
    """Describe how a worker differs from the driver, and what to do."""
    unlike = [name for name in expected if found.get(name) != expected[name]]
    words = "; ".join(f"{name}: {found.get(name, 'missing')}, here {expected[name]}" for name in unlike)
    advice = "install the same versions on both"
    if unlike == ["BLAS"]:
        advice = "set OPENBLAS_CORETYPE to the same kernel on both, such as Haswell"
    return (
        f"The Spark worker on {host} would give other digits than this machine ({words}). No zone was tried there: "
        f"{advice}."
    )


def _cause(error: Exception) -> str:
    """Return the first line of an error of Spark that names a cause."""
    text = str(getattr(error, "java_exception", error) or error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if "failure" in line.lower() or "Exception:" in line]
    return (named or lines or ["unknown cause"])[0][:300].rstrip(".")


def _stopped(context: SparkContext) -> bool:
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except Exception:  # the JVM is gone
        return True


def _import() -> Any:
    # Nothing of Spark's own pandas code is used here.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    try:
        import pyspark.sql
    except ImportError:
        raise MissingExtraError("pyspark", "spark", "Spark engines") from None
    return pyspark


def _address(url: str) -> list[tuple[str, int]]:
    """Return host and port of each master of an address, ``spark://host:port,host:port``."""
    try:
        parts = [urlsplit(f"spark://{one}") for one in url.removeprefix("spark://").split(",")]
        found = [(part.hostname, part.port) for part in parts]
        assert all(host and port for host, port in found)
    except (ValueError, AssertionError):
        raise InputError(f"engine: expected spark://host:port, such as spark://master:7077; got {url!r}.") from None
    return [(str(host), int(port or 0)) for host, port in found]


def _start(url: str) -> SparkSession:
    """Start a session at a standalone master, or return the one that is running there."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None and not _stopped(running.sparkContext):
        if running.sparkContext.master == url:
            return running
        raise InputError(f"A Spark session at {running.sparkContext.master} is running already; got {url}. Stop it.")
    _check_master(url)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(url)
    for name, value in _settings().items():
        builder = builder.config(name, value)
    try:
        with _own_interrupts():
            session = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise InputError(f"Spark could not be started: {_cause(error)}. It needs Java 17 or newer.") from error
    except Exception as error:
        raise InputError(f"The Spark master {url} gave no session: {_cause(error)}.") from error
    atexit.register(session.stop)
    return session


def _settings() -> dict[str, str]:
    # `work_through` tries lost work again. The driver's kernel of linear algebra is asked for on all workers.
    kernel = os.environ.get("OPENBLAS_CORETYPE") or _kernel()
    environment = {**ONE_THREAD, **({"OPENBLAS_CORETYPE": kernel} if kernel else {})}
    return {
        "spark.app.name": "unmet",
        "spark.task.maxFailures": "1",
        "spark.log.level": "OFF",
        "spark.ui.showConsoleProgress": "false",
        # Every item is a job: the driver would keep a thousand of them for its page.
        "spark.ui.retainedJobs": "100",
        "spark.ui.retainedStages": "100",
        "spark.ui.retainedTasks": "1000",
        **{f"spark.executorEnv.{name}": value for name, value in environment.items()},
    }


def _kernel() -> str | None:
    """Return the OpenBLAS kernel of this process; None if there is none, or more than one."""
    from threadpoolctl import threadpool_info

    found = {library.get("architecture") for library in threadpool_info() if library["internal_api"] == "openblas"}
    return str(found.pop()) if len(found) == 1 and None not in found else None


def _check_master(url: str) -> None:
    """Refuse an address at which nothing answers: Spark itself would try for a minute."""
    reasons = []
    for host, port in _address(url):
        try:
            socket.create_connection((host, port), timeout=_MASTER_ANSWERS).close()
            return
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
        except UnicodeError:  # of the codec that turns a host into its name in the DNS
            reasons.append(f"{host}:{port}: not the name of a host")
    raise InputError(f"engine: nothing answers at {url} ({'; '.join(reasons)}). Start the Spark master first.")


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep this process's handler of Ctrl-C, which pyspark replaces when a session starts."""
    try:
        before = signal.getsignal(signal.SIGINT)
        yield
    finally:
        with suppress(ValueError):  # not in the main thread, where pyspark changes nothing either
            signal.signal(signal.SIGINT, before)
