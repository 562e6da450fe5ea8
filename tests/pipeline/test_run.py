"""Whole runs: what is made, what is reused, and what stays as it was."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_city import city_settings, in_one_process, save_city

from unmet import InputError
from unmet._storage.parquet import read_parquet
from unmet.execution import UnfitWorker
from unmet.mobility.panel import read_panel
from unmet.mobility.records.opening import OpeningHours
from unmet.pipeline import Event, RunSettings, run, running
from unmet.report import export_tables
from unmet.report.source import open_run

OUTPUTS = ["estimate", "panel.parquet", "quality.json", "report.html", "stages.json"]


@pytest.fixture(scope="module")
def city(tmp_path_factory) -> Path:
    return save_city(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def finished(city, tmp_path_factory) -> Path:
    """A finished run, to be copied."""
    out = tmp_path_factory.mktemp("finished") / "out"
    with pytest.MonkeyPatch.context() as patch:
        in_one_process(patch)
        run(city_settings(city, out))
    return out


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    in_one_process(monkeypatch)


@pytest.fixture
def out(finished, tmp_path) -> Path:
    return shutil.copytree(finished, tmp_path / "out")


def reused(outcome) -> dict[str, bool]:
    return {stage.name: stage.reused for stage in outcome.stages}


def content(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


def test_a_run_leaves_a_panel_an_estimate_and_a_page_and_nothing_else(city, out):
    assert sorted(p.name for p in out.iterdir()) == OUTPUTS
    told = json.loads((out / "estimate" / "run.json").read_text())
    panel = read_panel(out / "panel.parquet")
    assert panel.panel["observed"].sum() == told["totals"]["observed"]["mean"] == len(read_trips(city))
    assert told["totals"]["lost"]["mean"] > 0
    assert Path(told["panel_path"]).name == "panel.parquet"
    assert "unfinished" not in told["panel_path"]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")


def read_trips(city: Path) -> pd.DataFrame:
    return read_parquet(city / "trips.parquet")


def test_nothing_is_made_again_while_nothing_changes(city, out):
    before = content(out)
    again = run(city_settings(city, out))
    assert all(reused(again).values())
    assert {k: v for k, v in content(out).items() if k != "stages.json"} == {
        k: v for k, v in before.items() if k != "stages.json"
    }
    assert not (out / "unfinished").exists()


def test_files_are_known_by_content_not_by_time_or_place(city, out, tmp_path):
    moved = shutil.copytree(city, tmp_path / "moved")
    for file in moved.iterdir():
        os.utime(file, (1, 1))
    assert all(reused(run(city_settings(moved, out))).values())


def test_files_of_hours_and_areas_are_inputs_of_the_panel(city, tmp_path):
    """Their content decides whether the panel is reused, not their name."""
    hours, calendar, areas = (tmp_path / name for name in ("hours.json", "calendar.json", "areas.geojson"))
    for file in (hours, calendar, areas):
        file.touch()
    words = replace(city_settings(city, tmp_path / "out"), hours="06:00-23:00", areas="district")
    named = replace(words, hours=f"{hours}, {calendar},06:00-23:00", areas=str(areas))
    assert running._input_files(words)["panel"].keys() == {"trips", "status", "stations"}
    found = running._input_files(named)["panel"]
    assert (found["hours"], found["areas"]) == ([hours, calendar], [areas])


def test_rows_that_a_database_has_only_in_its_log_are_inputs_of_the_panel(city, tmp_path):
    """DuckDB writes to the file beside it first; another program may have ended before it was merged."""
    file, log = tmp_path / "city.duckdb", tmp_path / "city.duckdb.wal"
    file.touch()
    settings = city_settings(city, tmp_path / "out", trips=(f"duckdb://{file}",))
    assert running._input_files(settings)["panel"]["trips"] == [file]
    log.touch()
    assert running._input_files(settings)["panel"]["trips"] == [file, log]


def test_the_hours_that_a_folder_of_documents_tells_decide_the_panel(city, tmp_path, monkeypatch):
    told = iter([np.ones(10_080, dtype=bool), np.ones(10_080, dtype=bool), np.arange(10_080) % 2 == 0])
    monkeypatch.setattr("unmet.mobility.records.opening._of_history", lambda folder: OpeningHours(next(told)))
    settings = city_settings(city, tmp_path / "out", hours=str(tmp_path))
    first, same, other = (running._opening(settings) for _ in range(3))
    assert first == same != other
    assert running._opening(city_settings(city, tmp_path / "out")) == {}


def test_every_setting_decides_a_stage_names_files_or_changes_only_the_speed():
    decides = {name for names in running._DECIDES.values() for name in names}
    files = {"out", "trips", "status", "stations", "weather", "truth", "basemap"}
    speed = {"jobs", "engine", "memory", "force", "max_rejected"}
    left = {field.name for field in fields(RunSettings)} - decides - files - speed
    assert not left, "add these to _DECIDES of pipeline/running.py"


@pytest.mark.slow
def test_returns_stand_beside_pickups_in_every_table_and_a_later_run_without_them_keeps_them(city, out, tmp_path):
    both = run(city_settings(city, out, side="both"))
    assert reused(both) == {"panel": True, "estimate": True, "returns": False, "report": False}
    totals = read_parquet(out / "estimate" / "returns" / "totals.parquet")
    system = totals[totals["level"] == "system"].set_index("quantity")["mean"]
    assert system["demand"] > system["observed"] == read_panel(out / "panel.parquet").panel["returns"].sum()
    export_tables(out, tmp_path / "tables", formats=["parquet"])
    tables = {path.stem: read_parquet(path) for path in (tmp_path / "tables").iterdir()}
    for name in ("zones", "hours_of_week", "bins"):
        assert tables[name]["returns_observed"].sum() == pytest.approx(system["observed"]), name
        assert tables[name]["returns_lost_mean"].sum() == pytest.approx(system["lost"], rel=0.05), name
    headline = tables["headline"].set_index("quantity")["value"]
    assert headline["returns_demand"] == system["demand"]
    rows = tables["totals"].query("level == 'system'").set_index("quantity")["mean"]
    assert rows["returns_lost"] == system["lost"]
    weeks = tables["weeks"].query("quantity == 'returns_lost'")["mean"].sum()
    assert weeks == pytest.approx(system["lost"], rel=0.05)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"{system['observed']:,.0f} recorded, {system['demand']:,.0f} wanted" in page
    assert f'"no_dock":{system["lost"] + system["walked_on"]}' in page
    assert all(reused(run(city_settings(city, out, side="both"))).values())
    assert set(reused(run(city_settings(city, out)))) == {"panel", "estimate", "report"}
    # Of another model, the returns no longer belong to the run.
    run(city_settings(city, out, seed=5))
    with open_run(out) as source:
        assert source.returns is None


def test_the_report_of_returns_alone_is_refused_with_what_to_do(city, out):
    with pytest.raises(InputError, match="returns come with both"):
        run(city_settings(city, out, side="returns"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"vehicle_type": "electric"}, "free docks for one type of vehicle are not known"),
        ({"status": ()}, "free docks are not known without station status"),
    ],
)
def test_returns_whose_docks_nobody_can_know_are_refused_before_any_work(city, tmp_path, monkeypatch, given, said):
    monkeypatch.setattr(running, "_make_panel", lambda *_: pytest.fail("the panel was built"))
    with pytest.raises(InputError, match=said):
        run(city_settings(city, tmp_path / "out", side="both", **given))


def test_returns_without_known_docks_are_refused_before_the_estimate_of_pickups(city, tmp_path, monkeypatch):
    status = read_parquet(city / "status.parquet")
    status = status.drop(columns=[name for name in status if "dock" in name])
    status.to_parquet(tmp_path / "status.parquet")
    stations = pd.read_csv(city / "stations.csv").drop(columns="capacity")
    stations.to_csv(tmp_path / "stations.csv", index=False)
    given = {"status": (str(tmp_path / "status.parquet"),), "stations": (str(tmp_path / "stations.csv"),)}
    monkeypatch.setattr(running, "_make_estimate", lambda *_: pytest.fail("pickups were estimated"))
    with pytest.raises(InputError, match="free docks are unknown in every bin"):
        run(city_settings(city, tmp_path / "out", side="both", **given))


@pytest.mark.parametrize(
    ("changed", "expected", "why"),
    [
        ({"title": "Another"}, [True, True, False], "title changed from None to 'Another'"),
        ({"seed": 5}, [True, False, False], "seed changed from 0 to 5"),
        ({"weather": None}, [True, False, False], "weather changed"),
        ({"weather_columns": ("temperature_c",)}, [True, False, False], "weather_columns changed"),
        ({"jobs": 2, "memory": "1GB"}, [True, True, True], None),
        ({"censored_rule": "minutes:5"}, [False, False, False], "censored_rule changed from 'any' to 'minutes:5'"),
    ],
)
def test_a_changed_setting_makes_only_what_depends_on_it(city, out, changed, expected, why):
    again = run(city_settings(city, out, **changed))
    assert list(reused(again).values()) == expected
    if why is not None:
        assert why in next(stage.why for stage in again.stages if not stage.reused)
    assert sorted(p.name for p in out.iterdir()) == OUTPUTS
    assert all(reused(run(city_settings(city, out, **changed))).values())


@pytest.mark.slow
def test_changed_weather_leaves_the_panel_and_changed_trips_change_all(city, out, tmp_path):
    other = shutil.copytree(city, tmp_path / "other")
    lines = (other / "weather.csv").read_text().splitlines()
    (other / "weather.csv").write_text("\n".join(lines[:-1]) + "\n")
    assert list(reused(run(city_settings(other, out))).values()) == [True, False, False]
    trips = read_trips(other).drop(index=range(500, 1000, 10))
    trips.to_csv(other / "trips.csv", index=False)
    again = run(city_settings(other, out, trips=(str(other / "trips.csv"),)))
    assert [(s.reused, s.why) for s in again.stages] == [
        (False, "trips changed"),
        (False, "panel changed"),
        (False, "panel changed; estimate changed"),
    ]
    assert again.estimate.info["totals"]["observed"]["mean"] == len(trips)


def test_an_input_that_changes_nothing_in_the_panel_stops_there(city, out, tmp_path):
    stations = pd.read_csv(city / "stations.csv").assign(colour="blue")
    stations.to_csv(tmp_path / "stations.csv", index=False)
    again = run(city_settings(city, out, stations=(str(tmp_path / "stations.csv"),)))
    assert list(reused(again).values()) == [False, True, True]


@pytest.mark.parametrize("name", ["panel.parquet", "estimate/zones.parquet", "report.html"])
def test_a_result_that_was_tampered_with_is_made_again(city, out, name):
    before = content(out)
    (out / name).write_bytes(b"not this")
    again = run(city_settings(city, out))
    stage = next(stage for stage in again.stages if not stage.reused)
    assert stage.name in name
    assert stage.why == f"{name} was changed or removed"
    tables = [k for k in before if k.endswith(".parquet")]
    assert {k: content(out)[k] for k in tables} == {k: before[k] for k in tables}


def test_a_ledger_of_nonsense_costs_work_and_nothing_else(city, out):
    (out / "stages.json").write_text('{"stages": {"panel": []}}')
    assert not any(reused(run(city_settings(city, out))).values())
    assert all(reused(run(city_settings(city, out))).values())


def test_files_of_others_in_the_folder_are_left_alone(city, out):
    (out / "notes.txt").write_text("mine")
    (out / "estimate" / "export.csv").write_text("mine")
    run(city_settings(city, out, seed=9))
    assert (out / "notes.txt").read_text() == (out / "estimate" / "export.csv").read_text() == "mine"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"trips": ("{city}/status.parquet",)}, "looks like status"),
        ({"status": ("{city}/trips.parquet",)}, "looks like trips"),
        ({"trips": ("{tmp}/empty",)}, "this folder contains no file to read"),
        ({"trips": ("{tmp}/garbage.parquet",)}, "garbage.parquet"),
        ({"trips": ("{tmp}/garbage.csv",)}, "not a text file"),
        ({"weather": "{tmp}/garbage.csv"}, "not a text file"),
        ({"weather": "{city}/stations.csv"}, "weather"),
        ({"weather_columns": ("moonlight",)}, "no column of numbers 'moonlight'"),
        ({"weather_columns": ()}, "expected at least one name of a column"),
        ({"trips": ("{out}/panel.parquet",)}, "inside the folder of the results"),
        ({"zones": "{tmp}/garbage.geojson"}, "garbage.geojson"),
        ({"holidays": "Atlantis"}, "no calendar"),
        ({"model": "oracle"}, "no model 'oracle'"),
        ({"horizon": "90min"}, "not a whole number"),
        ({"truth": "{city}/nothing.parquet"}, "nothing.parquet"),
        ({"timezone": "Mars/Base"}, "not a known time zone"),
    ],
)
def test_wrong_input_leaves_earlier_results_as_they_were(city, out, tmp_path, changed, said):
    (tmp_path / "empty").mkdir()
    for name in ("garbage.parquet", "garbage.csv", "garbage.geojson"):
        (tmp_path / name).write_bytes(bytes(range(256)) * 20)
    places = {"city": city, "tmp": tmp_path, "out": out}
    given = {
        key: tuple(v.format(**places) for v in value) if isinstance(value, tuple) else value.format(**places)
        for key, value in changed.items()
    }
    before = content(out)
    # Something else changes too: nothing of it may show.
    with pytest.raises(InputError, match=said):
        run(city_settings(city, out, **({"every": "2h"} | given)))
    results = {k: v for k, v in content(out).items() if not k.startswith("unfinished")}
    assert results == before
    assert all(reused(run(city_settings(city, out))).values())


def test_wrong_input_leaves_no_empty_folders(city, tmp_path):
    with pytest.raises(InputError):
        run(city_settings(city, tmp_path / "new", trips=(str(city / "status.parquet"),)))
    assert not (tmp_path / "new").exists()


def test_unfit_workers_end_the_run_before_the_panel_is_built(city, tmp_path):
    class Unfit:
        def __call__(self, function, items, jobs):
            pytest.fail("no work for unfit workers")

        def check(self):
            raise UnfitWorker("another NumPy")

    with pytest.raises(UnfitWorker):
        run(city_settings(city, tmp_path / "new"), executor=Unfit())
    assert not (tmp_path / "new").exists()


def test_two_runs_at_once_do_not_share_a_folder(city, out):
    def intruding(event: Event) -> None:
        if event.stage == "panel" and event.kind == "step":
            with pytest.raises(InputError, match="another run is using this folder"):
                run(city_settings(city, out))

    run(city_settings(city, out, every="2h"), progress=intruding)


def test_a_zone_that_fails_is_told_and_the_others_are_there(city, tmp_path):
    stations = pd.read_csv(city / "stations.csv")
    ghost = stations.iloc[[0]].assign(
        station_ix=99, station_id="GHOST", short_name="GHOST", name="Nobody was ever here"
    )
    pd.concat([stations, ghost]).to_csv(tmp_path / "stations.csv", index=False)
    outcome = run(city_settings(city, tmp_path / "out", stations=(str(tmp_path / "stations.csv"),)))
    assert list(outcome.estimate.failures) == ["GHOST"]
    assert outcome.to_dict()["zones"]["failed"] == 1
    assert "Nobody was ever here" in outcome.report.read_text(encoding="utf-8")


def test_progress_tells_of_every_stage_and_its_end(city, tmp_path):
    events: list[Event] = []
    outcome = run(city_settings(city, tmp_path / "out"), progress=events.append)
    ends = [event.stage_result for event in events if event.kind == "end"]
    assert ends == list(outcome.stages)
    assert [event.stage for event in events if event.kind == "begin"] == ["panel", "estimate", "report"]
    zones = [event for event in events if event.kind == "zones"]
    assert (zones[-1].done, zones[-1].zones) == (4, 4)
