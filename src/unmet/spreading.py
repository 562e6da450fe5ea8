"""Many short calls on the same values, spread over processes of this machine.

An executor (`unmet.execution`) is for pieces of work of seconds. The search for hyper-parameters evaluates a dozen
evidences of a twentieth of a second each, some forty times. Its workers stay, and keep the values.
"""

from __future__ import annotations

import gc
import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from unmet._storage.temporary import temporary_folder
from unmet.execution import end_pool, finished, process_pool, submit_all

__all__ = ["Spread", "in_turn", "spread_over_processes"]


class Spread(Protocol):
    """The interface of a function that spreads many short calls on the same values over workers.

    ``spread(function, values)`` returns a function of one argument per value. It returns the list of
    ``function(value, argument)``, in their order. `spread_over_processes` gives one.
    """

    def __call__(self, function: Callable[[Any, Any], Any], values: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
        """Prepare the calls: the values are sent to the workers once."""
        ...


def in_turn(function: Callable[[Any, Any], Any], values: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    """Make the calls in this process, one after the other.

    Examples
    --------
    >>> in_turn(pow, [2, 3])([5, 2])
    [32, 9]
    """
    return lambda arguments: [function(value, argument) for value, argument in zip(values, arguments, strict=True)]


@contextmanager
def spread_over_processes(jobs: int) -> Iterator[Spread]:
    """Spread many short calls on the same values over processes that stay.

    The processes start with the first call. They get each value once, through a file, and keep it. If one of them dies,
    all further calls are made in this process.

    Examples
    --------
    >>> with spread_over_processes(1) as spread:
    ...     spread(pow, [2, 3])([5, 2])
    [32, 9]
    """
    if jobs == 1:
        yield in_turn
        return
    with temporary_folder() as folder:
        pool = process_pool(jobs)
        under_way: dict[Future[Any], Any] = {}

        def spread(function: Callable[[Any, Any], Any], values: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
            here = in_turn(function, values)
            stored = [_store(folder, value) for value in values]

            def call(arguments: Sequence[Any]) -> list[Any]:
                items = [(function, path, argument) for path, argument in zip(stored, arguments, strict=True)]
                found = _all_in_order(pool, items, under_way)
                return here(arguments) if found is None else found

            return call

        try:
            yield spread
        finally:
            end_pool(pool, busy=bool(under_way))


def _store(folder: Path, value: object) -> Path:
    path = folder / uuid.uuid4().hex
    path.write_bytes(pickle.dumps(value))
    return path


@lru_cache(maxsize=64)
def _read_stored(path: Path) -> Any:
    value = pickle.loads(path.read_bytes())  # written by this program, in a folder that only its user can write to
    gc.freeze()  # loky collects garbage every second, which takes 0.07 s unless modules and values are left out
    return value


def _call_stored(item: tuple[Callable[[Any, Any], Any], Path, Any]) -> Any:
    function, path, argument = item
    return function(_read_stored(path), argument)


def _all_in_order(pool: Any, items: Sequence[Any], under_way: dict[Future[Any], Any]) -> list[Any] | None:
    """Call the function of each item; None if a process died. An exception of a call is raised."""
    if not submit_all(pool, _call_stored, list(items), under_way):
        under_way.clear()
        return None
    order, outcomes = list(under_way), dict[Future[Any], Any]()
    while under_way:
        for future, outcome in finished(under_way):
            if isinstance(outcome, BrokenProcessPool):
                under_way.clear()
                return None
            outcomes[future] = outcome
            del under_way[future]
    for outcome in outcomes.values():
        if isinstance(outcome, Exception):
            raise outcome
    return [outcomes[future] for future in order]
