"""Shocks: what moved the demand of a neighbourhood, or of the whole city, in some hours and is in no covariate.

The log-rate of zone i in bin t is what is usual there plus ``h_i(t)``, a Gaussian process with the covariance
``σ_c² e^{−|t−t'|/τ_c} + σ_l² e^{−d_ij/ℓ} e^{−|t−t'|/τ_l}``: one part moves all zones alike, the other those that are
near (`unmet.mobility.models.shock_law`). EP with a Kalman smoother (`unmet.inference.statespace`) gives h of all zones
and bins at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from unmet._parameters import Parameter
from unmet._typing import Array, BoolArray
from unmet.inference.ep import Sites
from unmet.inference.statespace import Filtered, StateSpace
from unmet.likelihoods.base import Observations
from unmet.likelihoods.counts import NegativeBinomial
from unmet.mobility.models.shock_law import ShockLaw, spatial_features
from unmet.mobility.models.shock_stretches import Pairs, smooth_counts
from unmet.spreading import Spread, in_turn

__all__ = ["Shocks", "estimate_shocks", "refine_dispersion"]

# Dispersions whose evidence is computed (a spline goes through them); standard deviation of the log of a zone's about
# that of all; counts of a zone that are used.
_DISPERSIONS = np.geomspace(1e-3, 1.0, 10)
_ZONE_SD = 0.5
_COUNTS = 1500


@dataclass(frozen=True)
class Shocks:
    """Posterior of h for all zones and bins.

    Attributes
    ----------
    law : ShockLaw
        Its prior.
    own : array of shape (zones,)
        Variance of each zone's shocks that no component has.
    mean, var : arrays of shape (zones, bins)
        Of h.
    left_out_mean, left_out_var : arrays of shape (zones, bins)
        The same without the count of that zone and bin (EP's cavity).
    dispersion : float
        Of counts beside it.
    pairs, shared : Pairs, array of shape (n,)
        Pairs of zones in a bin, and the posterior covariance of what components contribute to both.
    """

    law: ShockLaw
    own: Array
    mean: Array
    var: Array
    left_out_mean: Array
    left_out_var: Array
    dispersion: float
    pairs: Pairs | None
    shared: Array
    space: StateSpace
    filtered: Filtered
    sites: Sites

    @cached_property
    def elsewhere(self) -> tuple[Array, Array]:
        """Mean and variance of h of the first zone of each pair without the count of the second in the same bin.

        The site of the second zone is taken out of the joint posterior of both (a cavity of two variables). Walkers
        from the first to the second are expected with it: a rate that has learnt from the count of the second would be
        high where that count is high by chance, and the chance would be taken for walkers.
        """
        assert self.pairs is not None, "shocks were estimated without pairs"
        zone, other, bin_ = self.pairs.first, self.pairs.second, self.pairs.step
        tau = self.precision
        # Two zones share components only; h is these over 1 + dτ, and its own part (`unmet.inference.statespace`).
        within = 1 + self.own[:, None] * tau
        shared = self.shared / (within[zone, bin_] * within[other, bin_])
        kept = 1 - tau[other, bin_] * self.var[other, bin_]
        back = (tau * self.mean - self.pull)[other, bin_]
        mean = self.mean[zone, bin_] + shared * back / kept
        return mean, self.var[zone, bin_] + shared**2 * tau[other, bin_] / kept

    @property
    def precision(self) -> Array:
        """Precision of the site of each zone and bin; 0 where nothing was seen."""
        return self._at_rows(self.sites.tau)

    @property
    def pull(self) -> Array:
        """``ν − τ offset`` of the site of each zone and bin; 0 where nothing was seen."""
        return self._at_rows(self.sites.nu - self.sites.tau * self.space.offset)

    def _at_rows(self, values: Array) -> Array:
        found = np.zeros(self.mean.shape)
        found[self.space.place, self.space.step] = values
        return found

    def draws(self, size: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Joint draws of the components, shape ``(bins, size, m)``; ``features @ z`` is h of the zones but its own."""
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
    pairs: Pairs | None = None,
    spread: Spread = in_turn,
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
    pairs : Pairs, optional
        Pairs of zones in a bin for which `Shocks.elsewhere` is asked.
    spread : callable
        Where stretches of weeks are estimated: see `unmet.spreading`.
    """
    features, decay, own = spatial_features(law, metres, hours, observed.shape[1])
    seen: BoolArray = np.isfinite(observed) & (exposure > 0) & np.isfinite(log_rate)
    bin_, zone = np.nonzero(seen.T)
    space = StateSpace(features, decay, bin_, zone, log_rate[zone, bin_], observed.shape[1], own[zone])
    y = observed[zone, bin_]
    others = None if background is None else background[zone, bin_]
    obs = Observations(y, y, exposure[zone, bin_], background=others)
    found = smooth_counts(space, obs, dispersion, start, pairs=pairs, spread=spread)
    posterior, sites = found.filtered, found.sites
    mean, var = posterior.everywhere.copy(), posterior.spread + own[:, None]
    mean[zone, bin_], var[zone, bin_] = posterior.mean - space.offset, posterior.var
    rest_mean, rest_var = mean.copy(), var.copy()
    kept = 1 - sites.tau * posterior.var
    rest_var[zone, bin_] = posterior.var / kept
    rest_mean[zone, bin_] = (posterior.mean - posterior.var * sites.nu) / kept - space.offset
    left_out = rest_mean, rest_var
    return Shocks(law, own, mean, var, *left_out, dispersion, pairs, found.shared, space, posterior, sites)


def refine_dispersion(
    shocks: Shocks, observed: Array, exposure: Array, log_rate: Array, background: Array
) -> tuple[float, Array]:
    """Learn the dispersion of counts beside the shocks: of all zones, and of each.

    Maximises the evidence with EP's cavities held, which has the gradient of EP's own evidence. Zones are shrunk to the
    value of all. Counts of stock-outs and of zones with walkers are used as they are. A variance of residuals would
    have to leave those out, and with them the busy hours.

    Parameters
    ----------
    shocks : Shocks
        An estimate of the shocks.
    observed, exposure, log_rate, background : arrays of shape (zones, bins)
        What it was made with.

    Returns
    -------
    float, array of shape (zones,)
    """
    place, step = shocks.space.place, shocks.space.step
    most = _COUNTS * len(observed)
    if len(place) > most:
        some = np.sort(np.random.default_rng(0).choice(len(place), most, replace=False))
        place, step = place[some], step[some]
    y = observed[place, step]
    obs = Observations(y, y, exposure[place, step], background=background[place, step])
    mean, var = log_rate[place, step] + shocks.left_out_mean[place, step], shocks.left_out_var[place, step]
    evidence = np.empty((len(_DISPERSIONS), len(observed)))
    for k, value in enumerate(_DISPERSIONS):
        terms = NegativeBinomial(Parameter(value, fixed=True)).tilted(obs, mean, var).log_z
        evidence[k] = np.bincount(place, terms, minlength=len(observed))
    logs = np.linspace(np.log(_DISPERSIONS[0]), np.log(_DISPERSIONS[-1]), 500)
    of_zone = CubicSpline(np.log(_DISPERSIONS), evidence)(logs)
    common = logs[np.argmax(of_zone.sum(axis=1))]
    weight = of_zone - 0.5 * ((logs[:, None] - common) / _ZONE_SD) ** 2
    weight = np.exp(weight - weight.max(axis=0))
    return float(np.exp(common)), np.asarray(np.exp(logs) @ weight / weight.sum(axis=0))
