"""Comparison of demand models where the truth is known: on hidden weeks, and on days with supply cut.

`unmet.mobility.backtest.trials` describes the tasks, `unmet.mobility.backtest.scoring` the scores.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from unmet._exceptions import InputError, UnmetError
from unmet._numbers import is_whole, read_numbers, read_rate
from unmet.execution import Executor, count_workers, describe_executor, in_processes, serially, work_through
from unmet.mobility.backtest.scoring import answer, metrics_of, tally, tidy
from unmet.mobility.backtest.trials import HELD_OUT, TASKS, Trial, hold_out, replay
from unmet.mobility.models.city import CityModel, learn_city, with_city
from unmet.mobility.models.rates import ModelFunction
from unmet.mobility.models.registry import COMPARED_MODELS, MODELS, ZoneModel, check_draws, find_model
from unmet.mobility.models.zone_data import ZoneData, zone_data
from unmet.mobility.panel.file import PanelFile
from unmet.mobility.panel.opening import AnyPanel, opened
from unmet.mobility.panel.reference import PanelReference
from unmet.mobility.runs.worker import check_rows
from unmet.spreading import Spread, spread_over_processes

__all__ = ["DEFAULT_MODELS", "Backtest", "ModelFunction", "backtest"]

DEFAULT_MODELS = COMPARED_MODELS

_GROUP = ["model", "task", "subset"]


@dataclass(frozen=True)
class Backtest:
    """Scores of several models.

    Attributes
    ----------
    scores : DataFrame
        ``zone, model, task, subset, metric, value``: each zone by itself.
    summary : DataFrame
        ``model, task, subset, metric, value, se, zones``: all bins of all zones together. Only zones that every model
        could estimate count, so that all models are compared on the same zones; a model that failed everywhere is left
        out. ``se`` is the jackknife standard error over zones.
    fits : DataFrame
        ``zone, model, task, fold, reason, message, converged, seconds``: one row per fit. `reason` is why a fit failed,
        `message` contains its warnings.
    """

    scores: pd.DataFrame
    summary: pd.DataFrame
    fits: pd.DataFrame

    @property
    def failed(self) -> pd.DataFrame:
        """The fits that failed."""
        return self.fits[self.fits["reason"].notna()]


@dataclass(frozen=True)
class _Design:
    """The trials of every zone, and the models that are tried."""

    models: dict[str, ZoneModel]
    tasks: tuple[str, ...]
    folds: int
    share: float
    seed: int
    draws: int

    def __post_init__(self) -> None:
        if not self.models:
            raise InputError(f"models: expected at least one of {', '.join(MODELS)}, or a ZoneModel; got none.")
        if not is_whole(self.folds):
            raise InputError(f"folds: expected a whole number of at least 1, got {self.folds!r:.60}.")
        if not self.tasks:
            raise InputError(f"tasks: expected at least one of {', '.join(TASKS)}; got none.")
        if unknown := [task for task in self.tasks if task not in TASKS]:
            raise InputError(f"no task {unknown[0]!r}; expected some of {', '.join(TASKS)}")
        if self.folds < 1 or not 0 < self.share < 1 or self.folds * self.share > 1:
            raise InputError(
                f"folds (1 or more) times share (between 0 and 1) may not exceed 1, because each fold has weeks of "
                f"its own; got {self.folds} and {self.share}"
            )
        check_draws(self.draws, self.seed)


def backtest(
    panel: AnyPanel,
    models: Sequence[str | ZoneModel] | Mapping[str, ModelFunction] = DEFAULT_MODELS,
    *,
    features: pd.DataFrame | None = None,
    tasks: Sequence[str] = TASKS,
    folds: int = 1,
    share: float = 0.2,
    seed: int = 0,
    draws: int = 200,
    jobs: int | None = None,
    executor: Executor = in_processes,
    progress: Callable[[int, int, str], None] | None = None,
) -> Backtest:
    """Compare models on held-out weeks and on replays with supply cut.

    Parameters
    ----------
    panel : path, PanelFile, Panel or DataFrame
        A panel, as its Parquet file or its rows.
    models : sequence of str and ZoneModel, or mapping
        Names of models, and models of one's own; or name → function.
    features : DataFrame, optional
        Columns to join to every zone's rows by ``start``.
    tasks : sequence of str
        ``held-out``, ``replay``.
    folds : int
        Number of repetitions of each task, each with weeks (days) of its own.
    share : float
        Share of the weeks that are hidden, and of the days that are cut, in each fold.
    seed : int
        The same seed gives the same trials and scores.
    draws : int
        Number of draws of each model.
    jobs : int, optional
        Number of workers; one per processor by default.
    executor : callable
        Where the work is done: see `unmet.execution`.
    progress : callable, optional
        Called as ``progress(done, zones, note)``.

    Returns
    -------
    Backtest

    Raises
    ------
    InputError
        If the panel cannot be read, or every fit failed.

    Examples
    --------
    >>> from unmet.execution import serially
    >>> start = pd.date_range("2024-01-01", periods=28 * 24, freq="h", tz="UTC")
    >>> panel = pd.DataFrame({"zone": "a", "start": start, "start_local": start.tz_localize(None), "minutes": 60})
    >>> panel["observed"] = np.random.default_rng(1).poisson(2.0, len(panel))
    >>> for state, minutes in {"available": 60, "stockout": 0, "closed": 0, "unknown": 0}.items():
    ...     panel[f"{state}_minutes"] = minutes
    >>> panel["exposure"], panel["censored"] = 1.0, False
    >>> done = backtest(panel, ["observed", "weekly-mean"], tasks=["replay"], executor=serially)
    >>> bias = done.summary.query("metric == 'bias' and subset == 'all'")
    >>> bias[["model", "value"]].round(1).to_string(index=False, header=False).split()
    ['observed', '-0.6', 'weekly-mean', '0.0']
    """
    for name, given in (("models", models), ("tasks", tasks)):
        if isinstance(given, str) or not np.iterable(given):
            raise InputError(f"{name}: expected a list of names, got {given!r:.60}.")
    share = read_rate(share, "share")
    design = _Design(_records(models), tuple(dict.fromkeys(tasks)), folds, share, seed, draws)
    report = progress or (lambda done, zones, note: None)
    describe_executor(executor)  # raises if its workers are unfit
    workers = count_workers(jobs, executor)
    with opened(panel) as file:
        if features is not None:
            _check_features(features, file)
        file.set_features(features)
        file.set_future(None)
        report(0, len(file.zones), "")
        reference = PanelReference.of(file, features) if getattr(executor, "by_reference", False) else None
        # In processes of this machine, whatever the executor: see `unmet.spreading`.
        with spread_over_processes(1 if executor is serially else min(workers, count_workers(None))) as spread:
            cities = _learn_cities(file, design, report, spread)
        work = partial(_try_zone, design=design, cities=cities, reference=reference)
        results = _try_zones(file, work, executor, workers, report, reference)
        done = [results[zone] for zone in file.zones]
    fits = pd.concat([fits for _, fits in done], ignore_index=True)
    if fits["reason"].notna().all():
        raise InputError(f"every fit failed; zone {fits['zone'][0]}: {fits['reason'][0]}")
    sums = pd.concat([sums for sums, _ in done if len(sums)], ignore_index=True)
    return Backtest(tidy(sums, ["zone", *_GROUP]), _summary(sums), fits)


def _records(models: Sequence[str | ZoneModel] | Mapping[str, ModelFunction]) -> dict[str, ZoneModel]:
    if isinstance(models, Mapping):
        return {
            name: replace(model, name=name) if isinstance(model, ZoneModel) else ZoneModel(name, model)
            for name, model in models.items()
        }
    return {record.name: record for record in map(find_model, models)}


def _check_features(features: pd.DataFrame, file: PanelFile) -> None:
    """Refuse features that a model would leave out or fill in without a word."""
    if not isinstance(features, pd.DataFrame) or "start" not in features.columns:
        raise InputError("features: expected a pandas DataFrame with a column 'start', one row per bin of the panel.")
    for name in features.columns.drop("start"):
        values = read_numbers(features[name], f"features: {name}")
        if not (np.abs(values) <= _LARGEST_FEATURE).all():
            raise InputError(
                f"features: {name} must be numbers of at most {_LARGEST_FEATURE:g} in size, without NaN. Fill in what "
                "is missing."
            )
    try:
        start = pd.to_datetime(features["start"], utc=True)
    except (TypeError, ValueError) as error:
        raise InputError(f"features: start must be times; {error}.") from None
    bins = pd.to_datetime(file.bins()["start"], utc=True)
    without = bins[~bins.isin(start)]
    if len(without):
        raise InputError(
            f"features: {len(without):,} of {len(bins):,} bins of the panel have no row, such as {without.iloc[0]}. "
            "Give a row for the start of every bin."
        )


_LARGEST_FEATURE = 1e100
_Item = tuple[str, pd.DataFrame | None]  # a zone and its rows; None if the worker reads them
_Done = tuple[pd.DataFrame, pd.DataFrame]  # sums of scores, and the list of fits
_Cities = dict[tuple[str, int], CityModel | None]  # by task and fold
_Report = Callable[[int, int, str], None]


def _try_zones(
    file: PanelFile,
    work: Callable[[_Item], _Done],
    executor: Executor,
    jobs: int,
    report: _Report,
    reference: PanelReference | None,
) -> dict[str, _Done]:
    """Try the models on every zone."""
    results: dict[str, _Done] = {}

    def load(zones: tuple[str, ...]) -> _Item:
        return zones[0], file.rows_of(zones[0]) if reference is None else None

    def lost(zones: tuple[str, ...], error: Exception) -> None:
        report(len(results), len(file.zones), f"The worker on {zones[0]} was lost; the zone is tried again.")

    with closing(work_through(work, file.zones, load, executor=executor, jobs=jobs, lost=lost)) as outcomes:
        for (zone,), outcome in outcomes:
            if reference is not None and isinstance(outcome, UnmetError):
                raise outcome  # the panel is out of reach: no zone is to blame
            if isinstance(outcome, Exception):
                outcome = pd.DataFrame(), _fits([_no_fit(zone, _reason(outcome))])
            results[zone] = outcome
            report(len(results), len(file.zones), "")
    return results


def _learn_cities(file: PanelFile, design: _Design, report: _Report, spread: Spread) -> _Cities:
    """Learn the city model of each trial, from the data that the trial does not hide."""
    if not any(model.uses_city for model in design.models.values()):
        return {}
    report(0, len(file.zones), "Learning the city model.")

    def left(task: str, fold: int) -> Iterator[tuple[pd.DataFrame, ZoneData]]:
        for zone in file.zones:
            rows = file.rows_of(zone)
            try:
                data = _trial(rows, task, fold, design).data
            except Exception:  # reported when the zone itself is tried
                continue
            yield rows, data

    found: _Cities = {}
    for trial in product(design.tasks, range(design.folds)):
        try:
            found[trial] = learn_city(left(*trial), design.seed, spread)
        except MemoryError:
            raise
        except Exception as error:
            report(
                0, len(file.zones), f"The city model could not be learnt ({error}): each zone is estimated by itself."
            )
    return found


def _try_zone(item: _Item, *, design: _Design, cities: _Cities, reference: PanelReference | None) -> _Done:
    """Try the models on one zone: a plain function of its rows, which may run anywhere."""
    zone, rows = item
    if rows is None:
        assert reference is not None
        with reference.opened() as file:
            rows = file.rows_of(zone)
    sums: dict[tuple[str, str], list[pd.DataFrame]] = {}
    fits = []
    for task, fold in product(design.tasks, range(design.folds)):
        try:
            trial = _trial(rows, task, fold, design)
            trial = replace(trial, data=with_city(trial.data, cities.get((task, fold))))
        except UnmetError as error:
            fits += [_no_fit(zone, _reason(error), model, task, fold) for model in design.models]
            continue
        seed = int(np.random.SeedSequence([design.seed, fold, *zone.encode()]).generate_state(1)[0] // 2)
        for name, model in design.models.items():
            table, fit = _try_model(trial, model, design.draws, seed)
            fits.append({"zone": zone, "model": name, "task": task, "fold": fold, **fit})
            sums.setdefault((name, task), []).append(table)
    failed = {(fit["model"], fit["task"]) for fit in fits if fit["reason"] is not None}
    tables = [table.assign(model=key[0]) for key, kept in sums.items() if key not in failed for table in kept]
    return _added(pd.concat(tables).assign(zone=zone), ["zone", *_GROUP]) if tables else pd.DataFrame(), _fits(fits)


def _trial(rows: pd.DataFrame, task: str, fold: int, design: _Design) -> Trial:
    check_rows(rows)
    data = zone_data(rows)
    if task == HELD_OUT:
        return hold_out(data, fold=fold, folds=design.folds, share=design.share, seed=design.seed)
    ordered = rows.sort_values("start")  # the order of the data
    returns = ordered["returns"].to_numpy(dtype=float, na_value=np.nan) if "returns" in ordered else None
    return replay(data, returns, fold=fold, folds=design.folds, share=design.share, seed=design.seed)


def _try_model(trial: Trial, model: ZoneModel, draws: int, seed: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Give the sums of a model's scores, and facts about the fit; a model that fails has a reason instead of sums."""
    began = time.process_time()
    table, reason, summary = pd.DataFrame(), None, {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", DeprecationWarning)  # concerns authors of models, not users
        try:
            rates = model(trial.data, draws, seed)
            table, summary = tally(trial, *answer(trial, rates, seed)), rates.summary
        except MemoryError:
            raise
        except Exception as error:
            reason = _reason(error)
    messages = dict.fromkeys([str(summary.get("message") or ""), *(str(w.message) for w in caught)])
    return table, {
        "reason": reason,
        "message": "; ".join(filter(None, messages)),
        "converged": bool(summary.get("converged", False)),
        "seconds": time.process_time() - began,
    }


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, UnmetError) else f"{type(error).__name__}: {error}".rstrip(": ")


def _no_fit(zone: str, reason: str, model: str = "", task: str = "", fold: int = 0) -> dict[str, Any]:
    """Make the row of a fit that was not started."""
    facts = {"reason": reason, "message": "", "converged": False, "seconds": 0.0}
    return {"zone": zone, "model": model, "task": task, "fold": fold, **facts}


def _fits(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows).astype({"reason": "str", "message": "str"})


def _added(sums: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Add sums; a sum that is missing everywhere stays missing."""
    return sums.groupby(keys, sort=False, as_index=False).sum(min_count=1)


def _summary(sums: pd.DataFrame) -> pd.DataFrame:
    """Score all zones that every model could estimate, together, with jackknife standard errors over zones."""
    tables = []
    for _, of_task in sums.groupby("task", sort=False):
        tried = of_task.groupby("zone")["model"].nunique()
        common = of_task[of_task["zone"].isin(tried.index[tried == of_task["model"].nunique()])]
        for (model, task, subset), group in common.groupby(_GROUP, sort=False):
            parts = group.drop(columns=["zone", *_GROUP])
            total = parts.sum(min_count=1)
            value = metrics_of(total.to_frame().T).iloc[0]
            without = metrics_of(total - parts.fillna(0.0)).drop(columns=["rows", "trips"])
            count = len(parts)
            table = value.rename("value").rename_axis("metric").reset_index()
            table["se"] = table["metric"].map(np.sqrt((count - 1) * without.var(ddof=0)) if count > 1 else {})
            tables.append(table.assign(model=str(model), task=str(task), subset=str(subset), zones=count))
    if not tables:
        raise InputError(
            "no zone could be estimated by every model; name fewer models, or see the reasons in the list of fits"
        )
    columns = [*_GROUP, "metric", "value", "se", "zones"]
    return pd.concat(tables)[columns].dropna(subset="value", ignore_index=True)
