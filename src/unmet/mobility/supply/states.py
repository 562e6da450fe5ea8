"""The four states of a minute, and the reasons for them.

A minute's state is that of its first instant. Each minute has one *reason*, and each reason belongs to one state:

============== ============= ==========================================================================
state          reason        meaning
============== ============= ==========================================================================
``available``  vehicles      at least one station of the zone rents and has a vehicle
``stockout``   empty         the zone rents and none of its open stations has a vehicle
``closed``     not_reopened  no vehicle since the station was closed: it has not opened again, whatever its record says
``closed``     unused        open and empty for days, and nothing was brought where it usually is: closed without a word
``closed``     not_renting   the last record of each station reports that it does not rent
``closed``     not_installed the last record of each station reports that it is not installed
``closed``     dead          a docked station has neither a vehicle nor a free dock (a rider who takes the last
                             vehicle leaves a free dock)
``closed``     left          the station left the feed for good: no record for a week or more, until the feed ends
``closed``     standstill    no vehicle moves in the whole system, many moves would be expected, and the feed reports
``closed``     hours         outside the opening hours
``unknown``    feed_silent   the whole feed is silent for an improbably long time
``unknown``    far_apart     looks at the feed are too far apart at this time of day: a gap that repeats, or (if
                             pickups are inferred) a collector that slows down
``unknown``    implausible   trips start at the station while it shows no vehicle, too many to believe it
``unknown``    silent        the station is silent for an improbably long time while others report
``unknown``    undetermined  supply is netted from trips, and they do not show whether a vehicle was left
``unknown``    no_record     before the first record, after the last, or after a week of silence
============== ============= ==========================================================================

A zone of several stations has the first reason in this order that any of them has: vehicles, undetermined, silent,
implausible, empty, not_reopened, unused, not_renting, dead, not_installed, left, no_record. So a zone is in stock-out
only if all its open stations are and none is in an unknown state. Stations without a record do not count.
"""

from __future__ import annotations

__all__ = [
    "DEAD",
    "EMPTY",
    "FAR_APART",
    "FEED_SILENT",
    "IMPLAUSIBLE",
    "LEFT",
    "NOT_INSTALLED",
    "NOT_RENTING",
    "NOT_REOPENED",
    "NO_RECORD",
    "OUTSIDE_HOURS",
    "REASONS",
    "SILENT",
    "STANDSTILL",
    "STATES",
    "STATE_MINUTES",
    "UNDETERMINED",
    "UNUSED",
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
    "implausible": "unknown",
    "empty": "stockout",
    "not_reopened": "closed",
    "unused": "closed",
    "not_renting": "closed",
    "dead": "closed",
    "not_installed": "closed",
    "left": "closed",
    "no_record": "unknown",
    "feed_silent": "unknown",
    "far_apart": "unknown",
    "standstill": "closed",
    "hours": "closed",
}
WORDS: dict[str, str] = {  # reason → words for tables and reports
    "vehicles": "a vehicle to rent",
    "empty": "open, nothing to rent",
    "not_reopened": "closed, not yet re-opened",
    "unused": "closed for days without saying so",
    "not_renting": "stations report that they do not rent",
    "not_installed": "not installed",
    "dead": "neither a vehicle nor a dock",
    "left": "left the feed",
    "standstill": "no vehicle moves in the system",
    "hours": "outside opening hours",
    "feed_silent": "the whole feed is silent",
    "far_apart": "looks at the feed are too far apart",
    "silent": "the station is silent",
    "implausible": "trips start although it shows no vehicle",
    "undetermined": "not known from trips alone",
    "no_record": "before the first or after the last record",
}
VEHICLES, UNDETERMINED, SILENT, IMPLAUSIBLE, EMPTY = range(5)
NOT_REOPENED, UNUSED, NOT_RENTING, DEAD, NOT_INSTALLED, LEFT, NO_RECORD = range(5, 12)
FEED_SILENT, FAR_APART, STANDSTILL, OUTSIDE_HOURS = range(12, 16)
"""Codes of the reasons, in the order of `REASONS`. Those before `NO_RECORD` are reasons of single stations."""
