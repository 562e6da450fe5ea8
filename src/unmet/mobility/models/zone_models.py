"""Demand models of a zone: Gaussian processes and the linear Tobit model."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from unmet._exceptions import NumericalError
from unmet._normal import truncated_above
from unmet._parameters import LogNormal, Parameter
from unmet._typing import Array, BoolArray
from unmet.estimators import CensoredGP, TobitRegressor
from unmet.estimators.kept import KeptGP
from unmet.estimators.left_out import left_out_log_rate
from unmet.likelihoods import Beta
from unmet.mobility.models.fitting import fit_zone, join_messages
from unmet.mobility.models.kept import KeptFit
from unmet.mobility.models.kernel import demand_kernel
from unmet.mobility.models.rates import Rates
from unmet.mobility.models.surroundings import Surroundings
from unmet.mobility.models.zone_data import CITY_ERRORS, CITY_RATE, ZoneData

__all__ = ["cgp", "exposure", "fit_counts", "log_rate", "log_rates", "ncgp", "ncgp_a", "share", "tobit"]

# Seeds of the errors that all zones share: draw s uses the same ones in every zone, and so does draw s of the total.
_DISPERSION_SEED, _CURVE_SEED = 0, 1

# Model `share`: minutes from which a bin counts as a day, and α and β of a share that is learnt near uniform.
_DAY = 12 * 60
_LEFT_OUT_ROWS = 168  # left out at a time, whose covariance matrix is needed
_MOST_LASTING = 0.99  # largest correlation of errors from one bin to the next
_NEAR_ONE = Parameter(1.0, bounds=(1e-2, 1e3), prior=LogNormal(1.0, 0.5))


def _rates(gp: CensoredGP, data: ZoneData) -> tuple[Array, Array, Array, Array]:
    mean, sd = gp.predict(data.inputs, return_std=True)
    q05, q95 = gp.predict_quantiles(data.inputs, [0.05, 0.95], kind="latent").T
    return mean, sd, q05, q95


def _rate_draws(gp: CensoredGP | KeptGP, data: ZoneData, draws: int, seed: int) -> tuple[Array, Array | None]:
    """Draw rates jointly; draw s uses the same error of the city's curve in every zone.

    The errors are standard normal weights of the curve's directions. Each draw of the zone has weights of its own. It
    is moved to the common ones along the regression, over the draws, of the rate on the weights: the zone's own records
    correct the curve as far as they would if its error were that one.

    Returns
    -------
    rate : array of shape (draws, n)
    slope : array of shape (directions, n) or None
        Coefficients of the regression; None for a zone that does not use the curve.
    """
    if CITY_RATE not in data.inputs:
        return gp.sample(data.inputs, draws, random_state=seed), None
    count = len(CITY_ERRORS)
    probe = data.inputs.iloc[[0] * (count + 1)].copy()  # rows that differ in one of the weights
    probe[CITY_ERRORS] = np.vstack([np.zeros(count), np.eye(count)])
    f = np.log(gp.sample(pd.concat([data.inputs, probe], ignore_index=True), draws, random_state=seed))
    f, own = f[:, : len(data)], f[:, -count:] - f[:, [-count - 1]]
    slope = np.linalg.lstsq(own - own.mean(axis=0), f - f.mean(axis=0), rcond=None)[0]
    common = np.random.default_rng(_CURVE_SEED).standard_normal((draws, count))
    return np.asarray(np.exp(f + (common - own) @ slope)), slope


def exposure(data: ZoneData, draws: int, seed: int) -> Rates:
    """Negative binomial counts with exposure: the likelihood of a counting process that is stopped while supply is out.

    It is exact although stock-outs depend on demand, as long as it is known when they were. Where the city was
    estimated as one (`ZoneData.surroundings`), shocks and walkers of the neighbourhood are taken into account.
    """
    around = data.surroundings
    gp, summary, level = fit_counts(data, seed)
    usual, slope = _rate_draws(gp, data, draws, seed)
    spread = 0.0 if data.hyperparameters is None else data.hyperparameters.dispersion_sd
    if data.kept is not None:
        spread = data.kept.dispersion_sd
    off = spread * np.random.default_rng(_DISPERSION_SEED).standard_normal(draws)
    shape = (np.exp(off) / gp.dispersion_)[:, None]
    if around is not None:
        rates = _among_neighbours(gp, data, around, usual * np.exp(-level), slope, shape, level, seed, summary)
        kept = None if isinstance(gp, KeptGP) else KeptGP.of(gp)
        if kept is None or data.scales is None:
            return rates
        return replace(rates, kept=KeptFit(kept, level, spread, summary, data.scales))
    assert isinstance(gp, CensoredGP), "a kept fit needs the surroundings of its bins"
    rng = np.random.default_rng(seed)
    lost, lost_mean = _stopped(data, usual, shape, data.observed, np.zeros_like(usual), rng)
    future = None
    if np.isnan(data.observed).any():
        future = rng.poisson(usual * rng.gamma(np.broadcast_to(shape, usual.shape)) / shape).astype(float)
    mean, sd, q05, q95 = _rates(gp, data)
    shared = None if slope is None else slope * mean
    return Rates(mean, sd, q05, q95, lost, lost_mean, future, summary, shared)


def fit_counts(data: ZoneData, seed: int) -> tuple[CensoredGP | KeptGP, dict[str, Any], float]:
    """Fit the zone's own log-rate; return the model, a summary and the log by which its rates are too high.

    A known shock h multiplies exposure by ``e^h``. As exposure must not exceed 1, all of it is divided by its largest
    value, by which the rates of the model are then too high. A kept fit is returned as it is.
    """
    if data.kept is not None:
        return data.kept.gp, data.kept.summary, data.kept.level
    level = 0.0
    if data.surroundings is not None:
        shock = data.surroundings.shock + 0.5 * data.surroundings.shock_var
        level = float(shock[data.seen].max())
        data = replace(data, exposure=data.exposure * np.exp(np.minimum(shock - level, 0.0)))
    settings: dict[str, Any] = {"likelihood": "negative-binomial"}
    if data.hyperparameters is None:
        gp, summary = fit_zone(data, data.seen, seed, demand_kernel(data, city=True), **settings)
    else:
        settings["dispersion"] = data.hyperparameters.dispersion
        gp, summary = fit_zone(data, data.seen, seed, data.hyperparameters.kernel, search=False, **settings)
    return gp, summary, level


def log_rate(gp: CensoredGP | KeptGP, data: ZoneData, level: float = 0.0) -> tuple[Array, Array]:
    """Return mean and variance of the logarithm of the zone's rate in every bin."""
    median, upper = np.log(gp.predict_quantiles(data.inputs, [0.5, ndtr(1.0)], kind="latent")).T
    return median - level, np.square(upper - median)


def log_rates(
    gp: CensoredGP | KeptGP, data: ZoneData, level: float, seen: BoolArray
) -> tuple[Array, Array, Array, Array]:
    """Return mean and variance of the log-rate in every bin, its mean by the zone's other weeks, and their error.

    `seen` are the bins that the model was fitted to. What moved a week is not in the third, nor are its counts. The
    error has two numbers: the mean variance, weighted by trips, and the correlation from one bin to the next. Where
    records or bins are short, less is left out at a time, but at least a day. A kept fit gives its own mean and no
    error.
    """
    mean, var = log_rate(gp, data, level)
    if isinstance(gp, KeptGP):
        return mean, var, mean, np.zeros(2)
    days = data.inputs["t"].to_numpy()
    week = np.floor(days / np.clip(min(np.ptp(days) / 10, _LEFT_OUT_ROWS * data.minutes / 1440), 1, 7))
    apart, apart_var, ahead = left_out_log_rate(gp, data.inputs, np.flatnonzero(seen), week)
    trips = np.exp(apart - apart.max())
    followed = np.isfinite(ahead)
    error = max(float(np.average(apart_var, weights=trips)), 1e-12)
    covariance = float(np.average(ahead[followed], weights=trips[followed])) if followed.any() else 0.0
    return mean, var, apart - level, np.array([error, np.clip(covariance / error, 0.0, _MOST_LASTING)])


def _stopped(
    data: ZoneData,
    rate: Array,
    shape: Array,
    served: Array,
    walked_on: Array | NDArray[np.float32],
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Draws and mean of what was lost while nothing was to rent.

    Given `served` at exposure a, the bin's own gamma factor has shape ``r + served`` and rate ``r + aλ``. Those lost in
    a stock-out of share b, of whom a share walks on, are Poisson about ``b λ (1 − share)`` times it. Where b is itself
    uncertain, draws of it are beta distributed. Pickups of a bin without exposure, as it is mostly unknown, say nothing
    of the factor.
    """
    lost, lost_mean = np.zeros(rate.shape), np.zeros(len(data))
    out = (data.stockout > 0) & np.isfinite(data.observed)
    a, b = data.exposure[out], data.stockout[out]
    y = np.where(a > 0, served[..., out], 0.0)
    factor = (shape + y) / (shape + a * rate[:, out])
    expected = b * rate[:, out] * (1 - walked_on[:, out]) * factor
    lost_mean[out] = expected.mean(axis=0)
    own = np.broadcast_to(shape + y, factor.shape)
    lost[:, out] = rng.poisson(expected * rng.gamma(own) / own * _stockout_factor(data, out, len(rate), rng))
    return lost, lost_mean


def _stockout_factor(data: ZoneData, out: BoolArray, draws: int, rng: np.random.Generator) -> Array:
    """Draws of the stock-out over its mean: beta distributed between none and all of the open time."""
    factor = np.ones((draws, int(out.sum())))
    if data.stockout_sd is None or not data.stockout_sd[out].any():
        return factor
    b, sd = data.stockout[out], data.stockout_sd[out]
    open_ = data.exposure[out] + b
    mean = b / open_
    some = (sd > 0) & (mean < 1)
    mean, sd = mean[some], (sd / open_)[some]
    size = np.maximum(mean * (1 - mean) / sd**2 - 1, 1e-2)  # of the beta distribution with that mean and deviation
    factor[:, some] = rng.beta(mean * size, (1 - mean) * size, (draws, len(mean))) / mean
    return factor


def _among_neighbours(
    gp: CensoredGP | KeptGP,
    data: ZoneData,
    around: Surroundings,
    usual: Array,
    slope: Array | None,
    shape: Array,
    level: float,
    seed: int,
    summary: dict[str, Any],
) -> Rates:
    """Rates of a zone whose neighbours are known: with shocks, walkers from there and to there.

    What the seen part of a bin says of the rest is the part of its own factor that lasts (`Surroundings.lasting`).
    """
    rng = np.random.default_rng(seed)
    rate = usual * np.exp(around.shock_draws)
    shape = shape * gp.dispersion_ / max(around.within, 1e-3)
    served = data.observed - around.riders_in
    lost, lost_mean = _stopped(data, rate, shape / around.lasting, served, around.walked_on, rng)
    future = None
    if np.isnan(data.observed).any():
        future = rng.poisson(rate * rng.gamma(np.broadcast_to(shape, rate.shape)) / shape).astype(float)
    f, var = log_rate(gp, data, level)
    whole, whole_var = f + around.shock, var + around.shock_var
    mean = np.exp(whole + 0.5 * whole_var)
    sd = mean * np.sqrt(np.expm1(whole_var))
    q05, q95 = np.exp(whole + ndtri([[0.05], [0.95]]) * np.sqrt(whole_var))
    shared = None if slope is None else slope * mean
    known = np.isfinite(data.observed)
    return Rates(
        mean,
        sd,
        q05,
        q95,
        lost,
        lost_mean,
        future,
        summary,
        shared,
        usual=np.exp(f + 0.5 * var + 0.5 * around.prior_var),
        walked_on=np.where(known, around.riders_on, 0).astype(float),
        walked_in=np.where(known, around.riders_in, 0).astype(float),
    )


def _tobit_lost(data: ZoneData, f: Array, noise_sd: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw lost trips of censored bins, and give their mean: a normal above the observed number, less that number."""
    lost, lost_mean = np.zeros(f.shape), np.zeros(len(data))
    rows = data.censored & np.isfinite(data.observed)
    t = (data.observed[rows] - f[:, rows]) / noise_sd
    lost_mean[rows] = (noise_sd * (truncated_above(t).mean - t)).mean(axis=0)
    # Inverse of the survival function, in the remaining tail: x = −Φ⁻¹(U Φ(−t)).
    log_u = np.log(rng.uniform(size=t.shape)) + truncated_above(t).log_mass
    x = -ndtri(np.exp(np.maximum(log_u, -700.0)))
    lost[:, rows] = noise_sd * np.maximum(x - t, 0.0)
    return lost, lost_mean


def _gaussian(data: ZoneData, draws: int, seed: int, censoring: str) -> Rates:
    rows = np.isfinite(data.observed) & (data.exposure + data.stockout > 0)
    gp, summary = fit_zone(data, rows, seed, demand_kernel(data), likelihood="gaussian", censoring=censoring)
    rng = np.random.default_rng(seed)
    f = gp.sample(data.inputs, draws, random_state=seed)
    noise_sd = gp.y_scale_ * float(np.sqrt(gp.noise_variance_))
    lost, lost_mean = _tobit_lost(data, f, noise_sd, rng)
    future = f + noise_sd * rng.standard_normal(f.shape) if np.isnan(data.observed).any() else None
    return Rates(*_rates(gp, data), lost, lost_mean, future, summary)


def cgp(data: ZoneData, draws: int, seed: int) -> Rates:
    """Fit the paper's censored GP: the panel's labels, Gaussian noise."""
    return _gaussian(data, draws, seed, "model")


def ncgp(data: ZoneData, draws: int, seed: int) -> Rates:
    """Fit the paper's GP that ignores censoring."""
    return _gaussian(data, draws, seed, "ignore")


def ncgp_a(data: ZoneData, draws: int, seed: int) -> Rates:
    """Fit the paper's GP that drops censored rows."""
    return _gaussian(data, draws, seed, "drop")


def share(data: ZoneData, draws: int, seed: int) -> Rates:
    """Fit negative binomial counts of which bins labelled as stock-outs show a share.

    It needs no minutes: only whether a bin had a stock-out, or nothing at all where the status is unknown. Nothing is
    learnt from bins that were closed all the time, and nothing is lost in them.

    Labels alone do not tell the share: bins run out because demand is high, so a learnt share is confounded with the
    level and comes out too near 1. In bins of hours it is therefore held at uniform. Labelled days show more than that,
    and how much differs by zone, so days have two readings, uniform and learnt near uniform. Half of the draws are of
    each.
    """
    one = _share_of(data, draws, seed, Beta(1, 1))
    if data.minutes < _DAY:
        return one
    other = _share_of(data, draws, seed, Beta(_NEAR_ONE, _NEAR_ONE))
    odd = np.arange(draws)[:, None] % 2 == 1  # the same draws in every zone, so that totals have both readings too
    mean = 0.5 * (one.mean + other.mean)
    return Rates(
        mean,
        np.sqrt(0.5 * (one.sd**2 + other.sd**2) + 0.25 * (one.mean - other.mean) ** 2),
        np.minimum(one.q05, other.q05),  # that of the two together lies in between
        np.maximum(one.q95, other.q95),
        np.where(odd, one.lost, other.lost),
        0.5 * (one.lost_mean + other.lost_mean),
        None if one.future is None or other.future is None else np.where(odd, one.future, other.future),
        {**one.summary, "converged": one.summary["converged"] and other.summary["converged"]},
    )


def _share_of(data: ZoneData, draws: int, seed: int, reading: Beta) -> Rates:
    # A closed bin has no demand to miss: without a trip it is no sign of a low rate, nor of a loss.
    rows = np.isfinite(data.observed) if data.closed is None else np.isfinite(data.observed) & ~data.closed
    labels = np.where(data.exposure + data.stockout > 0, data.censored.astype(float), np.nan)
    settings: dict[str, Any] = {"likelihood": "negative-binomial", "censoring": "share", "share": reading}
    gp, summary = fit_zone(data, rows, seed, demand_kernel(data), labels=labels, **settings)
    rng = np.random.default_rng(seed)
    lost, lost_mean = np.zeros((draws, len(data))), np.zeros(len(data))
    seen = data.inputs[rows], data.observed[rows], labels[rows]
    lost[:, rows] = gp.sample_truth(*seen, draws, random_state=seed) - data.observed[rows]
    lost_mean[rows] = gp.predict_share(*seen)["value"].to_numpy() - data.observed[rows]
    ahead = np.isnan(data.observed).any()
    future = gp.sample(data.inputs, draws, kind="demand", random_state=rng.integers(2**31)) if ahead else None
    return Rates(*_rates(gp, data), lost, lost_mean, future, summary)


def tobit(data: ZoneData, draws: int, seed: int) -> Rates:
    """Fit a linear Tobit model: effects of hour (weekends apart), day of the week, trend and covariates.

    An effect whose bins are all censored cannot be estimated: the likelihood grows without end with it, and the zone is
    refused. There is no effect for each hour of the week because more of those would have only censored bins.
    """
    rows = np.isfinite(data.observed) & (data.exposure + data.stockout > 0)
    day, hour = np.divmod(data.slot, 24)
    effects = pd.DataFrame({"hour": hour + 24 * (day >= 5), "day": day}).astype("category")
    design = pd.get_dummies(effects, drop_first=True, dtype=float).drop(columns="day_6", errors="ignore")
    design["t"] = data.inputs["t"].to_numpy()
    for name in ("holiday", *data.covariates):
        design[name] = data.inputs[name].to_numpy()
        if name != "holiday":
            design[f"{name}²"] = np.square(design[name] - design[name].mean())
    design = design.loc[:, design[rows].std() > 0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = TobitRegressor().fit(design[rows], data.observed[rows], censored=data.censored[rows])
    if not model.converged_:
        raise NumericalError(join_messages(caught))
    rng = np.random.default_rng(seed)
    mean = model.predict(design)
    beta = rng.multivariate_normal(np.zeros(len(design.columns) + 1), model.covariance_[:-1, :-1], draws, method="eigh")
    f = mean + beta @ np.column_stack([design.to_numpy(), np.ones(len(design))]).T
    lost, lost_mean = _tobit_lost(data, f, model.scale_, rng)
    future = f + model.scale_ * rng.standard_normal(f.shape) if np.isnan(data.observed).any() else None
    q05, q95 = np.quantile(f, [0.05, 0.95], axis=0)
    summary = {
        "converged": True,
        "message": join_messages(caught),
        "log_evidence": model.log_likelihood_,
        "dispersion": np.nan,
    }
    return Rates(mean, f.std(axis=0), q05, q95, lost, lost_mean, future, summary)
