"""Labels that may mislead or be missing: from what users give to `Observations.short`, and what was learnt of it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from unmet._exceptions import InputError, UninformativeWarning
from unmet._numbers import refuse_other_kinds, refuse_other_order
from unmet._parameters import LogNormal, Parameter
from unmet._typing import Array
from unmet.estimators._model import Model
from unmet.estimators.frames import naming_rows
from unmet.estimators.inputs import read_rows
from unmet.estimators.labels import sides, vector, with_exposure
from unmet.inference.ep import Sites
from unmet.likelihoods.base import Likelihood, Observations
from unmet.likelihoods.beta import BOUNDS, Beta, held
from unmet.likelihoods.share import Shared, SharedGaussian, shared_class

if TYPE_CHECKING:
    from unmet.estimators.censored_gp import CensoredGP

__all__ = ["Given", "LearntShare", "read_given", "shares_of", "short_rows", "with_shares", "without_own_sites"]

# By how much the log odds of missing labels may differ from those of the known ones.
_ODDS = 0.5  # if no label tells them
_ODDS_SD = 0.1


@dataclass(frozen=True)
class LearntShare:
    """The distribution of the share that labelled rows show: Beta(alpha, beta), with its mean and sd."""

    alpha: float
    beta: float
    mean: float
    sd: float


def short_rows(censored: Any, probability: Any, n: int) -> Array:
    """The probability that each row shows only a share of the truth; NaN where the label is not known.

    Parameters
    ----------
    censored : array-like of shape (n,) or None
        True, +1 or −1: labelled; False or 0: exact; NaN, None or pd.NA: not known.
    probability : array-like of shape (n,) or None
        Probabilities in place of labels; NaN: not known.
    n : int
        Number of rows.
    """
    if probability is not None:
        if censored is not None:
            raise InputError("give either censored= or censored_probability=, not both")
        refuse_other_kinds(probability, "censored_probability")
        given = vector(_without_missing(probability), n, "censored_probability")
        bad = np.flatnonzero((given < 0) | (given > 1))
        if bad.size:
            raise InputError(
                f"censored_probability must lie between 0 and 1; row {bad[0]} is {given[bad[0]]} ({bad.size} such rows "
                "in all)"
            )
        return given
    if censored is None:
        return np.zeros(n)
    refuse_other_kinds(censored, "censored")
    labels = np.asarray(censored, dtype=object)
    if labels.shape != (n,):
        raise InputError(f"censored must have one label per row of X; got shape {labels.shape} for {n} rows")
    missing = np.asarray(pd.isna(labels), dtype=bool)
    known = sides(np.where(missing, 0, labels), n)
    return np.where(missing, np.nan, np.abs(known))


class Given(NamedTuple):
    """The arguments of `CensoredGP.fit`, as a user gives them."""

    X: Any
    y: Any
    censored: Any = None
    lower: Any = None
    upper: Any = None
    exposure: Any = None
    probability: Any = None
    background: Any = None


def read_given(
    gp: CensoredGP, likelihood: Likelihood, given: Given, *, reset: bool = True
) -> tuple[Array, Observations]:
    """Inputs and observations as arrays, with labels as the likelihood or the setting `censoring` reads them.

    Parameters
    ----------
    gp : CensoredGP
        Its setting `censoring`, and names and number of columns.
    likelihood : Likelihood
        As asked for, or as fitted.
    given : Given
        What the user gave.
    reset : bool
        Whether names and number of columns are noted, or compared with those noted before.
    """
    X, y, censored, lower, upper, exposure, probability, background = given
    rows = {"y": y, "censored": censored, "lower": lower, "upper": upper, "censored_probability": probability}
    refuse_other_order(X, **rows, exposure=exposure, background=background)
    if not isinstance(likelihood, Shared) and gp.censoring != "share":
        if probability is not None:
            raise InputError("censored_probability needs censoring='share'")
        table, obs = read_rows(gp, X, y, censored, lower, upper)
    else:
        if lower is not None or upper is not None:
            raise InputError("censoring='share' reads labels, not bounds: give censored=, or censoring='model'")
        table, obs = read_rows(gp, X, y, None, None, None, reset=reset)
        with naming_rows(X, censored, probability):
            obs = replace(obs, short=short_rows(censored, probability, len(obs)))
    with naming_rows(X, y, exposure, background):
        return table, with_exposure(obs, exposure, likelihood, background)


def _without_missing(given: Any) -> Any:
    values = np.asarray(given)
    return np.where(pd.isna(values), np.nan, values) if values.dtype == object else values


def with_shares(
    base: Likelihood, share: Beta | None, label_odds: float | Parameter | None, obs: Observations
) -> Shared:
    """Return the likelihood of shares; the odds of a label are learnt only where some label is not known.

    Where no value is negative, true values are taken not to be negative either.
    """
    assert obs.short is not None
    if not (share is None or isinstance(share, Beta)):
        raise InputError(f"share must be a Beta of unmet.likelihoods, or None; got {share!r}")
    likelihood = shared_class(base)(base) if share is None else shared_class(base)(base, share)
    if isinstance(likelihood, SharedGaussian):
        likelihood = replace(likelihood, signed=bool((obs.lower < 0).any()))
    if label_odds is not None:
        likelihood = replace(likelihood, label_odds=held(label_odds, "label_odds"))
    else:
        likelihood = replace(likelihood, label_odds=_usual_odds(obs.short))
    if (obs.short == 1).all() and likelihood.share.parameters["share_alpha"].theta.size:
        warnings.warn(
            f"all {len(obs)} rows are labelled, so nothing tells the share from the level of the truth: what is learnt "
            "rests on the prior of the share. Give some rows that are not labelled, or the share, as in "
            "share=Beta(1, 1).",
            UninformativeWarning,
            stacklevel=3,
        )
    if np.isnan(obs.short).any():
        return likelihood
    likelihood = replace(likelihood, label_odds=Parameter(1.0, fixed=True))
    # Where no row is labelled there is no share to learn: the model is then that of the base.
    return replace(likelihood, share=Beta(*likelihood.share.values)) if (obs.short == 0).all() else likelihood


def _usual_odds(short: Array) -> Parameter:
    """Return the odds that a row whose label is missing was short, with the known labels as their prior.

    Labels that are missing at random have the odds of the known ones. Unless some rows are known to be short and some
    to be exact, a third of the rows is the centre of the prior. It is narrow, because values alone do not tell the
    odds: noise that grows with the level looks like a share of a higher level in most rows, and gains tens of nats.
    """
    known = short[~np.isnan(short)]
    labelled, exact = float(known.sum()), float((1 - known).sum())
    if min(labelled, exact) < 1:
        return Parameter(_ODDS, bounds=BOUNDS, prior=LogNormal(_ODDS, _ODDS_SD))
    odds = float(np.clip(labelled / exact, *BOUNDS))
    return Parameter(odds, bounds=BOUNDS, prior=LogNormal(odds, float(np.sqrt(_ODDS_SD**2 + 1 / labelled + 1 / exact))))


def shares_of(
    likelihood: Shared, obs: Observations, mean: Array, var: Array, y_mean: float, y_scale: float
) -> pd.DataFrame:
    """Posterior of each row's share and true value in y's units, where f without that row is ``N(mean, var)``."""
    found = likelihood.moments(obs, mean, np.maximum(var, np.finfo(float).tiny))
    return pd.DataFrame(
        {
            "share": found.share,
            "share_sd": found.share_sd,
            "value": y_mean + y_scale * found.value,
            "value_sd": y_scale * found.value_sd,
            "label_probability": found.short,
        }
    )


def without_own_sites(
    model: Model, sites: Sites, X: Array, obs: Observations, mean: Array, var: Array
) -> tuple[Array, Array]:
    """Mean and variance of f at rows, without what each of them has taught: cavities of the rows of the fit.

    Rows are those of the fit if inputs, value and label are the same; all others have taught nothing.
    """
    exact, tau, nu = model.likelihood.exact_sites(model.obs)
    tau[~exact], nu[~exact] = sites.tau, sites.nu
    known = {key: i for i, key in enumerate(_keys(model.X, model.obs))}
    found = np.array([known.get(key, -1) for key in _keys(X, obs)])
    own_tau, own_nu = np.where(found >= 0, tau[found], 0.0), np.where(found >= 0, nu[found], 0.0)
    kept = np.maximum(1.0 - own_tau * var, np.finfo(float).eps)
    cavity = var / kept
    return mean - cavity * (own_nu - own_tau * mean), cavity


def _keys(X: Array, obs: Observations) -> list[bytes]:
    """Inputs, value and label of each row as one key."""
    short = np.zeros(len(obs)) if obs.short is None else np.where(np.isnan(obs.short), -1.0, obs.short)
    table = np.column_stack([X, obs.lower, obs.upper, short]) + 0.0  # −0 is 0
    return [row.tobytes() for row in table]
