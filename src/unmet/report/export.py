"""Write the numbers of a report as tables: CSV, Parquet and GeoJSON.

============== ========================================================================================
table          rows
============== ========================================================================================
headline       totals of the system with intervals, the share of time out of stock, numbers of zones
zones          one per zone; also as GeoJSON, with its point or polygon
hours_of_week  one per zone and hour of the week
areas          one per area, the sum of its zones; only if the panel has areas
weeks          one per area (missing: all zones), week and quantity, with intervals
forecast       one per zone and hour ahead, with the risk to find nothing; only with a forecast
act            zones and hours where one more vehicle would have served most riders, best first
bins           one per zone and bin: minutes by state, rate, demand and lost trips
totals         all totals with their quantiles
quality        rejected, repaired and noted rows
============== ========================================================================================

With a run of returns (``side = "both"``), zones, hours_of_week, areas, forecast and bins have further columns
``returns_…``. Headline, totals and weeks have further rows whose quantities begin with ``returns_``: see
`unmet.report.beside`.

In CSV, a text that a spreadsheet would read as a formula is prefixed with an apostrophe; in Parquet and GeoJSON it is
unchanged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from unmet._exceptions import InputError
from unmet._storage.folders import remove_if_empty
from unmet._storage.sql import fetch_all, identifier, literal, one_thread
from unmet._storage.writing import replacing_files, writing
from unmet.mobility.records.quality import QUALITY_COLUMNS
from unmet.mobility.supply.states import STATE_MINUTES
from unmet.report.beside import RETURNED, of_bins, with_returns, with_rows_of_returns, with_weeks_of_returns
from unmet.report.forecast import forecast_rows
from unmet.report.places import geometry
from unmet.report.series import each_zone
from unmet.report.source import RunSource, open_run
from unmet.report.story import read_weeks, week_rows
from unmet.report.tables import OUTCOMES, act_table, area_table, headline, week_table, zone_table

__all__ = [
    "FORMATS",
    "OPTIONAL_TABLES",
    "appearing",
    "columns_of",
    "copy_table",
    "export_tables",
    "report_tables",
]

FORMATS = ("csv", "parquet", "geojson")
OPTIONAL_TABLES = {"areas": "SELECT * FROM area_rows", "forecast": "SELECT * FROM forecast_rows"}
"""SQL of the tables that some runs do not have. An export without them empties those of an earlier one."""

_OF_RETURNS = ("returns_observed", "returns_demand", "returns_lost")
# Signs that start a formula in a spreadsheet, and their full-width forms.
_FORMULA = "^[=+\\-@\\t\\r\\n＝＋－＠]"


def export_tables(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    formats: Sequence[str] = FORMATS,
    panel: str | os.PathLike[str] | None = None,
    trust: bool = False,
    progress: Callable[[str], None] | None = None,
) -> list[Path]:
    """Write the tables of a run's report into a folder.

    Parameters
    ----------
    run : path
        The folder written by ``unmet estimate`` or ``unmet run``.
    out : path
        The folder for the tables, created if missing. Existing files are replaced when all tables are complete. A table
        that this run does not have is empty if an earlier export has written it.
    formats : sequence of str
        Some of ``csv``, ``parquet``, ``geojson``.
    panel : path, optional
        The panel of the run; default: the path recorded in the run.
    trust : bool
        Do not compare the files of the run with their checksums.
    progress : callable, optional
        Called with the name of each file before it is written.

    Returns
    -------
    list of pathlib.Path
        Paths of the files.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise InputError(f"formats: expected some of {', '.join(FORMATS)}; got {', '.join(formats) or 'none'}.")
    folder = Path(out)
    report = progress or (lambda _: None)
    with open_run(run, panel, trust=trust) as source, appearing(folder) as aside:
        zones = with_returns(source, zone_table(source), "zone", ["zone"])
        if "csv" in formats or "parquet" in formats:
            tables = report_tables(source, zones)
            for name, sql in (OPTIONAL_TABLES | tables).items():
                for kind in ("csv", "parquet"):
                    if kind in formats and (name in tables or (folder / f"{name}.{kind}").exists()):
                        report(f"{name}.{kind}")
                        copy_table(source.connection, sql, aside / f"{name}.{kind}", kind)
        if "geojson" in formats:
            report("zones.geojson")
            text = json.dumps(_features(source, zones), ensure_ascii=False, allow_nan=False)
            (aside / "zones.geojson").write_text(text, encoding="utf-8")
        names = sorted(path.name for path in aside.iterdir())
        source.check_outputs(*(folder / name for name in names))
    return [folder / name for name in names]


@contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """Give a folder to write into; its files are moved into `folder` once all are complete."""
    made = not folder.exists()
    try:
        with writing(folder, "Existing files are unchanged: free some space or choose another folder."):
            folder.mkdir(exist_ok=True)
            with replacing_files(folder) as aside:
                yield aside
    finally:
        if made:
            remove_if_empty(folder)


def report_tables(source: RunSource, zones: pd.DataFrame | None = None) -> dict[str, str]:
    """Give the SQL of each table of the report, for the connection of `source`; `zones` is its table of zones."""
    _register(source, with_returns(source, zone_table(source), "zone", ["zone"]) if zones is None else zones)
    return _tables(source)


def _register(source: RunSource, zones: pd.DataFrame) -> None:
    """Make the tables of the report available to SQL."""
    weeks = week_table(source, (series.week for _, series in each_zone(source)))
    act = act_table(weeks, rows=1000)
    frames = {
        "headline_rows": pd.concat([_headline_rows(headline(source, zones)), _returns_rows(source)], ignore_index=True),
        "zone_rows": zones,
        "week_rows": with_returns(
            source, weeks.drop(columns=["number"]), "zone_hour_of_week", ["zone", "hour_of_week"]
        ),
        "act_rows": act.drop(columns=["number"]),
        "total_rows": with_rows_of_returns(source, source.totals).reset_index(names="number"),
        "zone_names": zones[["zone", "name"]],
        "area_rows": with_returns(source, area_table(source), "area", ["area"]),
        "week_sums": with_weeks_of_returns(source, week_rows(read_weeks(source))),
        "forecast_rows": forecast_rows(source),
        "quality_rows": source.quality if len(source.quality.columns) else pd.DataFrame(columns=QUALITY_COLUMNS),
    }
    for name, frame in frames.items():
        source.connection.register(name, frame)


def _tables(source: RunSource) -> dict[str, str]:
    own = [c for c in columns_of(source.connection, "SELECT * FROM demand") if c not in ("zone", "start", "observed")]
    of_panel = ", ".join(f"p.{c}" for c in STATE_MINUTES)
    of_demand = ", ".join(f"d.{identifier(c)}" for c in own)
    returned = of_bins(source)
    of_returns = "".join(f", r.{column}" for column in returned)
    joined = f"LEFT JOIN {RETURNED} r ON r.zone = coalesce(p.zone, d.zone) AND r.start = b.start" if returned else ""
    bins = f"""
        SELECT coalesce(p.zone, d.zone) AS zone, z.name,
            b.start, b.start_local, b.minutes, {of_panel}, p.observed, {of_demand}{of_returns}
        FROM (SELECT * REPLACE (zone::VARCHAR AS zone) FROM panel) p
        FULL JOIN demand d ON p.zone = d.zone AND p.start = d.start
        JOIN bin_numbers b ON b.start = coalesce(p.start, d.start)
        JOIN zone_names z ON z.zone = coalesce(p.zone, d.zone) {joined} ORDER BY 1, 3"""
    return {
        "headline": "SELECT * FROM headline_rows",
        "zones": "SELECT * FROM zone_rows",
        "hours_of_week": "SELECT * FROM week_rows",
        "act": "SELECT * FROM act_rows",
        **({"areas": OPTIONAL_TABLES["areas"]} if (source.totals["level"] == "area").any() else {}),
        "weeks": "SELECT * FROM week_sums",
        **({"forecast": OPTIONAL_TABLES["forecast"]} if source.bins["future"].any() else {}),
        "bins": bins,
        "totals": "SELECT level, zone, z.name, t.* EXCLUDE (level, zone, number) "
        "FROM total_rows t LEFT JOIN zone_names z USING (zone) ORDER BY t.number",
        "quality": "SELECT * FROM quality_rows",
    }


def _headline_rows(found: dict[str, Any]) -> pd.DataFrame:
    rows: list[tuple[str, float | None, float | None, float | None]] = []
    for name in ("observed", "demand", "lost", *(name for name in OUTCOMES if name in found)):
        limits = (None, None) if name == "observed" else (found[name]["q05"], found[name]["q95"])
        rows.append((name, found[name]["mean"], *limits))
    for name in ("lost_share", "stockout_share", "stockout_hours"):
        rows.append((name, found[name], None, None))
    for name, count in found["zones"].items():
        rows.append((f"zones_{name}", float(count), None, None))
    frame = pd.DataFrame(rows, columns=["quantity", "value", "q05", "q95"])
    return frame.astype({"value": "float64", "q05": "float64", "q95": "float64"})


def _returns_rows(source: RunSource) -> pd.DataFrame:
    """Return the rows of returns of the headline."""
    totals = with_rows_of_returns(source, source.totals.iloc[:0])
    rows = totals[(totals["level"] == "system") & totals["quantity"].isin(_OF_RETURNS)]
    return rows[["quantity", "mean", "q05", "q95"]].rename(columns={"mean": "value"})


def columns_of(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, str]:
    """Give the types of the columns of a query."""
    return {str(row[0]): str(row[1]) for row in fetch_all(connection, f"DESCRIBE {sql}")}


def copy_table(connection: duckdb.DuckDBPyConnection, sql: str, path: Path, kind: str) -> None:
    """Write the rows of a query as ``parquet`` or ``csv``."""
    if kind == "parquet":
        with one_thread(connection):
            connection.execute(f"COPY ({sql}) TO {literal(str(path))} (FORMAT parquet, COMPRESSION zstd)")
        return
    columns = [_as_text(name, type_) for name, type_ in columns_of(connection, sql).items()]
    connection.execute(f"COPY (SELECT {', '.join(columns)} FROM ({sql})) TO {literal(str(path))} (FORMAT csv, HEADER)")


def _as_text(name: str, type_: str) -> str:
    """Return SQL for a column in CSV: times in ISO 8601, texts that look like formulas with an apostrophe."""
    quoted = identifier(name)
    if type_ == "TIMESTAMP WITH TIME ZONE":
        return f"strftime({quoted} AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%SZ') AS {quoted}"
    if type_ == "VARCHAR":
        formula = f"regexp_matches({quoted}, {literal(_FORMULA)})"
        return f"CASE WHEN {formula} THEN concat('''', {quoted}) ELSE {quoted} END AS {quoted}"
    return quoted


def _features(source: RunSource, zones: pd.DataFrame) -> dict[str, Any]:
    """Return a GeoJSON FeatureCollection (RFC 7946); a zone without a position has no geometry."""
    features = []
    for (_, zone), row in zip(source.zones.iterrows(), zones.to_dict("records"), strict=True):
        properties = {str(k): None if pd.isna(v) else v for k, v in row.items() if k not in ("lat", "lon")}
        features.append({"type": "Feature", "id": row["zone"], "geometry": geometry(zone), "properties": properties})
    return {"type": "FeatureCollection", "features": features}
