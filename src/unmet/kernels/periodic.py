"""The periodic kernel (paper eq. 8, summed over columns)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import ive

from unmet._exceptions import InputError
from unmet._parameters import Parameter
from unmet._typing import Array
from unmet.kernels.base import Columns, Given
from unmet.kernels.scales import Scales
from unmet.kernels.stationary import Lagged, _total

__all__ = ["Periodic"]


def _bessel_ratios(a: float, count: int) -> Array:
    """Return ``I_{j+1}(a)/I_j(a)`` for j = 0…count, by the backward recurrence, which is stable for every a > 0."""
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

    The paper's formula has the Euclidean norm of several columns inside the sine, which is positive definite in
    one dimension only. The sum over columns is always positive definite.

    Parameters
    ----------
    period : float or Parameter
        Length of the pattern, in units of the columns. Learnt unless fixed, by default within half a cycle over the
        range of the data. Give bounds for a wider search.
    variance, lengthscale : float, sequence (lengthscale: one per column), Parameter or None
        Hyper-parameters. None takes them from the data at fit. The length-scale is relative to the period.
    columns : int, str or sequence of these, optional
        Columns to use, by position or name; None for all.

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
        if self._parameters["period"].is_open:
            raise InputError("Periodic: give a period, in units of its columns. It cannot be taken from the data.")

    def _fill(self, name: str, parameter: Parameter, scales: Scales) -> Parameter:
        if name == "period":
            # The evidence has a maximum for each number of cycles over the data: stay at the given one.
            period, span = float(parameter.array[0]), float(scales.range[list(self._at)].max())
            slack = np.exp(min(period / (2 * span) if span > 0 else np.inf, np.log(2.0)))
            return parameter.filled(period, (period / slack, period * slack))
        if name == "lengthscale":
            return parameter.filled((1.0,) * len(self._at) if parameter.per_column else 1.0, (0.05, 100.0))
        return super()._fill(name, parameter, scales)

    def log_harmonics(self, count: int) -> tuple[Array, Array]:
        """Return logs of the prior variances of cos and sin of 0…count cycles per period, and their slopes by log ℓ.

        ``exp(a cos x) = I_0(a) + 2 Σ I_j(a) cos(jx)`` with ``a = 1/ℓ²`` (Abramowitz & Stegun 9.6.34; Solin &
        Särkkä 2014). The kernel must have one column.
        """
        a = 1.0 / self._one("lengthscale") ** 2
        j = np.arange(count + 2)
        ratio = _bessel_ratios(a, count + 1)  # I_{j+1}/I_j is finite where I_j itself underflows
        log_i = np.log(ive(0, a)) + np.concatenate([[0.0], np.cumsum(np.log(ratio))])
        log_s = np.log(self._one("variance")) + log_i[: count + 1] + np.where(j[: count + 1] > 0, np.log(2.0), 0.0)
        # d log(e^{−a} I_j(a))/d log ℓ = −2a (I_{j+1}/I_j + j/a − 1)
        slope = -2.0 * (a * ratio[: count + 1] + j[: count + 1] - a)
        return log_s, slope

    def _columns(self, distances: Sequence[Array]) -> Iterator[tuple[Array, float]]:
        """Yield per column the phase ``π d/period`` and the length-scale."""
        lengths = np.broadcast_to(self._parameters["lengthscale"].array, (len(distances),))
        for d, ell in zip(distances, lengths, strict=True):
            yield np.pi / self._one("period") * d, float(ell)

    def _at_lags(self, distances: Sequence[Array]) -> Array:
        total = _total(2 * np.square(np.sin(phase) / ell) for phase, ell in self._columns(distances))
        return self._one("variance") * np.exp(-total)

    def _gradients(self, distances: Sequence[Array], weights: Array) -> dict[str, Array]:
        k = weights * self._at_lags(distances)
        # Column by column, because without a grid these arrays are as large as half the matrix.
        by_period, by_length = 0.0, []
        for phase, ell in self._columns(distances):
            # ∂/∂log ρ of −2 sin²(p)/ℓ² with p = π d/ρ is 2 p sin(2p)/ℓ²; by log ℓ it is 4 sin²(p)/ℓ²
            by_period += 2 / ell**2 * float(k @ (phase * np.sin(2 * phase)))
            by_length.append(4 / ell**2 * float(k @ np.square(np.sin(phase))))
        per_column = self._parameters["lengthscale"].array.size > 1
        return {
            "period": np.array(by_period),
            "variance": np.array(k.sum()),
            "lengthscale": np.array(by_length if per_column else [sum(by_length)]),
        }
