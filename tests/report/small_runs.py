"""Small runs to report on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmet.execution import serially
from unmet.mobility.demand import DemandModel
from unmet.mobility.panel import write_panel
from unmet.mobility.runs import run_estimates
from unmet.report import write_report
from unmet.simulate import City

HOSTILE = [
    "<script>window.hacked = 1</script>",
    "</script><img src=x onerror='window.hacked = 1'>",
    "\"quotes\" and 'apostrophes' & &amp; &lt;b&gt;",
    "comma, semicolon; and\ttab",
    "🚲 Vélo №1 自転車",
    (30 * "long name ")[:299] + "!",
    '=HYPERLINK("http://example.invalid", "click")',
    "@SUM(A1:A9)",
    "line\u2028separator\u2029paragraph",
    "%{y} $\\alpha$ <b>bold</b> {{data}}",
    "-1+2",
    "\u202eright to left",
]


@dataclass(frozen=True)
class Run:
    """A run and what it was made from."""

    folder: Path
    panel: Path
    truth: Path | None = None

    def report(self, out: Path, **options: Any) -> Path:
        return write_report(self.folder, out, panel=self.panel, truth=self.truth, **options)


def run_on(city: City, folder: Path, *, model: str = "weekly-mean", horizon: int = 0, **options: Any) -> Run:
    """The panel of a simulated city and a run on it. `options` are those of `write_panel`."""
    folder.mkdir(exist_ok=True)
    given = {"trips": city.trips, "status": city.status, "stations": city.stations, **options}
    write_panel(folder / "panel.parquet", timezone=city.settings.timezone, **given)
    settings = DemandModel(model, draws=40)
    run_estimates(folder / "panel.parquet", settings, folder / "run", horizon=horizon, executor=serially)
    return Run(folder / "run", folder / "panel.parquet")
