"""Tables and figures of the taxi experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from unmet._typing import Array
from unmet.censoring import Censored, dropoff_probability
from unmet.experiments._data import packaged
from unmet.experiments._figures import CENSORED, LOOKS, OBSERVED, TRUTH, new_figure, save, score_lines
from unmet.experiments._fits import MODELS, RECOVERED, TITLES
from unmet.experiments._runner import Result
from unmet.experiments._tables import Table, bold_best, write_table

__all__ = [
    "against_paper",
    "at_known",
    "both_readings",
    "cost",
    "example_figure",
    "score_figures",
    "sigmoid_figure",
    "table5",
]

_METRICS = (
    ("all", "rmse", "RMSE", 2),
    ("all", "r2", "R²", 3),
    ("non-censored", "rmse", "RMSE", 2),
    ("non-censored", "r2", "R²", 3),
)
_NAMES = {"all": "", "non-censored": ", non-censored", RECOVERED: ", hidden values"}


def _means(frame: pd.DataFrame, subset: str, metric: str) -> pd.DataFrame:
    part = frame[(frame.subset == subset) & (frame.metric == metric)]
    means = part.groupby(["gamma", "c", "model"]).value.mean().unstack("model")
    return means[[model for model in MODELS if model in means]]  # the paper has three of them


def _mean_of(frame: pd.DataFrame) -> str:
    repetitions = frame.repetition.nunique()
    return f"mean of {repetitions} repetition{'s' if repetitions > 1 else ''}"


def table5(frame: pd.DataFrame, out: Path) -> Table:
    """Write the paper's table 5: RMSE and R² of the models, on all and on non-censored bins."""
    numbers, shown = [], []
    for subset, metric, title, digits in _METRICS:
        means = _means(frame, subset, metric)
        names = [f"{TITLES[m]} {title}{_NAMES[subset]}" for m in MODELS]
        numbers.append(means.set_axis(names, axis=1))
        shown.append(bold_best(means, digits, smallest=metric == "rmse").set_axis(names, axis=1))
    return write_table(
        "table5",
        pd.concat(numbers, axis=1).reset_index(),
        out,
        title=f"Taxi: {_mean_of(frame)}, 21 folds",
        shown=pd.concat(shown, axis=1).reset_index(),
        keys=2,
    )


def against_paper(frame: pd.DataFrame, out: Path) -> Table:
    """Write CGP's RMSE over that of each other model, next to the paper's ratios on other data."""
    paper = packaged("paper_tables.csv")
    ours = _means(frame, "all", "rmse")
    theirs = _means(paper[paper.experiment == "taxi"], "all", "rmse")
    ratios = pd.DataFrame(
        {
            f"CGP / {TITLES[m]}, {who}": means["cgp"] / means[m]
            for m in ("ncgp", "ncgp-a")
            for who, means in (("here", ours), ("paper", theirs))
        }
    ).loc[ours.index]
    strong = ours[list(theirs.columns)][ours.index.get_level_values("c") >= 0.2]
    wins = int((strong.idxmin(axis=1) == "cgp").sum())
    return write_table(
        "table5_beside_paper",
        ratios.reset_index(),
        out,
        title="Taxi: RMSE of CGP relative to the others, all bins (below 1: CGP is better)",
        shown=ratios.map("{:.3f}".format).reset_index(),
        keys=2,
        note=f"CGP has the lowest RMSE in {wins} of the {len(strong)} cells with c ≥ 0.2.",
    )


def at_known(frame: pd.DataFrame, out: Path) -> Table:
    """Write errors on held-out bins and hidden values, all models at the hyper-parameters of the uncensored week."""
    numbers, shown = [], []
    for subset, metric, title, digits in (
        ("all", "rmse", "RMSE", 2),
        (RECOVERED, "rmse", "RMSE", 2),
        (RECOVERED, "coverage", "coverage", 2),
    ):
        means = _means(frame, subset, metric)
        names = [f"{TITLES[m]} {title}{_NAMES[subset]}" for m in MODELS]
        numbers.append(means.set_axis(names, axis=1))
        text = bold_best(means, digits, smallest=True) if metric == "rmse" else means.map("{:.2f}".format)
        shown.append(text.set_axis(names, axis=1))
    return write_table(
        "known_hyperparameters",
        pd.concat(numbers, axis=1).reset_index(),
        out,
        title=f"Taxi: all models at the hyper-parameters of the uncensored week, {_mean_of(frame)}",
        shown=pd.concat(shown, axis=1).reset_index(),
        keys=2,
        note="Hidden values are the true values of labelled bins of the fit. At c = 0 nothing is hidden.",
    )


def both_readings(frame: pd.DataFrame, out: Path) -> Table:
    """Write the RMSE of the models that use the label as a feature, for both labels of held-out bins."""
    columns: dict[str, pd.Series] = {}
    for title, experiment in (("label 0", "taxi"), ("label as it is", "taxi (held-out labels given)")):
        means = _means(frame[frame.experiment == experiment], "all", "rmse")
        columns |= {f"{TITLES[m]}, {title}": means[m] for m in ("ncgp-a", "cgp")}
    table = pd.DataFrame(columns)
    return write_table(
        "held_out_labels",
        table.reset_index(),
        out,
        title="Taxi: RMSE on all bins, by the label with which held-out bins are predicted",
        shown=table.map("{:.2f}".format).reset_index(),
        keys=2,
    )


def cost(
    cells: Sequence[tuple[Mapping[str, Any], Result]], out: Path, *, full: Mapping[str, int], warm_start: bool
) -> Table:
    """Write CPU seconds per fit and per cell, and the estimated time of ``--full`` with the given cells per model."""
    rows = pd.DataFrame([{"model": s["model"], **r["cost"]} for s, r in cells])
    total = rows.groupby("model")[["seconds", "fits"]].sum().loc[list(MODELS)]
    each = total.seconds / total.fits
    per_cell = total.seconds / rows.groupby("model").size().loc[list(MODELS)]
    hours = sum(per_cell[model] * count for model, count in full.items()) / 3600
    table = pd.DataFrame(
        {
            "model": [TITLES[m] for m in MODELS],
            "CPU seconds per fit": each.round(3).to_numpy(),
            "cells of --full": [full[m] for m in MODELS],
        }
    )
    start, option = ("the fit of the whole series", " --warm-start") if warm_start else ("the common start", "")
    return write_table(
        "cost",
        table,
        out,
        title=f"Cost of a taxi fit that starts at {start}",
        note=f"At that cost --full{option} takes about {hours / 2:.1f} hours on two cores. "
        f"This run took {total.seconds.sum() / 3600:.2f} CPU hours.",
    )


def score_figures(frame: pd.DataFrame, out: Path) -> None:
    """Draw the paper's performance figure: R² and RMSE against c, a column per gamma, one figure per subset."""
    gammas = sorted(frame.gamma.unique())
    lines = frame.c.nunique() > 2  # with fewer points nothing is cut off
    for subset, name in (("all", "figure_all"), ("non-censored", "figure_non_censored")):
        figure, axes = new_figure(2, len(gammas), (3.2 * max(len(gammas), 2), 5.6), sharex=True, sharey="row")
        for row, (metric, label) in zip(axes, (("r2", "R²"), ("rmse", "RMSE (pickups per 15 min)")), strict=True):
            part = frame[(frame.subset == subset) & (frame.metric == metric)]
            for ax, gamma in zip(row, gammas, strict=True):
                score_lines(ax, part[part.gamma == gamma])
                if metric == "r2":
                    ax.set_title(f"γ = {gamma:g}")
            row[0].set_ylabel(label)
            if lines:
                _leave_out_extremes(row, part, metric)
        for ax in axes[-1]:
            ax.set_xlim(-0.04, 1.04)
            ax.set_xlabel("censorship intensity c")
        figure.legend(
            *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(MODELS), frameon=False
        )
        what = "all observations" if subset == "all" else "only non-censored observations"
        cut = " (extreme values of NCGP are cut off)" if lines else ""
        figure.suptitle(f"RandDropoff, {what}{cut}", fontsize=11)
        save(figure, out, name)


def _leave_out_extremes(row: Any, part: pd.DataFrame, metric: str) -> None:
    """Cut off extreme values of NCGP, as in the paper, so that the other models can be distinguished."""
    close = part[part.model != "ncgp"].value
    reach = 0.6 * float(close.max() - close.min()) + 0.02 * abs(float(close.mean()))
    low, high = float(close.min()), float(close.max())
    row[0].set_ylim(*((low - 2.5 * reach, high + reach) if metric == "r2" else (low - reach, high + 2.5 * reach)))


def sigmoid_figure(out: Path) -> None:
    """Draw the probability of censorship against the excess of pickups over the previous dropoffs."""
    figure, axes = new_figure(1, 1, (7, 4))
    ax = axes[0, 0]
    excess = np.linspace(-5, 1, 300)
    pickups = np.full_like(excess, 100.0)
    for gamma, style in zip((0.1, 0.2, 0.3, 0.4), (":", "-.", "--", "-"), strict=True):
        chance = dropoff_probability(pickups, pickups * (1 - excess), gamma)
        ax.plot(excess, chance, ls=style, color=LOOKS["cgp"]["color"], lw=1.8, label=f"γ = {gamma:g}")
    ax.axvline(0, color=OBSERVED, lw=0.8)
    ax.set_xlabel("(pickups − dropoffs of the bin before) / pickups: at most 1")
    ax.set_ylabel("probability of censorship")
    ax.set_ylim(0, 0.7)
    ax.grid(alpha=0.25, lw=0.5)
    ax.legend(frameon=False, title="pickups equal dropoffs at the grey line:\nprobability γ")
    save(figure, out, "figure_sigmoid")


def example_figure(start: pd.DatetimeIndex, pickups: Array, observed: Censored, out: Path) -> None:
    """Draw one outcome of RandDropoff over the week."""
    from matplotlib.dates import DateFormatter

    figure, axes = new_figure(1, 1, (12, 3.6))
    ax, hidden = axes[0, 0], observed.censored
    ax.plot(start, pickups, color=TRUTH, lw=0.9, label="true pickups")
    ax.vlines(start[hidden], observed.y[hidden], pickups[hidden], color=CENSORED, lw=0.7, alpha=0.6)
    ax.plot(start[hidden], observed.y[hidden], "x", color=CENSORED, ms=5, label="censored observation")
    ax.set_ylabel("pickups per 15 min")
    ax.set_title(f"RandDropoff, γ = 0.1, c = 0.5: {hidden.mean():.0%} of bins censored", loc="left", fontsize=11)
    ax.legend(frameon=False, loc="upper right", ncols=2)
    ax.set_ylim(0, 1.15 * float(pickups.max()))
    ax.margins(x=0.01)
    ax.xaxis.set_major_formatter(DateFormatter("%a %d %b"))
    save(figure, out, "figure_example")
