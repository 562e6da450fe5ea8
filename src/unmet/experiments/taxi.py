"""Taxi pickups under RandDropoff censoring (paper section 4.5, table 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from unmet._exceptions import FileFormatError
from unmet._typing import Array
from unmet.censoring import Censored, rand_dropoff
from unmet.experiments import _taxi_report as report
from unmet.experiments._data import data_file, digest, read_table
from unmet.experiments._fits import MODELS, Cost, cross_validate, fit, recovered_rows, score_rows
from unmet.experiments._run import Level, Run, compute_all, finish
from unmet.experiments._runner import Cell, Result, generator
from unmet.experiments._tables import results_frame, write_results
from unmet.kernels import Kernel, Parameter, Periodic, SquaredExponential
from unmet.likelihoods import Beta

__all__ = ["BINS", "Week", "load", "reproduce", "starts"]

FILE = "taxi_lga/pickups_dropoffs_15min_2014-01-06_2014-01-19.csv"
ORIGIN = (
    "https://github.com/Jex2l/NYC-Taxi-Demand-Prediction-with-Weather-and-Flight-Data-Integration (built from the trip "
    "records of the NYC Taxi and Limousine Commission)"
)
COLUMNS = ("timestamp", "pickups", "dropoffs")
MONDAY = "2014-01-13"
BINS, FOLDS = 672, 21
MAX_ITER = 1000

# Name in the column `experiment` of results.csv, and the key of a cell's predictions. Held-out bins are predicted with
# label 0 (demand while supply lasts), and also with their own label. The latter evaluates CGP's function at label 1,
# for which the data contain only lower bounds: a feature that equals the label separates the censored from the exact
# bins, and the likelihood does not decrease however high that function rises.
READINGS = (("taxi", "mean"), ("taxi (held-out labels given)", "mean_as_labelled"))

# All models at the hyper-parameters that the evidence of the uncensored week prefers. See `_compute_at_known`.
KNOWN = "taxi (known hyper-parameters)"

GAMMAS = (0.1, 0.2, 0.3, 0.4)
INTENSITIES = tuple(round(0.1 * i, 1) for i in range(11))


@dataclass(frozen=True)
class Grid:
    """The cells of a run, and the number of repetitions."""

    cells: tuple[tuple[float, float], ...]
    repetitions: int


_ALL = tuple((g, c) for g in GAMMAS for c in INTENSITIES)
GRIDS: dict[Level, Grid] = {
    "quick": Grid(((0.2, 0.5), (0.4, 0.8)), 1),
    "default": Grid(_ALL, 4),
    "full": Grid(_ALL, 30),
}


@dataclass(frozen=True)
class Week:
    """A week of 672 quarter-hours: description, times, features, true pickups, and dropoffs of the bin before each."""

    about: str
    start: pd.DatetimeIndex
    X: Array
    pickups: Array
    previous_dropoffs: Array


def load(path: Path | None = None, first_day: str | None = None) -> Week:
    """Read a week of pickups and dropoffs per 15 minutes.

    Parameters
    ----------
    path : Path, optional
        A CSV with columns timestamp, pickups and dropoffs, one row per 15 minutes, for a week and the bin before it.
        The default is the LaGuardia file of the data folder.
    first_day : str, optional
        First day of the week. The default is 13 January 2014 in the LaGuardia data, and the second row of other files.

    Returns
    -------
    Week
    """
    table = read_table(path or data_file(FILE, ORIGIN, COLUMNS), COLUMNS)
    where = path or FILE
    times = pd.DatetimeIndex(pd.to_datetime(table.timestamp, errors="coerce"))
    day = first_day or (MONDAY if path is None else None)
    found = np.array([1]) if day is None else np.flatnonzero(times == pd.Timestamp(day))
    if not found.size or found[0] < 1 or found[0] + BINS > len(table):
        raise FileFormatError(
            f"{where}: needs the {BINS} bins of a week and the bin before it{f', from {day} 00:00 on' if day else ''}; "
            f"it has {len(table)} rows, {_span(table)}."
        )
    first = int(found[0])
    rows, before = slice(first, first + BINS), slice(first - 1, first + BINS - 1)
    steps = times[first - 1 : first + BINS].diff()[1:]
    if not (steps == pd.Timedelta(minutes=15)).all():
        wrong = int(np.flatnonzero(steps != pd.Timedelta(minutes=15))[0]) + first
        raise FileFormatError(
            f"{where}: row {wrong + 1} ({table.timestamp.iloc[wrong]}) is not 15 minutes after the one before."
        )
    counts = table[["pickups", "dropoffs"]].apply(pd.to_numeric, errors="coerce").to_numpy(float)
    if not (counts[first - 1 : first + BINS] >= 0).all():
        raise FileFormatError(f"{where}: pickups and dropoffs must be counts, zero or more, with none missing.")
    start = times[rows]
    X = np.column_stack([np.arange(1.0, BINS + 1), start.hour, start.day_of_week]).astype(float)
    about = f"{where}, the week from {start[0]:%A, %d %B %Y, %H:%M} on"
    if len(table) > BINS + 1:
        about += f", of {len(table)} quarter-hours {_span(table)} (--week YYYY-MM-DD chooses another)"
    return Week(about, start, X, counts[rows, 0], counts[before, 1])


def _span(table: pd.DataFrame) -> str:
    return f"from {table.timestamp.iloc[0]} to {table.timestamp.iloc[-1]}" if len(table) else "none"


def starts() -> list[Kernel]:
    """Return SE + Periodic over all columns (paper eq. 23) at the two starts of all fits; the better result is used.

    The starts are on the scale of the data: five hours (20 bins) or twenty for the SE kernel, a day for the period,
    half of the mean square of pickups for each variance. The evidence has a peak near each of the two, and the higher
    one changes from fold to fold. From the all-ones start of the paper's software, searches end at a length-scale of
    three bins, 10 to 28 nats lower, for some models and not for others. A period that starts at one bin ends at a
    nearby alias of a day.
    """
    daily = Periodic(period=96.0, variance=0.5, lengthscale=0.3)
    return [SquaredExponential(variance=0.5, lengthscale=bins) + daily for bins in (20.0, 80.0)]


NOISE = 0.1
"""Starting value of the noise variance, in the units of `starts`."""


def observed(week: Week, gamma: float, c: float, repetition: int, seed: int) -> Censored:
    """Return the outcome of RandDropoff. The labels of one (gamma, repetition) are the same for every c."""
    rng = generator(seed, "taxi", gamma, repetition)
    return rand_dropoff(week.pickups, week.previous_dropoffs, gamma, c, rng)


def inputs(model: str, week: Week, label: Any) -> Array:
    """Return the features of the paper: t, hour, weekday; and the label for the two models that model censoring."""
    return week.X if model in ("ncgp", "share") else np.column_stack([week.X, label])


def settings_of(grid: Grid) -> list[dict[str, Any]]:
    """Return one cell per distinct fit: NCGP-A does not depend on c, and NCGP with c = 0 fits uncensored data."""
    cells: dict[tuple[Any, ...], dict[str, Any]] = {}
    for repetition in range(grid.repetitions):
        for gamma, c in grid.cells:
            for model in ("ncgp-a", "ncgp", "cgp", "share"):
                cell = cell_of(model, gamma, c, repetition)
                cells[tuple(cell.values())] = cell
    return list(cells.values())


def cell_of(model: str, gamma: float, c: float, repetition: int) -> dict[str, Any]:
    """Return the settings of the cell that has a model's predictions for (gamma, c, repetition)."""
    if model == "ncgp" and c == 0:
        return {"model": model, "gamma": None, "c": 0.0, "repetition": None}
    return {"model": model, "gamma": gamma, "c": None if model == "ncgp-a" else c, "repetition": repetition}


def _compute(cell: Cell, week: Week, seed: int, warm_start: bool) -> Result:
    model, gamma, c, repetition = (cell.settings[k] for k in ("model", "gamma", "c", "repetition"))
    if gamma is None:
        data = Censored(week.pickups, np.zeros(BINS, dtype=np.intp))
    else:
        data = observed(week, gamma, 0.0 if c is None else c, repetition, seed)
    unit = float(np.sqrt(np.mean(np.square(week.pickups))))
    held = cross_validate(
        model,
        starts(),
        inputs(model, week, data.label),
        data.y / unit,
        data.label,
        np.array_split(np.arange(BINS), FOLDS),
        X_otherwise=inputs(model, week, np.zeros(BINS)),
        warm_start=warm_start,
        max_iter=MAX_ITER,
        noise_variance=NOISE,
        normalize_y=False,  # the prior's mean is zero, as in the paper: scaled, not centred
    )
    X = inputs(model, week, data.label)
    scale = {"max_iter": MAX_ITER, "noise_variance": NOISE, "normalize_y": False}
    whole = fit(model, starts(), X, data.y / unit, data.label, held.cost, **scale)
    recovered = recovered_rows(whole, X, data.y / unit, data.label, week.pickups / unit, data.censored)
    for row in recovered:
        row["value"] *= unit if row["metric"] == "rmse" else 1.0
    return {
        "recovered": recovered,
        "mean": (unit * held.mean_otherwise).tolist(),
        "mean_as_labelled": (unit * held.mean).tolist(),
        "cost": held.cost.as_dict(),
    }


def settings_at_known(grid: Grid) -> list[dict[str, Any]]:
    """Return one cell per repetition, (gamma, c) and model; each takes no search of a kernel."""
    return [
        {"experiment": KNOWN, "model": model, "gamma": gamma, "c": c, "repetition": repetition}
        for repetition in range(grid.repetitions)
        for gamma, c in grid.cells
        for model in MODELS
    ]


def known_kernel(week: Week) -> tuple[Kernel, float, Cost]:
    """Return the kernel, held, and the noise variance that fit the uncensored week best, in the units of `starts`."""
    cost = Cost()
    unit = float(np.sqrt(np.mean(np.square(week.pickups))))
    with threadpool_limits(1):  # as in every cell: the last digits depend on the number of threads
        settings = {"max_iter": MAX_ITER, "noise_variance": NOISE, "normalize_y": False}
        gp = fit("ncgp", starts(), week.X, week.pickups / unit, np.zeros(BINS), cost, **settings)
    slow, daily = (
        {name: replace(p, fixed=True) for name, p in leaf.parameters.items()} for leaf in gp.kernel_.leaves()
    )
    held = SquaredExponential(slow["variance"], slow["lengthscale"]) + Periodic(
        daily["period"], daily["variance"], daily["lengthscale"]
    )
    return held, float(gp.noise_variance_), cost


def _compute_at_known(cell: Cell, week: Week, seed: int, kernel: Kernel, noise: float) -> Result:
    """Predict held-out and hidden bins with a kernel and noise that are held: only the share is learnt.

    Which peak of the evidence a search ends at changes the RMSE as much as what is known about censored bins. Here all
    models have the same hyper-parameters, and the same inputs, without the label.
    """
    model, gamma, c, repetition = (cell.settings[k] for k in ("model", "gamma", "c", "repetition"))
    data = observed(week, gamma, c, repetition, seed)
    unit = float(np.sqrt(np.mean(np.square(week.pickups))))
    y = data.y / unit
    settings: dict[str, Any] = {"noise_variance": Parameter(noise, fixed=True), "normalize_y": False}
    cost = Cost()
    whole = fit(model, kernel, week.X, y, data.label, cost, **settings)
    recovered = recovered_rows(whole, week.X, y, data.label, week.pickups / unit, data.censored)
    for row in recovered:
        row["value"] *= unit if row["metric"] == "rmse" else 1.0
    if model == "share":  # folds start their search of the share where that of the week ended
        learnt = (whole.share_.alpha, whole.share_.beta)
        settings["share"] = Beta(
            *(replace(p, value=v) for p, v in zip(Beta().parameters.values(), learnt, strict=True))
        )
    held = cross_validate(model, kernel, week.X, y, data.label, np.array_split(np.arange(BINS), FOLDS), **settings)
    share = [whole.share_.mean, whole.share_.sd] if model == "share" else None
    return {
        "recovered": recovered,
        "mean": (unit * held.mean).tolist(),
        "share": share,
        "cost": (cost + held.cost).as_dict(),
    }


def reproduce(run: Run, first_day: str | None = None) -> pd.DataFrame:
    """Run the experiment, write table 5 and the figures to ``run.out``, and return the tidy results.

    Parameters
    ----------
    run : Run
        Settings of the run. ``run.data`` is a CSV as described in `load`.
    first_day : str, optional
        First day of the week; see `load`.

    Returns
    -------
    DataFrame
    """
    week, grid = load(run.data, first_day), GRIDS[run.level]
    run.say(f"Data: {week.about}")
    compute = partial(_compute, week=week, seed=run.seed, warm_start=run.warm_start)
    shared = {
        "seed": run.seed,
        "warm_start": run.warm_start,
        "data": digest(week.X, week.pickups, week.previous_dropoffs),
        "start": [repr(starts()), NOISE],
    }
    cells = compute_all(run, "taxi", settings_of(grid), compute, **shared)
    kernel, noise, cost = known_kernel(week)
    known = compute_all(
        run,
        "taxi",
        settings_at_known(grid),
        partial(_compute_at_known, week=week, seed=run.seed, kernel=kernel, noise=noise),
        **{**shared, "warm_start": False},
    )
    frame = results_frame([*_rows(week, grid, cells, run.seed), *_rows_at_known(week, known, run.seed)])
    write_results(frame, run.out)
    cells_of_full = Counter(s["model"] for s in settings_of(GRIDS["full"]))
    main = frame[frame.experiment == READINGS[0][0]]
    tables = [
        report.table5(main, run.out),
        report.against_paper(main, run.out),
        report.at_known(frame[frame.experiment == KNOWN], run.out),
        report.both_readings(frame, run.out),
        report.cost(cells, run.out, full=cells_of_full, warm_start=run.warm_start),
    ]
    report.score_figures(main, run.out)
    report.sigmoid_figure(run.out)
    report.example_figure(week.start, week.pickups, observed(week, 0.1, 0.5, 0, run.seed), run.out)
    finish(run, "taxi", week.about, tables, [{"cost": cost.as_dict()}, *(r for _, r in [*cells, *known])])
    return frame


def _rows_at_known(week: Week, cells: Sequence[tuple[Mapping[str, Any], Result]], seed: int) -> list[dict[str, Any]]:
    rows = []
    for s, result in cells:
        hidden = observed(week, s["gamma"], s["c"], s["repetition"], seed).censored
        rows += score_rows(week.pickups, np.array(result["mean"]), hidden, **s)
        rows += [{**s, **row} for row in result["recovered"]]
    return rows


def _rows(week: Week, grid: Grid, cells: Sequence[tuple[Mapping[str, Any], Result]], seed: int) -> list[dict[str, Any]]:
    results = {tuple(s.values()): r for s, r in cells}
    rows = []
    for experiment, kept in READINGS:
        for repetition in range(grid.repetitions):
            for gamma, c in grid.cells:
                hidden = observed(week, gamma, c, repetition, seed).censored
                for model in MODELS:
                    mean = np.array(results[tuple(cell_of(model, gamma, c, repetition).values())][kept])
                    about = {"experiment": experiment, "model": model, "gamma": gamma, "c": c, "repetition": repetition}
                    rows += score_rows(week.pickups, mean, hidden, **about)
                    if experiment == READINGS[0][0]:
                        found = results[tuple(cell_of(model, gamma, c, repetition).values())]["recovered"]
                        rows += [{**about, **row} for row in found]
    return rows
