"""What the report of a large city weighs and how long it takes: 600 zones, hourly for a year.

The page should stay below 15 MB and open within 3 s of processor time. Where there is a Chromium it is opened too, and
a zone chosen. ``--quick`` makes a small city, to see that the benchmark works; ``--keep`` copies the page to a file.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from unmet._storage.hashes import file_hash
from unmet._storage.sql import literal
from unmet.mobility.clock.periods import period_numbers
from unmet.mobility.models.registry import MODELS
from unmet.mobility.runs.periods import DRAWS, PeriodDraws, write_draws
from unmet.mobility.runs.totals import ZoneDraws, tabulate_totals
from unmet.report import write_report

LIMIT_MB, LIMIT_SECONDS, AREAS, DRAWS_EACH = 15.0, 3.0, 8, 50
# Rates with a daily and weekly shape, weather that all zones feel and noise of their own: as hard to compress as real.
ROWS = """
    WITH z AS (SELECT i, 'Z' || lpad(i::VARCHAR, 4, '0') AS zone, exp(0.5 + 1.8 * (random() - 0.5)) AS level,
                      3 * random() AS late FROM range({zones}) t(i)),
         h AS (SELECT k, TIMESTAMPTZ '2023-01-01 05:00:00+00' + to_hours(k) AS start,
                      exp(0.5 * sum(random() - 0.5) OVER (ORDER BY k ROWS 11 PRECEDING)) AS weather
               FROM range({hours}) t(k)),
         r AS (SELECT zone, start, k, level * weather * exp(0.9 * sin((k % 24 - 8 - late) * pi() / 12))
                      * (CASE WHEN k % 168 < 120 THEN 1 ELSE 0.7 END) * (0.95 + 0.1 * random()) AS rate,
                      CASE WHEN hash(i, k // 3) % 40 = 0 THEN (hash(k, i) % 60)::INTEGER ELSE 0 END AS empty,
                      0.1 + 0.05 * random() AS spread, random() AS luck FROM z CROSS JOIN h)
    SELECT zone, start, start::TIMESTAMP - INTERVAL 5 HOUR AS start_local, k, rate, spread, empty,
           floor(rate * (1 - empty / 60) + 2 * luck * sqrt(rate)) AS observed, rate * empty / 60 AS lost
    FROM r ORDER BY zone, start"""
PANEL = """SELECT zone, start, start_local, 60 AS minutes, observed, 60 - empty AS available_minutes,
    empty AS stockout_minutes, 0 AS closed_minutes, 0 AS unknown_minutes, 1 - empty / 60 AS exposure,
    empty > 0 AS censored FROM rows"""
DEMAND = """SELECT zone, start, observed, 1 - empty / 60 AS exposure, empty > 0 AS censored, rate AS rate_mean,
    rate * spread AS rate_sd, rate * exp(-1.64 * spread) AS rate_q05, rate * exp(1.64 * spread) AS rate_q95,
    observed + lost AS demand_mean, lost AS lost_mean, '' AS flags FROM rows"""
SUMS = "start, sum(rate) AS rate_mean, sum(rate * spread) / 2 AS rate_sd, sum(rate * spread) / 3 AS rate_shared_1"
SYSTEM = f"""SELECT NULL AS area, {SUMS} FROM rows GROUP BY start UNION ALL
    SELECT 'District ' || (substr(zone, 2)::INTEGER % {AREAS} + 1) AS area, {SUMS} FROM rows GROUP BY 1, start"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20 zones, four weeks")
    parser.add_argument("--keep", type=Path, help="file to copy the page to")
    given = parser.parse_args()
    zones, hours = (20, 672) if given.quick else (600, 8760)
    with tempfile.TemporaryDirectory(prefix="unmet-report-") as folder:
        made = Path(folder)
        make_run(made, zones, hours)
        wall, cpu = time.monotonic(), time.process_time()
        page = write_report(made / "run", trust=True)
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
        size = page.stat().st_size / 1e6
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"report of {zones} zones x {hours} hours: {size:.1f} MB (at most {LIMIT_MB:.0f}),")
        print(f"  made in {wall:.1f} s, {cpu:.1f} s of processor time, peak {peak:.0f} MB (the run made as well)")
        if given.keep:
            shutil.copyfile(page, given.keep)
        seconds = open_in_browser(page)
    if size > LIMIT_MB or seconds > LIMIT_SECONDS:
        sys.exit(f"the page is larger than {LIMIT_MB} MB, or opens in more than {LIMIT_SECONDS} s of processor time")


def make_run(folder: Path, zones: int, hours: int) -> None:
    """Write the files of a panel and a run, with numbers of the right kind."""
    (folder / "run").mkdir()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SELECT setseed(0.5)")
        connection.execute(f"CREATE TABLE rows AS {ROWS.format(zones=zones, hours=hours)}")
        by_zone = connection.execute(
            "SELECT zone, count(*) AS bins, sum(observed) AS observed, sum(lost) AS lost, sum(empty)::DOUBLE AS empty "
            "FROM rows GROUP BY zone ORDER BY zone"
        ).df()
        by_slot = connection.execute(
            "SELECT zone, (extract(isodow FROM start_local) - 1) * 24 + extract(hour FROM start_local) AS slot, "
            "sum(observed) AS observed, sum(lost) AS lost FROM rows GROUP BY ALL ORDER BY 1, 2"
        ).df()
        by_period = connection.execute(
            "SELECT zone, start_local, sum(observed) AS observed, sum(lost) AS lost FROM "
            "(SELECT * REPLACE (date_trunc('hour', start_local) AS start_local) FROM rows) GROUP BY ALL ORDER BY 1, 2"
        ).df()
        for name, sql, metadata in (
            ("panel", PANEL, panel_metadata(by_zone)),
            ("run/demand", DEMAND, ""),
            ("run/system", SYSTEM, ""),
        ):
            connection.execute(f"COPY ({sql}) TO {literal(str(folder / f'{name}.parquet'))} (FORMAT parquet{metadata})")
    write_totals(folder, by_zone, by_slot)
    write_periods(folder, by_period)


def area_of(zone: str) -> str:
    return f"District {int(zone[1:]) % AREAS + 1}"


def write_periods(folder: Path, rows: pd.DataFrame) -> None:
    """Write draws by area and period."""
    rng = np.random.default_rng(2)
    rows = rows.assign(area=rows["zone"].map(area_of), period=period_numbers(pd.DatetimeIndex(rows["start_local"])))
    found = {}
    for area, own in rows.groupby(["area", "period"])[["observed", "lost"]].sum().groupby("area"):
        lost = rng.poisson(own["lost"].to_numpy()[:, None], (len(own), DRAWS_EACH)).astype(float)
        periods = own.index.get_level_values("period").to_numpy()
        found[str(area)] = PeriodDraws(periods, ZoneDraws.by_itself(own["observed"].to_numpy(), lost))
    write_draws(folder / "run" / DRAWS, found)


def panel_metadata(by_zone: pd.DataFrame) -> str:
    names, count = by_zone["zone"].tolist(), len(by_zone)
    rng = np.random.default_rng(0)
    lat, lon = 40.72 + rng.normal(0, 0.04, count), -73.98 + rng.normal(0, 0.05, count)
    zones = {
        "zone": names,
        "name": [f"Street {i % 60} & Avenue {i // 60}" for i in range(count)],
        "lat": lat.tolist(),
        "lon": lon.tolist(),
        "capacity": [25] * count,
        "stations": [[name] for name in names],
    }
    return f", KV_METADATA {{'unmet.zones': {literal(json.dumps(zones))}}}"


def write_totals(folder: Path, by_zone: pd.DataFrame, by_slot: pd.DataFrame) -> None:
    rng = np.random.default_rng(1)
    lost = by_slot.pivot_table(index="zone", columns="slot", values="lost").reindex(columns=range(168)).fillna(0.0)
    seen = by_slot.pivot_table(index="zone", columns="slot", values="observed").reindex(columns=range(168)).fillna(0.0)
    drawn = {
        zone: ZoneDraws.by_itself(
            seen.loc[zone].to_numpy(), rng.poisson(lost.loc[zone].to_numpy()[:, None], (168, DRAWS_EACH)).astype(float)
        )
        for zone in lost.index
    }
    totals = tabulate_totals(drawn.items(), areas={zone: area_of(zone) for zone in drawn})
    totals.to_parquet(folder / "run" / "totals.parquet")
    zones = pd.DataFrame({"zone": by_zone["zone"], "status": "ok", "reason": None, "observed": by_zone["observed"]})
    zones["area"] = zones["zone"].map(area_of)
    zones["available_minutes"] = 60.0 * by_zone["bins"] - by_zone["empty"]
    zones["stockout_minutes"], zones["closed_minutes"], zones["unknown_minutes"] = by_zone["empty"], 0.0, 0.0
    of_zones = totals[totals["level"] == "zone"]
    for quantity in ("demand", "lost"):
        own = of_zones[of_zones["quantity"] == quantity].set_index("zone").loc[zones["zone"]]
        for limit in ("mean", "q05", "q95"):
            zones[f"{quantity}_{limit}"] = own[limit].to_numpy()
    zones.to_parquet(folder / "run" / "zones.parquet")
    told = {
        "model": MODELS["exposure"].to_dict(),
        "inputs": {"model": {"name": "exposure"}, "panel": file_hash(folder / "panel.parquet")},
        "panel_path": str(folder / "panel.parquet"),
        "zones": {},
        "totals": {},
    }
    (folder / "run" / "run.json").write_text(json.dumps(told))


def open_in_browser(page: Path) -> float:
    """Open the page and choose a zone; return the seconds of processor time until it is ready."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        print("  no Chromium here: not opened")
        return 0.0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1400, "height": 900})
        session = opened.context.new_cdp_session(opened)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        began = time.monotonic()
        opened.goto(page.as_uri())
        opened.wait_for_selector("body[data-ready=yes]", timeout=120_000)
        ready = time.monotonic() - began
        metrics = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
        opened.locator("#zone-table tbody tr").nth(2).click()
        opened.wait_for_selector("body:not([data-zone='-1'])")
        after = time.monotonic() - began - ready
        print(f"  opened in {ready:.1f} s, {metrics['TaskDuration']:.1f} s of processor time;", end=" ")
        print(f"another zone shown {after:.2f} s after it is chosen")
        browser.close()
    return float(metrics["TaskDuration"])


if __name__ == "__main__":
    main()
