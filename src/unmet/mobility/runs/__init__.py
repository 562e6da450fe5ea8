"""Runs: the estimates of all zones of a panel, computed in parallel and resumed after a stop."""

from unmet.mobility.runs.run import RunResult, read_run, run_estimates

__all__ = ["RunResult", "read_run", "run_estimates"]
