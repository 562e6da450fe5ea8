"""How much of what moves a bin's count lasts through the bin: learnt from its first and second half.

Riders who come in groups spread counts, and say nothing of those who come later; a fine afternoon lasts. The two halves
of a bin tell them apart. Given how many came in all, rates and shocks no longer matter: if everything lasts, each rider
came in the first half by the same chance. If each half has a gamma factor of its own, the split is beta-binomial.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import beta, norm

from unmet._typing import Array, IntArray

__all__ = ["USUAL_LASTING", "learn_lasting", "split_spread"]

USUAL_LASTING = 0.25
"""Part that lasts, where records tell nothing: the mean of the prior.

In Jersey City, the first ten minutes of hours agree with it (`benchmarks/check_first_minutes.py`).
"""
_PRIOR = beta(1, 3)  # of that mean
_FULL = 0.999  # share of a bin with something to rent: others hide a part of a half
_GRID = (np.arange(200) + 0.5) / 200


def split_spread(early: Array, observed: Array, cell: IntArray) -> tuple[float, float]:
    """Return the dispersion of a whole bin that comes from factors of its halves, and its standard error.

    Two riders of a bin came in the same half more often than two of different bins of the same cell, by ``2pq ρ`` for a
    chance p of the first half, q = 1 − p, and a correlation ρ of a bin's riders. Factors of the halves of variance ν
    have ``ρ = ν / (2 + ν)`` and give the bin a dispersion of ``ν / 2 = ρ / (1 − ρ)``. It is unbiased whatever the
    chances of the cells. A negative value is chance.

    Parameters
    ----------
    early, observed : arrays of shape (zones, bins)
        Pickups of the first half and of the whole bin; NaN where they are not to be used.
    cell : integer array of shape (zones, bins)
        Bins in which the chance of the first half is the same.

    Returns
    -------
    (float, float)
        The error is infinite if no cell has two bins, one of them with two pickups.
    """
    used = np.isfinite(early) & np.isfinite(observed)
    of, column = cell[used], np.nonzero(used)[1]
    first, whole = early[used], observed[used]
    rest = whole - first
    pairs, same = whole * (whole - 1), first * (first - 1) + rest * (rest - 1)

    def cells(values: Array) -> Array:
        return np.asarray(np.bincount(of, values, minlength=int(of.max(initial=0)) + 1), dtype=float)

    apart = cells(whole) ** 2 - cells(whole**2)  # pairs of riders of different bins
    alike = cells(first) ** 2 - cells(first**2) + cells(rest) ** 2 - cells(rest**2)
    expected = np.divide(alike, apart, out=np.full(len(apart), np.nan), where=apart > 0)[of]
    known = np.isfinite(expected) & (pairs > 0)
    excess = np.where(known, same - pairs * np.nan_to_num(expected), 0.0)
    scale = float(np.sum((pairs * (1 - expected))[known]))
    if scale <= 0:
        return 0.0, np.inf
    together = float(excess.sum()) / scale
    # Zones of one bin may have the same weather: they count as one.
    error = float(np.sqrt(np.sum(np.bincount(column, excess) ** 2))) / scale
    together = min(together, 0.5)
    return together / (1 - together), max(error / (1 - together) ** 2, 1e-9)


def learn_lasting(early: Array, observed: Array, exposure: Array, cell: IntArray, dispersion: float) -> float:
    """Return the part of the dispersion that a bin's seen and hidden part share, between 0 and 1.

    It is the posterior mean under a beta prior whose mean is `USUAL_LASTING`.

    Parameters
    ----------
    early, observed, exposure, cell : arrays of shape (zones, bins)
        As of `split_spread`; bins that are not fully stocked are left out.
    dispersion : float
        Of a bin's count beside the shocks.
    """
    full = exposure >= _FULL
    spread, error = split_spread(np.where(full, early, np.nan), observed, cell)
    if not np.isfinite(error):
        return USUAL_LASTING
    weight = _PRIOR.logpdf(_GRID) + norm.logpdf(spread, (1 - _GRID) * dispersion, error)
    weight = np.exp(weight - weight.max())
    return float(np.average(_GRID, weights=weight))
