"""Motorcycle accident data (paper section 4.3, figures 2–4): censoring of increasing extent and intensity."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from unmet._typing import Array
from unmet.censoring import Censored, censor_random
from unmet.experiments._data import packaged
from unmet.experiments._figures import CENSORED, LOOKS, OBSERVED, TRUTH, new_figure, save
from unmet.experiments._fits import RECOVERED, TITLES, Cost, fit, recovered_rows
from unmet.experiments._run import Level, Run, compute_all, finish
from unmet.experiments._runner import Cell, Result, generator
from unmet.experiments._tables import Table, bold_best, results_frame, write_results, write_table
from unmet.kernels import Kernel, SquaredExponential
from unmet.metrics import coverage, rmse

__all__ = ["INTENSITIES", "SHARES", "reproduce"]

SHARES = (0.1, 0.5, 0.9)
INTENSITIES = ((0.0, 0.33), (0.33, 0.66), (0.66, 1.0))
REPETITIONS: dict[Level, int] = {"quick": 10, "default": 1000, "full": 2000}
GRID = np.linspace(2.4, 57.6, 240)

# Name in the column `experiment` of results.csv, reading of the labels, and the models that depend on it.
READINGS = (
    ("motorcycle", "side-aware", ("ncgp", "ncgp-a", "cgp", "share")),
    ("motorcycle (literal labels)", "literal", ("cgp",)),
)


def kernel() -> Kernel:
    """Return the SE kernel at the start of all fits: a length-scale of 5 ms, in units in which y has variance one."""
    return SquaredExponential(variance=1.0, lengthscale=5.0)


def _data() -> tuple[Array, Array]:
    table = packaged("mcycle.csv")
    return table.times.to_numpy(float), table.accel.to_numpy(float)


def _reference() -> Result:
    """Fit the uncensored data. All other fits are compared with this one."""
    x, y = _data()
    cost = Cost()
    with threadpool_limits(1):  # as in every cell: the last digits depend on the number of threads
        gp = fit("ncgp", kernel(), x[:, None], y, np.zeros(len(y)), cost)
        at_data, at_grid = (gp.predict(points[:, None]).tolist() for points in (x, GRID))
    return {"mean": at_data, "grid": at_grid, "cost": cost.as_dict()}


def _observed(settings: Mapping[str, Any], seed: int, labels: Any) -> Censored:
    p, a, b = (settings[k] for k in "pab")
    rng = generator(seed, "motorcycle", p, a, b, settings["repetition"])
    return censor_random(_data()[1], p, a, b, rng, labels=labels)


def _compute(cell: Cell, seed: int, reference: Array) -> Result:
    x, _ = _data()
    cost, rows, curves = Cost(), [], {}
    chosen = _observed(cell.settings, seed, "literal").censored
    for experiment, labels, models in READINGS:
        observed = _observed(cell.settings, seed, labels)
        for model in models:
            # NCGP-A leaves out every chosen point, as in the paper; also a zero, which censoring does not change.
            label = chosen.astype(int) if model == "ncgp-a" else observed.label
            gp = fit(model, kernel(), x[:, None], observed.y, label, cost)
            mean, sd = gp.predict(x[:, None], return_std=True)
            for subset, where in (("all", None), ("censored", chosen), ("non-censored", ~chosen)):
                scores = {
                    "rmse": rmse(reference, mean, where=where),
                    "coverage": coverage(reference, mean - 1.96 * sd, mean + 1.96 * sd, where=where),
                }
                about = {"experiment": experiment, "model": model, "subset": subset}
                rows += [{**about, "metric": k, "value": v} for k, v in scores.items()]
            about = {"experiment": experiment, "model": model}
            rows += recovered_rows(gp, x[:, None], observed.y, label, _data()[1], chosen, **about)
            if cell.settings["repetition"] == 0:  # the repetition in the figures
                at_grid, sd_grid = gp.predict(GRID[:, None], return_std=True)
                curves[f"{model} {labels}"] = {"mean": at_grid.tolist(), "sd": sd_grid.tolist()}
    return {"rows": rows, "curves": curves, "cost": cost.as_dict()}


def reproduce(run: Run) -> pd.DataFrame:
    """Run the experiment, write its table and four 3 × 3 figures to ``run.out``, and return the tidy results.

    Parameters
    ----------
    run : Run
        Settings of the run.

    Returns
    -------
    DataFrame
    """
    reference = _reference()
    settings = [
        {"p": p, "a": a, "b": b, "repetition": i}
        for p in SHARES
        for a, b in INTENSITIES
        for i in range(REPETITIONS[run.level])
    ]
    compute = partial(_compute, seed=run.seed, reference=np.array(reference["mean"]))
    cells = compute_all(run, "motorcycle", settings, compute, seed=run.seed)
    frame = results_frame({**s, **row} for s, r in cells for row in r["rows"])
    write_results(frame, run.out)
    tables = [_table(frame, run), _recovered(frame, run)]
    first = [(s, r) for s, r in cells if s["repetition"] == 0]
    for name, model, labels in (
        ("figure2_ncgp", "ncgp", "side-aware"),
        ("figure3_ncgp-a", "ncgp-a", "side-aware"),
        ("figure4_cgp", "cgp", "side-aware"),
        ("figure_share", "share", "side-aware"),
        ("figure4_cgp_literal_labels", "cgp", "literal"),
    ):
        _figure(name, model, labels, first, np.array(reference["grid"]), run)
    about = "mcycle, 133 accelerations of a dummy's head after a motorcycle's impact, which ships with the package"
    finish(run, "motorcycle", about, tables, [reference, *(r for _, r in cells)])
    return frame


def _table(frame: pd.DataFrame, run: Run) -> Table:
    part = frame[(frame.metric == "rmse") & (frame.subset == "all")]
    column: pd.Series[str] = part.model.map(TITLES) + np.where(
        part.experiment == READINGS[1][0], ", literal labels", ""
    )
    by_panel = part.assign(column=column).groupby(["p", "a", "b", "column"]).value
    order = [*TITLES.values(), "CGP, literal labels"]
    middle, low, high = (by_panel.quantile(q).unstack("column")[order] for q in (0.5, 0.25, 0.75))
    shown = bold_best(middle, 1, smallest=True) + low.map(" ({:.1f}–".format) + high.map("{:.1f})".format)
    panel = [{"p": f"{p:g}", "[a, b]": f"[{a:g}, {b:g}]"} for p, a, b in middle.index]
    return write_table(
        "table",
        middle.reset_index(),
        run.out,
        title="Motorcycle: RMSE to the fit of the uncensored data, "
        f"median (quartiles) of {REPETITIONS[run.level]} seeds",
        shown=pd.concat([pd.DataFrame(panel), shown.reset_index(drop=True)], axis=1),
        keys=2,
        note="p: fraction of points censored; [a, b]: fraction by which they are reduced. "
        'Literal labels are "at least y" also where y is negative.',
    )


def _recovered(frame: pd.DataFrame, run: Run) -> Table:
    """How well the accelerations behind the censored ones are recovered, by the models that read sides aright."""
    part = frame[(frame.subset == RECOVERED) & (frame.experiment == READINGS[0][0])]
    means = part.groupby(["p", "a", "b", "metric", "model"]).value.median().unstack(["metric", "model"])
    names = {("rmse", m): f"{t}, RMSE" for m, t in TITLES.items()}
    names |= {("coverage", m): f"{t}, coverage" for m, t in TITLES.items()}
    table = means[list(names)].set_axis(list(names.values()), axis=1).reset_index()
    return write_table(
        "recovered",
        table,
        run.out,
        title=f"Motorcycle: true values of censored points of the fit, median of {REPETITIONS[run.level]} seeds",
        shown=table.round(2),
        keys=3,
        note="Coverage of 95 % intervals. NCGP takes what it sees for the truth.",
    )


def _figure(
    name: str, model: str, labels: str, cells: list[tuple[Mapping[str, Any], Result]], reference: Array, run: Run
) -> None:
    figure, axes = new_figure(3, 3, (12, 8), sharex=True, sharey=True)
    x, _ = _data()
    colour = LOOKS["cgp"]["color"]
    for ax, (settings, result) in zip(axes.ravel(), cells, strict=True):
        observed = _observed(settings, run.seed, labels)
        mean, sd = (np.array(result["curves"][f"{model} {labels}"][k]) for k in ("mean", "sd"))
        band = {"color": colour, "alpha": 0.2, "lw": 0, "label": "95 % band of f"}
        ax.fill_between(GRID, mean - 1.96 * sd, mean + 1.96 * sd, **band)
        ax.plot(GRID, mean, color=colour, lw=2, label="posterior mean of f")
        ax.plot(GRID, reference, color=TRUTH, ls="--", lw=1.2, label="fit of the uncensored data")
        hidden = observed.censored
        ax.plot(x[~hidden], observed.y[~hidden], "o", color=OBSERVED, ms=3.5, mfc="none", label="non-censored")
        ax.plot(x[hidden], observed.y[hidden], "x", color=CENSORED, ms=4, label="censored")
        ax.set_title(f"p = {settings['p']:g}, intensity [{settings['a']:g}, {settings['b']:g}]", fontsize=10)
        ax.set_ylim(-160, 110)
    axes[2, 1].set_xlabel("time after impact (ms)")
    axes[1, 0].set_ylabel("acceleration (g)")
    figure.suptitle(TITLES[model] + (", literal labels" if labels == "literal" else ""))
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    save(figure, run.out, name)
