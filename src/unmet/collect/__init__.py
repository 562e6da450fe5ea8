"""Collect GBFS feeds: a history of station status made for `unmet`."""

from unmet.collect.collector import Clock, CollectorSettings, System, collect
from unmet.collect.history import SystemHistory, find_histories, read_table

__all__ = ["Clock", "CollectorSettings", "System", "SystemHistory", "collect", "find_histories", "read_table"]
