"""The four states of a minute, and the reasons for them.

A minute's state is that of its first instant. Each minute has one *reason*, and each reason belongs to one state:

============== ============= ==========================================================================
state          reason        meaning
============== ============= ==========================================================================
``available``  vehicles      at least one station of the zone rents and has a vehicle
``stockout``   empty         the zone rents and none of its open stations has a vehicle
``closed``     not_renting   the last record of each station reports that it does not rent
``closed``     not_installed the last record of each station reports that it is not installed
``closed``     dead          a docked station has neither a vehicle nor a free dock (a rider who takes the last
                             vehicle leaves a free dock)
``closed``     standstill    no vehicle moves in the whole system, many moves would be expected, and the feed reports
``closed``     hours         outside the opening hours
``unknown``    feed_silent   the whole feed is silent for an improbably long time
``unknown``    silent        the station is silent for an improbably long time while others report
``unknown``    undetermined  supply is netted from trips, and they do not show whether a vehicle was left
``unknown``    no_record     before the first record, after the last, or after a week of silence
============== ============= ==========================================================================

A zone of several stations has the first reason in this order that any of them has: vehicles, undetermined, silent,
empty, not_renting, dead, not_installed, no_record. So a zone is in stock-out only if all its open stations are and none
is in an unknown state. Stations without a record do not count.
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

REASONS: dict[str, str] = {  # reason → state, in the order of precedence in a zone of several stations
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
WORDS: dict[str, str] = {  # reason → words for tables and reports
    "vehicles": "a vehicle to rent",
    "empty": "open, nothing to rent",
    "not_renting": "stations report that they do not rent",
    "not_installed": "not installed",
    "dead": "neither a vehicle nor a dock",
    "standstill": "no vehicle moves in the system",
    "hours": "outside opening hours",
    "feed_silent": "the whole feed is silent",
    "silent": "the station is silent",
    "undetermined": "not known from trips alone",
    "no_record": "before the first or after the last record",
}
VEHICLES, UNDETERMINED, SILENT, EMPTY, NOT_RENTING, DEAD, NOT_INSTALLED, NO_RECORD = range(8)
FEED_SILENT, STANDSTILL, OUTSIDE_HOURS = range(8, 11)
"""Codes of the reasons, in the order of `REASONS`. The first seven are reasons of single stations."""
