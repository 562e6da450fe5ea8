"""Identification of a linear Tobit model: collinear columns, and likelihoods without a maximum."""

from __future__ import annotations

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import linprog

from unmet._typing import Array, BoolArray
from unmet.likelihoods.base import Observations

__all__ = ["endless_direction", "undetermined"]

# Columns are of order one. Values below this fraction of the rest are rounding errors.
_NOTHING = 1e-9


def undetermined(design: Array, back: Array, sizes: Array) -> BoolArray:
    """Return a mask of the coefficients with a part in the null space of the design: others can take their place.

    Parameters
    ----------
    design : array of shape (n, p)
        Columns of order one.
    back : array of shape (q, p)
        Map from coefficients of the design to the q coefficients in question.
    sizes : array of shape (q,)
        Sizes of the columns of the q coefficients.

    Returns
    -------
    bool array of shape (q,)
    """
    along = np.abs(back @ null_space(design, rcond=_NOTHING)) * sizes[:, None]
    return np.asarray(along.max(axis=1, initial=0.0) > 1e-6 * along.max(initial=1.0))


def endless_direction(design: Array, obs: Observations) -> Array | None:
    """Return a direction in Olsen's parameters ``(δ, γ)`` along which the likelihood grows without bound; None if none.

    The log-likelihood is concave, so it has a maximum unless some direction makes no row worse and one row better.
    Exact rows keep their likelihood along a direction only if ``xᵀδ = γy``. The likelihood of a bound grows along it
    if ``xᵀδ − γ·lower`` (or ``γ·upper − xᵀδ``) is positive. Among the directions that keep exact rows, finding one is a
    linear programme.

    Parameters
    ----------
    design : array of shape (n, p)
        Columns of order one.
    obs : Observations
        Observations of order one.

    Returns
    -------
    array of shape (p + 1,) or None

    References
    ----------
    Olsen (1978), "Note on the uniqueness of the maximum likelihood estimator for the Tobit model".
    """
    kinds = obs.kinds
    exact = np.column_stack([design[kinds.exact], -obs.lower[kinds.exact]])
    free = null_space(exact, rcond=_NOTHING) if len(exact) else np.eye(design.shape[1] + 1)
    if not free.size:
        return None
    below = np.concatenate([kinds.at_least, kinds.between])  # rows with a lower bound that is not exact
    above = np.concatenate([kinds.at_most, kinds.between])
    slack = np.vstack(
        [
            np.column_stack([design[below], -obs.lower[below]]),
            np.column_stack([-design[above], obs.upper[above]]),
            np.eye(1, design.shape[1] + 1, design.shape[1]),  # γ itself must not decrease
        ]
    )
    room = slack @ free
    # With exact rows a larger γ is a gain by itself: each of them contributes log γ.
    gain = room.sum(axis=0) if len(exact) else room[:-1].sum(axis=0)
    result = linprog(-gain, A_ub=-room, b_ub=np.zeros(len(room)), bounds=[(-1, 1)] * free.shape[1])
    if result.x is None or result.fun is None or -result.fun < 1e-6:
        return None
    return np.asarray(free @ result.x)
