"""Numbers on the page, in every export and in the files of the run agree: they are added up here."""

from __future__ import annotations

import json
import math
import re

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import pytest

from unmet._storage.sql import fetch_frame
from unmet.report.destinations import export_to
from unmet.report.export import export_tables

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(plain_page) -> dict:
    """The data of the page."""
    text = plain_page.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


@pytest.fixture(scope="module")
def totals(plain_run) -> pd.DataFrame:
    return pd.read_parquet(plain_run.folder / "totals.parquet")


@pytest.fixture(scope="module")
def exported(plain_run, tmp_path_factory) -> dict[str, dict[str, pd.DataFrame]]:
    """Every table of every export but that of single bins, by destination."""
    folder = tmp_path_factory.mktemp("exported")
    given = {"panel": plain_run.panel}
    export_tables(plain_run.folder, folder / "files", formats=["csv", "parquet"], **given)
    export_to(plain_run.folder, f"duckdb://{folder / 'city.db'}", **given)
    export_to(plain_run.folder, str(folder / "city.xlsx"), **given)
    names = sorted(path.stem for path in (folder / "files").glob("*.parquet") if path.stem != "bins")
    book = openpyxl.load_workbook(folder / "city.xlsx", read_only=True)
    sheets = {}
    for name in names:
        head, *rows = book[name].iter_rows(values_only=True)
        sheets[name] = pd.DataFrame(rows, columns=head)
    with duckdb.connect(str(folder / "city.db")) as connection:
        database = {name: fetch_frame(connection, f"SELECT * FROM unmet.{name}") for name in names}
    return {
        "csv": {name: pd.read_csv(folder / "files" / f"{name}.csv") for name in names},
        "parquet": {name: pd.read_parquet(folder / "files" / f"{name}.parquet") for name in names},
        "duckdb": database,
        "xlsx": sheets,
    }


def value(totals: pd.DataFrame, level: str, quantity: str, column: str = "mean") -> float:
    return float(totals[(totals["level"] == level) & (totals["quantity"] == quantity)][column].sum())


def test_zones_areas_weeks_and_hours_add_up_to_the_system(totals, page):
    for quantity in ("observed", "lost", "demand"):
        system = value(totals, "system", quantity)
        for level in ("zone", "area", "hour_of_week", "zone_hour_of_week"):
            assert value(totals, level, quantity) == pytest.approx(system, rel=1e-9)
        parts = totals[(totals["level"] == "zone_part") & (totals["quantity"] == quantity)]
        assert parts[parts["days"].isna()]["mean"].sum() == pytest.approx(system, rel=1e-9)
        assert parts[parts["part"].isna()]["mean"].sum() == pytest.approx(system, rel=1e-9)
        assert page["headline"][quantity]["mean"] == pytest.approx(system, rel=1e-9)


def test_the_choices_of_the_page_add_up(page, totals):
    found = {tuple(own["choice"]): own for own in page["story"]["choices"]}
    lost = {choice: own["totals"]["lost"]["mean"] for choice, own in found.items()}
    assert lost[None, None, None] == pytest.approx(value(totals, "system", "lost"), rel=1e-6)
    assert found[None, None, None]["observed"] == value(totals, "system", "observed")
    for limit in ("q05", "q95"):
        own = found[None, None, None]["totals"]["lost"][limit]
        assert own == pytest.approx(value(totals, "system", "lost", limit), rel=1e-6)
    for axis, names in enumerate((page["story"]["areas"], page["story"]["days"], list(page["story"]["parts"]))):
        choices = [tuple(name if k == axis else None for k in range(3)) for name in names]
        assert sum(lost[choice] for choice in choices) == pytest.approx(lost[None, None, None], rel=1e-6)
    areas = totals[(totals["level"] == "area") & (totals["quantity"] == "lost")].set_index("zone")["mean"]
    assert {name: lost[name, None, None] for name in areas.index} == pytest.approx(areas.to_dict(), rel=1e-6)


def test_bins_add_up_to_totals_but_for_the_chance_of_draws(plain_run, totals):
    demand = pd.read_parquet(plain_run.folder / "demand.parquet")
    past = demand[demand["observed"].notna()]
    assert past["observed"].sum() == value(totals, "system", "observed")
    # Means of bins are exact, those of totals are means of 40 draws.
    off = 4 * value(totals, "system", "lost", "sd") / np.sqrt(40)
    assert past["lost_mean"].sum() == pytest.approx(value(totals, "system", "lost"), abs=off)


@pytest.mark.parametrize("kind", ["csv", "parquet", "duckdb", "xlsx"])
def test_exports_have_the_numbers_of_the_page(exported, kind, page, totals, plain_run):
    tables = exported[kind]
    headline = tables["headline"].set_index("quantity")["value"].astype(float)
    for name in ("observed", "demand", "lost"):
        assert headline[name] == pytest.approx(page["headline"][name]["mean"], rel=1e-9)
        column = name if name == "observed" else f"{name}_mean"
        assert tables["zones"][column].astype(float).sum() == pytest.approx(headline[name], rel=1e-9)
        assert tables["areas"][column].astype(float).sum() == pytest.approx(headline[name], rel=1e-9)
    zones = dict(zip(tables["zones"]["zone"], tables["zones"]["lost_mean"].astype(float), strict=True))
    assert zones == pytest.approx(dict(zip(page["zones"]["zone"], page["zones"]["lost_mean"], strict=True)), rel=1e-8)
    weeks = tables["weeks"]
    weeks = weeks[weeks["area"].isna() & (weeks["quantity"] == "lost")]
    assert weeks["mean"].astype(float).sum() == pytest.approx(headline["lost"], rel=1e-6)
    assert tables["hours_of_week"]["observed"].astype(float).sum() == pytest.approx(headline["observed"])
    forecast = tables["forecast"]["rate_mean"].astype(float).sum()
    assert forecast == pytest.approx(sum(page["forecast"]["areas"][0]["bins"]["rate_mean"]), rel=1e-5)
    assert len(tables["totals"]) == len(totals)
    assert tables["totals"]["mean"].astype(float).sum() == pytest.approx(totals["mean"].sum(), rel=1e-9)


def test_the_weeks_drawn_on_the_page_are_those_of_the_exports(plain, exported):
    weeks = exported["parquet"]["weeks"]
    lost = weeks[weeks["area"].isna() & (weeks["quantity"] == "lost")]["mean"].to_numpy()
    plain.page.evaluate("location.hash = ''")
    drawn = plain.page.evaluate("document.getElementById('story-chart').data[2].y")
    assert drawn == pytest.approx(lost, rel=1e-3, abs=0.05)
    rows = plain.page.evaluate(
        "Array.from(document.querySelectorAll('#story-weeks tbody tr'), (r) => r.cells[4].textContent)"
    )
    assert [row.split(" (")[0] for row in rows] == [f"{math.floor(v + 0.5):,}" for v in lost]
