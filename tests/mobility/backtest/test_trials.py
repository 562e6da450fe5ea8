"""What trials take away, and that they take it away blindly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known_city import known_panel, true_rate
from scipy.stats import beta, kstest

from unmet import InputError
from unmet.mobility.backtest.trials import blocks, hold_out, replay, serve
from unmet.mobility.models.zone_data import zone_data

PANEL = known_panel(zones=1)
DATA = zone_data(PANEL)
ONE = {"fold": 0, "folds": 1, "share": 0.25, "seed": 3}

windows = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=6), min_size=1, max_size=5
)


@settings(max_examples=150, deadline=None)
@given(windows=windows, picked=st.lists(st.booleans(), min_size=5, max_size=5), seed=st.integers(0, 2**32))
def test_what_is_served_is_a_beginning_of_the_window_and_never_more_than_there_was(windows, picked, seed):
    window = np.repeat(np.arange(len(windows)), [len(w) for w in windows])
    pickups, returns = np.array([bin for w in windows for bin in w]).T
    chosen = np.array(picked)[window]
    done = serve(pickups, returns, window, chosen, np.random.default_rng(seed))
    for number in range(len(windows)):
        rows = window == number
        served, kept, wanted = done.served[rows], done.kept[rows], pickups[rows]
        if not picked[number]:
            assert number not in done.stock
            assert (served == wanted).all()
            assert (kept == 1).all()
            continue
        stock = done.stock[number]
        assert stock >= 1
        assert (served <= wanted).all()
        # At no moment more was taken than had been there or brought.
        assert (np.cumsum(served) <= stock + np.cumsum(returns[rows])).all()
        cut = np.flatnonzero(kept < 1)
        if not cut.size:
            assert (served == wanted).all()
            continue
        end = cut[0]
        assert (served[:end] == wanted[:end]).all()
        assert served[end] >= 1
        assert 0 < kept[end] < 1
        assert (served[end + 1 :] == 0).all()
        assert (kept[end + 1 :] == 0).all()
        if not returns[rows].any():
            assert served.sum() == stock  # all that was there, and not one less


def test_without_returns_a_stock_serves_the_first_so_many():
    pickups = np.tile([3, 0, 4, 2], 50)
    window = np.repeat(np.arange(50), 4)
    done = serve(pickups, np.zeros(200, dtype=int), window, np.ones(200, dtype=bool), np.random.default_rng(0))
    for number, stock in done.stock.items():
        left, expected = stock, []
        for wanted in (3, 0, 4, 2):
            expected.append(min(wanted, left))
            left -= expected[-1]
        assert done.served[window == number].tolist() == expected
    assert set(done.stock.values()) == set(range(1, 10))  # 9 are needed


def test_vehicles_that_come_back_are_rented_again():
    pickups, returns = np.full(400, 3), np.tile([0, 2, 2, 2], 100)
    window = np.repeat(np.arange(100), 4)
    done = serve(pickups, returns, window, np.ones(400, dtype=bool), np.random.default_rng(1))
    stock = np.array(list(done.stock.values()))
    served = done.served.reshape(100, 4).sum(axis=1)
    assert (served > stock).any()
    assert (served <= stock + 6).all()
    # A window that runs out serves the stock and what had come back by then.
    ended = done.kept.reshape(100, 4).min(axis=1) < 1
    assert ended.sum() > 30
    assert (served[ended] >= stock[ended]).all()


def test_the_moment_of_the_last_vehicle_is_a_beta_order_statistic():
    """A window of one bin with 6 pickups: with a stock of k it is empty at the k-th of 6 uniform moments."""
    n, windows = 6, 3000
    done = serve(
        np.full(windows, n),
        np.zeros(windows, dtype=int),
        np.arange(windows),
        np.ones(windows, dtype=bool),
        np.random.default_rng(2),
    )
    stock = np.array([done.stock[i] for i in range(windows)])
    for k in (1, 3, 6):
        assert kstest(done.kept[stock == k], beta(k, n - k + 1).cdf).pvalue > 1e-3
    assert (done.served == stock).all()


def test_exposure_matches_what_was_served_in_expectation():
    """Served less rate times exposure is a martingale, though exposure ends because of demand."""
    windows, rate = 4000, np.array([1.0, 4.0, 2.0])
    rng = np.random.default_rng(5)
    pickups = rng.poisson(np.tile(rate, windows))
    window = np.repeat(np.arange(windows), 3)
    done = serve(pickups, np.zeros(3 * windows, dtype=int), window, np.ones(3 * windows, dtype=bool), rng)
    gap = (done.served - np.tile(rate, windows) * done.kept).reshape(windows, 3).sum(axis=1)
    assert abs(gap.mean()) < 4 * gap.std() / np.sqrt(windows)
    lost = ((pickups - done.served) - np.tile(rate, windows) * (1 - done.kept)).reshape(windows, 3).sum(axis=1)
    assert abs(lost.mean()) < 4 * lost.std() / np.sqrt(windows)
    assert done.kept.mean() < 0.8  # supply was cut indeed


def test_a_replay_speaks_of_the_time_that_really_had_supply():
    trial = replay(DATA, None, **ONE)
    given = trial.data
    chosen = np.isin(blocks(DATA, 1), blocks(DATA, 1)[trial.scored])
    cut = given.exposure < DATA.exposure - 1e-12
    assert 0.2 < len(set(blocks(DATA, 1)[chosen])) / 56 < 0.3
    assert not cut[~chosen].any()
    np.testing.assert_array_equal(given.observed[~cut], DATA.observed[~cut])
    np.testing.assert_allclose(given.exposure + given.stockout, DATA.exposure + DATA.stockout)
    np.testing.assert_array_equal(given.censored, DATA.censored | cut)
    np.testing.assert_allclose(trial.part * given.stockout, DATA.exposure - given.exposure, atol=1e-12)
    assert (given.observed <= DATA.observed).all()
    assert (trial.subset[trial.scored & ~cut] == "full").all()
    assert {"full", ">= half", "< half", "zero"} == set(trial.subset[trial.scored])
    assert ((trial.part[cut] > 0) & (trial.part[cut] < 1)).any()  # some bins had ended early in truth as well
    assert (given.exposure[given.observed > 0] > 0).all()


def test_hidden_weeks_are_whole_and_the_same_for_every_zone():
    trial = hold_out(DATA, **ONE)
    week = blocks(DATA, 7)
    hidden = np.isnan(trial.data.observed)
    assert {hidden[week == w].mean() for w in set(week)} == {0.0, 1.0}
    assert hidden.mean() == 0.25
    assert not trial.data.exposure[hidden].any()
    assert not trial.data.stockout[hidden].any()
    assert not trial.data.censored[hidden].any()
    np.testing.assert_array_equal(trial.scored, hidden & (DATA.exposure > 0))
    other = hold_out(zone_data(PANEL.assign(zone="another")), **ONE)
    np.testing.assert_array_equal(np.isnan(other.data.observed), hidden)


@pytest.mark.parametrize("make", [hold_out, lambda data, **which: replay(data, None, **which)])
def test_folds_take_what_no_other_has_taken(make):
    which = {"folds": 4, "share": 0.25, "seed": 1}
    taken = np.array([make(DATA, fold=fold, **which).scored for fold in range(4)])
    assert (taken.sum(axis=0)[DATA.exposure > 0] == 1).all()


def test_nothing_of_the_hidden_weeks_reaches_the_model():
    trial = hold_out(DATA, **ONE)
    hidden = np.isnan(trial.data.observed)
    changed = PANEL.copy()
    changed["observed"] = np.where(hidden, 7 * changed["observed"] + 1, changed["observed"])
    changed["exposure"] = np.where(hidden, 0.5 * changed["exposure"], changed["exposure"])
    changed["censored"] = hidden | changed["censored"]
    again = hold_out(zone_data(changed), **ONE).data
    for name in ("observed", "exposure", "stockout", "censored", "slot"):
        np.testing.assert_array_equal(getattr(again, name), getattr(trial.data, name), err_msg=name)
    assert again.inputs.equals(trial.data.inputs)


def test_the_cut_does_not_know_what_is_not_served():
    """Demand after the last vehicle is as it always is: no more and no less than the rate says."""
    data = zone_data(known_panel(zones=1, days=1400, seed=8))
    trial = replay(data, None, fold=0, folds=1, share=0.9, seed=0)
    expected = true_rate(data.slot) * trial.part * trial.data.stockout
    for subset in (">= half", "< half", "zero"):
        rows = trial.scored & (trial.subset == subset)
        lost = (data.observed - trial.data.observed)[rows].sum()
        assert abs(lost - expected[rows].sum()) < 4 * np.sqrt(expected[rows].sum())


def test_bins_of_a_day_are_cut_in_weeks():
    days = known_panel(zones=1, days=70, stock=None).groupby(np.arange(70 * 24) // 24)
    panel = days.first()
    panel["minutes"], panel["available_minutes"] = 1440, 1440
    panel["observed"] = days["observed"].sum()
    data = zone_data(panel)
    trial = replay(data, None, **ONE)
    cut = trial.subset == "zero"
    assert cut[trial.scored].any()
    assert not cut[~trial.scored].any()
    assert trial.scored.sum() == 2 * 7


@pytest.mark.parametrize(
    ("share", "folds", "said"), [(0.5, 1, "the zone has 1"), (0.5, 2, "2 folds of 50%"), (0.01, 1, "at least 2 weeks")]
)
def test_too_few_weeks_are_an_error_that_says_how_many_are_needed(share, folds, said):
    data = zone_data(PANEL.iloc[: 7 * 24])
    with pytest.raises(InputError, match=said):
        hold_out(data, fold=0, folds=folds, share=share, seed=0)


def test_a_replay_needs_counts():
    with pytest.raises(InputError, match="pickups as whole numbers"):
        replay(zone_data(PANEL.assign(observed=PANEL["observed"] + 0.5)), None, **ONE)
    with pytest.raises(InputError, match=r"returns as whole numbers.*-1"):
        replay(DATA, np.full(len(DATA), -1.0), **ONE)


def test_bins_of_which_nothing_is_known_are_not_scored():
    panel = PANEL.assign(observed=PANEL["observed"].astype(float))
    panel.loc[panel.index % 5 == 0, "observed"] = np.nan
    trial = replay(zone_data(panel), None, **ONE)
    assert np.isfinite(trial.truth[trial.scored]).all()
    assert np.isnan(trial.data.observed[::5]).all()
