"""Positive hyper-parameters: one value (or one per column), bounds, and whether they are free.

Kernels and likelihoods store their hyper-parameters as `Parameter`; optimisers use their logs.
A value of ``None`` is *open*: it is taken from the scale of the data when a model is fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unmet._exceptions import InputError
from unmet._numbers import read_switch
from unmet._typing import Array

__all__ = ["Bounds", "LogNormal", "Parameter", "as_parameter", "one_number", "parameter_from_dict", "parameter_to_dict"]

_SMALLEST = float(np.finfo(float).tiny)  # the inverse of a smaller number is infinite
Bounds = tuple[float, float] | tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class LogNormal:
    """A log-normal prior on a positive hyper-parameter.

    Parameters
    ----------
    median : float
        Median of the hyper-parameter.
    sd : float
        Standard deviation of its log.

    Examples
    --------
    >>> LogNormal(median=7.0, sd=0.5).log_density(np.log([7.0])).round(3)
    array([-0.226])
    """

    median: float
    sd: float

    def __post_init__(self) -> None:
        if not (self.median > 0 and self.sd > 0 and np.isfinite(self.median) and np.isfinite(self.sd)):
            raise InputError(f"LogNormal needs a median > 0 and an sd > 0; got median={self.median}, sd={self.sd}.")

    def log_density(self, log_value: Array) -> Array:
        """Return the log density over ``log(value)``: normal with mean ``log(median)``."""
        z = (np.asarray(log_value) - np.log(self.median)) / self.sd
        return -0.5 * z**2 - np.log(self.sd) - 0.5 * np.log(2 * np.pi)

    def d_log_density(self, log_value: Array) -> Array:
        """Return the derivative of `log_density` by ``log(value)``."""
        return -(np.asarray(log_value) - np.log(self.median)) / self.sd**2


@dataclass(frozen=True)
class Parameter:
    """A positive hyper-parameter.

    Parameters
    ----------
    value : float, sequence of float or None
        The value, or one per column if a sequence. None takes it from the data at fit.
    bounds : (float, float), or one such pair per column, optional
        Bounds of the search. None takes them from the data at fit.
    fixed : bool
        Whether the value stays as it is.
    prior : LogNormal, optional
        Prior. Its log density is added to the evidence (maximum a posteriori instead of type-II ML).
    per_column : bool
        Whether an open value becomes one value per column. Kernels also accept the string ``"per column"`` for this.

    Examples
    --------
    >>> Parameter(2.0, bounds=(0.1, 10.0))
    Parameter(2.0, bounds=(0.1, 10.0))
    >>> Parameter(7.0, fixed=True).theta
    array([], dtype=float64)
    """

    value: float | tuple[float, ...] | None = None
    bounds: Bounds | None = None
    fixed: bool = False
    prior: LogNormal | None = None
    per_column: bool = False

    def __post_init__(self) -> None:
        for name in ("fixed", "per_column"):
            read_switch(getattr(self, name), name)
        if self.value is not None:
            flat = np.atleast_1d(np.asarray(self.value, dtype=float))
            if flat.ndim != 1 or flat.size == 0 or not ((flat >= _SMALLEST) & np.isfinite(flat)).all():
                raise InputError(
                    f"A hyper-parameter must be a positive, finite number (or one per column); got {self.value!r}."
                )
            as_given = tuple(float(v) for v in flat) if np.ndim(self.value) else float(flat[0])
            object.__setattr__(self, "value", as_given)
        elif self.fixed:
            raise InputError("A fixed hyper-parameter needs a value; got value=None with fixed=True.")
        if self.prior is not None and not isinstance(self.prior, LogNormal):
            raise InputError(f"prior must be a LogNormal, or None; got {self.prior!r:.60}.")
        if self.bounds is not None:
            rows = np.asarray(self.bounds, dtype=float)
            if (
                rows.shape[-1:] != (2,)
                or rows.ndim > 2
                or not ((rows[..., 0] > 0) & (rows[..., 0] <= rows[..., 1])).all()
            ):
                raise InputError(f"bounds must be 0 < low <= high, one pair or one per column; got {self.bounds!r}.")
            pairs = [(float(low), float(high)) for low, high in np.atleast_2d(rows)]
            object.__setattr__(self, "bounds", pairs[0] if rows.ndim == 1 else tuple(pairs))
            if rows.ndim == 2 and self.value is not None and len(pairs) != self.array.size:
                raise InputError(f"Give one pair of bounds, or one per value; got {len(pairs)} for {self.value!r}.")

    @property
    def is_open(self) -> bool:
        """Whether the value has to be taken from data."""
        return self.value is None

    @property
    def array(self) -> Array:
        """The value as an array with one element, or one per column."""
        if self.value is None:
            raise InputError(
                "This hyper-parameter is open. Give it a value, or fit a model, which takes it from the data."
            )
        return np.atleast_1d(np.asarray(self.value, dtype=float))

    @property
    def theta(self) -> Array:
        """Logs of the free values; empty if fixed."""
        return np.empty(0) if self.fixed else np.log(self.array)

    @property
    def theta_bounds(self) -> Array:
        """Bounds of `theta`, one row per element; infinite if not set."""
        rows = np.array([-np.inf, np.inf]) if self.bounds is None else np.log(np.asarray(self.bounds))
        return np.array(np.broadcast_to(rows, (self.theta.size, 2)))

    def with_theta(self, theta: Array) -> Parameter:
        """Return the parameter with new logs of its free values."""
        if self.fixed or np.array_equal(theta, self.theta):  # exp(log(7)) is not quite 7
            return self
        values = np.exp(theta)
        return replace(self, value=tuple(values) if isinstance(self.value, tuple) else float(values[0]))

    def filled(self, value: float | tuple[float, ...], bounds: Bounds) -> Parameter:
        """Return the parameter with its open parts filled.

        An open value is moved within the bounds. Open bounds are widened to include the value.

        Parameters
        ----------
        value : float or tuple of float
            Value to use if open.
        bounds : pair, or tuple of pairs
            Bounds to use if open.
        """
        new = self.value if self.value is not None else value
        if self.bounds is None:
            low, high = np.moveaxis(np.asarray(bounds, dtype=float), -1, 0)
            low, high = np.minimum(low, new), np.maximum(high, new)
            return replace(self, value=new, bounds=tuple(np.stack([low, high], axis=-1).tolist()))
        low, high = np.moveaxis(np.asarray(self.bounds), -1, 0)
        if self.value is None:
            within = np.clip(value, low, high)
            return replace(self, value=tuple(within.tolist()) if within.ndim else float(within))
        if (self.array < low * (1 - 1e-9)).any() or (self.array > high * (1 + 1e-9)).any():
            raise InputError(f"The value {self.value} lies outside its bounds {self.bounds}. Change one of them.")
        return self

    def log_prior(self) -> tuple[float, Array]:
        """Return the log prior density of `theta` and its gradient; zero without a prior."""
        theta = self.theta
        if self.prior is None:
            return 0.0, np.zeros(theta.size)
        return float(self.prior.log_density(theta).sum()), self.prior.d_log_density(theta)

    def __repr__(self) -> str:
        parts = [_short(self.value)]
        parts += [f"bounds={self.bounds}"] if self.bounds else []
        parts += ["fixed=True"] if self.fixed else []
        parts += [f"prior={self.prior}"] if self.prior else []
        parts += ["per_column=True"] if self.per_column else []
        return f"Parameter({', '.join(parts)})"

    def __str__(self) -> str:
        return "'per column'" if self.per_column and self.is_open else _short(self.value)


def _short(value: float | tuple[float, ...] | None) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(f"{v:.4g}" if not float(v).is_integer() else f"{v}" for v in value) + "]"
    return "None" if value is None else (f"{value:.4g}" if not float(value).is_integer() else f"{value}")


def as_parameter(given: float | Sequence[float] | str | Parameter | None) -> Parameter:
    """Return a `Parameter` from a number, one number per column, "per column", None or a `Parameter`."""
    if isinstance(given, str):
        if given != "per column":
            raise InputError(f"A hyper-parameter must be a number, one per column, or 'per column'; got {given!r}.")
        return Parameter(per_column=True)
    return given if isinstance(given, Parameter) else Parameter(given)  # type: ignore[arg-type]


def one_number(given: float | Parameter | None, name: str) -> Parameter:
    """A `Parameter` that is not one value per column, or a refusal that names it."""
    try:
        parameter = as_parameter(given)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    if parameter.per_column or isinstance(parameter.value, tuple):
        raise InputError(f"{name} must be one number; got {given!r}.")
    return parameter


def parameter_to_dict(parameter: Parameter) -> dict[str, Any]:
    """Return a JSON-able description."""
    value, prior = parameter.value, parameter.prior
    return {
        "value": list(value) if isinstance(value, tuple) else value,
        "bounds": None if parameter.bounds is None else np.asarray(parameter.bounds).tolist(),
        "fixed": parameter.fixed,
        "prior": None if prior is None else [prior.median, prior.sd],
        "per_column": parameter.per_column,
    }


def parameter_from_dict(description: dict[str, Any]) -> Parameter:
    """Read the description written by `parameter_to_dict`."""
    value, prior = description["value"], description["prior"]
    return Parameter(
        value=tuple(value) if isinstance(value, list) else value,
        bounds=description["bounds"],
        fixed=bool(description["fixed"]),
        prior=None if prior is None else LogNormal(*prior),
        per_column=bool(description["per_column"]),
    )
