"""What a run found, to look at and to take along: one page of HTML, and tables.

`write_report` makes a page that opens from disk with no network; `export_tables` writes the same numbers as CSV,
Parquet and GeoJSON. Both read a folder that ``unmet estimate`` left and the panel it was made from.
"""

from __future__ import annotations

from unmet.report.export import export_tables
from unmet.report.page import write_report

__all__ = ["export_tables", "write_report"]
