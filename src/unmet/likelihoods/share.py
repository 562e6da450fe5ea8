"""Labelled rows as shares of the truth: ``y = a y*`` with ``a ~ Beta(α, β)``, and rows whose label is not known.

A label says that supply may have been short. It does not say by how much, or whether at all. So a labelled value is
a share ``a`` of the true one, and α and β are learnt from rows near which the truth is known. Where the label itself
is not known, the row is exact with probability 1 − π and a share with probability π.

The share lives on a grid of cells ``k``: weights ``w_k`` are their probabilities, nodes ``a_k``
the middles of the cells. Then the likelihood is a mixture, and everything EP needs is a sum over its components:
with responsibilities ``r_k ∝ w_k Z_k``, ``d1 = Σ r_k d1_k`` and ``shrink = Σ r_k shrink_k + v Var_r[d1_k]``, in which
nothing cancels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from unmet._exceptions import InputError
from unmet._normal import LOG_SQRT_2PI, Truncated, truncated_above
from unmet._parameters import Parameter, parameter_from_dict, parameter_to_dict
from unmet._typing import Array, BoolArray
from unmet.likelihoods.base import Likelihood, Observations, Tilted, Units
from unmet.likelihoods.beta import BOUNDS, PRIOR, Beta, Cells, Masses, cells, masses
from unmet.likelihoods.counts import NegativeBinomial, Poisson
from unmet.likelihoods.gaussian import Gaussian

__all__ = ["ShareMoments", "Shared", "SharedGaussian", "mixed", "shared_class"]

_ROUNDING = 1e-3  # of y, as a share of the standard deviation of the data
_REACH = 4.0  # standard deviations of the data
_STARTS = ((0.95, 20.0), (0.5, 4.0), (0.2, 5.0), (0.01, 20.0))  # mean, and α + β


class ShareMoments(NamedTuple):
    """Posterior mean and sd of each row's share and true value, and the probability that the row was short."""

    share: Array
    share_sd: Array
    value: Array
    value_sd: Array
    short: Array


def mixed(log_weights: Array, log_z: Array, d1: Array, shrink: Array, var: Array) -> tuple[Tilted, Array]:
    """Tilted moments of a mixture from those of its components, and the responsibilities.

    Parameters
    ----------
    log_weights, log_z, d1, shrink : arrays of shape (n, k)
        Log weights of the components, and their `Tilted` members.
    var : array of shape (n,)
        Variance of the cavity.
    """
    joint = log_weights + log_z
    top = joint.max(axis=1)
    r = np.exp(joint - top[:, None])
    total = r.sum(axis=1)
    r /= total[:, None]
    mean = np.einsum("nk,nk->n", r, d1)
    spread = np.einsum("nk,nk->n", r, np.square(d1 - mean[:, None]))
    ratio = np.einsum("nk,nk->n", r, shrink) + var * spread
    return Tilted(top + np.log(total), mean, (ratio - 1.0) / var, ratio, np.empty((len(var), 0))), r


@dataclass(frozen=True)
class Shared(Likelihood):
    """A likelihood of true values of which labelled rows show a share; see the module.

    Rows are told apart by `Observations.short`: 0 for exact rows, 1 for labelled ones, a probability in between, or
    NaN where the label is not known.

    Parameters
    ----------
    base : Likelihood
        Of true values.
    share : Beta
        Distribution of the share.
    label_odds : Parameter
        Odds that a row whose label is not known was short, ``π/(1 − π)``.
    """

    base: Likelihood
    share: Beta = field(default_factory=Beta)
    label_odds: Parameter = field(default_factory=lambda: Parameter(1.0, bounds=BOUNDS, prior=PRIOR))

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Those of the base, then α, β and the odds of a label."""
        return {**self.base.parameters, **self.share.parameters, "label_odds": self.label_odds}

    def with_parameters(self, parameters: Mapping[str, Parameter]) -> Self:
        """The same likelihood at other hyper-parameters."""
        own = {name: parameters[name] for name in self.base.parameters}
        return replace(
            self,
            base=self.base.with_parameters(own),
            share=Beta(parameters["share_alpha"], parameters["share_beta"]),
            label_odds=parameters["label_odds"],
        )

    def starts(self) -> Sequence[Self]:
        """With α and β of a share of which most, half or little is seen, unless they are fixed or have a start."""
        alpha, beta = self.share.parameters.values()
        if (alpha, beta) != tuple(Beta().parameters.values()):
            return ()
        return [
            replace(self, share=Beta(replace(alpha, value=mean * size), replace(beta, value=(1 - mean) * size)))
            for mean, size in _STARTS
        ]

    def to_dict(self) -> dict[str, Any]:
        """α, β and the odds of a label; the base describes itself."""
        return {name: parameter_to_dict(p) for name, p in self.parameters.items() if name not in self.base.parameters}

    @classmethod
    def from_dict(cls, description: dict[str, Any], base: Likelihood | None = None) -> Self:
        """The likelihood that `to_dict` described, of the true values that `base` describes."""
        known = dict(description)
        alpha, beta, odds = (parameter_from_dict(known.pop(k)) for k in ("share_alpha", "share_beta", "label_odds"))
        assert base is not None
        return cls(base, Beta(alpha, beta), odds, **known)

    @cached_property
    def _masses(self) -> Masses:
        return masses(*self.share.values, self.cells)

    @property
    def cells(self) -> Cells:
        """The grid of shares."""
        return _CELLS

    @property
    def _label_probability(self) -> float:
        odds = float(self.label_odds.array[0])
        return odds / (1.0 + odds)

    def _short(self, obs: Observations) -> Array:
        """The probability that each row is a share: as given, or π."""
        short = np.zeros(len(obs)) if obs.short is None else obs.short
        return np.where(np.isnan(short), self._label_probability, short)

    def _log_weights(self, obs: Observations) -> Array:
        """Log weights of the cells, and last of "exact", shape (n, K + 1)."""
        short = self._short(obs)[:, None]
        with np.errstate(divide="ignore"):
            return np.concatenate([np.log(short) + self._masses.log_mass, np.log1p(-short)], axis=1)

    @abstractmethod
    def _components(self, obs: Observations, mean: Array, var: Array) -> tuple[Array, Array, Array, Array]:
        """``log_z, d1, shrink`` of each share and last of "exact", and derivatives of log_z by the base's theta."""

    def tilted(self, obs: Observations, mean: Array, var: Array) -> Tilted:
        """Moments of the mixture; sums without cancellation. Exact rows have those of the base."""
        short = np.zeros(len(obs)) if obs.short is None else obs.short
        exact = short == 0
        if not exact.any():
            return self._mixture(obs, mean, var)
        n, p = len(obs), self.theta.size
        out = Tilted(np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.zeros((n, p)))
        for rows, part in (
            (exact, self.base.tilted(obs[exact], mean[exact], var[exact])),
            (~exact, None if exact.all() else self._mixture(obs[~exact], mean[~exact], var[~exact])),
        ):
            if part is not None:
                out.log_z[rows], out.d1[rows], out.d2[rows] = part.log_z, part.d1, part.d2
                out.shrink[rows], out.d_theta[rows, : part.d_theta.shape[1]] = part.shrink, part.d_theta
        return out

    def _mixture(self, obs: Observations, mean: Array, var: Array) -> Tilted:
        """The same where no row is exact."""
        log_z, d1, shrink, by_base = self._components(obs, mean, var)
        out, r = mixed(self._log_weights(obs), log_z, d1, shrink, var)
        free = [not p.fixed for p in self.share.parameters.values()]
        parts = [np.einsum("nk,nkp->np", r, by_base), r[:, :-1] @ self._masses.by_log[free].T]
        if not self.label_odds.fixed:
            assert obs.short is not None
            by_odds = np.where(np.isnan(obs.short), r[:, :-1].sum(axis=1) - self._label_probability, 0.0)
            parts.append(by_odds[:, None])
        return replace(out, d_theta=np.concatenate(parts, axis=1))

    @abstractmethod
    def moments(self, obs: Observations, mean: Array, var: Array) -> ShareMoments:
        """Posterior of each row's share and true value where f without that row is ``N(mean, var)``."""

    # ---------------------------------------------------- predictions are the base's

    def rate(self, f: Array) -> Array:
        """Expected demand given latent values."""
        return self.base.rate(f)

    def rate_moments(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Mean and variance of `rate`."""
        return self.base.rate_moments(mean, var)

    def rate_covariance(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """Mean and covariance matrix of `rate`."""
        return self.base.rate_covariance(mean, cov)

    def predict(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Mean and variance of a true value."""
        return self.base.predict(mean, var)

    def quantile(self, mean: Array, var: Array, q: Array) -> Array:
        """Quantiles of a true value."""
        return self.base.quantile(mean, var, q)

    def sample(self, f: Array, rng: np.random.Generator) -> Array:
        """True values drawn given latent values."""
        return self.base.sample(f, rng)


@dataclass(frozen=True)
class SharedGaussian(Shared):
    """Gaussian true values, of either sign, in units with a true zero: labelled rows show ``a (f + noise)``.

    Parameters
    ----------
    base, share, label_odds : Gaussian, Beta, Parameter
        See `Shared`.
    zero : float
        Where the true zero lies in units of f, which may be standardised.
    rounding : float
        Standard deviation of the rounding of y. It bounds the density of a share of zero.
    reach : float
        How far from zero a true value may plausibly be; only used to smooth the grid of shares.
    signed : bool
        Whether true values may be negative. If not, a labelled zero, whose sign says nothing, is also a bound: the
        truth is at least zero. Other labelled values have the sign of the truth.

    Examples
    --------
    A labelled 2 where 4 is expected is taken for half of it, and says little about the truth:

    >>> obs = Observations(np.array([2.0, 2.0]), np.array([2.0, 2.0]), short=np.array([0.0, 1.0]))
    >>> t = SharedGaussian(Gaussian(0.1)).tilted(obs, np.full(2, 4.0), np.ones(2))
    >>> t.d1.round(2)  # exact; labelled
    array([-1.82, -0.16])
    """

    units: ClassVar[Units] = "y"

    base: Gaussian = field(default_factory=Gaussian)
    zero: float = 0.0
    rounding: float = _ROUNDING
    reach: float = 10.0
    signed: bool = True

    def filled(self, *, variance: float, level: float, zero: float = 0.0) -> Self:
        """Open hyper-parameters from the variance of the data; the true zero as given."""
        base = self.base.filled(variance=variance, level=level)
        sd = float(np.sqrt(variance))
        return replace(self, base=base, zero=zero, rounding=_ROUNDING * sd, reach=abs(zero) + _REACH * sd)

    def to_dict(self) -> dict[str, Any]:
        """Hyper-parameters, zero, rounding, reach, and whether true values may be negative."""
        own = {"zero": self.zero, "rounding": self.rounding, "reach": self.reach, "signed": self.signed}
        return {**super().to_dict(), **own}

    def validate(self, obs: Observations) -> None:
        """Refuse an exposure."""
        self.base.validate(obs)

    def exact_sites(self, obs: Observations) -> tuple[BoolArray, Array, Array]:
        """Rows that are not labelled are Gaussian in f."""
        exact = np.ones(len(obs), dtype=bool) if obs.short is None else obs.short == 0
        tau = np.where(exact, 1.0 / self.base.noise_variance, 0.0)
        return exact, tau, tau * obs.lower

    def exact_gradient(self, obs: Observations, alpha: Array, precision: Array) -> Array:
        """``½ noise (α² − R)`` by the noise: also where negative sites of other rows make a cavity improper."""
        by_noise = 0.5 * self.base.noise_variance * (alpha**2 - precision)
        out = np.zeros((len(obs), self.theta.size))
        out[:, : self.base.theta.size] = by_noise[:, None]
        return out

    def _scales(self, obs: Observations) -> tuple[Array, Array, Array]:
        """Value above zero (n, 1), shares (K + 1,), and variance of what is seen of each share (n, K + 1).

        A cell of shares about a_k shows the true value, ``y/a_k`` or what is within reach, times its half width as
        further spread of y, so that narrow noise sees a smooth distribution of shares and not a comb of nodes.
        """
        y = (obs.lower - self.zero)[:, None]
        truth = np.minimum(np.abs(y) / self.cells.nodes, self.reach)
        smear = np.square(truth * self.cells.half_widths) + self.rounding**2
        return y, np.append(self.cells.nodes, 1.0), np.concatenate([smear, np.zeros_like(y)], axis=1)

    def _components(self, obs: Observations, mean: Array, var: Array) -> tuple[Array, Array, Array, Array]:
        y, a, smear = self._scales(obs)
        noise = self.base.noise_variance
        total = a**2 * (var + noise)[:, None] + smear
        gap = y - a * (mean - self.zero)[:, None]
        d1 = a * gap / total
        log_z = -0.5 * (np.log(total) + gap**2 / total) - LOG_SQRT_2PI
        d2 = -(a**2) / total
        shrink = (a**2 * noise + smear) / total
        zeros, _, cut = self._not_negative(y, mean, var, smear)
        if zeros.any():
            T, S = (var + noise)[zeros, None], smear[zeros, :-1]
            slope = np.sqrt(S / (total[zeros, :-1] * T))  # of the end of `cut`, by the mean
            bend = -(1.0 - cut.var) * slope**2
            log_z[zeros, :-1] += cut.log_mass
            d1[zeros, :-1] += cut.mean * slope
            d2[zeros, :-1] += bend
            shrink[zeros, :-1] += var[zeros, None] * bend
        # ∂Z/∂noise = ½ ∂²Z/∂m², as for an exact Gaussian.
        by_noise = 0.5 * noise * (d1**2 + d2)
        return log_z, d1, shrink, by_noise[:, :, None][:, :, : self.base.theta.size]

    def _not_negative(self, y: Array, mean: Array, var: Array, smear: Array) -> tuple[BoolArray, Array, Truncated]:
        """Rows that show zero of a truth that is not negative; sd of the truth given each share, and its cut at zero.

        Given the share, the truth has the prior ``N(mean, T)`` and ``0 = a y* + N(0, smear)``. The cut is in units of
        the sd.
        """
        zeros = np.abs(y[:, 0]) <= (-1.0 if self.signed else self.rounding)
        T, S = (var + self.base.noise_variance)[zeros, None], smear[zeros, :-1]
        total = self.cells.nodes**2 * T + S
        sd = np.sqrt(T * S / total)
        centre = ((mean - self.zero)[zeros, None] * S + T * self.cells.nodes * y[zeros]) / total
        return zeros, sd, truncated_above(-centre / sd)

    def moments(self, obs: Observations, mean: Array, var: Array) -> ShareMoments:
        """Posterior of the share and of ``f + noise`` in each row."""
        y, a, smear = self._scales(obs)
        log_z, d1, shrink, _ = self._components(obs, mean, var)
        r = mixed(self._log_weights(obs), log_z, d1, shrink, var)[1]
        # Given the share, y* has the prior N(M, T) and y = a y* + N(0, smear).
        total = (var + self.base.noise_variance)[:, None]
        precision = 1.0 / (a**2 * total + smear)
        given = (mean - self.zero)[:, None] + total * a * (y - a * (mean - self.zero)[:, None]) * precision
        spread = total * smear * precision
        zeros, sd, cut = self._not_negative(y, mean, var, smear)
        given[zeros, :-1] += sd * cut.mean
        spread[zeros, :-1] *= cut.var
        share, value = np.einsum("nk,k->n", r, a), np.einsum("nk,nk->n", r, given)
        within = spread + np.square(given - value[:, None])
        half = np.append(self.cells.half_widths, 0.0)
        share_var = np.einsum("nk,nk->n", r, np.square(a - share[:, None]) + half**2 / 3)
        value_var = np.einsum("nk,nk->n", r, within)
        given_label = self._short(obs)
        short = np.where((given_label == 0) | (given_label == 1), given_label, r[:, :-1].sum(axis=1))
        return ShareMoments(share, np.sqrt(share_var), self.zero + value, np.sqrt(value_var), short)


_CELLS = cells(200)


def shared_class(base: Likelihood) -> type[Shared]:
    """The likelihood of shares of what `base` describes."""
    from unmet.likelihoods.share_counts import SharedCounts  # which builds on this module

    if isinstance(base, Gaussian):
        return SharedGaussian
    if isinstance(base, (Poisson, NegativeBinomial)):
        return SharedCounts
    raise InputError(
        f"shares of {type(base).__name__} are not defined; censoring='share' needs likelihood='gaussian', 'poisson' or "
        "'negative-binomial'"
    )
