import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from unmet import CensoredGP, InputError, MissingExtraError
from unmet.plots import plot_fit

mpl.use("agg")
X = np.linspace(0, 5, 25)[:, None]
Y = np.sin(X[:, 0])
CENSORED = Y > 0.8


@pytest.fixture(scope="module")
def gp():
    return CensoredGP().fit(X, np.minimum(Y, 0.8), censored=CENSORED)


def test_censored_points_are_crosses_and_exact_ones_circles(gp):
    ax = plot_fit(gp, X, np.minimum(Y, 0.8), CENSORED, truth=np.sin)
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert lines["censored"].get_marker() == "x"
    assert len(lines["censored"].get_xdata()) == CENSORED.sum()
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


def test_named_and_several_columns_are_drawn_along_the_one_asked_for():
    frame = pd.DataFrame({"a": X[:, 0], "b": np.cos(X[:, 0])})
    ax = plot_fit(CensoredGP().fit(frame, Y), frame, Y, column="b")
    assert ax.get_xlabel() == "b"
    one = frame[["a"]]
    assert plot_fit(CensoredGP().fit(one, Y), one, Y, column="a").get_xlabel() == "a"


def test_lengths_that_differ_and_names_without_names_are_refused(gp):
    with pytest.raises(InputError, match="y must have one value per row of X; got 24 for 25 rows"):
        plot_fit(gp, X, Y[:-1])
    with pytest.raises(InputError, match="is a name"):
        plot_fit(gp, X, Y, column="a")


def test_without_matplotlib_the_install_line_is_given(gp, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'unmet\[plot\]'"):
        plot_fit(gp, X, Y)


@pytest.mark.parametrize("column", [5, -2, 1.5, None])
def test_a_position_that_is_none_is_refused(gp, column):
    with pytest.raises(InputError, match=r"column must be the position of one of 1 columns, or a name; got"):
        plot_fit(gp, X, Y, column=column)


def test_a_name_that_is_not_there_is_refused_with_those_that_are():
    frame = pd.DataFrame({"hour": X[:, 0]})
    with pytest.raises(InputError, match=r"no column 'day'; X has hour"):
        plot_fit(CensoredGP(optimizer=None).fit(frame, Y), frame, Y, column="day")


def test_other_odd_arguments_are_refused_in_words(gp):
    with pytest.raises(InputError, match="censored must be True/False"):
        plot_fit(gp, X, Y, ["maybe"] * 25)
    with pytest.raises(InputError, match="y must be numbers"):
        plot_fit(gp, X, ["high"] * 25)
    with pytest.raises(InputError, match="X must be a table of rows and columns"):
        plot_fit(gp, X[:, 0], Y)
    with pytest.raises(InputError, match="points must be a whole number of 2 or more; got 0"):
        plot_fit(gp, X, Y, points=0)
    with pytest.raises(InputError, match="truth must have one value per row of X; got 2 for 25"):
        plot_fit(gp, X, Y, truth=[1.0, 2.0])
