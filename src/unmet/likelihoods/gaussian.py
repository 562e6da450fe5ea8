"""Gaussian observation noise, with or without censoring: the Tobit likelihood (paper eqs. 10 and 18–20).

With ``f ~ N(m, v)``, the uncensored observation is ``y* ~ N(m, s²)``, ``s² = v + noise``. The condition that y* lies in
``[lower, upper]`` truncates that normal. All moments follow from the mean and variance of a truncated standard normal
``x = (y* − m)/s``: ``d1 = E[x]/s``, ``d2 = (Var[x] − 1)/s²``. An exact observation is the limit ``Var[x] = 0``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import ndtri

from unmet._exceptions import InputError
from unmet._normal import Truncated, log_pdf, truncated_above, truncated_between
from unmet._parameters import Parameter, one_number, parameter_from_dict, parameter_to_dict
from unmet._typing import Array, BoolArray
from unmet.likelihoods.base import Kinds, Likelihood, Observations, Tilted, Units

__all__ = ["Gaussian"]

# Start and bounds of an open noise variance, as shares of the variance of the data.
_NOISE_START, _NOISE_BOUNDS = 0.1, (1e-6, 10.0)


class Gaussian(Likelihood):
    """Gaussian noise; each observation exact, censored from above, from below, or known to an interval.

    Parameters
    ----------
    noise_variance : float or Parameter, optional
        Variance of an uncensored observation about the latent value; None starts at a tenth of the data's variance.

    Examples
    --------
    >>> seen = Observations(lower=np.array([1.0, 1.0]), upper=np.array([1.0, np.inf]))
    >>> t = Gaussian(0.5).tilted(seen, mean=np.zeros(2), var=np.ones(2))
    >>> t.log_z.round(3)  # an exact 1; at least 1
    array([-1.455, -1.575])
    """

    units: ClassVar[Units] = "y"

    def __init__(self, noise_variance: float | Parameter | None = None) -> None:
        self.parameter = one_number(noise_variance, "noise_variance")

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The noise variance."""
        return {"noise_variance": self.parameter}

    def with_parameters(self, parameters: Mapping[str, Parameter]) -> Self:
        """The same likelihood at another noise variance."""
        return type(self)(parameters["noise_variance"])

    @property
    def noise_variance(self) -> float:
        """Variance of the observation noise."""
        return float(self.parameter.array[0])

    def filled(self, *, variance: float, level: float, zero: float = 0.0) -> Self:
        """An open noise variance starts at a tenth of `variance`."""
        low, high = (share * variance for share in _NOISE_BOUNDS)
        return type(self)(self.parameter.filled(_NOISE_START * variance, (low, high)))

    def to_dict(self) -> dict[str, Any]:
        """The noise variance as a parameter."""
        return {"parameter": parameter_to_dict(self.parameter)}

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Self:
        """The likelihood that `to_dict` described."""
        return cls(parameter_from_dict(description["parameter"]))

    def validate(self, obs: Observations) -> None:
        """Refuse an exposure."""
        if obs.exposure is not None:
            raise InputError(
                "exposure needs a count likelihood: the distribution of a Gaussian total in part of a bin is not "
                "defined. Use likelihood='poisson' or 'negative-binomial', or mark such rows censored=True."
            )

    def exact_sites(self, obs: Observations) -> tuple[BoolArray, Array, Array]:
        """Return the exact observations, which are Gaussian in f: ``τ = 1/noise``, ``ν = y/noise``."""
        exact = obs.exact
        tau = np.where(exact, 1.0 / self.noise_variance, 0.0)
        return exact, tau, tau * np.where(exact, obs.lower, 0.0)

    def tilted(self, obs: Observations, mean: Array, var: Array) -> Tilted:
        """Compute the moments of the truncated normal. Accurate for bounds up to 1e6 standard deviations away."""
        noise = self.noise_variance
        total = var + noise
        s = np.sqrt(total)
        log_z, x, x_var = _cut((obs.lower - mean) / s, (obs.upper - mean) / s, obs.kinds)
        log_z[obs.kinds.exact] -= np.log(s[obs.kinds.exact])
        d1 = x / s
        d2 = (x_var - 1.0) / total
        # Smoothing by a Gaussian obeys the heat equation: ∂Z/∂noise = ½ ∂²Z/∂m².
        d_noise = 0.5 * noise * (np.square(d1) + d2)
        return Tilted(
            log_z=log_z,
            d1=d1,
            d2=d2,
            shrink=(noise + var * x_var) / total,
            d_theta=d_noise[:, None][:, : self.theta.size],
        )

    def rate(self, f: Array) -> Array:
        """Return f itself."""
        return f

    def rate_moments(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Return the mean and variance of f itself."""
        return mean, var

    def rate_covariance(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """Return the mean and covariance of f itself."""
        return mean, cov

    def predict(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Return mean and variance of an uncensored observation."""
        return mean, var + self.noise_variance

    def quantile(self, mean: Array, var: Array, q: Array) -> Array:
        """Return quantiles of an uncensored observation, shape ``(len(q), n)``."""
        return mean + np.sqrt(var + self.noise_variance) * ndtri(np.asarray(q))[:, None]

    def sample(self, f: Array, rng: np.random.Generator) -> Array:
        """Draw uncensored observations given latent values."""
        return f + rng.normal(scale=np.sqrt(self.noise_variance), size=f.shape)


def _cut(a: Array, b: Array, kinds: Kinds) -> Truncated:
    """Return the moments of a standard normal at (``a = b``) or between scaled bounds.

    Each row uses the cheapest exact rule.
    """
    # A row without bounds has mass 1, mean 0 and variance 1.
    log_z, x, x_var = np.zeros_like(a), np.zeros_like(a), np.ones_like(a)
    rows = kinds.exact
    log_z[rows], x[rows], x_var[rows] = log_pdf(a[rows]), a[rows], 0.0
    for rows, end, sign in ((kinds.at_least, a, 1.0), (kinds.at_most, b, -1.0)):
        if rows.size:
            log_z[rows], mean, x_var[rows] = truncated_above(sign * end[rows])
            x[rows] = sign * mean
    rows = kinds.between
    if rows.size:
        log_z[rows], x[rows], x_var[rows] = truncated_between(a[rows], b[rows])
    return Truncated(log_z, x, x_var)
