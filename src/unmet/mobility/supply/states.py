"""The four states of a minute, and the reasons for them.

A minute's state is that of its first instant. Each minute has one *reason*, and each reason belongs to one state:

============== ============= ==========================================================================
state          reason        what is known
============== ============= ==========================================================================
``available``  vehicles      at least one station of the zone rents and has a vehicle
``stockout``   empty         the zone rents and none of its open stations has a vehicle
``closed``     not_renting   the last record of each station says so
``closed``     not_installed likewise
``closed``     dead          a docked station with neither a vehicle nor a free dock: riders who take the last
                             vehicle leave a dock behind them
``closed``     standstill    nothing moves in the whole system although it usually would, and the feed lives
``closed``     hours         outside the opening hours
``unknown``    feed_silent   the feed as a whole is silent improbably long
``unknown``    silent        the station is silent improbably long while the others report
``unknown``    undetermined  netted supply: trips alone do not tell whether a vehicle was left
``unknown``    no_record     no record yet, none any more, or a station that has been silent for a week
============== ============= ==========================================================================

In a zone of several stations the first reason of this order that holds for any of them is the zone's: vehicles,
undetermined, silent, empty, not_renting, dead, not_installed, no_record. So a zone is in stock-out only when all of
its open stations are and none could secretly have a vehicle, and a station that is not there does not count.
"""

from __future__ import annotations

__all__ = [
    "DEAD",
    "EMPTY",
    "FEED_SILENT",
    "NOT_INSTALLED",
    "NOT_RENTING",
    "NO_RECORD",
    "OUTSIDE_HOURS",
    "REASONS",
    "SILENT",
    "STANDSTILL",
    "STATES",
    "STATE_MINUTES",
    "UNDETERMINED",
    "VEHICLES",
    "WORDS",
]

STATES = ("available", "stockout", "closed", "unknown")
STATE_MINUTES = tuple(f"{state}_minutes" for state in STATES)
"""Names of the columns that count minutes by state."""

REASONS: dict[str, str] = {  # reason -> state, in the order in which a zone of several stations takes them
    "vehicles": "available",
    "undetermined": "unknown",
    "silent": "unknown",
    "empty": "stockout",
    "not_renting": "closed",
    "dead": "closed",
    "not_installed": "closed",
    "no_record": "unknown",
    "feed_silent": "unknown",
    "standstill": "closed",
    "hours": "closed",
}
WORDS: dict[str, str] = {  # reason -> how to tell it
    "vehicles": "a vehicle to rent",
    "empty": "open, nothing to rent",
    "not_renting": "the stations say so",
    "not_installed": "not installed",
    "dead": "neither a vehicle nor a dock",
    "standstill": "nothing moves anywhere",
    "hours": "outside opening hours",
    "feed_silent": "the whole feed is silent",
    "silent": "the station is silent",
    "undetermined": "trips do not tell",
    "no_record": "no record yet, or no more",
}
VEHICLES, UNDETERMINED, SILENT, EMPTY, NOT_RENTING, DEAD, NOT_INSTALLED, NO_RECORD = range(8)
FEED_SILENT, STANDSTILL, OUTSIDE_HOURS = range(8, 11)
"""Reasons as numbers, in the order of `REASONS`. The first seven are those of single stations."""
