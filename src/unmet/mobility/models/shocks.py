"""Shocks: what moved the demand of a neighbourhood, or of the whole city, in some hours and is in no covariate.

The log-rate of zone i in bin t is what is usual there plus ``h_i(t)``, a Gaussian process with the covariance
``σ_c² e^{−|t−t'|/τ_c} + σ_l² e^{−d_ij/ℓ} e^{−|t−t'|/τ_l}``: one part moves all zones alike, the other those that are
near. Its variances, its length-scale in space and those in time are learnt from the covariances of residuals; EP with a
Kalman smoother (`unmet.inference.statespace`) then gives h of all zones and bins at once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from unmet._parameters import Parameter
from unmet._typing import Array, BoolArray
from unmet.inference.ep import Sites, expectation_propagation
from unmet.inference.statespace import Filtered, StateSpace
from unmet.likelihoods.base import Observations
from unmet.likelihoods.counts import NegativeBinomial, Poisson

__all__ = ["ShockLaw", "Shocks", "estimate_shocks", "learn_law"]

# Lags (hours) and rings (metres) over which covariances of residuals are averaged.
_LAGS = (0, 1, 2, 3, 6, 12, 24, 48)
_RINGS = np.array([0.0, 250.0, 500.0, 1000.0, 2000.0, 4000.0, np.inf])
# Most features in space: eigenvectors of the zones' covariance.
_FEATURES = 60
# Zones from which the law is learnt: all pairs are looked at.
_MOST_ZONES = 400
# Movement of a site, in units of the posterior, at which EP stops: far below what matters for an interval.
_TOLERANCE, _SWEEPS = 1e-3, 15


@dataclass(frozen=True)
class ShockLaw:
    """How large shocks are, how far they reach and how long they last.

    Attributes
    ----------
    city_variance, local_variance : float
        Of the logarithm of demand.
    city_hours, local_hours : float
        Time after which the correlation has fallen to 1/e.
    local_metres : float
        Distance after which it has.
    """

    city_variance: float = 0.03
    city_hours: float = 8.0
    local_variance: float = 0.05
    local_hours: float = 8.0
    local_metres: float = 800.0

    @property
    def variance(self) -> float:
        """Of both parts together."""
        return self.city_variance + self.local_variance

    def covariance(self, metres: Array, hours: Array) -> Array:
        """Between two zones and times; zones whose distance is NaN share the city's part alone."""
        near = np.where(np.isnan(metres), 0.0, np.exp(-np.nan_to_num(metres) / self.local_metres))
        local = self.local_variance * near * np.exp(-hours / self.local_hours)
        return np.asarray(self.city_variance * np.exp(-hours / self.city_hours) + local)

    def to_dict(self) -> dict[str, float]:
        """A JSON-able description."""
        return asdict(self)

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Self:
        """Read back what `to_dict` wrote."""
        return cls(**description)


# Log-normal priors of the five numbers about the defaults; factors of e^1.5 (variances) and e^0.8 (scales).
_PRIOR_WEIGHT = 1e-4  # a tie-breaker: covariances decide where they can
_PRIOR_SD = np.array([1.5, 0.8, 1.5, 0.8, 0.8])
_BOUNDS = np.log([(1e-4, 2.0), (1.0, 120.0), (1e-4, 2.0), (1.0, 120.0), (100.0, 20_000.0)])


def learn_law(observed: Array, expected: Array, metres: Array, hours: float = 1.0) -> tuple[ShockLaw, Array]:
    """Learn the law from covariances of residuals, and the dispersion that each zone has beside it.

    ``Σ (y − μ)(y' − μ')/Σ μμ'`` over pairs of zones at a distance and bins at a lag is the covariance of their rates
    relative to what is expected; counts' own noise is in no pair. The law is fitted to these numbers by least squares,
    weighted by the trips behind them. A zone's own dispersion is its relative variance beyond Poisson and the law.

    Parameters
    ----------
    observed, expected : arrays of shape (zones, bins)
        Pickups and what was expected of them without shocks; NaN where nothing was seen.
    metres : array of shape (zones, zones)
        Distances; NaN where not known.
    hours : float
        Length of a bin.

    Returns
    -------
    law : ShockLaw
    dispersion : array of shape (zones,)
        Shrunk towards that of all zones.
    """
    seen = np.isfinite(observed) & np.isfinite(expected)
    residual = np.where(seen, observed - expected, 0.0)
    mean = np.where(seen, expected, 0.0)
    some = np.sort(np.argsort(-mean.sum(axis=1), kind="stable")[:_MOST_ZONES])
    values, weights, distances, lags = _covariances(residual[some], mean[some], metres[np.ix_(some, some)], hours)
    start = np.log([getattr(ShockLaw(), name) for name in ShockLaw.__dataclass_fields__])
    scale = max(float(np.average(np.abs(values), weights=weights)), 1e-3)

    def misfit(theta: Array) -> float:
        law = ShockLaw(*np.exp(theta))
        gap = (values - law.covariance(distances, lags)) / scale
        off = (theta - start) / _PRIOR_SD
        return float(np.sum(weights * gap**2) / weights.sum() + _PRIOR_WEIGHT * off @ off)

    found = minimize(misfit, start, method="L-BFGS-B", bounds=_BOUNDS)  # type: ignore[call-overload]
    law = ShockLaw(*(float(value) for value in np.exp(found.x)))
    return law, _own_dispersion(residual, mean, law.variance)


def _covariances(residual: Array, mean: Array, metres: Array, hours: float) -> tuple[Array, Array, Array, Array]:
    """Relative covariances by ring and lag: value, weight, mean distance and lag (hours) of each."""
    rows = []
    ring = np.where(np.isnan(metres), -1, np.searchsorted(_RINGS, metres, side="right") - 1)
    np.fill_diagonal(ring, -2)
    for lag in sorted({round(lag / hours) for lag in _LAGS}):
        end = residual.shape[1] - lag
        if end < 10:
            continue
        products = residual[:, :end] @ residual[:, lag:].T
        sizes = mean[:, :end] @ mean[:, lag:].T
        for k in range(-2 if lag else -1, len(_RINGS) - 1):  # a zone with itself only at another time
            here = ring == k
            if here.any() and (total := float(sizes[here].sum())) > 0:
                distance = (
                    {-1: np.nan, -2: 0.0}.get(k) if k < 0 else float(np.average(metres[here], weights=sizes[here]))
                )
                rows.append((float(products[here].sum()) / total, total, distance, lag * hours))
    values, weights, distances, lags = (np.array(column) for column in zip(*rows, strict=True))
    # Near pairs are few beside far ones, but teach the length-scale: weights are tempered.
    return values, np.sqrt(weights), distances, lags


def _own_dispersion(residual: Array, mean: Array, shared: float) -> Array:
    """Relative variance of each zone's counts beyond Poisson and the shared shocks, shrunk to that of all zones."""
    squares = np.sum(mean**2, axis=1)
    excess = np.sum(residual**2 - mean, axis=1)
    # Variance of an excess, roughly: that of squared Poisson residuals.
    noise = np.sum(2 * mean**2 + mean, axis=1)
    total = squares.sum()
    common = max(float(excess.sum() / total) - np.expm1(shared), 1e-3) if total > 0 else 0.05
    prior_precision = 1 / (0.5 * common) ** 2
    precision = squares**2 / np.maximum(noise, 1e-9)
    own = np.divide(excess, squares, out=np.full(len(squares), common), where=squares > 0) - np.expm1(shared)
    return np.maximum((precision * own + prior_precision * common) / (precision + prior_precision), 1e-3)


@dataclass(frozen=True)
class Shocks:
    """Posterior of h for all zones and bins.

    Attributes
    ----------
    law : ShockLaw
        Its prior.
    mean, var : arrays of shape (zones, bins)
        Of h.
    left_out_mean, left_out_var : arrays of shape (zones, bins)
        The same without the count of that zone and bin (EP's cavity).
    dispersion : float
        Of counts beside it.
    log_evidence : float
        EP's.
    """

    law: ShockLaw
    mean: Array
    var: Array
    left_out_mean: Array
    left_out_var: Array
    dispersion: float
    log_evidence: float
    space: StateSpace
    filtered: Filtered
    sites: Sites

    def draws(self, size: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Joint draws of the components, shape ``(bins, size, m)``; ``features @ z`` is h of the zones."""
        return self.space.sample(self.filtered, size, rng)


def estimate_shocks(
    observed: Array,
    exposure: Array,
    log_rate: Array,
    background: Array | None,
    law: ShockLaw,
    metres: Array,
    *,
    dispersion: float,
    hours: float = 1.0,
    start: Sites | None = None,
) -> Shocks:
    """Estimate h from the counts of all zones.

    Parameters
    ----------
    observed, exposure : arrays of shape (zones, bins)
        Pickups, NaN where nothing was seen, and the share of the bin in which they could be.
    log_rate : array of shape (zones, bins)
        Log of the rate without shocks.
    background : array of shape (zones, bins), optional
        Walkers expected from neighbours.
    law : ShockLaw
        From `learn_law`.
    metres : array of shape (zones, zones)
        Distances between zones; NaN where not known.
    dispersion : float
        Of counts beside the shocks.
    hours : float
        Length of a bin.
    start : Sites, optional
        Of an earlier estimate with the same bins seen.
    """
    features, decay = spatial_features(law, metres, hours)
    seen: BoolArray = np.isfinite(observed) & (exposure > 0) & np.isfinite(log_rate)
    bin_, zone = np.nonzero(seen.T)
    space = StateSpace(features, decay, bin_, zone, log_rate[zone, bin_], observed.shape[1])
    y = observed[zone, bin_]
    others = None if background is None else background[zone, bin_]
    obs = Observations(y, y, exposure[zone, bin_], background=others)
    likelihood = NegativeBinomial(Parameter(dispersion, fixed=True)) if dispersion > 0 else Poisson()
    ep = expectation_propagation(space, likelihood, obs, start, tol=_TOLERANCE, max_sweeps=_SWEEPS)
    assert isinstance(ep.posterior, Filtered)
    mean, var = space.everywhere(ep.posterior)
    rest_mean, rest_var = mean.copy(), var.copy()
    tau, nu, kept = ep.sites.tau, ep.sites.nu, 1 - ep.sites.tau * ep.posterior.var
    rest_var[zone, bin_] = ep.posterior.var / kept
    rest_mean[zone, bin_] = (ep.posterior.mean - ep.posterior.var * nu) / kept - space.offset
    sites = Sites(tau, nu)
    return Shocks(law, mean, var, rest_mean, rest_var, dispersion, ep.log_z, space, ep.posterior, sites)


def spatial_features(law: ShockLaw, metres: Array, hours: float) -> tuple[Array, Array]:
    """``Φ`` of shape (zones, m) and the decay of each component from one bin to the next.

    The first component is the city's. The others are eigenvectors of the local covariance, the largest 60; what they
    leave out of a zone's variance is put back in proportion, so that every zone has the same.
    """
    local = np.exp(-np.nan_to_num(metres, nan=np.inf) / law.local_metres)
    np.fill_diagonal(local, 1.0)
    values, vectors = np.linalg.eigh(local)
    count = min(_FEATURES, len(values))
    phi = vectors[:, ::-1][:, :count] * np.sqrt(np.maximum(values[::-1][:count], 0.0))
    kept = np.sqrt(np.sum(phi**2, axis=1, keepdims=True))
    phi = np.sqrt(law.local_variance) * phi / np.maximum(kept, 1e-6)
    city = np.full((len(metres), 1), np.sqrt(law.city_variance))
    decay = np.append(np.exp(-hours / law.city_hours), np.full(count, np.exp(-hours / law.local_hours)))
    return np.concatenate([city, phi], axis=1), decay
