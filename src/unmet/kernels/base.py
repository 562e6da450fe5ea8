"""Kernels: immutable covariance functions with hyper-parameters in log space, closed under + and ×.

Naming: ``theta`` are the logs of the free hyper-parameters; ``F`` is a matrix of weights. Derivatives are contracted
with it, ``g_k = Σij Fij ∂Kij/∂theta_k``, so that no n × n × p array is ever made.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._parameters import Parameter, as_parameter, parameter_to_dict
from unmet._typing import Array
from unmet.kernels.pairs import Pairs, Values, Weights
from unmet.kernels.scales import Scales

__all__ = ["Columns", "Kernel", "Leaf", "Product", "Sum", "refuse_repeated_names"]

Columns = int | str | Sequence[int | str] | None
Given = float | Sequence[float] | Parameter | str | None


class Kernel(ABC):
    """A covariance function.

    Kernels are immutable; `with_theta` returns a new one. Call a kernel with inputs, an array or a DataFrame, to get
    the covariance matrix.
    """

    @property
    @abstractmethod
    def theta(self) -> Array:
        """Logs of the free hyper-parameters, left to right as in the `repr`."""

    @property
    @abstractmethod
    def bounds(self) -> Array:
        """Bounds of `theta`, one row each; infinite if not set."""

    @property
    @abstractmethod
    def theta_names(self) -> list[str]:
        """Name of each element of `theta`, such as ``SquaredExponential.lengthscale``."""

    @abstractmethod
    def with_theta(self, theta: Array) -> Kernel:
        """Return the kernel at other hyper-parameters."""

    @abstractmethod
    def log_prior(self) -> tuple[float, Array]:
        """Return the log prior density of `theta`, and its gradient."""

    @abstractmethod
    def filled(self, scales: Scales) -> Kernel:
        """Return the kernel with open hyper-parameters and bounds filled from the scales of data."""

    @abstractmethod
    def resolved(self, names: Sequence[str] | None, width: int) -> Kernel:
        """Return the kernel with columns as positions in inputs of `width` columns named `names`."""

    @abstractmethod
    def diag(self, X: Array) -> Array:
        """Return the diagonal of ``self(X)`` without computing the rest."""

    @abstractmethod
    def with_columns_of(self, other: Kernel) -> Kernel:
        """Return the kernel with the columns of another kernel of the same form, by name if that has names."""

    @abstractmethod
    def leaves(self) -> list[Leaf]:
        """Return the leaf kernels that it is composed of, left to right."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description. `unmet.kernels.kernel_from_dict` reads it."""

    @abstractmethod
    def _cross(self, X: Array, Z: Array) -> Array:
        """Return the covariance between two sets of inputs."""

    @abstractmethod
    def on(self, pairs: Pairs) -> Values:
        """Evaluate the kernel on all pairs of fixed inputs."""

    @abstractmethod
    def contract(self, pairs: Pairs, weights: Weights) -> Array:
        """Return ``Σij Fij ∂Kij/∂theta`` over the pairs of fixed inputs."""

    def __call__(self, X: Any, Z: Any = None) -> Array:
        """Return the covariance matrix of X, or between X and Z.

        Parameters
        ----------
        X, Z : array-like or DataFrame of shapes (n, d) and (m, d)
            Inputs. Columns of two DataFrames are matched by name.

        Returns
        -------
        array of shape (n, n) or (n, m)

        Examples
        --------
        >>> from unmet.kernels import SquaredExponential
        >>> SquaredExponential(variance=2.0, lengthscale=1.0)([[0.0], [1.0]]).round(3)
        array([[2.   , 1.213],
               [1.213, 2.   ]])
        """
        kernel, X_ = _arrays(self, X)
        if Z is None:
            return np.array(kernel.on(Pairs(X_)).matrix(len(X_)))
        if isinstance(X, pd.DataFrame) and isinstance(Z, pd.DataFrame) and set(X.columns) == set(Z.columns):
            Z = Z[X.columns]  # match columns by name
        _, Z_ = _arrays(self, Z)
        if X_.shape[1] != Z_.shape[1]:
            raise InputError(
                f"Two tables of inputs must have the same columns; got {X_.shape[1]} columns and {Z_.shape[1]}."
            )
        return kernel._cross(X_, Z_)

    def contract_gradient(self, X: Any, F: Array) -> Array:
        """Return ``Σij Fij ∂K(X)ij/∂theta``, one number per element of `theta`.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Inputs.
        F : array of shape (n, n)
            Weights.
        """
        kernel, X_ = _arrays(self, X)
        return kernel.contract(Pairs(X_), Weights(np.asarray(F, dtype=float)))

    def __add__(self, other: Kernel | float) -> Kernel:
        return Sum(self, _as_kernel(other))

    def __radd__(self, other: float) -> Kernel:
        return Sum(_as_kernel(other), self)

    def __mul__(self, other: Kernel | float) -> Kernel:
        return Product(self, _as_kernel(other))

    def __rmul__(self, other: float) -> Kernel:
        return Product(_as_kernel(other), self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(repr(self))


def _as_kernel(given: Kernel | float) -> Kernel:
    if isinstance(given, Kernel):
        return given
    from unmet.kernels.structured import Constant  # a number in a formula is a constant kernel

    return Constant(given)


def refuse_repeated_names(names: Iterable[Any]) -> None:
    """Raise `InputError` if a column name occurs more than once."""
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"Column names must differ; {name!r} occurs {count} times. Rename or leave out columns.")


def _arrays(kernel: Kernel, X: Any) -> tuple[Kernel, Array]:
    names = None
    if isinstance(X, pd.DataFrame):
        refuse_repeated_names(X.columns)
        names = [str(c) for c in X.columns]
    array = np.asarray(X, dtype=float)
    if array.ndim != 2:
        raise InputError(f"Inputs must be a table of rows and columns; got an array of shape {array.shape}.")
    return kernel.resolved(names, array.shape[1]), array


class Leaf(Kernel):
    """A kernel that is not a sum or product: named hyper-parameters, and the columns it uses."""

    # Hyper-parameters that may have one value per column. The others are one number.
    _one_per_column: ClassVar[tuple[str, ...]] = ()

    def __init__(self, parameters: Mapping[str, Given], columns: Columns) -> None:
        self._parameters: dict[str, Parameter] = {}
        for name, given in parameters.items():
            try:
                parameter = as_parameter(given)
            except InputError as error:
                raise InputError(f"{type(self).__name__}: {name}: {error}") from None
            if name not in self._one_per_column and (parameter.per_column or isinstance(parameter.value, tuple)):
                raise InputError(f"{type(self).__name__}: {name} must be one number; got {given!r}.")
            self._parameters[name] = parameter
        self.columns: tuple[int | str, ...] | None = None
        if columns is not None:
            each = tuple(columns) if isinstance(columns, (list, tuple, range, np.ndarray)) else (columns,)
            if not all(isinstance(c, (int, str, np.integer)) and not isinstance(c, bool) for c in each):
                raise InputError(
                    f"{type(self).__name__}: columns must be positions or names, one or a list; got {columns!r}."
                )
            self.columns = tuple(c if isinstance(c, str) else int(c) for c in each)
        if self.columns == ():
            raise InputError(f"{type(self).__name__}: columns is empty. Give at least one column, or None for all.")

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The hyper-parameters by name."""
        return dict(self._parameters)

    def value(self, name: str) -> Any:
        """Return the value of one hyper-parameter: a number, a tuple with one per column, or None if open."""
        return self._parameters[name].value

    def _one(self, name: str) -> float:
        return float(self._parameters[name].array[0])

    @property
    def theta(self) -> Array:
        return np.concatenate([p.theta for p in self._parameters.values()])

    @property
    def bounds(self) -> Array:
        return np.concatenate([p.theta_bounds for p in self._parameters.values()])

    @property
    def theta_names(self) -> list[str]:
        names = []
        for name, p in self._parameters.items():
            k = p.theta.size
            names += [f"{type(self).__name__}.{name}" + (f"[{i}]" if k > 1 else "") for i in range(k)]
        return names

    def _rebuilt(self, parameters: Mapping[str, Parameter], columns: tuple[int | str, ...] | None) -> Self:
        return type(self)(**parameters, columns=columns)  # type: ignore[arg-type]

    def with_theta(self, theta: Array) -> Self:
        new, at = {}, 0
        for name, p in self._parameters.items():
            k = p.theta.size
            new[name] = p.with_theta(theta[at : at + k])
            at += k
        return self._rebuilt(new, self.columns)

    def log_prior(self) -> tuple[float, Array]:
        parts = [p.log_prior() for p in self._parameters.values()]
        return sum(v for v, _ in parts), np.concatenate([g for _, g in parts])

    def resolved(self, names: Sequence[str] | None, width: int) -> Self:
        asked: Sequence[int | str] = range(width) if self.columns is None else self.columns
        columns = tuple(self._position(c, names, width) for c in asked)
        for name, p in self._parameters.items():
            if isinstance(p.value, tuple) and len(p.value) != len(columns):
                raise InputError(
                    f"{type(self).__name__}: {name} has {len(p.value)} values for {len(columns)} columns. "
                    "Give one value, or one per column."
                )
        return self._rebuilt(self._parameters, columns)

    def _position(self, column: int | str, names: Sequence[str] | None, width: int) -> int:
        if isinstance(column, str):
            if names is None:
                raise InputError(
                    f"{type(self).__name__} uses column {column!r} by name, but the inputs have no names. "
                    "Pass a DataFrame, or columns by position."
                )
            if column not in names:
                raise InputError(f"{type(self).__name__}: no column {column!r}; the inputs have {', '.join(names)}.")
            return list(names).index(column)
        if not -width <= column < width:
            raise InputError(f"{type(self).__name__}: no column {column}; the inputs have {width} columns.")
        return int(column) % width

    @property
    def _at(self) -> tuple[int, ...]:
        """Columns as positions. Only a resolved kernel has them."""
        assert self.columns is not None
        return tuple(int(c) for c in self.columns)

    def filled(self, scales: Scales) -> Self:
        return self._rebuilt({n: self._fill(n, p, scales) for n, p in self._parameters.items()}, self.columns)

    def _fill(self, name: str, parameter: Parameter, scales: Scales) -> Parameter:
        """Return one hyper-parameter with its open parts filled from the scales; here the variance."""
        assert name == "variance"
        if scales.variance is None and parameter.is_open:
            return replace(parameter, value=1.0, fixed=True)
        variance = parameter.array[0] if scales.variance is None else scales.variance
        return parameter.filled(variance, (1e-6 * variance, 1e4 * variance))

    def leaves(self) -> list[Leaf]:
        return [self]

    def with_columns_of(self, other: Kernel) -> Self:
        assert isinstance(other, Leaf)
        return self._rebuilt(self._parameters, other.columns)

    def _extra(self) -> dict[str, Any]:
        """Return arguments of the constructor other than hyper-parameters and columns."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        parameters = {name: parameter_to_dict(p) for name, p in self._parameters.items()}
        columns = None if self.columns is None else list(self.columns)
        return {"kind": type(self).__name__, "parameters": parameters, "columns": columns, **self._extra()}

    def __repr__(self) -> str:
        given = {n: str(p) for n, p in self._parameters.items() if p.per_column or not p.is_open} | self._extra()
        if self.columns is not None:
            given["columns"] = repr(self.columns[0] if len(self.columns) == 1 else list(self.columns))
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in given.items())})"


class _Pair(Kernel):
    """Two kernels joined by an operation."""

    def __init__(self, left: Kernel, right: Kernel) -> None:
        self.left = left
        self.right = right

    @property
    def theta(self) -> Array:
        return np.concatenate([self.left.theta, self.right.theta])

    @property
    def bounds(self) -> Array:
        return np.concatenate([self.left.bounds, self.right.bounds])

    @property
    def theta_names(self) -> list[str]:
        return self.left.theta_names + self.right.theta_names

    def with_theta(self, theta: Array) -> Self:
        k = self.left.theta.size
        return type(self)(self.left.with_theta(theta[:k]), self.right.with_theta(theta[k:]))

    def log_prior(self) -> tuple[float, Array]:
        (a, ga), (b, gb) = self.left.log_prior(), self.right.log_prior()
        return a + b, np.concatenate([ga, gb])

    def filled(self, scales: Scales) -> Self:
        return type(self)(self.left.filled(scales), self.right.filled(scales))

    def resolved(self, names: Sequence[str] | None, width: int) -> Self:
        return type(self)(self.left.resolved(names, width), self.right.resolved(names, width))

    def leaves(self) -> list[Leaf]:
        return self.left.leaves() + self.right.leaves()

    def with_columns_of(self, other: Kernel) -> Self:
        assert isinstance(other, _Pair)
        return type(self)(self.left.with_columns_of(other.left), self.right.with_columns_of(other.right))

    def to_dict(self) -> dict[str, Any]:
        return {"kind": type(self).__name__, "left": self.left.to_dict(), "right": self.right.to_dict()}


class Sum(_Pair):
    """The sum of two kernels, written ``a + b``."""

    def diag(self, X: Array) -> Array:
        return self.left.diag(X) + self.right.diag(X)

    def _cross(self, X: Array, Z: Array) -> Array:
        return self.left._cross(X, Z) + self.right._cross(X, Z)

    def on(self, pairs: Pairs) -> Values:
        return self.left.on(pairs).combine(self.right.on(pairs), operator.add)

    def contract(self, pairs: Pairs, weights: Weights) -> Array:
        return np.concatenate([self.left.contract(pairs, weights), self.right.contract(pairs, weights)])

    def __repr__(self) -> str:
        return f"{self.left!r} + {self.right!r}"


class Product(_Pair):
    """The product of two kernels, written ``a * b``."""

    def diag(self, X: Array) -> Array:
        return self.left.diag(X) * self.right.diag(X)

    def _cross(self, X: Array, Z: Array) -> Array:
        return self.left._cross(X, Z) * self.right._cross(X, Z)

    def on(self, pairs: Pairs) -> Values:
        return self.left.on(pairs).combine(self.right.on(pairs), operator.mul)

    def contract(self, pairs: Pairs, weights: Weights) -> Array:
        left = self.left.contract(pairs, weights.times(self.right.on(pairs)))
        return np.concatenate([left, self.right.contract(pairs, weights.times(self.left.on(pairs)))])

    def filled(self, scales: Scales) -> Product:
        # Only the product of two variances is identified, so an open second one is fixed at 1.
        held = replace(scales, variance=None) if isinstance(self.right, Leaf) else scales
        return Product(self.left.filled(scales), self.right.filled(held))

    def __repr__(self) -> str:
        return " * ".join(f"({k!r})" if isinstance(k, Sum) else repr(k) for k in (self.left, self.right))
