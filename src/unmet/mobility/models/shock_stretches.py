"""EP over the shocks of a long record, in stretches of weeks that workers estimate side by side.

Shocks last for hours, so bins that are many correlation times away have no influence. Each stretch is estimated with a
margin on both sides, which is then left out. The stretches depend on the record and the law alone, never on the number
of workers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise

import numpy as np

from unmet._exceptions import NumericalError
from unmet._parameters import Parameter
from unmet._typing import Array, IntArray
from unmet.inference.ep import Sites, expectation_propagation
from unmet.inference.statespace import Filtered, StateSpace
from unmet.likelihoods.base import Observations
from unmet.likelihoods.counts import NegativeBinomial, Poisson
from unmet.spreading import Spread, in_turn

__all__ = ["Pairs", "Smoothed", "smooth_counts"]

# Movement of a site, in units of the posterior, at which EP stops: far below what matters for an interval.
_TOLERANCE, _SWEEPS = 1e-3, 15
# Least steps of a stretch (six weeks of hours), and correlation times of a margin: an influence falls to e⁻⁸ = 3e-4
# of a standard deviation at most, less than EP's tolerance.
_LEAST_STEPS, _MARGIN = 1008, 8.0


@dataclass(frozen=True)
class Pairs:
    """Pairs of places at a step, in any order; arrays of shape (n,)."""

    first: IntArray
    second: IntArray
    step: IntArray

    @cached_property
    def order(self) -> IntArray:
        """Numbers of the pairs in order of their steps."""
        return np.argsort(self.step, kind="stable")


@dataclass(frozen=True)
class Smoothed:
    """The posterior of all steps: `filtered` and `sites` as of EP in one piece, and covariances of pairs of places."""

    filtered: Filtered
    sites: Sites
    shared: Array


@dataclass(frozen=True)
class _Stretch:
    """Some steps of a `StateSpace`, with the counts and pairs there.

    `core` are the first step that counts and the one behind the last, as numbers within the stretch.
    """

    space: StateSpace
    obs: Observations
    dispersion: float
    start: Sites | None
    pairs: Pairs
    core: tuple[int, int]


def smooth_counts(
    space: StateSpace,
    obs: Observations,
    dispersion: float,
    start: Sites | None = None,
    *,
    pairs: Pairs | None = None,
    spread: Spread = in_turn,
) -> Smoothed:
    """Run EP for negative binomial counts at the rows of a state space.

    Parameters
    ----------
    space : StateSpace
        Prior of the log-rates.
    obs : Observations
        Counts at its rows.
    dispersion : float
        Of the counts; 0 for Poisson counts.
    start : Sites, optional
        Of an earlier estimate at the same rows.
    pairs : Pairs, optional
        Pairs of places whose posterior covariance is needed.
    spread : callable
        Where stretches are estimated: see `unmet.spreading`. It changes no digit.
    """
    none = np.empty(0, dtype=np.intp)
    pairs = Pairs(none, none, none) if pairs is None else pairs
    order = pairs.order
    ordered = Pairs(pairs.first[order], pairs.second[order], pairs.step[order])
    bounds = _bounds(space)
    items = [_stretch(space, obs, dispersion, start, ordered, *core) for core in pairwise(bounds)]
    parts: list[Smoothed] = spread(_smooth, [None] * len(items))(items)
    shared = np.empty(len(order))
    shared[order] = np.concatenate([part.shared for part in parts])
    tau, nu = (np.concatenate([getattr(part.sites, name) for part in parts]) for name in ("tau", "nu"))
    return Smoothed(_joined([part.filtered for part in parts]), Sites(tau, nu), shared)


def _bounds(space: StateSpace) -> list[int]:
    """First step of each stretch, and the number of steps."""
    count = max(1, round(space.steps / max(_LEAST_STEPS, 8 * _margin(space))))
    return [round(i * space.steps / count) for i in range(count + 1)]


def _margin(space: StateSpace) -> int:
    """Steps in which the slowest component forgets."""
    slowest = float(space.decay.max())
    return int(np.ceil(-_MARGIN / np.log(slowest))) if slowest > 0 else 0


def _stretch(
    space: StateSpace, obs: Observations, dispersion: float, start: Sites | None, pairs: Pairs, first: int, last: int
) -> _Stretch:
    margin = _margin(space)
    begin, end = max(first - margin, 0), min(last + margin, space.steps)
    rows = slice(*np.searchsorted(space.step, [begin, end]))
    inside = slice(*np.searchsorted(pairs.step, [first, last]))
    own = np.broadcast_to(space.own, space.step.shape)[rows]
    part = replace(
        space,
        step=space.step[rows] - begin,
        place=space.place[rows],
        offset=space.offset[rows],
        steps=end - begin,
        own=own,
    )
    return _Stretch(
        part,
        obs[rows],
        dispersion,
        None if start is None else Sites(start.tau[rows], start.nu[rows]),
        Pairs(pairs.first[inside], pairs.second[inside], pairs.step[inside] - begin),
        (first - begin, last - begin),
    )


def _smooth(_: None, stretch: _Stretch) -> Smoothed:
    """Estimate a stretch, and leave out its margins."""
    space, dispersion = stretch.space, stretch.dispersion
    likelihood = NegativeBinomial(Parameter(dispersion, fixed=True)) if dispersion > 0 else Poisson()
    run = partial(expectation_propagation, space, likelihood, stretch.obs, tol=_TOLERANCE, max_sweeps=_SWEEPS)
    try:
        ep = run(start=stretch.start)
    except NumericalError:  # sites of another law may leave no posterior under this one
        ep = run(start=None)
    found = ep.posterior
    assert isinstance(found, Filtered)
    pairs, steps = stretch.pairs, slice(*stretch.core)
    rows = slice(*np.searchsorted(space.step, stretch.core))
    kept = Filtered(
        found.mean[rows],
        found.var[rows],
        found.log_normaliser,
        everywhere=found.everywhere[:, steps],
        spread=found.spread[:, steps],
        means=found.means[steps],
        covariances=found.covariances[steps],
    )
    shared = space.covariance(found, pairs.first, pairs.second, pairs.step) if len(pairs.step) else np.empty(0)
    return Smoothed(kept, Sites(ep.sites.tau[rows], ep.sites.nu[rows]), shared)


def _joined(parts: list[Filtered]) -> Filtered:
    def along(name: str, axis: int = 0) -> Array:
        return np.concatenate([getattr(part, name) for part in parts], axis=axis)

    return Filtered(
        along("mean"),
        along("var"),
        parts[0].log_normaliser if len(parts) == 1 else np.nan,
        everywhere=along("everywhere", 1),
        spread=along("spread", 1),
        means=along("means"),
        covariances=along("covariances"),
    )
