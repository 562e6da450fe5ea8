"""Files that somebody changes while they are read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from unmet._exceptions import UnmetError
from unmet.mobility.panel import build_panel
from unmet.simulate import simulate_city


@pytest.mark.parametrize("source", ["trips", "status"])
def test_a_file_that_is_removed_while_it_is_read_is_named(source, tmp_path):
    city = simulate_city(stations=2, days=8, seed=1).save(tmp_path / "city")
    files = {name: shutil.copy(city / f"{name}.parquet", tmp_path / f"{name}.parquet") for name in ("trips", "status")}

    def build(at: int | None) -> int:
        """Remove the file at a step; return the number of steps."""
        steps: list[str] = []

        def step(sentence: str) -> None:
            steps.append(sentence)
            if len(steps) == at:
                Path(files[source]).unlink()

        build_panel(**files, stations=city / "stations.csv", timezone="America/New_York", progress=step)
        return len(steps)

    told = []
    for at in range(1, build(None) + 1):
        shutil.copy(city / f"{source}.parquet", files[source])
        try:
            build(at)
        except UnmetError as error:
            told.append(str(error))
    assert any(text.startswith(f"{files[source]}: was changed or removed while it was read") for text in told)
