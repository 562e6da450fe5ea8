"""Open a finished run together with its panel: the input of a report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from unmet._exceptions import FileFormatError, InputError
from unmet._numbers import read_switch
from unmet._storage.files import check_listable, real_path
from unmet._storage.hashes import file_hash
from unmet._storage.ledger import LEDGER_NAME, read_ledger
from unmet._storage.parquet import read_parquet
from unmet._storage.sql import fetch_all, fetch_frame, parquet_sql, path_literal, reading
from unmet.mobility.clock.horizon import future_bins
from unmet.mobility.panel.file import PanelFile
from unmet.mobility.panel.opening import opened
from unmet.mobility.runs.keeping import KEPT
from unmet.mobility.runs.outputs import TABLES, check_files, read_info
from unmet.mobility.supply.states import STATE_MINUTES
from unmet.report.shapes import check_rows

__all__ = ["RunSource", "open_run"]

_OF_DEMAND = ("zone", "start", "observed", "demand_mean", "lost_mean")
_OF_ZONES = ("zone", "status", "reason", "observed", "demand_mean", "lost_mean", "lost_q05", "lost_q95")
_OF_ONE_SIDE = ("panel", "kept")  # inputs that pickups and returns of one command do not share
_PLACES = ("name", "lat", "lon", "capacity", "stations", "polygon")


@dataclass(frozen=True)
class RunSource:
    """A run and its panel, opened by `open_run`.

    Attributes
    ----------
    connection : duckdb.DuckDBPyConnection
        Has the views ``panel`` and ``demand``, and the tables ``zone_numbers`` (``zone, number``) and ``bin_numbers``
        (``start, start_local, minutes, number``), whose numbers are the rows of `zones` and `bins`.
    info : dict
        The content of ``run.json``.
    zones : pandas.DataFrame
        ``zones.parquet``, with name, position, capacity and polygon of each zone from the panel.
    totals : pandas.DataFrame
        ``totals.parquet``.
    system : pandas.DataFrame
        ``system.parquet``, by start: the rate of all zones together, its standard deviation and shared errors.
    area_rates : dict
        The same of each area.
    bins : pandas.DataFrame
        ``start`` (UTC), ``start_local``, ``minutes``, ``heard`` (not unknown in every zone) and ``future`` (beyond the
        panel's end), in order of time.
    quality : pandas.DataFrame
        Rejected, repaired and noted rows of records and weather; empty if not recorded.
    reasons : pandas.DataFrame
        Minutes by reason, from the panel; empty if not recorded.
    summary : dict
        The panel's summary; empty if not recorded.
    unusable : pandas.DataFrame
        Stations that very probably list vehicles nobody can rent, from the panel; empty if not recorded.
    demand_columns : frozenset of str
        Columns of ``demand.parquet``.
    folder : pathlib.Path
        The folder of the run's tables.
    files : frozenset of pathlib.Path
        Files of the run and its panel, which no output may replace.
    returns : pathlib.Path or None
        The folder of the run of returns, if there is one of the same panel, model, horizon, weather and holidays.
    """

    connection: duckdb.DuckDBPyConnection
    info: dict[str, Any]
    zones: pd.DataFrame
    totals: pd.DataFrame
    system: pd.DataFrame
    area_rates: dict[str, pd.DataFrame]
    bins: pd.DataFrame
    quality: pd.DataFrame
    reasons: pd.DataFrame
    summary: dict[str, Any]
    unusable: pd.DataFrame
    demand_columns: frozenset[str]
    folder: Path
    files: frozenset[Path]
    returns: Path | None = None

    def check_outputs(self, *targets: Path, inputs: Iterable[Path] = ()) -> None:
        """Refuse to write over a file of the run, its panel or another input."""
        others = {real_path(path) for path in inputs}
        for target in targets:
            if real_path(target) in self.files:
                raise InputError(f"{target}: is a file of this run. Name another file or folder to write to.")
            if real_path(target) in others:
                raise InputError(f"{target}: is one of the inputs. Name another file to write to.")

    @property
    def counted(self) -> pd.Series:
        """Whether each zone counts for sums: it was estimated, and is not left out of the totals."""
        zones = self.zones
        kept = zones["left_out"].isna() if "left_out" in zones else True
        return (zones["status"] == "ok") & kept

    @property
    def area_of(self) -> list[str | None]:
        """The area of each zone; None if it has none."""
        named = self.zones["area"] if "area" in self.zones else [None] * len(self.zones)
        return [area if isinstance(area, str) else None for area in named]

    @property
    def shock_variance(self) -> float:
        """Variance of the shocks that zones share; 0 if they are estimated one by one."""
        law = (self.info.get("joint") or {}).get("shocks")
        return 0.0 if law is None else float(law["city_variance"] + law["local_variance"])

    @property
    def minutes(self) -> int:
        """The usual length of a bin."""
        return int(self.bins["minutes"].mode().iloc[0])


@contextmanager
def open_run(
    run: str | os.PathLike[str],
    panel: str | os.PathLike[str] | PanelFile | None = None,
    *,
    trust: bool = False,
    returns: str | os.PathLike[str] | None = None,
) -> Iterator[RunSource]:
    """Open the folder of a finished run together with its panel.

    Parameters
    ----------
    run : path
        The folder written by ``unmet estimate`` or ``unmet run``.
    panel : path or PanelFile, optional
        The panel's Parquet file, which may be open already; default: the path recorded in the run.
    trust : bool
        Do not compare the files with their checksums.
    returns : path, optional
        The folder of the run of returns; default: ``returns`` in the folder of the run.

    Raises
    ------
    InputError
        If there is no finished run, if a file was damaged or changed since, or if files of two runs are mixed.
    """
    read_switch(trust, "trust")
    folder = _run_folder(Path(run))
    of_returns = folder / "returns" if returns is None else Path(returns)
    info = _read_info(folder)
    if not trust:
        _check_published(Path(run), folder)
        check_files(folder, info)
    with opened(panel if isinstance(panel, PanelFile) else _find_panel(Path(run), info, panel)) as file:
        connection = file.connection
        _check_columns(Path(file.label), frozenset(file.columns), STATE_MINUTES)
        if not trust:
            _check_panel(file, info)
        quoted = path_literal(str(folder / "demand.parquet"))
        with reading(str(folder / "demand.parquet")):
            connection.execute(f"CREATE OR REPLACE VIEW demand AS SELECT * FROM {parquet_sql(quoted)}")
            columns = frozenset(str(row[0]) for row in fetch_all(connection, "DESCRIBE demand"))
        _check_columns(folder / "demand.parquet", columns, _OF_DEMAND)
        zones = _read_zones(folder, file)
        bins = _read_bins(connection, file.timezone)
        totals = _read(folder / "totals.parquet")
        check_rows(connection, folder, zones, totals, len(bins))
        found = _find_returns(of_returns, info, trust)
        if found is not None:
            check_rows(connection, found, _read(found / "zones.parquet"), _read(found / "totals.parquet"), len(bins))
        _number(connection, zones, bins)
        source = RunSource(
            connection,
            info,
            zones,
            totals,
            *_read_rates(folder / "system.parquet"),
            bins,
            _read_quality(file, info),
            pd.DataFrame(file.metadata.get("reasons", {})),
            dict(file.metadata.get("summary", {})),
            pd.DataFrame(file.metadata.get("unusable", {})),
            columns,
            folder,
            _files_of(folder, file, of_returns),
            found,
        )
        with reading(str(folder)):  # also what a report asks of the tables later
            yield source


def _files_of(folder: Path, panel: PanelFile, returns: Path) -> frozenset[Path]:
    names = (*TABLES, "run.json", KEPT)
    own = {place / name for place in (folder, returns) for name in names}
    own |= {place / "panel.parquet" for place in (folder, folder.parent, returns)} | {folder.parent / LEDGER_NAME}
    return frozenset(real_path(path) for path in (own if panel.path is None else own | {panel.path}))


def _find_returns(folder: Path, info: dict[str, Any], trust: bool) -> Path | None:
    """Return the folder of a run of returns if it is of the panel and the settings of a run of pickups."""
    if folder.is_dir():
        check_listable([folder])  # returns that may not be read are not taken for none
    if not os.path.lexists(folder / "run.json"):
        return None
    try:
        found = _read_info(folder)
    except InputError as error:
        raise InputError(
            f"{folder}: the returns of this run were damaged or are incomplete. Run the command that made them again, "
            "or remove this folder."
        ) from error
    if not trust:
        check_files(folder, found)
    panel = found.get("panel")
    summary = panel.get("summary") if isinstance(panel, dict) else None
    of_panel = summary.get("of") if isinstance(summary, dict) else None
    # With another horizon, a forecast would have bins without returns, as if nobody brought a vehicle back. With other
    # weather or holidays, a day would have the riders of sunshine and the returns of rain.
    of_both, of_found = (
        {name: value for name, value in inputs.items() if name not in _OF_ONE_SIDE}
        for inputs in (info["inputs"], found["inputs"])
    )
    return folder if of_both == of_found and of_panel == info["inputs"].get("panel") else None


def _run_folder(given: Path) -> Path:
    """Return the folder of the run, which is inside the folder of ``unmet run``."""
    within = given / "estimate"
    return within if (within / "run.json").is_file() and not (given / "run.json").exists() else given


def _check_published(given: Path, folder: Path) -> None:
    """Refuse the folder of ``unmet run`` if it was stopped while it replaced its results.

    ``stages.json`` is written after all results are in place. It has the hash of ``run.json``, which has those of the
    tables and the panel.
    """
    record = None if folder == given else read_ledger(given).get("estimate")
    recorded = None if record is None else record.outputs.get("estimate/run.json")
    if recorded is not None and recorded.sha256 != file_hash(folder / "run.json"):
        raise InputError(
            f"{given}: the results are not all of the same run: `unmet run` was stopped while it replaced them, or "
            f"estimate/run.json was changed. Run the same `unmet run` command again. To read the estimate alone, give "
            f"{folder}."
        )


# Parts of run.json that older versions do not write, and their kinds.
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("versions", "model", "provenance", "costs"), (dict,)),
    **dict.fromkeys(("joint", "widening", "panel"), (dict, type(None))),
    **dict.fromkeys(("notes", "left_out", "failures"), (list,)),
    "effects": (list, type(None)),
    "panel_path": (str, type(None)),
}


def _read_info(folder: Path) -> dict[str, Any]:
    info = read_info(folder)
    missing = [name for name in TABLES if not (folder / name).is_file()]
    if info is None or missing:
        lacks = ", ".join(["run.json"] if info is None else missing)
        raise InputError(
            f"{str(folder)!r} is not the folder of a finished run (no readable {lacks}). "
            f"Create one with: unmet estimate panel.parquet --out {folder.name or 'run'}"
        )
    for name in ("totals", "zones", "inputs"):
        if not isinstance(info.get(name), dict):
            raise FileFormatError(f"{folder / 'run.json'}: expected an object under {name!r}; run the estimate again.")
    for name, kinds in _KINDS.items():
        if name in info and not isinstance(info[name], kinds):
            raise FileFormatError(f"{folder / 'run.json'}: expected another kind of {name!r}; run the estimate again.")
    return info


def _find_panel(given: Path, info: dict[str, Any], panel: str | os.PathLike[str] | None) -> Path:
    """Return the given panel, or that of the folder of ``unmet run``, or find it at its recorded path or near the run.

    The recorded path may be relative to another working directory, and belong to another run since. So of several
    files the one with the right checksum is taken.
    """
    if panel is not None:
        return Path(panel)
    recorded = info.get("panel_path")
    folder = _run_folder(given)
    if not recorded:
        raise InputError(f"{folder}: the run does not record the path of its panel. Give it with --panel.")
    own = given / "panel.parquet"
    if folder != given and "panel" in read_ledger(given) and own.is_file():
        return own
    candidates = [Path(recorded), folder / recorded, folder.parent / recorded, folder / Path(recorded).name]
    candidates.append(folder.parent / Path(recorded).name)
    found = [candidate for candidate in candidates if candidate.is_file()]
    if not found:
        raise InputError(
            f"The panel of this run is no longer at {recorded!r}, nor next to {str(folder)!r}. "
            "Give its path with --panel."
        )
    if len(found) == 1:
        return found[0]
    return next((candidate for candidate in found if file_hash(candidate) == info["inputs"].get("panel")), found[0])


def _check_panel(file: PanelFile, info: dict[str, Any]) -> None:
    # A run on a DataFrame records the hash of a temporary file; then only the zones are compared, below.
    expected = info["inputs"].get("panel")
    if info.get("panel_path") and expected and file.sha256 != expected:
        raise InputError(
            f"{file.label}: is not the panel of this run, or was changed since. "
            "Give the right panel with --panel, or run `unmet estimate` again."
        )


def _read(path: Path) -> pd.DataFrame:
    with reading(str(path)):
        return read_parquet(path)


def _read_rates(path: Path) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """Return the rates of all zones and of each area, by start."""
    table = _read(path)
    if "area" not in table:
        return table.set_index("start"), {}
    rates = table.drop(columns="area").set_index("start")
    area = table["area"].to_numpy(dtype=object)
    named = table["area"].notna().to_numpy()
    return rates[~named], {str(name): rates[area == name] for name in table["area"].dropna().unique()}


def _check_columns(path: Path, found: frozenset[str], needed: tuple[str, ...]) -> None:
    missing = [name for name in needed if name not in found]
    if missing:
        raise FileFormatError(
            f"{path}: there is no column {', '.join(map(repr, missing))}; found: {', '.join(sorted(found))}."
        )


def _read_quality(file: PanelFile, info: dict[str, Any]) -> pd.DataFrame:
    of_weather = info.get("provenance", {}).get("weather_quality") or []
    tables = [pd.DataFrame(file.metadata.get("quality", {})), pd.DataFrame(of_weather)]
    found = [table for table in tables if len(table)]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def _read_zones(folder: Path, file: PanelFile) -> pd.DataFrame:
    zones = _read(folder / "zones.parquet")
    _check_columns(folder / "zones.parquet", frozenset(zones.columns), _OF_ZONES)
    if set(zones["zone"]) != set(file.zones):
        raise InputError(
            f"{file.label}: the zones of the panel differ from those of the run ({len(file.zones)} in the panel, "
            f"{len(zones)} in the run). Give the panel of the run with --panel."
        )
    places = pd.DataFrame(file.metadata.get("zones", {"zone": []}))
    known = places.drop_duplicates("zone").set_index(places["zone"].astype(str)) if len(places) else places
    for name in _PLACES:
        values = known[name].to_dict() if name in known.columns else {}
        column = [values.get(zone) for zone in zones["zone"]]
        zones[name] = pd.to_numeric(pd.Series(column, dtype=object), errors="coerce") if name in _NUMBERS else column
    zones["name"] = [n if isinstance(n, str) and n else z for n, z in zip(zones["name"], zones["zone"], strict=True)]
    return zones


_NUMBERS = ("lat", "lon", "capacity")


def _read_bins(connection: duckdb.DuckDBPyConnection, timezone: str | None) -> pd.DataFrame:
    with reading("the panel"):
        known = fetch_frame(
            connection,
            "SELECT start, min(start_local) AS start_local, min(minutes) AS minutes, "
            "max(minutes - unknown_minutes)::INTEGER AS heard FROM panel GROUP BY start ORDER BY start",
        )
        later = fetch_frame(connection, "SELECT start FROM demand EXCEPT SELECT start FROM panel ORDER BY start")
    known["future"] = False
    if later.empty:
        return known
    # The same function as for the estimate, so that both follow the local clock when it changes.
    ahead = future_bins(known, len(later), timezone)
    if ahead["start"].tolist() != later["start"].tolist():
        raise FileFormatError(
            f"demand.parquet: its bins after the panel's end, from {later['start'].iloc[0]} to "
            f"{later['start'].iloc[-1]}, do not continue the panel's bins. Run `unmet estimate` again."
        )
    return pd.concat([known, ahead.assign(future=True)], ignore_index=True)


def _number(connection: duckdb.DuckDBPyConnection, zones: pd.DataFrame, bins: pd.DataFrame) -> None:
    for table, columns, frame in (
        ("zone_numbers", ["zone"], zones),
        ("bin_numbers", ["start", "start_local", "minutes"], bins),
    ):
        some = frame[columns].assign(number=np.arange(len(frame)))
        connection.register("some_rows", some)
        connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM some_rows")
        connection.unregister("some_rows")
