"""Tables to take along: the same numbers, safe in a spreadsheet, valid on a map."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil

import pandas as pd
import pytest

from report.small_runs import HOSTILE, run_on
from unmet._exceptions import InputError
from unmet.report import export_tables

TABLES = {"headline", "zones", "hours_of_week", "weeks", "act", "bins", "totals", "quality"}


@pytest.fixture(scope="module")
def exported(hostile_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    paths = export_tables(hostile_run.folder, folder / "tables", panel=hostile_run.panel)
    return folder / "tables", paths


def test_every_table_is_there_in_every_format(exported):
    folder, paths = exported
    assert {p.name for p in paths} == {f"{t}.{f}" for t in TABLES for f in ("csv", "parquet")} | {"zones.geojson"}
    assert sorted(folder.iterdir()) == paths


def test_numbers_are_those_of_the_run(exported, hostile_run):
    folder, _ = exported
    zones = pd.read_parquet(folder / "zones.parquet")
    run = pd.read_parquet(hostile_run.folder / "zones.parquet")
    assert zones["zone"].tolist() == run["zone"].tolist()
    assert zones["lost_q95"].tolist() == run["lost_q95"].tolist()
    bins = pd.read_parquet(folder / "bins.parquet").sort_values(["zone", "start"], ignore_index=True)
    demand = pd.read_parquet(hostile_run.folder / "demand.parquet").sort_values(["zone", "start"], ignore_index=True)
    panel = pd.read_parquet(hostile_run.panel).sort_values(["zone", "start"], ignore_index=True)
    for name in demand.columns:
        pd.testing.assert_series_equal(bins[name], demand[name], check_dtype=False)
    for name in ("start_local", "stockout_minutes", "unknown_minutes"):
        pd.testing.assert_series_equal(bins[name], panel[name], check_dtype=False)
    headline = pd.read_parquet(folder / "headline.parquet").set_index("quantity")["value"]
    told = json.loads((hostile_run.folder / "run.json").read_text())["totals"]
    assert headline["lost"] == told["lost"]["mean"]


def test_zones_areas_and_headline_have_what_became_of_riders(plain_run, tmp_path):
    """They had wanted (as demand) and lost riders only, so those who walked were in the bins and totals alone."""
    run, names = tmp_path / "run", {"lost": "walked_on", "walked_on": "lost"}
    shutil.copytree(plain_run.folder, run)
    zones, totals = pd.read_parquet(run / "zones.parquet"), pd.read_parquet(run / "totals.parquet")
    # Nobody walks in this run, so that all who were lost walked on instead.
    swapped = {f"{old}_{limit}": f"{new}_{limit}" for old, new in names.items() for limit in ("mean", "q05", "q95")}
    zones.rename(columns=swapped).to_parquet(run / "zones.parquet")
    totals = totals.assign(quantity=totals["quantity"].astype(object).replace(names))
    totals.to_parquet(run / "totals.parquet")
    export_tables(run, tmp_path / "t", formats=["parquet"], panel=plain_run.panel, trust=True)
    tables = {name: pd.read_parquet(tmp_path / "t" / f"{name}.parquet") for name in ("zones", "areas", "headline")}
    told = totals[totals["level"] == "system"].set_index("quantity").to_dict("index")
    assert told["walked_on"]["mean"] > 0
    headline = tables["headline"].set_index("quantity")
    for quantity in ("wanted", "served", "walked_on", "walked_in", "lost"):
        for column, limit in (("value", "mean"), ("q05", "q05"), ("q95", "q95")):
            assert headline.loc[quantity, column] == told[quantity][limit]
        assert tables["areas"][f"{quantity}_mean"].sum() == pytest.approx(told[quantity]["mean"])
    for table in (tables["zones"].query("status == 'ok'"), tables["areas"]):
        parts = table["served_mean"] + table["walked_on_mean"] + table["lost_mean"]
        assert parts.tolist() == pytest.approx(table["wanted_mean"].tolist())
        taken = table["served_mean"] + table["walked_in_mean"]
        assert taken.tolist() == pytest.approx(table["observed"].tolist())
        assert (table["walked_on_q95"] >= table["walked_on_q05"]).all()


def test_names_in_csv_are_whole_and_never_formulas(exported):
    folder, _ = exported
    for name in sorted(TABLES):
        with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
        parquet = pd.read_parquet(folder / f"{name}.parquet")
        assert len(rows) == len(parquet)
        texts = [c for c in parquet if pd.api.types.is_string_dtype(parquet[c])]
        for column in texts:
            assert not [r[column] for r in rows if r[column].startswith(tuple("=+-@\t\r\n"))]
        for row, zone in zip(rows, parquet.get("zone", []), strict=False):
            expected = "" if pd.isna(zone) else zone
            assert row["zone"] == ("'" + expected if expected.startswith(("=", "@", "-")) else expected)
    with (folder / "zones.csv").open(newline="", encoding="utf-8") as stream:
        assert {r["name"].removeprefix("'") for r in csv.DictReader(stream)} == set(HOSTILE)


def test_the_csv_is_the_parquet(exported):
    folder, _ = exported
    for name in ("zones", "hours_of_week", "bins"):
        text, typed = pd.read_csv(folder / f"{name}.csv"), pd.read_parquet(folder / f"{name}.parquet")
        numbers = typed.select_dtypes("number").columns
        assert len(numbers) > 5
        pd.testing.assert_frame_equal(text[numbers], typed[numbers], check_dtype=False, rtol=1e-12)


def test_the_geojson_is_valid_and_has_every_zone(exported, city):
    folder, _ = exported
    document = json.loads((folder / "zones.geojson").read_text(encoding="utf-8"))
    assert document["type"] == "FeatureCollection"
    assert {f["id"] for f in document["features"]} == set(HOSTILE)
    places = dict(zip(HOSTILE, zip(city.stations["lon"], city.stations["lat"], strict=True), strict=True))
    for feature in document["features"]:
        assert feature["type"] == "Feature"
        assert feature["geometry"]["type"] == "Point"
        assert feature["geometry"]["coordinates"] == pytest.approx(places[feature["id"]])
        assert feature["properties"]["zone"] == feature["id"]


def test_polygons_are_closed_rings_in_geojson(city, tmp_path):
    run = run_on(city, tmp_path / "cells", zones="h3:8")
    (path,) = export_tables(run.folder, tmp_path / "tables", formats=["geojson"], panel=run.panel)
    for feature in json.loads(path.read_text())["features"]:
        assert feature["geometry"]["type"] == "MultiPolygon"
        for polygon in feature["geometry"]["coordinates"]:
            for ring in polygon:
                assert len(ring) == 7
                assert ring[0] == ring[-1]
                assert all(-75 < x < -73 and 40 < y < 41 for x, y in ring)


def test_only_what_is_asked_for_is_written(plain_run, tmp_path):
    paths = export_tables(plain_run.folder, tmp_path / "t", formats=["parquet"], panel=plain_run.panel)
    assert {p.suffix for p in paths} == {".parquet"}
    bins = pd.read_parquet(tmp_path / "t" / "bins.parquet")
    # Bins ahead of the records have a local time like the others.
    assert bins["start_local"].notna().all()
    assert bins["observed"].isna().sum() >= 48 * 12


def test_tables_that_a_run_lacks_are_emptied_if_an_earlier_export_wrote_them(plain_run, hostile_run, tmp_path):
    """The forecast and the areas of the earlier run stayed beside the tables of the later one."""
    folder = tmp_path / "t"
    export_tables(plain_run.folder, folder, formats=["csv", "parquet"], panel=plain_run.panel)
    earlier = pd.read_csv(folder / "areas.csv")
    paths = export_tables(hostile_run.folder, folder, formats=["parquet"], panel=hostile_run.panel)
    assert folder / "forecast.parquet" in paths
    for name in ("areas", "forecast"):
        found = pd.read_parquet(folder / f"{name}.parquet")
        assert len(found) == 0
        assert len(found.columns) > 3
    pd.testing.assert_frame_equal(pd.read_csv(folder / "areas.csv"), earlier)  # another format was not asked for


@pytest.mark.parametrize("formats", [["xlsx"], [], ["csv", "shp"]])
def test_formats_that_are_not_there_are_refused(plain_run, tmp_path, formats):
    with pytest.raises(InputError, match="csv, parquet, geojson"):
        export_tables(plain_run.folder, tmp_path / "t", formats=formats)
    assert not (tmp_path / "t").exists()


def test_a_failed_export_leaves_what_was_there(plain_run, tmp_path, monkeypatch):
    folder = tmp_path / "t"
    export_tables(plain_run.folder, folder, formats=["csv"], panel=plain_run.panel)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("unmet.report.export._features", full)
    with pytest.raises(InputError, match="No space left"):
        export_tables(plain_run.folder, folder, panel=plain_run.panel)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_a_folder_that_cannot_be_made_is_an_error_that_says_so(plain_run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        export_tables(plain_run.folder, tmp_path / "file" / "t", panel=plain_run.panel)
    with pytest.raises(InputError, match="cannot be written"):
        export_tables(plain_run.folder, tmp_path / "file", panel=plain_run.panel)


def test_bins_and_totals_have_the_names_of_zones(exported):
    folder, _ = exported
    names = pd.read_parquet(folder / "zones.parquet").set_index("zone")["name"]
    for table in ("bins", "totals"):
        rows = pd.read_parquet(folder / f"{table}.parquet")
        known = rows[rows["zone"].notna()]
        assert known["name"].tolist() == names[known["zone"]].tolist()
        assert rows.loc[rows["zone"].isna(), "name"].isna().all()


def test_totals_are_in_the_order_of_the_run(exported, hostile_run):
    folder, _ = exported
    rows = pd.read_parquet(folder / "totals.parquet").drop(columns="name")
    pd.testing.assert_frame_equal(rows, pd.read_parquet(hostile_run.folder / "totals.parquet"), check_dtype=False)


@pytest.mark.parametrize(("every", "slots"), [("1d", {24 * day for day in range(7)}), ("1w", {0})])
def test_bins_of_a_day_or_a_week_have_no_hour(city, tmp_path, every, slots):
    run = run_on(city, tmp_path / every, every=every)
    export_tables(run.folder, tmp_path / "t", formats=["csv"], panel=run.panel)
    totals, week = (pd.read_csv(tmp_path / "t" / f"{name}.csv") for name in ("totals", "hours_of_week"))
    assert set(totals["hour_of_week"].dropna()) == slots
    assert set(week["hour_of_week"]) == slots
    assert week["hour"].isna().all()
    assert week["day"].isna().all() == (every == "1w")
    assert pd.read_csv(tmp_path / "t" / "act.csv")["hour"].isna().all()


def test_a_folder_that_was_made_is_removed_if_nothing_could_be_written(plain_run, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("unmet.report.export.copy_table", full)
    with pytest.raises(InputError, match="No space left on device"):
        export_tables(plain_run.folder, tmp_path / "new", panel=plain_run.panel)
    assert list(tmp_path.iterdir()) == []
