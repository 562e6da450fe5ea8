"""The periodic kernel (paper eq. 8, summed over columns)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ive

from unmet._parameters import Parameter
from unmet._typing import Array
from unmet.kernels.base import Columns, Given, Scales
from unmet.kernels.stationary import Lagged, _total

__all__ = ["Periodic"]


def _bessel_ratios(a: float, count: int) -> Array:
    """``I_{j+1}(a)/I_j(a)`` for j = 0…count, by the backward recurrence, which is stable for every a > 0."""
    ratios = np.empty(count + 1)
    depth = count + 20 + int(2 * np.sqrt(40.0 * a))
    ratio = 0.0
    for j in range(depth, -1, -1):
        ratio = 1.0 / (2.0 * (j + 1) / a + ratio)  # I_j = (2(j+1)/a) I_{j+1} + I_{j+2}
        if j <= count:
            ratios[j] = ratio
    return ratios


class Periodic(Lagged):
    """``variance · exp(−2 Σ_c sin²(π |x_c − z_c| / period) / ℓ_c²)``: patterns that repeat.

    The paper's formula puts the Euclidean norm of several columns inside the sine, which is positive definite in
    one dimension only; the sum over columns always is.

    Parameters
    ----------
    period : float or Parameter
        Length of the pattern, in units of the columns. Learnt unless fixed.
    variance, lengthscale : float, sequence (lengthscale: one per column), Parameter or None
        Hyper-parameters; None takes them from the data at fit. The length-scale is relative to the period.
    columns : int, str or sequence of these, optional
        Columns it looks at, by position or name; None for all.

    Examples
    --------
    >>> k = Periodic(period=7.0, variance=1.0, lengthscale=1.0, columns="day")
    >>> k
    Periodic(period=7.0, variance=1.0, lengthscale=1.0, columns='day')
    >>> Periodic(period=7.0, variance=1.0, lengthscale=1.0)([[0.0]], [[14.0]])
    array([[1.]])
    """

    def __init__(
        self,
        period: float | Parameter,
        variance: Given = None,
        lengthscale: Given = None,
        *,
        columns: Columns = None,
    ) -> None:
        super().__init__({"period": period, "variance": variance, "lengthscale": lengthscale}, columns)

    def _fill(self, name: str, parameter: Parameter, scales: Scales) -> Parameter:
        if name == "period":
            period = float(parameter.array[0])
            return parameter.filled(period, (period / 2, period * 2))
        if name == "lengthscale":
            return parameter.filled(1.0, (0.05, 100.0))
        return super()._fill(name, parameter, scales)

    def log_harmonics(self, count: int) -> tuple[Array, Array]:
        """Logs of the prior variances of cos and sin of 0…count cycles per period, and their slopes by log ℓ.

        ``exp(a cos x) = I_0(a) + 2 Σ I_j(a) cos(jx)`` with ``a = 1/ℓ²`` (Abramowitz & Stegun 9.6.34; Solin &
        Särkkä 2014). Columns must be one.
        """
        a = 1.0 / self._one("lengthscale") ** 2
        j = np.arange(count + 2)
        ratio = _bessel_ratios(a, count + 1)  # I_{j+1}/I_j, stable where I_j itself underflows
        log_i = np.log(ive(0, a)) + np.concatenate([[0.0], np.cumsum(np.log(ratio))])
        log_s = np.log(self._one("variance")) + log_i[: count + 1] + np.where(j[: count + 1] > 0, np.log(2.0), 0.0)
        # d log(e^{−a} I_j(a))/d log ℓ = −2a (I_{j+1}/I_j + j/a − 1)
        slope = -2.0 * (a * ratio[: count + 1] + j[: count + 1] - a)
        return log_s, slope

    def _phases(self, distances: Sequence[Array]) -> list[Array]:
        return [np.pi / self._one("period") * d for d in distances]

    def _exponents(self, phases: Sequence[Array]) -> list[Array]:
        lengths = np.broadcast_to(self._parameters["lengthscale"].array, (len(phases),))
        return [2 * np.square(np.sin(p) / ell) for p, ell in zip(phases, lengths, strict=True)]

    def _at_lags(self, distances: Sequence[Array]) -> Array:
        return self._one("variance") * np.exp(-_total(self._exponents(self._phases(distances))))

    def _gradients(self, distances: Sequence[Array], weights: Array) -> dict[str, Array]:
        phases = self._phases(distances)
        exponents = self._exponents(phases)
        k = weights * self._one("variance") * np.exp(-_total(exponents))
        lengths = np.broadcast_to(self._parameters["lengthscale"].array, (len(phases),))
        # ∂/∂log ρ of −2 sin²(p)/ℓ² with p = π d/ρ is 2 p sin(2p)/ℓ²
        by_period = _total([2 * p * np.sin(2 * p) / ell**2 for p, ell in zip(phases, lengths, strict=True)])
        per_column = self._parameters["lengthscale"].array.size > 1
        return {
            "period": np.array(k @ by_period),
            "variance": np.array(k.sum()),
            "lengthscale": np.array([2 * (k @ e) for e in (exponents if per_column else [_total(exponents)])]),
        }
