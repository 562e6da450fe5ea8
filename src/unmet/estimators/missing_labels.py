"""How likely rows whose label is missing are labelled, learnt from the rows whose label is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from unmet._exceptions import InputError
from unmet._numbers import refuse_other_order
from unmet._parameters import Parameter
from unmet._typing import Array
from unmet.estimators._share import short_rows
from unmet.estimators.censored_gp import CensoredGP
from unmet.estimators.frames import naming_rows
from unmet.kernels import Kernel

__all__ = ["label_probability"]

# A label that is missing is never certain.
_LEAST = 0.02


def label_probability(X: Any, censored: Any, kernel: Kernel | None = None) -> Array:
    """Return how likely each row is labelled: 0 or 1 where its label is known, else learnt from rows like it.

    Labels are rarely spread evenly: stations run out on busy days. A row whose label is missing is then more likely
    short where labelled rows are many. This is what ``censored_probability`` of `CensoredGP.fit` asks for. Without it
    all missing labels have the same odds, and the model takes short rows of busy times for exact ones.

    The known labels, as 0 and 1, are a Gaussian process over X plus noise. The variance of the noise is held at that of
    the labels: learnt, it may be next to none, and single labels then decide for all rows around them.

    Parameters
    ----------
    X : array-like or DataFrame of shape (n, d)
        Inputs of all rows.
    censored : array-like of shape (n,)
        True, +1 or −1: labelled; False or 0: not; NaN, None or pd.NA: not known. Some rows must be known to be
        labelled, and some not to be. Rows are matched by position; a Series with the rows of X in another order is
        refused.
    kernel : Kernel, optional
        Covariance of the labels over X, as of `CensoredGP`. That of the demand is a good choice.

    Returns
    -------
    array of shape (n,)
        Between 0.02 and 0.98 where the label is missing.

    Examples
    --------
    >>> day = np.arange(40.0)[:, None]
    >>> ran_out = np.repeat([0.0, 1.0, 0.0, 1.0], 10)
    >>> ran_out[[5, 15]] = np.nan
    >>> label_probability(day, ran_out)[[5, 15]].round(1)
    array([0., 1.])
    """
    refuse_other_order(X, censored=censored)
    with naming_rows(X, censored):
        labels = short_rows(censored, None, len(X))
    missing = np.isnan(labels)
    if not missing.any():
        return labels
    known = labels[~missing]
    if not (known == 0).any() or not (known == 1).any():
        raise InputError(
            f"label_probability needs some rows known to be labelled and some known not to be; of {len(labels)} rows "
            f"{int((known == 1).sum())} are labelled and {int((known == 0).sum())} are not. Without such rows give "
            "CensoredGP the missing labels as they are, or label_odds."
        )
    gp = CensoredGP(kernel, censoring="drop", noise_variance=Parameter(1.0, fixed=True))  # of standardised labels
    gp.fit(X, np.where(missing, 0.0, labels), missing)
    return np.where(missing, np.clip(gp.predict(X), _LEAST, 1.0 - _LEAST), labels)
