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
_NAMES = ("breakage", "repair", "found", "unforeseen", "visit", "fleeting", "stray")
_CENTRE = np.array([logit(0.005), np.log(5e-4), np.log(3e-4), np.log(1e-4), 0.0, logit(0.1), logit(0.03)])
_SPREAD = np.array([2.0, 2.0, 2.0, 2.0, 1.5, 2.0, 1.0])
_IS_RATE = np.array([False, True, True, True, False, False, False])


def to_fault(free: Floats) -> Fault:
    return Fault(**dict(zip(_NAMES, np.where(_IS_RATE, np.exp(free), expit(free)).tolist(), strict=True)))


def learn_fault(steps: Steps) -> Fault:
    minutes, disabled = steps.minutes.sum(), np.count_nonzero(steps.disabled)

    def objective(free: Floats) -> float:
        fault = to_fault(free)
        # What `log_likelihood` leaves out of the vehicles that turned disabled.
        turned = disabled * free[3] - fault.unforeseen * minutes
        prior = 0.5 * float((((free - _CENTRE) / _SPREAD) ** 2).sum())
        return prior - turned - log_likelihood(fault, steps)

    found = minimize(objective, _CENTRE, method="L-BFGS-B", options={"eps": 1e-3, "ftol": 1e-7, "maxiter": 40})
    learn_fault.calls = found.nfev
    return to_fault(found.x)
