"""Tables and files of a backtest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from unmet._storage.folders import remove_if_empty
from unmet._storage.parquet import write_parquet
from unmet._storage.writing import check_places, replacing_files, writing
from unmet._typing import Array
from unmet.mobility.backtest.compare import Backtest
from unmet.mobility.backtest.trials import ALL, CUT, FULL, HALF_OR_MORE, HELD_OUT, REPLAY, UNDER_HALF, ZERO

__all__ = ["FILES", "ReadableTable", "folder_for", "markdown", "readable_tables", "writing_backtest"]

FILES = ("scores.parquet", "summary.csv", "fits.parquet", "backtest.md")
_ADVICE = "Existing files are unchanged: free some space or choose another folder."


@dataclass(frozen=True)
class ReadableTable:
    """A table of scores; its cells are text.

    Attributes
    ----------
    title, note : str
        Title, and how to read the table.
    columns : tuple of str
        Names of the columns; the first is the model.
    rows : tuple of tuples of str
        One per model.
    """

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


_Columns = dict[str, tuple[str, str]]


def _shared(subset: str) -> _Columns:
    scores = {"WAPE": "wape", "RMSE": "rmse", "CRPS": "crps"}
    inside = {f"in {level} %": f"calibration_{level}" for level in (50, 80, 95)}
    return {name: (subset, metric) for name, metric in (scores | inside).items()}


_TABLES: tuple[tuple[str, str, str, _Columns], ...] = (
    (
        HELD_OUT,
        "Held-out weeks",
        "Bias: all bins, pickups against rate times exposure, ± a standard error over zones. Of fully available bins, "
        "the bias of a correct model is above 0, because bins without stock-outs had little demand. Other columns: "
        "fully available bins. 'In 80 %': share of true values in the 80 % interval, ties broken evenly.",
        {"bias": (ALL, "bias"), "of available": (FULL, "bias"), **_shared(FULL)},
    ),
    (
        REPLAY,
        "Replay with supply cut, bias",
        "All replayed bins, ± a standard error over zones; bins by the exposure that the cut left. Correlations of the "
        "estimate and of its error with the stock-out share, within hours of the week: the error's should be 0.",
        {
            "bias": (ALL, "bias"),
            ">= half": (HALF_OR_MORE, "bias"),
            "< half": (UNDER_HALF, "bias"),
            "zero": (ZERO, "bias"),
            "correlation": (ALL, "stockout_correlation"),
            "of error": (ALL, "error_correlation"),
        },
    ),
    (REPLAY, "Replay with supply cut, scores", "Bins that were cut.", _shared(CUT)),
)


def readable_tables(summary: pd.DataFrame) -> list[ReadableTable]:
    """Make tables of the main scores, with models in the given order."""
    tables = []
    for task, title, note, columns in _TABLES:
        of_task = summary[summary["task"] == task]
        if of_task.empty:
            continue
        keys = zip(of_task["model"], of_task["subset"], of_task["metric"], strict=True)
        values = dict(zip(keys, of_task[["value", "se"]].to_numpy(dtype=float), strict=True))
        rows = []
        for model in of_task["model"].unique():
            cells = [_cell(values, (model, *column), name == "bias") for name, column in columns.items()]
            rows.append((str(model), *cells))
        most = of_task[(of_task["subset"] == ALL) & (of_task["metric"] == "rows")].iloc[0]
        sized = f"{title}: {most['value']:,.0f} bins of {most['zones']:,.0f} zones"
        tables.append(ReadableTable(sized, note, ("model", *columns), tuple(rows)))
    return tables


def _cell(values: dict[tuple[str, str, str], Array], key: tuple[str, str, str], with_error: bool) -> str:
    if key not in values:
        return ""
    value, se = (float(number) for number in values[key])
    if key[2] == "bias":
        error = f" ± {100 * se:.1f}" if with_error and se == se else ""
        return f"{100 * value:+.1f}{error} %"
    if key[2].startswith("calibration"):
        return f"{100 * value:.0f} %"
    return f"{value:+.2f}" if "correlation" in key[2] else f"{value:.3f}"


def markdown(result: Backtest) -> str:
    """Format the tables as Markdown."""
    parts = ["# Backtest\n"]
    for table in readable_tables(result.summary):
        lines = [table.columns, ("---", *("---:" for _ in table.columns[1:])), *table.rows]
        body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        parts.append(f"## {table.title}\n\n{body}\n\n{table.note}\n")
    if len(result.failed):
        parts.append(
            f"{len(result.failed)} of {len(result.fits)} fits failed, with reasons in `fits.parquet`. The tables "
            "contain the zones that every model could estimate.\n"
        )
    return "\n".join(parts)


@contextmanager
def folder_for(out: Path, names: Iterable[str]) -> Iterator[None]:
    """Make a folder, and check before the work that files of these names can be written into it.

    It is removed again if it was made here and stays empty.
    """
    made = not out.exists()
    with writing(out, _ADVICE):
        check_places(out, names)
        out.mkdir(parents=True, exist_ok=True)
        with replacing_files(out):  # fails now if the folder cannot be written
            pass
    try:
        yield
    finally:
        if made:
            remove_if_empty(out)


@contextmanager
def writing_backtest(out: Path) -> Iterator[Callable[[Backtest], None]]:
    """Check that a folder can be written, before the work; give the function that writes its files.

    All files are replaced together. A folder made here is removed again if nothing was written.
    """

    def write(result: Backtest) -> None:
        with writing(out, _ADVICE), replacing_files(out) as aside:
            write_parquet(result.scores, aside / "scores.parquet")
            write_parquet(result.fits, aside / "fits.parquet")
            result.summary.to_csv(aside / "summary.csv", index=False)
            (aside / "backtest.md").write_text(markdown(result), encoding="utf-8")

    with folder_for(out, FILES):
        yield write
