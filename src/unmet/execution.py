"""Where work is done: in this process, in worker processes, or on another engine.

An executor is any callable of the form of `Executor`: it takes a function, work items and a number of workers, and
yields ``(item, outcome)`` as the items finish, in any order. The outcome is what the function returned, or the
exception that kept it from returning; an executor raises nothing for the sake of one item, not even when the process
that worked on it died. It is a generator, closed early where the run must stop, and it draws items from the iterable
only as it needs them: each holds the rows of its zones.

Everything that `unmet.mobility.runs` hands over can be pickled, does not look at files and depends on nothing but the
item, so that another engine can take the place of joblib's processes without a change to model code. On Dask::

    def on_dask(function, items, jobs):
        client, running = get_client(), as_completed()
        items = iter(items)
        for item in islice(items, jobs):
            ...                                            # keep at most `jobs` under way
        for future in running:
            yield item_of[future], future.exception() or future.result()

and on Spark, per batch of items: ``sc.parallelize(batch, len(batch)).map(guarded(function)).collect()``.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol, TypeVar

__all__ = ["Executor", "WorkerDied", "in_processes", "serially"]

Item = TypeVar("Item")
Result = TypeVar("Result")

# One thread of linear algebra per process: several pools on one machine fight, and the order in which threads add
# up would show in the last digits.
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR")}


class WorkerDied(Exception):
    """A worker process ended while this item was among those under way; it need not be the one to blame."""


class Executor(Protocol):
    """What `run_estimates` asks of an engine: see the head of this module."""

    def __call__(
        self, function: Callable[[Item], Result], items: Iterable[Item], jobs: int
    ) -> Generator[tuple[Item, Result | Exception], None, None]:
        """Yield ``(item, result or exception)`` as the items finish."""
        ...


def serially(
    function: Callable[[Item], Result], items: Iterable[Item], jobs: int = 1
) -> Generator[tuple[Item, Result | Exception], None, None]:
    """Work in this process, one item after the other; `jobs` is not looked at.

    For debugging and for small panels. What kills the process kills the run (which can be continued).

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

    At most `jobs` items are under way at a time, so that few are suspect when a process dies: their outcome is
    `WorkerDied`, and the others go on in fresh processes. The processes end with this one, even if it is killed.
    """
    remaining = iter(items)
    waiting: list[Item] = []  # drawn, and not begun because the pool was found broken
    while True:
        pool = _pool(jobs)
        under_way: dict[Future[Result], Item] = {}
        try:
            broken = False
            while not broken:
                waiting.extend(islice(remaining, jobs - len(under_way) - len(waiting)))
                broken = not _submit_all(pool, function, waiting, under_way)
                if not under_way and not waiting:
                    return
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    error = future.exception()
                    if isinstance(error, BrokenProcessPool):
                        broken = True
                    else:
                        yield under_way.pop(future), future.result() if error is None else _plain(error)
            for item in under_way.values():
                yield item, WorkerDied("the process that worked on it ended without a word")
        finally:
            # Where work is under way its processes are ended first: told to kill them itself, loky's manager stumbles
            # over an item that it was handed a moment ago, and prints a traceback.
            for process in list((pool._processes or {}).values()) if under_way else []:
                process.terminate()
            pool.shutdown(wait=True, kill_workers=not under_way)


def _submit_all(
    pool: Any,
    function: Callable[[Item], Result],
    waiting: list[Item],
    under_way: dict[Future[Result], Item],
) -> bool:
    """Move what waits into the pool; False where it turns out to be broken."""
    while waiting:
        try:
            with _interrupts_held():
                future = pool.submit(function, waiting[0])
        except BrokenProcessPool:
            return False
        under_way[future] = waiting.pop(0)
    return True


def _pool(jobs: int) -> Any:  # loky ships no types
    from joblib.externals.loky import ProcessPoolExecutor

    return ProcessPoolExecutor(max_workers=jobs, env=ONE_THREAD, initializer=_end_with_parent, initargs=(os.getpid(),))


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back for a moment: a worker that starts now inherits that, until it knows what to do with one."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent(parent: int) -> None:
    """In a worker: end soon after the run's process has, so that none is left to compute for nobody.

    Ctrl-C reaches every process of a terminal. Workers leave it to the run's process, which ends them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


def _plain(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else WorkerDied(repr(error))
