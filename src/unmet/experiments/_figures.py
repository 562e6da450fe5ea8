"""Common parts of the figures: import of matplotlib, style of each model, and saving."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmet._exceptions import MissingExtraError
from unmet._storage.writing import replacing
from unmet.experiments._fits import MODELS, TITLES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["CENSORED", "LOOKS", "OBSERVED", "TRUTH", "new_figure", "require_matplotlib", "save", "score_lines"]

# Okabe & Ito's palette, with a marker and a line style each: distinct in any colour vision and in grey print.
LOOKS: dict[str, dict[str, Any]] = {
    "ncgp": {"color": "#D55E00", "marker": "s", "ls": "--"},
    "ncgp-a": {"color": "#009E73", "marker": "^", "ls": "-.", "ms": 8, "mfc": "none"},  # visible behind a point of CGP
    "cgp": {"color": "#0072B2", "marker": "o", "ls": "-"},
    "share": {"color": "#CC79A7", "marker": "D", "ls": ":"},
}
TRUTH, CENSORED, OBSERVED = "#222222", "#D55E00", "#555555"


def require_matplotlib() -> None:
    """Raise `MissingExtraError` before the computation starts if figures cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtraError("matplotlib", "plot", "The experiments' figures") from None


def new_figure(rows: int, columns: int, size: tuple[float, float], **settings: Any) -> tuple[Figure, Any]:
    """Return a figure that needs no display, and its axes as an array of rows and columns."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **settings)
    for ax in axes.ravel():
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Figure, out: Path, name: str) -> None:
    """Save a figure as PNG and SVG. The same figure gives the same bytes."""
    import matplotlib

    out.mkdir(parents=True, exist_ok=True)
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        buffer = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": name}):
            figure.savefig(buffer, format=kind, dpi=160, metadata=metadata)
        with replacing(out / f"{name}.{kind}") as aside:
            aside.write_bytes(buffer.getvalue())


def score_lines(ax: Axes, frame: pd.DataFrame, *, band: bool = True) -> None:
    """Plot one line per model: the mean score against c, with the range over repetitions as a band."""
    for model in MODELS:
        by_c = frame[frame.model == model].groupby("c").value
        mean = by_c.mean()
        if mean.empty:
            continue
        looks = LOOKS[model]
        if band:
            ax.fill_between(mean.index, by_c.min(), by_c.max(), color=looks["color"], alpha=0.12, lw=0)
        ax.plot(mean.index, mean, label=TITLES[model], **{"ms": 4, "lw": 1.6, **looks})
    ax.grid(alpha=0.25, lw=0.5)
