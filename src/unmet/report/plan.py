"""The plan as the page shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from unmet._exceptions import InputError
from unmet._typing import Array
from unmet.mobility.clock.public_holidays import country_of, holiday_name
from unmet.mobility.planning.growth import CostOfDocks, costs_of_docks, dock_moves, fleet_losses, more_bikes, more_docks
from unmet.mobility.planning.period import WEEKDAYS, Period
from unmet.mobility.planning.plan import Plan, PlanOptions
from unmet.report.source import RunSource
from unmet.report.targets import plan_run

__all__ = ["LIMITS", "holiday_of", "plan_data"]

_MOST_STATIONS = (
    200  # moving docks asks for every station at three sizes: seconds for a small city, minutes for a large
)
_DIGITS = 4

LIMITS = (
    "A rider is turned away who finds no vehicle or no dock at the station they come to. Some of them walk or ride to "
    "the next station and are served there.",
    "The totals simulate the city: riders walk on to the next station, ride on to a free dock, and trips that are not "
    "made bring no vehicle back. Levels, moves and curves treat stations as independent of each other, so their gains "
    "do not add up to the total.",
    "No van drives between the moves and the end of the day.",
    "Wanted returns follow the rentals of the whole city, not those of single stations.",
    "Listed vehicles count as usable, without those that very probably nobody could rent at the end of the records if "
    "the plan starts from there.",
    "Intervals cover weather, shocks and errors of the estimate, those of the totals the chance of single riders too: "
    "nine of ten such days lie within them.",
)


def _country(source: RunSource) -> str | None:
    """The country whose holidays count: that of ``--holidays``, else that of the time zone."""
    given = source.info.get("provenance", {}).get("holidays")
    return str(given) if given else country_of(str(source.summary.get("timezone", "")))


def _lacking(source: RunSource, period: Period) -> str:
    """Return what a run needs to plan for a public holiday and this one lacks; empty if nothing."""
    given = source.info.get("provenance", {}).get("holidays")
    uses = source.info.get("model", {}).get("uses_covariates", True)
    options = [] if given else [f"--holidays {_country(source) or 'COUNTRY'}"]
    options += [] if period.forecast else ["--horizon 1d"]
    options += [] if uses else ["a --model that uses holidays"]
    return " and ".join(options)


def _about_holidays(source: RunSource, period: Period) -> str:
    """Say how the plan treats public holidays."""
    lacking = _lacking(source, period)
    if not lacking:
        return "Public holidays are in the forecast that the plan uses."
    return f"A public holiday counts as any other day of its weekday. To plan for it, run with {lacking}."


def holiday_of(source: RunSource, period: Period) -> dict[str, Any] | None:
    """Describe the public holiday that a period is on; None if it is on none."""
    name = None if period.day is None else holiday_name(period.day.date(), _country(source))
    if name is None:
        return None
    lacking = _lacking(source, period)
    text = f"A public holiday ({name}): the forecast that this plan uses includes its effect."
    if lacking:
        text = (
            f"A public holiday ({name}), planned like a usual {WEEKDAYS[period.weekday]}: do not rely on these "
            f"numbers. To plan for the holiday, run again with {lacking}."
        )
    return {"name": name, "included": not lacking, "sentence": text}


def plan_data(source: RunSource, options: PlanOptions | None = None) -> dict[str, Any]:
    """Return the plan of a run as JSON values by column; if there is none, ``missing`` contains the reason."""
    try:
        plan = plan_run(source, options)
    except InputError as error:
        return {"missing": str(error)}
    areas = {name: _of_area(plan, source, name) for name in plan.area_totals}
    cost, place = costs_of_docks(plan), {station.number: k for k, station in enumerate(plan.stations)}

    def sums(own: Plan) -> dict[str, Any]:
        return _sums(own, lambda k, docks: cost(place[own.stations[k].number], docks))

    return {
        "words": plan.period.words,
        "usual": plan.period.day is None or not plan.period.forecast,
        "forecast": plan.period.forecast,
        "similar": len(plan.period.similar),
        "levels": plan.levels_from,
        "moves": _columns(plan.moves),
        "stations": _columns(plan.table.drop(columns=["zone", "name", "lat", "lon"])),
        "curves": _curves(plan),
        "areas": [{"area": name, **sums(own)} for name, own in ({None: plan} | areas).items()],
        "left_out": len(plan.left_out),
        "why_left_out": sorted(set(plan.left_out.values())),
        "holiday": holiday_of(source, plan.period),
        "limits": [*LIMITS, _about_holidays(source, plan.period)],
    }


def _of_area(plan: Plan, source: RunSource, area: str) -> Plan:
    """Return the plan of the stations of an area; its moves are those from and to them."""
    some = {number for number, own in enumerate(source.area_of) if own == area}
    moves = plan.moves[plan.moves["source"].isin(some) | plan.moves["target"].isin(some)]
    stations = tuple(station for station in plan.stations if station.number in some)
    return replace(plan, stations=stations, moves=moves, totals=plan.area_totals[area])


def _sums(plan: Plan, cost: CostOfDocks) -> dict[str, Any]:
    """Return what the page shows of all stations of a plan together."""
    few = len(plan.stations) <= _MOST_STATIONS
    return {
        "fleet": plan.fleet,
        "moved": plan.moved,
        "totals": {str(name): _rounded(row) for name, row in plan.totals.to_dict("index").items()},
        "fleets": _columns(fleet_losses(plan)),
        "next_bikes": _columns(more_bikes(plan)),
        "next_docks": _columns(more_docks(plan, cost=cost)),
        "docks_to_move": _columns(dock_moves(plan, cost=cost)) if few else None,
    }


def _curves(plan: Plan) -> dict[str, Any]:
    """Return riders turned away by start level, with their interval, by the zone's number."""
    return {
        str(station.number): {
            "no_bike": _listed(plan.options.no_bike * station.lost.rentals.mean(axis=0)),
            "no_dock": _listed(plan.options.no_dock * station.lost.returns.mean(axis=0)),
            "low": _listed(pd.DataFrame(station.cost).quantile(0.05).to_numpy()),
            "high": _listed(pd.DataFrame(station.cost).quantile(0.95).to_numpy()),
        }
        for station in plan.stations
    }


def _listed(values: Array) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]


def _columns(table: pd.DataFrame) -> dict[str, list[Any]]:
    return {str(name): [_plain(value) for value in table[name].tolist()] for name in table.columns}


def _rounded(row: dict[Any, float]) -> dict[str, Any]:
    return {str(name): _plain(float(value)) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return None if pd.isna(value) else float(f"{value:.6g}")
    return value
