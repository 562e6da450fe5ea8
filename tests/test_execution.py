"""Executors: every item comes back once, with a result or with what went wrong."""

from __future__ import annotations

import os

from unmet.execution import WorkerDied, in_processes, serially


def work(item: int) -> tuple[int, str]:
    if item == 2:
        raise ValueError("bad item")
    if item == 4:
        os._exit(1)
    return item * item, os.environ.get("OPENBLAS_NUM_THREADS", "")


def test_processes_give_back_every_item_once_also_those_whose_worker_died():
    drawn = []

    def items():
        for item in range(8):
            drawn.append(item)
            yield item

    outcomes = {}
    for item, outcome in in_processes(work, items(), 2):
        assert item not in outcomes
        outcomes[item] = outcome
        assert len(drawn) - len(outcomes) <= 2  # no more is drawn than is worked on
    assert sorted(outcomes) == list(range(8))
    assert isinstance(outcomes[4], WorkerDied)
    assert isinstance(outcomes[2], ValueError | WorkerDied)  # it may have been beside the culprit
    died = {item for item, outcome in outcomes.items() if isinstance(outcome, WorkerDied)}
    assert len(died) <= 2  # the culprit, and at most the one beside it
    for item in set(outcomes) - died - {2}:
        assert outcomes[item] == (item * item, "1")  # one BLAS thread


def test_a_pool_that_is_closed_early_draws_no_more_items():
    drawn = []

    def items():
        for item in range(100):
            drawn.append(item)
            yield 3

    outcomes = in_processes(work, items(), 1)
    assert next(outcomes)[1][0] == 9
    outcomes.close()
    assert len(drawn) == 1


def test_serial_work_keeps_the_order_and_hands_on_exceptions():
    outcomes = list(serially(work, [3, 2, 1]))
    assert [item for item, _ in outcomes] == [3, 2, 1]
    assert isinstance(outcomes[1][1], ValueError)
