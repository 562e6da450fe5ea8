"""What was rejected, repaired or noted while reading, counted by reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from unmet._exceptions import InputError

__all__ = ["QUALITY_COLUMNS", "Action", "QualityLog"]

Action = Literal["rejected", "repaired", "noted"]
QUALITY_COLUMNS = ["source", "reason", "action", "rows", "share", "detail"]


@dataclass
class QualityLog:
    """A list of findings that grows while the sources are read.

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
    findings: list[tuple[str, str, Action, int, str]] = field(default_factory=list)

    def total(self, source: str, rows: int) -> None:
        """Note how many rows of a source were read, the rejected ones included."""
        self.totals[source] = self.totals.get(source, 0) + rows

    def add(self, source: str, reason: str, action: Action, rows: int, detail: str = "") -> None:
        """Count rows under a reason; nothing is written for none."""
        if rows:
            self.findings.append((source, reason, action, int(rows), detail))

    def frame(self) -> pd.DataFrame:
        """One row per finding; `share` is of the rows read of that source."""
        rows: list[tuple[str, str, str, int, float, str]] = []
        for source, total in self.totals.items():
            rows.append((source, "read", "noted", total, 1.0, ""))
            for where, reason, action, count, detail in self.findings:
                if where == source:
                    rows.append((source, reason, action, count, count / total if total else 0.0, detail))
        frame = pd.DataFrame(rows, columns=QUALITY_COLUMNS)
        return frame.astype({"rows": "int64", "share": "float64"})

    def check(self, max_rejected: float, force: bool) -> None:
        """Refuse to go on when more than a share of any source was rejected, unless forced."""
        for source, total in self.totals.items():
            rejected = [f for f in self.findings if f[0] == source and f[2] == "rejected"]
            count = sum(f[3] for f in rejected)
            if total and count / total > max_rejected and not force:
                reasons = "\n".join(
                    f"  {reason}: {rows:,}{f' ({detail})' if detail else ''}"
                    for _, reason, _, rows, detail in sorted(rejected, key=lambda f: -f[3])
                )
                raise InputError(
                    f"{source}: {count:,} of {total:,} rows ({count / total:.1%}) were rejected, "
                    f"more than the allowed {max_rejected:.0%}:\n{reasons}\n"
                    "Check the files; or go on with what is left (--force, in Python force=True), "
                    "or allow more (max_rejected=)."
                )
