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
_CENTRE = np.array([logit(0.005), np.log(1 / 1440), logit(0.5), logit(0.1), logit(0.03)])
_SPREAD = np.array([2.0, 1.5, 1.5, 2.0, 1.0])


def to_fault(free: Floats) -> Fault:
    return Fault(
        float(expit(free[0])),
        float(np.exp(free[1])),
        float(expit(free[2])),
        float(expit(free[3])),
        float(expit(free[4])),
    )


def learn_fault(steps: Steps) -> Fault:
    def objective(free: Floats) -> float:
        return 0.5 * float((((free - _CENTRE) / _SPREAD) ** 2).sum()) - log_likelihood(to_fault(free), steps)

    simplex = np.vstack([_CENTRE, _CENTRE + 0.8 * np.eye(5)])
    options = {"initial_simplex": simplex, "xatol": 0.05, "fatol": 0.2, "maxfev": 300}
    found = minimize(objective, _CENTRE, method="Nelder-Mead", options=options)
    return to_fault(found.x)
