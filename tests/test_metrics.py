import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.metrics import mean_pinball_loss, r2_score, root_mean_squared_error

from unmet import InputError
from unmet import metrics as m

RNG = np.random.default_rng(5)
TRUTH, GUESS = RNG.normal(size=30), RNG.normal(size=30)
numbers = st.floats(-5, 5)


def test_rmse_r2_and_pinball_agree_with_scikit_learn():
    assert m.rmse(TRUTH, GUESS) == pytest.approx(root_mean_squared_error(TRUTH, GUESS))
    assert m.r2(TRUTH, GUESS) == pytest.approx(r2_score(TRUTH, GUESS))
    assert m.pinball(TRUTH, GUESS, 0.9) == pytest.approx(mean_pinball_loss(TRUTH, GUESS, alpha=0.9))


def test_where_limits_a_score_to_some_rows():
    keep = TRUTH > 0
    assert m.rmse(TRUTH, GUESS, where=keep) == pytest.approx(m.rmse(TRUTH[keep], GUESS[keep]))
    samples = RNG.normal(size=(20, 30))
    assert m.crps_samples(TRUTH, samples, where=keep) == pytest.approx(m.crps_samples(TRUTH[keep], samples[:, keep]))


@given(y=numbers, mu=numbers, sd=st.floats(0.1, 5), room=st.sampled_from([0.0, 0.7, 3.0, np.inf]))
def test_crps_is_the_integral_it_claims_to_be(y, mu, sd, room):
    far = mu + 12 * sd + 12
    below = quad(lambda x: norm.cdf(x, mu, sd) ** 2, mu - 12 * sd - 12, y, limit=200)[0]
    above = quad(lambda x: norm.sf(x, mu, sd) ** 2, y, min(y + room, far), limit=200)[0]
    assert m.crps([y], [mu], [sd], limit=[y + room]) == pytest.approx(below + above, abs=1e-6)


@given(y=numbers, mu=numbers, sd=st.floats(0.1, 5))
def test_nlpd_of_a_bound_is_the_log_probability_of_the_bound(y, mu, sd):
    assert m.nlpd([y], [mu], [sd]) == pytest.approx(-norm.logpdf(y, mu, sd))
    assert m.nlpd([y], [mu], [sd], censored=[True]) == pytest.approx(-norm.logsf(y, mu, sd))
    assert m.nlpd([y], [mu], [sd], censored=[-1]) == pytest.approx(-norm.logcdf(y, mu, sd))


def test_scores_under_censoring_are_least_for_the_true_distribution():
    rng = np.random.default_rng(0)
    truth, supply = rng.normal(size=20_000), rng.normal(0.5, 1, size=20_000)
    seen, censored = np.minimum(truth, supply), truth > supply
    for score, known in ((m.nlpd, {"censored": censored}), (m.crps, {"limit": supply})):
        right = score(seen, 0.0, 1.0, **known)
        wrong = [score(seen, mean, sd, **known) for mean, sd in ((-0.2, 1), (0.2, 1), (0, 0.8), (0, 1.25))]
        assert right < min(wrong)


def test_crps_of_draws_tends_to_the_closed_form():
    draws = np.random.default_rng(1).normal(size=(20_000, 3))
    assert m.crps_samples([-1.0, 0.0, 2.0], draws) == pytest.approx(m.crps([-1.0, 0.0, 2.0], 0.0, 1.0), rel=0.01)


def test_crps_of_draws_is_fair_to_small_ensembles():
    rng = np.random.default_rng(2)
    truth = rng.normal(size=40_000)
    few = m.crps_samples(truth, rng.normal(size=(3, 40_000)))
    assert few == pytest.approx(m.crps(truth, 0.0, 1.0), rel=0.02)


def test_coverage_judges_a_bound_only_where_it_contradicts_the_interval():
    assert m.coverage([1.0, 9.0, 1.0], 0.0, 2.0, censored=[0, 1, 1]) == 0.5  # exact inside; bound beyond; undecided
    with pytest.raises(InputError, match="cannot be judged"):
        m.coverage([1.0], 0.0, 2.0, censored=[True])


def test_concordance_compares_only_pairs_whose_order_is_certain():
    y, guess, side = [1.0, 2.0, 3.0], [3.0, 1.0, 2.0], [0, 1, 0]
    # certain: row 0 < row 1 (bound 2 > 1), row 0 < row 2; not row 1 against row 2
    assert m.concordance(y, guess, censored=side) == 0.0
    assert m.concordance([1.0, 2.0], [5.0, 5.0]) == 0.5


def test_bias_and_wape_are_relative_to_the_total():
    assert m.bias([10.0, 0.0], [8.0, 0.0]) == pytest.approx(-0.2)
    assert m.wape([10.0, 0.0], [8.0, 1.0]) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: m.rmse([1.0, 2.0], [1.0]), "one length"),
        (lambda: m.rmse([1.0, np.nan], [1.0, 1.0]), "NaN"),
        (lambda: m.rmse([], []), "no rows"),
        (lambda: m.rmse([1.0], [1.0], where=[False]), "no rows"),
        (lambda: m.r2([1.0, 1.0], [1.0, 2.0]), "constant"),
        (lambda: m.r2([0.1, 0.1, 0.1], [0.2, 0.1, 0.1]), "constant"),
        (lambda: m.bias([0.1, 0.2, -0.3], [1.0, 1.0, 1.0]), "sums to zero"),
        (lambda: m.crps_samples([0.0], [[1e308], [-1e308]]), r"above 1e\+150"),
        (lambda: m.bias([0.0], [1.0]), "sums to zero"),
        (lambda: m.wape([0.0], [1.0]), "zero everywhere"),
        (lambda: m.pinball([1.0], [1.0], 1.5), "between 0 and 1"),
        (lambda: m.pinball([1.0], [1.0], None), "q must be numbers|q: expected"),
        (lambda: m.pinball([1.0], [1.0], [0.5]), "q: expected one number"),
        (lambda: m.crps([1.0], [1.0], [0.0]), "positive"),
        (lambda: m.crps([1.0], [1.0], [1.0], limit=[0.5]), "exceed the limit"),
        (lambda: m.nlpd([1.0], [1.0], [1.0], censored=[2]), "−1, 0, \\+1"),
        (lambda: m.crps_samples([1.0], [[1.0]]), "two draws"),
        (lambda: m.concordance([1.0, 1.0], [1.0, 2.0]), "No pair"),
        (lambda: m.rmse(np.ma.masked_array([1.0, 2.0], [False, True]), [1.0, 2.0]), "y_true has 1 masked"),
        (lambda: m.rmse([1.0], np.array([1j])), "y_pred must be real numbers"),
        (lambda: m.rmse([1.0], np.array([1], dtype="M8[s]")), "y_pred must be numbers; got times"),
        (lambda: m.rmse([10**400], [1.0]), "y_true must be numbers"),
        (lambda: m.rmse([np.inf], [1.0]), "NaN or infinity"),
        (lambda: m.rmse([1.0, 2.0], [1.0, 2.0], where=["True", "False"]), "where must be numbers"),
        (lambda: m.rmse([1.0, 2.0], [1.0, 2.0], where=[1, 2]), "where must be True or False in every row; got 2"),
        (lambda: m.rmse([1.0, 2.0], [1.0, 2.0], where=[1]), "one True or False per row"),
        (lambda: m.rmse([1.0, 2.0], [1.0, 2.0], where=[True, pd.NA]), "True or False in every row; got nan"),
        (lambda: m.rmse(pd.Series([1, pd.NA], dtype="Int64"), [1.0, 2.0]), "y_true must not contain NaN .*; row 1"),
        (lambda: m.crps_samples([1.0, 2.0], [1.0, 2.0]), "draws × rows"),
        (lambda: m.crps_samples([1.0], [[np.nan], [1.0]]), "samples must not contain NaN"),
    ],
)
def test_what_cannot_be_scored_is_refused_with_the_reason(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_intervals_and_limits_may_be_open():
    assert m.coverage([1.0, 5.0], [-np.inf, 6.0], [np.inf, np.inf]) == 0.5
    assert m.crps([1.0], [1.0], [1.0], limit=[np.inf]) == m.crps([1.0], [1.0], [1.0])


def test_rows_that_are_not_scored_may_be_unknown():
    where = [True, False]
    assert m.rmse([1.0, np.nan], [3.0, 4.0], where=where) == 2.0
    assert m.crps_samples([0.0, np.nan], [[-1.0, np.nan], [1.0, np.nan]], where=where) == 0.0


class TestStrangeRows:
    """Rows are matched by position; what cannot be scored is refused."""

    def test_series_in_another_order_are_refused(self) -> None:
        truth = pd.Series([1.0, 2.0, 3.0], index=["a", "b", "c"])
        with pytest.raises(InputError, match=r"y_pred has the rows of y_true in another order: row 0 is 'c'"):
            m.rmse(truth, truth.iloc[::-1])
        with pytest.raises(InputError, match=r"where has the rows of y_true in another order"):
            m.rmse(truth, truth, where=(truth > 2).iloc[::-1])
        with pytest.raises(InputError, match=r"censored has the rows of y_true in another order"):
            m.nlpd(truth, truth, 1.0, censored=(truth > 2).iloc[::-1])
        assert m.rmse(truth, truth.set_axis([7, 8, 9])) == 0.0

    def test_intervals_from_high_to_low_are_refused(self) -> None:
        with pytest.raises(InputError, match=r"low must not exceed high; 1 intervals do, the first from 3 to 1"):
            m.coverage([1.0, 2.0], [0.0, 3.0], [2.0, 1.0])

    def test_numbers_without_a_square_are_refused(self) -> None:
        with pytest.raises(InputError, match=r"y_true must be at most 1e\+150 in size; row 1 is 1e\+200. Change"):
            m.r2([0.0, 1e200], [1.0, 1.0])
