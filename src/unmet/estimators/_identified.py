"""What of a linear Tobit model the data can tell: columns that repeat each other, and likelihoods without a maximum."""

from __future__ import annotations

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import linprog

from unmet._typing import Array, BoolArray
from unmet.likelihoods.base import Observations

__all__ = ["endless_direction", "undetermined"]

# Columns are of order one: what is smaller than this share of the rest is rounding.
_NOTHING = 1e-9


def undetermined(design: Array, back: Array, sizes: Array) -> BoolArray:
    """Coefficients that have a part in a direction along which no row changes: others can take their place.

    Parameters
    ----------
    design : array of shape (n, p)
        Columns of order one.
    back : array of shape (q, p)
        From coefficients of the design to those asked about.
    sizes : array of shape (q,)
        Sizes of the columns of those.
    """
    along = np.abs(back @ null_space(design, rcond=_NOTHING)) * sizes[:, None]
    return np.asarray(along.max(axis=1, initial=0.0) > 1e-6 * along.max(initial=1.0))


def endless_direction(design: Array, obs: Observations) -> Array | None:
    """A direction in Olsen's parameters ``(δ, γ)`` along which the likelihood grows without end; None if there is none.

    The log-likelihood is concave, so it has a maximum unless some direction worsens no row and improves one. With
    ``s`` the step along it, exact rows stay as they are only where ``xᵀδ = γy``; a bound is met better and better
    where ``xᵀδ − γ·lower`` is positive (or ``γ·upper − xᵀδ``). Within the directions that leave exact rows alone, that
    is a linear programme.

    Parameters
    ----------
    design : array of shape (n, p)
        Columns of order one.
    obs : Observations
        What is known of each row, of order one.
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
            np.eye(1, design.shape[1] + 1, design.shape[1]),  # γ itself must not fall
        ]
    )
    room = slack @ free
    # A larger γ helps by itself where there are exact rows: each of them contributes log γ.
    gain = room.sum(axis=0) if len(exact) else room[:-1].sum(axis=0)
    result = linprog(-gain, A_ub=-room, b_ub=np.zeros(len(room)), bounds=[(-1, 1)] * free.shape[1])
    if result.x is None or result.fun is None or -result.fun < 1e-6:
        return None
    return np.asarray(free @ result.x)
