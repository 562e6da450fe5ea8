"""Time: bins of the wall clock, time zones, and bins after the end of a panel."""
