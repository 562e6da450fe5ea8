"""Plans of a run: tables, command and the first section of the page."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest
from typer.testing import CliRunner

from unmet import InputError
from unmet.cli import app
from unmet.mobility.planning import PlanOptions
from unmet.mobility.runs.outputs import read_info, write_info
from unmet.report.source import open_run
from unmet.report.targets import write_targets

TABLES = {"targets", "moves", "fleet", "next_bikes", "next_docks", "docks_to_move"}
SMALL = PlanOptions(day="tuesday", scenarios=20)


@pytest.fixture(scope="module")
def planned(plain_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("plan")
    return (*write_targets(plain_run.folder, out, SMALL, panel=plain_run.panel), out)


def test_all_tables_are_written_in_all_formats(planned):
    plan, moves, paths, out = planned
    names = {f"{table}.{kind}" for table in TABLES for kind in ("csv", "parquet")}
    assert {path.name for path in paths} == names | {"targets.geojson", "moves.geojson"}
    targets = pd.read_parquet(out / "targets.parquet")
    assert targets["rank"].tolist() == list(range(1, len(plan.stations) + 1))
    assert targets["planned"].sum() == targets["level_now"].sum() == plan.fleet
    assert (targets["target_low"] <= targets["target"]).all()
    assert (targets["target"] <= targets["target_high"]).all()
    written = pd.read_csv(out / "moves.csv")
    assert written["bikes"].sum() == plan.moved == targets["change"].clip(lower=0).sum()
    assert written["from_name"].tolist() == moves["from_name"].tolist()


def test_geojson_has_stations_as_points_and_moves_as_lines(planned, city):
    plan, _, _, out = planned
    stations = json.loads((out / "targets.geojson").read_text())["features"]
    assert len(stations) == len(plan.stations)
    at = city.stations.set_index("station_id").loc[stations[0]["id"]]
    assert stations[0]["geometry"]["coordinates"] == pytest.approx([at["lon"], at["lat"]], abs=1e-5)
    lines = json.loads((out / "moves.geojson").read_text())["features"]
    assert len(lines) == len(plan.moves)
    assert all(line["geometry"]["type"] == "LineString" for line in lines)


def test_names_that_look_like_formulas_are_harmless_in_csv(hostile_run, tmp_path):
    write_targets(hostile_run.folder, tmp_path / "plan", SMALL, panel=hostile_run.panel, formats=["csv"])
    names = pd.read_csv(tmp_path / "plan" / "targets.csv")["name"]
    assert not names.str.match(r"^[=+@-]").any()
    assert names.str.startswith("'").sum() >= 3


def test_levels_come_from_a_status_document(plain_run, city, tmp_path):
    stations = [
        {"station_id": ident, "num_bikes_available": 3, "num_docks_available": 1, "is_installed": True,
         "is_renting": True, "is_returning": True, "last_reported": 1711000000}
        for ident in city.stations["station_id"]
    ]  # fmt: skip
    document = tmp_path / "station_status.json"
    document.write_text(json.dumps({"last_updated": 1711000000, "ttl": 60, "data": {"stations": stations}}))
    plan, _, _ = write_targets(
        plain_run.folder, tmp_path / "plan", SMALL, panel=plain_run.panel, status=str(document), formats=["csv"]
    )
    assert {station.now for station in plan.stations} == {3}
    assert "2024-03-21" in plan.levels_from


def test_a_plan_does_not_replace_the_levels_it_starts_from(plain_run, city, tmp_path):
    levels = pd.DataFrame({"station_id": city.stations["station_id"], "num_bikes_available": 1})
    path = tmp_path / "targets.csv"
    levels.assign(last_reported=1_720_000_000).to_csv(path, index=False)
    before = path.read_bytes()
    with pytest.raises(InputError, match="is one of the inputs"):
        write_targets(plain_run.folder, tmp_path, SMALL, panel=plain_run.panel, status=str(path), formats=["csv"])
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_bikes_available": -1}, "every row was rejected: negative vehicles"),
        ({"num_bikes_available": 10**9}, "every row was rejected: "),
        (None, "it has no rows"),
    ],
)
def test_a_status_without_a_usable_row_says_why(plain_run, city, tmp_path, change, words):
    document = _status(city, tmp_path, change or {})
    if change is None:
        document.write_text(json.dumps({"last_updated": 1711000000, "ttl": 60, "data": {"stations": []}}))
    with pytest.raises(InputError, match=words):
        write_targets(plain_run.folder, tmp_path / "plan", SMALL, panel=plain_run.panel, status=str(document))


def test_rejected_rows_of_a_status_are_named_beside_the_levels(plain_run, city, tmp_path):
    document = _status(city, tmp_path, {}, {"num_bikes_available": -1})
    plan, _, _ = write_targets(
        plain_run.folder, tmp_path / "plan", SMALL, panel=plain_run.panel, status=str(document), formats=["csv"]
    )
    assert "without 1 rejected row (negative vehicles: 1)" in plan.levels_from


def _status(city, folder, change, first=None):
    stations = [
        {"station_id": ident, "num_bikes_available": 3, "num_docks_available": 1, "is_installed": True,
         "is_renting": True, "is_returning": True, "last_reported": 1711000000, **change}
        for ident in city.stations["station_id"]
    ]  # fmt: skip
    stations[0].update(first or {})
    document = folder / "station_status.json"
    document.write_text(json.dumps({"last_updated": 1711000000, "ttl": 60, "data": {"stations": stations}}))
    return document


def test_a_forecast_is_used_where_the_run_has_one(plain_run, tmp_path):
    options = PlanOptions(day=None, scenarios=20)  # the run has a horizon of 48 hours
    plan, _, _ = write_targets(plain_run.folder, tmp_path / "plan", options, panel=plain_run.panel, formats=["geojson"])
    assert plan.period.forecast
    assert plan.period.follows


def test_the_command_prints_the_plan_or_json(plain_run, tmp_path):
    command = ["targets", str(plain_run.folder), "--panel", str(plain_run.panel), "--out", str(tmp_path / "plan")]
    command += ["--day", "tuesday", "--draws", "20", "--moves", "5", "--format", "csv"]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0
    assert "Riders turned away: the usual Tuesday" in shown.output
    assert "after 5 moves" in shown.output
    document = json.loads(CliRunner().invoke(app, [*command, "--json", "--quiet"]).stdout)
    assert document["moved"] == 5
    assert document["totals"]["gain"]["mean"] > 0


def test_stations_without_a_status_are_refused(plain_run, tmp_path):
    """They would not be read."""
    with pytest.raises(InputError, match="read with --status only"):
        write_targets(
            plain_run.folder, tmp_path / "plan", SMALL, panel=plain_run.panel, stations=[str(tmp_path / "stations.csv")]
        )


def test_estimated_returns_that_were_damaged_are_refused(plain_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(plain_run.folder, folder)
    shutil.copytree(plain_run.folder, folder / "returns")
    info = read_info(folder / "returns")
    info["panel"]["summary"]["of"] = info["inputs"]["panel"]
    write_info(folder / "returns" / "run.json", info)
    (folder / "returns" / "demand.parquet").write_bytes(b"damaged")
    with pytest.raises(InputError, match="damaged or changed"):
        write_targets(folder, tmp_path / "plan", SMALL, panel=plain_run.panel)


@pytest.mark.parametrize(
    ("name", "other"), [("horizon", 24), ("features", "of other weather"), ("unmet", "0.0.1"), ("model", {})]
)
def test_returns_of_other_settings_are_not_used(plain_run, tmp_path, name, other):
    """A forecast of a week with returns of two days planned as if nobody came back from the third day on.

    Pickups that were estimated again with other weather were shown and planned with the returns of the earlier weather.
    """
    folder = tmp_path / "run"
    shutil.copytree(plain_run.folder, folder)
    shutil.copytree(plain_run.folder, folder / "returns")
    info = read_info(folder / "returns")
    info["panel"]["summary"]["of"] = info["inputs"]["panel"]
    info["inputs"]["kept"] = "that of an earlier run of returns"
    write_info(folder / "returns" / "run.json", info)
    with open_run(folder, plain_run.panel) as source:
        assert source.returns == folder / "returns"
    info["inputs"][name] = other
    write_info(folder / "returns" / "run.json", info)
    with open_run(folder, plain_run.panel) as source:
        assert source.returns is None


def test_the_page_begins_with_the_plan(plain):
    page = plain.page
    assert page.evaluate("document.querySelector('main section').id") == "plan"
    assert page.locator("#plan-title").text_content().startswith("Plan for ")
    assert "riders" in page.locator("#plan-lead").text_content()
    marks = page.locator("#plan-map .planned-mark")
    assert marks.count() == 12
    moves = page.evaluate("JSON.parse(document.getElementById('data').textContent).plan.moves.source.length")
    assert page.locator("#plan-moves tbody tr").count() == moves
    assert page.locator("#plan-limits li").count() >= 6


def test_a_station_is_chosen_by_pointer_keyboard_and_list(plain):
    page = plain.page
    number = int(page.locator("#plan-map .planned-mark").nth(2).get_attribute("data-zone"))
    page.locator("#plan-map .planned-mark").nth(2).dispatch_event("click")
    page.wait_for_selector(f"body[data-planned='{number}']")
    name = page.evaluate(f"JSON.parse(document.getElementById('data').textContent).zones.name[{number}]")
    assert page.locator("#plan-station-title").text_content() == name
    first = page.evaluate("JSON.parse(document.getElementById('data').textContent).plan.moves.target[0]")
    page.locator("#plan-moves tbody tr[data-zone='0'] button.zone").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(f"body[data-planned='{first}']")
    other = page.evaluate("document.querySelector('#plan-choice option').value")
    page.select_option("#plan-choice", other)
    page.wait_for_selector(f"body[data-planned='{other}']")
    focused = page.locator(f"#plan-map .planned-mark[data-zone='{other}']")
    focused.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.classList.contains('planned-mark')")


def test_a_phone_shows_the_plan_without_scrolling_sideways(plain_page, open_page):
    opened = open_page(plain_page, 390, 844)
    assert opened.complaints == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert opened.page.locator("#plan-map > svg").bounding_box()["width"] > 300
