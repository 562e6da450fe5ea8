"""Plots of fits, as in the paper's figure 1. They need the extra ``plot`` (matplotlib)."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.pipeline import Pipeline

from unmet._exceptions import InputError, MissingExtraError
from unmet._numbers import refuse_other_order
from unmet._typing import Array
from unmet.estimators import CensoredGP, TobitRegressor
from unmet.estimators.inputs import whole_number
from unmet.estimators.labels import sides, vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_fit"]

# Blue and vermilion of Okabe & Ito: distinct in any kind of colour vision, and in print by line style.
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#555555"
# Markers of censored rows point towards the true value.
_MARKERS = {1: ("^", "censored: at least this"), -1: ("v", "censored: at most this")}


def plot_fit(
    model: CensoredGP | TobitRegressor | Pipeline,
    X: Any,
    y: Any,
    censored: Any = None,
    *,
    truth: Any = None,
    column: int | str | None = None,
    ax: Axes | None = None,
    points: int = 400,
) -> Axes:
    """Plot data, estimated mean and its 95 % band along one column.

    Parameters
    ----------
    model : CensoredGP, TobitRegressor or Pipeline
        A fitted model, or a pipeline that ends in one. X is then the input of the pipeline.
    X, y, censored : array-like
        The data. Exact rows are circles; censored rows are triangles that point towards the true value.
    truth : callable or array-like of shape (n,), optional
        The true function of the column, or its values at X: a dashed line.
    column : int or str, optional
        The column to plot along; required if X has several. The curve has the other columns at their median (at their
        most frequent value if they are not numbers). Points are at their own values.
    ax : matplotlib Axes, optional
        Axes to plot on; a new figure by default.
    points : int
        Number of points of the curve.

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
    whole_number("points", points, 2)
    refuse_other_order(X, y=y, censored=censored)
    last = _last_step(model)
    columns = _columns(X)
    chosen = _choose(columns, column, named=hasattr(X, "columns"))
    x = vector(columns[chosen], len(columns[chosen]), f"column {chosen!r}")
    if not np.isfinite(x).any():
        raise InputError(f"column {chosen!r} must have a finite number to plot along; got {x.size} values without any.")
    values, side = vector(y, x.size, "y"), sides(censored, x.size)
    along = np.linspace(np.nanmin(x), np.nanmax(x), points)
    held = {name: _usual(given) for name, given in columns.items() if name != chosen}
    mean, std = last.predict(_prepared(model, _grid(X, columns, chosen, along, held)), return_std=True)
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    ax.fill_between(along, mean - 1.96 * std, mean + 1.96 * std, color=BLUE, alpha=0.2, lw=0, label="95 % band")
    ax.plot(along, mean, color=BLUE, lw=2, label="latent mean")
    if truth is not None:
        order = np.argsort(x)
        xs, ts = (along, truth(along)) if callable(truth) else (x[order], vector(truth, x.size, "truth")[order])
        ax.plot(xs, ts, color=GREY, ls="--", lw=1.5, label="truth")
    ax.plot(x[side == 0], values[side == 0], "o", color=GREY, ms=4, mfc="none", label="observed")
    for sign, (marker, label) in _MARKERS.items():
        if (side == sign).any():
            ax.plot(x[side == sign], values[side == sign], marker, color=VERMILION, ms=5, lw=0, label=label)
    ax.set_xlabel(_label(chosen if hasattr(X, "columns") else "x" if len(columns) == 1 else f"column {chosen}", held))
    ax.legend(frameon=False, fontsize="small")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _last_step(model: Any) -> CensoredGP | TobitRegressor:
    last = model[-1] if isinstance(model, Pipeline) else model
    if isinstance(last, (CensoredGP, TobitRegressor)):
        return last
    best = " Give its best_estimator_." if hasattr(model, "best_estimator_") else ""
    raise InputError(
        "plot_fit needs a CensoredGP, a TobitRegressor, or a pipeline that ends in one; "
        f"got a {type(model).__name__}.{best}"
    )


def _columns(X: Any) -> dict[Any, Any]:
    """Return the columns of X by name, or by position if they have no names."""
    if hasattr(X, "columns"):
        return {name: np.asarray(X[name]) for name in X.columns}
    array = np.asarray(X)
    if array.ndim != 2:
        raise InputError(f"X must be a table of rows and columns; got an array of shape {array.shape}.")
    return dict(enumerate(array.T))


def _choose(columns: dict[Any, Any], column: Any, *, named: bool) -> Any:
    """Return the column to plot along, as a key of `columns`."""
    names = list(columns)
    if column is None:
        if len(names) == 1:
            return names[0]
        example = repr(names[0])
        raise InputError(
            f"X has {len(names)} columns. Choose the one to plot along, such as column={example} "
            f"(of {', '.join(map(str, names))}); the others are held at their median."
        )
    if isinstance(column, str):
        if not named:
            raise InputError(f"column {column!r} is a name, but X has no names. Give a position.")
        if column not in names:
            raise InputError(f"X has no column {column!r}; it has {', '.join(str(n) for n in names)}.")
        return column
    if isinstance(column, bool) or not isinstance(column, Integral) or not -len(names) <= int(column) < len(names):
        raise InputError(f"column must be the position of one of {len(names)} columns, or a name; got {column!r}.")
    return names[int(column)]


def _usual(values: Any) -> Any:
    """Return the median of numbers; the most frequent value of anything else."""
    try:
        return float(np.nanmedian(np.asarray(values, dtype=float)))
    except (TypeError, ValueError):
        found, times = np.unique(values.astype(str), return_counts=True)
        return found[times.argmax()]


def _grid(X: Any, columns: dict[Any, Any], chosen: Any, along: Array, held: dict[Any, Any]) -> Any:
    """Return inputs along the column, of the same type as X."""
    grid = {name: along if name == chosen else np.full(len(along), held[name]) for name in columns}
    return type(X)(grid) if hasattr(X, "columns") else np.column_stack(list(grid.values()))


def _prepared(model: Any, inputs: Any) -> Any:
    """Return the inputs of the last step of a pipeline."""
    return model[:-1].transform(inputs) if isinstance(model, Pipeline) and len(model) > 1 else inputs


def _label(name: Any, held: dict[Any, Any]) -> str:
    if not held:
        return str(name)
    if len(held) > 2:
        return f"{name} ({len(held)} other columns at their median)"
    at = ", ".join(
        f"{other} {value:.4g}" if isinstance(value, float) else f"{other} {value}" for other, value in held.items()
    )
    return f"{name} (at {at})"
