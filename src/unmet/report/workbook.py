"""Tables of a report as a workbook for spreadsheets, one sheet per table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from io import FileIO
from pathlib import Path
from traceback import clear_frames
from typing import Any

import duckdb

from unmet._exceptions import InputError, MissingExtraError
from unmet._storage.sql import identifier
from unmet._storage.temporary import temporary_folder
from unmet._storage.writing import replacing, writing
from unmet.mobility.panel.saving import check_new_file
from unmet.report.export import columns_of

__all__ = ["write_workbook"]

_MOST_ROWS = 1_048_575  # of a sheet in Excel, below the row of headers
_LONGEST_TEXT = 32_767  # of a cell
_AT_ONCE = 10_000
_MADE = datetime(2000, 1, 1)  # a fixed date, so that equal tables give equal bytes


def write_workbook(
    connection: duckdb.DuckDBPyConnection, tables: Mapping[str, str], path: Path, progress: Callable[[str], None]
) -> dict[str, int]:
    """Write each table as a sheet. A table too long for one goes on in further sheets: ``bins``, ``bins (2)``.

    Text is stored as text, so that no name becomes a formula or a link. Moments are text in UTC (ISO 8601), local times
    are dates of the spreadsheet.

    Returns
    -------
    dict
        Table → number of rows.
    """
    try:
        import xlsxwriter
        from xlsxwriter.exceptions import FileCreateError
    except ImportError as error:
        raise MissingExtraError("xlsxwriter", "excel", "Workbooks") from error
    rows = {}
    options = {
        "constant_memory": True,
        "strings_to_formulas": False,
        "strings_to_urls": False,
        "strings_to_numbers": False,
        "default_date_format": "yyyy-mm-dd hh:mm",
    }
    check_new_file(path)
    with ExitStack() as stack:
        stack.enter_context(writing(path, "An existing file is unchanged."))
        scratch = stack.enter_context(temporary_folder())
        with _Output(stack.enter_context(replacing(path)), "w") as output:
            book = xlsxwriter.Workbook(output, {**options, "tmpdir": str(scratch)})
            book.set_properties({"created": _MADE})
            try:
                for name, sql in tables.items():
                    progress(name)
                    rows[name] = _write_table(book, connection, name, sql)
            finally:
                try:
                    book.close()
                except FileCreateError as error:
                    reason = error.args[0]  # the system's error
                    clear_frames(reason.__traceback__)  # forget the archive while the output is open
                    raise reason from None
    return rows


class _Output(FileIO):
    """A file that ignores what is written after an error.

    The archive within a workbook writes its end when it is forgotten. Its second error would be printed as a traceback.
    """

    failed = False

    def write(self, data: Any) -> int:
        """Write some bytes."""
        if self.failed:
            return len(data)
        try:
            return super().write(data)
        except OSError:
            self.failed = True
            raise


def _write_table(book: Any, connection: duckdb.DuckDBPyConnection, name: str, sql: str) -> int:
    columns = columns_of(connection, sql)
    bold = book.add_format({"bold": True})
    sheet, row, sheets, count = None, 0, 0, 0
    for values in _rows(connection, sql, columns):
        if sheet is None or row == _MOST_ROWS:
            sheets += 1
            sheet, row = _new_sheet(book, name, sheets, columns, bold), 0
        row += 1
        count += 1
        for column, value in enumerate(values):
            _write_cell(sheet, row, column, value)
    if sheet is None:
        _new_sheet(book, name, 1, columns, bold)
    return count


def _new_sheet(book: Any, name: str, number: int, columns: Mapping[str, str], bold: Any) -> Any:
    sheet = book.add_worksheet(name if number == 1 else f"{name} ({number})")
    sheet.freeze_panes(1, 0)
    for column, title in enumerate(columns):
        sheet.write_string(0, column, title, bold)
    return sheet


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, columns: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    parts = []
    for name, type_ in columns.items():
        quoted = identifier(name)
        if type_ == "TIMESTAMP WITH TIME ZONE":
            quoted = f"strftime({quoted} AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%SZ')"
        parts.append(quoted)
    result = connection.execute(f"SELECT {', '.join(parts)} FROM ({sql})")
    while some := result.fetchmany(_AT_ONCE):
        yield from some


def _write_cell(sheet: Any, row: int, column: int, value: Any) -> None:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return  # a spreadsheet has no NaN: the cell stays empty
    if isinstance(value, bool):
        sheet.write_boolean(row, column, value)
    elif isinstance(value, int | float):
        sheet.write_number(row, column, value)
    elif isinstance(value, datetime):
        sheet.write_datetime(row, column, value)
    else:
        text = str(value)
        if len(text) > _LONGEST_TEXT:
            raise InputError(f"{text[:40]!r}…: a text of {len(text):,} signs does not fit into a cell of a workbook.")
        sheet.write_string(row, column, text)
