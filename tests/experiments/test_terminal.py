import io

import pandas as pd
import pytest
from rich.console import Console

from unmet.experiments import Run
from unmet.experiments._run import finish
from unmet.experiments._tables import Table
from unmet.experiments._terminal import print_table

WIDE = pd.DataFrame(
    {"zone": ["a [b]", "a very long name of a station at the corner of two streets"], "model": "CGP"}
    | {f"{c / 10:g}": ["**104.97**", "45.75"] for c in range(11)}
)


def printed(table, width, terminal):
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal)
    print_table(console, table)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_table_is_never_wider_than_the_terminal_and_no_number_is_cut(width):
    text = printed(Table("Title", WIDE, keys=2, note="A note."), width, terminal=False)
    assert max(map(len, text.splitlines())) <= width
    assert text.count("**104.97**") == 11
    assert text.count("45.75") == 11
    assert "a [b]" in text
    assert "Title" in text
    assert "A note." in text


def test_a_table_too_wide_is_printed_in_parts_that_all_name_their_rows():
    narrow, wide = (printed(Table("", WIDE, keys=2), width, terminal=False) for width in (80, 200))
    assert wide.count("a [b]") == 1
    assert narrow.count("a [b]") == narrow.count("model") > 1


def test_the_best_is_in_bold_type_where_there_is_any():
    text = printed(Table("", WIDE, keys=2), 200, terminal=True)
    assert "\x1b[1m104.97\x1b[0m" in text
    assert "**" not in text


def test_results_go_to_standard_output_and_name_the_data(tmp_path, capsys):
    cost = {"fits": 3, "unconverged": 1, "jittered": 0}
    finish(Run(tmp_path, "quick", 7), "taxi", "own.csv, a week", [Table("T", WIDE[["zone", "0"]])], [{"cost": cost}])
    out, err = capsys.readouterr()
    assert err == ""
    for text in (" ".join(out.split()), (tmp_path / "README.md").read_text()):
        assert "Data: own.csv, a week. Run: quick, seed 7." in text
        assert "1 of 3 fits did not converge" in text
        assert "104.97" in text
