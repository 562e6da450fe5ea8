"""Results that were damaged, edited or mixed with those of another run are refused by every reader of a run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from report.small_runs import run_on
from unmet._exceptions import FileFormatError, InputError
from unmet._storage.hashes import file_hash
from unmet._storage.ledger import Seen, StageRecord, write_ledger
from unmet._storage.parquet import read_parquet, write_parquet
from unmet.mobility.runs import read_run
from unmet.mobility.runs.outputs import TABLES, write_info
from unmet.mobility.runs.periods import read_draws
from unmet.mobility.runs.totals import ZoneDraws
from unmet.report import export_tables, write_report
from unmet.simulate import simulate_city


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return run_on(simulate_city(stations=2, days=15, seed=1), tmp_path_factory.mktemp("made"))


@pytest.fixture
def folder(made, tmp_path) -> Path:
    """The folder of `unmet run`, as its results are: the panel, and the estimate within."""
    shutil.copy(made.panel, tmp_path / "panel.parquet")
    shutil.copytree(made.folder, tmp_path / "estimate")
    return tmp_path


def readers(folder: Path, tmp_path: Path, trust: bool = False) -> list:
    panel = folder.parent / "panel.parquet" if folder.name == "estimate" else folder / "panel.parquet"
    return [
        lambda: write_report(folder, tmp_path / "page.html", panel=panel, trust=trust),
        lambda: export_tables(folder, tmp_path / "tables", formats=["csv"], panel=panel, trust=trust),
    ]


def refused(folder: Path, tmp_path: Path, said: str) -> None:
    for read in readers(folder, tmp_path):
        with pytest.raises(InputError, match=said):
            read()
    assert not (tmp_path / "page.html").exists()
    assert not (tmp_path / "tables").exists()


@pytest.mark.parametrize("name", TABLES)
def test_a_flipped_bit_is_noticed(folder, tmp_path, name):
    path = folder / "estimate" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.write_bytes(content)
    refused(folder / "estimate", tmp_path, f"{name}: was damaged or changed since the run.*--trust")
    with pytest.raises(FileFormatError, match=name):
        read_run(folder / "estimate")


@pytest.mark.parametrize("name", [name for name in TABLES if name.endswith(".parquet")])
def test_other_numbers_in_a_valid_file_are_noticed_unless_trusted(folder, tmp_path, name):
    path = folder / "estimate" / name
    table = read_parquet(path)
    numbers = table.select_dtypes("float64").columns
    write_parquet(table.assign(**{column: 2 * table[column] for column in numbers}), path)
    refused(folder / "estimate", tmp_path, "was damaged or changed")
    for read in readers(folder / "estimate", tmp_path, trust=True):
        read()
    pd.testing.assert_frame_equal(
        read_run(folder / "estimate", trust=True).zones, read_parquet(path.parent / TABLES[1])
    )


def test_other_numbers_in_run_json_are_noticed(folder, tmp_path):
    path = folder / "estimate" / "run.json"
    info = json.loads(path.read_text())
    info["totals"]["lost"]["mean"] += 1
    path.write_text(json.dumps(info, indent=2))
    refused(folder / "estimate", tmp_path, "run.json: was damaged or changed")


def test_a_panel_of_another_run_is_noticed(folder, tmp_path):
    run_on(simulate_city(stations=2, days=15, seed=2), tmp_path / "other")
    shutil.copy(tmp_path / "other" / "panel.parquet", folder / "panel.parquet")
    refused(folder, tmp_path, "is not the panel of this run")


@pytest.fixture
def moved(made, folder, tmp_path, monkeypatch) -> Path:
    """A copy of a run, read in a working directory where the recorded path of its panel is that of another file."""
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copytree(folder / "estimate", copy / "estimate")
    shutil.move(folder / "panel.parquet", copy / "panel.parquet")
    info = json.loads((copy / "estimate" / "run.json").read_text())
    write_info(copy / "estimate" / "run.json", {**info, "panel_path": "here/panel.parquet"})
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    return copy


@pytest.mark.parametrize("within", [".", "estimate"])
def test_a_run_beside_its_panel_does_not_take_that_of_another_run(moved, tmp_path, within):
    run_on(simulate_city(stations=2, days=15, seed=2), tmp_path / "other")
    shutil.copy(tmp_path / "other" / "panel.parquet", tmp_path / "here" / "panel.parquet")
    write_report(moved / within, tmp_path / "page.html")
    export_tables(moved / within, tmp_path / "tables", formats=["csv"])


def test_a_changed_panel_is_noticed_although_the_original_is_still_there(moved, tmp_path):
    shutil.copy(moved / "panel.parquet", tmp_path / "here" / "panel.parquet")
    write_ledger(moved, {"panel": StageRecord({}, {}, {})})
    (moved / "panel.parquet").write_bytes((moved / "panel.parquet").read_bytes() + b" ")
    for read in (write_report, export_tables):
        with pytest.raises(InputError, match=r"copy.panel\.parquet"):
            read(moved, tmp_path / "made")


def test_results_whose_ledger_is_of_another_run_are_noticed(folder, tmp_path):
    """The last moment of a publish: everything is moved into place, but the old ledger is still there."""

    def write(sha256: str) -> None:
        seen = Seen(0, 0, 0, sha256)
        write_ledger(folder, {"estimate": StageRecord({}, {}, {"estimate/run.json": seen})})

    write(64 * "0")
    refused(folder, tmp_path, "not all of the same run.*Run the same `unmet run` command again")
    write(file_hash(folder / "estimate" / "run.json"))
    for read in readers(folder, tmp_path):
        read()


@pytest.mark.slow
def test_damage_that_only_shows_while_tables_are_read_is_bad_input(folder, tmp_path):
    path = folder / "estimate" / "demand.parquet"
    whole = path.read_bytes()
    refusals = {"report": 0, "export": 0}
    for tenth in range(1, 10):
        content = bytearray(whole)
        begin = tenth * len(content) // 10
        content[begin : begin + 64] = bytes(64)
        path.write_bytes(content)
        for name, read in zip(refusals, readers(folder / "estimate", tmp_path, trust=True), strict=True):
            try:
                read()  # other numbers in a column, or one that is not needed: trusted
            except FileFormatError:
                refusals[name] += 1
    assert min(refusals.values()) > 0


def test_damaged_draws_are_bad_input_or_other_numbers(folder, tmp_path):
    path = folder / "estimate" / "draws.npz"
    whole = path.read_bytes()
    refusals = 0
    for tenth in range(10):
        content = bytearray(whole)
        begin = tenth * len(content) // 10
        content[begin : begin + 64] = bytes(64)
        path.write_bytes(content)
        try:
            read_draws(path)
        except FileFormatError:
            refusals += 1
    assert refusals > 5


def test_a_ledger_nested_too_deeply_is_no_ledger(folder, tmp_path):
    (folder / "stages.json").write_text("[" * 100_000)
    for read in readers(folder, tmp_path):
        read()


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, None])
def test_a_damaged_run_of_returns_is_not_taken_for_none(folder, tmp_path, content):
    returns = folder / "estimate" / "returns"
    shutil.copytree(folder / "estimate", returns)
    path = returns / "run.json"
    if content is None:  # a bit of the hash of its panel
        text = path.read_text()
        at = text.index('"panel": "') + 12
        content = (text[:at] + ("1" if text[at] == "0" else "0") + text[at + 1 :]).encode()
    path.write_bytes(content)
    refused(folder / "estimate", tmp_path, "returns.*(damaged or are incomplete|was damaged or changed)")


def test_returns_that_may_not_be_read_are_not_taken_for_none(folder, tmp_path, monkeypatch):
    shutil.copytree(folder / "estimate", folder / "estimate" / "returns")
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "returns" and may(path, mode))
    refused(folder / "estimate", tmp_path, "returns: cannot open this folder: permission denied")


def test_a_ledger_that_cannot_be_opened_does_not_stop_a_reader(folder, tmp_path):
    (folder / "stages.json").symlink_to("stages.json")
    write_report(folder, tmp_path / "page.html", panel=folder / "panel.parquet")
    assert (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("lost", lambda v: np.full_like(v, np.nan)),
        ("observed", lambda v: np.full_like(v, np.inf)),
        ("lost", lambda v: v[:-1]),
        ("lost", lambda v: v + 1j),
        ("periods", lambda v: v[::-1]),
        ("periods", lambda v: v.astype(float)),
    ],
)
def test_draws_that_are_no_finite_numbers_are_refused(
    tmp_path: Path, name: str, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    path = tmp_path / "draws.npz"
    parts = {"0_periods": np.arange(3)} | {f"0_{f.name}": np.ones((3, 2), np.float32) for f in fields(ZoneDraws)}
    np.savez(path, keys=np.array([""]), **{**parts, f"0_{name}": change(parts[f"0_{name}"])})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"draws\.npz: does not contain draws by period"):
        read_draws(path)


@pytest.mark.parametrize("name", ["versions", "model", "provenance", "costs", "joint", "notes", "panel_path"])
def test_other_kinds_in_a_trusted_run_are_bad_input(folder: Path, tmp_path: Path, name: str) -> None:
    path = folder / "estimate" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: 5}))
    for read in readers(folder / "estimate", tmp_path, trust=True):
        with pytest.raises(FileFormatError, match=rf"run\.json: expected another kind of '{name}'"):
            read()


def test_numbers_that_are_not_finite_in_a_trusted_run_are_bad_input(folder: Path, tmp_path: Path) -> None:
    path = folder / "estimate" / "totals.parquet"
    write_parquet(read_parquet(path).assign(mean=np.inf), path)
    with pytest.raises(FileFormatError, match="numbers that are not finite"):
        write_report(folder / "estimate", tmp_path / "page.html", trust=True)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("zones", lambda t: pd.concat([t, t]), "expected one row per zone; 'SIM001' has several"),
        ("totals", lambda t: pd.concat([t, t]), "expected each total once; system, observed has several rows"),
        ("totals", lambda t: t[t["level"] != "system"], "no row of the system for observed, lost"),
        ("totals", lambda t: t[t["quantity"] != "lost"], "no row of the system for lost"),
        ("totals", lambda t: t.iloc[:0], "no row of the system"),
        ("totals", lambda t: t.assign(hour_of_week=t["hour_of_week"].replace(3, 999)), "should be 0 to 167, is 999"),
        ("totals", lambda t: t.drop(columns="mean"), "there is no column 'mean'"),
        ("demand", lambda t: pd.concat([t, t]), "expected 358 rows of zone 'SIM001', one per bin; found 716"),
        ("demand", lambda t: t[t["zone"] != "SIM002"], "expected 358 rows of zone 'SIM002', one per bin; found 0"),
    ],
)
@pytest.mark.parametrize("place", [".", "returns"])
def test_missing_and_repeated_rows_in_a_trusted_run_are_bad_input(
    folder: Path, tmp_path: Path, place: str, name: str, change: Callable[[pd.DataFrame], pd.DataFrame], said: str
) -> None:
    if place == "returns":
        shutil.copytree(folder / "estimate", folder / "estimate" / place)
        info = json.loads((folder / "estimate" / "run.json").read_text())
        of_these_pickups = {**info["panel"], "summary": {"of": info["inputs"]["panel"]}}
        (folder / "estimate" / place / "run.json").write_text(json.dumps({**info, "panel": of_these_pickups}))
    path = folder / "estimate" / place / f"{name}.parquet"
    write_parquet(change(read_parquet(path)), path)
    for read in readers(folder / "estimate", tmp_path, trust=True):
        with pytest.raises(FileFormatError, match=rf"{name}\.parquet: .*{said}"):
            read()
