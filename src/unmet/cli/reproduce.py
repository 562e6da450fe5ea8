"""`unmet reproduce`: the experiments of Gammelli et al. (2020), end to end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from unmet._exceptions import InputError
from unmet.cli._help import Command, Group
from unmet.cli._progress import stoppable, zone_progress

if TYPE_CHECKING:
    from unmet.experiments import Run

__all__ = ["reproduce_app"]

reproduce_app = typer.Typer(
    cls=Group,
    help="Run the experiments of the paper and write their tables, figures and results.csv.\n\n"
    "Each run uses every core, keeps every finished cell in --out, and goes on from there when it is started again.",
    no_args_is_help=True,
)


class BikeSource(StrEnum):
    """Where the bike-sharing zones come from."""

    nyc = "nyc"
    east_village = "east-village"
    east_village_any = "east-village-any"


Out = Annotated[Path, typer.Option(help="Folder for tables, figures and finished cells; default: out/EXPERIMENT.")]
Quick = Annotated[bool, typer.Option("--quick", help="A few cells, in a minute or two.")]
Full = Annotated[bool, typer.Option("--full", help="The paper's whole protocol; may take hours.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same results, whatever --jobs is.")]
Jobs = Annotated[int, typer.Option(min=-1, help="Processes; -1 for one per core.")]
Warm = Annotated[bool, typer.Option("--warm-start", help="Start each fold at the fit of the whole series: faster.")]


def _folder(experiment: str, data: Path | None, week: str | None = None) -> Path:
    """Where results go unless told otherwise: those of other data apart from those of the experiment as it is."""
    name = data.name.split(".")[0] if data else None
    return Path("out") / "-".join(part for part in (experiment, name, week) if part)


@contextmanager
def _run(
    out: Path, quick: bool, full: bool, seed: int, jobs: int, warm_start: bool = False, data: Path | None = None
) -> Iterator[Run]:
    """How to run it, with progress on standard error; Ctrl-C is an end like another, and what is finished is kept."""
    from unmet.experiments import Run

    if quick and full:
        raise InputError("give --quick or --full, not both")
    if jobs == 0:
        raise InputError("--jobs must be a number of processes, or -1 for one per core; got 0")
    level: Literal["quick", "default", "full"] = "quick" if quick else "full" if full else "default"
    told = Console(stderr=True)
    progress = partial(zone_progress, told, "Computing cells", "cells")
    with stoppable(told):
        yield Run(out, level, seed, jobs, warm_start, data, console=told, progress=progress)


@reproduce_app.command("synthetic", cls=Command)
def synthetic_command(
    out: Out = Path("out/synthetic"),
    quick: Quick = False,
    full: Full = False,
    seed: Seed = 0,
    jobs: Jobs = -1,
    noise_variance: Annotated[
        float, typer.Option(help="Of the observations; the paper's text says 0.1, its published notebook uses 0.01.")
    ] = 0.1,
) -> None:
    """A known function whose peaks are hidden (section 4.2, figure 1)."""
    from unmet.experiments import synthetic

    with _run(out, quick, full, seed, jobs) as run:
        synthetic.reproduce(run, noise_variance)


@reproduce_app.command("motorcycle", cls=Command)
def motorcycle_command(
    out: Out = Path("out/motorcycle"), quick: Quick = False, full: Full = False, seed: Seed = 0, jobs: Jobs = -1
) -> None:
    """Accident data under censoring of growing extent and intensity (section 4.3, figures 2-4).

    Labels say on which side of each observation the truth lies; the paper's literal reading is run beside it.
    """
    from unmet.experiments import motorcycle

    with _run(out, quick, full, seed, jobs) as run:
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
            "hub was out of bikes; east-village-any: when any of its stations was."
        ),
    ] = BikeSource.nyc,
    quick: Quick = False,
    full: Full = False,
    seed: Seed = 0,
    jobs: Jobs = -1,
    warm_start: Warm = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Your own CSV: zone, day, pickups, stockout (0 or 1), and weather in the other columns. "
            "Every run writes the data it used in this form, zones.csv."
        ),
    ] = None,
) -> None:
    """Daily pickups of three zones with stock-out labels (section 4.4, tables 2-4)."""
    from unmet.experiments import bike

    folder = out or _folder("bike" if data else f"bike-{source.value}", data)
    with _run(folder, quick, full, seed, jobs, warm_start, data) as run:
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
    warm_start: Warm = False,
    data: Annotated[
        Path | None,
        typer.Option(help="Your own CSV: timestamp, pickups, dropoffs per 15 minutes; a week and the bin before it."),
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
    """Taxi pickups per 15 minutes under RandDropoff censoring (section 4.5, table 5).

    Prints what one fit costs and what --full would take.
    """
    from unmet.experiments import taxi

    first_day = f"{week:%Y-%m-%d}" if week else None
    folder = out or _folder("taxi", data, first_day)
    with _run(folder, quick, full, seed, jobs, warm_start, data) as run:
        taxi.reproduce(run, first_day)
