"""Runs: the estimates of all zones of a panel, computed in parallel and resumed after a stop."""

from unmet.mobility.runs.result import RunResult, read_run
from unmet.mobility.runs.run import run_estimates

__all__ = ["RunResult", "read_run", "run_estimates"]
