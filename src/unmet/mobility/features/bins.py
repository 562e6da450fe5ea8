"""Features of the bins that all zones of a panel share: calendar, holidays and weather, worked out once per bin."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from unmet._exceptions import InputError
from unmet._storage.sql import connect
from unmet.mobility.clock.horizon import future_bins
from unmet.mobility.clock.timezones import zone_info
from unmet.mobility.features.covariates import add_calendar, add_holidays, add_weather
from unmet.mobility.panel.file import PanelFile
from unmet.mobility.records.files import Given, Workspace, expand, is_frame
from unmet.mobility.records.quality import QualityLog
from unmet.mobility.records.weather import make_weather

__all__ = ["BinFeatures", "bin_features", "read_weather"]

_MEMORY = 10**9  # bytes, for reading the weather


@dataclass(frozen=True)
class BinFeatures:
    """What `bin_features` gives.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per bin: ``start`` and the features, without those that the panel has already.
    gaps : pandas.DataFrame
        ``column, first, last, bins``: runs of bins without a reading of the weather.
    quality : pandas.DataFrame
        What was rejected, repaired and noted while reading the weather.
    weather : tuple of str
        The columns of the weather that models can use: those chosen that are not the same in every bin.
    """

    frame: pd.DataFrame
    gaps: pd.DataFrame
    quality: pd.DataFrame
    weather: tuple[str, ...] = ()


def bin_features(
    panel: PanelFile,
    *,
    weather: Given = None,
    weather_columns: Sequence[str] | None = None,
    timezone: str | None = None,
    holidays: str | None = None,
    horizon: int = 0,
) -> BinFeatures:
    """Work out the features of a panel's bins.

    Parameters
    ----------
    panel : PanelFile
        As `unmet.mobility.panel.file.open_panel` gives it.
    weather : path or frame, optional
        A table with a time and numbers: see `read_weather`.
    weather_columns : sequence of str, optional
        Which of its columns; all unless given.
    timezone : str, optional
        Of naive times in `weather`; what the panel's own metadata say unless given.
    holidays : str, optional
        Country and, if need be, subdivision as the package `holidays` calls them: ``US`` or ``US:NY``.
    horizon : int
        Also for so many bins beyond the panel's end.

    Returns
    -------
    BinFeatures
    """
    bins = panel.bins()
    if horizon:
        bins = pd.concat([bins, future_bins(bins, horizon, panel.timezone)], ignore_index=True)
    frame = add_calendar(bins)
    if holidays is not None:
        country, _, subdivision = holidays.partition(":")
        frame = add_holidays(frame, country, subdivision or None)
    gaps = pd.DataFrame(columns=["column", "first", "last", "bins"])
    log, used = QualityLog(), tuple[str, ...]()
    if weather_columns and weather is None:
        raise InputError("weather_columns: columns were chosen, but there is no weather to choose from (--weather).")
    if weather is not None:
        zone = timezone or panel.timezone
        if zone is None:
            if not is_frame(weather):
                expand(weather, "weather")  # a file that is not there is told first
            raise InputError(
                f"{panel.label} does not say what time zone it is in, which the weather's times need; "
                "give it: timezone= or --timezone."
            )
        readings, log = _read(weather, zone, weather_columns)
        taken = sorted({*readings.columns} & {*panel.columns} - {"at"})
        if taken:
            raise InputError(f"weather: the panel already has {', '.join(map(repr, taken))}; rename these columns.")
        weathered = add_weather(frame, readings)
        frame, gaps = weathered.panel, weathered.gaps
        columns = [name for name in readings.columns if name != "at"]
        used = tuple(name for name in columns if frame[name].nunique() > 1)
        for name in columns:
            if name not in used:
                log.add("weather", "same in every bin", "noted", len(frame), f"{name}: not used", of=len(frame))
    own = [c for c in frame.columns if c != "start" and c in panel.columns]
    return BinFeatures(frame.drop(columns=own), gaps, log.frame(), used)


def read_weather(
    given: Given, timezone: str, columns: Sequence[str] | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read weather by itself: ``at`` (UTC) and numbers, and the table of what was rejected and noted.

    Parameters
    ----------
    given : path, list of paths, folder, glob or frame
        CSV, CSV.gz, zip of CSV, Parquet or a frame.
    timezone : str
        Naive times are local to it.
    columns : sequence of str, optional
        Which columns to read; all of numbers unless given.

    Examples
    --------
    >>> frame = pd.DataFrame({"time": ["2021-01-01 00:00", "2021-01-01 01:00"], "rain": [0.0, 0.5]})
    >>> weather, _ = read_weather(frame, "America/New_York")
    >>> weather["at"].dt.hour.tolist()
    [5, 6]
    """
    frame, log = _read(given, timezone, columns)
    return frame, log.frame()


def _read(given: Given, timezone: str, columns: Sequence[str] | None) -> tuple[pd.DataFrame, QualityLog]:
    zone_info(timezone)
    log = QualityLog()
    with tempfile.TemporaryDirectory(prefix="unmet-") as folder, connect(memory=_MEMORY) as connection:
        make_weather(Workspace(connection, Path(folder), _MEMORY), given, timezone, None, log, columns)
        frame = connection.execute('SELECT * FROM weather ORDER BY "at"').df()
    return frame, log
