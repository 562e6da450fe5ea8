import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmet import InputError
from unmet.censoring import censor_labelled, censor_random, censor_where, dropoff_probability, rand_dropoff

values = st.lists(st.floats(-1e6, 1e6).filter(lambda v: v == 0 or abs(v) > 1e-6), min_size=1, max_size=40)
counts = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=40)
shares = st.floats(0, 1)


def rng(seed=0):
    return np.random.default_rng(seed)


def test_shares_taken_off_lie_within_the_asked_range_and_other_rows_stay():
    y = np.full(2000, 7.0)
    where = np.arange(2000) % 2 == 0
    result = censor_where(y, where, 0.2, 0.3, rng())
    taken = 1 - result.y / y
    assert (taken[~where] == 0).all()
    assert taken[where].min() >= 0.2
    assert taken[where].max() <= 0.3
    assert taken[where].mean() == pytest.approx(0.25, abs=0.003)
    assert (result.censored == where).all()


@given(values, shares, shares, st.integers(0, 1000))
def test_labels_say_on_which_side_the_truth_lies(y, p, width, seed):
    y = np.array(y)
    result = censor_random(y, p, 0.0, width, rng(seed))
    assert (y[result.label > 0] >= result.y[result.label > 0]).all()
    assert (y[result.label < 0] <= result.y[result.label < 0]).all()
    assert (y[result.label == 0] == result.y[result.label == 0]).all()
    assert (result.label[y == 0] == 0).all()


@given(values.map(np.array), shares, st.integers(0, 1000))
def test_the_literal_reading_labels_every_chosen_row_at_least_y(y, p, seed):
    aware = censor_random(y, p, 0.1, 0.9, rng(seed))
    literal = censor_random(y, p, 0.1, 0.9, rng(seed), labels="literal")
    assert (literal.y == aware.y).all()
    assert set(np.unique(literal.label)) <= {0, 1}
    assert literal.label.sum() == min(math.ceil(round(p * len(y), 9)), len(y))
    assert (literal.censored >= aware.censored).all()


@pytest.mark.parametrize(
    ("p", "n", "count"), [(0.1, 133, 14), (0.5, 133, 67), (0.9, 133, 120), (0.1, 30, 3), (0, 9, 0), (1, 9, 9)]
)
def test_the_ceiling_of_pn_rows_are_chosen(p, n, count):
    assert censor_random(np.ones(n), p, 0.5, 0.5, rng()).censored.sum() == count


def test_every_row_is_equally_likely_to_be_chosen():
    chosen = sum(censor_random(np.ones(10), 0.3, 0, 1, rng(i)).label for i in range(3000))
    assert np.abs(chosen / 3000 - 0.3).max() < 0.04  # 4.8 standard errors


@given(values.map(np.array), shares)
def test_labelled_rows_keep_one_minus_c(y, c):
    label = np.arange(len(y)) % 3 == 0
    result = censor_labelled(y, label, c)
    assert result.y == pytest.approx(np.where(label, y * (1 - c), y))
    assert (result.label == label).all()


@given(counts, st.floats(0.01, 0.99))
def test_the_probability_of_censoring_is_the_papers_formula_where_y_is_positive(pairs, gamma):
    y, d = np.array(pairs, dtype=float).T
    p = dropoff_probability(y, d, gamma)
    for i in np.flatnonzero(y > 0):
        exponent = math.log((1 - gamma) / gamma) - (y[i] - d[i]) / y[i]
        assert p[i] == pytest.approx(1 / (1 + math.exp(exponent)))
    assert (p[y == 0] == 0).all()


def test_a_bin_without_demand_is_never_censored_and_that_is_the_limit_where_there_were_dropoffs():
    assert dropoff_probability([0.0, 0.0], [0.0, 9.0], 0.4).tolist() == [0.0, 0.0]
    nearly = dropoff_probability([1e-2], [9.0], 0.4)
    assert nearly[0] == pytest.approx(0, abs=1e-100)
    assert not rand_dropoff(np.zeros(500), np.zeros(500), 0.9, 0.5, rng()).censored.any()


def test_pickups_equal_to_the_dropoffs_before_them_are_censored_with_probability_gamma():
    assert dropoff_probability([5.0, 80.0], [5.0, 80.0], 0.3) == pytest.approx([0.3, 0.3])


@given(counts, st.floats(0.01, 0.99), shares, st.integers(0, 1000))
def test_labels_of_rand_dropoff_do_not_depend_on_c_and_grow_with_gamma(pairs, gamma, c, seed):
    y, d = np.array(pairs, dtype=float).T
    first = rand_dropoff(y, d, gamma, c, rng(seed))
    assert (first.label == rand_dropoff(y, d, gamma, 0.5, rng(seed)).label).all()
    assert (first.label >= rand_dropoff(y, d, gamma / 2, c, rng(seed)).label).all()
    assert first.y == pytest.approx(np.where(first.censored, (1 - c) * y, y))


def test_rand_dropoff_labels_with_its_probability():
    y, d = np.array([10.0, 40.0, 5.0]), np.array([2.0, 40.0, 20.0])
    n = 4000
    drawn = sum(rand_dropoff(y, d, 0.3, 0.5, rng(i)).label for i in range(n)) / n
    assert drawn == pytest.approx(dropoff_probability(y, d, 0.3), abs=0.035)  # 4.8 standard errors


def test_the_callers_values_are_not_changed():
    y = np.array([1.0, 2.0, 3.0])
    censor_random(y, 1.0, 1.0, 1.0, rng())
    censor_labelled(y, [True, True, True], 1.0)
    assert y.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: censor_where([1.0], [True, False], 0, 1, rng()),
        lambda: censor_where([1.0], [True], 0.5, 0.2, rng()),
        lambda: censor_where([np.nan], [True], 0, 1, rng()),
        lambda: censor_random([1.0], 1.5, 0, 1, rng()),
        lambda: censor_random([1.0], 0.5, 0, 1, rng(), labels="both"),
        lambda: censor_labelled([1.0], [True], -0.1),
        lambda: censor_labelled([1.0], [True, True], 0.1),
        lambda: dropoff_probability([1.0], [1.0, 2.0], 0.1),
        lambda: dropoff_probability([-1.0], [1.0], 0.1),
        lambda: dropoff_probability([1.0], [1.0], 1.0),
    ],
)
def test_what_is_not_a_share_or_does_not_fit_is_refused(wrong):
    with pytest.raises(InputError):
        wrong()
