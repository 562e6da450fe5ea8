"""The optimiser loop, on hills whose tops are known."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from unmet import InputError, NumericalError
from unmet.evidence import Evaluation, maximise, random_starts

BOX = np.array([[-5.0, 5.0], [-5.0, 5.0]])


def hill(theta: np.ndarray, state: object) -> Evaluation[object]:
    """A stretched bowl with its top at (1, −2)."""
    away = theta - [1.0, -2.0]
    scale = np.array([1.0, 30.0])
    return Evaluation(float(-(scale * away) @ away), -2 * scale * away, state, information=np.diag(2 * scale))


def two_hills(theta: np.ndarray, state: object) -> Evaluation[object]:
    """Tops near −3 (the higher) and 3."""
    x = theta[0]
    a, b = np.exp(-((x + 3) ** 2)), 0.5 * np.exp(-((x - 3) ** 2))
    return Evaluation(float(a + b), np.array([-2 * (x + 3) * a - 2 * (x - 3) * b]), state)


@pytest.mark.parametrize("optimizer", ["lbfgs", "scoring", "adam"])
def test_the_top_is_found(optimizer: str) -> None:
    found = maximise(hill, [np.array([4.0, 4.0])], BOX, optimizer=optimizer)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.theta, [1.0, -2.0], atol=1e-2)
    assert found.value == pytest.approx(0.0, abs=1e-4)
    assert found.converged
    assert found.evaluations > 1
    assert found.reached == (found.value,)


@pytest.mark.parametrize("optimizer", ["lbfgs", "scoring", "adam"])
def test_a_top_outside_the_box_is_sought_at_its_wall(optimizer: str) -> None:
    box = np.array([[2.0, 5.0], [-5.0, 5.0]])
    found = maximise(hill, [np.array([4.0, 4.0])], box, optimizer=optimizer)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.theta, [2.0, -2.0], atol=1e-2)
    assert found.converged


def test_a_start_outside_the_box_is_moved_onto_it() -> None:
    seen = []

    def watched(theta: np.ndarray, state: object) -> Evaluation[object]:
        seen.append(theta.copy())
        return hill(theta, state)

    maximise(watched, [np.array([9.0, 9.0])], BOX)
    assert (np.abs(seen) <= 5.0).all()


def test_the_best_of_several_starts_is_kept_and_each_is_told() -> None:
    found = maximise(two_hills, [np.array([2.5]), np.array([-2.5])], np.array([[-6.0, 6.0]]))
    assert found.theta[0] == pytest.approx(-3.0, abs=1e-3)
    assert found.reached == pytest.approx((0.5, 1.0), abs=1e-6)


@pytest.mark.parametrize("optimizer", ["lbfgs", "scoring", "adam"])
def test_stopping_early_is_reported(optimizer: str) -> None:
    found = maximise(hill, [np.array([4.0, 4.0])], BOX, optimizer=optimizer, max_iter=1)  # type: ignore[arg-type]
    assert not found.converged
    assert found.message


def test_the_warm_start_of_each_evaluation_is_that_of_the_one_before() -> None:
    handed = []

    def counted(theta: np.ndarray, state: int | None) -> Evaluation[int]:
        handed.append(state)
        return Evaluation(hill(theta, None).value, hill(theta, None).gradient, len(handed))

    found = maximise(counted, [np.array([4.0, 4.0]), np.array([0.0, 0.0])], BOX)
    again = handed.index(None, 1)  # the second start knows nothing of the first
    assert handed[:again] == [None, *range(1, again)]
    assert handed[again:] == [None, *range(again + 1, len(handed))]
    assert isinstance(found.state, int)


def test_a_failure_on_the_way_keeps_the_best_so_far_and_says_why() -> None:
    def breaks(theta: np.ndarray, state: object) -> Evaluation[object]:
        if theta[1] < 1.0:
            raise NumericalError("the ground gave way")
        return hill(theta, state)

    found = maximise(breaks, [np.array([4.0, 4.0])], BOX)
    assert not found.converged
    assert "gave way" in found.message
    assert np.isfinite(found.value)


def test_a_failure_at_the_start_is_raised() -> None:
    def broken(theta: np.ndarray, state: object) -> Evaluation[object]:
        raise NumericalError("the ground gave way")

    with pytest.raises(NumericalError, match="gave way"):
        maximise(broken, [np.zeros(2)], BOX)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_no_number_is_a_failure_and_never_the_best(bad: float) -> None:
    def holed(theta: np.ndarray, state: object) -> Evaluation[object]:
        return Evaluation(bad, np.zeros(2), state) if theta[0] < 3.0 else hill(theta, state)

    found = maximise(holed, [np.array([4.0, -2.0])], BOX)
    assert "not finite" in found.message
    assert not found.converged
    assert found.theta[0] >= 3.0


def test_a_failure_of_one_start_leaves_the_others() -> None:
    def partly(theta: np.ndarray, state: object) -> Evaluation[object]:
        if theta[0] > 3.0:
            raise NumericalError("the ground gave way")
        return hill(theta, state)

    found = maximise(partly, [np.array([0.0, 0.0]), np.array([4.0, 4.0])], BOX)
    np.testing.assert_allclose(found.theta, [1.0, -2.0], atol=1e-3)
    assert found.reached[1] == -np.inf


def test_an_unknown_optimiser_is_refused() -> None:
    with pytest.raises(InputError, match="'lbfgs', 'scoring', 'adam' or None; got 'bfgs'"):
        maximise(hill, [np.zeros(2)], BOX, optimizer="bfgs")  # type: ignore[arg-type]


def test_random_starts_keep_to_the_box_and_follow_their_seed() -> None:
    first = random_starts(np.zeros(2), BOX, 50, np.random.default_rng(0))
    again = random_starts(np.zeros(2), BOX, 50, np.random.default_rng(0))
    np.testing.assert_array_equal(first, again)
    assert (np.abs(first) <= 5.0).all()
    assert np.std(first) > 1.0
    assert random_starts(np.zeros(2), BOX, 0, np.random.default_rng(0)) == []


def ravine(theta: np.ndarray, state: object) -> Evaluation[object]:
    """As evidence is by a period and a variance: known to a thousandth in one direction, to a half in the other."""
    away = theta - [1.0, -2.0]
    tilt = np.array([[1e6, 300.0], [300.0, 4.0]])
    pull = np.tanh(away[1]) / 10
    value = -0.5 * away @ tilt @ away - np.log(np.cosh(away[1])) / 10
    return Evaluation(float(value), -tilt @ away - np.array([0.0, pull]), state)


def test_in_units_of_the_curvature_a_ravine_takes_fewer_evaluations_to_the_same_bottom() -> None:
    start = [np.array([1.02, 1.5])]
    plain = maximise(ravine, start, BOX)
    scaled = maximise(ravine, start, BOX, measure_curvature=True)
    np.testing.assert_allclose(scaled.theta, [1.0, -2.0], atol=1e-4)
    assert scaled.value >= plain.value - 1e-8
    assert scaled.evaluations < plain.evaluations


def test_curvature_is_measured_inside_the_box_even_at_its_corner() -> None:
    seen = []

    def watched(theta: np.ndarray, state: object) -> Evaluation[object]:
        seen.append(theta.copy())
        return hill(theta, state)

    found = maximise(watched, [np.array([5.0, 5.0])], BOX, measure_curvature=True)
    assert (np.abs(seen) <= 5.0).all()
    np.testing.assert_allclose(found.theta, [1.0, -2.0], atol=1e-4)


def test_a_search_that_may_end_with_a_small_gain_is_shorter_and_ends_near_the_top():
    def valley(theta, state):
        x, y = theta
        value = -1000 - 100 * (y - x**2) ** 2 - (1 - x) ** 2  # Rosenbrock's, upside down
        return Evaluation(value, np.array([400 * x * (y - x**2) + 2 * (1 - x), -200 * (y - x**2)]), state)

    bounds = np.array([[-5.0, 5.0], [-5.0, 5.0]])
    exact, soon = (maximise(valley, [np.array([-1.2, 1.0])], bounds, least_gain=gain) for gain in (0.0, 0.05))
    assert soon.evaluations < exact.evaluations
    assert exact.value == pytest.approx(-1000, abs=1e-6)
    assert -1005 < soon.value <= exact.value


def curved_valley(theta: np.ndarray, state: object, *, information: float = 1.0) -> Evaluation[object]:
    """Rosenbrock's valley upside down, with the information of Gauss and Newton times a factor."""
    x, y = theta
    gradient = np.array([400 * x * (y - x**2) + 2 * (1 - x), -200 * (y - x**2)])
    jacobian = np.array([[-20 * x, 10.0], [1.0, 0.0]])
    value = -100 * (y - x**2) ** 2 - (1 - x) ** 2
    return Evaluation(float(value), gradient, state, information=2 * information * jacobian.T @ jacobian)


@pytest.mark.parametrize("information", [1.0, 0.2, 4.0])
def test_scoring_climbs_with_information_that_is_only_roughly_right(information: float) -> None:
    found = maximise(
        partial(curved_valley, information=information), [np.array([-1.2, 1.0])], BOX, optimizer="scoring", max_iter=200
    )
    assert found.converged
    assert found.value == pytest.approx(0.0, abs=5e-3)


def test_scoring_takes_fewer_evaluations() -> None:
    few, many = (maximise(hill, [np.array([4.0, 4.0])], BOX, optimizer=o) for o in ("scoring", "lbfgs"))
    assert few.evaluations < many.evaluations


def test_without_information_scoring_is_quasi_newton() -> None:
    def bare(theta: np.ndarray, state: object) -> Evaluation[object]:
        return replace(hill(theta, state), information=None)

    found, same = (maximise(bare, [np.array([4.0, 4.0])], BOX, optimizer=o) for o in ("scoring", "lbfgs"))
    np.testing.assert_array_equal(found.theta, same.theta)


def test_scoring_turns_back_from_values_that_cannot_be_trusted() -> None:
    def holed(theta: np.ndarray, state: object) -> Evaluation[object]:
        return replace(hill(theta, state), valid=theta[0] > 1.5)

    found = maximise(holed, [np.array([4.0, 4.0])], BOX, optimizer="scoring")
    assert found.theta[0] > 1.5
    assert not found.converged
    assert found.value > hill(np.array([4.0, 4.0]), None).value


def test_scoring_ends_where_nothing_is_gained_although_the_gradient_says_so() -> None:
    def lying(theta: np.ndarray, state: object) -> Evaluation[object]:
        return Evaluation(0.0, np.ones(2), state, information=np.eye(2))

    found = maximise(lying, [np.zeros(2)], BOX, optimizer="scoring")
    assert not found.converged
    assert "no step" in found.message
