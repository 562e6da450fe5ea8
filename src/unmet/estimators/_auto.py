"""``censoring="auto"``: which of "ignore", "drop", "model" and "share" explains the same data best.

Evidences are compared as densities of all values, labelled ones included:

* "ignore" and "share" are such densities already.
* "drop" says nothing of labelled values. It is completed by a normal of their own, independent of f, whose mean and
  variance cost ``log n`` nats together (BIC).
* "model" gives labelled values the probability of a bound, ``P(y* ≥ y)``. It is completed by a loss that is equally
  likely anywhere within the range R of the data: ``P(y* ≥ y)/R``.

No such comparison helps where no exact row tells f near the labelled ones: the evidence of "ignore" and "share" then
prefers "nothing was lost". So "auto" first asks whether the exact rows alone know f at the labelled ones, with the
hyper-parameters of "model". (With their own, exact rows between labelled peaks may be explained by a constant and
noise, which claims to know f everywhere.) If not, labels are believed, and it takes "model".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import clone

from unmet._typing import Array, BoolArray

if TYPE_CHECKING:
    from unmet.estimators.censored_gp import CensoredGP

__all__ = ["Choice", "choose"]

# The exact rows know f at labelled ones if its sd there is below this share of the sd of exact values.
_KNOWN = 0.4


class Choice(NamedTuple):
    """The fitted model that was taken, and the comparable log evidences of all that were fitted."""

    fitted: CensoredGP
    log_evidence: dict[str, float]
    identified: bool


def choose(gp: CensoredGP, X: Any, y: Any, short: Array, **rows: Any) -> Choice:
    """Fit the candidates and take the best.

    Parameters
    ----------
    gp : CensoredGP
        With the settings of all candidates.
    X, y : array-like
        As of `fit`.
    short : array of shape (n,)
        0, 1, a probability or NaN per row, as from `short_rows`.
    rows : array-like
        ``censored``, ``censored_probability`` and ``exposure`` of `fit`.
    """

    def fitted(censoring: str) -> CensoredGP:
        candidate = clone(gp).set_params(censoring=censoring)
        given = {"exposure": rows.get("exposure")}
        if censoring == "share":
            return candidate.fit(X, y, **rows)
        return candidate.fit(X, y, None if (short == 0).all() else rows.get("censored"), **given)

    exact, known = short == 0, np.isin(short, (0.0, 1.0)).all()
    if exact.all():
        return _only(fitted("ignore"), identified=True)
    if not known:  # a bound or a row to drop needs a label
        plain = clone(gp).set_params(censoring="ignore").fit(X, y, exposure=rows.get("exposure"))
        share = fitted("share")
        both = {"ignore": plain.log_marginal_likelihood_, "share": share.log_marginal_likelihood_}
        return Choice(share if both["share"] > both["ignore"] else plain, both, True)
    values = np.asarray(y, dtype=float)
    believed = fitted("model")
    if not exact.any() or not _is_known(believed, X, values, exact, **rows):
        return _only(believed, identified=False)
    candidates = {"model": believed, **{name: fitted(name) for name in ("ignore", "drop", "share")}}
    evidence = {name: float(each.log_marginal_likelihood_) for name, each in candidates.items()}
    labelled = values[~exact]
    spread = max(float(labelled.std()), 1e-3 * float(np.ptp(values)))
    log_normal = -0.5 * labelled.size * (1 + np.log(2 * np.pi * spread**2))
    evidence["drop"] += float(log_normal - np.log(labelled.size))
    evidence["model"] -= labelled.size * float(np.log(np.ptp(values)))
    best = max(evidence, key=lambda name: (candidates[name].converged_, evidence[name]))
    return Choice(candidates[best], evidence, True)


def _only(fitted: CensoredGP, *, identified: bool) -> Choice:
    return Choice(fitted, {fitted.censoring: fitted.log_marginal_likelihood_}, identified)


def _is_known(believed: CensoredGP, X: Any, y: Array, exact: BoolArray, **rows: Any) -> bool:
    """Whether the exact rows alone tell f at the labelled ones, with the hyper-parameters of "model"."""
    alone = believed.with_learnt_parameters().set_params(censoring="drop")
    _, sd = alone.fit(X, y, rows.get("censored"), exposure=rows.get("exposure")).predict(X, return_std=True)
    return bool(np.median(sd[~exact]) < _KNOWN * y[exact].std())
