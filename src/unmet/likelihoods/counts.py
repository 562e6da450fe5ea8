"""Counts with a log link: Poisson and negative binomial, with exposure, background and censoring.

The rate of a full bin is ``λ = exp(log_level + f)``. Exposure a is the fraction of the bin in which demand could be
served. The observed count is Poisson or negative binomial with mean ``a·λ``, so exposure only shifts f by ``log a``.
With background s, the expected number of counts from elsewhere, the mean is ``a·λ + s``.
A row with ``lower = y, upper = ∞`` means that the count was at least y.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import special

from unmet._exceptions import InputError, NumericalError
from unmet._parameters import Parameter, one_number, parameter_from_dict, parameter_to_dict
from unmet._typing import Array, BoolArray, IntArray
from unmet.likelihoods._background import BackgroundCurve
from unmet.likelihoods._count_curves import CountCurve
from unmet.likelihoods._count_moments import count_tilted
from unmet.likelihoods.base import Likelihood, Observations, Tilted, Units

__all__ = ["NegativeBinomial", "Poisson"]

# Bounds of a free dispersion: from almost Poisson to counts that are nearly always zero.
_DISPERSION_BOUNDS = (1e-4, 1e2)
# Largest quantile that is searched for.
_LARGEST = 1e9
# Above this rate a Poisson count is drawn from its normal limit. The difference is below double precision.
_NORMAL_RATE = 1e15


@dataclass(frozen=True)
class _Counts(Likelihood):
    """Common part of the count likelihoods. A dispersion of 0 is Poisson.

    The rate is ``exp(log_level + f)``: f varies around a level that is given, not learnt.
    """

    units: ClassVar[Units] = "log rate"

    log_level: float = field(default=0.0, kw_only=True)

    @property
    @abstractmethod
    def _dispersion(self) -> float:
        """Variance beyond Poisson, as a fraction of the squared mean."""

    def filled(self, *, variance: float, level: float, zero: float = 0.0) -> Self:
        """The rate varies about `level`, unless another level was given."""
        return self if self.log_level else replace(self, log_level=level)

    def to_dict(self) -> dict[str, Any]:
        """The level, and the dispersion as a parameter if there is one."""
        return {"log_level": self.log_level}

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Self:
        """The likelihood that `to_dict` described."""
        return cls(log_level=description["log_level"])

    def validate(self, obs: Observations) -> None:
        """Raise `InputError` for values that are not counts or lower bounds of counts, and for impossible exposures.

        Parameters
        ----------
        obs : Observations
            The rows to check.
        """
        y, upper = obs.lower, obs.upper
        _refuse(
            ~(np.isfinite(y) & (y >= 0) & (y == np.floor(y))),
            "Counts must be whole numbers of at least 0",
            lambda i: f"{y[i]:.6g}",
            "Round or correct them, or use the Gaussian likelihood",
        )
        _refuse(
            (upper != y) & ~np.isposinf(upper),
            "A count must be exact (upper = lower) or a lower bound (upper = inf)",
            lambda i: f"between {y[i]:.6g} and {upper[i]:.6g}",
            "Use the Gaussian likelihood for upper bounds and intervals",
        )
        s = np.zeros(y.size) if obs.background is None else obs.background
        if s.shape != y.shape:
            raise InputError(f"background must have one value per row; got {s.shape} for {y.size} rows")
        _refuse(
            ~(np.isfinite(s) & (s >= 0)),
            "Background must be finite and at least 0",
            lambda i: f"{s[i]:.6g}",
            "Give the expected number of counts from elsewhere",
        )
        if obs.exposure is None:
            return
        a = obs.exposure
        if a.shape != y.shape:
            raise InputError(f"exposure must have one value per row; got {a.shape} for {y.size} rows.")
        _refuse(
            ~((a >= 0) & (a <= 1)),
            "exposure must lie between 0 and 1",
            lambda i: f"{a[i]:.6g}",
            "Give the fraction of the bin in which demand could be served",
        )
        _refuse(
            (a == 0) & (s == 0) & (y > 0),
            "A count must be 0 where exposure is 0",
            lambda i: f"a count of {y[i]:.6g} with exposure 0",
            "Correct the exposure, leave the row out, or give the background it came from",
        )

    def informative(self, obs: Observations) -> BoolArray:
        """Return a mask of the rows with information on f: exposure above 0, and not "at least 0"."""
        some = obs.exact | (obs.lower > 0)
        return some if obs.exposure is None else some & (obs.exposure > 0)

    def tilted(self, obs: Observations, mean: Array, var: Array) -> Tilted:
        """Compute the moments of ``p(obs | f) N(f | mean, var)`` by quadrature around the mode.

        Accurate to 1e-6 of brute-force integration for counts 0…10,000, exposures 1e-6…1, means −30…30 and variances
        1e-8…1e4 (1e2 with background), including far tails of ``P(Y ≥ y)``. Rows without information have
        ``log_z = d1 = d2 = 0`` and ``shrink = 1``. With background, ``shrink`` may exceed 1.
        """
        self.validate(obs)
        _refuse(
            ~(np.isfinite(mean) & np.isfinite(var) & (var > 0)),
            "Means must be finite and variances positive",
            lambda i: f"mean {mean[i]:.6g}, variance {var[i]:.6g}",
            "Correct the calling code",
        )
        n, p = len(obs), self.theta.size
        out = Tilted(np.zeros(n), np.zeros(n), np.zeros(n), np.ones(n), np.zeros((n, p)))
        for rows, curve in self._curves(obs):
            m, v = mean[rows] + self._shift(obs, rows), var[rows]
            part = count_tilted(curve, m, v, p)
            out.log_z[rows], out.d1[rows], out.d2[rows] = part.log_z, part.d1, part.d2
            out.shrink[rows], out.d_theta[rows] = part.shrink, part.d_theta
        return out

    def _curves(self, obs: Observations) -> Iterator[tuple[IntArray, CountCurve | BackgroundCurve]]:
        """Informative rows of each kind, with their curves over the log of the own expected count."""
        some = self.informative(obs)
        mixed = np.zeros(len(obs), dtype=bool) if obs.background is None else obs.background > 0
        for at_least in (False, True):
            for with_background in (False, True):
                rows = np.flatnonzero(some & (obs.exact != at_least) & (mixed == with_background))
                if not rows.size:
                    continue
                curve = CountCurve(obs.lower[rows], self._dispersion, at_least)
                if with_background:
                    assert obs.background is not None
                    yield rows, BackgroundCurve(curve, obs.background[rows])
                else:
                    yield rows, curve

    def _shift(self, obs: Observations, rows: IntArray) -> Array | float:
        """From f to the log of the own expected count."""
        return self.log_level if obs.exposure is None else self.log_level + np.log(obs.exposure[rows])

    def log_likelihood(self, obs: Observations, f: Array) -> Array:
        """Return ``log p(obs | f)`` per row; f has shape ``(n,)`` or ``(k, n)``."""
        return self._curve(obs, f)[0]

    def derivatives(self, obs: Observations, f: Array) -> tuple[Array, Array]:
        """Return the first and second derivative of `log_likelihood` by f."""
        return self._curve(obs, f)[1:]

    def _curve(self, obs: Observations, f: Array) -> tuple[Array, Array, Array]:
        out = (np.zeros(f.shape), np.zeros(f.shape), np.zeros(f.shape))
        for rows, curve in self._curves(obs):
            for to, value in zip(out, curve(f[..., rows] + self._shift(obs, rows)), strict=True):
                to[..., rows] = value
        return out

    def rate(self, f: Array) -> Array:
        """Return the expected demand of a full bin given latent values; infinite beyond the range of a double."""
        with np.errstate(over="ignore"):
            return np.exp(self.log_level + f)

    def rate_moments(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Return mean and variance of the log-normal rate."""
        return self.rate(mean + 0.5 * var), self._spread(mean, var, 0.0)

    def rate_covariance(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """Return mean and covariance matrix of the log-normal rates."""
        with np.errstate(over="ignore"):
            expected = self.rate(mean + 0.5 * np.diag(cov))
            return expected, np.multiply.outer(expected, expected) * np.expm1(cov)

    def predict(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Return mean and variance of demand in a full bin for ``f ~ N(mean, var)``.

        Uses the moments of the log-normal rate. Infinite where they exceed the range of a double.
        """
        expected = self.rate(mean + 0.5 * var)
        return expected, expected + self._spread(mean, var, self._dispersion)

    def _spread(self, mean: Array, var: Array, dispersion: float) -> Array:
        """Return ``Var[λ] + dispersion·E[λ²] = exp(2m + 2v)·(1 − exp(−v) + dispersion)`` of the log-normal rate."""
        with np.errstate(over="ignore", divide="ignore"):
            return np.exp(2 * (self.log_level + mean + var) + np.log(dispersion - np.expm1(-var)))

    def quantile(self, mean: Array, var: Array, q: Array) -> Array:
        """Return quantiles of demand in a full bin, shape ``(len(q), n)``: the smallest counts k with ``P(Y ≤ k) ≥ q``.

        Parameters
        ----------
        mean, var : array of shape (n,)
            Mean and variance of f.
        q : array
            Probabilities, strictly between 0 and 1.
        """
        q = np.atleast_1d(np.asarray(q, dtype=float))
        if not ((q > 0) & (q < 1)).all():
            raise InputError(f"q must lie strictly between 0 and 1; got {q.tolist()}.")
        # Below this variance the rate is constant in double precision.
        m, v = np.tile(mean + self.log_level, q.size), np.tile(np.maximum(var, 1e-16), q.size)
        below = np.repeat(q, mean.size)
        return _smallest_count(self._cdf, m, v, below, self._dispersion).reshape(q.size, mean.size)

    def _cdf(self, k: Array, mean: Array, var: Array) -> Array:
        """Return ``P(Y ≤ k)`` of a full bin: 1 minus the evidence of "at least k + 1"."""
        curve = CountCurve(k + 1, self._dispersion, at_least=True)
        return -np.expm1(np.minimum(count_tilted(curve, mean, var, 0).log_z, 0.0))

    def sample(self, f: Array, rng: np.random.Generator) -> Array:
        """Draw demand of full bins given latent values: whole numbers."""
        rate = self.rate(f)
        if self._dispersion > 0:
            rate = rate * rng.standard_gamma(1 / self._dispersion, size=f.shape) * self._dispersion
        if not np.isfinite(rate).all():
            raise NumericalError(
                f"Cannot draw counts: latent values up to {np.max(f):.4g} give rates beyond double precision. "
                "Check the hyper-parameters, and how far from the data the inputs are."
            )
        large = rate > _NORMAL_RATE
        drawn = rng.poisson(np.where(large, 0.0, rate)).astype(float)
        return np.where(large, np.rint(rate + np.sqrt(rate) * rng.standard_normal(f.shape)), drawn)


@dataclass(frozen=True)
class Poisson(_Counts):
    """Poisson counts with log link: ``Y ~ Poisson(exposure · exp(f) + background)``.

    Parameters
    ----------
    log_level : float
        Log of the rate around which f varies.

    See Also
    --------
    NegativeBinomial : Counts with more variance than Poisson.

    Examples
    --------
    Two riders in half a bin, at least three in a bin that ran empty, and a bin that was never open:

    >>> obs = Observations(np.array([2.0, 3.0, 0.0]), np.array([2.0, np.inf, 0.0]), np.array([0.5, 1.0, 0.0]))
    >>> Poisson().tilted(obs, np.zeros(3), np.ones(3)).d1.round(3)
    array([0.722, 1.129, 0.   ])
    """

    @property
    def _dispersion(self) -> float:
        return 0.0


@dataclass(frozen=True)
class NegativeBinomial(_Counts):
    """Counts with more variance than Poisson: mean ``λ = exp(f)`` and variance ``λ + dispersion·λ²`` in a full bin.

    Demand of a full bin is Poisson with a gamma-distributed rate of mean λ and shape ``r = 1/dispersion``.
    With exposure a, each rider is observed with probability a. The observed count is again negative binomial,
    with mean ``a·λ`` and the same shape. With background s the mean is ``a·λ + s``.

    Parameters
    ----------
    dispersion : float or Parameter
        Starting value of the dispersion, which is learnt. ``Parameter(0.1, fixed=True)`` keeps it fixed.
    log_level : float
        Log of the rate around which f varies.

    See Also
    --------
    Poisson : The limit of dispersion 0.

    Examples
    --------
    >>> NegativeBinomial(dispersion=0.2).predict(np.zeros(1), np.zeros(1))
    (array([1.]), array([1.2]))
    """

    dispersion: float | Parameter | None = 0.1

    def __post_init__(self) -> None:
        filled = one_number(self.dispersion, "dispersion").filled(0.1, _DISPERSION_BOUNDS)
        object.__setattr__(self, "dispersion", filled)

    @property
    def _parameter(self) -> Parameter:
        assert isinstance(self.dispersion, Parameter)
        return self.dispersion

    @property
    def _dispersion(self) -> float:
        return float(self._parameter.array[0])

    @property
    def log_dispersion(self) -> float:
        """Log of the dispersion, whether fixed or free."""
        return float(np.log(self._dispersion))

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The dispersion."""
        return {"dispersion": self._parameter}

    def to_dict(self) -> dict[str, Any]:
        """The dispersion as a parameter, and the level."""
        return {"parameter": parameter_to_dict(self._parameter), **super().to_dict()}

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Self:
        """The likelihood that `to_dict` described."""
        return cls(parameter_from_dict(description["parameter"]), log_level=description["log_level"])


def _refuse(bad: BoolArray, expected: str, found: Callable[[int], str], advice: str) -> None:
    """Raise `InputError` if any row is bad; `found` describes the value of a row."""
    rows = np.flatnonzero(bad)
    if rows.size:
        shown = "; ".join(f"row {i} has {found(int(i))}" for i in rows[:5])
        more = "" if rows.size <= 5 else f" and {rows.size - 5} more rows"
        raise InputError(f"{expected}: {shown}{more}. {advice}.", row=int(rows[0]))


def _smallest_count(
    cdf: Callable[[Array, Array, Array], Array], mean: Array, var: Array, q: Array, dispersion: float
) -> Array:
    """Return the smallest whole k ≥ 0 with ``cdf(k) ≥ q``, by bracketed secants of the normal score over log(k + 1)."""
    score = special.ndtri(q)
    # Log-normal guess: the variance of the count is added to that of the rate.
    with np.errstate(over="ignore"):
        width = np.sqrt(var + dispersion + 1 / (1 + np.exp(mean)))
        k = np.floor(np.exp(np.minimum(mean + score * width, np.log(_LARGEST))))
    low, low_gap = np.full(k.size, -1.0), np.full(k.size, -np.inf)  # cdf(low) < q
    high, high_gap = np.full(k.size, np.inf), np.full(k.size, np.inf)  # cdf(high) ≥ q
    active = np.arange(k.size)
    for turn in range(200):
        here = k[active]
        p = cdf(here, mean[active], var[active])
        gap = special.ndtri(p) - score[active]
        enough = p >= q[active]
        is_high, is_low = active[enough], active[~enough]
        high[is_high], high_gap[is_high] = here[enough], gap[enough]
        low[is_low], low_gap[is_low] = here[~enough], gap[~enough]
        beyond = np.flatnonzero(low >= _LARGEST)
        if beyond.size:
            i = int(beyond[0])
            raise NumericalError(
                f"A quantile exceeds {_LARGEST:.0e} where the log-rate has mean {mean[i]:.4g} and variance "
                f"{var[i]:.4g}. Check the hyper-parameters, and how far from the data the inputs are."
            )
        active = active[high[active] - low[active] > 1]
        if not active.size:
            return high
        k[active] = _next_count(low[active], high[active], low_gap[active], high_gap[active], width[active], turn)
    raise NumericalError("Quantiles did not converge within 200 steps. Check the hyper-parameters.")


def _next_count(low: Array, high: Array, low_gap: Array, high_gap: Array, width: Array, turn: int) -> Array:
    """Return the next count to try, between or beyond the tried ones: a secant step, or every third turn the middle."""
    seen = np.isfinite(high)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        a, b = np.log1p(low + 0.5), np.log1p(high + 0.5)
        both = np.isfinite(low_gap) & np.isfinite(high_gap)
        share = np.where(both & (turn % 3 != 2), low_gap / (low_gap - high_gap), 0.5)
        # No upper end of the bracket yet: step by the slope of the normal score, further with every turn.
        climb = np.where(np.isfinite(low_gap), -low_gap, 1.0) * width * (1.0 + turn)
        guess = np.rint(np.expm1(a + np.where(seen, share * (b - a), climb)))
    return np.asarray(np.clip(guess, low + 1, np.where(seen, high - 1, _LARGEST)))
