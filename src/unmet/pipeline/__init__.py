"""Run panel, estimate and report from an operator's files: the Python side of ``unmet run``.

::

    from unmet.pipeline import make_settings, run

    outcome = run(make_settings("unmet.toml"))
    print(outcome.report, outcome.estimate.info["totals"]["lost"])
"""

from __future__ import annotations

from unmet.pipeline.config import example_config, make_settings, read_config, write_example
from unmet.pipeline.events import Event, Stage
from unmet.pipeline.running import RunOutcome, run
from unmet.pipeline.settings import RunSettings

__all__ = [
    "Event",
    "RunOutcome",
    "RunSettings",
    "Stage",
    "example_config",
    "make_settings",
    "read_config",
    "run",
    "write_example",
]
