"""Checks before a report is sent on: each finds what it is made to find, and nothing in a sane run."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest

from unmet.mobility.records.quality import QualityLog
from unmet.report.source import open_run
from unmet.report.trust import check_run


@pytest.fixture
def source(plain_run):
    with open_run(plain_run.folder, plain_run.panel) as opened:
        yield opened


def by_name(source):
    return {check.name: check for check in check_run(source)}


@pytest.mark.parametrize(
    ("name", "column", "value", "says"),
    [
        ("left_out", "left_out", "7: it has a valet", "1 zone ({}: it has a valet) left out of the totals"),
        ("lost_above_observed", "lost_mean", 1e6, "1 zone ({}) with more trips lost than observed"),
        ("mostly_empty", "stockout_minutes", 10**9, "1 zone ({}) empty most of the time"),
        ("fits", "status", "failed", "1 zone ({}) could not be estimated"),
    ],
)
def test_a_zone_that_is_odd_is_named(source, name, column, value, says):
    zones = source.zones.copy()
    if column not in zones.columns:
        zones[column] = pd.Series([None] * len(zones), dtype="str")
    zones[column] = zones[column].astype(object)
    before = by_name(replace(source, zones=zones))[name]
    named = zones["name"].iloc[0]
    zones.loc[0, column] = value
    found = by_name(replace(source, zones=zones))[name]
    assert not found.good
    if before.good:
        assert found.sentence == says.format(named)
    assert named in json.dumps(found.to_dict(), ensure_ascii=False)


def test_pickups_that_rare_looks_miss_are_a_finding(source):
    assert by_name(source)["missing_pickups"].good
    found = by_name(replace(source, summary=source.summary | {"misses_pickups": True}))["missing_pickups"]
    assert not found.good
    assert "give trips" in found.sentence
    half = source.summary | {"observed": 100.0, "cancelled": 50.0}
    found = by_name(replace(source, summary=half))["missing_pickups"]
    assert not found.good
    assert found.sentence.startswith("50% of the pickups are expected")


@pytest.mark.parametrize(("rows", "says"), [(9, None), (11, "1.1% of the rows of trips were rejected (duplicate)")])
def test_rejected_rows_are_a_finding_from_one_per_cent_on(source, rows, says):
    log = QualityLog()
    for name in ("trips", "status"):
        log.total(name, 1000)
    log.add("trips", "duplicate", "rejected", rows - 3)
    log.add("trips", "missing time", "rejected", 3)
    log.add("status", "duplicate", "rejected", 200)  # the last record of a second is used: nothing is lost
    found = by_name(replace(source, quality=log.frame()))["rejected"]
    assert found.good == (says is None)
    assert found.sentence == (says or "hardly any row is rejected")


def test_hours_that_are_mostly_unknown_are_counted(source):
    assert by_name(source)["mostly_unknown"].good
    source.connection.execute(
        "CREATE OR REPLACE TEMP VIEW panel AS SELECT * REPLACE (CASE WHEN hour(start_local) = 18 AND "
        "isodow(start_local) = 2 THEN minutes ELSE unknown_minutes END AS unknown_minutes) FROM "
        f"(SELECT * FROM ({_definition(source)}))"
    )
    found = by_name(source)["mostly_unknown"]
    assert found.values == {"hours_of_week": [24 + 18]}
    assert found.sentence == "1 hour of the week is mostly unknown"


def _definition(source) -> str:
    (sql,) = source.connection.execute("SELECT sql FROM duckdb_views() WHERE view_name = 'panel'").fetchone()
    return sql[sql.upper().index(" AS ") + 4 :].rstrip("; ")


@pytest.mark.parametrize(
    ("held_out", "good"),
    [
        ({"bins": 900, "bias": 0.03, "bias_se": 0.01, "coverage": 0.9}, True),
        ({"bins": 900, "bias": 0.09, "bias_se": 0.01, "coverage": 0.9}, False),
        ({"bins": 900, "bias": 0.09, "bias_se": 0.06, "coverage": 0.9}, True),
        ({"bins": 900, "bias": 0.0, "bias_se": 0.01, "coverage": 0.7}, False),
    ],
)
def test_held_out_bins_speak_for_or_against_the_run(source, held_out, good):
    found = by_name(replace(source, info={**source.info, "joint": {"held_out": held_out}}))["held_out"]
    assert found.good is good
    assert f"{held_out['bias']:+.1%}".replace("-", "−") in found.sentence


def test_a_run_without_held_out_bins_says_nothing_of_them(source):
    assert "held_out" not in by_name(source)


def test_simpler_assumptions_are_compared(source):
    totals = source.totals.copy()
    system = (totals["level"] == "system") & (totals["quantity"] == "walked_on")
    lost = totals.loc[(totals["level"] == "system") & (totals["quantity"] == "lost"), "mean"].iloc[0]
    totals.loc[system, "mean"] = 0.4 * lost
    found = by_name(replace(source, totals=totals))["simpler_assumptions"]
    assert "+40% if nobody walked" in found.sentence
    assert found.values["lost_if_nobody_walked"] == pytest.approx(1.4 * lost)


def test_the_page_and_the_file_have_the_same_checks(plain_run, tmp_path):
    page = plain_run.report(tmp_path / "page.html", quality=tmp_path / "quality.json")
    checks = json.loads((tmp_path / "quality.json").read_text(encoding="utf-8"))
    assert {"left_out", "fits", "mostly_empty"} <= {check["name"] for check in checks}
    text = page.read_text(encoding="utf-8")
    for check in checks:
        assert json.dumps(check["name"]) in text
    assert str(tmp_path) not in text
