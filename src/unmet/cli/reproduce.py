"""`unmet reproduce`: run the experiments of Gammelli et al. (2020)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from unmet._exceptions import InputError
from unmet.cli import _options as flags
from unmet.cli._console import Console
from unmet.cli._help import Command, Group
from unmet.cli._progress import stoppable, zone_progress

if TYPE_CHECKING:
    from unmet.experiments import Run

__all__ = ["reproduce_app"]

reproduce_app = typer.Typer(
    cls=Group,
    help="Run the experiments of the paper and write their tables, figures and results.csv.\n\n"
    "A run uses every core and keeps finished cells in --out. The same command continues an interrupted run.",
    no_args_is_help=True,
)


class BikeSource(StrEnum):
    """Source of the bike-sharing zones."""

    nyc = "nyc"
    east_village = "east-village"
    east_village_any = "east-village-any"


Out = Annotated[Path, typer.Option(help="Folder for tables, figures and finished cells; default: out/EXPERIMENT.")]
Quick = Annotated[bool, typer.Option("--quick", help="Run a few cells, in a minute or two.")]
Full = Annotated[bool, typer.Option("--full", help="Run the paper's full protocol; may take hours.")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed; results do not depend on --jobs.")]
Jobs = Annotated[int, typer.Option(min=-1, help="Number of processes; -1: one per core.")]
Warm = Annotated[
    bool, typer.Option("--warm-start", help="Start each fold from the fit of the whole series, which is faster.")
]


def _folder(experiment: str, data: Path | None, week: str | None = None) -> Path:
    """Return the default folder of results; it is another one for other data."""
    name = data.name.split(".")[0] if data else None
    return Path("out") / "-".join(part for part in (experiment, name, week) if part)


@contextmanager
def _run(
    out: Path,
    quick: bool,
    full: bool,
    seed: int,
    jobs: int,
    engine: str,
    warm_start: bool = False,
    data: Path | None = None,
) -> Iterator[Run]:
    """Provide the settings of a run, with progress on standard error and finished cells kept after Ctrl-C."""
    from unmet.engines import find_executor
    from unmet.experiments import Run

    if quick and full:
        raise InputError("Give --quick or --full, not both.")
    if jobs == 0:
        raise InputError("--jobs: expected a number of processes, or -1 for one per core; got 0.")
    level: Literal["quick", "default", "full"] = "quick" if quick else "full" if full else "default"
    stderr = Console(stderr=True)
    progress = partial(zone_progress, stderr, "Computing cells", "cells")
    with stoppable(stderr):
        executor = None if engine == "processes" else find_executor(engine)
        yield Run(out, level, seed, jobs, warm_start, data, console=stderr, progress=progress, executor=executor)


@reproduce_app.command("synthetic", cls=Command)
def synthetic_command(
    out: Out = Path("out/synthetic"),
    quick: Quick = False,
    full: Full = False,
    seed: Seed = 0,
    jobs: Jobs = -1,
    engine: flags.Engine = "processes",
    noise_variance: Annotated[
        float,
        typer.Option(
            help="Noise variance of the observations; the paper states 0.1, its published notebook uses 0.01."
        ),
    ] = 0.1,
) -> None:
    """Fit a known function whose peaks are censored (section 4.2, figure 1)."""
    from unmet.experiments import synthetic

    with _run(out, quick, full, seed, jobs, engine) as run:
        synthetic.reproduce(run, noise_variance)


@reproduce_app.command("motorcycle", cls=Command)
def motorcycle_command(
    out: Out = Path("out/motorcycle"),
    quick: Quick = False,
    full: Full = False,
    seed: Seed = 0,
    jobs: Jobs = -1,
    engine: flags.Engine = "processes",
) -> None:
    """Fit the motorcycle data under censoring of growing extent and intensity (section 4.3, figures 2-4).

    Labels give the side on which the truth lies. The paper's literal labels are run for comparison.
    """
    from unmet.experiments import motorcycle

    with _run(out, quick, full, seed, jobs, engine) as run:
        motorcycle.reproduce(run)


@reproduce_app.command("bike", cls=Command)
def bike_command(
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for tables, figures and finished cells; default: out/bike-SOURCE, with --data "
            "out/bike-NAME after the file."
        ),
    ] = None,
    source: Annotated[
        BikeSource,
        typer.Option(
            help="nyc: three stations of 2017. east-village: three super-hubs of 2020-21, labelled when the whole "
            "hub was out of bikes. east-village-any: labelled when any of its stations was."
        ),
    ] = BikeSource.nyc,
    quick: Quick = False,
    full: Full = False,
    seed: Seed = 0,
    jobs: Jobs = -1,
    engine: flags.Engine = "processes",
    warm_start: Warm = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Your own CSV file with columns zone, day, pickups, stockout (0 or 1), and weather. "
            "Every run writes its data in this form (zones.csv)."
        ),
    ] = None,
) -> None:
    """Fit daily bike pickups of three zones with stock-out labels (section 4.4, tables 2-4)."""
    from unmet.experiments import bike

    folder = out or _folder("bike" if data else f"bike-{source.value}", data)
    with _run(folder, quick, full, seed, jobs, engine, warm_start, data) as run:
        bike.reproduce(run, source.value)


@reproduce_app.command("taxi", cls=Command)
def taxi_command(
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for tables, figures and finished cells; default: out/taxi, with --data out/taxi-NAME after "
            "the file, with --week also the day."
        ),
    ] = None,
    quick: Quick = False,
    full: Full = False,
    seed: Seed = 0,
    jobs: Jobs = -1,
    engine: flags.Engine = "processes",
    warm_start: Warm = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Your own CSV file: timestamp, pickups, dropoffs per 15 minutes; one week and the bin before it."
        ),
    ] = None,
    week: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"],
            metavar="YYYY-MM-DD",
            help="First day of the week; default: 2014-01-13, and with --data the second row of the file.",
        ),
    ] = None,
) -> None:
    """Fit taxi pickups per 15 minutes under RandDropoff censoring (section 4.5, table 5).

    Prints the time of one fit and an estimate for --full.
    """
    from unmet.experiments import taxi

    first_day = f"{week:%Y-%m-%d}" if week else None
    folder = out or _folder("taxi", data, first_day)
    with _run(folder, quick, full, seed, jobs, engine, warm_start, data) as run:
        taxi.reproduce(run, first_day)
