"""Collect GBFS feeds: a history of station status made for `unmet`."""

from unmet.collect.clock import Clock
from unmet.collect.collector import Collected, System, collect
from unmet.collect.feeds import CollectorSettings
from unmet.collect.history import SystemHistory, find_histories

__all__ = ["Clock", "Collected", "CollectorSettings", "System", "SystemHistory", "collect", "find_histories"]
