"""Runs in one process: what they write, what they take over, what they refuse."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from toy_model import ToyModel, estimate_toy, toy_panel

from unmet import InputError
from unmet._exceptions import FileFormatError
from unmet._storage.parquet import write_parquet
from unmet.execution import in_processes, serially
from unmet.mobility.models.zone_estimate import DemandModel, estimate_zone
from unmet.mobility.runs import attempt, run_estimates
from unmet.mobility.runs import checkpoints as parts
from unmet.mobility.runs.outputs import TABLES

PANEL = toy_panel()


class Stopped(Exception):
    """Raised by a test in the middle of a run."""


def run(out, panel=PANEL, model=None, **options):
    options = {"estimate": estimate_toy, "executor": serially, "chunk": 3, **options}
    return run_estimates(panel, model or ToyModel(), out, **options)


def tables(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in TABLES}


def stop_after(zones: int):
    def progress(done: int, _: int, __: str) -> None:
        if done >= zones:
            raise Stopped

    return progress


def part_folders(out: Path) -> list[Path]:
    return sorted(out.glob(".parts/*/part-*"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("runs") / "whole")


def test_the_rows_are_those_of_each_zone_in_order_of_zone_and_start(tmp_path):
    shuffled = PANEL.sample(frac=1.0, random_state=3)
    result = run(tmp_path / "out", shuffled)
    demand = result.demand()
    assert list(zip(demand["zone"], demand["start"], strict=True)) == list(
        zip(PANEL["zone"], PANEL["start"], strict=True)
    )
    for zone, rows in PANEL.groupby("zone"):
        expected = estimate_toy(rows.reset_index(drop=True), ToyModel()).rows
        found = demand[demand["zone"] == zone].reset_index(drop=True)
        pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def test_zone_totals_and_system_totals_come_from_the_draws(whole):
    estimates = [estimate_toy(rows, ToyModel()) for _, rows in PANEL.groupby("zone")]
    zones = whole.zones.set_index("zone")
    for estimate in estimates:
        draws = estimate.lost.sum(axis=0)
        row = zones.loc[estimate.summary["zone"]]
        assert row["lost_mean"] == pytest.approx(draws.mean())
        assert row["lost_q95"] == pytest.approx(np.quantile(draws, 0.95))
        assert row["demand_q05"] == pytest.approx(estimate.observed.sum() + np.quantile(draws, 0.05))
        assert row["lost_sd"] == pytest.approx(draws.std(ddof=1))
    assert list(zones["stockout_minutes"]) == list(PANEL.groupby("zone")["stockout_minutes"].sum())
    system = sum(estimate.lost.sum(axis=0) for estimate in estimates)
    told = whole.info["totals"]
    assert told["lost"]["q975"] == pytest.approx(np.quantile(system, 0.975))
    assert told["lost"]["sd"] == pytest.approx(system.std(ddof=1))
    assert told["observed"]["mean"] == PANEL["observed"].sum()


@pytest.mark.parametrize("chunk", [1, 4, None])
def test_chunks_do_not_show_in_the_tables(whole, tmp_path, chunk):
    run(tmp_path / "out", chunk=chunk)
    assert tables(tmp_path / "out") == tables(whole.out)


def test_processes_do_not_show_in_the_tables(whole, tmp_path):
    run(tmp_path / "out", executor=in_processes, jobs=2)
    assert tables(tmp_path / "out") == tables(whole.out)


def test_a_panel_file_gives_the_tables_of_its_frame(whole, tmp_path):
    write_parquet(PANEL, tmp_path / "panel.parquet")
    run(tmp_path / "out", tmp_path / "panel.parquet")
    assert tables(tmp_path / "out") == tables(whole.out)


def test_the_callers_frame_is_not_changed(tmp_path):
    frame = PANEL.copy()
    run(tmp_path / "out", frame)
    pd.testing.assert_frame_equal(frame, PANEL)


def test_a_stopped_run_takes_over_what_was_finished(whole, tmp_path):
    with pytest.raises(Stopped):
        run(tmp_path / "out", chunk=2, progress=stop_after(4))
    assert len(part_folders(tmp_path / "out")) == 2
    asked = []

    def counting(panel, model):
        asked.append(panel["zone"].iloc[0])
        return estimate_toy(panel, model)

    # In the place of `estimate_toy`: the run is the same.
    counting.__module__, counting.__qualname__ = "toy_model", "estimate_toy"
    result = run(tmp_path / "out", estimate=counting, chunk=3)
    assert asked == ["z4", "z5"]
    assert result.info["zones"]["finished_before"] == 4
    assert any("4 of 6 zones were finished before" in note for note in result.info["notes"])
    assert tables(tmp_path / "out") == tables(whole.out)


def test_a_finished_run_is_not_run_again(whole, tmp_path):
    run(tmp_path / "out")
    notes = []
    again = run(tmp_path / "out", model=ToyModel(trouble={"z0": "bug"}), progress=lambda *a: notes.append(a))
    assert not again.failures
    assert notes == [(6, 6, "This run is finished already; nothing to do.")]
    (tmp_path / "out" / "zones.parquet").write_bytes(b"gone wrong")
    run(tmp_path / "out")
    assert tables(tmp_path / "out") == tables(whole.out)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("rows.parquet", "flip"),
        ("draws.npz", "flip"),
        ("part.json", "flip"),
        ("rows.parquet", "cut"),
        ("part.json", "cut"),
        ("draws.npz", "gone"),
    ],
)
def test_a_damaged_part_is_found_out_and_computed_again(whole, tmp_path, name, damage):
    with pytest.raises(Stopped):
        run(tmp_path / "out", chunk=2, progress=stop_after(4))
    file = part_folders(tmp_path / "out")[0] / name
    content = file.read_bytes()
    middle = len(content) // 2
    if damage == "flip":
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    elif damage == "cut":
        file.write_bytes(content[:middle])
    else:
        file.unlink()
    result = run(tmp_path / "out")
    assert result.info["zones"]["finished_before"] == 2
    assert any("damaged" in note for note in result.info["notes"])
    assert tables(tmp_path / "out") == tables(whole.out)


def test_a_zone_in_two_parts_counts_once(whole, tmp_path):
    with pytest.raises(Stopped):
        run(tmp_path / "out", chunk=2, progress=stop_after(2))
    (part,) = part_folders(tmp_path / "out")
    copy = part.with_name("part-zzzz")
    copy.mkdir()
    for file in part.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    run(tmp_path / "out")
    assert tables(tmp_path / "out") == tables(whole.out)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": ToyModel(seed=1)}, "model seed changed from 0 to 1"),
        ({"panel": toy_panel(seed=2)}, "panel changed"),
        ({"horizon": 24}, "horizon changed from 0 to 24"),
        ({"features": pd.DataFrame({"start": PANEL["start"].unique(), "rain": 1.0})}, "features changed"),
    ],
)
def test_a_changed_input_starts_anew_and_says_what_changed(tmp_path, change, said):
    with pytest.raises(Stopped):
        run(tmp_path / "out", chunk=2, progress=stop_after(4))
    result = run(tmp_path / "out", **change)
    assert result.info["zones"]["finished_before"] == 0
    assert any(said in note and "Starting again" in note for note in result.info["notes"])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([*TABLES, "run.json"])
    run(tmp_path / "fresh", **change)
    assert tables(tmp_path / "out") == tables(tmp_path / "fresh")


def test_a_new_version_starts_anew(tmp_path, monkeypatch):
    run(tmp_path / "out")
    monkeypatch.setattr("unmet.__version__", "99.0")
    result = run(tmp_path / "out")
    assert any("unmet changed" in note for note in result.info["notes"])


def test_a_zone_that_cannot_be_fitted_has_a_reason_and_the_others_go_on(whole, tmp_path):
    trouble = {"z1": "refuse", "z3": "bug"}
    result = run(tmp_path / "out", model=ToyModel(trouble=trouble), chunk=6)
    assert result.failures == {
        "z1": "z1 has no bins with supply.",
        "z3": "ZeroDivisionError: division by zero",
    }
    zones = result.zones.set_index("zone")
    assert list(zones.index[zones["status"] == "failed"]) == ["z1", "z3"]
    assert zones.loc["z3", "reason"] == "ZeroDivisionError: division by zero"
    assert zones.loc["z1", "observed"] == PANEL.loc[PANEL["zone"] == "z1", "observed"].sum()
    assert np.isnan(zones.loc["z1", "lost_mean"])
    columns = ["observed", "lost_mean", "demand_q95", "stockout_minutes"]
    pd.testing.assert_frame_equal(
        zones.drop(["z1", "z3"])[columns], whole.zones.set_index("zone").drop(["z1", "z3"])[columns]
    )
    assert set(result.demand()["zone"]) == {"z0", "z2", "z4", "z5"}


def test_where_no_zone_can_be_fitted_the_tables_say_so(tmp_path):
    result = run(tmp_path / "out", model=ToyModel(trouble=dict.fromkeys(PANEL["zone"].unique(), "bug")))
    assert len(result.failures) == 6
    assert result.demand().empty
    assert result.info["totals"]["lost"]["mean"] == 0


def test_the_table_of_no_zone_has_the_columns_of_any(tmp_path):
    def fail(panel, model):
        raise InputError("no")

    panel = toy_panel()
    failed = run_estimates(panel, ToyModel(), tmp_path / "a", estimate=fail, executor=serially).demand()
    known = estimate_zone(panel[panel["zone"] == "z1"], DemandModel("weekly-mean", draws=20)).rows
    assert list(failed.columns) == list(known.columns)
    assert failed["start"].dtype.tz is not None


def test_running_out_of_memory_is_tried_again_and_reported_when_it_stays(whole, tmp_path):
    once = ToyModel(trouble={"z2": "memory@1"}, log=str(tmp_path))
    result = run(tmp_path / "once", model=once, chunk=2)
    assert not result.failures
    assert result.info["zones"]["retried"] == 2
    assert tables(tmp_path / "once") == tables(whole.out)
    always = run(tmp_path / "always", model=ToyModel(trouble={"z2": "memory"}), chunk=2)
    assert list(always.failures) == ["z2"]
    assert "MemoryError" in always.failures["z2"]


def test_a_models_warnings_stand_beside_its_zone(tmp_path):
    result = run(tmp_path / "out", model=ToyModel(trouble={"z3": "warn"}))
    said = result.zones.set_index("zone")["warnings"]
    assert said["z3"] == "UserWarning: not quite converged"
    assert (said.drop("z3") == "").all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lost": np.zeros((168, 3))}, "shape"),
        ({"lost": np.full((168, 20), -1.0)}, "negative"),
        ({"lost": np.full((168, 20), np.nan)}, "finite"),
        ({"rows": pd.DataFrame({"zone": ["z0"]})}, "without"),
    ],
)
def test_a_model_that_breaks_its_promises_is_a_failure_not_a_total(tmp_path, change, said):
    def broken(panel, model):
        return replace(estimate_toy(panel, model), **change)

    result = run(tmp_path / "out", PANEL[PANEL["zone"] == "z0"], estimate=broken)
    assert said in result.failures["z0"]


def test_a_bin_that_comes_twice_fails_its_zone_only(tmp_path):
    result = run(tmp_path / "out", pd.concat([PANEL, PANEL.iloc[[5]]]))
    assert list(result.failures) == ["z0"]
    assert "1 bins occur twice" in result.failures["z0"]


def test_features_reach_every_zone_by_bin(tmp_path):
    starts = PANEL["start"].drop_duplicates()
    features = pd.DataFrame({"start": starts, "rain": np.arange(len(starts), dtype=float)}).iloc[::-1]
    seen = {}

    def looking(panel, model):
        seen[panel["zone"].iloc[0]] = panel["rain"].to_numpy()
        return estimate_toy(panel, model)

    run(tmp_path / "out", features=features, estimate=looking)
    assert len(seen) == 6
    for rain in seen.values():
        np.testing.assert_array_equal(rain, np.arange(len(starts)))


@pytest.mark.parametrize(
    ("features", "said"),
    [
        (pd.DataFrame({"rain": [1.0]}), "no column 'start'"),
        (pd.DataFrame({"start": PANEL["start"].iloc[[0, 0]], "rain": 1.0}), "same start as another"),
        (pd.DataFrame({"start": PANEL["start"].iloc[[0]], "observed": 1.0}), "already has 'observed'"),
    ],
)
def test_features_that_do_not_fit_are_refused(tmp_path, features, said):
    with pytest.raises(InputError, match=said):
        run(tmp_path / "out", features=features)
    assert not (tmp_path / "out").exists()


def test_odd_zone_names_are_only_names(tmp_path):
    names = {"z0": "it's; DROP TABLE panel", "z1": "[red]a/../b", "z2": "ünï çødé", "z3": "*", "z4": "", "z5": "1"}
    result = run(tmp_path / "out", PANEL.assign(zone=PANEL["zone"].map(names)))
    assert sorted(result.zones["zone"]) == sorted(names.values())
    assert not result.failures


def test_numbers_as_zones_become_names(tmp_path):
    result = run(tmp_path / "out", PANEL.assign(zone=PANEL["zone"].str[1:].astype(int)))
    assert list(result.zones["zone"]) == list("012345")


def test_what_the_panel_says_of_its_quality_travels_with_the_run(tmp_path):
    path = tmp_path / "panel.parquet"
    quality = {"source": ["trips"], "reason": ["duplicate"], "action": ["rejected"], "rows": [3]}
    quality |= {"share": [0.1], "detail": [""]}
    with duckdb.connect() as connection:
        connection.register("rows", PANEL)
        connection.execute(
            f"COPY rows TO '{path}' (FORMAT parquet, KV_METADATA {{'unmet.quality': '{json.dumps(quality)}'}})"
        )
    assert run(tmp_path / "out", path).info["panel"]["quality"] == quality


@pytest.mark.parametrize(
    ("panel", "error", "said"),
    [
        ("missing.parquet", InputError, "no file"),
        (PANEL.drop(columns=["exposure"]), FileFormatError, "no column 'exposure'"),
        (PANEL.iloc[:0], InputError, "no rows"),
        (PANEL.assign(zone=PANEL["zone"].where(PANEL.index > 0)), FileFormatError, "no zone"),
    ],
)
def test_a_panel_that_is_none_is_refused_and_nothing_is_left(tmp_path, panel, error, said):
    with pytest.raises(error, match=said):
        run(tmp_path / "out", panel)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("observed", PANEL["observed"].astype(str), "'observed' is VARCHAR; expected a number"),
        ("minutes", PANEL["start"], "'minutes' is TIMESTAMP WITH TIME ZONE; expected a number"),
        ("exposure", PANEL["exposure"] > 0, "'exposure' is BOOLEAN; expected a number"),
        ("stockout_minutes", "0", "'stockout_minutes' is VARCHAR; expected a number"),
        ("censored", "no", "'censored' is VARCHAR; expected a boolean or an integer"),
        ("censored", 0.0, "'censored' is DOUBLE; expected a boolean or an integer"),
        ("start", PANEL["start"].astype(str), "'start' is VARCHAR; expected a timestamp"),
        ("start_local", PANEL["start"].dt.date, "'start_local' is DATE; expected a timestamp without time zone"),
        ("start_local", PANEL["start"], "'start_local' is TIMESTAMP WITH TIME ZONE; expected a timestamp without"),
    ],
)
def test_a_panel_with_a_column_of_another_type_is_refused_before_any_work(tmp_path, column, values, said):
    with pytest.raises(FileFormatError, match=said):
        run(tmp_path / "out", PANEL.assign(**{column: values}))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"observed": PANEL["observed"].astype("Int64"), "minutes": PANEL["minutes"].astype("uint16")},
        {"exposure": PANEL["exposure"].astype("float32"), "censored": PANEL["censored"].astype("int8")},
        {"start": PANEL["start"].dt.tz_localize(None), "start_local": PANEL["start_local"].dt.as_unit("ns")},
    ],
)
def test_a_panel_may_have_any_type_of_number_and_time(tmp_path, changes):
    assert not run(tmp_path / "out", PANEL.assign(**changes)).failures


@pytest.mark.parametrize("option", [{"jobs": 0}, {"chunk": 0}, {"horizon": -1}])
def test_senseless_options_are_refused(tmp_path, option):
    with pytest.raises(InputError, match=next(iter(option))):
        run(tmp_path / "out", **option)


def test_a_folder_that_cannot_be_made_is_explained(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        run(tmp_path / "file" / "out")
    with pytest.raises(InputError, match="is a file; name a folder"):
        run(tmp_path / "file")


def test_what_is_not_of_a_run_is_left_alone(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(Stopped):
        run(out, model=ToyModel(seed=1), progress=stop_after(3))
    (out / ".parts" / ".DS_Store").write_text("mine")
    (out / ".parts" / "notes").mkdir()
    result = run(out)
    assert result.info["zones"]["estimated"] == 6
    assert sorted(path.name for path in (out / ".parts").iterdir()) == [".DS_Store", "notes"]


def test_two_runs_into_one_folder_at_a_time_are_refused(tmp_path):
    def another(done: int, _: int, __: str) -> None:
        if done == 2:
            with pytest.raises(InputError, match="another run"):
                run(tmp_path / "out")
            raise Stopped

    with pytest.raises(Stopped):
        run(tmp_path / "out", chunk=2, progress=another)
    run(tmp_path / "out")


@pytest.mark.parametrize("where", ["part", "tables", "rename"])
def test_a_full_disk_leaves_earlier_results_as_they_were_and_the_run_can_go_on(tmp_path, monkeypatch, where):
    out = tmp_path / "out"
    run(out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def no_space(*_, **__):
        raise full

    with monkeypatch.context() as patched:
        if where == "part":
            patched.setattr(parts.np, "savez", no_space)
        elif where == "tables":
            patched.setattr(attempt, "publish", no_space)
        else:
            rename = os.replace

            def replace_(source, target):
                if Path(target).name == "demand.parquet":
                    raise full
                rename(source, target)

            patched.setattr(os, "replace", replace_)
        with pytest.raises(InputError, match="No space left on device"):
            run(out, model=ToyModel(seed=1))
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    again = run(out, model=ToyModel(seed=1))
    assert again.info["zones"]["finished_before"] == (0 if where == "part" else 6)
    run(tmp_path / "fresh", model=ToyModel(seed=1))
    assert tables(out) == tables(tmp_path / "fresh")


def test_a_run_does_not_replace_its_panel(tmp_path):
    panel = tmp_path / "demand.parquet"
    write_parquet(PANEL, panel)
    before = panel.read_bytes()
    with pytest.raises(InputError, match="would replace its panel"):
        run(tmp_path, panel)
    assert panel.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["demand.parquet"]
