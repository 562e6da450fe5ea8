"""Reports of a run: one HTML page, and tables.

`write_report` writes a page that opens from disk and needs no network. `export_tables` writes the same numbers as CSV,
Parquet and GeoJSON; `export_to` writes them to a database or a workbook. All read the folder of a run and its panel.
"""

from __future__ import annotations

from unmet.report.destinations import export_to
from unmet.report.export import export_tables
from unmet.report.page import write_report

__all__ = ["export_tables", "export_to", "write_report"]
