"""The scripts that draw the figures of the documentation still do."""

from __future__ import annotations

import importlib.util
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

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
