"""`unmet reproduce`: the experiments of Gammelli et al. (2020), end to end."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmet._exceptions import InputError
from unmet.cli._help import Command, Group

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


def _run(
    out: Path, quick: bool, full: bool, seed: int, jobs: int, warm_start: bool = False, data: Path | None = None
) -> Run:
    from unmet.experiments import Run

    if quick and full:
        raise InputError("give --quick or --full, not both")
    if jobs == 0:
        raise InputError("--jobs must be a number of processes, or -1 for one per core; got 0")
    return Run(out, "quick" if quick else "full" if full else "default", seed, jobs, warm_start, data)


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

    synthetic.reproduce(_run(out, quick, full, seed, jobs), noise_variance)


@reproduce_app.command("motorcycle", cls=Command)
def motorcycle_command(
    out: Out = Path("out/motorcycle"), quick: Quick = False, full: Full = False, seed: Seed = 0, jobs: Jobs = -1
) -> None:
    """Accident data under censoring of growing extent and intensity (section 4.3, figures 2-4).

    Labels say on which side of each observation the truth lies; the paper's literal reading is run beside it.
    """
    from unmet.experiments import motorcycle

    motorcycle.reproduce(_run(out, quick, full, seed, jobs))


@reproduce_app.command("bike", cls=Command)
def bike_command(
    out: Annotated[
        Path | None, typer.Option(help="Folder for tables, figures and finished cells; default: out/bike-SOURCE.")
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

    folder = out or Path("out") / ("bike" if data else f"bike-{source.value}")
    bike.reproduce(_run(folder, quick, full, seed, jobs, warm_start, data), source.value)


@reproduce_app.command("taxi", cls=Command)
def taxi_command(
    out: Out = Path("out/taxi"),
    quick: Quick = False,
    full: Full = False,
    seed: Seed = 0,
    jobs: Jobs = -1,
    warm_start: Warm = False,
    data: Annotated[
        Path | None,
        typer.Option(help="Your own CSV: timestamp, pickups, dropoffs per 15 minutes; a week and the bin before it."),
    ] = None,
) -> None:
    """Taxi pickups per 15 minutes under RandDropoff censoring (section 4.5, table 5).

    Prints what one fit costs and what --full would take.
    """
    from unmet.experiments import taxi

    taxi.reproduce(_run(out, quick, full, seed, jobs, warm_start, data))
