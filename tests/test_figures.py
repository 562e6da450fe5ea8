"""The scripts that draw the figures of the documentation still do."""

from __future__ import annotations

import graphlib
import importlib.util
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from test_imports import GROUND, MAY_IMPORT, imported_by, modules, part_of
from unmet.mobility.demand import LatentDemand

DRAWING = Path(__file__).parent.parent / "docs" / "drawing"
# Two run a city through the models; a smaller one does to see that they run.
SMALL = {"stations": 2, "days": 15}


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DRAWING))
    spec = importlib.util.spec_from_file_location(f"drawing_{name}", DRAWING / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def names() -> list[str]:
    """What figures.py knows how to draw, read off the files that it made."""
    folder = DRAWING.parent / "figures"
    return sorted({file.name.split(".")[0] for file in folder.glob("*.svg")})


@pytest.mark.slow
def test_every_figure_is_drawn_anew_light_and_dark(tmp_path, monkeypatch, capsys):
    figures = load("figures", monkeypatch)
    simulate = figures.simulate_city
    monkeypatch.setattr(figures, "FOLDER", tmp_path)
    monkeypatch.setattr(figures, "simulate_city", lambda **options: simulate(**(options | SMALL)))
    monkeypatch.setattr(figures, "LatentDemand", lambda model, **options: LatentDemand(model, draws=20, **options))
    figures.main([])
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {f"{name}.{theme}.svg" for name in names() for theme in ("light", "dark")}
    for path in tmp_path.iterdir():
        drawn = ElementTree.parse(path).getroot()
        assert drawn.tag.endswith("svg")
        assert len(list(drawn.iter())) > 30, f"{path.name}: there is nothing on it"
    assert "figure1: " in capsys.readouterr().out


def test_figures_of_the_experiments_are_made_smaller(tmp_path, monkeypatch, capsys):
    experiments = load("experiments", monkeypatch)
    monkeypatch.setattr(experiments, "FOLDER", tmp_path)
    for source in experiments.FIGURES.values():
        (tmp_path / source).parent.mkdir(exist_ok=True)
        Image.new("RGB", (2400, 800), "white").save(tmp_path / source)
    experiments.main([str(tmp_path)])
    for name in experiments.FIGURES:
        with Image.open(tmp_path / f"{name}.webp") as picture:
            assert picture.size == (1200, 400)
    assert "motorcycle-share: " in capsys.readouterr().out


def arrows_of(table: dict[str, set[str]]) -> dict[str, set[str]]:
    """The imports between parts without those that others imply, by the last part of their names."""
    reached: dict[str, set[str]] = {}
    arrows = {}
    for part in graphlib.TopologicalSorter(table).static_order():
        implied = set().union(*(reached[other] for other in table[part]))
        reached[part] = table[part] | implied
        arrows[part.removeprefix("mobility.")] = {o.removeprefix("mobility.") for o in table[part] - implied}
    return arrows


def test_the_arrows_of_the_import_picture_are_the_imports_of_the_code(monkeypatch):
    way = load("way", monkeypatch)
    helpers = {name for row in way.GROUND for name in row}
    assert helpers == GROUND | {part for part in helpers if MAY_IMPORT[part] <= helpers}
    done: dict[str, set[str]] = {}
    for module in modules():
        part = part_of(module)
        done.setdefault(part, set()).update({part_of(other) for other in imported_by(module)} - helpers - {part})
    table = {part: others for part, others in done.items() if part not in helpers | {"mobility", "__main__"}}
    assert {part.removeprefix("mobility.") for part in table} == set(way.BOXES), "draw every part"
    drawn = {part: set(others) for part, others in way.ARROWS.items()}
    assert drawn == {part: others for part, others in arrows_of(table).items() if others}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_import_picture_is_drawn_anew_after_a_change(theme, monkeypatch):
    way = load("way", monkeypatch)
    for name, draw in (("imports", way.draw_imports), ("way", way.draw_way)):
        file = DRAWING.parent / "figures" / f"{name}.{theme}.svg"
        assert file.read_text(encoding="utf-8") == draw(theme), f"{name}: run `make figures`"


@pytest.mark.slow
def test_the_report_has_its_picture_taken(tmp_path, monkeypatch):
    report = load("report", monkeypatch)
    if report.find_browser() is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    run = report.run_demo
    monkeypatch.setattr(report, "TARGET", tmp_path / "report")
    monkeypatch.setattr(
        report, "run_demo", lambda out, **options: run(out, **(options | SMALL | {"model": "weekly-mean", "jobs": 1}))
    )
    report.main()
    with Image.open(tmp_path / "report.webp") as picture:
        assert picture.size == report.SIZE
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 100  # not a blank page
