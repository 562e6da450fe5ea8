"""Small runs to report on, and a real browser to look at the pages with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from report.small_runs import HOSTILE, Run, run_on
from unmet.simulate import City, simulate_city


@pytest.fixture(scope="session")
def city() -> City:
    # Over the change to summer time, with a closure and dead stations, so that every state occurs.
    return simulate_city(
        12, 16, seed=11, start="2024-03-04", timezone="America/New_York", demand=60.0, closures=1, dead_stations=1
    )


@pytest.fixture(scope="session")
def plain_run(city, tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("plain")
    city.truth.to_parquet(folder / "truth.parquet")
    stations = city.stations.assign(district=["North", "South"] * 6)
    run = run_on(city, folder, horizon=48, stations=stations, areas="district")
    return replace(run, truth=folder / "truth.parquet")


@pytest.fixture(scope="session")
def hostile_run(city, tmp_path_factory) -> Run:
    """The same city, its stations called by names that want to be something else."""
    renamed = dict(zip(city.stations["station_id"], HOSTILE, strict=True))
    called = city.stations["station_id"].map(renamed)
    stations = city.stations.assign(station_id=called, short_name=called, name=called)
    trips = city.trips.drop(columns=["start_station_name", "end_station_name"])
    for column in ("start_station_id", "end_station_id"):
        trips[column] = trips[column].map(renamed)
    return run_on(city, tmp_path_factory.mktemp("hostile"), trips=trips, stations=stations)


# ---- a browser


def find_chromium() -> str | None:
    """The browser named by $UNMET_CHROMIUM, else one of the usual names."""
    named = os.environ.get("UNMET_CHROMIUM")
    names = [named] if named else ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    return next((found for name in names if (found := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    # It ends with its module: its event loop would keep later tests of the same process from running their own.
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (unmet[dev])")
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium here: apt-get install chromium, or name one in $UNMET_CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        # A browser run by root has no sandbox of its own.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        launched = playwright.chromium.launch(executable_path=path, args=arguments)
        yield launched
        launched.close()


_PATIENCE = 60  # seconds


@dataclass
class Opened:
    """A page from disk, with what it complained of and asked for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def choose(self, action: Callable[[], object], zone: int) -> None:
        """Do something and wait until that zone is shown."""
        action()
        self.page.wait_for_selector(f"body[data-zone='{zone}']")

    def until(self, condition: str) -> None:
        """Wait until an expression holds, asked at every frame (the page's own policy forbids to evaluate text)."""
        look = (
            f"const look = () => (({condition}) ? done(true) : performance.now() > last ? done(false)"
            " : requestAnimationFrame(look)); look();"
        )
        last = f"const last = performance.now() + {1000 * _PATIENCE};"
        held = self.page.evaluate(f"() => new Promise((done) => {{ {last} {look} }})")
        assert held, f"did not hold within {_PATIENCE} seconds: {condition}"

    def column(self, number: int, table: str = "#zone-table") -> list[str]:
        cells = f"document.querySelectorAll('{table} tbody tr > :nth-child({number})')"
        return self.page.evaluate(f"Array.from({cells}, (cell) => cell.textContent)")


@pytest.fixture(scope="module")
def open_page(browser) -> Iterator[Callable[..., Opened]]:
    contexts = []

    def opened(path: Path, width: int = 1400, height: int = 900, **options: Any) -> Opened:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        found = Opened(context.new_page())
        found.page.on("console", lambda message: found.complaints.append(f"{message.type}: {message.text}"))
        found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.goto(path.resolve().as_uri(), timeout=120_000)  # 5 MB, on a busy machine
        found.page.wait_for_selector("body[data-ready=yes]", timeout=120_000)
        keep = os.environ.get("UNMET_SCREENSHOTS")
        if keep:
            Path(keep).mkdir(exist_ok=True, parents=True)
            found.page.screenshot(
                path=Path(keep) / f"{path.parent.name}-{path.stem}-{width}x{height}.png", full_page=True
            )
        return found

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def plain_page(plain_run, tmp_path_factory) -> Path:
    return plain_run.report(tmp_path_factory.mktemp("page") / "report.html", title="A city & its <riders>")


@pytest.fixture(scope="module")
def plain(plain_page, open_page) -> Opened:
    """One page for all who leave it usable for the next."""
    return open_page(plain_page)
