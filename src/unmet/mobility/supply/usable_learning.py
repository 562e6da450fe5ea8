"""Parameters of usable supply, learnt from a system's own records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from unmet.mobility.supply.usable import Fault, Steps, log_likelihood

__all__ = ["learn_fault"]

Floats = NDArray[np.float64]

# Medians of the priors, and their standard deviations as logits or logarithms: what a bike share may be like.
_NAMES = ("breakage", "repair", "found", "brief", "recovery", "fleeting")
_CENTRE = np.array([logit(0.005), np.log(5e-4), np.log(3e-4), logit(0.03), np.log(0.05), logit(0.1)])
_SPREAD = np.array([2.0, 1.5, 1.5, 2.0, 1.0, 2.0])
_IS_RATE = np.array([False, True, True, False, True, False])


def learn_fault(steps: Steps, stray: float | None = None) -> Fault:
    unforeseen = max(np.count_nonzero(steps.disabled), 1) / steps.minutes.sum() / 2
    empty = steps.listed == 0
    if stray is None:
        stray = float((steps.pickups[empty].sum() + 1) / (steps.expected[empty].sum() + 50))
    def to_fault(free):
        values = np.where(_IS_RATE, np.exp(free), expit(free)).tolist()
        return Fault(**dict(zip(_NAMES, values, strict=True)), stray=stray, unforeseen=unforeseen)
    def objective(free: Floats) -> float:
        prior = 0.5 * float((((free - _CENTRE) / _SPREAD) ** 2).sum())
        return prior - log_likelihood(to_fault(free), steps)

    found = minimize(objective, _CENTRE, method="L-BFGS-B", options={"eps": 1e-3, "ftol": 1e-6, "maxiter": 30})
    learn_fault.calls = found.nfev
    return to_fault(found.x)
