"""Shares of counts: a labelled row is a count with mean ``a · exposure · exp(f)``, ``a ~ Beta(α, β)``.

Given the share, a count has the likelihood of its base with another exposure, so each component of the mixture has the
tilted moments of the base, by its own quadrature. The grid of shares is coarser than that of Gaussian values: counts
themselves tell shares apart less well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from unmet._typing import Array
from unmet.likelihoods.base import Observations, Units
from unmet.likelihoods.beta import Cells, cells
from unmet.likelihoods.counts import NegativeBinomial, Poisson
from unmet.likelihoods.share import Shared, ShareMoments, mixed

__all__ = ["SharedCounts"]

_CELLS = cells(48)
# Gauss–Hermite nodes over f for the moments of what was lost.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(15)


@dataclass(frozen=True)
class SharedCounts(Shared):
    """Poisson or negative binomial counts of which labelled rows show a share.

    Examples
    --------
    >>> from unmet.likelihoods import Poisson
    >>> obs = Observations(np.array([3.0, 3.0]), np.array([3.0, 3.0]), short=np.array([0.0, 1.0]))
    >>> SharedCounts(Poisson()).tilted(obs, np.full(2, 2.0), np.full(2, 0.2)).d1.round(2)  # exact; labelled
    array([-2.1 , -0.42])
    """

    units: ClassVar[Units] = "log rate"

    base: Poisson | NegativeBinomial = field(default_factory=Poisson)

    @property
    def cells(self) -> Cells:
        """The grid of shares."""
        return _CELLS

    def filled(self, *, variance: float, level: float, zero: float = 0.0) -> Self:
        """The rate varies about `level`."""
        return replace(self, base=self.base.filled(variance=variance, level=level))

    def validate(self, obs: Observations) -> None:
        """Refuse what the base refuses."""
        self.base.validate(obs)

    def _components(self, obs: Observations, mean: Array, var: Array) -> tuple[Array, Array, Array, Array]:
        a = np.append(self.cells.nodes, 1.0)
        shape = (len(obs), a.size)
        exposure = np.ones(len(obs)) if obs.exposure is None else obs.exposure
        y = np.repeat(obs.lower, a.size)
        each = Observations(y, y, np.multiply.outer(exposure, a).ravel())
        t = self.base.tilted(each, np.repeat(mean, a.size), np.repeat(var, a.size))
        by_base = t.d_theta.reshape(*shape, self.base.theta.size)
        return t.log_z.reshape(shape), t.d1.reshape(shape), t.shrink.reshape(shape), by_base

    def sample_lost(self, obs: Observations, f: Array, rng: np.random.Generator) -> Array:
        """Draw what was not seen of each row, given its latent values, shape (draws, n); 0 in exact rows.

        The share is drawn given y and f, then the count of the part that it hides.
        """
        out, rows = np.zeros(f.shape), np.flatnonzero(self._short(obs) > 0)
        if not rows.size:
            return out
        some, at = obs[rows], f[:, rows]
        exposure = np.ones(rows.size) if some.exposure is None else some.exposure
        nodes, weights = np.append(self.cells.nodes, 1.0), self._log_weights(some)
        share, best = np.ones(at.shape), np.full(at.shape, -np.inf)
        for a, weight in zip(nodes, weights.T, strict=True):  # the largest of log p + Gumbel noise is a draw from p
            each = replace(some, exposure=a * exposure)
            score = weight + self.base.log_likelihood(each, at) + rng.gumbel(size=at.shape)
            share, best = np.where(score > best, a, share), np.maximum(score, best)
        rate = exposure * self.base.rate(at)
        factor = np.ones(at.shape)
        if self._dispersion > 0:
            shape = 1 / self._dispersion + some.lower
            factor = rng.gamma(np.broadcast_to(shape, at.shape)) / (1 / self._dispersion + share * rate)
        out[:, rows] = rng.poisson((1 - share) * rate * factor)
        return out

    @property
    def _dispersion(self) -> float:
        return float(np.exp(self.base.log_dispersion)) if isinstance(self.base, NegativeBinomial) else 0.0

    def moments(self, obs: Observations, mean: Array, var: Array) -> ShareMoments:
        """Posterior of the share, and of the count that a share of 1 would have shown in the same exposure."""
        a = np.append(self.cells.nodes, 1.0)
        log_z, d1, shrink, _ = self._components(obs, mean, var)
        r = mixed(self._log_weights(obs), log_z, d1, shrink, var)[1]
        # Given its share, f of a row is taken as Gaussian. The part not seen is then Poisson about (1 − a) μ G, where
        # G ~ Gamma(1/d + y)/(1/d + a μ) holds what y says of a negative binomial's own rate.
        centre, width = mean[:, None] + var[:, None] * d1, np.sqrt(var[:, None] * shrink)
        exposure = 1.0 if obs.exposure is None else obs.exposure[:, None]
        dispersion = self._dispersion
        y = obs.lower[:, None]
        first, second = np.zeros_like(d1), np.zeros_like(d1)
        for node, weight in zip(_NODES, _WEIGHTS / _WEIGHTS.sum(), strict=True):
            rate = exposure * self.base.rate(centre + node * width)
            lost = (1 - a) * rate * (1 + dispersion * y) / (1 + dispersion * a * rate)
            spread = lost + lost**2 * dispersion / (1 + dispersion * y)
            first += weight * lost
            second += weight * (spread + lost**2)
        share, lost = r @ a, np.einsum("nk,nk->n", r, first)
        half = np.append(self.cells.half_widths, 0.0)
        share_var = np.einsum("nk,nk->n", r, np.square(a - share[:, None]) + half**2 / 3)
        lost_var = np.maximum(np.einsum("nk,nk->n", r, second) - lost**2, 0.0)
        label = self._short(obs)
        short = np.where((label == 0) | (label == 1), label, r[:, :-1].sum(axis=1))
        return ShareMoments(share, np.sqrt(share_var), obs.lower + lost, np.sqrt(lost_var), short)
