"""Executors: the rules that each must keep, and the loop with retries that all use.

To have another executor tested, add it to `EXECUTORS`.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from unmet import InputError
from unmet.engines import ENGINES, find_executor
from unmet.execution import WorkerDied, count_workers, describe_executor, in_processes, serially, shared, work_through
from unmet.mobility.demand import LatentDemand


def example(name):
    path = Path(__file__).parents[1] / "docs" / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_example", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def on_a_pool():
    """The executor of the documentation."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield example("executor").on_pool(pool)


@contextmanager
def on_dask():
    """The executor for Dask of the documentation, with two worker processes. Skipped without `distributed`."""
    distributed = pytest.importorskip("distributed")
    import dask

    settings = {"distributed.scheduler.allowed-failures": 0, "distributed.logging.distributed": "critical"}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(sys.path.append, str(Path(__file__).parent))  # workers import the functions of this file
        yield example("on_dask").on_dask(client)


EXECUTORS = {
    "serially": lambda: nullcontext(serially),
    "in_processes": lambda: nullcontext(in_processes),
    "on_pool": on_a_pool,
    "on_dask": on_dask,
}
# Executors that need a fixture.
ON_SPARK = pytest.param("on_spark", marks=[pytest.mark.slow, pytest.mark.spark])


@contextmanager
def executor_called(name, request):
    if name in EXECUTORS:
        with EXECUTORS[name]() as found:
            yield found
    else:
        yield request.getfixturevalue(name)


@pytest.fixture(scope="module", params=[*EXECUTORS, ON_SPARK])
def executor(request):
    with executor_called(request.param, request) as found:
        yield found


@pytest.fixture(params=["in_processes", "on_dask", ON_SPARK])
def robust_executor(request):
    """Executors that outlive a dead worker."""
    with executor_called(request.param, request) as found:
        yield found


def square(item: int) -> int:
    if item < 0:
        raise ValueError(f"bad item {item}")
    return item * item


def threads(item: int) -> str:
    return os.environ.get("OPENBLAS_NUM_THREADS", "")


def die_at(item: int, *, culprits: tuple[int, ...], log: Path | None = None) -> int:
    """End the process at some items; with a log, only the first time each."""
    if item in culprits and not (log is not None and (log / str(item)).exists()):
        if log is not None:
            (log / str(item)).touch()
        os._exit(1)
    return item


# ------------------------------------------------------------------ rules of every executor


def test_every_item_comes_back_once_with_its_result(executor):
    with closing(executor(square, iter(range(7)), 2)) as outcomes:
        assert sorted(outcomes) == [(i, i * i) for i in range(7)]


def test_an_exception_is_an_outcome_and_the_others_go_on(executor):
    with closing(executor(square, [1, -2, 3], 2)) as outcomes:
        found = dict(outcomes)
    assert (found[1], found[3]) == (1, 9)
    assert isinstance(found[-2], ValueError)
    assert "bad item -2" in str(found[-2])


def test_no_more_items_are_taken_than_are_under_way(executor):
    taken = []

    def items():
        for item in range(8):
            taken.append(item)
            yield item

    finished = 0
    with closing(executor(square, items(), 2)) as outcomes:
        for _ in outcomes:
            finished += 1
            assert len(taken) - finished < 2 + 1
    assert finished == 8


def test_an_executor_that_is_closed_early_takes_no_more_items(executor):
    taken = []

    def items():
        for item in range(100):
            taken.append(item)
            yield item

    outcomes = executor(square, items(), 1)
    assert next(outcomes) == (0, 0)
    outcomes.close()
    assert len(taken) == 1


def test_no_items_give_no_outcomes(executor):
    assert list(executor(square, [], 2)) == []


def test_a_worker_that_dies_is_the_outcome_of_what_was_under_way_only(robust_executor):
    outcomes = dict(robust_executor(partial(die_at, culprits=(4,)), iter(range(8)), 2))
    assert sorted(outcomes) == list(range(8))
    died = {item for item, outcome in outcomes.items() if isinstance(outcome, WorkerDied)}
    assert 4 in died
    assert len(died) <= 2  # the culprit, and at most the item beside it
    assert all(outcomes[item] == item for item in set(outcomes) - died)


def both(item: int, *, meeting: Path) -> bool:
    """Wait until another item is under way."""
    (meeting / str(item)).touch()
    while len(list(meeting.iterdir())) < 2:
        pass
    return True


def test_calls_of_several_threads_share_the_processes(tmp_path):
    with shared(in_processes, 2) as stream, ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(list, stream(partial(both, meeting=tmp_path), [i], 2)) for i in range(2)]
        assert [call.result(60) for call in calls] == [[(0, True)], [(1, True)]]
        calls = [threads.submit(dict, stream(partial(die_at, culprits=(4,)), range(8), 2)) for _ in range(2)]
        for outcomes in (call.result(60) for call in calls):
            died = {item for item, outcome in outcomes.items() if isinstance(outcome, WorkerDied)}
            assert sorted(outcomes) == list(range(8))
            assert 4 in died
            assert len(died) <= 4  # the culprits of both, and the item beside each


def test_in_a_shared_pool_only_the_culprit_is_given_up(tmp_path):
    """The last attempt has a process of its own, whatever else is under way."""
    with shared(in_processes, 2) as stream, ThreadPoolExecutor(2) as threads:
        work = partial(die_at, culprits=(4,))
        calls = [
            threads.submit(dict, work_through(work, keys, first, executor=stream, jobs=2))
            for keys in (range(8), range(10, 18))
        ]
        outcomes = {key: outcome for call in calls for key, outcome in call.result(60).items()}
    assert isinstance(outcomes.pop((4,)), WorkerDied)
    assert outcomes == {(i,): i for i in [*range(8), *range(10, 18)] if i != 4}


def test_processes_have_one_thread_of_linear_algebra_each():
    assert dict(in_processes(threads, [1, 2], 2)) == {1: "1", 2: "1"}


# ------------------------------------------------------------------ the loop with retries


def first(keys):
    return keys[0]


def test_keys_are_worked_through_in_batches(executor):
    with closing(work_through(sum, [1, 2, 3, 4, 5], list, executor=executor, jobs=2, size=2)) as batches:
        assert sorted(batches) == [((1, 2), 3), ((3, 4), 7), ((5,), 5)]


def test_a_key_whose_worker_dies_once_is_done_at_the_second_try(robust_executor, tmp_path):
    lost = []
    work = partial(die_at, culprits=(2,), log=tmp_path)
    options = {"executor": robust_executor, "jobs": 2, "lost": lambda keys, error: lost.append((keys, type(error)))}
    with closing(work_through(work, range(5), first, **options)) as batches:
        assert sorted(batches) == [((i,), i) for i in range(5)]
    assert ((2,), WorkerDied) in lost


def losing(function, items, jobs, calls):
    """An executor that loses batches with 2 in them, and with several jobs those with 1 as well."""
    for item in items:
        calls.append((item[0], jobs))
        if 2 in item[0] or (1 in item[0] and jobs > 1):
            yield item, MemoryError("full")
        else:
            yield item, function(item)


@pytest.mark.parametrize(("attempts", "tries"), [(2, 2), (3, 3)])
def test_the_last_attempt_is_one_key_at_a_time_and_what_fails_then_is_to_blame(attempts, tries):
    calls = []
    executor = partial(losing, calls=calls)
    done = dict(work_through(sum, [0, 1, 2, 3], list, executor=executor, jobs=2, size=2, attempts=attempts))
    assert {keys: outcome for keys, outcome in done.items() if 2 not in keys} == {(0,): 0, (1,): 1, (3,): 3}
    assert isinstance(done[2,], MemoryError)
    assert [jobs for keys, jobs in calls if 2 in keys] == [2] * (tries - 1) + [1]
    assert [keys for keys, jobs in calls if jobs == 1] == [(0,), (1,), (2,), (3,)]


def test_an_exception_of_the_work_is_not_tried_again():
    calls = []

    def work(item):
        calls.append(item)
        raise ValueError("no")

    ((keys, outcome),) = work_through(work, [1], first, executor=serially, jobs=1)
    assert keys == (1,)
    assert isinstance(outcome, ValueError)
    assert calls == [1]


def test_closing_the_loop_closes_the_executor():
    closed = []

    def executor(function, items, jobs):
        try:
            for item in items:
                yield item, function(item)
        finally:
            closed.append(True)

    batches = work_through(square, [1, 2, 3], first, executor=executor, jobs=1)
    next(batches)
    batches.close()
    assert closed == [True]


# ------------------------------------------------------------------ names


def test_engines_are_found_by_name_and_executors_are_passed_on():
    assert {name: find_executor(name) for name in ENGINES} == {"processes": in_processes, "serial": serially}
    assert find_executor(first) is first
    with pytest.raises(InputError, match="expected one of processes, serial, or a Spark cluster as spark://host:port"):
        find_executor("magic")


def test_an_executor_is_described_with_the_versions_that_decide_digits():
    described = describe_executor(in_processes)
    assert described["name"] == "in_processes"
    assert described["stamp"]["NumPy"] == np.__version__
    assert described["stamp"]["BLAS"]


def test_the_default_number_of_workers_is_what_the_executor_has():
    assert count_workers(None, SimpleNamespace(slots=7)) == 7
    assert count_workers(3, SimpleNamespace(slots=7)) == 3


def test_a_number_of_workers_is_at_least_one_and_one_per_processor_by_default():
    assert count_workers(None) >= 1
    with pytest.raises(InputError, match="jobs: expected a whole number from 1 to"):
        count_workers(0)
    with pytest.raises(InputError, match="from 1 to"):  # each is a process
        count_workers(1_000_000)
    assert count_workers(5_000, SimpleNamespace(slots=7)) == 5_000
    for jobs in (2.5, "2", [2]):
        with pytest.raises(InputError, match="jobs: expected a whole number from 1 to"):
            count_workers(jobs)


def test_what_is_no_executor_is_refused():
    with pytest.raises(InputError, match=r"executor: expected a function such as .*serially, got 5"):
        describe_executor(5)


class Cluster:
    """More workers than processes of this machine may be asked for; to count them starts a session."""

    slots = property(lambda self: pytest.fail("a session was started"))

    def __call__(self, function, items, jobs):
        assert jobs == 5_000
        yield from serially(function, items)


def test_a_run_on_a_cluster_may_ask_for_more_workers_than_processes_of_this_machine():
    assert count_workers(5_000, Cluster()) == 5_000
    start = pd.date_range("2024-01-01", periods=336, freq="h", tz="UTC")
    panel = pd.DataFrame({"zone": "a", "start": start, "start_local": start.tz_localize(None), "minutes": 60})
    panel = panel.assign(observed=2, stockout_minutes=0, closed_minutes=0, unknown_minutes=0, available_minutes=60)
    panel = panel.assign(exposure=1.0, censored=False)
    result = LatentDemand("weekly-mean").fit(panel, executor=Cluster(), jobs=5_000)
    assert result.zones["status"].tolist() == ["ok"]
