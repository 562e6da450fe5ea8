"""Time: bins of the wall clock, time zones, and the bins beyond the end of a record."""
