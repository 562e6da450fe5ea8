"""Pictures of fits, as in the paper's Figure 1. Needs the extra ``plot`` (matplotlib)."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from unmet._exceptions import InputError, MissingExtraError
from unmet.estimators import CensoredGP
from unmet.estimators._inputs import whole_number
from unmet.estimators._labels import sides, vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_fit"]

# Blue and vermilion of Okabe & Ito: told apart in any kind of colour vision, and in print by line style.
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#555555"


def plot_fit(
    gp: CensoredGP,
    X: Any,
    y: Any,
    censored: Any = None,
    *,
    truth: Any = None,
    column: int | str = 0,
    ax: Axes | None = None,
    points: int = 400,
) -> Axes:
    """Draw data, posterior mean and 95 % band of the latent function along one column.

    Parameters
    ----------
    gp : CensoredGP
        A fitted model.
    X, y, censored : array-like
        The data: circles where exact, crosses where censored.
    truth : callable or array-like of shape (n,), optional
        The true function of the column, or its values at X: a dashed line.
    column : int or str
        The column to draw along. Where X has others too, the curve runs through the rows of X.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    points : int
        Resolution of the curve.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> x = np.linspace(0, 5, 20)[:, None]
    >>> ax = plot_fit(CensoredGP().fit(x, np.sin(x[:, 0])), x, np.sin(x[:, 0]))
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingExtraError("matplotlib", "plot", "Plots") from None
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    whole_number("points", points, 2)
    x, inputs, along = _axis(X, column, points)
    values, side = vector(y, x.size, "y"), sides(censored, x.size)
    mean, std = gp.predict(inputs, return_std=True)
    ax.fill_between(along, mean - 1.96 * std, mean + 1.96 * std, color=BLUE, alpha=0.2, lw=0, label="95 % band")
    ax.plot(along, mean, color=BLUE, lw=2, label="latent mean")
    if truth is not None:
        order = np.argsort(x)
        xs, ts = (along, truth(along)) if callable(truth) else (x[order], vector(truth, x.size, "truth")[order])
        ax.plot(xs, ts, color=GREY, ls="--", lw=1.5, label="truth")
    exact = side == 0
    ax.plot(x[exact], values[exact], "o", color=GREY, ms=4, mfc="none", label="observed")
    if not exact.all():
        ax.plot(x[~exact], values[~exact], "x", color=VERMILION, ms=5, label="censored")
    ax.set_xlabel(str(column) if isinstance(column, str) else "x")
    ax.legend(frameon=False, fontsize="small")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _axis(X: Any, column: Any, points: int) -> tuple[Any, Any, Any]:
    """The data's column, inputs along which to draw the curve, and their column."""
    array = np.asarray(X, dtype=float)
    if array.ndim != 2:
        raise InputError(f"X must be a table of rows and columns; got an array of shape {array.shape}")
    named = hasattr(X, "columns")
    names = list(X.columns) if named else []
    if isinstance(column, str):
        if not named:
            raise InputError(f"column {column!r} is a name, but X has none; give a position")
        if column not in names:
            raise InputError(f"no column {column!r}; X has {', '.join(str(n) for n in names)}")
        column = names.index(column)
    width = array.shape[1]
    if not isinstance(column, Integral) or not -width <= column < width:
        raise InputError(f"column must be the position of one of {width} columns, or a name; got {column!r}")
    x = array[:, int(column)]
    if array.shape[1] > 1:
        order = np.argsort(x, kind="stable")
        return x, (X.iloc[order] if named else array[order]), x[order]
    along = np.linspace(x.min(), x.max(), points)
    inputs = type(X)({X.columns[0]: along}) if named else along[:, None]
    return x, inputs, along
