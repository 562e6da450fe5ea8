"""Executors: where work is done - in this process, in worker processes, or on another engine.

An executor is a function of the form of `Executor`. It calls a function on work items, several at a time, and yields
each item with its outcome as it finishes, in any order. Runs, backtests and experiments go through `work_through`,
which adds batches and retries to any executor.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

from unmet._exceptions import InputError, UnmetError
from unmet._numbers import read_count
from unmet._stamp import stamp

__all__ = [
    "Executor",
    "Processes",
    "UnfitWorker",
    "WorkerDied",
    "count_workers",
    "describe_executor",
    "end_pool",
    "finished",
    "in_processes",
    "process_pool",
    "serially",
    "shared",
    "submit_all",
    "work_through",
]

Key = TypeVar("Key")
Item = TypeVar("Item")
Result = TypeVar("Result")

# One thread of linear algebra per process: several pools on one machine compete for its processors, and the order in
# which threads add numbers changes the last digits.
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR")}
# Signals that end a run, and seconds for which they may have to wait.
_SIGNALS = {signal.SIGINT, signal.SIGTERM}
_MOMENT = 0.2


class WorkerDied(Exception):
    """The outcome of an item whose worker ended without a result; another item may have caused it."""


class UnfitWorker(UnmetError):
    """A worker cannot give the results of this process. It ends all work: no item is to blame."""


class Executor(Protocol):
    """The interface of an executor.

    An executor

    * yields ``(item, outcome)`` once for every item. The outcome is the function's result, or the exception that the
      function raised, or `WorkerDied` if the worker ended without a result. It raises nothing for a single item;
    * has at most `jobs` items under way and takes items from the iterable only when it needs them: each item holds the
      rows of its zones;
    * is a generator. Closing it early stops the work.

    The functions and items of this package can be pickled, read no files and keep nothing between calls. An executor
    may therefore call them in any process on any machine.

    An executor may have more attributes, as `unmet.engines.spark.OnSpark` has:

    * ``slots``: the number of items that its workers do at a time, the default of `jobs`;
    * ``check()``: raises `UnfitWorker` if its workers would give other results; returns a description;
    * ``from_threads = True``: several threads may call it at a time;
    * ``by_reference = True``: all workers reach the files of this machine by the same paths. Items then name zones, and
      workers read the rows and write the finished zones themselves.
    """

    def __call__(
        self, function: Callable[[Item], Result], items: Iterable[Item], jobs: int
    ) -> Generator[tuple[Item, Result | Exception], None, None]:
        """Yield ``(item, result or exception)`` as the items finish."""
        ...


def work_through(
    function: Callable[[Item], Result],
    keys: Sequence[Key],
    load: Callable[[tuple[Key, ...]], Item],
    *,
    executor: Executor,
    jobs: int,
    size: int = 1,
    attempts: int = 2,
    lost: Callable[[tuple[Key, ...], Exception], None] = lambda keys, error: None,
) -> Generator[tuple[tuple[Key, ...], Result | Exception], None, None]:
    """Call a function on all keys, in batches, and try again where a worker was lost.

    A worker that dies, or runs out of memory, can take other work down with it. Its keys are tried again. On the last
    attempt one key is under way at a time: a key that fails then is itself the cause, and its outcome is the exception.

    Parameters
    ----------
    function : callable
        Called with one work item, with one thread of linear algebra.
    keys : sequence
        Names of the pieces of work.
    load : callable
        From a batch of keys to its work item. Called only when the executor asks for the item.
    executor : Executor
        Where the work is done.
    jobs : int
        How many batches are under way at a time.
    size : int
        Keys per batch.
    attempts : int
        How often a key is tried.
    lost : callable, optional
        Called with the keys and the exception whenever a batch is lost and will be tried again.

    Yields
    ------
    tuple
        The keys of a batch, and its result or exception.

    Examples
    --------
    >>> list(work_through(sum, [1, 2, 3], list, executor=serially, jobs=1, size=2))
    [((1, 2), 3), ((3,), 3)]
    """
    left = list(keys)
    for attempt in range(attempts):
        alone = attempt == attempts - 1
        step = 1 if alone else size
        batches = (tuple(left[i : i + step]) for i in range(0, len(left), step))
        items = ((batch, load(batch)) for batch in batches)
        again: list[Key] = []
        with closing(executor(partial(_work_on, function), items, 1 if alone else jobs)) as outcomes:
            for (batch, _), outcome in outcomes:
                if isinstance(outcome, WorkerDied | MemoryError) and not alone:
                    lost(batch, outcome)
                    again += batch
                else:
                    yield batch, outcome
        if not again:
            return
        left = again


def _work_on(function: Callable[[Item], Result], loaded: tuple[tuple[Key, ...], Item]) -> Result:
    from threadpoolctl import threadpool_limits

    # Also where `ONE_THREAD` could not be set, as in this process.
    with threadpool_limits(limits=1):
        return function(loaded[1])


def count_workers(jobs: int | None, executor: Executor | None = None) -> int:
    """Give the number of workers asked for; if None, the slots of the executor, or one per processor.

    Examples
    --------
    >>> count_workers(3)
    3
    """
    if jobs is None:
        slots: int | None = getattr(executor, "slots", None)
        if slots is not None:
            return max(1, slots)
        from joblib import cpu_count

        return int(cpu_count())
    return read_count(jobs, "jobs", 1, _most_jobs(executor))


def _most_jobs(executor: Executor | None) -> int:
    """Return the largest number of workers that may be asked for: all processes of a pool start at once."""
    if "slots" in dir(executor):  # to read it might start a session
        return 100_000
    from joblib import cpu_count

    return max(64, 16 * int(cpu_count()))


def describe_executor(executor: Executor) -> dict[str, Any]:
    """Check the workers of an executor, and describe it for ``run.json``: its name, and versions that decide digits.

    Examples
    --------
    >>> describe_executor(serially)["name"]
    'serially'
    """
    if not callable(executor):
        raise InputError(f"executor: expected a function such as unmet.execution.serially, got {executor!r:.60}.")
    check: Callable[[], dict[str, Any]] | None = getattr(executor, "check", None)
    if check is not None:
        return check()
    return {"name": getattr(executor, "__name__", type(executor).__name__), "stamp": stamp()}


def serially(
    function: Callable[[Item], Result], items: Iterable[Item], jobs: int = 1
) -> Generator[tuple[Item, Result | Exception], None, None]:
    """Work in this process, one item after the other; `jobs` is ignored.

    For debugging and for small panels. Anything that ends the process ends the run, which can be resumed.

    Examples
    --------
    >>> list(serially(lambda n: 6 // n, [2, 0]))
    [(2, 3), (0, ZeroDivisionError('...division...zero'))]
    """
    for item in items:
        outcome: Result | Exception
        try:
            outcome = function(item)
        except Exception as error:
            outcome = error
        yield item, outcome


def in_processes(
    function: Callable[[Item], Result], items: Iterable[Item], jobs: int
) -> Generator[tuple[Item, Result | Exception], None, None]:
    """Work in `jobs` processes of joblib's pool (loky), one BLAS thread each.

    When a process dies, all items under way have the outcome `WorkerDied`, and the others go on in new processes. The
    processes end with this one, even if it is killed.
    """
    with Processes(jobs) as processes:
        yield from processes(function, items, jobs)


class Processes:
    """`in_processes` for several threads: an executor with processes that all of its calls use.

    A call with one job has a process of its own: `work_through` asks for one to find out which item kills its worker.

    Parameters
    ----------
    jobs : int
        Number of processes.

    Examples
    --------
    >>> with Processes(1) as processes:
    ...     list(processes(abs, [-1, -2], 1))
    [(-1, 1), (-2, 2)]
    """

    __name__ = "in_processes"

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._lock = threading.Lock()
        self._pool: Any = None
        self._busy = self._ended = False

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._lock:
            self._ended = True
        if self._pool is not None:
            end_pool(self._pool, busy=self._busy or kind is not None)

    def __call__(
        self, function: Callable[[Item], Result], items: Iterable[Item], jobs: int
    ) -> Generator[tuple[Item, Result | Exception], None, None]:
        """Yield ``(item, result or exception)`` as the items finish: see `Executor`."""
        if jobs == 1 < self._jobs:
            yield from in_processes(function, items, 1)
            return
        remaining = iter(items)
        waiting: list[Item] = []  # taken from `items`, and not started because the pool was broken
        under_way: dict[Future[Result], Item] = {}
        try:
            while True:
                pool, broken = self._current(), False
                while not broken:
                    waiting.extend(islice(remaining, jobs - len(under_way) - len(waiting)))
                    broken = not submit_all(pool, function, waiting, under_way)
                    if not under_way and not waiting:
                        return
                    for future, outcome in finished(under_way):
                        if isinstance(outcome, BrokenProcessPool):
                            broken = True
                        else:
                            yield under_way.pop(future), outcome
                lost, under_way = list(under_way.values()), {}
                self._replace(pool)
                for item in lost:
                    yield item, WorkerDied("the worker process ended without a result")
        finally:  # closed early: start nothing more
            self._busy |= bool(under_way)
            for future in under_way:
                future.cancel()

    def _current(self) -> Any:
        with self._lock:
            if self._ended:
                raise UnmetError("The work was stopped.")
            if self._pool is None:
                self._pool = process_pool(self._jobs)
            return self._pool

    def _replace(self, broken: Any) -> None:
        """End a broken pool, unless another thread has done so."""
        with self._lock:
            if self._pool is broken:
                end_pool(broken, busy=True)
                self._pool = None


@contextmanager
def shared(executor: Executor, jobs: int) -> Iterator[Executor | None]:
    """Give an executor with the same workers that several threads may call at a time; None if there is none.

    Examples
    --------
    >>> with shared(serially, 2) as executor:
    ...     print(executor)
    None
    """
    if executor is in_processes and jobs > 1:
        with Processes(jobs) as processes:
            yield processes
    else:
        yield executor if getattr(executor, "from_threads", False) else None


def end_pool(pool: Any, *, busy: bool) -> None:
    """End the processes of a pool, whether or not they have work under way.

    Processes with work under way are ended here: if loky's manager kills them itself, it fails on an item that was
    submitted a moment ago and prints a traceback.
    """
    for process in list((pool._processes or {}).values()) if busy else []:
        process.terminate()
    pool.shutdown(wait=True, kill_workers=not busy)


def submit_all(
    pool: Any,
    function: Callable[[Item], Result],
    waiting: list[Item],
    under_way: dict[Future[Result], Item],
) -> bool:
    """Submit all waiting items; return False if the pool is broken."""
    while waiting:
        try:
            with _interrupts_held():
                future = pool.submit(function, waiting[0])
        except BrokenProcessPool:
            return False
        under_way[future] = waiting.pop(0)
    return True


def finished(under_way: Iterable[Future[Result]]) -> list[tuple[Future[Result], Result | Exception]]:
    """Give the outcomes of items that are done, after a moment's wait if there are none.

    An interrupt within `wait` can leave the lock of a future taken, for which the pool's manager then waits for ever.
    So interrupts are held meanwhile, and the wait is short.
    """
    with _interrupts_held():
        done, _ = wait(under_way, timeout=_MOMENT, return_when=FIRST_COMPLETED)
        errors = [(future, future.exception()) for future in done]
        return [(future, future.result() if error is None else _plain(error)) for future, error in errors]


def process_pool(jobs: int) -> Any:  # loky ships no types
    """Make a pool of processes that end with this one, with one thread of linear algebra each."""
    from joblib.externals.loky import ProcessPoolExecutor

    return ProcessPoolExecutor(max_workers=jobs, env=ONE_THREAD, initializer=_end_with_parent, initargs=(os.getpid(),))


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Block Ctrl-C and SIGTERM for a moment: a worker or thread started now inherits the block."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent(parent: int) -> None:
    """Make a worker end soon after its parent process has ended.

    Ctrl-C reaches every process of a terminal. Workers ignore it; the parent process ends them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


def _plain(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else WorkerDied(repr(error))
