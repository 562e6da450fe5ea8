"""A small simulated city as files, for the tests of whole runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from unmet.engines import ENGINES
from unmet.execution import serially
from unmet.pipeline import RunSettings
from unmet.simulate import simulate_city

TIMEZONE = "America/New_York"


def save_city(folder: Path, stations: int = 4, days: int = 15, seed: int = 3) -> Path:
    return simulate_city(stations=stations, days=days, seed=seed, fleet_share=0.25).save(folder / "city")


def city_settings(city: Path, out: Path, **more: object) -> RunSettings:
    usual = {
        "trips": (str(city / "trips.parquet"),),
        "status": (str(city / "status.parquet"),),
        "stations": (str(city / "stations.csv"),),
        "weather": str(city / "weather.csv"),
        "timezone": TIMEZONE,
        "model": "weekly-mean",
        "draws": 40,
        "jobs": 1,
        "out": out,
    }
    return RunSettings(**(usual | more))


def city_flags(city: Path, out: Path, *more: str) -> list[str]:
    """The same on the command line."""
    return [
        *("--trips", str(city / "trips.parquet"), "--status", str(city / "status.parquet")),
        *("--stations", str(city / "stations.csv"), "--timezone", TIMEZONE, "--out", str(out)),
        *("--weather", str(city / "weather.csv"), "--model", "weekly-mean", "--draws", "40", "--jobs", "1"),
        *more,
    ]


def in_one_process(patch: pytest.MonkeyPatch) -> None:
    """Worker processes have tests of their own; elsewhere they would only take time."""
    patch.setitem(ENGINES, "processes", serially)
