"""Runs that follow a clock."""

from __future__ import annotations

from itertools import count

import pytest

from unmet._exceptions import InputError
from unmet.pipeline.watching import keep_current


class Clock:
    """A clock that only waiting and rounds move."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.waits: list[float] = []

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.time += seconds


def rounds(clock: Clock, lengths: list[float], errors: dict[int, Exception]) -> tuple[list[float], list[Exception]]:
    """Starts of the rounds, which take so long, and the errors reported."""
    starts: list[float] = []
    told: list[Exception] = []

    def once() -> None:
        number = len(starts)
        if number == len(lengths):
            raise KeyboardInterrupt
        starts.append(clock.time)
        clock.time += lengths[number]
        if number in errors:
            raise errors[number]

    with pytest.raises(KeyboardInterrupt):
        keep_current(once, 60.0, told.append, now=clock.now, wait=clock.wait)
    return starts, told


def test_rounds_follow_a_fixed_clock_and_a_long_one_skips_those_it_missed():
    starts, told = rounds(Clock(), [5.0, 10.0, 130.0, 1.0], {})
    assert starts == [1000.0, 1060.0, 1120.0, 1300.0]
    assert told == []


def test_a_later_error_is_reported_and_the_next_round_tries_again():
    error = InputError("half a file")
    starts, told = rounds(Clock(), [1.0, 1.0, 1.0], {1: error})
    assert len(starts) == 3
    assert told == [error]


def test_an_error_of_the_first_round_is_raised():
    def wrong() -> None:
        raise InputError("no such file")

    with pytest.raises(InputError, match="no such file"):
        keep_current(wrong, 60.0, print, wait=lambda seconds: None)


def test_a_bug_is_not_taken_for_a_passing_trouble():
    count = iter(range(3))

    def wrong() -> None:
        if next(count):
            raise TypeError("a bug")

    with pytest.raises(TypeError):
        keep_current(wrong, 60.0, print, wait=lambda seconds: None)


@pytest.mark.parametrize(("later", "expected"), [(59.999, 0.001), (-86_400.0, 60.0)])
def test_the_wait_is_never_negative_nor_longer_than_the_interval(later, expected):
    """Also if the clock reaches the next round between two looks, or was set back by a day."""
    looks, waits, rounds = iter([1000.0, 1000.0 + later]), [], count()

    def once() -> None:
        if next(rounds):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        keep_current(once, 60.0, print, now=lambda: next(looks, 2000.0), wait=waits.append)
    assert waits == [pytest.approx(expected)]
