"""Many cities in one go: their folders, the table and the page over all."""

from __future__ import annotations

import os
import pickle
import re

import pandas as pd
import pytest
from small_city import save_city
from typer.testing import CliRunner

from unmet import InputError
from unmet.cli import app
from unmet.execution import in_processes, serially
from unmet.mobility.runs.outputs import TABLES
from unmet.pipeline.cities import PAGE, TABLE, City, find_cities, run_cities
from unmet.report.cities import CitySummary, write_cities_page

CONFIG = """
[records]
trips = ["city/trips.parquet"]
status = ["city/status.parquet"]
stations = ["city/stations.csv"]
timezone = "America/New_York"
[estimate]
model = "weekly-mean"
draws = 20
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Two cities, and one whose records are missing."""
    folder = tmp_path_factory.mktemp("cities")
    for seed, name in enumerate(("Bergen", "Oslo & <west>")):
        (folder / name).mkdir()
        save_city(folder / name, stations=2 + seed, seed=seed)
        (folder / name / "unmet.toml").write_text(CONFIG)
    (folder / "Nowhere").mkdir()
    (folder / "Nowhere" / "unmet.toml").write_text(CONFIG)
    return folder


@pytest.fixture(scope="module")
def done(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("fleet")
    return out, run_cities(find_cities(source, out), out, executor=serially, jobs=1)


def test_a_city_that_is_a_link_is_named_after_the_link(tmp_path):
    for name in ("oslo", "bergen"):
        (tmp_path / name / "2024-05-01").mkdir(parents=True)
        (tmp_path / name / "2024-05-01" / "unmet.toml").write_text(CONFIG)
        (tmp_path / "cities").mkdir(exist_ok=True)
        (tmp_path / "cities" / name).symlink_to(tmp_path / name / "2024-05-01")
    cities = find_cities(tmp_path / "cities", tmp_path / "out")
    assert [(city.name, city.settings_for(1).out.name) for city in cities] == [("bergen", "bergen"), ("oslo", "oslo")]
    assert cities[1].settings_for(1).trips == (str(tmp_path / "cities" / "oslo" / "city" / "trips.parquet"),)


def test_a_folder_that_has_no_name_gives_a_city_none(tmp_path):
    (tmp_path / "oslo").mkdir()
    (tmp_path / "oslo" / "unmet.toml").write_text(CONFIG)
    (tmp_path / "list.toml").write_text('cities = ["oslo/city/..", "/.."]')
    (tmp_path / "oslo" / "city").mkdir()
    with pytest.raises(InputError, match="a city is named ''"):
        find_cities(tmp_path / "list.toml", tmp_path / "out")
    (tmp_path / "list.toml").write_text("cities = []")
    with pytest.raises(InputError, match="expected one list"):
        find_cities(tmp_path / "list.toml", tmp_path / "out")


def test_each_city_has_its_report_and_the_page_links_to_it(done):
    out, _ = done
    page = (out / PAGE).read_text(encoding="utf-8")
    links = re.findall('href="([^"]*)"', page)
    assert sorted(links) == ["Bergen/report.html", "Oslo%20%26%20%3Cwest%3E/report.html"]
    assert (out / "Oslo & <west>" / "report.html").exists()
    assert "Oslo &amp; &lt;west&gt;" in page
    assert "<west>" not in page
    assert "2 of 3 cities are estimated" in page


def test_the_numbers_are_those_of_the_runs(done):
    out, rows = done
    table = pd.read_parquet(out / TABLE).set_index("city")
    for row in rows:
        if row.reason is None:
            zones = pd.read_parquet(out / row.city / "estimate" / "zones.parquet")
            assert table.loc[row.city, "observed"] == zones["observed"].sum()
            assert row.lost == pytest.approx(zones["lost_mean"].sum())
            assert row.worst[0][1] == zones["lost_mean"].max()
            assert row.lost_q05 <= row.lost <= row.lost_q95


def test_a_city_that_fails_has_a_reason_and_the_others_are_done(done):
    _, rows = done
    assert [row.city for row in rows if row.reason is not None] == ["Nowhere"]
    assert "trips" in next(row.reason for row in rows if row.city == "Nowhere")


def test_a_city_whose_settings_are_not_valid_does_not_stop_the_others(source, tmp_path):
    """Sent to workers as one piece of work, or one after another."""
    (tmp_path / "cities").mkdir()
    (tmp_path / "cities" / "Bergen").symlink_to(source / "Bergen")
    for name, text in (("Torn", '[records]\ntrips = ["city'), ("Unknown", CONFIG + "[panel]\nevry = '1h'")):
        (tmp_path / "cities" / name).mkdir()
        (tmp_path / "cities" / name / "unmet.toml").write_text(text)
    for number, jobs in enumerate((1, 2)):
        out = tmp_path / f"out{number}"
        rows = run_cities(find_cities(tmp_path / "cities", out), out, executor=serially, jobs=jobs)
        assert [row.city for row in rows if row.reason is None] == ["Bergen"]
        reasons = {row.city: row.reason for row in rows if row.reason is not None}
        assert "Torn/unmet.toml: is not valid TOML" in reasons["Torn"]
        assert "Did you mean 'every'?" in reasons["Unknown"]
        assert "1 of 3 cities are estimated" in (out / PAGE).read_text(encoding="utf-8")
    command = ["fleet", str(tmp_path / "cities"), "--out", str(out), "--engine", "serial", "--jobs", "1"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "2 of 3 cities" in result.output


def test_a_listed_file_that_does_not_exist_is_a_mistake_of_the_list(source, tmp_path):
    for listed in ('["Bergen", "Brgen"]', '["Brgen", "Olso"]'):  # two were said to have the name of their folder
        (source / "list.toml").write_text(f"cities = {listed}")
        with pytest.raises(InputError, match="Brgen: cannot read the settings: No such file"):
            find_cities(source / "list.toml", tmp_path)


def test_one_city_under_two_names_is_refused(tmp_path):
    """It was counted twice in the sums of the fleet."""
    (tmp_path / "oslo").mkdir()
    (tmp_path / "oslo" / "unmet.toml").write_text(CONFIG)
    (tmp_path / "link").symlink_to(tmp_path / "oslo")
    with pytest.raises(InputError, match="'link' and 'oslo' are links to the same city"):
        find_cities(tmp_path, tmp_path / "out")


def test_one_city_after_another_gives_the_same_tables_as_cities_in_parallel(done, source, tmp_path):
    out, rows = done
    cities = [city for city in find_cities(source, tmp_path) if city.name == "Bergen"]
    assert run_cities(cities, tmp_path, executor=serially, jobs=1) == [row for row in rows if row.city == "Bergen"]
    for name in TABLES:
        path = f"Bergen/estimate/{name}"
        assert (tmp_path / path).read_bytes() == (out / path).read_bytes()


def test_finished_cities_are_not_run_again(done, source):
    out, rows = done
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/estimate/*")}
    assert run_cities(find_cities(source, out), out, executor=serially, jobs=1) == rows
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/estimate/*")} == before


def test_cities_can_be_sent_to_other_processes(source, tmp_path):
    (city, *_) = find_cities(source, tmp_path)
    assert isinstance(city, City)
    assert len(pickle.dumps(city)) < 10_000
    assert city.settings_for(1).trips[0].startswith("/")


def test_the_command_prints_a_table_and_reports_failures(done, source):
    out, _ = done
    result = CliRunner().invoke(app, ["fleet", str(source), "--out", str(out), "--engine", "serial", "--jobs", "1"])
    assert result.exit_code == 1
    assert "Bergen" in result.output
    assert "1 of 3 cities" in result.output


def test_a_list_of_cities_is_read_and_mistakes_are_named(source, tmp_path):
    listed = source / "fleet.toml"
    listed.write_text('cities = ["Bergen/unmet.toml", "Oslo & <west>"]')
    assert [city.name for city in find_cities(listed, tmp_path)] == ["Bergen", "Oslo & <west>"]
    listed.write_text('cities = ["Bergen", "Bergen/unmet.toml"]')
    with pytest.raises(InputError, match="two cities are named 'Bergen'"):
        find_cities(listed, tmp_path)
    listed.write_text('city = "Bergen"')
    with pytest.raises(InputError, match="expected one list, such as cities ="):
        find_cities(listed, tmp_path)
    with pytest.raises(InputError, match="expected subfolders with a file"):
        find_cities(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cities = " + "[" * 5000, "nested too deeply"),
        ('cities = ["a\\u0000"]', "expected one list"),
        ("#" * (1 << 21), "is larger than"),
    ],
)
def test_a_strange_list_of_cities_is_refused(tmp_path, text, said):
    (tmp_path / "fleet.toml").write_text(text)
    with pytest.raises(InputError, match=said):
        find_cities(tmp_path / "fleet.toml", tmp_path)


def test_a_list_that_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="expected a file; this is a folder, a pipe or a device"):
        find_cities(tmp_path / "pipe", tmp_path)


@pytest.mark.parametrize("name", [PAGE, TABLE, "caf\udce9"])
def test_names_of_cities_that_cannot_be_folders_of_results_are_refused(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "unmet.toml").write_text(CONFIG)
    with pytest.raises(InputError, match="Rename the folder"):
        find_cities(tmp_path, tmp_path / "out")


def test_a_city_whose_folder_may_not_be_read_is_not_passed_over(source, tmp_path, monkeypatch):
    may, shut = os.access, min(path for path in source.iterdir() if path.is_dir())
    monkeypatch.setattr(os, "access", lambda path, mode: path != shut and may(path, mode))
    with pytest.raises(InputError, match=f"{shut.name}: cannot open this folder: permission denied"):
        find_cities(source, tmp_path / "out")


def test_cities_are_in_order_of_lost_trips(tmp_path):
    rows = [CitySummary(name, f"{name}/report.html", lost=lost, wanted=10.0) for name, lost in (("a", 1.0), ("b", 2.0))]
    write_cities_page(tmp_path / PAGE, rows)
    page = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert page.index(">b</a>") < page.index(">a</a>")


@pytest.mark.slow
def test_zones_of_all_cities_in_one_stream_give_the_same_tables(done, source, tmp_path):
    """Also if the first attempt is stopped in the middle of it."""
    out, rows = done
    cities = find_cities(source, tmp_path)

    def stop(finished, cities, note):
        if finished == 2:  # the city without records, and the first of the others
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cities(cities, tmp_path, executor=in_processes, jobs=2, progress=stop)
    assert run_cities(cities, tmp_path, executor=in_processes, jobs=2) == rows
    for name in ("Bergen", "Oslo & <west>"):
        for table in TABLES:
            path = f"{name}/estimate/{table}"
            assert (tmp_path / path).read_bytes() == (out / path).read_bytes()


def test_the_period_of_a_city_ends_with_its_last_day(done):
    out, cities = done
    for city in (city for city in cities if city.reason is None):
        days = pd.read_parquet(out / city.city / "panel.parquet")["start_local"].dt.strftime("%Y-%m-%d")
        assert (city.first, city.last) == (days.min(), days.max())
