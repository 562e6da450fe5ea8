"""The models that estimate a zone's demand, from Gaussian processes to the plain baselines anyone should beat.

Each is a function of the zone's data that gives `Rates`: what is known of the rate (expected demand of a full bin),
and joint draws of the trips lost given what was seen.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from unmet._exceptions import InputError, NumericalError
from unmet._normal import truncated_above
from unmet._parameters import LogNormal, Parameter
from unmet._typing import Array, BoolArray, IntArray
from unmet.estimators import CensoredGP, TobitRegressor
from unmet.kernels import Constant, Kernel, Linear, Periodic, SquaredExponential
from unmet.mobility.models.joint import Surroundings
from unmet.mobility.models.zone_data import SHARED, SHARED_OFF, ZoneData

__all__ = [
    "MODELS",
    "SEARCH_ITERATIONS",
    "Rates",
    "demand_kernel",
    "fit_counts",
    "inference_for",
    "log_rate",
    "search_rows",
]

# Hyper-parameters are learnt on this many rows at most, drawn at random; the posterior then uses all of them.
_SEARCH_ROWS = 3000
SEARCH_ITERATIONS = 40
# Beyond this many rows features cost less than covariance matrices.
_DENSE_ROWS = 400


# Seeds of what is drawn alike for all zones: in draw s the same is off everywhere, and the system's total with it.
_DISPERSION_SEED, _CURVE_SEED = 0, 1

# Medians of the variances of log-demand's terms: of a zone that is known by itself, and of how one differs from all.
_TERMS = ("trend", "day", "weekend", "week", "drift", "holiday", "weather")
_BY_ITSELF = dict(zip(_TERMS, (0.1, 1.0, 0.3, 0.03, 0.01, 0.1, 0.1), strict=True))
_DIFFERENCES = dict(zip(_TERMS, (0.02, 0.3, 0.1, 0.01, 0.01, 0.03, 0.003), strict=True))


@dataclass(frozen=True)
class Rates:
    """What a model says of one zone.

    Attributes
    ----------
    mean, sd, q05, q95 : arrays of shape (n,)
        Posterior of the rate.
    lost : array of shape (draws, n)
        Joint draws of the trips lost in each bin.
    lost_mean : array of shape (n,)
        Their mean, over what is random given the rate exactly where that is known.
    future : array of shape (draws, n) or None
        Draws of demand, for bins still to come.
    summary : dict
        What to tell of the fit.
    shared : array of shape (directions, n) or None
        Change of the rate per standard deviation of each error of the city's curve, which all zones share; None
        for a model that does not use the curve.
    usual : array of shape (n,) or None
        Mean of the rate without what is known of the bin's shock: what to plan with. None where it is the rate itself.
    walked_on, walked_in : arrays of shape (draws, n) or None
        Riders who came here first and were served elsewhere, and the other way round; None where nobody walks.
    """

    mean: Array
    sd: Array
    q05: Array
    q95: Array
    lost: Array
    lost_mean: Array
    future: Array | None = None
    summary: dict[str, Any] = field(default_factory=dict)
    shared: Array | None = None
    usual: Array | None = None
    walked_on: Array | None = None
    walked_in: Array | None = None


def demand_kernel(data: ZoneData, *, shared: bool = False) -> Kernel:
    """The default covariance of (log-)demand: patterns of day, weekend and week, a slow trend, holidays, weather.

    Weekends have a term of their own because they differ from other days much more than those do among themselves:
    with one weekly pattern for all, the hours of each weekday would be learnt nearly by themselves. The daily pattern
    may drift. Where what all zones share is known, each has a multiple of it, and the other terms are for how the
    zone differs: the less so, the less a pattern is a zone's own. Priors are weakly informative, log-normal with a
    factor of e^0.5 (length-scales) or e^1.5 (variances), so that a thousand fits need no nursing.

    Parameters
    ----------
    data : ZoneData
        Whose bins and covariates they are.
    shared : bool
        Whether to look at ``data.inputs["shared_log_rate"]``, where it is there; only for models of log-demand.
    """
    days = float(np.ptp(data.inputs["t"]))
    shared = shared and SHARED in data.inputs
    typical = _DIFFERENCES if shared else _BY_ITSELF

    def variance(term: str) -> Parameter:
        return Parameter(typical[term], prior=LogNormal(typical[term], 1.5))

    def length(median: float) -> Parameter:
        return Parameter(median, prior=LogNormal(median, 0.5))

    def held(value: float) -> Parameter:
        return Parameter(value, fixed=True)

    kernel: Kernel = SquaredExponential(variance("trend"), length(min(40.0, max(days / 3, 1.0))), columns="t")
    if data.daily and days >= 14:
        kernel = kernel + Periodic(held(7.0), variance("weekend"), length(1.0), columns="week")
    if not data.daily:
        kernel = kernel + Periodic(held(1.0), variance("day"), length(0.6), columns="week")
        if days >= 14:
            weekend = Linear(held(1.0), columns="weekend")
            kernel = kernel + Periodic(held(1.0), variance("weekend"), length(0.6), columns="week") * weekend
            kernel = kernel + Periodic(held(7.0), variance("week"), length(0.08), columns="week")
        if days >= 90:
            slow = SquaredExponential(held(1.0), held(90.0), columns="t")
            kernel = kernel + Periodic(held(1.0), variance("drift"), held(1.5), columns="week") * slow
    if data.inputs["holiday"].any():
        kernel = kernel + Linear(held(typical["holiday"]), columns="holiday")
    for name in data.covariates:
        spread = float(data.inputs[name].std())
        kernel = kernel + SquaredExponential(variance("weather"), length(2.0 * spread), columns=name)
    if not shared:
        return kernel
    # The level is no difference: without a term of its own it would make the variances of the others.
    return kernel + Linear(held(1.0), columns=[SHARED, *SHARED_OFF]) + Constant(held(0.1))


def inference_for(data: ZoneData) -> Literal["dense", "lowrank"]:
    """Return the faster inference for a zone's `CensoredGP`: dense for short records, low rank for long ones."""
    mixed = data.surroundings is not None and bool((data.surroundings.background > 0).any())
    return "lowrank" if mixed or len(data) > _DENSE_ROWS else "dense"


def search_rows(rows: BoolArray, seed: int, most: int = _SEARCH_ROWS) -> IntArray:
    """A random few of the rows, in order, so that all hours of the week and all weathers are met."""
    index = np.flatnonzero(rows)
    if index.size <= most:
        return index
    return np.sort(np.random.default_rng(seed).choice(index, most, replace=False))


def _fit(
    data: ZoneData, rows: BoolArray, seed: int, kernel: Kernel, *, search: bool = True, **settings: Any
) -> tuple[CensoredGP, dict[str, Any]]:
    """Learn hyper-parameters on some rows (if `search`), then compute the posterior on all; return it and a summary."""
    counts = settings["likelihood"] != "gaussian"

    def arguments(at: IntArray) -> dict[str, Any]:
        extra: dict[str, Any] = {"exposure": data.exposure[at]} if counts else {"censored": data.censored[at]}
        if counts and data.surroundings is not None:
            extra["background"] = data.surroundings.background[at]
        return {"X": data.inputs.iloc[at], "y": data.observed[at], **extra}

    every = np.flatnonzero(rows)
    some = search_rows(rows, seed) if search else every
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        settings |= {"inference": inference_for(data), "optimizer": "lbfgs" if search else None}
        gp = CensoredGP(kernel, max_iter=SEARCH_ITERATIONS, random_state=seed, **settings)
        gp.fit(**arguments(some))
        if some.size < every.size:
            gp = gp.with_learnt_parameters().fit(**arguments(every))
    # The search may end at its limit of iterations with little to gain; the message says so. EP must have converged.
    summary = {
        "converged": bool(gp.ep_converged_),
        "message": _words(told),
        "log_evidence": float(gp.log_marginal_likelihood_),
        "dispersion": float(getattr(gp, "dispersion_", np.nan)),
        "features": 0 if gp.features_ is None else int(gp.features_["count"].sum()),
        "kernel": repr(gp.kernel_),
    }
    return gp, summary


def _words(told: list[warnings.WarningMessage]) -> str:
    return "; ".join(sorted({str(w.message) for w in told}))


def _rates(gp: CensoredGP, data: ZoneData) -> tuple[Array, Array, Array, Array]:
    mean, sd = gp.predict(data.inputs, return_std=True)
    q05, q95 = gp.predict_quantiles(data.inputs, [0.05, 0.95], kind="latent").T
    return mean, sd, q05, q95


def _rate_draws(gp: CensoredGP, data: ZoneData, draws: int, seed: int) -> tuple[Array, Array | None]:
    """Joint draws of the rate; draw s uses the same error of the city's curve in every zone.

    A zone's own draws are moved to those common numbers along the regression of the rate on them, over the draws: what
    the zone has seen itself then corrects it, as it would had the curve been off by so much. The slopes of that
    regression, (directions, n), are returned beside the draws: None for a zone that does not use the curve.
    """
    if SHARED not in data.inputs:
        return gp.sample(data.inputs, draws, random_state=seed), None
    count = len(SHARED_OFF)
    probe = data.inputs.iloc[[0] * (count + 1)].copy()  # rows that differ by one of the numbers
    probe[SHARED_OFF] = np.vstack([np.zeros(count), np.eye(count)])
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
    spread = 0.0 if data.learnt is None else data.learnt.dispersion_sd
    off = spread * np.random.default_rng(_DISPERSION_SEED).standard_normal(draws)
    shape = (np.exp(off) / gp.dispersion_)[:, None]
    if around is not None:
        return _among_neighbours(gp, data, around, usual * np.exp(-level), slope, shape, level, seed, summary)
    rng = np.random.default_rng(seed)
    lost, lost_mean = _stopped(data, usual, shape, data.observed, np.zeros_like(usual), rng)
    future = None
    if np.isnan(data.observed).any():
        future = rng.poisson(usual * rng.gamma(np.broadcast_to(shape, usual.shape)) / shape).astype(float)
    mean, sd, q05, q95 = _rates(gp, data)
    shared = None if slope is None else slope * mean
    return Rates(mean, sd, q05, q95, lost, lost_mean, future, summary, shared)


def fit_counts(data: ZoneData, seed: int) -> tuple[CensoredGP, dict[str, Any], float]:
    """Fit the zone's own log-rate; return the model, a summary and the log by which its rates are too high.

    A known shock h multiplies exposure by ``e^h``. As exposure must not exceed 1, all of it is divided by its largest
    value, by which the rates of the model are then too high.
    """
    level = 0.0
    if data.surroundings is not None:
        shock = data.surroundings.shock + 0.5 * data.surroundings.shock_var
        level = float(shock[data.seen].max())
        data = replace(data, exposure=data.exposure * np.exp(np.minimum(shock - level, 0.0)))
    settings: dict[str, Any] = {"likelihood": "negative-binomial"}
    if data.learnt is None:
        gp, summary = _fit(data, data.seen, seed, demand_kernel(data, shared=True), **settings)
    else:
        settings["dispersion"] = data.learnt.dispersion
        gp, summary = _fit(data, data.seen, seed, data.learnt.kernel, search=False, **settings)
    return gp, summary, level


def log_rate(gp: CensoredGP, data: ZoneData, level: float = 0.0) -> tuple[Array, Array]:
    """Return mean and variance of the logarithm of the zone's rate in every bin."""
    median, upper = np.log(gp.predict_quantiles(data.inputs, [0.5, ndtr(1.0)], kind="latent")).T
    return median - level, np.square(upper - median)


def _stopped(
    data: ZoneData, rate: Array, shape: Array, served: Array, walked_on: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draws and mean of what was lost while nothing was to rent.

    Given `served` at exposure a, the bin's own gamma factor has shape ``r + served`` and rate ``r + aλ``. Those lost in
    a stock-out of share b, of whom a share walks on, are Poisson about ``b λ (1 − share)`` times it.
    """
    lost, lost_mean = np.zeros(rate.shape), np.zeros(len(data))
    out = (data.stockout > 0) & np.isfinite(data.observed)
    y, a, b = served[..., out], data.exposure[out], data.stockout[out]
    factor = (shape + y) / (shape + a * rate[:, out])
    expected = b * rate[:, out] * (1 - walked_on[:, out]) * factor
    lost_mean[out] = expected.mean(axis=0)
    own = np.broadcast_to(shape + y, factor.shape)
    lost[:, out] = rng.poisson(expected * rng.gamma(own) / own)
    return lost, lost_mean


def _among_neighbours(
    gp: CensoredGP,
    data: ZoneData,
    around: Surroundings,
    usual: Array,
    slope: Array | None,
    shape: Array,
    level: float,
    seed: int,
    summary: dict[str, Any],
) -> Rates:
    """Rates of a zone whose neighbours are known: with shocks, walkers from there and to there."""
    rng = np.random.default_rng(seed)
    rate = usual * np.exp(around.shock_draws)
    shape = shape * gp.dispersion_ / max(around.within, 1e-3)
    served = data.observed - around.riders_in
    lost, lost_mean = _stopped(data, rate, shape, served, around.walked_on, rng)
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
    """Draws and mean of a normal above what was seen, less what was seen, in censored bins."""
    lost, lost_mean = np.zeros(f.shape), np.zeros(len(data))
    rows = data.censored & np.isfinite(data.observed)
    t = (data.observed[rows] - f[:, rows]) / noise_sd
    lost_mean[rows] = (noise_sd * (truncated_above(t).mean - t)).mean(axis=0)
    # Inverse of the survival function, in the tail that is left: x = −Φ⁻¹(U Φ(−t)).
    log_u = np.log(rng.uniform(size=t.shape)) + truncated_above(t).log_mass
    x = -ndtri(np.exp(np.maximum(log_u, -700.0)))
    lost[:, rows] = noise_sd * np.maximum(x - t, 0.0)
    return lost, lost_mean


def _gaussian(data: ZoneData, draws: int, seed: int, censoring: str) -> Rates:
    rows = np.isfinite(data.observed) & (data.exposure + data.stockout > 0)
    gp, summary = _fit(data, rows, seed, demand_kernel(data), likelihood="gaussian", censoring=censoring)
    rng = np.random.default_rng(seed)
    f = gp.sample(data.inputs, draws, random_state=seed)
    noise_sd = gp.y_scale_ * float(np.sqrt(gp.noise_variance_))
    lost, lost_mean = _tobit_lost(data, f, noise_sd, rng)
    future = f + noise_sd * rng.standard_normal(f.shape) if np.isnan(data.observed).any() else None
    return Rates(*_rates(gp, data), lost, lost_mean, future, summary)


def cgp(data: ZoneData, draws: int, seed: int) -> Rates:
    """The paper's censored GP: the panel's labels, Gaussian noise."""
    return _gaussian(data, draws, seed, "model")


def ncgp(data: ZoneData, draws: int, seed: int) -> Rates:
    """The paper's GP that ignores censoring."""
    return _gaussian(data, draws, seed, "ignore")


def ncgp_a(data: ZoneData, draws: int, seed: int) -> Rates:
    """The paper's GP that drops censored rows."""
    return _gaussian(data, draws, seed, "drop")


def tobit(data: ZoneData, draws: int, seed: int) -> Rates:
    """Linear Tobit on effects of the hour, at weekends and other days, of the day of the week, trend and covariates.

    Not one effect per hour of the week: more of them would have run out every time. One that has, has no effect that
    could be found (the likelihood grows with it without end), and the zone is refused.
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
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = TobitRegressor().fit(design[rows], data.observed[rows], censored=data.censored[rows])
    if not model.converged_:
        raise NumericalError(_words(told))
    rng = np.random.default_rng(seed)
    mean = model.predict(design)
    beta = rng.multivariate_normal(np.zeros(len(design.columns) + 1), model.covariance_[:-1, :-1], draws, method="eigh")
    f = mean + beta @ np.column_stack([design.to_numpy(), np.ones(len(design))]).T
    lost, lost_mean = _tobit_lost(data, f, model.scale_, rng)
    future = f + model.scale_ * rng.standard_normal(f.shape) if np.isnan(data.observed).any() else None
    q05, q95 = np.quantile(f, [0.05, 0.95], axis=0)
    summary = {
        "converged": True,
        "message": _words(told),
        "log_evidence": model.log_likelihood_,
        "dispersion": np.nan,
    }
    return Rates(mean, f.std(axis=0), q05, q95, lost, lost_mean, future, summary)


def observed(data: ZoneData, draws: int, seed: int) -> Rates:
    """What was recorded, taken for demand."""
    rate = np.where(np.isfinite(data.observed), data.observed, np.nanmean(data.observed))
    zero = np.zeros((draws, len(data)))
    return Rates(rate, np.zeros(len(data)), rate, rate, zero, zero[0], zero + rate, {"converged": True})


def _by_slot(data: ZoneData, draws: int, seed: int, rows: BoolArray) -> Rates:
    """Pickups over exposure by hour of week: Gamma(pickups, exposure) for each, whose mean that is; Poisson losses."""
    if not rows.any():
        raise InputError("No bin is left to learn from.")
    rng = np.random.default_rng(seed)
    count = np.bincount(data.slot[rows], data.observed[rows], minlength=168)
    time = np.bincount(data.slot[rows], data.exposure[rows], minlength=168)
    # An hour of the week never seen with supply gets the zone's mean, known as well as from one bin; it is flagged as
    # extrapolation.
    known = time > 0
    shape, time = np.where(known, count, count.sum() / time.sum()), np.where(known, time, 1.0)
    by_slot = rng.gamma(shape, 1 / time, size=(draws, 168))
    mean = (shape / time)[data.slot]
    rate = by_slot[:, data.slot]
    some = np.where(np.isfinite(data.observed), data.stockout, 0.0)
    q05, q95 = np.quantile(by_slot, [0.05, 0.95], axis=0)[:, data.slot]
    q05, q95 = np.minimum(q05, mean), np.maximum(q95, mean)  # a gamma of small shape has its mean above most draws
    future = rng.poisson(rate).astype(float) if np.isnan(data.observed).any() else None
    lost = rng.poisson(some * rate).astype(float)
    return Rates(mean, by_slot.std(axis=0)[data.slot], q05, q95, lost, some * mean, future, {"converged": True})


def weekly_mean(data: ZoneData, draws: int, seed: int) -> Rates:
    """Pickups over exposure, by hour of week."""
    return _by_slot(data, draws, seed, data.seen)


def drop_censored(data: ZoneData, draws: int, seed: int) -> Rates:
    """The same over uncensored bins only: what is left is selected for low demand."""
    return _by_slot(data, draws, seed, data.seen & ~data.censored)


MODELS = {
    "exposure": exposure,
    "cgp": cgp,
    "ncgp": ncgp,
    "ncgp-a": ncgp_a,
    "tobit": tobit,
    "observed": observed,
    "weekly-mean": weekly_mean,
    "drop-censored": drop_censored,
}
