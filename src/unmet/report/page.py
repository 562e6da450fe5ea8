"""Write the report: one HTML file with data, style and scripts, which opens from disk and needs no network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import unmet
from unmet._exceptions import FileFormatError, InputError, MissingExtraError
from unmet._storage.folders import check_regular
from unmet._storage.writing import write_text, writing
from unmet.mobility.panel.file import PanelFile
from unmet.report.basemap import read_basemap
from unmet.report.beside import riders_without_dock
from unmet.report.doubts import list_doubts
from unmet.report.forecast import forecast_data
from unmet.report.naming import name_of_files, title_of
from unmet.report.packing import PACKED, pack, pack_integers, pack_run
from unmet.report.places import plane
from unmet.report.plan import plan_data
from unmet.report.series import WEEKLY, day_numbers
from unmet.report.source import RunSource, open_run
from unmet.report.story import story_data
from unmet.report.tables import (
    ACT_ROWS,
    OUTCOME_COLUMNS,
    act_table,
    first_of_each_choice,
    flag_counts,
    headline,
    part_tables,
    true_demand,
    week_table,
    zone_table,
)
from unmet.report.trust import check_run, summarise_checks
from unmet.report.weather_words import describe_column
from unmet.report.wet_days import wet_days
from unmet.report.words import (
    assumptions,
    city_facts,
    data_used,
    minutes_by_state,
    model_facts,
    quality_rows,
    span,
    supply_learnt,
)

__all__ = ["write_report"]

_SCRIPTS = (
    *(
        "numbers.js",
        "map.js",
        "table.js",
        "series.js",
        "story.js",
        "areas.js",
        "forecast.js",
        "plan.js",
        "act.js",
        "how.js",
    ),
    *("trust.js", "page.js"),
)
_DIGITS = 9  # enough for the page to round to the same digits as the tables
_ACT = [
    *("number", "hour_of_week", "lost_per_stockout_hour", "lost_mean", "lost_q05", "lost_q95"),
    *("stockout_hours", "open_hours"),
]


def write_report(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    panel: str | os.PathLike[str] | PanelFile | None = None,
    returns: str | os.PathLike[str] | None = None,
    title: str | None = None,
    truth: str | os.PathLike[str] | None = None,
    trust: bool = False,
    quality: str | os.PathLike[str] | None = None,
    compare: str | None = None,
    basemap: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write the report of a run as one HTML file.

    Parameters
    ----------
    run : path
        The folder written by ``unmet estimate`` or ``unmet run``.
    out : path, optional
        The file; default: ``report.html`` in the run's folder. It appears only when complete.
    panel : path or PanelFile, optional
        The panel of the run; default: the path recorded in the run.
    returns : path, optional
        The folder of the run of returns; default: ``returns`` in the folder of the run.
    title : str, optional
        Title of the page; default: the name of the folder of the run, or of one of the two above it.
    truth : path, optional
        ``truth.parquet`` of a simulated city; the page then shows its true demand.
    trust : bool
        Do not compare the files of the run with their checksums.
    quality : path, optional
        A JSON file to write the checks of the page to.
    compare : str, optional
        Weeks to compare first: ``4w`` (the last four against the four before) or ``year`` (the same weeks of the year
        before); default: four weeks, or half of a shorter record.
    basemap : path, optional
        GeoJSON of streets (lines) and water (polygons) to draw behind the map.
    progress : callable, optional
        Called as ``progress(done, zones)``.

    Returns
    -------
    pathlib.Path
        Path of the file.

    Examples
    --------
    >>> import tempfile
    >>> from unmet.mobility.demand import DemandModel
    >>> from unmet.execution import serially
    >>> from unmet._storage.parquet import write_parquet
    >>> from unmet.mobility.runs.run import run_estimates
    >>> start = pd.date_range("2024-01-01", periods=336, freq="h", tz="UTC")
    >>> rows = pd.DataFrame({"zone": "a", "start": start, "start_local": start.tz_localize(None), "minutes": 60})
    >>> rows["observed"] = 2.0
    >>> for state in ("stockout", "closed", "unknown"):
    ...     rows[f"{state}_minutes"] = 0
    >>> rows.loc[100, "stockout_minutes"] = 30
    >>> rows["available_minutes"] = 60 - rows["stockout_minutes"]
    >>> rows["exposure"], rows["censored"] = rows["available_minutes"] / 60, rows["stockout_minutes"] > 0
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     panel = Path(folder, "panel.parquet")
    ...     write_parquet(rows, panel)
    ...     _ = run_estimates(panel, DemandModel("weekly-mean"), Path(folder, "run"), executor=serially)
    ...     page = write_report(Path(folder, "run"), title="One zone")
    ...     page.name, "<title>One zone</title>" in page.read_text(encoding="utf-8")
    ('report.html', True)
    """
    target = Path(out) if out is not None else Path(run) / "report.html"
    plotly = _plotly()
    with open_run(run, panel, trust=trust, returns=returns) as source:
        _check_target(target)
        of_truth, of_map = (None if path is None else Path(path) for path in (truth, basemap))
        source.check_outputs(target, inputs=[path for path in (of_truth, of_map) if path is not None])
        data = _data(source, title, of_truth, compare, of_map, progress)
    _write(target, _page(data, plotly))
    if quality is not None:
        _write(Path(quality), json.dumps(data["checks"], indent=2, ensure_ascii=False) + "\n")
    return target


def _check_target(target: Path) -> None:
    """Check that the file can be written before any work starts."""
    if target.is_dir():
        raise InputError(f"{str(target)!r} is a folder. Give a file in it, such as {str(target / 'report.html')!r}.")
    check_regular(target)
    if not target.parent.is_dir():
        raise InputError(f"There is no folder {str(target.parent)!r} for {target.name!r}. Create it first.")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingExtraError("plotly", "report", "Reports") from None
    return str(get_plotlyjs())


def _data(
    source: RunSource,
    title: str | None,
    truth: Path | None,
    compare: str | None,
    basemap: Path | None,
    progress: Callable[[int, int], None] | None,
) -> dict[str, Any]:
    """Collect everything that the page shows, as JSON values."""
    zones = zone_table(source, None if truth is None else true_demand(source, truth))
    packed = pack_run(source, progress)
    weeks = week_table(source, packed.weeks)
    worst = first_of_each_choice(source, act_table(weeks, rows=None), ACT_ROWS)
    days = np.unique(day_numbers(source.bins))
    checks = [check.to_dict() for check in check_run(source)]
    plan, forecast = plan_data(source), forecast_data(source)
    local = source.bins["start_local"].to_numpy().astype("datetime64[m]").astype(np.int64)
    return {
        "title": title or title_of([name_of_files(source.folder)]),
        "made": {"by": f"unmet {unmet.__version__}", "on": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")},
        "period": _period(source),
        "headline": {**headline(source, zones), "no_dock": riders_without_dock(source)},
        "zones": _columns(zones.drop(columns=["lat", "lon", *OUTCOME_COLUMNS])),
        "map": plane(source.zones, None if basemap is None else partial(read_basemap, basemap)),
        "fields": {"drawn": list(PACKED), "week": list(WEEKLY)},
        "bins": {
            "local": pack_integers(local[packed.fine_from :]),
            "days": pack_integers(days),
            "minutes": source.minutes,
            "all": packed.fine_from == 0,
            "future": _first_future(source, packed.fine_from),
        },
        "series": packed.zones,
        "system": packed.system,
        "areas": packed.areas,
        "parts": _parts(source, weeks),
        "act": {"rows": ACT_ROWS, **_columns(worst[_ACT])},
        "story": story_data(source, compare),
        "forecast": forecast,
        "effects": source.info.get("effects") or [],
        "columns": {
            str(name): describe_column(str(name))
            for name in source.info.get("provenance", {}).get("weather_columns") or []
        },
        "wet_days": wet_days(source),
        "plan": plan,
        "how": _how(source),
        "checks": checks,
        "checks_line": summarise_checks(checks),
        "doubts": list_doubts(source, checks, plan, forecast),
    }


def _period(source: RunSource) -> dict[str, Any]:
    known = source.bins[~source.bins["future"]]
    last = known.iloc[-1]
    end = last["start_local"] + pd.Timedelta(minutes=float(last["minutes"]))
    return {
        "start": str(known["start_local"].iloc[0]),
        "end": str(end),
        "days": round(float(known["minutes"].sum()) / 1440.0, 2),
        "timezone": str(source.summary.get("timezone", "")),
        "bin": span(source.minutes),
    }


def _first_future(source: RunSource, fine_from: int) -> int | None:
    ahead = np.flatnonzero(source.bins["future"].to_numpy()[fine_from:])
    return int(ahead[0]) if len(ahead) else None


def _how(source: RunSource) -> dict[str, Any]:
    flags = {word: [sum(of_zone.values()), len(of_zone)] for word, of_zone in flag_counts(source).items()}
    return {
        "data": data_used(source),
        "quality": quality_rows(source),
        "states": minutes_by_state(source),
        "supply": supply_learnt(source),
        "model": model_facts(source),
        "city": city_facts(source),
        "flags": flags,
        "notes": [str(note) for note in source.info.get("notes", [])],
        "assumptions": assumptions(source),
    }


def _parts(source: RunSource, weeks: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the tables of zones by kind of days and part of the day, packed."""
    return [
        {"days": days, "part": part, "fields": list(table.columns), **pack([(table[c].to_numpy(), 0.0) for c in table])}
        for (days, part), table in part_tables(source, weeks).items()
    ]


def _columns(table: pd.DataFrame) -> dict[str, list[Any]]:
    """Return a table by columns, with numbers to nine digits and missing values as None."""
    return {str(name): [_plain(value) for value in table[name].tolist()] for name in table.columns}


def _plain(value: Any) -> Any:
    if value is None or value is pd.NA or (isinstance(value, float) and not np.isfinite(value)):
        return None
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _page(data: dict[str, Any], plotly: str) -> str:
    """Fill the template. Names from files are only in the data, which the page shows as text."""
    folder = files("unmet.report") / "template"
    own = "\n".join((folder / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    script = f'"use strict";\n(() => {{\n{own}\n}})();'
    # "</script" would end the element that contains Plotly.
    plotly = plotly.replace("\r\n", "\n").replace("</script", "<\\/script")
    parts = {
        "title": html.escape(data["title"]),
        "policy": _policy(plotly, script),
        "style": (folder / "style.css").read_text(encoding="utf-8"),
        "data": _embedded(data),
        "plotly": plotly,
        "script": script,
    }
    template = (folder / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _policy(*scripts: str) -> str:
    """Return a policy that allows these two scripts, by hash, and no requests."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"


def _embedded(data: dict[str, Any]) -> str:
    """Return JSON that is safe inside an HTML script element, whatever its strings."""
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise FileFormatError(
            "The results of this run have numbers that are not finite: they were damaged or changed. Run the estimate "
            "again."
        ) from error
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _write(target: Path, text: str) -> None:
    with writing(target, "An existing file is unchanged: free some space or choose another file."):
        write_text(target, text, errors="replace")
