import numpy as np
import pandas as pd
import pytest

from unmet import FileFormatError, InputError
from unmet.censoring import dropoff_probability
from unmet.experiments import _taxi_report, taxi
from unmet.experiments._runner import Cell


def own(rows=673, first="2024-01-07 23:45"):
    rng = np.random.default_rng(0)
    start = pd.date_range(first, periods=rows, freq="15min")
    level = 60 + 50 * np.sin(2 * np.pi * (start.hour - 6) / 24)
    return pd.DataFrame({"timestamp": start, "pickups": rng.poisson(level), "dropoffs": rng.poisson(level)})


@pytest.fixture
def week(tmp_path):
    own().to_csv(tmp_path / "own.csv", index=False)
    return taxi.load(tmp_path / "own.csv")


def test_a_week_has_the_papers_features_and_the_dropoffs_of_the_bin_before(week):
    table = own()
    assert week.X.shape == (672, 3)
    assert week.X[0].tolist() == [1, 0, 0]  # Monday, midnight
    assert week.X[-1].tolist() == [672, 23, 6]
    np.testing.assert_array_equal(week.pickups, table.pickups[1:])
    np.testing.assert_array_equal(week.previous_dropoffs, table.dropoffs[:-1])


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (own(rows=600), "672 bins of a week and the bin before it"),
        (own().drop(index=100), "672 bins"),
        (pd.concat([own().drop(index=100), own().tail(1)]), "is not 15 minutes after"),
        (own().drop(columns="dropoffs"), "no column dropoffs"),
        (own().assign(pickups=-1), "zero or more"),
    ],
)
def test_a_file_that_is_no_week_is_refused_with_the_reason(tmp_path, table, words):
    table.to_csv(tmp_path / "own.csv", index=False)
    with pytest.raises(FileFormatError, match=words):
        taxi.load(tmp_path / "own.csv")


def test_a_longer_file_tells_which_week_was_taken_and_lets_another_be_chosen(tmp_path):
    own(rows=2000).to_csv(tmp_path / "own.csv", index=False)
    first = taxi.load(tmp_path / "own.csv")
    assert "own.csv, the week from Monday, 08 January 2024, 00:00 on, of 2000 quarter-hours" in first.about
    assert "--week" in first.about
    later = taxi.load(tmp_path / "own.csv", "2024-01-17")
    assert "Wednesday, 17 January 2024, 00:00" in later.about
    np.testing.assert_array_equal(later.pickups, own(rows=2000).pickups[1 + 9 * 96 :][:672])
    with pytest.raises(FileFormatError, match="from 2024-01-25 00:00 on; it has 2000 rows, from 2024-01-07 23:45"):
        taxi.load(tmp_path / "own.csv", "2024-01-25")


def test_a_file_of_just_one_week_has_nothing_to_choose(week):
    assert "--week" not in week.about


def test_a_missing_data_file_is_named_with_its_origin(tmp_path, monkeypatch):
    monkeypatch.setenv("UNMET_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"pickups_dropoffs_15min.*is missing.*github\.com.*--data.*timestamp"):
        taxi.load()


@pytest.mark.data
def test_the_laguardia_week_starts_on_monday_13_january_2014(data_dir):
    week = taxi.load()
    assert str(week.start[0]) == "2014-01-13 00:00:00"
    assert week.X[0].tolist() == [1, 0, 0]
    # About gamma of the bins are censored, more rather than less, as in the paper (13, 23, 32, 40 %).
    for gamma, low, high in ((0.1, 0.08, 0.16), (0.2, 0.17, 0.27), (0.3, 0.25, 0.35), (0.4, 0.33, 0.45)):
        assert low < dropoff_probability(week.pickups, week.previous_dropoffs, gamma).mean() < high


def test_the_label_is_a_feature_of_the_two_models_that_know_of_censoring(week):
    label = np.arange(672) % 2
    assert taxi.inputs("ncgp", week, label).shape == (672, 3)
    for model in ("ncgp-a", "cgp"):
        np.testing.assert_array_equal(taxi.inputs(model, week, label)[:, 3], label)


def test_the_full_protocol_is_the_papers_without_fits_that_cannot_differ():
    grid = taxi.GRIDS["full"]
    cells = taxi.settings_of(grid)
    assert (len(grid.cells), grid.repetitions) == (44, 30)
    count = {m: sum(c["model"] == m for c in cells) for m in ("ncgp", "ncgp-a", "cgp")}
    assert count == {"ncgp": 4 * 10 * 30 + 1, "ncgp-a": 4 * 30, "cgp": 4 * 11 * 30}
    assert {(g, c) for g, c in grid.cells} == {(g, c / 10) for g in (0.1, 0.2, 0.3, 0.4) for c in range(11)}


def test_every_model_of_a_repetition_sees_the_same_labels_whatever_c(week):
    labels = [taxi.observed(week, 0.3, c, 2, 0).label for c in (0.0, 0.4, 1.0)]
    np.testing.assert_array_equal(labels[0], labels[1])
    np.testing.assert_array_equal(labels[0], labels[2])
    assert not np.array_equal(labels[0], taxi.observed(week, 0.3, 0.0, 3, 0).label)
    assert not np.array_equal(labels[0], taxi.observed(week, 0.3, 0.0, 2, 1).label)


def test_folds_are_21_times_eight_consecutive_hours(week, monkeypatch):
    seen = {}

    def stand_in(model, starts, X, y, label, folds, **settings):
        seen.update(folds=folds, X=X, y=y, settings=settings)
        from unmet.experiments._fits import Held

        return Held(np.zeros(672), np.ones(672))

    monkeypatch.setattr(taxi, "cross_validate", stand_in)
    cell = Cell("taxi", {"model": "cgp", "gamma": 0.2, "c": 0.5, "repetition": 0}, {})
    result = taxi._compute(cell, week=week, seed=0, warm_start=False)
    assert [len(f) for f in seen["folds"]] == [32] * 21
    np.testing.assert_array_equal(np.concatenate(seen["folds"]), np.arange(672))
    assert seen["settings"]["max_iter"] == 1000
    assert seen["X"].shape == (672, 4)
    hidden = taxi.observed(week, 0.2, 0.5, 0, 0).censored
    unit = np.sqrt(np.mean(week.pickups**2))
    np.testing.assert_allclose(seen["y"], np.where(hidden, week.pickups / 2, week.pickups) / unit)
    assert not seen["settings"]["normalize_y"], "the prior's mean is zero"
    assert (seen["settings"]["X_otherwise"][:, 3] == 0).all(), "held-out bins are predicted as if supply lasted"
    assert (seen["X"][:, 3] == hidden).all()
    np.testing.assert_allclose(result["mean"], unit)  # in pickups again
    np.testing.assert_array_equal(result["mean_as_labelled"], 0)


def test_rows_hold_each_models_own_predictions_in_every_cell(week):
    grid = taxi.Grid(((0.2, 0.0), (0.2, 0.5), (0.4, 0.5)), 2)
    settings = taxi.settings_of(grid)
    cells = [
        (
            s,
            {
                "mean": (week.pickups + i).tolist(),
                "mean_as_labelled": (week.pickups + i + 100).tolist(),
                "recovered": [{"subset": "recovered", "metric": "rmse", "value": float(i)}],
            },
        )
        for i, s in enumerate(settings)
    ]
    both = pd.DataFrame(taxi._rows(week, grid, cells, 0))
    given = both[(both.experiment == "taxi (held-out labels given)") & (both.metric == "rmse")]
    assert (given.subset != "recovered").all()
    assert given.value.min() == pytest.approx(100)
    rows = both[both.experiment == "taxi"]
    rmse = rows[(rows.subset == "all") & (rows.metric == "rmse")].set_index(["model", "gamma", "c", "repetition"]).value
    for i, s in enumerate(settings):
        if s["model"] == "cgp":
            assert rmse["cgp", s["gamma"], s["c"], s["repetition"]] == pytest.approx(i)
    assert rmse["ncgp-a", 0.2, 0.0, 0] == rmse["ncgp-a", 0.2, 0.5, 0]
    assert rmse["ncgp", 0.2, 0.0, 0] == rmse["ncgp", 0.2, 0.0, 1], "without censoring NCGP has nothing to repeat"
    assert len(rmse) == 3 * 4 * 2


def test_at_known_hyperparameters_only_the_share_is_searched(week, monkeypatch):
    fits = []

    def stand_in(model, starts, X, y, label, folds, **settings):
        from unmet.experiments._fits import Held

        fits.append((model, starts, settings))
        return Held(np.zeros(672), np.zeros(672))

    short = taxi.Week("", week.start, week.X, week.pickups, week.previous_dropoffs)
    kernel = taxi.SquaredExponential(taxi.Parameter(0.5, fixed=True), taxi.Parameter(20.0, fixed=True))
    monkeypatch.setattr(taxi, "cross_validate", stand_in)
    for model in ("ncgp", "share"):
        cell = Cell("taxi", {"model": model, "gamma": 0.2, "c": 0.5, "repetition": 0}, {})
        result = taxi._compute_at_known(cell, week=short, seed=0, kernel=kernel, noise=0.05)
    assert [(model, starts.theta.size) for model, starts, _ in fits] == [("ncgp", 0), ("share", 0)]
    assert fits[0][2]["noise_variance"].fixed
    alpha, beta = fits[1][2]["share"].values
    assert result["share"][0] == pytest.approx(alpha / (alpha + beta))
    assert result["share"][0] == pytest.approx(0.5, abs=0.05), "half of every labelled bin is left"
    rows = pd.DataFrame(taxi._rows_at_known(short, [({**cell.settings, "experiment": taxi.KNOWN}, result)], 0))
    assert set(rows.subset) == {"all", "non-censored", "censored", "recovered"}
    hidden = rows[(rows.subset == "recovered") & (rows.metric == "rmse")].value.item()
    assert hidden < 10, "pickups of labelled bins, about 60, of which half was seen"


def test_the_projected_hours_of_the_full_protocol_follow_from_what_cells_cost(tmp_path):
    cost = {"seconds": 21.0, "fits": 21, "unconverged": 0, "jittered": 0}
    cells = [({"model": m}, {"cost": cost}) for m in ("ncgp", "ncgp-a", "cgp", "share")]
    text = _taxi_report.cost(
        cells, tmp_path, full={"ncgp": 1000, "ncgp-a": 100, "cgp": 1000, "share": 500}, warm_start=False
    ).markdown
    assert f"about {2600 * 21 / 3600 / 2:.1f} hours on two cores" in text
