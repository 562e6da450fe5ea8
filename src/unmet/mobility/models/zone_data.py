"""The rows of one zone as arrays: observed trips, exposure, and the inputs of the models."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._typing import Array, BoolArray, IntArray
from unmet.kernels import Kernel
from unmet.mobility.clock.bins import hour_of_week
from unmet.mobility.models.kept import InputScales, KeptFit
from unmet.mobility.models.surroundings import Surroundings
from unmet.mobility.panel.schema import (
    CALENDAR_COLUMNS,
    INFERRED_COLUMNS,
    NEEDED_COLUMNS,
    PANEL_COLUMNS,
    STATE_MINUTES,
)

__all__ = ["CITY_ERRORS", "CITY_RATE", "NOT_COVARIATES", "Hyperparameters", "ZoneData", "zone_data"]

CITY_RATE = "shared_log_rate"
"""The input with the city's curve: see `unmet.mobility.models.city`."""

CITY_ERRORS = [f"shared_off_{i}" for i in range(1, 14)]
"""Inputs with the errors of that curve: each is a curve, to be multiplied by a standard normal number.

The last is for bins after the end of the records: a trend may turn as it has not done before.
"""

_NEEDED = tuple(name for name in PANEL_COLUMNS if name in (*NEEDED_COLUMNS, *STATE_MINUTES))
# Columns of a panel that record what happened. None may be a covariate, or demand would explain itself.
NOT_COVARIATES = {*PANEL_COLUMNS, *INFERRED_COLUMNS, "holiday", "future", CITY_RATE, "weather_usual"}
_LARGEST_COUNT = 1e7  # trips in a bin, as for counts in `unmet.estimators`
_ROUNDED = 0.01  # minutes, and shares of a bin
_ALL_ROUNDED = 1.01  # minutes: sum of the states, each rounded to whole minutes
_LARGEST_COVARIATE = 1e12  # as for readings of weather
# Minutes. A pickup proves that a vehicle was there for a moment, even if no minute began with one. One moment per bin,
# not per pickup: over many bins, the count of minutes that began with a vehicle is unbiased. Pickups of closed time are
# exceptions from that, and prove nothing.
_MOMENT = 0.5
# Pickups in bins without supply, their share of all, and their pace over that with supply, from which on supply and
# pickups contradict each other, as for the stations of `unmet.mobility.panel.plausibility`. In Jersey City no zone has
# a share above 0.003 or a pace above 0.2.
_LEAST_UNSERVED, _LEAST_SHARE, _LEAST_PACE = 10, 0.03, 0.35


@dataclass(frozen=True)
class Hyperparameters:
    """Hyper-parameters learnt from several zones, for all zones.

    Attributes
    ----------
    kernel : Kernel
        Covariance of log-demand.
    dispersion : float
        Dispersion of the counts.
    dispersion_sd : float
        Standard deviation of its logarithm. All zones share this error.
    """

    kernel: Kernel
    dispersion: float
    dispersion_sd: float = 0.0


@dataclass(frozen=True)
class ZoneData:
    """The rows of one zone, in order of time.

    Attributes
    ----------
    zone : str
        Name of the zone.
    start, local : DatetimeIndex
        Start of each bin, in UTC and in local time.
    minutes : float
        Median length of the bins.
    observed : array
        Pickups; NaN if nothing was recorded, and in future bins.
    exposure, stockout : array
        Share of the bin with something to rent, and share with nothing to rent while the zone was open. Closed and
        unknown time is in neither. Nothing is learnt from bins without exposure.
    censored : array of bool
        Label of the panel.
    slot : array of int
        Hour of the week, 0 for Monday from midnight; for bins of a day or more, the first hour of its day.
    inputs : DataFrame
        Columns ``t`` (days), ``week`` (position in the week, in days; holidays are Sundays), ``weekend``, ``holiday``,
        covariates; and, with a city model, its curve and errors: ``shared_log_rate``, ``shared_off_1`` ...
    covariates : tuple of str
        Names of the covariates among the inputs.
    early : array
        Pickups in the first half of the bin; NaN where they are not known.
    flags : array of str
        Remarks on each row, joined by semicolons.
    notes : dict
        Numbers of repaired rows, by kind of repair.
    hyperparameters : Hyperparameters or None
        Hyper-parameters to use; None if the zone's own are to be learnt.
    surroundings : Surroundings or None
        Shocks and walkers of the neighbourhood; None if the zone is estimated by itself.
    scales : InputScales
        What the inputs are measured by.
    kept : KeptFit or None
        A fit of earlier bins, to use instead of a new one.
    stockout_sd : array or None
        Standard deviation of `stockout`, where looks at the feed were far apart.
    hidden : array of bool or None
        Bins with trips that are mostly unknown: their exposure is 0.
    closed : array of bool or None
        Bins in which the zone was closed all the time.
    unserved : array of bool or None
        Bins of at most half a minute of exposure, before it was raised to that.
    """

    zone: str
    start: pd.DatetimeIndex
    local: pd.DatetimeIndex
    minutes: float
    observed: Array
    exposure: Array
    stockout: Array
    censored: BoolArray
    slot: IntArray
    inputs: pd.DataFrame
    covariates: tuple[str, ...]
    early: Array
    flags: np.ndarray
    notes: dict[str, int]
    hyperparameters: Hyperparameters | None = None
    surroundings: Surroundings | None = None
    scales: InputScales | None = None
    kept: KeptFit | None = None
    hidden: BoolArray | None = None
    stockout_sd: Array | None = None
    closed: BoolArray | None = None
    unserved: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.start)

    @property
    def seen(self) -> BoolArray:
        """Bins with observed trips and some exposure: those to learn from."""
        return np.isfinite(self.observed) & (self.exposure > 0)

    @property
    def has_counts(self) -> bool:
        """Whether the observed trips are whole numbers, one for each bin."""
        seen = self.observed[self.seen]
        return bool(self.start.is_unique and seen.size and (seen == np.floor(seen)).all())

    def without(self, hidden: BoolArray) -> ZoneData:
        """Return the data with some bins hidden, as if nothing had been recorded in them."""
        observed, exposure = np.where(hidden, np.nan, self.observed), np.where(hidden, 0.0, self.exposure)
        return replace(self, observed=observed, exposure=exposure)

    def check_supply(self) -> None:
        """Refuse a zone whose pickups are in bins in which nobody could be served, at a good part of the usual pace.

        Each such bin counts as half a minute of exposure. As an exception that is right; as the rule it would multiply
        demand by the number of half minutes in a bin.
        """
        counted = np.isfinite(self.observed) if self.hidden is None else np.isfinite(self.observed) & ~self.hidden
        without = counted & (self.unserved if self.unserved is not None else self.exposure == 0)
        inside, pickups = self.observed[without].sum(), self.observed[counted].sum()
        supplied = self.exposure[counted & ~without].sum()
        many = inside >= max(_LEAST_UNSERVED, _LEAST_SHARE * pickups)
        # Pace without and with supply, multiplied out.
        fast = inside * supplied >= _LEAST_PACE * (pickups - inside) * without.sum()
        if inside > 0 and ((many and fast) or supplied == 0):
            raise InputError(
                f"{inside:,.0f} of its {pickups:,.0f} pickups are in bins whose exposure says that nobody could be "
                "served. Supply and pickups contradict each other, so its demand cannot be estimated. Correct its "
                "exposure, or use a model that needs none (cgp, share)."
            )

    @property
    def daily(self) -> bool:
        """Whether the bins are a day or longer."""
        return self.minutes >= 1440


def zone_data(panel: pd.DataFrame, scales: InputScales | None = None) -> ZoneData:
    """Check and arrange the rows of one zone.

    Parameters
    ----------
    panel : DataFrame
        Rows of one zone with the columns of a panel. ``holiday`` and other numeric columns (weather) are used if
        present; ``future`` marks bins after the end of the records.
    scales : InputScales, optional
        What the inputs are measured by; found from the rows if not given.
    """
    missing = [c for c in _NEEDED if c not in panel.columns]
    if missing:
        raise InputError(
            f"the panel lacks the columns {', '.join(missing)}; build it with build_panel or `unmet panel`"
        )
    if panel.empty or panel["zone"].nunique() != 1:
        raise InputError(f"expected the rows of one zone; got {len(panel)} rows of {panel['zone'].nunique()} zones")
    frame = panel.sort_values("start", ignore_index=True)
    minutes = frame["minutes"].to_numpy(dtype=float)
    observed = frame["observed"].to_numpy(dtype=float)
    exposure = frame["exposure"].to_numpy(dtype=float)
    _check(frame, observed, exposure)
    exposure, hidden = _known_exposure(frame, exposure)
    is_open = (frame["available_minutes"] + frame["stockout_minutes"] > 0).to_numpy()
    moment = np.where((np.nan_to_num(observed) > 0) & is_open, _MOMENT / minutes, 0.0)
    repaired = (exposure < moment) & ~hidden
    local = pd.DatetimeIndex(frame["start_local"])
    inputs, covariates, gaps, scales = _inputs(frame, local, scales)
    closed = frame["closed_minutes"].to_numpy() >= minutes
    data = ZoneData(
        zone=str(frame["zone"].iloc[0]),
        start=pd.DatetimeIndex(frame["start"]),
        local=local,
        minutes=float(np.median(minutes)),
        observed=observed,
        exposure=np.where(hidden, 0.0, np.maximum(exposure, moment)),
        stockout=_out_of_stock(frame) / minutes,
        censored=frame["censored"].to_numpy(dtype=bool),
        slot=hour_of_week(local).astype(np.intp),
        inputs=inputs,
        covariates=covariates,
        early=_early(frame),
        flags=np.full(len(frame), "", dtype=object),
        notes={"exposure_raised_to_a_moment": int(repaired.sum()), "covariate_gaps_filled": int(gaps.sum())},
        scales=scales,
        hidden=hidden,
        stockout_sd=frame["out_sd"].to_numpy(dtype=float) / minutes if "out_sd" in frame else None,
        closed=closed,
        unserved=exposure * minutes <= _MOMENT,
    )
    future = frame["future"].to_numpy(dtype=bool) if "future" in frame else np.zeros(len(frame), dtype=bool)
    _flag(data.flags, future, "future")
    _flag(data.flags, np.isnan(observed) & ~future, "unobserved")
    _flag(data.flags, hidden | (frame["unknown_minutes"].to_numpy() >= minutes), "unknown")
    _flag(data.flags, closed, "closed")
    _flag(data.flags, gaps, "covariate-missing")
    _flag(data.flags, ~np.isin(data.slot, data.slot[data.seen]), "extrapolation")
    return data


def _known_exposure(frame: pd.DataFrame, exposure: Array) -> tuple[Array, BoolArray]:
    """Exposure that goes with the observed trips, and the bins with trips that are mostly unknown.

    Trips are those of the whole bin, also of its unknown minutes, which are taken to be like its known ones. A bin that
    is mostly unknown teaches nothing, unless most bins at this hour of the day are: then it is taken to be like the
    known bins of all hours, because nothing else tells demand at that hour. Pickups inferred from status are those of
    the known minutes. Netted supply is unknown while no pickup could be: its trips are those of the known minutes too.
    """
    if "evidence" not in frame:
        return exposure, np.zeros(len(frame), dtype=bool)
    unknown = (frame["unknown_minutes"] / frame["minutes"]).to_numpy(dtype=float)
    if (frame["evidence"] == "netted").any():
        return exposure, (frame["evidence"] == "trips").to_numpy() & (unknown > 0.5)
    trips = frame["evidence"].isin(["trips", "status+trips"]).to_numpy()
    hidden = trips & (unknown > 0.5)
    scaled = np.minimum(exposure / np.maximum(1.0 - unknown, 0.5), 1.0)
    hour = pd.to_datetime(frame["start_local"]).dt.hour.to_numpy()
    number, missing = np.bincount(hour, minlength=24), np.bincount(hour, hidden, minlength=24)
    repeated = hidden & (missing > 0.5 * number)[hour]
    known = trips & ~hidden & (unknown < 1.0)
    if repeated.any() and known.any():
        scaled[repeated] = scaled[known].mean()
        hidden &= ~repeated
    return np.where(trips & ~hidden, scaled, exposure), hidden


def _out_of_stock(frame: pd.DataFrame) -> Array:
    """Minutes out of stock: expected ones where the panel has them, else those without a listed vehicle."""
    listed = frame["stockout_minutes"].to_numpy(dtype=float)
    if "out_minutes" not in frame:
        return listed
    expected = frame["out_minutes"].to_numpy(dtype=float)
    return np.where(np.isnan(expected), listed, expected)


def _early(frame: pd.DataFrame) -> Array:
    """Pickups in the first half of the bins; missing in panels of other software."""
    found = frame["observed_early"] if "observed_early" in frame else np.full(len(frame), np.nan)
    return np.asarray(found, dtype=float)


def _check(frame: pd.DataFrame, observed: Array, exposure: Array) -> None:
    """Refuse impossible numbers; observed trips may be missing, shares and minutes may not."""
    states = frame[list(STATE_MINUTES)].to_numpy(dtype=float)
    minutes = frame["minutes"].to_numpy(dtype=float)
    share = ~((exposure >= 0) & (exposure <= 1))
    expected = {name: frame[name].to_numpy(dtype=float) for name in ("out_minutes", "out_sd") if name in frame}
    outside = {name: (values < 0) | (values > minutes + _ROUNDED) for name, values in expected.items()}
    too_much = exposure * minutes + _out_of_stock(frame) > (1 + _ROUNDED) * minutes
    early = _early(frame)
    label = ~frame["censored"].isin([0, 1]).to_numpy()
    state = ~(np.isfinite(states) & (states >= 0)).all(axis=1)
    unlike = ~(np.abs(states.sum(axis=1) - minutes) <= _ALL_ROUNDED)
    if "future" in frame:
        unlike &= ~frame["future"].to_numpy(dtype=bool)  # no state is known there
    for wrong, words in (
        ((observed < 0) | (observed > _LARGEST_COUNT), f"observed must be 0 to {_LARGEST_COUNT:,.0f}, or missing"),
        ((early < 0) | (early > observed), "observed_early must be 0 to observed, or missing"),
        (share, "exposure must be a share, 0 to 1"),
        (state, "the minutes of each state must be 0 or more"),
        (unlike, f"{', '.join(STATE_MINUTES)} must sum to minutes (what is not known is unknown_minutes)"),
        (label, "censored must be true or false"),
        *((wrong, f"{name} must be 0 to the minutes of the bin, or missing") for name, wrong in outside.items()),
        (too_much, "exposure and the time out of stock must fit into the bin"),
    ):
        if wrong.any():
            row = frame[wrong].iloc[0]
            found = ", ".join(f"{name} {row[name]}" for name in ("observed", "exposure", "minutes", *STATE_MINUTES))
            raise InputError(
                f"zone {row['zone']}: {words}; {int(wrong.sum())} bins differ, the first at {row['start']}: {found}"
            )


def _flag(flags: np.ndarray, rows: BoolArray, word: str) -> None:
    flags[rows] = [f"{old};{word}" if old else word for old in flags[rows]]


def _inputs(
    frame: pd.DataFrame, local: pd.DatetimeIndex, scales: InputScales | None
) -> tuple[pd.DataFrame, tuple[str, ...], BoolArray, InputScales]:
    """Make the columns for the kernels; fill gaps of a covariate with its median, and report rows with gaps."""
    known = scales or InputScales(local[0], _covariate_scales(frame))
    inputs = pd.DataFrame({"t": (local - known.origin) / pd.Timedelta(days=1)})
    holiday = np.zeros(len(frame))
    if "holiday" in frame:
        if not pd.api.types.is_numeric_dtype(frame["holiday"]):
            raise InputError(f"holiday must be true or false, or 0 or 1; got {frame['holiday'].iloc[0]!r:.60}")
        holiday = frame["holiday"].to_numpy(dtype=float)
    holiday = np.nan_to_num(holiday)
    clock = (local - local.normalize()) / pd.Timedelta(days=1)
    inputs["week"] = np.where(holiday > 0, 6, local.day_of_week) + np.asarray(clock)
    inputs["weekend"] = (inputs["week"] >= 5).astype(float)
    inputs["holiday"] = holiday
    # `unmet.mobility.features.bins` marks bins that have the season's weather, for want of a reading.
    gaps = frame["weather_usual"].to_numpy(dtype=bool) if "weather_usual" in frame else np.zeros(len(frame), dtype=bool)
    for name, (median, unit) in known.covariates.items():
        values = frame[name].to_numpy(dtype=float)
        hole = _holes(values)
        gaps = gaps | hole
        values = np.where(hole, median, values)
        inputs[f"x:{name}"] = values if unit is None else np.log1p(values / unit)
    return inputs, tuple(f"x:{name}" for name in known.covariates), gaps, known


def _holes(values: Array) -> BoolArray:
    return ~(np.abs(values) <= _LARGEST_COVARIATE)


def _covariate_scales(frame: pd.DataFrame) -> dict[str, tuple[float, float | None]]:
    """Find the covariates among the columns; put amounts that are mostly zero, such as rain, on a log scale."""
    found: dict[str, tuple[float, float | None]] = {}
    for name in frame.columns:
        if name in NOT_COVARIATES or name in CALENDAR_COLUMNS or not pd.api.types.is_numeric_dtype(frame[name]):
            continue
        values = frame[name].to_numpy(dtype=float)
        hole = _holes(values)
        if hole.all() or np.nanmax(values[~hole]) == np.nanmin(values[~hole]):
            continue  # a constant explains nothing
        median = float(np.median(values[~hole]))
        values = np.where(hole, median, values)
        positive = values > 0
        mostly_zero = values.min() >= 0 and 0 < positive.mean() < 0.5
        found[str(name)] = (median, float(values[positive].mean()) if mostly_zero else None)
    return found
