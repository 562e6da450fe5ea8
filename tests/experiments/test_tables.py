import numpy as np
import pandas as pd

from unmet.experiments._data import packaged
from unmet.experiments._tables import COLUMNS, bold_best, markdown, results_frame, wide_by_c, write_results, write_table


def test_results_have_the_promised_columns_and_are_empty_where_one_does_not_apply(tmp_path):
    frame = results_frame(
        [{"experiment": "taxi", "model": "cgp", "c": 0.5, "subset": "all", "metric": "rmse", "value": 1.5}]
    )
    write_results(frame, tmp_path)
    head, row = (tmp_path / "results.csv").read_text().splitlines()
    assert head == "experiment,zone,model,gamma,p,a,b,c,repetition,subset,metric,value"
    assert head.split(",") == list(COLUMNS)
    assert row == "taxi,,cgp,,,,,0.5,,all,rmse,1.5"


def test_the_best_of_a_row_is_bold_and_ties_are_all_bold():
    values = pd.DataFrame({"a": [1.004, 3.0], "b": [1.0, 2.0], "c": [9.0, np.nan]})
    shown = bold_best(values, 2, smallest=True)
    assert shown.to_numpy().tolist() == [["**1.00**", "**1.00**", "9.00"], ["3.00", "**2.00**", ""]]
    assert bold_best(values, 0, smallest=False).iloc[0].tolist() == ["1", "1", "**9**"]


def test_a_zone_name_is_neither_markup_nor_formula(tmp_path):
    frame = pd.DataFrame({"zone": ["=1+1", "a|b<script>"], "value": [-1.0, 2.0]})
    text = write_table("t", frame, tmp_path, title="T").markdown
    assert "<script" not in text
    assert "a\\|b" in text
    csv = (tmp_path / "t.csv").read_text()
    assert "'=1+1,-1.0" in csv


def test_numbers_stand_to_the_right_in_markdown():
    lines = markdown(pd.DataFrame({"model": ["NCGP"], "x": ["**-0.20**"], "y": [".5"], "n": [3]})).splitlines()
    assert lines[1] == "|---|---:|---:|---:|"


def test_the_papers_tables_have_every_cell_and_rank_the_models_as_the_paper_says():
    paper = packaged("paper_tables.csv")
    assert paper.groupby("experiment").size().to_dict() == {"bike": 3 * 2 * 2 * 3 * 11, "taxi": 4 * 11 * 2 * 2 * 3}
    taxi = paper[(paper.experiment == "taxi") & (paper.subset == "all") & (paper.metric == "rmse")]
    best = taxi.pivot(index=["gamma", "c"], columns="model", values="value").idxmin(axis=1)
    assert best[best != "cgp"].index.tolist() == [(0.4, 0.0)]  # "in all other cases, CGP outperforms"


def test_the_wide_table_has_models_in_rows_and_c_in_columns(tmp_path):
    rows = [
        {"model": m, "c": c, "subset": s, "metric": k, "repetition": i, "value": v + i}
        for m, v in (("ncgp", 3.0), ("ncgp-a", 2.0), ("cgp", 1.0))
        for c in (0.0, 0.5)
        for s in ("all", "non-censored")
        for k in ("rmse", "r2")
        for i in (0, 1)
    ]
    text = wide_by_c(results_frame(rows), "Title", "table2", tmp_path).markdown
    assert "| all | RMSE | CGP | **1.50** | **1.50** |" in text
    assert "| non-censored | R² | NCGP | **3.50** | **3.50** |" in text
    assert pd.read_csv(tmp_path / "table2.csv").shape == (16, 5)
