"""The forecast of a run (``--horizon``): expected riders by zone and hour, and the risk that they find nothing.

The *risk* is the chance that a rider who comes in that hour finds nothing to rent, if no vehicle is moved by a van. It
follows the level of each station from the end of the records (`unmet.decisions.time_out`), over scenarios of rentals
and returns, for one day: later, vans decide. The *dock risk* is the same for riders who want to return a vehicle and
find no dock. The *usual* share of time out of stock is that of the same hour of the
week in the records.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._storage.sql import fetch_frame, reading
from unmet._typing import Array, IntArray
from unmet.decisions import time_out
from unmet.mobility.clock.bins import hour_of_week
from unmet.mobility.clock.periods import DAYS, PARTS, hours_of
from unmet.mobility.planning.levels import levels_from_panel
from unmet.mobility.planning.period import RECENT_DAYS, Period
from unmet.mobility.planning.rates import scenario_rates
from unmet.report.beside import RETURNED, of_bins, returned_rates
from unmet.report.source import RunSource
from unmet.report.tables import first_of_each_choice
from unmet.report.weather_words import describe_column

__all__ = ["forecast_by_bin", "forecast_data", "forecast_rows", "forecast_sentence", "missing_weather"]

FORECAST_COLUMNS = (
    *("zone", "name", "start", "start_local", "minutes", "demand_mean", "demand_q05", "demand_q95", "rate_mean"),
    *("risk", "usual_out", "expected_lost", "dock_risk"),
)
COLUMNS_OF_RETURNS = (
    "returns_demand_mean",
    "returns_demand_q05",
    "returns_demand_q95",
    "returns_rate_mean",
    "expected_no_dock",
)
_DAY = 1440  # minutes
_LONGEST_BIN = 360  # minutes; longer bins hide when a station runs empty
_SCENARIOS, _AT_ONCE = 20, 50  # scenarios of the risk, and stations at once
_NORMAL_Q95 = 1.6448536269514722
_WORST = 60  # rows of the page's table, of every choice


def forecast_rows(source: RunSource) -> pd.DataFrame:
    """Return one row per zone and future bin; none without a forecast.

    Columns are `FORECAST_COLUMNS`: ``demand_mean`` (riders, with limits), ``rate_mean`` (their expected number),
    ``risk`` (missing after the first day, or if the level or the docks of a zone are unknown), ``usual_out``,
    ``expected_lost`` (``rate_mean`` times the risk), and ``dock_risk``. With a run of returns, `COLUMNS_OF_RETURNS`
    follow: the same for wanted returns, and ``expected_no_dock`` (``returns_rate_mean`` times the dock risk).
    """
    ahead = np.flatnonzero(source.bins["future"].to_numpy())
    limits = [name for name in ("demand_q05", "demand_q95") if name in source.demand_columns]
    names = ", ".join(f"d.{name}" for name in ("demand_mean", *limits))
    returned = [name for name in of_bins(source) if name in COLUMNS_OF_RETURNS]
    of_returns = "".join(f", r.{name}" for name in returned)
    joined = f"LEFT JOIN {RETURNED} r ON r.zone = d.zone AND r.start = b.start" if returned else ""
    with reading("demand.parquet"):
        rows = fetch_frame(
            source.connection,
            f"""SELECT z.number AS zone_number, b.number AS bin_number, d.zone, b.start, b.start_local, b.minutes,
                {names}, {"d.rate_mean" if "rate_mean" in source.demand_columns else "d.demand_mean AS rate_mean"}
                {of_returns}
            FROM demand d JOIN zone_numbers z USING (zone) JOIN bin_numbers b ON b.start = d.start {joined}
            WHERE b.number >= {int(ahead[0]) if len(ahead) else len(source.bins)} ORDER BY zone_number, bin_number""",
        )
    for name in ("demand_q05", "demand_q95"):
        if name not in rows:
            rows[name] = np.nan
    rows["name"] = source.zones["name"].to_numpy(dtype=object)[rows["zone_number"].to_numpy(dtype=int)]
    zone, at = rows["zone_number"].to_numpy(dtype=int), rows["bin_number"].to_numpy(dtype=int)
    risk, usual = _risk(source, ahead), _usual_out(source)
    for name, found in risk.items():
        rows[name] = found[zone, at - (ahead[0] if len(ahead) else 0)] if len(rows) else np.zeros(0)
    rows["usual_out"] = usual[zone, hour_of_week(rows["start_local"])] if len(rows) else np.zeros(0)
    rows["expected_lost"] = rows["rate_mean"] * rows["risk"]
    if not returned:
        return rows[list(FORECAST_COLUMNS)]
    rows["expected_no_dock"] = rows["returns_rate_mean"] * rows["dock_risk"]
    return rows[[*FORECAST_COLUMNS, *COLUMNS_OF_RETURNS]]


def _risk(source: RunSource, ahead: IntArray) -> dict[str, Array]:
    """Share of each future bin in which a zone is expected to be empty or full, of shape (zones, future bins)."""
    found = {name: np.full((len(source.zones), len(ahead)), np.nan) for name in ("risk", "dock_risk")}
    minutes = source.minutes
    if not len(ahead) or minutes > _LONGEST_BIN:
        return found
    bins = _DAY // minutes
    day = ahead[:bins]
    recent = tuple(day - k * bins for k in range(1, RECENT_DAYS + 1) if k * bins <= day[0])
    first = source.bins["start_local"].iloc[int(day[0])]
    since = int((first - first.normalize()).total_seconds() // 60)
    period = Period(first.normalize(), int(first.weekday()), since, minutes / 60, (day,), recent, True, True)
    try:
        rates = scenario_rates(
            source.connection,
            source.zones,
            source.system,
            source.bins,
            period,
            scenarios=_SCENARIOS,
            returned=returned_rates(source),
            shock_variance=source.shock_variance,
        )
    except InputError:  # no returns in the records: the level cannot be followed
        return found
    levels = levels_from_panel(source.connection, source.zones, source.bins, period, source.unusable)
    level, docks = levels.level, source.zones["capacity"].to_numpy(dtype=float) - levels.broken
    known = np.isfinite(level[rates.number]) & np.isfinite(docks[rates.number]) & (docks[rates.number] >= 1)
    order = np.flatnonzero(known)[np.argsort(rates.rentals[known].max(axis=(1, 2), initial=0.0))]
    for some in np.array_split(order, max(len(order) // _AT_ONCE, 1)):
        number = rates.number[some]
        now = level[number].astype(int)
        room = np.maximum(docks[number].astype(int), now)
        out = time_out(rates.rentals[some], rates.returns[some], room, now, hours=rates.hours)
        found["risk"][number, : len(day)] = out.empty.mean(axis=1)
        found["dock_risk"][number, : len(day)] = out.full.mean(axis=1)
    return found


def _usual_out(source: RunSource) -> Array:
    """Share of the open time out of stock, of shape (zones, hours of the week); NaN if never open."""
    with reading("panel"):
        frame = fetch_frame(
            source.connection,
            """SELECT z.number AS zone, ((isodow(start_local) - 1) * 24 + hour(start_local))::INTEGER AS slot,
                sum(stockout_minutes)::DOUBLE AS out, sum(stockout_minutes + available_minutes)::DOUBLE AS open
            FROM (SELECT * REPLACE (zone::VARCHAR AS zone) FROM panel) JOIN zone_numbers z USING (zone) GROUP BY ALL""",
        )
    share = np.full((len(source.zones), 168), np.nan)
    some = frame[frame["open"] > 0]
    share[some["zone"].to_numpy(dtype=int), some["slot"].to_numpy(dtype=int)] = (some["out"] / some["open"]).to_numpy()
    return share


def forecast_by_bin(source: RunSource, rows: pd.DataFrame, area: str | None = None) -> pd.DataFrame:
    """Sum the forecast over zones, or over those of an area, without zones that are left out of the totals.

    Return ``start, start_local, minutes``, ``rate_mean`` with ``rate_q05, rate_q95`` (from the errors that zones
    share, see ``system.parquet``), ``risk`` and ``usual_out`` (means over riders) and ``expected_lost``.
    """
    of_area = np.array([area is None or own == area for own in source.area_of], dtype=bool)
    some = source.zones["zone"][source.counted.to_numpy() & of_area]
    rows = rows[rows["rate_mean"].notna() & rows["zone"].isin(some)]
    weight = rows["rate_mean"]
    parts = rows.assign(
        with_risk=weight.where(rows["risk"].notna(), 0.0), with_usual=weight.where(rows["usual_out"].notna(), 0.0),
        usual_lost=weight * rows["usual_out"], followed=rows["risk"].notna(),
    )  # fmt: skip
    table = parts.groupby(["start", "start_local", "minutes"], as_index=False)[
        ["rate_mean", "expected_lost", "with_risk", "with_usual", "usual_lost", "followed"]
    ].sum()
    for share, lost, of in (("risk", "expected_lost", "with_risk"), ("usual_out", "usual_lost", "with_usual")):
        table[share] = (table[lost] / table[of]).where(table[of] > 0)
    table["expected_lost"] = table["expected_lost"].where(table["followed"] > 0)
    rates = source.system if area is None else source.area_rates.get(area, source.system[:0])
    sd = rates.get("rate_sd", pd.Series(dtype=float)).reindex(table["start"]).to_numpy(dtype=float)
    table["rate_q05"] = (table["rate_mean"] - _NORMAL_Q95 * sd).clip(lower=0.0)
    table["rate_q95"] = table["rate_mean"] + _NORMAL_Q95 * sd
    return table[
        ["start", "start_local", "minutes", "rate_mean", "rate_q05", "rate_q95", "risk", "usual_out", "expected_lost"]
    ]


def forecast_sentence(by_bin: pd.DataFrame, *, chosen: bool = False) -> str:
    """Describe the forecast in a sentence or two; `chosen` if the bins are some of it, not all."""
    if by_bin.empty:
        return "The forecast has no such hours."
    hours = by_bin["minutes"].sum() / 60
    first = by_bin["start_local"].iloc[0]
    time = f"In {hours:g} such hours" if chosen else f"In the {hours:g} hours"
    count = f"{by_bin['rate_mean'].sum():,.0f}"
    riders = f"about {count} {'rider is' if count == '1' else 'riders are'} expected"
    text = f"{time} from {first:%A}, {first.day} {first:%B, %H:%M} {riders}."
    if by_bin["expected_lost"].notna().any():
        day = by_bin[by_bin["expected_lost"].notna()]
        text += (
            f" If no vehicle is moved, {day['expected_lost'].sum():,.0f} of the {day['rate_mean'].sum():,.0f} who come "
            f"in the first {day['minutes'].sum() / 60:g} {'such ' if chosen else ''}hours find nothing to rent."
        )
    return text


def missing_weather(source: RunSource) -> str | None:
    """Say which weather the forecast lacks; None if it lacks none, or if the model uses none."""
    provenance, ahead = source.info.get("provenance", {}), source.bins[source.bins["future"]]
    if ahead.empty or not source.info.get("model", {}).get("uses_covariates", True):
        return None
    first = ahead["start"].iloc[0]
    gaps = [gap for gap in provenance.get("weather_gaps") or [] if pd.Timestamp(gap["last"]) >= first]
    if not gaps:
        return None
    begins = max(min(pd.Timestamp(gap["first"]) for gap in gaps), first)
    lacking = int((ahead["start"] >= begins).sum())
    names = ", ".join(dict.fromkeys(describe_column(str(gap["column"]))[0] for gap in gaps))
    of = "all its bins" if lacking == len(ahead) else f"{lacking} of its {len(ahead)} bins"
    return (
        f"The weather file has no {names} for {of}: the usual weather of the season and hour is used, so the forecast "
        "does not see rain or heat that comes. Give --weather a file that reaches as far as the horizon."
    )


def forecast_data(source: RunSource) -> dict[str, Any] | None:
    """Return the forecast as the page needs it, for every area; None without one.

    ``areas`` has the bins of each area, with the sentence of each kind of days and part of the day; those of all zones
    come first. ``worst`` has the first rows of every choice.
    """
    rows = forecast_rows(source)
    if rows.empty:
        return None
    numbers = dict(zip(source.zones["zone"], range(len(source.zones)), strict=True))
    order = "expected_lost" if rows["expected_lost"].notna().any() else "rate_mean"
    ranked = rows[rows[order].notna()].sort_values(order, ascending=False, kind="stable")
    ranked = ranked.assign(
        number=ranked["zone"].map(numbers), hour_of_week=np.asarray(hour_of_week(ranked["start_local"]))
    )
    worst = first_of_each_choice(source, ranked, _WORST)
    keep = ["minutes", "demand_mean", "demand_q05", "demand_q95", "risk", "usual_out", "expected_lost"]
    areas = [None, *sorted({area for area in source.area_of if area is not None})]
    return {
        "rows": _WORST,
        "missing": missing_weather(source),
        "areas": [_area_data(area, forecast_by_bin(source, rows, area)) for area in areas],
        "worst": {"number": worst["number"].tolist(), "at": _moments(worst), **_listed(worst[keep])},
    }


def _area_data(area: str | None, by_bin: pd.DataFrame) -> dict[str, Any]:
    slot = np.asarray(hour_of_week(by_bin["start_local"]))
    sentences = []
    for days, part in product((None, *DAYS), (None, *PARTS)):
        some = by_bin[np.isin(slot, hours_of(days, part))]
        text = forecast_sentence(some, chosen=len(some) < len(by_bin))
        sentences.append({"days": days, "part": part, "sentence": text})
    bins = {"at": _moments(by_bin), **_listed(by_bin.drop(columns=["start", "start_local"]))}
    return {"area": area, "bins": bins, "sentences": sentences}


def _moments(table: pd.DataFrame) -> list[int]:
    """Local times in milliseconds, as the page counts them."""
    return [int(t) for t in table["start_local"].to_numpy().astype("datetime64[ms]").astype(np.int64)]


def _listed(table: pd.DataFrame) -> dict[str, list[float | None]]:
    def plain(value: float) -> float | None:
        return float(f"{value:.6g}") if np.isfinite(value) else None

    return {str(name): [plain(float(v)) for v in table[name]] for name in table.columns}
