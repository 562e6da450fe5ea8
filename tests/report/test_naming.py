"""Titles of pages that were given none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unmet.report.naming import name_of_files, title_of


@pytest.mark.parametrize("name", ["Bike Città", [{"text": "Bike Città", "language": "it"}]])
def test_the_feed_names_the_system(tmp_path, name):
    (tmp_path / "system_information.json").write_text(json.dumps({"data": {"name": name}}), encoding="utf-8")
    assert name_of_files(str(tmp_path / "station_information.json")) == "Bike Città"
    assert title_of([name_of_files(tmp_path / "trips" / "*.csv.gz")]) == "Bike Città: demand and lost trips"


@pytest.mark.parametrize("text", ["not JSON", "[]", '{"data": {"name": []}}', '{"data": {"name": " "}}'])
def test_a_feed_without_a_name_is_passed_over(tmp_path, text):
    folder = tmp_path / "jersey_city"
    folder.mkdir()
    (folder / "system_information.json").write_text(text, encoding="utf-8")
    assert name_of_files(folder / "trips.parquet") == "Jersey city"


def test_no_name_of_a_person_and_no_common_folder_is_taken():
    assert name_of_files(Path.home() / "trips.csv", "/Users/ann/data/run/estimate", "/home/bob/out") is None
    assert name_of_files("/home/bob/oslo-2024/data/trips/*.csv") == "Oslo 2024"
    assert title_of([None]) == "Demand and lost trips"
