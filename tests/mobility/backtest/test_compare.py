"""Scores of models whose merits are known."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
from known_city import known_panel, oracle, true_rate

from unmet import InputError, metrics
from unmet.execution import WorkerDied, in_processes, serially
from unmet.mobility.backtest import backtest
from unmet.mobility.backtest.output import markdown, readable_tables
from unmet.mobility.backtest.scoring import LEVELS, PINBALL, answer, metrics_of, tally
from unmet.mobility.backtest.trials import REPLAY, Trial, replay
from unmet.mobility.models.rates import Rates
from unmet.mobility.models.registry import MODELS
from unmet.mobility.models.zone_data import zone_data

PANEL = known_panel(zones=3, days=84)
run = partial(backtest, executor=serially, draws=100)


def value(done, model, task, subset, metric, column="value"):
    table = done.summary
    at = (table["model"] == model) & (table["task"] == task)
    (found,) = table[at & (table["subset"] == subset) & (table["metric"] == metric)][column]
    return found


@pytest.fixture(scope="module")
def known():
    """The oracle and the baselines on a city of some size."""
    models = {"oracle": oracle, **{name: MODELS[name] for name in ("weekly-mean", "drop-censored", "observed")}}
    return run(known_panel(zones=5, days=140, seed=4), models, folds=2, share=0.25)


def test_the_oracle_has_no_bias(known):
    for task, subset in [("held-out", "all"), *(("replay", s) for s in ("all", "cut", ">= half", "< half", "zero"))]:
        trips = value(known, "oracle", task, subset, "trips")
        # Poisson counts about their means: the total's relative error is one over its root.
        assert abs(value(known, "oracle", task, subset, "bias")) < 4 / np.sqrt(trips), (task, subset)
    assert value(known, "oracle", "replay", "full", "bias") == 0.0


def test_the_oracle_has_nominal_coverage(known):
    for task, subset in [("held-out", "all"), ("replay", "zero"), ("replay", "cut")]:
        subset = "full" if task == "held-out" else subset
        rows = value(known, "oracle", task, subset, "rows")
        for level in LEVELS:
            share = value(known, "oracle", task, subset, f"calibration_{level}")
            # Held-out bins that were fully available are chosen for low demand, a little.
            slack = 0.02 if task == "held-out" else 0.0
            assert abs(share - level / 100) < slack + 4 * 0.5 / np.sqrt(rows)
            assert value(known, "oracle", task, subset, f"coverage_{level}") >= share - 0.005  # counts tie


def test_bins_that_never_ran_out_make_even_the_oracle_look_too_high(known):
    assert value(known, "oracle", "held-out", "full", "bias") > 0.01


def test_what_was_recorded_is_short_of_demand_on_replay_and_pickups_over_exposure_are_not(known):
    assert value(known, "observed", "replay", "all", "bias") < -0.3
    assert value(known, "observed", "replay", "zero", "bias") == -1.0
    assert abs(value(known, "weekly-mean", "replay", "all", "bias")) < 0.02
    assert abs(value(known, "weekly-mean", "held-out", "all", "bias")) < 0.03
    assert value(known, "drop-censored", "replay", "cut", "bias") < value(known, "weekly-mean", "replay", "cut", "bias")


def test_only_an_estimate_that_follows_supply_has_errors_that_do(known):
    assert value(known, "observed", "replay", "all", "error_correlation") < -0.5
    assert value(known, "observed", "replay", "all", "stockout_correlation") < -0.3
    assert abs(value(known, "oracle", "replay", "all", "error_correlation")) < 0.03


def test_the_oracle_is_ahead_on_every_score(known):
    for task, subset in (("held-out", "full"), ("replay", "cut")):
        for metric in ("rmse", "crps", "pinball_05", "pinball_95"):
            best = value(known, "oracle", task, subset, metric)
            for model in ("weekly-mean", "observed"):
                assert best < value(known, model, task, subset, metric), (task, metric, model)


def test_sums_give_the_scores_of_all_rows_together():
    """Two zones' sums against the scores of their rows in one heap, by the functions of unmet.metrics."""
    rng = np.random.default_rng(0)
    heap, parts = [], []
    for zone, days in (("a", 30), ("b", 40)):
        trial = replay(zone_data(known_panel(1, days).assign(zone=zone)), None, fold=0, folds=1, share=0.4, seed=0)
        truth = trial.truth[trial.scored]
        draws = truth * 0.8 + rng.normal(size=(50, truth.size))
        mean = draws.mean(axis=0)
        parts.append(tally(trial, mean, draws))
        out, slot, kind = (x[trial.scored] for x in (trial.data.stockout, trial.data.slot, trial.subset))
        heap.append((truth, mean, draws, out, pd.Series(slot), kind))
    sums = pd.concat(parts).groupby("subset", sort=False).sum(numeric_only=True, min_count=1)
    found = metrics_of(sums)
    truth, mean, draws, _, _, kind = (np.concatenate(column, axis=-1) for column in zip(*heap, strict=True))
    for subset in found.index:
        rows = {"all": kind != "", "cut": kind != "full"}.get(subset, kind == subset)
        got = found.loc[subset]
        assert got["rows"] == rows.sum()
        assert got["trips"] == truth[rows].sum()
        assert got["bias"] == pytest.approx(metrics.bias(truth, mean, where=rows))
        assert got["wape"] == pytest.approx(metrics.wape(truth, mean, where=rows))
        assert got["rmse"] == pytest.approx(metrics.rmse(truth, mean, where=rows))
        assert got["crps"] == pytest.approx(metrics.crps_samples(truth, draws, where=rows))
        for q in PINBALL:
            quantile = np.quantile(draws, q / 100, axis=0)
            assert got[f"pinball_{q:02d}"] == pytest.approx(metrics.pinball(truth, quantile, q / 100, where=rows))
        for level in LEVELS:
            low, high = np.quantile(draws, [0.5 - level / 200, 0.5 + level / 200], axis=0)
            assert got[f"coverage_{level}"] == pytest.approx(metrics.coverage(truth, low, high, where=rows))
    inner = [
        [column - column.groupby(slot).transform("mean") for column in (pd.Series(o), pd.Series(m), pd.Series(m - t))]
        for t, m, _, o, slot, _ in heap
    ]
    x, estimate, error = (pd.concat(column) for column in zip(*inner, strict=True))
    assert found.loc["all", "stockout_correlation"] == pytest.approx(np.corrcoef(x, estimate)[0, 1])
    assert found.loc["all", "error_correlation"] == pytest.approx(np.corrcoef(x, error)[0, 1])


def test_calibration_is_coverage_with_ties_broken_by_lot():
    """Against lots drawn many times: the truth's place among draws that equal it is any, and anywhere between two."""
    rng = np.random.default_rng(3)
    trial = replay(zone_data(known_panel(1, 14)), None, fold=0, folds=1, share=0.2, seed=0)
    truth = trial.truth[trial.scored]
    draws = rng.poisson(1.5, (20, truth.size)).astype(float)
    got = metrics_of(tally(trial, draws.mean(axis=0), draws)).iloc[0]
    below, ties = (draws < truth).sum(axis=0), (draws == truth).sum(axis=0)
    place = (below + rng.uniform(size=(4000, truth.size)) * (ties + 1)) / 21
    for level in LEVELS:
        inside = np.abs(place - 0.5) < level / 200
        assert got[f"calibration_{level}"] == pytest.approx(inside.mean(), abs=0.005)


def test_of_what_was_lost_only_the_part_in_available_time_is_compared():
    """A bin of which 0.2 was kept, 0.6 cut and 0.2 truly out: three quarters of the model's loss count."""
    data = zone_data(known_panel(1, 2, stock=None).iloc[:2])
    data.observed[:], data.exposure[:], data.stockout[:] = 3.0, 0.2, 0.8
    every = np.ones(2, dtype=bool)
    trial = Trial(REPLAY, data, every, np.full(2, 7.0), np.array([0.75, 1.0]), np.array(["< half"] * 2))
    flat = np.zeros(2)
    lost = np.full((4000, 2), 8.0)
    mean, draws = answer(trial, Rates(flat, flat, flat, flat, lost, lost[0]), seed=1)
    assert mean.tolist() == [9.0, 11.0]
    assert draws[:, 0].mean() == pytest.approx(9.0, abs=0.1)
    assert draws[:, 0].var() == pytest.approx(8 * 0.75 * 0.25, rel=0.1)  # each trip by itself
    assert (draws[:, 1] == 11.0).all()
    _, draws = answer(trial, Rates(flat, flat, flat, flat, lost + 0.5, lost[0]), seed=1)
    assert np.allclose(draws[:, 0], 3 + 0.75 * 8.5)  # no counts


def test_the_same_seed_gives_the_same_scores_and_another_others():
    models = ["weekly-mean", "observed"]
    first, again, other = run(PANEL, models), run(PANEL, models), run(PANEL, models, seed=1)
    pd.testing.assert_frame_equal(first.scores, again.scores)
    pd.testing.assert_frame_equal(first.summary, again.summary)
    assert not first.scores["value"].equals(other.scores["value"])


def test_a_zone_is_scored_alike_whoever_its_neighbours_are():
    alone = run(PANEL[PANEL["zone"] == "z1"], ["weekly-mean"]).scores
    beside = run(PANEL, ["weekly-mean"]).scores
    pd.testing.assert_frame_equal(alone, beside[beside["zone"] == "z1"].reset_index(drop=True))


def test_hidden_pickups_change_no_answer():
    """Models are shown the same when the hidden weeks are another's."""
    shown = []

    def watching(data, draws, seed):
        shown.append(data)
        return oracle(data, draws, seed)

    run(PANEL, {"watching": watching}, tasks=["held-out"])
    hidden = np.concatenate([np.isnan(data.observed) for data in shown])
    before, shown = shown, []
    changed = PANEL.assign(observed=np.where(hidden, 50, PANEL["observed"]))
    run(changed, {"watching": watching}, tasks=["held-out"])
    assert hidden.any()
    for old, new in zip(before, shown, strict=True):
        np.testing.assert_array_equal(old.observed, new.observed)
        np.testing.assert_array_equal(old.exposure, new.exposure)


def _fails_on_z1(data, draws, seed):
    if data.zone == "z1":
        raise ZeroDivisionError("no luck")
    return oracle(data, draws, seed)


def _fails(data, draws, seed):
    raise InputError("never works")


def test_models_are_compared_on_the_zones_that_all_could_do():
    done = run(PANEL, {"oracle": oracle, "some": _fails_on_z1, "none": _fails}, tasks=["replay"])
    assert set(done.summary["zones"]) == {2}
    assert set(done.summary["model"]) == {"oracle", "some"}
    assert set(done.scores.query("model == 'oracle'")["zone"]) == {"z0", "z1", "z2"}
    failed = done.failed.set_index(["zone", "model"])["reason"]
    assert failed["z1", "some"] == "ZeroDivisionError: no luck"
    assert failed["z1", "none"] == "never works"
    assert len(failed) == 4
    assert len(done.fits) == 9
    assert "4 of 9 fits failed" in markdown(done)


def test_a_bin_that_comes_twice_fails_the_fits_of_its_zone_only():
    twice = PANEL[PANEL["zone"] == "z1"].iloc[[5]]
    done = run(pd.concat([PANEL, twice]), ["observed", "weekly-mean"], tasks=["replay"])
    assert set(done.failed["zone"]) == {"z1"}
    assert list(done.failed["model"]) == ["observed", "weekly-mean"]
    assert done.failed["reason"].str.contains("1 bins occur twice").all()
    assert set(done.scores["zone"]) == {"z0", "z2"}


def test_where_nothing_can_be_done_the_error_says_why():
    with pytest.raises(InputError, match="z0: never works"):
        run(PANEL, {"none": _fails})
    with pytest.raises(InputError, match="at least 2 weeks"):
        run(PANEL[PANEL["start"] < "2024-03-11"], ["observed"], tasks=["held-out"])


START = PANEL["start"].drop_duplicates()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"models": ["magic"]}, "no model 'magic'"),
        ({"models": []}, "expected at least one of"),
        ({"tasks": ["guess"]}, "no task 'guess'"),
        ({"tasks": []}, "tasks: expected at least one of held-out, replay"),
        ({"folds": 3, "share": 0.5}, "may not exceed 1"),
        ({"share": 1.0}, "between 0 and 1"),
        ({"draws": 3}, "expected 20 to 10,000"),
        ({"models": "observed"}, "models: expected a list of names, got 'observed'"),
        ({"models": 5}, "models: expected a list of names, got 5"),
        ({"tasks": "replay"}, "tasks: expected a list of names"),
        ({"folds": 2.5}, "folds: expected a whole number"),
        ({"share": "a"}, "share must be numbers"),
        ({"features": 5}, "features: expected a pandas DataFrame with a column 'start'"),
        ({"features": pd.DataFrame({"start": START, "rain": np.inf})}, "rain must be numbers of at most 1e.100"),
        ({"features": pd.DataFrame({"start": START, "rain": "wet"})}, "features: rain must be numbers"),
        ({"features": pd.DataFrame({"start": START[5:], "rain": 1.0})}, "5 of [0-9,]+ bins of the panel have no row"),
        ({"features": pd.DataFrame({"start": ["soon"], "rain": 1.0})}, "features: start must be times"),
    ],
)
def test_what_makes_no_sense_is_explained(options, said):
    with pytest.raises(InputError, match=said):
        run(PANEL, **{"models": ["observed"], **options})


def test_a_task_that_is_named_twice_counts_once():
    """Its rows and trips were counted twice."""
    once, twice = (run(PANEL, ["observed"], tasks=["replay"] * n).summary for n in (1, 2))
    pd.testing.assert_frame_equal(once, twice)


def test_a_lost_worker_costs_its_zones_another_attempt():
    calls, notes = [], []

    def losing(function, items, jobs):
        for item in items:
            ((zone,), _) = item
            calls.append((zone, jobs))
            if zone == "z2" or (zone == "z1" and jobs > 1):
                yield item, WorkerDied("gone")
            else:
                yield item, function(item)

    done = backtest(
        PANEL,
        ["observed"],
        jobs=2,
        executor=losing,
        progress=lambda done, zones, note: notes.append((done, zones, note)),
    )
    assert calls == [("z0", 2), ("z1", 2), ("z2", 2), ("z1", 1), ("z2", 1)]
    assert set(done.scores["zone"]) == {"z0", "z1"}
    assert done.failed[["zone", "reason"]].to_numpy().tolist() == [["z2", "WorkerDied: gone"]]
    assert notes[0] == (0, 3, "")
    assert notes[-1] == (3, 3, "")
    assert any("z1" in note for _, _, note in notes)


@pytest.mark.slow
def test_processes_give_what_one_process_gives():
    panel = PANEL[PANEL["zone"] != "z2"]
    here = run(panel, ["weekly-mean"], tasks=["replay"])
    there = run(panel, ["weekly-mean"], tasks=["replay"], executor=in_processes, jobs=2)
    pd.testing.assert_frame_equal(here.scores, there.scores)


def test_standard_errors_are_those_of_leaving_out_a_zone(known):
    biases = []
    table = known.scores.query("model == 'oracle' and task == 'replay' and subset == 'all'")
    for zone in table["zone"].unique():
        wide = table[table["zone"] != zone].pivot(index="zone", columns="metric", values="value")
        biases.append((wide["bias"] * wide["trips"]).sum() / wide["trips"].sum())
    expected = np.sqrt((len(biases) - 1) * np.var(biases))
    assert value(known, "oracle", "replay", "all", "bias", "se") == pytest.approx(expected)


def test_tables_show_what_the_summary_says(known):
    held_out, biases, scores = readable_tables(known.summary)
    assert [row[0] for row in held_out.rows] == ["oracle", "weekly-mean", "drop-censored", "observed"]
    shown = dict(zip(biases.columns, biases.rows[3], strict=True))
    assert shown["zero"] == "-100.0 %"
    assert shown["bias"].startswith(f"{100 * value(known, 'observed', 'replay', 'all', 'bias'):+.1f} ± ")
    shown = dict(zip(scores.columns, scores.rows[3], strict=True))
    assert shown["CRPS"] == f"{value(known, 'observed', 'replay', 'cut', 'crps'):.3f}"
    text = markdown(known)
    assert "## Replay with supply cut, bias: " in text
    widths = [line.count("|") - 1 for line in text.splitlines() if line.startswith("| oracle")]
    assert widths == [len(table.columns) for table in (held_out, biases, scores)]


def test_rates_of_the_known_city_are_what_the_tests_take_them_for():
    panel = known_panel(zones=1, days=700, stock=None)
    slot = (panel["start_local"].dt.day_of_week * 24 + panel["start_local"].dt.hour).to_numpy()
    assert panel["observed"].sum() == pytest.approx(true_rate(slot).sum(), rel=0.02)
