"""The worth of listed vehicles where looks are far apart: falls that two looks show, over those to expect.

Falls are forecast one look ahead, from the number listed, the rates of riders and, by the model, the distribution of
the number broken given all looks so far. So a curve near 1 says that the model is right about records it has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import Integers
from unmet.mobility.supply.between_broken import (
    STATES,
    STRETCH,
    Breaking,
    Looks,
    rider_transitions,
    sound_moves,
    states_ahead,
)
from unmet.mobility.supply.bridge import FLEETING
from unmet.mobility.supply.timeline import AMPLE
from unmet.mobility.supply.usable_learning import CORRECTED, NUMBERS, correct, lean_to_one

__all__ = ["Worth", "find_worth"]

Floats = NDArray[np.float64]

_MOST = 60_000  # intervals
_LEAN = 100.0  # expected falls that weigh as much as the belief that rates are right
_SOUND = Breaking(0.0, 1e-3)  # nothing breaks


@dataclass(frozen=True)
class Worth:
    """Falls over those expected, by number listed at the first look; shape (AMPLE,), and 0 for none.

    Attributes
    ----------
    listed : array
        If every listed vehicle can be rented.
    usable : array
        By the model. The correction is learnt on one half of the records and judged on the other.
    correction : array
        Factor of the model's chance to be served: short-lived causes that it leaves out.
    """

    listed: Floats
    usable: Floats
    correction: Floats

    def corrected(self, chance: Floats, first: Integers, second: Integers) -> Floats:
        """Return the chance to be served between two looks at which so many are listed, with the correction."""
        factor = np.append(self.correction, 1.0)
        before, after = (factor[np.minimum(number, AMPLE)] for number in (first, second))
        result: Floats = np.minimum(chance * 0.5 * (before + after), 1.0)
        return result

    def summary(self) -> dict[str, dict[str, float]]:
        """Return the curves, for the summary of a panel."""
        curves = {"curve_listed": self.listed, "curve_usable": self.usable, "correction": self.correction}
        return {name: {str(n): round(float(values[n]), 4) for n in NUMBERS} for name, values in curves.items()}


def find_worth(looks: Looks, breaking: Breaking | None, rebalancing: int) -> Worth:
    """Find the worth of listed vehicles, or of free docks, from intervals in which no van came.

    Parameters
    ----------
    looks : Looks
        The intervals.
    breaking : Breaking, optional
        How vehicles break, if any do.
    rebalancing : int
        Vehicles at once that a van moves. Changes so large are left out, of what is expected as well.
    """
    model = _SOUND if breaking is None else breaking
    few = np.flatnonzero((looks.first > 0) & (looks.first < AMPLE) & ~looks.van)
    few = few[np.linspace(0, len(few) - 1, min(_MOST, len(few))).astype(np.int64)]
    chosen = looks.select(few)
    ahead = np.eye(STATES)[[0]] if breaking is None else states_ahead(looks, breaking)[few]
    # A last vehicle cannot always be had: `FLEETING` is in the time without one, but not in the process of riders.
    had = np.where(chosen.first[:, None] - np.arange(STATES) == 1, 1.0 - FLEETING, 1.0)
    seen = np.maximum(chosen.first - chosen.second, 0)
    usable = (_expected_falls(chosen, model, rebalancing) * had * ahead).sum(axis=1)
    listed = _expected_falls(chosen, _SOUND, rebalancing)[:, 0]
    listed, usable = (values * _demand(chosen.first, seen, values) for values in (listed, usable))
    pickups, expected = (np.bincount(chosen.first, values, AMPLE).astype(float) for values in (seen, listed))
    correction, after = correct(chosen.first, few // STRETCH % 2, seen, usable)
    return Worth(lean_to_one(pickups, expected), after, correction)


def _demand(listed: Integers, falls: Integers, expected: Floats) -> float:
    """Falls over those expected where enough vehicles are listed: there it is an error of the rates."""
    enough = listed > CORRECTED
    return float((falls[enough].sum() + _LEAN) / (expected[enough].sum() + _LEAN))


def _expected_falls(looks: Looks, breaking: Breaking, rebalancing: int) -> Floats:
    """Falls expected in each interval in which no van came, by the number broken at its first look."""
    total, falls = np.zeros((2, len(looks.minutes), STATES))
    for second in range(AMPLE - 1 + rebalancing):
        then = np.full(len(looks.minutes), second)
        chance = rider_transitions(looks, sound_moves(replace(looks, second=then)), breaking).sum(axis=2)
        chance[np.abs(looks.first - second) >= rebalancing] = 0.0
        total += chance
        falls += np.maximum(looks.first - second, 0)[:, None] * chance
    return falls / np.maximum(total, 1e-300)  # of no chance: more broken than are listed
