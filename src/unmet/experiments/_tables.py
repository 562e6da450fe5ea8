"""Tidy results and the paper's tables, each as CSV and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from unmet._storage.writing import write_text
from unmet.experiments._fits import MODELS, RECOVERED, TITLES

__all__ = [
    "COLUMNS",
    "Table",
    "bold_best",
    "is_numeric",
    "markdown",
    "plain",
    "results_frame",
    "wide_by_c",
    "write_results",
    "write_table",
]

COLUMNS = (
    "experiment",
    "zone",
    "model",
    "gamma",
    "p",
    "a",
    "b",
    "c",
    "repetition",
    "subset",
    "metric",
    "value",
)
"""Columns of ``results.csv``. A column that does not apply is empty."""


def results_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return tidy results, one value per row, with the columns of every experiment."""
    frame = pd.DataFrame(list(rows), columns=list(COLUMNS))
    return frame.astype({"repetition": "Int64"})


def write_results(frame: pd.DataFrame, out: Path) -> None:
    """Write ``results.csv``."""
    write_text(out / "results.csv", _safe(frame).to_csv(index=False, lineterminator="\n"))


@dataclass(frozen=True)
class Table:
    """A table for reading: rounded numbers as text, the best between ``**``.

    Attributes
    ----------
    title, note : str
        Text above and below the table.
    shown : DataFrame
        Cells of the table.
    keys : int
        Number of first columns that identify a row.
    """

    title: str
    shown: pd.DataFrame
    keys: int = 1
    note: str = ""

    @property
    def markdown(self) -> str:
        """The table with its title and note as Markdown."""
        return f"### {self.title}\n\n{markdown(self.shown)}\n" + (f"\n{self.note}\n" if self.note else "")


def write_table(
    name: str,
    frame: pd.DataFrame,
    out: Path,
    *,
    title: str,
    shown: pd.DataFrame | None = None,
    keys: int = 1,
    note: str = "",
) -> Table:
    """Write a table as ``name.csv`` (numbers) and ``name.md`` (for reading), and return the latter.

    Parameters
    ----------
    name : str
        Name of the files.
    frame : DataFrame
        Numbers.
    out : Path
        Folder.
    title, note : str
        Text above and below the table.
    shown : DataFrame, optional
        Cells for reading; by default those of `frame`.
    keys : int
        Number of first columns that identify a row.

    Returns
    -------
    Table
    """
    table = Table(title, frame if shown is None else shown, keys, note)
    write_text(out / f"{name}.csv", _safe(frame).to_csv(index=False, lineterminator="\n"))
    write_text(out / f"{name}.md", table.markdown)
    return table


def _safe(frame: pd.DataFrame) -> pd.DataFrame:
    """Prefix text that a spreadsheet would run as a formula with an apostrophe: zone names come from users' files."""
    risky = ("=", "+", "-", "@", "\t", "\r")
    return frame.apply(
        lambda column: column.map(lambda v: f"'{v}" if isinstance(v, str) and v.startswith(risky) else v)
    )


def markdown(frame: pd.DataFrame) -> str:
    r"""Return a Markdown table with numbers aligned to the right.

    Examples
    --------
    >>> print(markdown(pd.DataFrame({"model": ["a|b"], "rmse": [1.25]})))
    | model | rmse |
    |---|---:|
    | a\|b | 1.25 |
    """
    heads = [_cell(c) for c in frame.columns]
    numeric = [is_numeric(frame.iloc[:, i]) for i in range(frame.shape[1])]
    lines = ["| " + " | ".join(heads) + " |", "|" + "|".join("---:" if n else "---" for n in numeric) + "|"]
    lines += ["| " + " | ".join(_cell(v) for v in row) + " |" for row in frame.itertuples(index=False)]
    return "\n".join(lines)


def is_numeric(column: pd.Series[Any]) -> bool:
    """Return whether a column contains numbers, as numbers or as text."""
    words = [str(v).strip("* ") for v in column if str(v)]
    as_text = bool(words) and all(w[:1].lstrip("-").isdigit() or w[:2].strip("-.").isdigit() for w in words)
    return pd.api.types.is_numeric_dtype(column.dtype) or as_text


def plain(value: Any) -> str:
    """Return a cell as text on one line: a number to four digits, an empty string for a missing value."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    return (f"{value:.4g}" if isinstance(value, float) else str(value)).replace("\n", " ")


def _cell(value: Any) -> str:
    return plain(value).replace("|", "\\|").replace("<", "&lt;")


def bold_best(values: pd.DataFrame, digits: int, *, smallest: bool) -> pd.DataFrame:
    """Return numbers as text, the best of each row in bold as in the paper. Ties, to the digits shown, are all bold."""
    rounded = values.round(digits)
    best = rounded.min(axis=1) if smallest else rounded.max(axis=1)
    shown = rounded.map(lambda v: "" if np.isnan(v) else f"{v:.{digits}f}")
    return shown.where(rounded.ne(best, axis=0), "**" + shown + "**")


def wide_by_c(frame: pd.DataFrame, title: str, name: str, out: Path, note: str = "") -> Table:
    """Write the paper's tables 2–4: models in rows, censorship intensity in columns, means over repetitions."""
    numbers: list[pd.DataFrame] = []
    shown: list[pd.DataFrame] = []
    for subset, metric, digits in (
        ("all", "rmse", 2),
        ("all", "r2", 2),
        ("non-censored", "rmse", 2),
        ("non-censored", "r2", 2),
        (RECOVERED, "rmse", 2),
        (RECOVERED, "coverage", 2),
    ):
        part = frame[(frame.subset == subset) & (frame.metric == metric)]
        if part.empty:
            continue
        means = part.groupby(["model", "c"]).value.mean().unstack("c").reindex(list(MODELS))
        text = bold_best(means.T, digits, smallest=metric == "rmse").T
        for table, rows in ((numbers, means), (shown, text)):
            rows = rows.set_axis([f"{c:g}" for c in rows.columns], axis=1)
            rows.insert(0, "model", [TITLES[m] for m in rows.index])
            rows.insert(0, "metric", {"rmse": "RMSE", "r2": "R²", "coverage": "coverage"}[metric])
            rows.insert(0, "data", subset)
            table.append(rows)
    return write_table(name, pd.concat(numbers), out, title=title, shown=pd.concat(shown), keys=3, note=note)
