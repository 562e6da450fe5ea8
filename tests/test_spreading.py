"""Short calls that are spread over processes: in order, the same to the last bit, and done though a process dies."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from unmet import CensoredGP
from unmet.estimators.together import learn_together
from unmet.kernels import SquaredExponential
from unmet.spreading import in_turn, spread_over_processes


def process(value, argument):
    return value, argument, os.getpid()


def die_elsewhere(value: int, argument: str) -> int:
    if str(os.getpid()) != argument:
        os._exit(1)
    return value


def refuse(value, argument):
    if argument < 0:
        raise ValueError(f"bad argument {argument}")
    return value


def test_calls_are_made_in_other_processes_and_answered_in_order():
    with spread_over_processes(2) as spread:
        call = spread(process, "abcdef")
        first, again = call(range(6)), call(range(6, 12))
    assert [answer[:2] for answer in first + again] == list(zip("abcdef" * 2, range(12), strict=True))
    assert os.getpid() not in {answer[2] for answer in first + again}


def test_if_a_process_dies_the_calls_are_made_here():
    with spread_over_processes(2) as spread:
        assert spread(die_elsewhere, [1, 2, 3])([str(os.getpid())] * 3) == [1, 2, 3]


def test_an_exception_of_a_call_is_raised_and_later_calls_work():
    with spread_over_processes(2) as spread:
        call = spread(refuse, [1, 2])
        with pytest.raises(ValueError, match="bad argument -1"):
            call([1, -1])
        assert call([1, 1]) == [1, 2]


def test_one_job_needs_no_process():
    with spread_over_processes(1) as spread:
        assert spread is in_turn


def test_values_are_kept_in_files_only_while_they_are_needed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with spread_over_processes(2) as spread:
        spread(process, [1])
        assert len(list(tmp_path.glob("unmet-*/[0-9a-f]*"))) == 1
    assert not list(Path(tmp_path).iterdir())


def test_hyperparameters_learnt_together_are_the_same_to_the_last_bit():
    fitted = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = np.sort(rng.uniform(0, 10, 40))[:, None]
        y = rng.poisson(np.exp(1 + np.sin(x[:, 0])))
        fitted.append(CensoredGP(SquaredExponential(), likelihood="negative-binomial", optimizer=None).fit(x, y))
    here = learn_together(fitted, max_iter=5)
    with spread_over_processes(2) as spread:
        there = learn_together(fitted, max_iter=5, spread=spread)
    assert np.array_equal(here.model.theta, there.model.theta)
    assert here.likelihood_sd == there.likelihood_sd
