"""Files that somebody changes while they are read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from unmet._exceptions import UnmetError
from unmet.mobility.panel import Panel, build_panel, write_panel
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


def _rows(panel: Panel) -> list[float]:
    return [float(panel.panel[column].sum()) for column in ("observed", "returns", "stockout_minutes", "out_minutes")]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("source", ["trips", "status"])
def test_no_panel_is_made_of_two_versions_of_a_file(source, kind, tmp_path):
    city = simulate_city(stations=2, days=8, seed=1).save(tmp_path / "city")
    versions = {}
    for name in ("trips", "status"):
        table = pd.read_parquet(city / f"{name}.parquet")
        for version, rows in (("old", table), ("new", table.iloc[::2])):
            versions[name, version] = tmp_path / f"{version}-{name}.{kind}"
            write = rows.to_parquet if kind == "parquet" else rows.to_csv
            write(versions[name, version], index=False)
    files = {name: tmp_path / f"{name}.{kind}" for name in ("trips", "status")}

    def build(version: str, at: int | None = None) -> tuple[list[float], int]:
        """Begin with a version, and replace it by the new one at a step."""
        for name in files:
            shutil.copy(versions[name, version if name == source else "old"], files[name])
        steps: list[str] = []

        def step(sentence: str) -> None:
            steps.append(sentence)
            if len(steps) == at:
                shutil.copy(versions[source, "new"], files[source])

        panel = build_panel(**files, stations=city / "stations.csv", timezone="America/New_York", progress=step)
        return _rows(panel), len(steps)

    (old, steps), (new, _) = build("old"), build("new")
    assert old != new
    for at in range(1, steps + 1, 3):
        with pytest.raises(UnmetError, match="was changed or removed while it was read"):
            build("old", at)


def test_an_earlier_panel_stays_if_a_file_changes_up_to_the_last_row(tmp_path):
    city = simulate_city(stations=2, days=8, seed=1).save(tmp_path / "city")
    target = tmp_path / "panel.parquet"
    target.write_bytes(b"earlier")

    def step(sentence: str) -> None:
        if sentence == "writing the panel":
            shutil.copy(city / "status.parquet", city / "trips.parquet")

    with pytest.raises(UnmetError, match=r"trips\.parquet: was changed or removed while it was read"):
        write_panel(
            target,
            trips=city / "trips.parquet",
            status=city / "status.parquet",
            stations=city / "stations.csv",
            timezone="America/New_York",
            progress=step,
        )
    assert target.read_bytes() == b"earlier"


def test_a_log_that_is_written_to_meanwhile_is_read(tmp_path):
    city = simulate_city(stations=2, days=8, seed=1).save(tmp_path / "city")
    status = pd.read_parquet(city / "status.parquet")
    status.to_csv(tmp_path / "status.csv", index=False)

    def step(sentence: str) -> None:
        status.tail(1).to_csv(tmp_path / "status.csv", index=False, header=False, mode="a")

    build_panel(status=tmp_path / "status.csv", timezone="America/New_York", progress=step)
