"""Rows that were rejected, repaired or noted while reading, counted by reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from unmet._exceptions import InputError

__all__ = ["QUALITY_COLUMNS", "Action", "QualityLog", "check_rejected"]

Action = Literal["rejected", "repaired", "noted"]
QUALITY_COLUMNS = ["source", "reason", "action", "rows", "share", "detail"]


@dataclass
class QualityLog:
    """A list of findings, to which the readers add.

    Attributes
    ----------
    totals : dict
        Source → rows read.
    within : dict
        Source → rows in the chosen period, if one was chosen.
    findings : list
        Source, reason, action, rows, detail, and the total that the rows are a share of (None for all rows read).

    Examples
    --------
    >>> log = QualityLog()
    >>> log.total("trips", 10)
    >>> log.add("trips", "duplicate", "rejected", 1)
    >>> log.frame()[["source", "reason", "action", "rows", "share"]]
      source     reason    action  rows  share
    0  trips       read     noted    10    1.0
    1  trips  duplicate  rejected     1    0.1
    """

    totals: dict[str, int] = field(default_factory=dict)
    within: dict[str, int] = field(default_factory=dict)
    findings: list[tuple[str, str, Action, int, str, int | None]] = field(default_factory=list)

    def total(self, source: str, rows: int) -> None:
        """Add rows that were read, including rejected ones."""
        self.totals[source] = self.totals.get(source, 0) + rows

    def add(
        self, source: str, reason: str, action: Action, rows: int, detail: str = "", *, of: int | None = None
    ) -> None:
        """Add a finding, unless it has no rows. `of` is the total for its share: all rows of the source by default."""
        if rows:
            self.findings.append((source, reason, action, int(rows), detail, of))

    def frame(self) -> pd.DataFrame:
        """Return one row per finding. `share` is the share of the source's rows, or of those in the chosen period."""
        rows: list[tuple[str, str, str, int, float, str]] = []
        for source, total in self.totals.items():
            rows.append((source, "read", "noted", total, 1.0, ""))
            for where, reason, action, count, detail, of in self.findings:
                if where == source:
                    among = total if of is None else of
                    rows.append((source, reason, action, count, count / among if among else 0.0, detail))
        frame = pd.DataFrame(rows, columns=QUALITY_COLUMNS)
        return frame.astype({"rows": "int64", "share": "float64"})


def check_rejected(quality: pd.DataFrame, max_rejected: float) -> None:
    """Raise an error if more than a share of any source was rejected.

    Examples
    --------
    >>> log = QualityLog()
    >>> log.total("trips", 10)
    >>> log.add("trips", "duplicate", "rejected", 1, of=2)  # two of the ten rows are in the chosen period
    >>> check_rejected(log.frame(), 0.6)
    """
    rejected = quality[quality["action"] == "rejected"]
    totals = quality[quality["reason"] == "read"].set_index("source")["rows"]
    for source, rows in rejected.groupby("source", sort=False):
        count, total, share = int(rows["rows"].sum()), int(totals[source]), float(rows["share"].sum())
        if share <= max_rejected:
            continue
        many = f"{count:,} of {total:,} rows ({share:.1%})"
        if abs(share * total - count) > 0.5:
            many = f"{count:,} rows ({share:.1%} of those in the chosen period)"
        worst = rows.sort_values("rows", ascending=False, kind="stable").to_dict("records")
        reasons = "\n".join(
            f"  {row['reason']}: {row['rows']:,}{' (' + row['detail'] + ')' if row['detail'] else ''}" for row in worst
        )
        raise InputError(
            f"{source}: {many} were rejected, more than the allowed {max_rejected:.0%}:\n{reasons}\n"
            "Check the files. Or continue without these rows (--force, in Python force=True), or allow more of them "
            "(--max-rejected, in Python max_rejected=)."
        )
