"""Bike-sharing (paper section 4.4, tables 2–4): daily pickups of three zones with stock-out labels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._typing import Array
from unmet.censoring import censor_labelled
from unmet.experiments._data import digest, packaged
from unmet.experiments._figures import CENSORED, OBSERVED, TRUTH, new_figure, save, score_lines
from unmet.experiments._fits import MODELS, RECOVERED, TITLES, cross_validate, fit, recovered_rows, score_rows
from unmet.experiments._run import Level, Run, compute_all, finish
from unmet.experiments._runner import Cell, Result, generator
from unmet.experiments._tables import Table, results_frame, wide_by_c, write_results, write_table
from unmet.experiments.bike_data import Zone, nyc_stations, read_zones, write_zones
from unmet.kernels import Kernel, Matern, Periodic, SquaredExponential

__all__ = ["Source", "kernel", "reproduce"]

Source = Literal["nyc", "east-village", "east-village-any"]
ABOUT: dict[Source, str] = {
    "nyc": "stations of Citi Bike, 2017",
    "east-village": "super-hubs of the East Village, 2020-21, labelled when the whole hub was out",
    "east-village-any": "super-hubs of the East Village, 2020-21, labelled when any station of the hub was out",
}
FOLDS = 5
INTENSITIES: dict[Level, tuple[float, ...]] = {
    "quick": (0.0, 0.5, 1.0),
    "default": tuple(round(0.1 * i, 1) for i in range(11)),
    "full": tuple(round(0.1 * i, 1) for i in range(11)),
}
REPETITIONS: dict[Level, int] = {"quick": 1, "default": 2, "full": 10}

# Name in the column `experiment` of results.csv, and the fraction of labels that the learnt share is given.
LABELS = {"bike": 1.0, "bike (half of the labels)": 0.5, "bike (no labels)": 0.0}
INTENSITIES_UNLABELLED: dict[Level, tuple[float, ...]] = {
    "quick": (0.5,),
    "default": (0.3, 0.4, 0.5, 0.6),
    "full": INTENSITIES["full"],
}


def kernel(weather_columns: int) -> Kernel:
    """Return ``SE(t) + Periodic(t) + Matérn(weather)`` (paper eq. 22); the period starts at a week."""
    return (
        SquaredExponential(columns=0)
        + Periodic(period=7.0, columns=0)
        + Matern(columns=list(range(1, 1 + weather_columns)))
    )


def folds_of(zone: Zone, repetition: int, seed: int) -> list[Array]:
    """Assign days at random to five folds. The task is to fill in lost days, not to forecast."""
    order = generator(seed, "bike", zone.name, repetition).permutation(len(zone.day))
    return [np.sort(part) for part in np.array_split(order, FOLDS)]


def labels_kept(zone: Zone, label: Any, fraction: float, seed: int) -> Any:
    """Return the labels as they are, or all but a random `fraction` of them replaced by NaN (not known)."""
    if fraction == 1:
        return label
    kept = generator(seed, "bike labels", zone.name).permutation(len(label)) < fraction * len(label)
    return np.where(kept, np.abs(label), np.nan)


def _compute(cell: Cell, zones: Mapping[str, Zone], seed: int, warm_start: bool, adam: bool) -> Result:
    model, c, repetition = (cell.settings[k] for k in ("model", "c", "repetition"))
    zone = zones[cell.settings["zone"]]
    data = censor_labelled(zone.pickups, zone.stockout, 0.0 if c is None else c)
    label = labels_kept(zone, data.label, LABELS[cell.settings.get("experiment", "bike")], seed)
    held = cross_validate(
        model,
        kernel(zone.weather.shape[1]),
        zone.inputs(),
        data.y,
        label,
        folds_of(zone, repetition, seed),
        warm_start=warm_start,
        optimizer="adam" if adam and model == "cgp" else "lbfgs",
    )
    X = zone.inputs()
    whole = fit(model, kernel(zone.weather.shape[1]), X, data.y, label, held.cost)
    recovered = recovered_rows(whole, X, data.y, label, zone.pickups, zone.stockout)
    return {"mean": held.mean.tolist(), "recovered": recovered, "cost": held.cost.as_dict()}


def load(run: Run, source: Source) -> list[Zone]:
    """Return the zones of the given source."""
    if run.data is not None:
        return read_zones(run.data, run.say)
    if source == "nyc":
        return nyc_stations(run.say)
    if source in ("east-village", "east-village-any"):
        from unmet.experiments._superhubs import east_village_hubs  # imports DuckDB, which other sources do not need

        return east_village_hubs("any" if source.endswith("any") else "whole", run.say)
    raise InputError(f"source must be nyc, east-village or east-village-any; got {source!r}.")


def reproduce(run: Run, source: Source = "nyc") -> pd.DataFrame:
    """Run the experiment, write tables 2–4 and the figures to ``run.out``, and return the tidy results.

    Parameters
    ----------
    run : Run
        Settings of the run. ``run.data`` is a CSV as described in `unmet.experiments.bike_data`.
    source : {"nyc", "east-village", "east-village-any"}
        Three single stations of 2017, or three super-hubs of 2020–21, labelled where the whole hub, or any station of
        it, was out of bikes.

    Returns
    -------
    DataFrame
    """
    zones = load(run, source)
    about = f"{run.data or ABOUT[source]}: {', '.join(z.name for z in zones)}"
    run.say(f"Data: {about}")
    write_zones(zones, run.out / "zones.csv")
    intensities, repetitions = INTENSITIES[run.level], range(REPETITIONS[run.level])
    adam = run.level == "full"
    settings = [
        {"zone": zone.name, "model": model, "c": c, "repetition": i}
        for i in repetitions
        for zone in zones
        for model in MODELS
        for c in ([None] if model == "ncgp-a" else intensities)
    ]
    settings += [
        {"zone": zone.name, "model": "share", "c": c, "repetition": i, "experiment": experiment}
        for i in repetitions
        for zone in zones
        for experiment, kept in LABELS.items()
        for c in INTENSITIES_UNLABELLED[run.level]
        if kept < 1
    ]
    compute = partial(_compute, zones={z.name: z for z in zones}, seed=run.seed, warm_start=run.warm_start, adam=adam)
    data = digest(*(part for z in zones for part in (z.name, z.inputs(), z.pickups, z.stockout)))
    shared = {"seed": run.seed, "warm_start": run.warm_start, "adam": adam, "data": data}
    cells = compute_all(run, "bike", settings, compute, **shared)
    frame = results_frame(_rows(zones, cells, intensities))
    write_results(frame, run.out)
    main = frame[frame.experiment == "bike"]
    tables = [_table(i, zone, main, run) for i, zone in enumerate(zones)]
    tables += [_ahead(main, run), _share_ahead(main, run), _labels_removed(frame, run)]
    for zone in zones:
        _score_figure(zone, main, run)
        _example_figure(zone, run)
    finish(run, "bike-sharing", about, tables, [r for _, r in cells])
    return frame


def _rows(
    zones: Sequence[Zone], cells: Sequence[tuple[Mapping[str, Any], Result]], intensities: Sequence[float]
) -> list[dict[str, Any]]:
    by_name = {z.name: z for z in zones}
    rows = []
    for s, result in cells:
        zone = by_name[s["zone"]]
        for c in intensities if s["c"] is None else [s["c"]]:
            about = {
                "experiment": s.get("experiment", "bike"),
                "zone": zone.name,
                "model": s["model"],
                "c": c,
                "repetition": s["repetition"],
            }
            rows += score_rows(zone.pickups, np.array(result["mean"]), zone.stockout, **about)
            rows += [{**about, **row} for row in result["recovered"]]
    return rows


def _table(i: int, zone: Zone, frame: pd.DataFrame, run: Run) -> Table:
    share = f"{zone.stockout.mean():.0%} of them with a stock-out"
    note = f"{len(zone.day)} days, {share}; means of {REPETITIONS[run.level]} × {FOLDS} folds."
    return wide_by_c(frame[frame.zone == zone.name], f"Bike-sharing: {zone.name}", f"table{2 + i}", run.out, note)


def _ahead(frame: pd.DataFrame, run: Run) -> Table:
    """Write CGP's RMSE over that of the better of the other two, next to the ratios of the paper's super-hubs."""

    def ratio(results: pd.DataFrame) -> pd.DataFrame:
        part = results[(results.subset == "all") & (results.metric == "rmse")]
        means = part.groupby(["zone", "c", "model"]).value.mean().unstack("model")
        return (means["cgp"] / means[["ncgp", "ncgp-a"]].min(axis=1)).unstack("c")

    paper = packaged("paper_tables.csv")
    ours = ratio(frame)
    theirs = ratio(paper[paper.experiment == "bike"])[ours.columns]
    both = pd.concat([ours, theirs.set_axis([f"paper, {z}" for z in theirs.index])])
    both.columns = pd.Index([f"c = {c:g}" for c in both.columns])
    both.insert(0, "zone", both.index)
    return write_table(
        "cgp_against_the_better",
        both,
        run.out,
        title="Bike-sharing: RMSE of CGP over that of the better of NCGP and NCGP-A, all days (below 1: CGP is best)",
        shown=both.map(lambda v: v if isinstance(v, str) else f"{v:.3f}"),
    )


def _share_ahead(frame: pd.DataFrame, run: Run) -> Table:
    """Write the RMSE of the learnt share over that of the best of the paper's three models."""
    ratios: dict[Any, pd.Series[float]] = {}
    for subset, name in (("all", "held-out days"), (RECOVERED, "hidden values")):
        part = frame[(frame.subset == subset) & (frame.metric == "rmse")]
        means = part.groupby(["zone", "c", "model"]).value.mean().unstack("model")
        # Nothing is hidden at c = 0, and NCGP, which takes what it sees for the truth, is right.
        ratio = (means["share"] / means[["ncgp", "ncgp-a", "cgp"]].min(axis=1)).replace(np.inf, np.nan)
        ratios |= {(zone, name): row for zone, row in ratio.unstack("c").iterrows()}
    table = pd.DataFrame(ratios).T.rename(columns="c = {:g}".format)
    table.insert(0, "data", [name for _, name in table.index])
    table.insert(0, "zone", [zone for zone, _ in table.index])
    return write_table(
        "share_against_the_best",
        table,
        run.out,
        title="Bike-sharing: RMSE of the learnt share over that of the best of the three (below 1: it is best)",
        shown=table.map(lambda v: v if isinstance(v, str) else "" if np.isnan(v) else f"{v:.3f}"),
        keys=2,
        note="Hidden values are the true values of labelled days of the fit, given what was seen of them.",
    )


def _labels_removed(frame: pd.DataFrame, run: Run) -> Table:
    """Write the RMSE of the learnt share with all, half and none of the labels, next to NCGP, which ignores them."""
    part = frame[(frame.subset == "all") & (frame.metric == "rmse") & frame.model.isin(["ncgp", "share"])]
    part = part[part.c.isin(INTENSITIES_UNLABELLED[run.level])]
    names = {"bike": "all labels", **{e: e.removeprefix("bike (").removesuffix(")") for e in LABELS if e != "bike"}}
    column = part.experiment.map(names).where(part.model == "share", TITLES["ncgp"])
    means = part.assign(column=column).groupby(["zone", "c", "column"]).value.mean().unstack("column")
    table = means[[TITLES["ncgp"], *names.values()]].reset_index()
    return write_table(
        "labels_removed",
        table,
        run.out,
        title="Bike-sharing: RMSE on all days of the learnt share, by the labels that are known",
        shown=table.round(2),
        keys=2,
    )


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "zone"


def _score_figure(zone: Zone, frame: pd.DataFrame, run: Run) -> None:
    figure, axes = new_figure(2, 2, (9, 6), sharex=True)
    for row, (metric, label) in zip(axes, (("r2", "R²"), ("rmse", "RMSE (pickups per day)")), strict=True):
        for ax, subset in zip(row, ("all", "non-censored"), strict=True):
            part = frame[(frame.zone == zone.name) & (frame.metric == metric) & (frame.subset == subset)]
            score_lines(ax, part)
            others = part[part.model != "ncgp"].value  # NCGP collapses, and would hide how the others differ
            if metric == "r2":
                ax.set_title("entire data set" if subset == "all" else "non-censored days", fontsize=10)
                ax.set_ylim(bottom=max(ax.get_ylim()[0], others.min() - 0.1))
            else:
                ax.set_ylim(top=min(ax.get_ylim()[1], 1.15 * others.max()))
        row[0].set_ylabel(label)
    for ax in axes[-1]:
        ax.set_xlabel("censorship intensity c")
    figure.suptitle(f"{zone.name} (extreme values of NCGP are cut off)")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(TITLES), frameon=False)
    save(figure, run.out, f"figure_{_slug(zone.name)}")


def _example_figure(zone: Zone, run: Run) -> None:
    figure, axes = new_figure(1, 1, (12, 3.6))
    ax, data = axes[0, 0], censor_labelled(zone.pickups, zone.stockout, 0.5)
    ax.plot(zone.day, zone.pickups, color=TRUTH, lw=1, label="pickups, treated as the true demand")
    ax.plot(zone.day, data.y, color=OBSERVED, lw=0.8, alpha=0.6, label="after censoring by 50 %")
    ax.plot(zone.day[zone.stockout], data.y[zone.stockout], "x", color=CENSORED, ms=4, label="censored days")
    ax.set_ylabel("pickups per day")
    ax.set_title(f"{zone.name}: {zone.stockout.mean():.0%} of days with a stock-out", loc="left", fontsize=11)
    ax.legend(frameon=False, ncols=3, loc="upper left")
    ax.set_ylim(0, 1.2 * float(zone.pickups.max()))
    ax.margins(x=0.01)
    save(figure, run.out, f"figure_{_slug(zone.name)}_censored")
