"""Decisions: what a stock level costs, the level to aim for, and where bikes and docks gain most.

The user dissatisfaction function (Raviv & Kolka 2013) gives the riders a station loses over a period for every level
it can start from. All functions here are pure: rates in, riders out.
"""

from unmet.decisions.chargers import erlang_loss, expected_lost_at_chargers
from unmet.decisions.docks import Layout, move_docks
from unmet.decisions.fleet import Allocation, Move, allocate_fleet, fleet_curve, rebalance
from unmet.decisions.riding import Network, Outcome, Riders, draw_riders, ride
from unmet.decisions.risk import TimeOut, time_out
from unmet.decisions.station import LostRiders, expected_cost, expected_level, expected_lost, with_day_factor
from unmet.decisions.targets import Target, target_level, value_of_a_dock, value_of_bikes

__all__ = [
    "Allocation",
    "Layout",
    "LostRiders",
    "Move",
    "Network",
    "Outcome",
    "Riders",
    "Target",
    "TimeOut",
    "allocate_fleet",
    "draw_riders",
    "erlang_loss",
    "expected_cost",
    "expected_level",
    "expected_lost",
    "expected_lost_at_chargers",
    "fleet_curve",
    "move_docks",
    "rebalance",
    "ride",
    "target_level",
    "time_out",
    "value_of_a_dock",
    "value_of_bikes",
    "with_day_factor",
]
