"""The file that is written: one piece, safe, whole or not at all. What it shows is tested in a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from report.small_runs import HOSTILE
from unmet._exceptions import FileFormatError, InputError, MissingExtraError
from unmet.execution import serially
from unmet.mobility.demand import LatentDemand
from unmet.mobility.panel import read_panel
from unmet.mobility.runs.outputs import write_info
from unmet.report import write_report


class Parts(HTMLParser):
    """What a browser would see: tags, and the texts of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def hostile_parts(hostile_run, tmp_path_factory) -> Parts:
    page = hostile_run.report(tmp_path_factory.mktemp("page") / "report.html", title=HOSTILE[1])
    return Parts(page.read_text(encoding="utf-8"))


def test_names_are_in_the_data_and_nowhere_in_the_markup(hostile_parts):
    assert [tag for tag, _ in hostile_parts.tags].count("script") == 3
    assert "img" not in [tag for tag, _ in hostile_parts.tags]
    data = json.loads(hostile_parts.scripts[0])
    assert set(data["zones"]["name"]) == set(HOSTILE)
    assert data["title"] == HOSTILE[1]
    assert not set("<>&\u2028\u2029") & set(hostile_parts.scripts[0])


def test_nothing_is_fetched_and_only_these_scripts_may_run(hostile_parts):
    links = [a.get("href") or a.get("src") for _, a in hostile_parts.tags if a.get("href") or a.get("src")]
    assert [link for link in links if not link.startswith(("#", "data:"))] == []
    (policy,) = [a["content"] for _, a in hostile_parts.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    for script in hostile_parts.scripts[1:]:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in allowed
    assert "unsafe-eval" not in policy
    assert len(allowed) == 2


def test_the_page_is_in_the_runs_folder_unless_named(plain_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(plain_run.folder, folder)
    assert write_report(folder, panel=plain_run.panel) == folder / "report.html"


def test_the_panel_is_found_beside_a_run_that_was_moved(plain_run, tmp_path):
    shutil.copytree(plain_run.folder, tmp_path / "made" / "estimate")
    shutil.copy(plain_run.panel, tmp_path / "made" / "panel.parquet")
    told = tmp_path / "made" / "estimate" / "run.json"
    info = json.loads(told.read_text())
    write_info(told, {**info, "panel_path": "/not/here/panel.parquet"})
    # The folder of `unmet run` serves as well as the estimate's own within it.
    assert write_report(tmp_path / "made").is_file()
    (tmp_path / "made" / "panel.parquet").unlink()
    with pytest.raises(InputError, match="--panel"):
        write_report(tmp_path / "made" / "estimate")


def test_another_panel_is_refused(plain_run, hostile_run, tmp_path):
    with pytest.raises(InputError, match="not the panel of this run"):
        write_report(plain_run.folder, tmp_path / "report.html", panel=hostile_run.panel)


def test_a_run_on_a_frame_needs_its_panel_named(plain_run, hostile_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(plain_run.folder, folder)
    info = json.loads((folder / "run.json").read_text())
    write_info(folder / "run.json", {**info, "panel_path": None})
    with pytest.raises(InputError, match="does not record the path of its panel"):
        write_report(folder)
    with pytest.raises(InputError, match="the zones of the panel differ from those of the run"):
        write_report(folder, panel=hostile_run.panel)
    assert write_report(folder, panel=plain_run.panel).is_file()


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="unmet estimate"):
        write_report(tmp_path)
    with pytest.raises(InputError, match="unmet estimate"):
        write_report(tmp_path / "nowhere")


@pytest.mark.parametrize("table", ["zones", "demand"])
def test_tables_that_are_something_else_are_refused(plain_run, tmp_path, table):
    folder = tmp_path / "run"
    shutil.copytree(plain_run.folder, folder)
    (folder / f"{table}.parquet").write_bytes(b"not a table")
    for trust in (False, True):
        with pytest.raises(FileFormatError, match=table):
            write_report(folder, panel=plain_run.panel, trust=trust)
    pd.DataFrame({"zone": ["a"]}).to_parquet(folder / f"{table}.parquet")
    with pytest.raises(FileFormatError, match="there is no column"):
        write_report(folder, panel=plain_run.panel, trust=True)


def test_a_page_that_cannot_be_written_leaves_the_old_one(plain_run, tmp_path, monkeypatch):
    page = tmp_path / "report.html"
    page.write_text("the old one")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(InputError, match="No space left"):
        write_report(plain_run.folder, page, panel=plain_run.panel)
    monkeypatch.undo()
    assert page.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [page]


def test_places_that_cannot_be_written_are_refused(plain_run, tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        write_report(plain_run.folder, tmp_path, panel=plain_run.panel)
    with pytest.raises(InputError, match="There is no folder"):
        write_report(plain_run.folder, tmp_path / "no" / "report.html", panel=plain_run.panel)


def test_without_plotly_the_install_line_is_told(plain_run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'unmet\[report\]'"):
        write_report(plain_run.folder, tmp_path / "report.html", panel=plain_run.panel)


def test_the_weather_and_what_was_found_about_it_are_told(plain_run, city, tmp_path):
    weather = city.weather.assign(snow=0.0, sky="clear")
    model = LatentDemand("weekly-mean", draws=20, weather=weather, weather_columns=["temperature_c", "snow"])
    model.fit(plain_run.panel, tmp_path / "run", executor=serially)
    page = write_report(tmp_path / "run", tmp_path / "report.html", panel=plain_run.panel)
    how = json.loads(Parts(page.read_text(encoding="utf-8")).scripts[0])["how"]
    facts = dict(how["model"])
    assert facts["Weather"] == "DataFrame (given, but not used by this model)"
    assert facts["Weather columns"] == "temperature_c"
    of_weather = [row for row in how["quality"] if row[1] == "weather"]
    assert [(row[0], row[2], row[5]) for row in of_weather] == [("noted", "same in every bin", "snow: not used")]


def test_vehicles_that_nobody_can_rent_are_on_the_page(plain_run, tmp_path):
    panel = read_panel(plain_run.panel)
    row = [["s1", HOSTILE[0], "s1", 2, 1.2, 0.93, "2024-03-19 08:05:00"]]
    panel = replace(panel, unusable=pd.DataFrame(row, columns=list(panel.unusable.columns)))
    panel.save(tmp_path / "panel.parquet")
    LatentDemand("weekly-mean", draws=20).fit(tmp_path / "panel.parquet", tmp_path / "run", executor=serially)
    page = write_report(tmp_path / "run", tmp_path / "report.html", panel=tmp_path / "panel.parquet")
    supply = json.loads(Parts(page.read_text(encoding="utf-8")).scripts[0])["how"]["supply"]
    assert supply["stations"] == [[HOSTILE[0], 2, 1.2, 0.93, "2024-03-19 08:05:00"]]
    learnt = panel.summary["usable_supply"]
    assert learnt["method"] == "hidden"
    assert supply["curve"] == [[n, learnt["curve_listed"][str(n)], learnt["curve_usable"][str(n)]] for n in range(1, 5)]
    assert dict(supply["facts"])["Log-likelihood above that of rentable listings"]
