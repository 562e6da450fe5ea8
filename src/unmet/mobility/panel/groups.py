"""Groups of zones: the parts of a panel that belong to single zones are done group by group, on any executor.

Rows, reasons, summary and quality do not depend on the groups: see `unmet.mobility.supply.served` for the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from unmet._exceptions import InputError, UnmetError
from unmet._numbers import read_count
from unmet.execution import Executor, WorkerDied, describe_executor, serially, work_through
from unmet.mobility.clock.bins import Integers

__all__ = ["Workers", "ZoneGroups", "make_groups"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_RECORDS = 1_000_000  # of a group: some seconds of work, as much as it takes to start a worker process
_MOST = 1_000_000  # groups, at once or in all
_PER_WORKER = 4  # groups: the last ones to finish keep few workers waiting


@dataclass(frozen=True)
class Workers:
    """Where a panel is built.

    Attributes
    ----------
    executor : Executor
        Runs the groups: see `unmet.execution`.
    jobs : int
        Number of groups under way at a time. With 1, or in this process, there is one group unless `groups` is given.
    groups : int, optional
        Number of groups. Default: one per million records, and at most four per worker.
    """

    executor: Executor = serially
    jobs: int = 1
    groups: int | None = None

    def __post_init__(self) -> None:
        if not callable(self.executor):
            raise InputError(f"executor: expected a function as of unmet.execution, got {self.executor!r:.60}.")
        read_count(self.jobs, "jobs", 1, _MOST)
        if self.groups is not None:
            read_count(self.groups, "groups", 1, _MOST)


@dataclass(frozen=True)
class ZoneGroups:
    """Consecutive zones in groups.

    Attributes
    ----------
    workers : Workers
        Where they are worked on.
    zones, stations : array
        Edges of the groups: numbers of zones, and positions of stations in the order of zones. Stations in no zone
        belong to the last group.
    """

    workers: Workers
    zones: Integers
    stations: Integers

    def __len__(self) -> int:
        return len(self.zones) - 1

    def zones_of(self, number: int) -> tuple[int, int]:
        """Return the first zone of a group, and the one behind its last."""
        return int(self.zones[number]), int(self.zones[number + 1])

    def stations_of(self, number: int) -> tuple[int, int]:
        """Return the position of the first station of a group, and the one behind its last."""
        return int(self.stations[number]), int(self.stations[number + 1])

    def each(self, function: Callable[[Item], Result], load: Callable[[int], Item]) -> Iterator[tuple[int, Result]]:
        """Call a function on all groups; yield number and result of each as it finishes, in any order.

        Parameters
        ----------
        function : callable
            Called with the item of a group. It can be pickled.
        load : callable
            From the number of a group to its item.
        """
        work = work_through(
            function,
            range(len(self)),
            lambda numbers: load(numbers[0]),
            executor=self.workers.executor,
            jobs=self.workers.jobs,
        )
        with closing(work):
            for (number,), outcome in work:
                if isinstance(outcome, WorkerDied):
                    raise UnmetError(
                        f"A worker ended twice without a result while the panel was built ({outcome}). It may need "
                        "more memory: use fewer processes (--jobs)."
                    ) from outcome
                if isinstance(outcome, Exception):
                    raise outcome
                yield number, outcome


def make_groups(workers: Workers, zones: int, group: Integers, records: NDArray[np.int64]) -> ZoneGroups:
    """Cut zones into groups of about as many records.

    Parameters
    ----------
    workers : Workers
        Where they are worked on. Unfit ones raise `unmet.execution.UnfitWorker`.
    zones : int
        Number of zones.
    group : array
        Zone of each station, ascending; `zones` and more for stations in no zone.
    records : array
        Number of records of each station.

    Examples
    --------
    >>> groups = make_groups(Workers(groups=2), 3, np.array([0, 0, 1, 2]), np.array([5, 5, 2, 8]))
    >>> groups.zones.tolist(), groups.stations.tolist()
    ([0, 2, 3], [0, 3, 4])
    """
    count = workers.groups
    if count is None:
        alone = workers.jobs == 1 or workers.executor is serially
        count = 1 if alone else min(int(records.sum()) // _RECORDS, _PER_WORKER * workers.jobs)
    count = max(1, min(count, zones))
    weight = 1 + np.bincount(np.minimum(group, zones), records, zones + 1)[:zones]
    ends = np.searchsorted(np.cumsum(weight), weight.sum() * np.arange(1, count) / count) + 1
    edges = np.unique([0, *(ends if count < zones else range(zones)), zones])
    if len(edges) > 2:
        describe_executor(workers.executor)
    return ZoneGroups(workers, edges, np.append(np.searchsorted(group, edges[:-1]), len(group)))
