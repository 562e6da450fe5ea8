import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from unmet import CensoredGP, InputError, MissingExtraError, TobitRegressor
from unmet.plots import plot_fit

mpl.use("agg")
X = np.linspace(0, 5, 25)[:, None]
Y = np.sin(X[:, 0])
CENSORED = Y > 0.8


@pytest.fixture(scope="module")
def gp():
    return CensoredGP().fit(X, np.minimum(Y, 0.8), censored=CENSORED)


def test_censored_points_are_triangles_and_exact_ones_circles(gp):
    ax = plot_fit(gp, X, np.minimum(Y, 0.8), CENSORED, truth=np.sin)
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert lines["censored: at least this"].get_marker() == "^"
    assert len(lines["censored: at least this"].get_xdata()) == CENSORED.sum()
    assert lines["observed"].get_marker() == "o"
    assert len(lines["observed"].get_xdata()) == (~CENSORED).sum()
    assert lines["truth"].get_linestyle() == "--"


def test_the_band_is_mean_plus_minus_1_96_sd(gp):
    ax = plot_fit(gp, X, Y, points=11)
    along = np.linspace(0, 5, 11)
    mean, std = gp.predict(along[:, None], return_std=True)
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx((mean + 1.96 * std).max())
    assert band.min() == pytest.approx((mean - 1.96 * std).min())


def curve(ax):
    (line,) = (line for line in ax.get_lines() if line.get_label() == "latent mean")
    return line.get_xdata(), line.get_ydata()


FRAME = pd.DataFrame({"a": X[:, 0], "b": np.cos(3 * X[:, 0]), "c": 1.0})


def test_of_several_columns_one_is_chosen_and_the_others_are_held_at_their_median():
    y = Y + FRAME["b"]
    model = CensoredGP().fit(FRAME, y)
    ax = plot_fit(model, FRAME, y, column="b", points=7)
    along = np.linspace(FRAME["b"].min(), FRAME["b"].max(), 7)
    held = pd.DataFrame({"a": FRAME["a"].median(), "b": along, "c": 1.0})
    np.testing.assert_allclose(curve(ax), [along, model.predict(held)])
    assert ax.get_xlabel() == "b (at a 2.5, c 1)"
    by_position = plot_fit(CensoredGP().fit(FRAME.to_numpy(), y), FRAME.to_numpy(), y, column=1, points=7)
    np.testing.assert_allclose(curve(by_position), curve(ax), rtol=1e-6)
    assert by_position.get_xlabel() == "column 1 (at 0 2.5, 2 1)"


def test_which_of_several_columns_must_be_said():
    with pytest.raises(InputError, match=r"X has 3 columns\. Choose .* column='a' \(of a, b, c\); .* median"):
        plot_fit(CensoredGP(optimizer=None).fit(FRAME, Y), FRAME, Y)


def test_one_named_column_is_the_label():
    one = FRAME[["a"]]
    assert plot_fit(CensoredGP(optimizer=None).fit(one, Y), one, Y).get_xlabel() == "a"
    assert plot_fit(CensoredGP(optimizer=None).fit(X, Y), X, Y).get_xlabel() == "x"


def test_rows_known_from_below_and_from_above_are_told_apart(gp):
    labels = np.where(X[:, 0] > 4, -1, np.where(CENSORED, 1, 0))
    ax = plot_fit(gp, X, Y, labels)
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert lines["censored: at least this"].get_marker() == "^"
    assert lines["censored: at most this"].get_marker() == "v"
    assert len(lines["censored: at most this"].get_xdata()) == (labels < 0).sum()
    assert "censored: at most this" not in {line.get_label() for line in plot_fit(gp, X, Y, CENSORED).get_lines()}


def test_a_pipeline_is_drawn_over_what_it_takes():
    holed = FRAME.assign(zone=["north", "south", "south", "south", "north"] * 5)
    holed.loc[3, "b"] = np.nan
    prepare = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["a", "b"]), (OneHotEncoder(), ["zone"])
    )
    model = make_pipeline(prepare, CensoredGP(optimizer=None)).fit(holed, Y)
    ax = plot_fit(model, holed, Y, column="a", points=9)
    along = np.linspace(0, 5, 9)
    held = pd.DataFrame({"a": along, "b": holed["b"].median(), "c": 1.0, "zone": "south"})
    np.testing.assert_allclose(curve(ax), [along, model.predict(held)])
    assert ax.get_xlabel() == "a (3 other columns at their median)"
    lone = make_pipeline(CensoredGP(optimizer=None)).fit(X, Y)
    assert len(curve(plot_fit(lone, X, Y, points=9))[0]) == 9


def test_a_linear_model_is_drawn_with_its_band():
    tobit = TobitRegressor().fit(X, Y)
    ax = plot_fit(tobit, X, Y, points=5)
    mean, std = tobit.predict(np.linspace(0, 5, 5)[:, None], return_std=True)
    np.testing.assert_allclose(curve(ax)[1], mean)
    assert ax.collections[0].get_paths()[0].vertices[:, 1].max() == pytest.approx((mean + 1.96 * std).max())


def test_what_cannot_be_drawn_is_refused_in_words():
    with pytest.raises(InputError, match=r"needs a CensoredGP, a TobitRegressor, or a pipeline .* got a Ridge"):
        plot_fit(Ridge().fit(X, Y), X, Y)
    search = GridSearchCV(CensoredGP(optimizer=None), {"normalize_y": [True]}, cv=2).fit(X, Y)
    with pytest.raises(InputError, match=r"got a GridSearchCV\. Give its best_estimator_"):
        plot_fit(search, X, Y)
    plot_fit(search.best_estimator_, X, Y)


def test_lengths_that_differ_and_names_without_names_are_refused(gp):
    with pytest.raises(InputError, match="y must have one value per row of X; got 24 for 25 rows"):
        plot_fit(gp, X, Y[:-1])
    with pytest.raises(InputError, match="is a name"):
        plot_fit(gp, X, Y, column="a")


def test_without_matplotlib_the_install_line_is_given(gp, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'unmet\[plot\]'"):
        plot_fit(gp, X, Y)


@pytest.mark.parametrize("column", [5, -2, 1.5, True])
def test_a_position_that_is_none_is_refused(gp, column):
    with pytest.raises(InputError, match=r"column must be the position of one of 1 columns, or a name; got"):
        plot_fit(gp, X, Y, column=column)


def test_a_name_that_is_not_there_is_refused_with_those_that_are():
    frame = pd.DataFrame({"hour": X[:, 0]})
    with pytest.raises(InputError, match=r"X has no column 'day'; it has hour"):
        plot_fit(CensoredGP(optimizer=None).fit(frame, Y), frame, Y, column="day")


def test_other_odd_arguments_are_refused_in_words(gp):
    with pytest.raises(InputError, match="censored must be True/False"):
        plot_fit(gp, X, Y, ["maybe"] * 25)
    with pytest.raises(InputError, match="y must be numbers"):
        plot_fit(gp, X, ["high"] * 25)
    with pytest.raises(InputError, match="must have a finite number to plot along; got 0 values without any"):
        plot_fit(gp, X[:0], Y[:0])
    with pytest.raises(InputError, match="X must be a table of rows and columns"):
        plot_fit(gp, X[:, 0], Y)
    with pytest.raises(InputError, match="points must be a whole number of 2 or more; got 0"):
        plot_fit(gp, X, Y, points=0)
    with pytest.raises(InputError, match="truth must have one value per row of X; got 2 for 25"):
        plot_fit(gp, X, Y, truth=[1.0, 2.0])
