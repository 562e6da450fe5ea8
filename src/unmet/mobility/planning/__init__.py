"""Planning: from the estimates of a run to target levels, moves of vehicles, fleet and docks.

`unmet.decisions` has the functions of one station and of a fleet. This package gives them the rates of a run and the
levels of its stations, and collects the answers in a `Plan`.
"""

from unmet.mobility.planning.levels import Levels, levels_from_panel, levels_from_status
from unmet.mobility.planning.period import Period, choose_period
from unmet.mobility.planning.plan import Plan, PlanOptions, make_plan
from unmet.mobility.planning.rates import StationRates, scenario_rates

__all__ = [
    "Levels",
    "Period",
    "Plan",
    "PlanOptions",
    "StationRates",
    "choose_period",
    "levels_from_panel",
    "levels_from_status",
    "make_plan",
    "scenario_rates",
]
