"""The law of shocks: how large they are, how far they reach, how long they last.

`learn_law` reads it off covariances of residuals, which takes no estimate of the shocks. `refine_law` maximises the
evidence once there is one: it uses all counts, those next to empty zones too, and so does not leave out busy hours.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from unmet._exceptions import NumericalError
from unmet._typing import Array, IntArray
from unmet.inference.ep import Sites
from unmet.inference.statespace import Gradient, StateSpace

__all__ = ["ShockLaw", "law_evidence", "learn_law", "own_dispersion", "refine_law", "spatial_features"]

# Lags (hours) and rings (metres) over which covariances of residuals are averaged.
_LAGS = (0, 1, 2, 3, 6, 12, 24, 48)
_RINGS = np.array([0.0, 250.0, 500.0, 1000.0, 2000.0, 4000.0, np.inf])
# Features in space, eigenvectors of the zones' covariance: more in short records, whose steps cost less in all.
_FEATURES, _WORK = 60, 2e9  # work is steps times features cubed
# Zones from which the law is learnt: all pairs are looked at.
_MOST_ZONES = 400
# Zones and bins whose evidence refines it: those with the most trips. So few zones have all their features.
_REFINED_ZONES, _REFINED_BINS, _REFINING_STEPS = 30, 1500, 8
_NOT_POSSIBLE = 1e12  # cost of a law that has no evidence


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


def learn_law(observed: Array, expected: Array, metres: Array, hours: float = 1.0) -> ShockLaw:
    """Learn the law from covariances of residuals.

    ``Σ (y − μ)(y' − μ')/Σ μμ'`` over pairs of zones at a distance and bins at a lag is the covariance of their rates
    relative to what is expected; counts' own noise is in no pair. The law is fitted to these numbers by least squares,
    weighted by the trips behind them.

    Parameters
    ----------
    observed, expected : arrays of shape (zones, bins)
        Pickups and what was expected of them without shocks; NaN where nothing was seen.
    metres : array of shape (zones, zones)
        Distances; NaN where not known.
    hours : float
        Length of a bin.
    """
    residual, mean = _residuals(observed, expected)
    some = np.sort(np.argsort(-mean.sum(axis=1), kind="stable")[:_MOST_ZONES])
    values, weights, distances, lags = _covariances(residual[some], mean[some], metres[np.ix_(some, some)], hours)
    start = _logs(ShockLaw())
    scale = max(float(np.average(np.abs(values), weights=weights)), 1e-3)

    def misfit(theta: Array) -> float:
        gap = (values - _law_of(theta).covariance(distances, lags)) / scale
        off = (theta - start) / _PRIOR_SD
        return float(np.sum(weights * gap**2) / weights.sum() + _PRIOR_WEIGHT * off @ off)

    found = minimize(misfit, start, method="L-BFGS-B", bounds=_BOUNDS)  # type: ignore[call-overload]
    return _law_of(found.x)


def refine_law(
    law: ShockLaw,
    space: StateSpace,
    sites: Sites,
    log_rate: Array,
    error: Array,
    metres: Array,
    hours: float,
) -> ShockLaw:
    """Move the law to a greater evidence, with the sites of EP held.

    At EP's fixed point the gradient of the evidence is the one with the sites held. Taken in turns with EP, this ends
    where the gradient is zero. The busiest zones and stretch of time stand for all.

    Parameters
    ----------
    law : ShockLaw
        Where to start.
    space, sites
        Of an estimate of the shocks.
    log_rate : array of shape (zones, bins)
        Log of the rate, with the mean effect of shocks. It should not have been learnt from the same bins.
    error : array of shape (zones, 2)
        Variance of its error, and the error's correlation from one bin to the next.
    metres, hours
        As of `learn_law`.
    """
    trips = np.exp(log_rate[space.place, space.step])
    by_zone = np.bincount(space.place, weights=trips, minlength=len(metres))
    zones = np.sort(np.argsort(-by_zone, kind="stable")[:_REFINED_ZONES])
    steps = min(_REFINED_BINS, space.steps)
    first = _busiest(np.bincount(space.step, weights=trips, minlength=space.steps), steps)
    rows = np.isin(space.place, zones) & (space.step >= first) & (space.step < first + steps)
    place, step = np.searchsorted(zones, space.place[rows]), space.step[rows] - first
    near, at = metres[np.ix_(zones, zones)], (space.place[rows], space.step[rows])
    usual = log_rate[at], error[zones]
    held = Sites(sites.tau[rows], sites.nu[rows])
    centre = _logs(ShockLaw())

    def cost(theta: Array) -> tuple[float, Array]:
        off = (theta - centre) / _PRIOR_SD
        try:
            evidence, slope = law_evidence(_law_of(theta), held, place, step, *usual, steps, near, hours)
        except NumericalError:  # sites of negative precision (walkers) bound the variance that they fit to
            return _NOT_POSSIBLE, np.zeros(len(theta))
        return float(0.5 * off @ off) - evidence, off / _PRIOR_SD - slope

    options = {"maxiter": _REFINING_STEPS}
    found = minimize(cost, _logs(law), jac=True, method="L-BFGS-B", bounds=_BOUNDS, options=options)  # type: ignore[call-overload]
    return _law_of(found.x)


def law_evidence(
    law: ShockLaw,
    sites: Sites,
    place: IntArray,
    step: IntArray,
    log_rate: Array,
    error: Array,
    steps: int,
    metres: Array,
    hours: float,
) -> tuple[float, Array]:
    """Log evidence of a law with given sites, and its derivatives by the logs of the law's numbers.

    Parameters
    ----------
    law : ShockLaw
        The law.
    sites, place, step : arrays of shape (n,)
        Sites of counts, with their zones and bins, in order of bins.
    log_rate : array of shape (n,)
        Log of the rate of each, with the mean effect of shocks.
    error : array of shape (zones, 2)
        As of `refine_law`: a process of each zone's own that is no shock.
    steps : int
        Number of bins.
    metres, hours
        As of `learn_law`; there are at most as many zones as features.
    """
    features, decay, _ = spatial_features(law, metres, hours, steps)
    count = len(decay)
    features = np.concatenate([features, np.diag(np.sqrt(error[:, 0]))], axis=1)
    decay = np.append(decay, error[:, 1])
    by = StateSpace(features, decay, step, place, log_rate - 0.5 * law.variance, steps).gradient(sites)
    by = replace(by, features=by.features[:, :count], decay=by.decay[:count])
    return by.log_normaliser, _by_law(law, metres, hours, features[:, :count], by)


def _by_law(law: ShockLaw, metres: Array, hours: float, features: Array, by: Gradient) -> Array:
    """Derivatives of an evidence by the logs of the law's numbers, from those by features, decay and offset.

    Only ``ΦΦᵀ = σ² K`` matters, so any root of its change does: ``dΦ = ½ dK K⁻¹ Φ`` for that by the length-scale. K has
    no inverse where two zones share a place; they move alike, so its pseudo-inverse serves.
    """
    by_feature = by.features * features
    shift = -0.5 * float(by.offset.sum())
    far = np.nan_to_num(metres, nan=np.inf) / law.local_metres
    np.fill_diagonal(far, 0.0)
    near = np.exp(-far)
    change = np.multiply(near, far, out=np.zeros_like(near), where=near > 0)
    wider = 0.5 * change @ np.linalg.pinv(near, rcond=1e-10, hermitian=True) @ features[:, 1:]
    fade = hours / np.array([law.city_hours, law.local_hours])
    by_decay = np.array([by.decay[0], by.decay[1:].sum()]) * fade * np.exp(-fade)
    return np.array(
        [
            0.5 * by_feature[:, 0].sum() + shift * law.city_variance,
            by_decay[0],
            0.5 * by_feature[:, 1:].sum() + shift * law.local_variance,
            by_decay[1],
            np.sum(by.features[:, 1:] * wider),
        ]
    )


def _busiest(trips: NDArray[Any], length: int) -> int:
    """First bin of the stretch of that length with the most trips."""
    total = np.concatenate([[0.0], np.cumsum(trips)])
    return int(np.argmax(total[length:] - total[:-length]))


def _logs(law: ShockLaw) -> Array:
    return np.clip(np.log(list(asdict(law).values())), *np.transpose(_BOUNDS))


def _law_of(logs: Array) -> ShockLaw:
    return ShockLaw(*(float(value) for value in np.exp(logs)))


def _residuals(observed: Array, expected: Array) -> tuple[Array, Array]:
    """Residuals and means, both 0 where nothing was seen."""
    seen = np.isfinite(observed) & np.isfinite(expected)
    return np.where(seen, observed - expected, 0.0), np.where(seen, expected, 0.0)


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


def own_dispersion(observed: Array, expected: Array, law: ShockLaw) -> Array:
    """Relative variance of each zone's counts beyond Poisson and the shocks, shrunk to that of all zones.

    Parameters
    ----------
    observed, expected : arrays of shape (zones, bins)
        As of `learn_law`.
    law : ShockLaw
        The shocks.

    Returns
    -------
    array of shape (zones,)
    """
    residual, mean = _residuals(observed, expected)
    shared = law.variance
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


def spatial_features(law: ShockLaw, metres: Array, hours: float, steps: int) -> tuple[Array, Array, Array]:
    """``Φ`` of shape (zones, m), the decay of each component from one bin to the next, and the variance left out.

    The first component is the city's. The others are the first eigenvectors of the local covariance: 60 for a year of
    hours, 98 for three months. In simulated cities 60 have four fifths of the variance of 200 zones, and two thirds of
    600. What they leave out of a zone's variance is its own, and is taken not to last from one bin to the next.
    """
    local = np.exp(-np.nan_to_num(metres, nan=np.inf) / law.local_metres)
    np.fill_diagonal(local, 1.0)
    values, vectors = np.linalg.eigh(local)
    count = min(max(_FEATURES, int(np.cbrt(_WORK / steps))), len(values))
    phi = vectors[:, ::-1][:, :count] * np.sqrt(law.local_variance * np.maximum(values[::-1][:count], 0.0))
    own = np.maximum(law.local_variance - np.sum(phi**2, axis=1), 0.0)
    city = np.full((len(metres), 1), np.sqrt(law.city_variance))
    decay = np.append(np.exp(-hours / law.city_hours), np.full(count, np.exp(-hours / law.local_hours)))
    return np.concatenate([city, phi], axis=1), decay, own if count < len(values) else np.zeros(len(own))
