"""Features of the bins of a panel, the same for all zones: calendar, holidays and weather."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._storage.sql import connect
from unmet._storage.temporary import temporary_folder
from unmet.mobility.clock.horizon import future_bins
from unmet.mobility.clock.periods import describe_periods, period_numbers
from unmet.mobility.clock.timezones import zone_info
from unmet.mobility.features.covariates import add_calendar, add_holidays, add_weather
from unmet.mobility.features.season import usual_weather
from unmet.mobility.panel.columns import covariates_of
from unmet.mobility.panel.file import PanelFile
from unmet.mobility.panel.schema import CALENDAR_COLUMNS, COMPUTED_COLUMNS
from unmet.mobility.records.files import Given, Workspace, expand, is_frame
from unmet.mobility.records.limits import check_covariates
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.records.weather import make_weather

__all__ = ["BinFeatures", "bin_features", "read_weather"]

_MEMORY = 10**9  # bytes, for reading the weather


@dataclass(frozen=True)
class BinFeatures:
    """Features of the bins of a panel.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per bin: ``start`` and the features that the panel does not have. With weather, ``weather_usual`` marks
        bins without a reading: they have the usual weather of their season and hour.
    gaps : pandas.DataFrame
        ``column, first, last, bins``: runs of bins without a weather reading.
    quality : pandas.DataFrame
        Rows of the weather that were rejected, repaired or noted.
    weather : tuple of str
        Weather columns that models can use: the chosen ones that are not constant.
    by_week : dict
        ``week`` (its Monday) and the mean of each weather column over the bins of the week; empty without weather.
    by_day : dict
        ``day`` and the mean of each weather column over the bins of the local day; empty without weather.
    """

    frame: pd.DataFrame
    gaps: pd.DataFrame
    quality: pd.DataFrame
    weather: tuple[str, ...] = ()
    by_week: dict[str, list[Any]] = field(default_factory=dict)
    by_day: dict[str, list[Any]] = field(default_factory=dict)


def bin_features(
    panel: PanelFile,
    *,
    weather: Given = None,
    weather_columns: Sequence[str] | None = None,
    timezone: str | None = None,
    holidays: str | None = None,
    horizon: int = 0,
) -> BinFeatures:
    """Make the features of a panel's bins.

    Parameters
    ----------
    panel : PanelFile
        A panel opened by `unmet.mobility.panel.file.open_panel`.
    weather : path or frame, optional
        A table with a time and numbers: see `read_weather`.
    weather_columns : sequence of str, optional
        Columns of the weather to use, at least one; all by default.
    timezone : str, optional
        Time zone of naive times in `weather`; that of the panel by default.
    holidays : str, optional
        Country and optionally subdivision, as in the package `holidays`: ``US`` or ``US:NY``.
    horizon : int
        Number of bins after the panel's end that get features as well.

    Returns
    -------
    BinFeatures
    """
    bins = panel.bins()
    recorded = len(bins)
    if horizon:
        bins = pd.concat([bins, future_bins(bins, horizon, panel.timezone)], ignore_index=True)
    frame = add_calendar(bins)
    if holidays is not None:
        country, _, subdivision = str(holidays).partition(":")
        frame = add_holidays(frame, country, subdivision or None)
    if timezone is not None:
        zone_info(timezone)
    _check_columns(weather_columns)
    if weather_columns is not None and weather is None:
        raise InputError("weather_columns: columns were given, but no weather; give the weather as well (--weather).")
    if weather is not None:
        found = _with_weather(frame, recorded, panel, weather, weather_columns, timezone or panel.timezone)
    else:
        found = BinFeatures(frame, pd.DataFrame(columns=["column", "first", "last", "bins"]), QualityLog().frame())
    own = [c for c in frame.columns if c != "start" and c in panel.columns]
    return replace(found, frame=found.frame.drop(columns=own))


def _check_columns(columns: Sequence[str] | None) -> None:
    if columns is None:
        return
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise InputError(f"weather_columns: expected a list of names of columns; got {columns!r:.60}.")
    if not columns:
        raise InputError(
            "weather_columns: expected at least one name of a column; got none. Leave weather_columns out to use all "
            "columns, and the weather (--weather) to use none."
        )


def _with_weather(
    frame: pd.DataFrame,
    recorded: int,
    panel: PanelFile,
    weather: Given,
    columns: Sequence[str] | None,
    timezone: str | None,
) -> BinFeatures:
    """Add the weather to bins, of which the first `recorded` are those of the records."""
    if timezone is None:
        if not is_frame(weather):
            expand(weather, "weather")  # a missing file is reported first
        raise InputError(
            f"{panel.label}: the file has no time zone, which the times of the weather need; give it with "
            "timezone= or --timezone."
        )
    readings, log = _read(weather, timezone, columns)
    for name in sorted({*readings.columns} & {*CALENDAR_COLUMNS}):
        log.add("weather", "column of the calendar", "noted", len(readings), f"{name}: not used", of=len(readings))
        readings = readings.drop(columns=name)
    taken = sorted({*readings.columns} & {*panel.columns} - {"at"})
    if taken:
        raise InputError(f"weather: the panel already has {', '.join(map(repr, taken))}; rename these columns.")
    for name in filter(COMPUTED_COLUMNS.fullmatch, readings.columns):
        raise InputError(f"weather: {name!r} is the name of a column that is computed. Rename it, or leave it out.")
    readings = _as_rare_as(frame, readings)
    joined = add_weather(frame, readings)
    names = [name for name in readings.columns if name != "at"]
    check_covariates(
        len(names) + len(covariates_of(panel.columns)),
        f"{panel.label} and the weather",
        "Name fewer of the weather with --weather-columns (weather_columns=), or remove columns of the panel.",
    )
    known = joined.panel.iloc[:recorded][names].count()
    if names and not known.any():
        raise InputError(_elsewhere(frame.iloc[:recorded], readings))
    used = tuple(name for name in names if joined.panel[name].nunique() > 1 and known[name])
    for name in names:
        if name not in used:
            reason, why = "same in every bin", ""
            if 2 * known[name] < recorded:
                reason, why = "hardly any reading in the period", f": {known[name]:,} of {recorded:,} bins have one"
            log.add("weather", reason, "noted", len(frame), f"{name}: not used{why}", of=len(frame))
    _note_far_ahead(joined.panel[list(used)], recorded, log)
    local = pd.DatetimeIndex(joined.panel["start_local"])
    week = pd.DatetimeIndex(describe_periods(period_numbers(local))["week"])
    means = (_means(joined.panel, used, name, days) for name, days in (("week", week), ("day", local.normalize())))
    filled = _with_usual_weather(joined.panel, readings, used, timezone)
    return BinFeatures(filled, joined.gaps, log.frame(), used, *means)


def _note_far_ahead(weather: pd.DataFrame, recorded: int, log: QualityLog) -> None:
    """Note columns whose readings after the records are farther from those of the records than these among them."""
    for name in weather.columns:
        known, ahead = weather[name].iloc[:recorded], weather[name].iloc[recorded:]
        least, most = known.min(), known.max()
        far = ahead[(ahead < 2 * least - most) | (ahead > 2 * most - least)]
        if len(far):
            what = f"{name}: {far.min():g} to {far.max():g}, where the records have {least:g} to {most:g}"
            log.add("weather", "far from all readings of the records", "noted", len(far), what, of=len(ahead))


def _elsewhere(bins: pd.DataFrame, readings: pd.DataFrame) -> str:
    """Describe readings of which none is in the bins of the records."""
    at = readings.dropna(how="all", subset=readings.columns.drop("at"))["at"]
    spans = [
        f"{times.min():%Y-%m-%d %H:%M} to {times.max():%Y-%m-%d %H:%M} UTC" if len(times) else "no time"
        for times in (at, bins["start"].dt.tz_convert("UTC"))
    ]
    return (
        f"weather: there is no reading in the period of the records. Readings are of {spans[0]}, bins of {spans[1]}. "
        "Give the weather of that period, or none (--weather). If it is of that period, check the column of its times, "
        "and the order of day and month."
    )


def _as_rare_as(bins: pd.DataFrame, readings: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of the readings in each bin, at its start, if most bins have several; else the readings.

    Before and after the panel, where only usual weather is learnt, bins go on at their usual length.
    """
    at = readings["at"].to_numpy("datetime64[s]")
    starts = bins["start"].dt.tz_convert("UTC").dt.tz_localize(None).to_numpy("datetime64[s]")
    length = np.timedelta64(int(60 * bins["minutes"].median()), "s")
    if len(at) < 2 or 2 * np.median(np.diff(at)) > length:
        return readings
    end = starts[-1] + np.timedelta64(int(60 * bins["minutes"].iloc[-1]), "s")
    before, after = (max(int(-(-apart // length)), 0) for apart in (starts[0] - at[0], at[-1] - end))
    earlier, later = starts[0] - length * np.arange(before, 0, -1), end + length * np.arange(after + 1)
    edges = np.concatenate([earlier, starts, later])
    own = edges[np.searchsorted(edges, at, "right") - 1]
    means = readings.drop(columns="at").groupby(own).mean()
    return means.rename_axis("at").reset_index()


def _with_usual_weather(
    frame: pd.DataFrame, readings: pd.DataFrame, names: Sequence[str], timezone: str
) -> pd.DataFrame:
    """Give bins without a reading, such as future ones, the usual weather of their season and hour, and mark them."""
    at = pd.DatetimeIndex(readings["at"]).tz_localize("UTC").tz_convert(timezone).tz_localize(None)
    local = pd.DatetimeIndex(frame["start_local"])
    missing = frame[list(names)].isna()
    columns = {
        name: frame[name].mask(missing[name], usual_weather(at, readings[name].to_numpy(dtype=float), local))
        for name in names
        if missing[name].any()
    }
    return frame.assign(**columns, weather_usual=missing.any(axis=1))


def _means(frame: pd.DataFrame, names: Sequence[str], key: str, days: pd.DatetimeIndex) -> dict[str, list[Any]]:
    """Return the mean of each column by the days given for its rows, with the days under the name `key`."""
    means = frame[list(names)].groupby(days.to_numpy()).mean()
    columns = {name: [None if pd.isna(v) else round(float(v), 4) for v in means[name]] for name in names}
    return {**columns, key: [f"{day:%Y-%m-%d}" for day in means.index]}


def read_weather(
    given: Given, timezone: str, columns: Sequence[str] | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read weather: a table with ``at`` (UTC) and numbers, and a table of rejected and noted rows.

    Parameters
    ----------
    given : path, list of paths, folder, glob or frame
        CSV, CSV.gz, zip of CSV, Parquet or a frame.
    timezone : str
        Time zone of naive times.
    columns : sequence of str, optional
        Columns to read; all columns of numbers by default.

    Examples
    --------
    >>> frame = pd.DataFrame({"time": ["2021-01-01 00:00", "2021-01-01 01:00"], "rain": [0.0, 0.5]})
    >>> weather, _ = read_weather(frame, "America/New_York")
    >>> weather["at"].dt.hour.tolist()
    [5, 6]
    """
    _check_columns(columns)
    frame, log = _read(given, timezone, columns)
    return frame, log.frame()


def _read(given: Given, timezone: str, columns: Sequence[str] | None) -> tuple[pd.DataFrame, QualityLog]:
    zone_info(timezone)
    log = QualityLog()
    with temporary_folder() as folder, connect(memory=_MEMORY) as connection:
        make_weather(Workspace(connection, folder, _MEMORY), given, timezone, None, log, columns)
        frame = connection.execute('SELECT * FROM weather ORDER BY "at"').df()
    return frame, log
