"""Tables in narrow consoles."""

from __future__ import annotations

from io import StringIO

import pandas as pd
import pytest
from rich.table import Table
from rich.text import Text

from unmet.cli._console import Console
from unmet.cli._tables import _worst, add_zone_column

CELLS = ("Baldwin at Montgomery", "1,234,567", "12,345", "12,000 – 13,000")


def printed(width: int) -> str:
    table = Table(title="Zones")
    add_zone_column(table)
    for name in ("observed", "lost", "90 % interval"):
        table.add_column(name, justify="right")
    table.add_row(*CELLS)
    stream = StringIO()
    Console(file=stream, width=width).print(table)
    return stream.getvalue()


@pytest.mark.parametrize("width", [120, 60, 44, 30, 24])
def test_no_word_or_number_is_cut(width):
    text = printed(width)
    assert all(len(line) <= width for line in text.splitlines())
    for cell in CELLS:
        for word in cell.split():
            assert word in text
    assert "…" not in text


def test_a_table_that_cannot_fit_has_one_line_per_cell():
    assert "  observed: 1,234,567" in printed(30)
    assert "observed:" not in printed(80)


def test_a_name_cannot_turn_the_line_around():
    stream = StringIO()
    Console(file=stream).print(Text("Sentrum \u202e lost \u2066 12"))
    assert stream.getvalue() == "Sentrum \ufffd lost \ufffd 12\n"


@pytest.mark.parametrize("columns", ["0", "1"])
def test_a_terminal_without_a_width_gets_whole_words(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    stream = StringIO()
    Console(file=stream).print(Text("Sentrum lost 12"))
    assert stream.getvalue() == "Sentrum lost 12\n"


def test_zones_left_out_of_the_totals_are_not_among_those_with_most_lost_trips():
    zones = pd.DataFrame({"zone": ["a", "b"], "status": "ok", "lost_mean": [9.0, 5.0], "left_out": ["closed", None]})
    assert _worst(zones)["zone"].tolist() == ["b"]
    assert _worst(zones.drop(columns="left_out"))["zone"].tolist() == ["a", "b"]
