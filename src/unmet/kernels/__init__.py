"""Covariance functions: `SquaredExponential`, `Periodic`, `Matern`, `Linear`, `Constant`, `White`; ``+`` and ``*``.

Examples
--------
>>> from unmet.kernels import Matern, Periodic, SquaredExponential
>>> SquaredExponential(columns="t") + Periodic(period=7.0, columns="t") + Matern(nu=1.5, columns=["rain", "temp"])
SquaredExponential(columns='t') + Periodic(period=7.0, columns='t') + Matern(nu=1.5, columns=['rain', 'temp'])
"""

from __future__ import annotations

from typing import Any

from unmet._exceptions import InputError
from unmet._parameters import LogNormal, Parameter, parameter_from_dict
from unmet.kernels.base import Kernel, Leaf, Product, Sum
from unmet.kernels.periodic import Periodic
from unmet.kernels.stationary import Matern, SquaredExponential
from unmet.kernels.structured import Constant, Linear, White

__all__ = [
    "Constant",
    "Kernel",
    "Linear",
    "LogNormal",
    "Matern",
    "Parameter",
    "Periodic",
    "Product",
    "SquaredExponential",
    "Sum",
    "White",
    "kernel_from_dict",
]

_LEAVES: dict[str, type[Leaf]] = {
    k.__name__: k for k in (Constant, Linear, Matern, Periodic, SquaredExponential, White)
}
_PAIRS: dict[str, type[Sum] | type[Product]] = {"Sum": Sum, "Product": Product}


def kernel_from_dict(description: dict[str, Any]) -> Kernel:
    """Read the description written by `Kernel.to_dict`.

    Parameters
    ----------
    description : dict
        The JSON-able description.

    Returns
    -------
    Kernel

    Examples
    --------
    >>> k = SquaredExponential(variance=1.0, lengthscale=2.0) * Periodic(period=7.0)
    >>> kernel_from_dict(k.to_dict()) == k
    True
    """
    rest = dict(description)
    kind = rest.pop("kind", None)
    if kind in _PAIRS:
        return _PAIRS[kind](kernel_from_dict(rest["left"]), kernel_from_dict(rest["right"]))
    if kind not in _LEAVES:
        raise InputError(f"Unknown kernel {kind!r}. Expected one of {', '.join([*_LEAVES, *_PAIRS])}.")
    parameters = {name: parameter_from_dict(p) for name, p in rest.pop("parameters").items()}
    return _LEAVES[kind](**parameters, **rest)  # type: ignore[arg-type]
