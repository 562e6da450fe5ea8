import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import unmet
from unmet import InputError, UnmetError
from unmet.experiments import _run
from unmet.experiments._runner import Cell, generator, run_cells


def cells(n, **depends_on):
    return [Cell("toy", {"i": i}, depends_on) for i in range(n)]


def square(cell, log=None, seed=0):
    if log is not None:
        with open(log, "a") as file:
            file.write(f"{cell.settings['i']}\n")
    return {"rows": [cell.settings["i"] ** 2], "draw": generator(seed, "toy", cell.settings["i"]).random()}


def test_results_come_in_the_order_of_the_cells_whatever_the_number_of_processes(tmp_path):
    one = run_cells(cells(7), square, tmp_path / "one", jobs=1)
    two = run_cells(cells(7), square, tmp_path / "two", jobs=2)
    assert one == two
    assert [r["rows"] for r in one] == [[i * i] for i in range(7)]


def test_finished_cells_are_not_computed_again(tmp_path):
    log = tmp_path / "log"
    first = run_cells(cells(3), partial(square, log=log), tmp_path / "cells", jobs=1)
    more = run_cells(cells(5), partial(square, log=log), tmp_path / "cells", jobs=1)
    assert more[:3] == first
    assert sorted(log.read_text().split()) == ["0", "1", "2", "3", "4"]


def test_a_cell_that_depends_on_other_data_or_another_seed_is_another_cell(tmp_path):
    log = tmp_path / "log"
    run_cells(cells(2, seed=0), partial(square, log=log), tmp_path / "cells", jobs=1)
    run_cells(cells(2, seed=1), partial(square, log=log), tmp_path / "cells", jobs=1)
    assert len(log.read_text().split()) == 4
    names = {c.file_name for c in [*cells(3, seed=0), *cells(3, seed=1), Cell("other", {"i": 0}, {"seed": 0})]}
    assert len(names) == 7


def fail_at_two(cell):
    if cell.settings["i"] == 2:
        raise InputError("cannot")
    return {"rows": []}


def test_cells_finished_before_a_failure_are_kept(tmp_path):
    with pytest.raises(InputError, match="cannot"):
        run_cells(cells(4), fail_at_two, tmp_path, jobs=1)
    assert {c.file_name for c in cells(2)} <= {p.name for p in tmp_path.iterdir()}


def test_a_damaged_cell_is_refused_by_name(tmp_path):
    run_cells(cells(1), square, tmp_path, jobs=1)
    (path,) = tmp_path.iterdir()
    path.write_text('{"rows": [')
    with pytest.raises(InputError, match=path.name):
        run_cells(cells(1), square, tmp_path, jobs=1)


def test_names_of_zones_cannot_leave_the_folder(tmp_path):
    name = Cell("bike", {"zone": "../../etc/passwd\n|"}, {}).file_name
    assert os.sep not in name
    assert (tmp_path / name).resolve().parent == tmp_path.resolve()


@pytest.mark.parametrize("jobs", [0, -2])
def test_a_number_of_processes_that_makes_no_sense_is_refused(tmp_path, jobs):
    with pytest.raises(InputError, match="jobs"):
        run_cells(cells(1), square, tmp_path, jobs=jobs)


def test_generators_differ_by_identity():
    draws = {
        generator(*k).random() for k in [(0, "taxi", 0.1, 0), (1, "taxi", 0.1, 0), (0, "taxi", 0.2, 0), (0, "bike")]
    }
    assert len(draws) == 4


def die_at_two(cell, log, times):
    """A worker that is killed, as by a machine out of memory, the first `times` times that it comes to cell 2."""
    if cell.settings["i"] == 2:
        with open(log, "a") as file:
            file.write("x")
        if log.stat().st_size <= times:
            os._exit(9)
    return {"rows": [cell.settings["i"]]}


@pytest.mark.slow
def test_a_worker_that_dies_costs_a_retry_of_its_cell_and_not_the_run(tmp_path):
    told = []
    compute = partial(die_at_two, log=tmp_path / "log", times=1)
    results = run_cells(cells(5), compute, tmp_path / "cells", jobs=2, progress=lambda *said: told.append(said))
    assert [r["rows"] for r in results] == [[i] for i in range(5)]
    assert (tmp_path / "log").read_text() == "xx"
    assert sum("i=2 was lost; the cell is tried again" in note for _, _, note in told) == 1
    assert told[-1] == (5, 5, "")


@pytest.mark.slow
def test_a_cell_that_always_kills_its_worker_is_named_and_the_others_are_kept(tmp_path):
    compute = partial(die_at_two, log=tmp_path / "log", times=9)
    with pytest.raises(UnmetError, match=r"i=2 died twice.*the same command goes on"):
        run_cells(cells(4), compute, tmp_path / "cells", jobs=2)
    kept = {p.name for p in (tmp_path / "cells").iterdir()}
    assert kept >= {c.file_name for c in (cells(4)[0], cells(4)[1])}
    assert all(name.endswith(".json") and not name.startswith(".") for name in kept)


def test_progress_says_what_was_done_before(tmp_path):
    told = []
    run_cells(cells(2), square, tmp_path, jobs=1)
    run_cells(cells(3), square, tmp_path, jobs=1, progress=lambda *said: told.append(said))
    assert told == [(2, 3, "2 of 3 cells were done before and are kept."), (3, 3, "")]


def _reproduce(out: Path, jobs: int) -> list[str]:
    program = "from unmet.cli import main; main()"
    return [sys.executable, "-c", program, "reproduce", "synthetic", "--quick", "--out", str(out), "--jobs", str(jobs)]


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_and_gives_identical_tables(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = subprocess.Popen(_reproduce(killed, 1), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    done: list[Path] = []
    while process.poll() is None and len(done) < 3:
        done = list((killed / "cells").glob("[!.]*.json"))
        try:
            process.wait(timeout=0.02)
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    process.wait()
    assert not (killed / "results.csv").exists(), "it was to be killed before it had finished"
    before = {p.name: (p.stat().st_mtime_ns, p.stat().st_ino) for p in (killed / "cells").glob("[!.]*.json")}
    assert 3 <= len(before) < 20
    subprocess.run(_reproduce(killed, 1), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run(_reproduce(whole, 2), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = {p.name: (p.stat().st_mtime_ns, p.stat().st_ino) for p in (killed / "cells").glob("[!.]*.json")}
    assert {name: after[name] for name in before} == before, "a finished cell was computed again"
    for name in ("results.csv", "table.csv", "table.md", "figure1.png", "figure1.svg"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name
    again = [json.loads(p.read_text()) for p in sorted((killed / "cells").glob("[!.]*.json"))]
    assert np.isfinite([row["value"] for result in again for row in result["rows"]]).all()


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_is_130_with_one_sentence_and_the_same_command_goes_on(tmp_path):
    def usual_signals() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    environment = {**os.environ, "PYTHONPATH": str(Path(unmet.__file__).parents[1]), "COLUMNS": "200"}
    command = _reproduce(tmp_path / "out", 2)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen(command, start_new_session=True, preexec_fn=usual_signals, **pipes) as running:
        said = []
        for line in running.stderr:
            said.append(line)
            if line.startswith("2 of 20 cells"):
                os.killpg(running.pid, signal.SIGINT)  # Ctrl-C reaches the workers too
        printed = running.stdout.read()
    assert running.returncode == 130, said
    *progress, last = said
    assert last == "Interrupted. Finished work is kept; run the same command to continue.\n"
    assert all("of 20 cells done, " in line for line in progress), said
    assert printed == ""
    again = subprocess.run(command, check=True, **pipes)
    assert "of 20 cells were done before and are kept." in again.stderr.splitlines()[0]
    assert "% of seeds" in again.stdout


def test_cells_of_another_version_of_the_package_are_not_taken_for_this_ones(tmp_path, monkeypatch):
    log = tmp_path / "log"
    asked = _run.Run(tmp_path, jobs=1)
    for version in ("1.0", "1.0", "1.1"):
        monkeypatch.setattr(_run, "__version__", version)
        _run.compute_all(asked, "toy", [{"i": 0}], partial(square, log=log))
    assert log.read_text().split() == ["0", "0"]
