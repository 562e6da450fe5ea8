"""Many cities in one go: the Python side of ``unmet fleet``."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from unmet._exceptions import InputError, UnmetError
from unmet._storage.files import check_listable, real_path
from unmet.execution import (
    Executor,
    UnfitWorker,
    count_workers,
    describe_executor,
    in_processes,
    serially,
    shared,
    work_through,
)
from unmet.pipeline.config import CONFIG_NAME, make_settings, read_toml
from unmet.pipeline.running import run
from unmet.pipeline.settings import RunSettings
from unmet.report.cities import CitySummary, write_cities_page

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PAGE", "TABLE", "City", "cities_table", "find_cities", "run_cities"]

PAGE, TABLE = "fleet.html", "cities.parquet"
"""Files over all cities, in the folder of the results."""

_WORST = 3
_AT_ONCE = 3
"""Cities whose zones are under way: while one is finished, the workers have those of others."""

Progress = Callable[[int, int, str], None]
Result = TypeVar("Result")


@dataclass(frozen=True)
class City:
    """A city: its name, which is also that of its folder of results, and its settings, or what is wrong with them."""

    name: str
    settings: RunSettings | UnmetError

    def settings_for(self, jobs: int) -> RunSettings:
        """Return the settings for a number of workers; raise what is wrong with them."""
        if isinstance(self.settings, UnmetError):
            raise self.settings
        return replace(self.settings, jobs=jobs)


def find_cities(source: Path, out: Path) -> list[City]:
    """Read the settings of all cities.

    Parameters
    ----------
    source : Path
        A folder whose subfolders have an ``unmet.toml`` each, or a TOML file with a list ``cities`` of such files or
        folders, relative to it. A city is named after the folder of its ``unmet.toml``; of a symbolic link, after the
        link.
    out : Path
        Folder of the results: each city has a folder in it.

    Returns
    -------
    list of City
        A city whose file is not valid has the error in place of its settings.

    Raises
    ------
    InputError
        If there is no city, two have the same name, a folder may not be read, or a listed file does not exist.
    """
    configs = _inside(source) if source.is_dir() else _listed(source)
    if not configs:
        raise InputError(f"{source}: expected subfolders with a file {CONFIG_NAME} each; found none.")
    # Without following links: oslo and bergen may both link to a folder that is named after its date.
    found = [(os.path.basename(os.path.dirname(os.path.abspath(path))), path.absolute()) for path in configs]
    names = Counter(name for name, _ in found)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise InputError(f"{source}: two cities are named {twice[0]!r}, after the folder of their {CONFIG_NAME}.")
    for name, path in found:
        same = [other for other, config in found if other != name and real_path(config) == real_path(path)]
        if same and os.path.lexists(path):
            raise InputError(f"{source}: {name!r} and {same[0]!r} are links to the same city. Leave one of them out.")
        if name in ("", PAGE, TABLE) or not _is_utf8(name):
            raise InputError(
                f"{source}: a city is named {name!r}, after the folder of its {CONFIG_NAME}. Rename the folder: a name "
                f"is UTF-8 text, and not empty, {PAGE} or {TABLE}."
            )
    return [City(name, _settings(path, real_path(out / name))) for name, path in found]


def _settings(path: Path, out: Path) -> RunSettings | UnmetError:
    try:
        return make_settings(path, out=out)
    except UnmetError as error:
        if not os.path.lexists(path):
            raise  # the list is wrong, not the city
        return error


def _inside(source: Path) -> list[Path]:
    check_listable([source])
    check_listable(path for path in source.iterdir() if path.is_dir())
    return sorted(source.glob(f"*/{CONFIG_NAME}"))


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_path(given: object) -> bool:
    return isinstance(given, str) and "\0" not in given


def _listed(source: Path) -> list[Path]:
    document = read_toml(source)
    cities = document.get("cities")
    if not (isinstance(cities, list) and cities) or not all(map(_is_path, cities)) or len(document) > 1:
        raise InputError(f'{source}: expected one list, such as cities = ["oslo/{CONFIG_NAME}", "bergen"].')
    paths = [source.parent / city for city in cities]
    for path in paths:
        if not os.path.lexists(path):
            raise InputError(f"{path}: cannot read the settings: No such file or directory. Correct the list {source}.")
    return [path / CONFIG_NAME if path.is_dir() else path for path in paths]


def run_cities(
    cities: Sequence[City],
    out: Path,
    *,
    executor: Executor = in_processes,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[CitySummary]:
    """Run all cities, and write the table and the page over all of them.

    First come panel and city model of every city: each city is one piece of work if there are at least two per worker,
    else the cities follow each other and each uses all workers. Then the zones of all cities go to the workers in one
    stream, so that none waits for the last zones of a city. Results are those of `unmet.pipeline.run`. Stages that are
    finished are not repeated.

    Parameters
    ----------
    cities : sequence of City
        See `find_cities`.
    out : Path
        Folder of ``fleet.html`` and ``cities.parquet``.
    executor, jobs
        Where the work is done, and number of workers: see `unmet.execution`.
    progress : callable, optional
        Called as ``progress(done, cities, note)``.

    Returns
    -------
    list of CitySummary
        In the order of the cities. A city that could not be run has a reason.
    """
    from unmet._storage.parquet import write_parquet
    from unmet._storage.writing import check_places, replacing, writing

    check_places(out, (TABLE, PAGE))  # before hours of work
    describe_executor(executor)  # raises if its workers are unfit
    workers = count_workers(jobs, executor)
    report = progress or (lambda done, count, note: None)
    by_name = {city.name: city for city in cities}
    found: dict[str, CitySummary] = {}

    def keep(name: str, outcome: CitySummary | Exception) -> None:
        if isinstance(outcome, Exception):
            words = str(outcome) if isinstance(outcome, UnmetError) else f"{type(outcome).__name__}: {outcome}"
            outcome = CitySummary(name, reason=words)
        found[name] = outcome
        report(len(found), len(cities), f"{name}: {outcome.reason}" if outcome.reason else "")

    report(0, len(cities), "")
    with closing(_prepare_all(by_name, executor, workers)) as failed:
        for name, error in failed:
            keep(name, error)
    with closing(_finish_all([city for city in cities if city.name not in found], executor, workers)) as finished:
        for name, outcome in finished:
            keep(name, outcome)
    summaries = [found[city.name] for city in cities]
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        with replacing(out / TABLE) as aside:
            write_parquet(cities_table(summaries), aside)
        write_cities_page(out / PAGE, summaries)
    return summaries


def _prepare_all(
    cities: Mapping[str, City], executor: Executor, workers: int
) -> Generator[tuple[str, Exception], None, None]:
    """Make panel and city model of every city; yield the cities that could not be prepared."""
    if len(cities) >= 2 * workers:
        work = work_through(_prepare, list(cities), lambda names: cities[names[0]], executor=executor, jobs=workers)
        with closing(work):
            for (name,), outcome in work:
                if isinstance(outcome, Exception):
                    yield name, outcome
        return
    for city in cities.values():
        outcome = _outcome(_prepare, city, executor, workers)
        if isinstance(outcome, Exception):
            yield city.name, outcome


def _outcome(work: Callable[..., Result], *arguments: Any) -> Result | Exception:
    """Return the result or the exception; raise what concerns all cities."""
    try:
        return work(*arguments)
    except UnfitWorker:
        raise
    except Exception as error:
        return error


def _prepare(city: City, executor: Executor = serially, jobs: int = 1) -> None:
    from unmet.mobility.runs.run import Prepared

    with suppress(Prepared):
        run(city.settings_for(jobs), executor=executor, prepare=True)


def _finish_all(
    cities: Sequence[City], executor: Executor, workers: int
) -> Generator[tuple[str, CitySummary | Exception], None, None]:
    """Estimate the zones of all cities and write their reports; a few cities are under way at a time, in threads.

    With an executor that takes no calls from threads, the cities follow each other.
    """
    with ThreadPoolExecutor(_AT_ONCE) as threads, shared(executor, workers) as stream:
        if stream is None:
            yield from ((city.name, _outcome(_finish, city, executor, workers)) for city in cities)
            return
        try:
            futures = {threads.submit(_outcome, _finish, city, stream, workers): city.name for city in cities}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException as error:
            threads.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, KeyboardInterrupt):
                getattr(executor, "stop", lambda: None)()  # ends what is under way; processes end with `shared`
            raise


def cities_table(cities: Sequence[CitySummary]) -> pd.DataFrame:
    """Give the table over all cities: the attributes of `CitySummary`, lists as JSON.

    Examples
    --------
    >>> cities_table([CitySummary("Oslo", lost=3.0, wanted=30.0)])["lost_share"].tolist()
    [0.1]
    """
    import pandas as pd

    rows: list[dict[str, Any]] = [asdict(city) for city in cities]
    for row, city in zip(rows, cities, strict=True):
        row["lost_share"] = city.lost_share
        for name in ("worst", "findings"):
            row[name] = json.dumps(row[name], ensure_ascii=False)
    return pd.DataFrame(rows).astype(dict.fromkeys(("city", "report", "reason", "first", "last"), "str"))


def _finish(city: City, executor: Executor, jobs: int) -> CitySummary:
    """Run a city that is prepared."""
    outcome = run(city.settings_for(jobs), executor=executor)
    info, zones = outcome.estimate.info, outcome.estimate.zones
    totals, minutes = info["totals"], outcome.panel["minutes"]
    checks = json.loads(outcome.report.with_name("quality.json").read_text(encoding="utf-8"))
    worst = zones[zones["lost_mean"] > 0].nlargest(_WORST, "lost_mean")
    return CitySummary(
        city=city.name,
        report=f"{city.name}/{outcome.report.name}",
        first=outcome.panel["start_local"][:10],
        last=str(datetime.fromisoformat(outcome.panel["end_local"]) - timedelta(minutes=1))[:10],
        zones=info["zones"]["all"],
        zones_failed=info["zones"]["failed"],
        observed=totals["observed"]["mean"],
        wanted=totals["wanted"]["mean"],
        lost=totals["lost"]["mean"],
        lost_q05=totals["lost"]["q05"],
        lost_q95=totals["lost"]["q95"],
        walked_on=totals["walked_on"]["mean"],
        unknown_share=minutes["unknown"] / max(sum(minutes.values()), 1),
        worst=tuple(zip(map(str, worst["name"]), worst["lost_mean"].tolist(), strict=True)),
        findings=tuple(check["sentence"] for check in checks if not check["good"]),
    )
