"""Which model is right? Models compared where the truth is known: on hidden weeks, and on days with supply cut.

`unmet.mobility.backtest.trials` describes the tasks, `unmet.mobility.backtest.scoring` the scores.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import cpu_count
from threadpoolctl import threadpool_limits

from unmet._exceptions import InputError, UnmetError
from unmet._storage.parquet import write_parquet
from unmet.execution import Executor, WorkerDied, in_processes
from unmet.mobility.backtest.scoring import answer, metrics_of, tally, tidy
from unmet.mobility.backtest.trials import HELD_OUT, TASKS, Trial, hold_out, replay
from unmet.mobility.models.city import Shared, learn_shared, with_shared
from unmet.mobility.models.zone_data import ZoneData, zone_data
from unmet.mobility.models.zone_models import MODELS, Rates, exposure
from unmet.mobility.panel.file import PanelFile, open_panel
from unmet.mobility.runs.worker import check_rows

__all__ = ["DEFAULT_MODELS", "Backtest", "ModelFunction", "backtest"]

ModelFunction = Callable[[ZoneData, int, int], Rates]
"""A zone's data, a number of draws and a seed → what the model says."""

DEFAULT_MODELS = ("exposure", "weekly-mean", "drop-censored", "observed")

_GROUP = ["model", "task", "subset"]


@dataclass(frozen=True)
class Backtest:
    """How models did.

    Attributes
    ----------
    scores : DataFrame
        ``zone, model, task, subset, metric, value``: every zone by itself.
    summary : DataFrame
        ``model, task, subset, metric, value, se, zones``: all bins of all zones together. Only zones that every model
        could do count, or models would be compared on different zones; a model that failed everywhere is left out.
        ``se`` is the standard error by leaving out one zone at a time.
    fits : DataFrame
        ``zone, model, task, fold, reason, message, converged, seconds``: one row per fit; `reason` says why one could
        not be done, `message` what was said on the way.
    """

    scores: pd.DataFrame
    summary: pd.DataFrame
    fits: pd.DataFrame

    @property
    def failed(self) -> pd.DataFrame:
        """The fits that could not be done."""
        return self.fits[self.fits["reason"].notna()]


@dataclass(frozen=True)
class _Plan:
    """What is done with every zone."""

    models: dict[str, ModelFunction]
    tasks: tuple[str, ...]
    folds: int
    share: float
    seed: int
    draws: int

    def __post_init__(self) -> None:
        if not self.models:
            raise InputError(f"no model is named; there are {', '.join(MODELS)}")
        if unknown := [task for task in self.tasks if task not in TASKS]:
            raise InputError(f"no task {unknown[0]!r}; there are {', '.join(TASKS)}")
        if self.folds < 1 or not 0 < self.share < 1 or self.folds * self.share > 1:
            raise InputError(
                f"folds (1 or more) times share (above 0, below 1) may not exceed 1, as each has weeks of its own; "
                f"got {self.folds} and {self.share}"
            )
        if self.draws < 20:
            raise InputError(f"draws must be 20 or more for intervals to mean anything; got {self.draws}")


def backtest(
    panel: str | Path | pd.DataFrame,
    models: Sequence[str] | Mapping[str, ModelFunction] = DEFAULT_MODELS,
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
    panel : path or DataFrame
        A panel, as its Parquet file or its rows.
    models : sequence of str, or mapping
        Names of models; or name → function, for models of one's own.
    features : DataFrame, optional
        Columns to join to every zone's rows by ``start``.
    tasks : sequence of str
        ``held-out``, ``replay``.
    folds : int
        How often each task is repeated, with weeks (days) of its own.
    share : float
        How many of the weeks are hidden, and of the days cut, each time.
    seed : int
        The same seed gives the same trials and scores.
    draws : int
        Draws asked of each model.
    jobs : int, optional
        Worker processes; as many as there are processors unless given.
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
        Where the panel cannot be read, or no model could be tried on any zone.

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
    plan = _Plan(_functions(models), tuple(tasks), folds, share, seed, draws)
    say = progress or (lambda done, zones, note: None)
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="unmet-"))) / "panel.parquet"
        if isinstance(panel, pd.DataFrame):
            write_parquet(panel, path)
        file = stack.enter_context(open_panel(path if isinstance(panel, pd.DataFrame) else panel))
        if features is not None:
            file.add_features(features)
        say(0, len(file.zones), "")
        work = partial(_zone, plan=plan, shared=_learn_shared(file, plan, say))
        results = _work_off(file, work, executor, jobs or int(cpu_count()), say)
    done = [results[zone] for zone in file.zones]
    fits = pd.concat([fits for _, fits in done], ignore_index=True)
    if fits["reason"].notna().all():
        raise InputError(f"no model could be tried on any zone; zone {fits['zone'][0]}: {fits['reason'][0]}")
    sums = pd.concat([sums for sums, _ in done if len(sums)], ignore_index=True)
    return Backtest(tidy(sums, ["zone", *_GROUP]), _summary(sums), fits)


def _functions(models: Sequence[str] | Mapping[str, ModelFunction]) -> dict[str, ModelFunction]:
    if isinstance(models, Mapping):
        return dict(models)
    if unknown := [name for name in models if name not in MODELS]:
        raise InputError(f"no model {unknown[0]!r}; there are {', '.join(MODELS)}")
    return {name: MODELS[name] for name in models}


_Item = tuple[str, pd.DataFrame]
_Done = tuple[pd.DataFrame, pd.DataFrame]
_SharedByTrial = dict[tuple[str, int], Shared | None]


def _work_off(
    file: PanelFile,
    work: Callable[[_Item], _Done],
    executor: Executor,
    jobs: int,
    say: Callable[[int, int, str], None],
) -> dict[str, _Done]:
    """Work through the zones; those lost with a worker once more, one at a time, so that what dies then is to blame."""
    results: dict[str, _Done] = {}

    def items(zones: Sequence[str]) -> Iterator[_Item]:
        for zone in zones:
            yield zone, file.rows_of(zone)

    for at_once in (jobs, 1):
        left = [zone for zone in file.zones if zone not in results]
        if not left:
            break
        with closing(executor(work, items(left), at_once)) as outcomes:
            for (zone, _), outcome in outcomes:
                if isinstance(outcome, WorkerDied | MemoryError) and at_once > 1:
                    say(len(results), len(file.zones), f"The worker on {zone} was lost; it is tried again.")
                    continue
                if isinstance(outcome, Exception):
                    outcome = pd.DataFrame(), _fits([_no_fit(zone, _reason(outcome))])
                results[zone] = outcome
                say(len(results), len(file.zones), "")
    return results


def _learn_shared(file: PanelFile, plan: _Plan, say: Callable[[int, int, str], None]) -> _SharedByTrial:
    """What the zones share, for each trial from what it leaves of them: nothing that is hidden may come in this way."""
    if exposure not in plan.models.values():
        return {}
    say(0, len(file.zones), "Learning what the zones share.")

    def left(task: str, fold: int) -> Iterator[tuple[pd.DataFrame, ZoneData]]:
        for zone in file.zones:
            rows = file.rows_of(zone)
            try:
                data = _trial(rows, task, fold, plan).data
            except Exception:  # told when the zone itself is tried
                continue
            yield rows, data

    found: _SharedByTrial = {}
    for trial in product(plan.tasks, range(plan.folds)):
        try:
            found[trial] = learn_shared(left(*trial), plan.seed)
        except MemoryError:
            raise
        except Exception as error:
            say(0, len(file.zones), f"What the zones share could not be learnt ({error}): each is tried by itself.")
    return found


def _zone(item: _Item, *, plan: _Plan, shared: _SharedByTrial) -> _Done:
    """Sums of scores and the list of fits of one zone: a plain function of its rows, to be run anywhere."""
    zone, rows = item
    sums: dict[tuple[str, str], list[pd.DataFrame]] = {}
    fits = []
    with threadpool_limits(limits=1):
        for task, fold in product(plan.tasks, range(plan.folds)):
            try:
                trial = _trial(rows, task, fold, plan)
                trial = replace(trial, data=with_shared(trial.data, shared.get((task, fold))))
            except UnmetError as error:
                fits += [_no_fit(zone, _reason(error), model, task, fold) for model in plan.models]
                continue
            seed = int(np.random.SeedSequence([plan.seed, fold, *zone.encode()]).generate_state(1)[0] // 2)
            for name, function in plan.models.items():
                table, fit = _tried(trial, function, plan.draws, seed)
                fits.append({"zone": zone, "model": name, "task": task, "fold": fold, **fit})
                sums.setdefault((name, task), []).append(table)
    failed = {(fit["model"], fit["task"]) for fit in fits if fit["reason"] is not None}
    tables = [table.assign(model=key[0]) for key, kept in sums.items() if key not in failed for table in kept]
    return _added(pd.concat(tables).assign(zone=zone), ["zone", *_GROUP]) if tables else pd.DataFrame(), _fits(fits)


def _trial(rows: pd.DataFrame, task: str, fold: int, plan: _Plan) -> Trial:
    check_rows(rows)
    data = zone_data(rows)
    if task == HELD_OUT:
        return hold_out(data, fold=fold, folds=plan.folds, share=plan.share, seed=plan.seed)
    ordered = rows.sort_values("start")  # as in the data
    returns = ordered["returns"].to_numpy(dtype=float, na_value=np.nan) if "returns" in ordered else None
    return replay(data, returns, fold=fold, folds=plan.folds, share=plan.share, seed=plan.seed)


def _tried(trial: Trial, function: ModelFunction, draws: int, seed: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A model's sums, and what to tell of the fit; a model that fails has a reason instead of sums."""
    began = time.process_time()
    table, reason, summary = pd.DataFrame(), None, {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", DeprecationWarning)  # for those who write models, not for those who run them
        try:
            rates = function(trial.data, draws, seed)
            table, summary = tally(trial, *answer(trial, rates, seed)), rates.summary
        except MemoryError:
            raise
        except Exception as error:
            reason = _reason(error)
    said = dict.fromkeys([str(summary.get("message") or ""), *(str(w.message) for w in caught)])
    return table, {
        "reason": reason,
        "message": "; ".join(filter(None, said)),
        "converged": bool(summary.get("converged", False)),
        "seconds": time.process_time() - began,
    }


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, UnmetError) else f"{type(error).__name__}: {error}".rstrip(": ")


def _no_fit(zone: str, reason: str, model: str = "", task: str = "", fold: int = 0) -> dict[str, Any]:
    """The row of a fit that was not even begun; without a model or task where none was."""
    told = {"reason": reason, "message": "", "converged": False, "seconds": 0.0}
    return {"zone": zone, "model": model, "task": task, "fold": fold, **told}


def _fits(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows).astype({"reason": "str", "message": "str"})


def _added(sums: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Sums of sums; what is missing everywhere stays missing."""
    return sums.groupby(keys, sort=False, as_index=False).sum(min_count=1)


def _summary(sums: pd.DataFrame) -> pd.DataFrame:
    """All zones that every model could do, together, with standard errors by leaving out one zone at a time."""
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
        raise InputError("no zone could be done by every model; name fewer models, or see why in the list of fits")
    columns = [*_GROUP, "metric", "value", "se", "zones"]
    return pd.concat(tables)[columns].dropna(subset="value", ignore_index=True)
