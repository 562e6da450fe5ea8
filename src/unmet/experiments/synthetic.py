"""Synthetic data (paper section 4.2, figure 1): a known function with censored peaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._typing import Array
from unmet.censoring import Censored, censor_where
from unmet.experiments._figures import CENSORED, LOOKS, OBSERVED, TRUTH, new_figure, save
from unmet.experiments._fits import MODELS, RECOVERED, TITLES, Cost, fit, recovered_rows
from unmet.experiments._run import Level, Run, compute_all, finish
from unmet.experiments._runner import Cell, Result, generator
from unmet.experiments._tables import Table, results_frame, write_results, write_table
from unmet.kernels import Kernel, SquaredExponential
from unmet.metrics import coverage, rmse

__all__ = ["Sample", "draw", "reproduce", "truth"]

REPETITIONS: dict[Level, int] = {"quick": 20, "default": 100, "full": 500}
POINTS, LOW, HIGH = 100, 0.2, 0.3


def truth(x: Array) -> Array:
    """Return ``f*(x) = 2 + sin(2x)/2 + x/10`` (paper eq. 19).

    Examples
    --------
    >>> truth(np.array([0.0]))
    array([2.])
    """
    return 2 + np.sin(2 * x) / 2 + x / 10


def kernel() -> Kernel:
    """Return the SE kernel at the start of all fits: all ones, in units in which y has variance one."""
    return SquaredExponential(variance=1.0, lengthscale=1.0)


@dataclass(frozen=True)
class Sample:
    """One data set: inputs, true function, true noisy values, and censored observations."""

    x: Array
    f: Array
    y_true: Array
    observed: Censored


def draw(noise_variance: float, rng: np.random.Generator) -> Sample:
    """Draw 100 points on [0, 10] with noise; where ``sin(2x) ≥ 0`` they are reduced by 20–30 %.

    Parameters
    ----------
    noise_variance : float
        Variance of the noise.
    rng : Generator
        Random generator.

    Returns
    -------
    Sample
    """
    x = np.linspace(0, 10, POINTS)
    f = truth(x)
    y = f + rng.normal(scale=np.sqrt(noise_variance), size=POINTS)
    return Sample(x, f, y, censor_where(y, np.sin(2 * x) >= 0, LOW, HIGH, rng))


def _sample(settings: Mapping[str, Any], seed: int) -> Sample:
    return draw(settings["noise_variance"], generator(seed, "synthetic", settings["repetition"]))


def _compute(cell: Cell, seed: int) -> Result:
    sample = _sample(cell.settings, seed)
    cost, rows, curves = Cost(), [], {}
    peaks = sample.observed.censored
    for model in MODELS:
        gp = fit(model, kernel(), sample.x[:, None], sample.observed.y, sample.observed.label, cost)
        mean, sd = gp.predict(sample.x[:, None], return_std=True)
        curves[model] = {"mean": mean.tolist(), "sd": sd.tolist()}
        for subset, where in (("all", None), ("censored", peaks), ("non-censored", ~peaks)):
            scores = {
                "rmse": rmse(sample.f, mean, where=where),
                "coverage": coverage(sample.f, mean - 1.96 * sd, mean + 1.96 * sd, where=where),
            }
            rows += [{"model": model, "subset": subset, "metric": k, "value": v} for k, v in scores.items()]
        rows += recovered_rows(
            gp, sample.x[:, None], sample.observed.y, sample.observed.label, sample.y_true, peaks, model=model
        )
    return {"rows": rows, "curves": curves, "cost": cost.as_dict()}


def reproduce(run: Run, noise_variance: float = 0.1) -> pd.DataFrame:
    """Run the experiment, write tables and figure 1 to ``run.out``, and return the tidy results.

    Parameters
    ----------
    run : Run
        Settings of the run.
    noise_variance : float
        0.1 as in the paper. The published notebook uses a standard deviation of 0.1, which is a variance of 0.01.

    Returns
    -------
    DataFrame
    """
    if not noise_variance > 0:
        raise InputError(f"noise_variance must be positive; got {noise_variance}.")
    settings = [{"noise_variance": noise_variance, "repetition": i} for i in range(REPETITIONS[run.level])]
    cells = compute_all(run, "synthetic", settings, partial(_compute, seed=run.seed), seed=run.seed)
    frame = results_frame(
        {"experiment": "synthetic", "repetition": s["repetition"], **row} for s, r in cells for row in r["rows"]
    )
    write_results(frame, run.out)
    table = _table(frame, noise_variance, run)
    _figure(_sample(settings[0], run.seed), cells[0][1]["curves"], run)
    about = f"drawn from f* with noise of variance {noise_variance:g}"
    finish(run, "synthetic", about, [table], [r for _, r in cells])
    return frame


def _table(frame: pd.DataFrame, noise_variance: float, run: Run) -> Table:
    columns = [("rmse", "all"), ("rmse", "censored"), ("coverage", "all"), ("coverage", "censored")]
    columns += [("rmse", RECOVERED), ("coverage", RECOVERED)]
    names = ["RMSE to f*", "RMSE in censored regions", "coverage of f*", "coverage in censored regions"]
    names += ["RMSE of hidden values", "coverage of hidden values"]
    numbers, shown = [], []
    everywhere = frame[(frame.metric == "rmse") & (frame.subset == "all")].pivot(
        index="repetition", columns="model", values="value"
    )
    for model in MODELS:
        number: dict[str, Any] = {"model": TITLES[model]}
        text: dict[str, Any] = {"model": TITLES[model]}
        for (metric, subset), name in zip(columns, names, strict=True):
            part = frame[(frame.model == model) & (frame.metric == metric) & (frame.subset == subset)].value
            low, middle, high = part.quantile([0.05, 0.5, 0.95])
            number |= {name: middle, f"{name}, 5 %": low, f"{name}, 95 %": high}
            text[name] = f"{middle:.3f} ({low:.2f}–{high:.2f})"
        best = float((everywhere.idxmin(axis=1) == model).mean())
        numbers.append({**number, "lowest RMSE in": best})
        shown.append({**text, "lowest RMSE in": f"{best:.0%} of seeds"})
    return write_table(
        "table",
        pd.DataFrame(numbers),
        run.out,
        title=f"Synthetic data, noise variance {noise_variance:g}, {len(everywhere)} seeds: median (5–95 %)",
        shown=pd.DataFrame(shown),
        note="Coverage is the fraction of the 100 points at which the 95 % band of the latent function contains f*.",
    )


def _figure(sample: Sample, curves: Mapping[str, Mapping[str, list[float]]], run: Run) -> None:
    figure, axes = new_figure(2, 3, (14, 7), sharex=True, sharey=True)
    axes[1, 2].set_visible(False)
    hidden = sample.observed.censored
    for ax, (letter, model) in zip(axes.ravel(), zip("abcde", [None, *MODELS], strict=True), strict=False):
        ax.set_title(f"({letter}) " + ("Synthetic data" if model is None else TITLES[model]), loc="left", fontsize=11)
        if model is not None:
            mean, sd = (np.array(curves[model][k]) for k in ("mean", "sd"))
            colour = LOOKS["cgp"]["color"]
            band = {"color": colour, "alpha": 0.2, "lw": 0, "label": "95 % band of f"}
            ax.fill_between(sample.x, mean - 1.96 * sd, mean + 1.96 * sd, **band)
            ax.plot(sample.x, mean, color=colour, lw=2, label="posterior mean of f")
        ax.plot(sample.x, sample.f, color=TRUTH, ls="--", lw=1.5, label="true f*")
        ax.plot(
            sample.x[~hidden], sample.observed.y[~hidden], "o", color=OBSERVED, ms=4, mfc="none", label="non-censored"
        )
        ax.plot(sample.x[hidden], sample.observed.y[hidden], "x", color=CENSORED, ms=5, label="censored")
    for ax in (axes[1, 0], axes[1, 1], axes[0, 2]):  # the lowest of each column
        ax.set_xlabel("x")
        ax.tick_params(labelbottom=True)
    figure.legend(*axes[0, 1].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    save(figure, run.out, "figure1")
