"""Settings from a file: every key and type checked, paths relative to the file."""

from __future__ import annotations

import dataclasses
import errno
import inspect
import os
import tomllib
from pathlib import Path

import pytest

from unmet import InputError
from unmet.cli.demo import demo_command
from unmet.cli.estimate import estimate_command
from unmet.cli.panel import panel_command
from unmet.cli.run import run_command
from unmet.mobility.demand import DemandModel
from unmet.mobility.panel import build_panel
from unmet.pipeline import RunSettings, config, example_config, make_settings, read_config, write_example
from unmet.pipeline.demo import run_demo
from unmet.pipeline.settings import TABLES, about, settings_by_table

FIELDS = {f.name: f for f in dataclasses.fields(RunSettings)}


def written(folder: Path, text: str) -> Path:
    path = folder / "unmet.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_example_sets_what_most_need_and_gives_settings(tmp_path):
    settings = make_settings(write_example(tmp_path))
    assert settings.trips == (str(tmp_path / "trips/*.csv.gz"),)
    assert settings.out == tmp_path / "out"
    assert settings.timezone == "America/New_York"
    assert settings.every == RunSettings.every


def test_every_line_of_the_example_can_be_uncommented(tmp_path):
    lines = example_config().splitlines()
    settable = [line.removeprefix("#") for line in lines if line.removeprefix("#").partition(" = ")[0] in FIELDS]
    assert len(settable) == len(FIELDS)
    tables = [line for line in lines if line.startswith("[")]
    assert tables == [f"[{table}]" for table in TABLES if table]
    whole = "\n".join(line.removeprefix("#") if line.removeprefix("#") in settable else line for line in lines)
    values = read_config(written(tmp_path, whole))
    assert set(values) == set(FIELDS)
    RunSettings(**values)


def test_the_example_shows_the_defaults():
    for name, field in FIELDS.items():
        if not about(name).shown and field.default is not None:
            assert tomllib.loads(f"x = {about(name).example}")["x"] == field.default, name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trips = " + "[" * 5000, "nested too deeply"),
        ("draws = " + "9" * 5000, "not valid TOML"),
        (".".join(["a"] * 3000) + " = 1", "nested too deeply"),  # tomllib takes memory by the square of the dots
        ("[" + '."a"' * 3000 + "]", "nested too deeply"),
        ("#" * (1 << 21), "not a settings file"),
    ],
)
def test_strange_settings_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_config(written(tmp_path, text))


def test_an_example_never_overwrites(tmp_path):
    path = written(tmp_path, "mine")
    with pytest.raises(InputError, match="already exists and was not changed"):
        write_example(path)
    assert path.read_text() == "mine"


def test_no_part_of_an_example_is_left_on_a_full_disk(tmp_path, monkeypatch):
    def full() -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(config, "example_config", full)
        with pytest.raises(InputError, match="No space left"):
            write_example(tmp_path / "u.toml")
    assert not (tmp_path / "u.toml").exists()
    write_example(tmp_path / "u.toml")


def test_flags_defaults_and_settings_agree_everywhere():
    expected = {name: f.default for name, f in FIELDS.items()}
    flags = {
        name.rstrip("_"): p.default
        for name, p in inspect.signature(run_command).parameters.items()
        if name not in ("ctx", "config", "watch", "quiet", "as_json")
    }
    assert set(flags) == set(expected)
    for name, default in flags.items():
        assert default == (
            expected[name] or None if name in ("trips", "status", "stations", "timezone") else expected[name]
        ), name
    for function in (panel_command, estimate_command, build_panel, DemandModel):
        for name, parameter in inspect.signature(function).parameters.items():
            if name in ("trips", "status", "stations", "timezone", "out", "name"):
                continue
            if (function, name) == (build_panel, "jobs"):  # a library starts no processes unasked
                continue
            known = expected.get(name.rstrip("_"))
            if name.rstrip("_") in expected and parameter.default is not inspect.Parameter.empty:
                assert parameter.default == known, (function.__name__, name)
    assert DemandModel().name == RunSettings.model
    demo = {n: p.default for n, p in inspect.signature(run_demo).parameters.items()}
    for name, parameter in inspect.signature(demo_command).parameters.items():
        if name in demo and name != "out":
            assert parameter.default == demo[name]


def test_paths_are_relative_to_the_file_even_in_a_folder_named_like_a_glob(tmp_path, monkeypatch):
    folder = tmp_path / "data [2024]*"
    folder.mkdir()
    for name in ("a.csv", "b.csv", "status.parquet", "w.csv"):
        (folder / name).write_text("x")
    path = written(
        folder,
        """
        out = "results"
        [records]
        trips = "*.csv"
        status = ["status.parquet"]
        weather = "w.csv"
        weather_columns = ["temp, dry", "rain"]
        [panel]
        zones = "superhubs:points.csv:200m"
        """,
    )
    monkeypatch.chdir(tmp_path)
    values = read_config(path.relative_to(tmp_path))
    from unmet.mobility.records.files import expand

    assert [p.name for p in expand(list(values["trips"]), "trips")] == ["a.csv", "b.csv", "w.csv"]
    assert [p.name for p in expand(list(values["status"]), "status")] == ["status.parquet"]
    assert Path(values["out"]).parent.resolve() == folder
    assert Path(values["weather"]).is_file()
    assert values["weather_columns"] == ("temp, dry", "rain")
    assert values["zones"] == f"superhubs:{folder.relative_to(tmp_path) / 'points.csv'}:200m"
    polygons = read_config(written(folder, '[panel]\nzones = "parks.geojson"'))
    assert polygons["zones"] == str(folder / "parks.geojson")


def test_what_is_given_wins_over_the_file(tmp_path):
    path = written(tmp_path, 'out = "a"\n[records]\ntrips = "t.csv"\ntimezone = "UTC"\n[panel]\nevery = "1d"\n')
    settings = make_settings(path, every="15min", out=Path("b"))
    assert (settings.every, settings.out, settings.timezone) == ("15min", Path("b"), "UTC")


def test_dates_need_no_quotes(tmp_path):
    values = read_config(written(tmp_path, "[panel]\nstart = 2021-03-01\nend = 2021-03-02 06:00:00\n"))
    assert values == {"start": "2021-03-01", "end": "2021-03-02 06:00:00"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[panle]\nevery = '1h'", ["no table [panle]", "Did you mean 'panel'?"]),
        ("[panel]\nevry = '1h'", ["no setting 'evry' in [panel]", "Did you mean 'every'?"]),
        ("[panel]\ncensored-rule = 'any'", ["Did you mean 'censored_rule'?"]),
        ("[panel]\ntrips = 'a.csv'", ["belongs under [records]"]),
        ("[records]\nout = 'a'", ["belongs at the top"]),
        ("modle = 'cgp'", ["Did you mean 'model', under [estimate]?"]),
        ("[report]\nxyzzy = 1", ["no setting 'xyzzy'", "title, truth"]),
        ("[panel]\nrebalancing = 'many'", ["[panel] rebalancing: expected a whole number", "the text 'many'"]),
        ("[panel]\nrebalancing = true", ["expected a whole number", "got true"]),
        ("[panel]\nrebalancing = 2.5", ["expected a whole number", "2.5 (a number)"]),
        ("[records]\nforce = 1", ["expected true or false", "1 (a whole number)"]),
        ("[records]\ntrips = []", ["expected a path, or a list of paths", "an empty list"]),
        ("[records]\nweather_columns = []", ["expected a column, or a list of columns", "an empty list"]),
        ("[records]\ntrips = ['a.csv', 3]", ["a list of paths", "a list"]),
        ("[records]\nmap = 'a=b'", ["a table of names", "the text 'a=b'"]),
        ("[records]\ntimezone = 2021-01-01", ["expected text", "2021-01-01 (a date)"]),
        ("records = 3", ["records: expected a table, [records]", "3 (a whole number)"]),
        ("[panel]\nevery = 1h", ["is not valid TOML", "quotes"]),
        ('[panel]\nevery = "1h"\nevery = "1d"', ["is not valid TOML", "Each setting occurs once"]),
    ],
)
def test_what_is_unknown_or_of_the_wrong_type_is_explained(tmp_path, text, said):
    path = written(tmp_path, text)
    with pytest.raises(InputError) as raised:
        read_config(path)
    assert str(path) in str(raised.value)
    for part in said:
        assert part in str(raised.value)


def test_a_file_that_cannot_be_read_is_explained(tmp_path):
    with pytest.raises(InputError, match="unmet init"):
        read_config(tmp_path / "nothing.toml")
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        read_config(tmp_path / "x.toml")
    with pytest.raises(InputError, match="expected a file; this is a folder"):
        read_config(tmp_path)


def test_records_and_a_time_zone_are_needed():
    with pytest.raises(InputError, match="--trips and --status"):
        make_settings(timezone="UTC")
    with pytest.raises(InputError, match="--timezone"):
        make_settings(trips=("a.csv",))


def test_every_setting_has_its_table():
    assert sorted(n for t in TABLES for n in settings_by_table(t)) == sorted(FIELDS)


@pytest.mark.parametrize("setting", ["out", "records.weather", "report.basemap"])
def test_a_path_has_no_nul(tmp_path, setting):
    file = tmp_path / "unmet.toml"
    file.write_text(f'{setting} = "a\\u0000b"\n')
    with pytest.raises(InputError, match="expected a path"):
        read_config(file)


def test_files_of_hours_and_areas_are_relative_to_the_settings(tmp_path):
    (tmp_path / "feeds" / "oslo").mkdir(parents=True)
    for given, expected in {
        "06:00-23:00": "06:00-23:00",
        "06:00-23:00, hours.json": f"06:00-23:00,{tmp_path}/hours.json",
        "a.json,/b/c.json": f"{tmp_path}/a.json,/b/c.json",
        "feeds/oslo": f"{tmp_path}/feeds/oslo",
    }.items():
        assert read_config(written(tmp_path, f'[panel]\nhours = "{given}"'))["hours"] == expected
    for given, expected in {"districts.geojson": f"{tmp_path}/districts.geojson", "district": "district"}.items():
        assert read_config(written(tmp_path, f'[panel]\nareas = "{given}"'))["areas"] == expected


def test_a_query_stays_as_it_was_written(tmp_path):
    query = "SELECT at_ms // 1000 AS at, a/./b, '~//x?y#z' FROM raw.status"
    text = f'[records]\nstatus = "duckdb://../city.duckdb#{query}"\ntrips = "duckdb://c.duckdb?table=a//b"'
    found = read_config(written(tmp_path, text))
    assert found["status"] == (f"duckdb://{tmp_path}/../city.duckdb#{query}",)
    assert found["trips"] == (f"duckdb://{tmp_path}/c.duckdb?table=a//b",)
