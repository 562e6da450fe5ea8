"""The optimiser loop: type-II maximum likelihood, or maximum a posteriori if there are priors.

The objective is a function of ``theta`` and of a warm start, and returns the warm start for the next call.
Nothing else is kept between calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from scipy.optimize import minimize

from unmet._exceptions import InputError, NumericalError
from unmet._typing import Array, BoolArray

__all__ = ["Evaluation", "Optimizer", "Optimum", "maximise", "random_starts"]

State = TypeVar("State")

# A point with a projected gradient below this (nats per unit of log hyper-parameter) counts as an optimum.
_FLAT = 1e-2
# Step of the finite differences for curvature: small compared to the width of any peak, large compared to EP's
# tolerance.
_DIFFERENCE = 1e-3
# Scoring: largest change of a log hyper-parameter in one step, and the gain below which EP's tolerance decides.
_LONGEST_STEP, _LEAST_GAIN, _MOST_DAMPING = 2.0, 1e-3, 1e4


@dataclass(frozen=True)
class Evaluation(Generic[State]):
    """Value and gradient of the objective, and the warm start that the next evaluation may use.

    `valid` is False where the value cannot be trusted, because what computes it did not converge: the search turns back
    from there and never ends there. `information` is a positive approximation of minus the second derivatives, which
    the optimiser "scoring" needs.
    """

    value: float
    gradient: Array
    state: State
    valid: bool = True
    information: Array | None = None


@dataclass(frozen=True)
class Optimum(Generic[State]):
    """Result of a search.

    Attributes
    ----------
    theta : array
        The best point of all starts.
    value : float
        The objective at `theta`.
    state : State
        The warm start at `theta`.
    converged : bool
        Whether the best start ended at an optimum.
    message : str
        Message of the optimiser.
    evaluations : int
        Evaluations of the objective, over all starts.
    reached : tuple of float
        Value reached by each start.
    """

    theta: Array
    value: float
    state: State
    converged: bool
    message: str
    evaluations: int
    reached: tuple[float, ...]


Objective = Callable[[Array, State | None], Evaluation[State]]
Optimizer = Literal["lbfgs", "scoring", "adam"]


def maximise(
    objective: Objective[State],
    starts: Sequence[Array],
    bounds: Array,
    *,
    optimizer: Optimizer = "lbfgs",
    max_iter: int = 1000,
    learning_rate: float = 0.05,
    measure_curvature: bool = False,
    least_gain: float = 0.0,
) -> Optimum[State]:
    """Maximise `objective` from each start and return the best result.

    Parameters
    ----------
    objective : callable
        ``objective(theta, state) -> Evaluation``.
    starts : sequence of arrays
        Starting points. Points outside the bounds are moved onto them.
    bounds : array of shape (p, 2)
        Box of the search.
    optimizer : "lbfgs", "scoring" or "adam"
        Quasi-Newton with bounds (default); Fisher scoring, which takes a fraction of the evaluations where the
        objective returns its information (else quasi-Newton); or Adam with steps clipped to the box.
    max_iter : int
        Iterations per start.
    learning_rate : float
        Adam's step in log hyper-parameters.
    measure_curvature : bool
        L-BFGS: whether to spend one more evaluation per hyper-parameter on the curvature at the start, and to search in
        units in which it is one. Data determine a period to a thousandth and a variance to a half. With the same units
        for both, a search takes two to four times as many evaluations.
    least_gain : float
        L-BFGS: stop after an iteration that gains less. By default only where no digits are left.
        Scoring: stop where the next step would gain less.

    Returns
    -------
    Optimum

    Examples
    --------
    >>> def hill(theta, state):
    ...     return Evaluation(-float(theta @ theta), -2 * theta, state)
    >>> maximise(hill, [np.array([3.0])], np.array([[-5.0, 5.0]])).theta.round(6) + 0.0
    array([0.])
    """
    if optimizer not in _CLIMBS:
        raise InputError(f"optimizer must be 'lbfgs', 'scoring', 'adam' or None; got {optimizer!r}.")
    climb = _CLIMBS[optimizer]
    ends: list[tuple[_Trace[State], bool, str]] = []
    failure: NumericalError | None = None
    for start in starts:
        trace = _Trace(objective)
        try:
            converged, message = climb(
                trace,
                np.clip(start, bounds[:, 0], bounds[:, 1]),
                bounds,
                max_iter,
                _Settings(learning_rate, measure_curvature, least_gain),
            )
        except NumericalError as error:
            failure, converged, message = error, False, str(error)
        if trace.best is not None and not converged:
            converged = bool(np.abs(_projected(trace.theta, trace.best.gradient, bounds)).max(initial=0.0) < _FLAT)
        ends.append((trace, converged, message))
    trace, converged, message = max(ends, key=lambda end: end[0].value)
    if trace.best is None:  # every evaluation failed
        assert failure is not None
        raise failure
    return Optimum(
        trace.theta,
        trace.value,
        trace.best.state,
        converged,
        message,
        sum(t.evaluations for t, _, _ in ends),
        tuple(t.value for t, _, _ in ends),
    )


class _Settings(NamedTuple):
    """Settings of single optimisers."""

    learning_rate: float
    measure_curvature: bool
    least_gain: float


class _Trace(Generic[State]):
    """The objective with its current warm start, and the best point so far."""

    def __init__(self, objective: Objective[State]) -> None:
        self._objective = objective
        self._state: State | None = None
        self.best: Evaluation[State] | None = None
        self.theta: Array = np.empty(0)
        self.evaluations = 0

    @property
    def value(self) -> float:
        return -np.inf if self.best is None else self.best.value

    def __call__(self, theta: Array) -> Evaluation[State]:
        self.evaluations += 1
        evaluation = self._objective(theta, self._state)
        if not evaluation.valid:
            return self._turned_back(theta)
        if not (np.isfinite(evaluation.value) and np.isfinite(evaluation.gradient).all()):
            raise NumericalError(
                f"The evidence or its gradient is not finite at log hyper-parameters {theta.tolist()}. "
                "Set tighter bounds, or check the scale of the data."
            )
        self._state = evaluation.state
        if evaluation.value > self.value:
            self.best, self.theta = evaluation, theta.copy()
        return evaluation

    def _turned_back(self, theta: Array) -> Evaluation[State]:
        """In place of a value that cannot be trusted: a bowl that falls away from the best point seen."""
        if self.best is None:
            raise NumericalError(
                f"the evidence could not be computed at the start, log hyper-parameters {theta.tolist()}: EP did not "
                "converge there. Start elsewhere, or with a larger noise"
            )
        away = theta - self.theta
        steep = 1e3 + np.abs(self.best.gradient).sum()
        distance = float(np.sqrt(away @ away + 1e-12))
        return Evaluation(self.value - steep * distance, -steep * away / distance, self.best.state)


def _projected(theta: Array, gradient: Array, bounds: Array) -> Array:
    """Return the gradient without the components that point out of the box."""
    blocked = ((theta <= bounds[:, 0]) & (gradient < 0)) | ((theta >= bounds[:, 1]) & (gradient > 0))
    return np.where(blocked, 0.0, gradient)


def _lbfgs(trace: _Trace[Any], start: Array, bounds: Array, max_iter: int, settings: _Settings) -> tuple[bool, str]:
    unit = _units(trace, start, bounds) if settings.measure_curvature else np.ones_like(start)

    def negative(scaled: Array) -> tuple[float, Array]:
        evaluation = trace(np.clip(unit * scaled, bounds[:, 0], bounds[:, 1]))  # rounding may leave the box
        return -evaluation.value, -unit * evaluation.gradient

    ftol = 1e-10
    if settings.least_gain:  # SciPy's tolerance is relative to the value; that at the start is close enough
        ftol = max(ftol, settings.least_gain / max(abs(trace(start).value), 1.0))
    options = {"maxiter": max_iter, "maxfun": 10 * max_iter, "ftol": ftol, "gtol": 1e-4, "maxcor": 20}
    box = bounds / unit[:, None]
    result = minimize(negative, start / unit, jac=True, method="L-BFGS-B", bounds=box, options=options)  # type: ignore[call-overload]
    return bool(result.success), str(result.message)


def _units(trace: _Trace[Any], start: Array, bounds: Array) -> Array:
    """Return per coordinate the step over which the gradient changes by about one nat; at most one.

    Uses differences of the gradient towards the inside of the box. The unit is one where the objective is nearly flat
    at the start, because it may be steep elsewhere.
    """
    gradient = trace(start).gradient
    curvature = np.empty_like(start)
    for i, (value, high) in enumerate(zip(start, bounds[:, 1], strict=True)):
        step = _DIFFERENCE if value + _DIFFERENCE <= high else -_DIFFERENCE
        moved = start.copy()
        moved[i] += step
        curvature[i] = (trace(moved).gradient[i] - gradient[i]) / step
    return np.asarray(1.0 / np.sqrt(np.maximum(np.abs(curvature), 1.0)))


def _adam(trace: _Trace[Any], start: Array, bounds: Array, max_iter: int, settings: _Settings) -> tuple[bool, str]:
    """Run Adam (Kingma & Ba 2015, algorithm 1); stop when 50 steps have gained less than 1e-6 nats."""
    theta, first, second, last_gain = start, np.zeros_like(start), np.zeros_like(start), 0
    best = -np.inf
    for k in range(1, max_iter + 1):
        evaluation = trace(theta)
        if evaluation.value > best + 1e-6:
            best, last_gain = evaluation.value, k
        if k - last_gain >= 50:
            return True, f"no gain in 50 steps after {k} steps of Adam"
        gradient = _projected(theta, evaluation.gradient, bounds)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * np.square(gradient)
        step = settings.learning_rate * (first / (1 - 0.9**k)) / (np.sqrt(second / (1 - 0.999**k)) + 1e-8)
        theta = np.clip(theta + step, bounds[:, 0], bounds[:, 1])
    return False, f"{max_iter} steps of Adam, still gaining"


def _scoring(trace: _Trace[Any], start: Array, bounds: Array, max_iter: int, settings: _Settings) -> tuple[bool, str]:
    """Run Fisher scoring within the box, with Levenberg & Marquardt's damping of steps that gain less than expected."""
    now, theta, damping = trace(start), start, 0.0
    if now.information is None:
        return _lbfgs(trace, start, bounds, max_iter, settings)
    for k in range(max_iter):
        assert now.information is not None
        free = _projected(theta, now.gradient, bounds) != 0
        if _scoring_step(now, free, 0.0)[1] < max(settings.least_gain, _LEAST_GAIN):
            return True, f"little left to gain after {k} steps of scoring"
        step, _ = _scoring_step(now, free, damping)
        step = np.clip(theta + step, bounds[:, 0], bounds[:, 1]) - theta
        expected = now.gradient @ step - 0.5 * step @ now.information @ step
        there = trace(theta + step)
        gained = (there.value - now.value) / expected
        if gained > 0 and there.information is not None:
            now, theta = there, theta + step
        if gained < 0.25:
            damping = max(4.0 * damping, 0.5)
        elif gained > 0.75:
            damping = damping / 4.0 if damping > 0.01 else 0.0
        if damping > _MOST_DAMPING:
            return False, f"no step of scoring gains after {k + 1}"
    return False, f"{max_iter} steps of scoring, still gaining"


def _scoring_step(at: Evaluation[Any], free: BoolArray, damping: float) -> tuple[Array, float]:
    """Return the step of the free coordinates to the maximum of the quadratic at a point, and the gain expected."""
    assert at.information is not None
    step = np.zeros_like(at.gradient)
    curvature = at.information[np.ix_(free, free)]
    curvature = curvature + damping * np.diag(np.diag(curvature))
    step[free] = np.linalg.lstsq(curvature, at.gradient[free], rcond=1e-12)[0]
    gain = 0.5 * float(at.gradient @ step)
    return step * min(1.0, _LONGEST_STEP / max(np.abs(step).max(initial=0.0), 1e-300)), gain


def random_starts(start: Array, bounds: Array, n: int, rng: np.random.Generator) -> list[Array]:
    """Return n random starts around the first one: log-normal with a factor of e^1.5, within bounds.

    Parameters
    ----------
    start : array of shape (p,)
        The first start.
    bounds : array of shape (p, 2)
        Bounds.
    n : int
        Number of starts.
    rng : Generator
        Random generator.
    """
    return [np.clip(start + rng.normal(scale=1.5, size=start.shape), bounds[:, 0], bounds[:, 1]) for _ in range(n)]


_CLIMBS = {"lbfgs": _lbfgs, "scoring": _scoring, "adam": _adam}
