"""Fitting of Gaussian processes to zones: hyper-parameters from some rows, the posterior from all."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np

from unmet._typing import Array, BoolArray, IntArray
from unmet.estimators import CensoredGP
from unmet.kernels import Kernel
from unmet.mobility.models.zone_data import ZoneData

__all__ = ["SEARCH_ITERATIONS", "fit_zone", "inference_for", "inference_for_rows", "join_messages", "search_rows"]

# Hyper-parameters are learnt on at most this many rows, drawn at random; the posterior then uses all rows.
_SEARCH_ROWS = 3000
SEARCH_ITERATIONS = 40
# With more rows than this, low-rank inference costs less than dense.
_DENSE_ROWS = 400


def inference_for(data: ZoneData) -> Literal["dense", "lowrank"]:
    """Give the faster inference for a zone's `CensoredGP`: dense for short records, low rank for long ones."""
    return inference_for_rows(len(data))


def inference_for_rows(count: int) -> Literal["dense", "lowrank"]:
    """Give the faster inference for so many rows."""
    return "lowrank" if count > _DENSE_ROWS else "dense"


def search_rows(rows: BoolArray, seed: int, most: int = _SEARCH_ROWS) -> IntArray:
    """Draw some of the rows at random, in order, so that all hours of the week and all weathers are among them."""
    index = np.flatnonzero(rows)
    if index.size <= most:
        return index
    return np.sort(np.random.default_rng(seed).choice(index, most, replace=False))


def fit_zone(
    data: ZoneData,
    rows: BoolArray,
    seed: int,
    kernel: Kernel,
    *,
    search: bool = True,
    labels: Array | None = None,
    **settings: Any,
) -> tuple[CensoredGP, dict[str, Any]]:
    """Fit a zone in two steps and summarise the fit.

    Parameters
    ----------
    data : ZoneData
        The zone.
    rows : array of bool
        The bins to learn from.
    seed : int
        Decides the rows of the search and the features of low-rank inference.
    kernel : Kernel
        Covariance of the latent function.
    search : bool
        Whether to search for hyper-parameters, on some of the rows; else those of `kernel` and `settings` are used.
    labels : array of shape (n,), optional
        Labels in place of the panel's and of the exposure; NaN where not known.
    **settings
        For `CensoredGP`.

    Returns
    -------
    gp : CensoredGP
        With the posterior given all rows.
    summary : dict
        For `Rates.summary`.
    """
    counts = settings["likelihood"] != "gaussian"

    def arguments(at: IntArray) -> dict[str, Any]:
        if labels is not None:
            return {"X": data.inputs.iloc[at], "y": data.observed[at], "censored": labels[at]}
        extra: dict[str, Any] = {"exposure": data.exposure[at]} if counts else {"censored": data.censored[at]}
        if counts and data.surroundings is not None:
            extra["background"] = data.surroundings.background[at]
        return {"X": data.inputs.iloc[at], "y": data.observed[at], **extra}

    every = np.flatnonzero(rows)
    some = search_rows(rows, seed) if search else every
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        settings |= {"inference": inference_for(data), "optimizer": "lbfgs" if search else None}
        gp = CensoredGP(kernel, max_iter=SEARCH_ITERATIONS, random_state=seed, **settings)
        gp.fit(**arguments(some))
        if some.size < every.size:
            gp = gp.with_learnt_parameters().fit(**arguments(every))
    # The search may end at its limit of iterations, which the message reports; EP must have converged.
    summary = {
        "converged": bool(gp.ep_converged_),
        "message": join_messages(caught),
        "log_evidence": float(gp.log_marginal_likelihood_),
        "dispersion": float(getattr(gp, "dispersion_", np.nan)),
        "features": 0 if gp.features_ is None else int(gp.features_["count"].sum()),
        "kernel": repr(gp.kernel_),
    }
    return gp, summary


def join_messages(caught: list[warnings.WarningMessage]) -> str:
    """Join the distinct messages of warnings, in order of the alphabet."""
    return "; ".join(sorted({str(warning.message) for warning in caught}))
