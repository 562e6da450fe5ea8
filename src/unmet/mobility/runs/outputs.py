"""The files of a finished run, made from its checkpoints one at a time."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from unmet._exceptions import FileFormatError
from unmet._storage.files import read_whole
from unmet._storage.hashes import file_hash
from unmet._storage.parquet import write_parquet
from unmet._storage.sql import connect, fetch_all, literal, parquet_sql, path_literal
from unmet._storage.writing import replacing_files, write_text
from unmet.mobility.models.held_out import HeldOut
from unmet.mobility.panel.plausibility import kept_zones
from unmet.mobility.runs.checkpoints import Checkpoint
from unmet.mobility.runs.keeping import KEPT, Kept, NotKept
from unmet.mobility.runs.periods import DRAWS, PeriodDraws, sum_by_area, write_draws
from unmet.mobility.runs.totals import QUANTITIES, ZoneDraws, error_of_pickups, tabulate_totals

__all__ = ["TABLES", "check_files", "finished_run", "publish", "read_info", "write_info"]

TABLES = ("demand.parquet", "zones.parquet", "totals.parquet", "system.parquet", DRAWS)
# An estimate for one bin above 3 times the most that was ever observed there, and 5, is not believed.
_FAR, _FEW = 3, 5
_SORT_MEMORY = 500_000_000  # bytes
_SHARED = "rate_shared_"  # columns of the checkpoints, for system.parquet only
# Costs differ from run to run. They are in run.json only, so that equal runs have equal tables.
_COSTS = "_seconds"


def publish(
    out: Path,
    scratch: Path,
    parts: Sequence[Checkpoint],
    zones: pd.DataFrame,
    hours: Sequence[int],
    info: dict[str, Any],
    held_out: HeldOut | None = None,
    kept: Kept | None = None,
    keep: Callable[[Path], None] | None = None,
    shut: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Write all files of a run together, ``run.json`` last; return the content of ``run.json``.

    Parameters
    ----------
    out, scratch : Path
        Folder of the run, and a folder on the same disk to write in.
    parts : sequence of Checkpoint
        All checkpoints of the run.
    zones : pandas.DataFrame
        One row per zone of the panel: ``zone, name, status, reason``, the sums of its minutes and trips, and its
        ``area`` if there are areas.
    hours : sequence of int
        Hours of the week in which bins of the panel start.
    info : dict
        Entries for ``run.json``; checksums and the system's totals are added.
    held_out : HeldOut, optional
        Intervals of totals are widened by the bias and the coverage on held-out bins, beyond what chance explains.
    kept : Kept, optional
        An earlier run, whose settled bins are taken over.
    keep : callable, optional
        Writes what a later run may take over.
    shut : pandas.DataFrame, optional
        Bins (column ``start``) at times of the week at which the system is never open: nobody comes.
    """
    with replacing_files(out, last="run.json", scratch=scratch) as aside:
        _merge_rows(parts, aside, scratch / "spill", kept, shut)
        draws = _draws_by_zone(parts)
        if kept is not None:
            draws = ((zone, kept.before(zone) + own) for zone, own in draws)
            shutil.copyfile(kept.folder / KEPT, aside / KEPT)
        elif keep is not None:
            keep(aside / KEPT)
        summary = info.get("panel", {}).get("summary", {})
        left_out = _left_out(zones, aside / "demand.parquet", summary)
        if kept is not None:
            _check_left_out(kept, left_out)
        placed = zones.dropna(subset="area") if "area" in zones else zones[:0].assign(area="")
        areas = dict(zip(placed["zone"], placed["area"], strict=True))
        _merge_rates(parts, aside, scratch / "spill", kept, left_out, areas, shut)
        error, spread = (0.0, 1.0) if held_out is None else (held_out.error, held_out.spread)
        widening = (error, spread, error_of_pickups(summary))
        totals = tabulate_totals(draws, hours, left_out=left_out, areas=areas, widening=widening)
        write_parquet(totals, aside / "totals.parquet")
        write_draws(aside / DRAWS, sum_by_area(_periods_by_zone(parts, kept), left_out, areas))
        zones = zones.assign(left_out=pd.Series([left_out.get(zone) for zone in zones["zone"]], dtype="str"))
        write_parquet(_zone_table(zones, totals, parts), aside / "zones.parquet")
        system = totals[totals["level"] == "system"].set_index("quantity")
        content = {
            **info,
            "totals": {
                str(name): {k: float(row[k]) for k in ("mean", "sd", "q025", "q05", "q50", "q95", "q975")}
                for name, row in system.iterrows()
            },
            "widening": dict(zip(("error", "spread", "pickups"), widening, strict=True)),
            "left_out": [{"zone": zone, "why": why} for zone, why in left_out.items()],
            "outputs": {name: file_hash(aside / name) for name in TABLES},
            "kept": file_hash(aside / KEPT) if (aside / KEPT).exists() else None,
        }
        return write_info(aside / "run.json", content)


def _left_out(zones: pd.DataFrame, demand: Path, summary: dict[str, Any]) -> dict[str, str]:
    """Return the zones that are left out of the totals of the system, and why.

    Their records contradict each other, or their estimates exceed by far all that was ever observed there.
    """
    found: dict[str, str] = {}
    for row in summary.get("implausible", []):
        if row.get("left_out", True):
            found.setdefault(row["zone"], f"{row['station']}: {row['why']}")
    kept = kept_zones(summary.get("keep"), zones)
    with connect(threads=1) as connection:
        file = parquet_sql(path_literal(str(demand)))
        columns = {str(row[0]) for row in fetch_all(connection, f"DESCRIBE SELECT * FROM {file}")}
        if {"demand_mean", "observed"} <= columns:
            peaks = fetch_all(
                connection,
                f"""SELECT zone, max(demand_mean) AS demand, max(observed) AS observed FROM {file}
                WHERE observed IS NOT NULL GROUP BY zone HAVING demand > {_FAR} * observed + {_FEW} ORDER BY zone""",
            )
            for zone, most, seen in peaks:
                if zone not in kept:
                    found.setdefault(zone, f"estimated {most:,.0f} trips in a bin, observed {seen:,.0f} at most")
    return found


def _check_left_out(kept: Kept, left_out: Collection[str]) -> None:
    """Raise `NotKept` if the rates of settled bins, which are taken over, are those of other zones."""
    info = read_info(kept.folder) or {}
    if {row["zone"] for row in info.get("left_out", [])} != {*left_out}:
        raise NotKept("other zones are left out of the totals.")


def finished_run(out: Path, fingerprint: str) -> dict[str, Any] | None:
    """Read ``run.json`` if this run is finished with nothing to retry and intact files; else return None."""
    info = read_info(out)
    if info is None or info.get("fingerprint") != fingerprint:
        return None
    if any(failure["retry"] for failure in info["failures"]):
        return None
    try:
        check_files(out, info)
    except FileFormatError:
        return None
    return info


def write_info(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Write ``run.json`` with a checksum of its content; return the content."""
    plain = json.loads(json.dumps(content, default=str))
    plain["checksum"] = _checksum(plain)
    write_text(path, json.dumps(plain, indent=2) + "\n")
    return dict(plain)


def check_files(out: Path, info: dict[str, Any]) -> None:
    """Compare the files of a run with the checksums in ``run.json``, which is moved into place last.

    Raises
    ------
    FileFormatError
        If a file is missing, damaged, or of another run.
    """
    recorded = info.get("outputs")
    if info.get("checksum") != _checksum(info) or not isinstance(recorded, dict):
        raise FileFormatError(_changed(out / "run.json", "its checksum does not match its content"))
    for name in TABLES:
        try:
            intact = file_hash(out / name) == recorded.get(name)
        except OSError as error:
            raise FileFormatError(f"{out / name}: cannot be opened: {error.strerror}.") from error
        if not intact:
            raise FileFormatError(_changed(out / name, "its hash is not the one in run.json"))


def _checksum(info: dict[str, Any]) -> str:
    content = {key: value for key, value in info.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _changed(path: Path, how: str) -> str:
    return (
        f"{path}: was damaged or changed since the run, or belongs to another run ({how}). Run the command that made "
        "it again; or use --trust (trust=True) to read the files as they are."
    )


def read_info(out: Path) -> dict[str, Any] | None:
    """Read ``run.json``; return None if it does not exist or cannot be read."""
    try:
        info = json.loads(read_whole(out / "run.json"))
    except (OSError, ValueError, RecursionError):
        return None
    return info if isinstance(info, dict) else None


# Columns of ``demand.parquet`` between the bin and its flags, also if no zone could be estimated.
_ESTIMATES = (
    *("observed", "exposure", "censored"),
    *(f"rate_{k}" for k in ("mean", "sd", "q05", "q95")),
    *(f"demand_{k}" for k in ("mean", "sd", "q05", "q50", "q95")),
    *(f"lost_{k}" for k in ("mean", "sd", "q05", "q95")),
    "usual_rate",
    *(f"{name}_{k}" for name in ("served", "walked_on", "walked_in", "wanted") for k in ("mean", "sd", "q05", "q95")),
)


def _merge_rows(
    parts: Sequence[Checkpoint], folder: Path, spill: Path, kept: Kept | None, shut: pd.DataFrame | None
) -> None:
    """Write ``demand.parquet``: the rows of all zones."""
    with _merged(parts, spill, shut) as connection:
        shared = _shared_columns(connection)
        others = f"* EXCLUDE ({', '.join(shared)})" if shared else "*"
        _copy_merged(connection, f"SELECT {others} FROM merged", "zone, start", folder / "demand.parquet", kept)


def _merge_rates(
    parts: Sequence[Checkpoint],
    folder: Path,
    spill: Path,
    kept: Kept | None,
    left_out: Collection[str],
    areas: Mapping[str, str],
    shut: pd.DataFrame | None,
) -> None:
    """Write ``system.parquet``: the rate of all zones, and of the zones of each area, in each bin."""
    with _merged(parts, spill, shut) as connection:
        counted = pd.DataFrame(
            {"zone": pd.Series([*areas], dtype="str"), "area": pd.Series([*areas.values()], dtype="str")}
        )
        connection.register("placed", counted)
        connection.register("without", pd.DataFrame({"zone": pd.Series([*left_out], dtype="str")}))
        columns = {str(row[0]) for row in fetch_all(connection, "DESCRIBE merged")}
        starts = "SELECT DISTINCT NULL::VARCHAR AS area, start FROM merged"
        sql = _summed_rates(_shared_columns(connection)) if "rate_sd" in columns else starts
        _copy_merged(connection, sql, "area NULLS FIRST, start", folder / "system.parquet", kept)


@contextmanager
def _merged(parts: Sequence[Checkpoint], spill: Path, shut: pd.DataFrame | None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give a connection with the view ``merged``: the rows of all checkpoints; nobody comes while all is shut."""
    files = [str(part.folder / "rows.parquet") for part in parts if part.fitted]
    empty = {
        "zone": pd.Series(dtype="str"),
        "start": pd.Series(dtype="datetime64[us, UTC]"),
        **{c: pd.Series(dtype="bool" if c == "censored" else "float64") for c in _ESTIMATES},
        "flags": pd.Series(dtype="str"),
    }
    # One thread writes the same bytes every time.
    with connect(threads=1, memory=_SORT_MEMORY, temp_folder=spill) as connection:
        if files:
            listed = ", ".join(path_literal(file) for file in sorted(files))
            every = parquet_sql(f"[{listed}], union_by_name=true")
            connection.execute(f"CREATE VIEW found AS SELECT * FROM {every}")
            connection.execute(f"CREATE VIEW merged AS SELECT {_without_shut(connection, shut)} FROM found")
        else:
            connection.register("merged", pd.DataFrame(empty))
        yield connection


def _without_shut(connection: duckdb.DuckDBPyConnection, shut: pd.DataFrame | None) -> str:
    """Make the SQL for the columns of ``found``, with no riders in bins in which the system is never open.

    No bin like them had supply, so that rates there are those of other hours. Counts of the records stay.
    """
    if shut is None or shut.empty:
        return "*"
    connection.register("shut", shut)
    inside = "start IN (SELECT start FROM shut)"
    conditions = {"rate_": inside, "usual_rate": inside}
    conditions |= dict.fromkeys(("demand_", "wanted_"), f"{inside} AND contains(flags, 'future')")
    names = [str(row[0]) for row in fetch_all(connection, "DESCRIBE found")]
    chosen = [(name, sql) for name in names for prefix, sql in conditions.items() if name.startswith(prefix)]
    return f"* REPLACE ({', '.join(f'CASE WHEN {sql} THEN 0 ELSE {name} END AS {name}' for name, sql in chosen)})"


def _shared_columns(connection: duckdb.DuckDBPyConnection) -> list[str]:
    return [str(row[0]) for row in fetch_all(connection, "DESCRIBE merged") if str(row[0]).startswith(_SHARED)]


def _copy_merged(connection: duckdb.DuckDBPyConnection, sql: str, order: str, target: Path, kept: Kept | None) -> None:
    """Write rows in order, after those of settled bins as an earlier run has them."""
    if kept is not None:
        earlier = path_literal(str(kept.folder / target.name))
        sql = f"""SELECT * FROM ({sql}) UNION ALL BY NAME
            SELECT * FROM {parquet_sql(earlier)} WHERE start < TIMESTAMPTZ {literal(kept.settled.isoformat())}"""
    sql = f"SELECT * FROM ({sql}) ORDER BY {order}"
    connection.execute(f"COPY ({sql}) TO {literal(str(target))} (FORMAT parquet, COMPRESSION zstd)")


def _summed_rates(shared: Sequence[str]) -> str:
    """Make the SQL for the rate of all zones together, and of those of each area, in each bin.

    Zone z's rate has the error s_z·w, with w ~ N(0, I) common to all zones and bins, and an independent error of its
    own. The variance of the sum over zones is Σ_z (sd_z² − |s_z|²) + |Σ_z s_z|². The sums Σ_z s_z are written too: they
    add up over bins, so that sums of bins have the errors that bins share.
    """
    squares = " + ".join(f"coalesce({name}, 0) ** 2" for name in shared) or "0"
    together = " + ".join(f"coalesce(sum({name}), 0) ** 2" for name in shared) or "0"
    sums = "".join(f", coalesce(sum({name}), 0) AS {name}" for name in shared)
    # Slopes are estimates: |s_z|² may exceed sd_z².
    rates = f"""sum(rate_mean) AS rate_mean,
        sqrt(sum(greatest(rate_sd ** 2 - ({squares}), 0)) + {together}) AS rate_sd{sums}"""
    # Sorted, so that sums do not depend on the checkpoints.
    return f"""WITH counted AS (
            SELECT merged.*, placed.area FROM merged LEFT JOIN placed USING (zone)
            WHERE zone NOT IN (SELECT zone FROM without) ORDER BY start, zone)
        SELECT NULL::VARCHAR AS area, start, {rates} FROM counted GROUP BY start
        UNION ALL
        SELECT area, start, {rates} FROM counted WHERE area IS NOT NULL GROUP BY area, start"""


def _draws_by_zone(parts: Sequence[Checkpoint]) -> Iterator[tuple[str, ZoneDraws]]:
    """Yield the draws of zones in order of name, so that sums do not depend on the checkpoints; hold one at a time."""
    place = sorted((zone, number, i) for number, part in enumerate(parts) for i, zone in enumerate(part.fitted))
    held: tuple[int, list[ZoneDraws]] | None = None
    for zone, number, i in place:
        if held is None or held[0] != number:
            held = (number, parts[number].draws())
        yield zone, held[1][i]


def _periods_by_zone(parts: Sequence[Checkpoint], kept: Kept | None) -> Iterator[tuple[str, PeriodDraws]]:
    """Yield the draws of zones by period, those of the earlier run included, in order of name."""
    place = sorted((zone, number) for number, part in enumerate(parts) for zone in part.fitted)
    held: tuple[int, dict[str, PeriodDraws]] | None = None
    for zone, number in place:
        if held is None or held[0] != number:
            held = (number, parts[number].periods())
        own = held[1].get(zone)
        if own is not None:
            yield zone, own if kept is None else kept.periods_before(zone) + own


def _zone_table(zones: pd.DataFrame, totals: pd.DataFrame, parts: Sequence[Checkpoint]) -> pd.DataFrame:
    """Make the table of zones: columns from the panel, totals, and the model's summary."""
    of_zones = totals[totals["level"] == "zone"]
    table = zones
    for quantity, names in {
        "observed": {"mean": "observed_fitted"},
        **{name: {k: f"{name}_{k}" for k in ("mean", "sd", "q05", "q95")} for name in QUANTITIES if name != "observed"},
    }.items():
        some = of_zones[of_zones["quantity"] == quantity][["zone", *names]].rename(columns=names)
        table = table.merge(some, on="zone", how="left")
    table["observed"] = table.pop("observed_fitted").fillna(table["observed"])
    summaries = {zone: summary for part in parts for zone, summary in zip(part.fitted, part.summaries, strict=True)}
    keys = sorted({k for s in summaries.values() for k in s if k != "zone" and not k.endswith(_COSTS)})
    for key in keys:
        values = [_cell(summaries.get(zone, {}).get(key)) for zone in table["zone"]]
        table[f"model_{key}" if key in table.columns else key] = _column(values)
    return table


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def _column(values: list[Any]) -> pd.Series:
    """Make a column: numbers as numbers, booleans as booleans, anything else as text; missing values stay missing."""
    present = [v for v in values if v is not None]
    if all(isinstance(v, bool) for v in present):
        return pd.Series(values, dtype="boolean")
    if all(isinstance(v, int) for v in present):
        return pd.Series(values, dtype="Int64")
    if all(isinstance(v, int | float) for v in present):
        return pd.Series([float("nan") if v is None else float(v) for v in values], dtype="float64")
    return pd.Series([None if v is None else str(v) for v in values], dtype="str")
