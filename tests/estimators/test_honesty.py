"""Bands that hold what they promise, and data from which nothing can be learnt."""

import numpy as np
import pytest

from unmet import CensoredGP, InputError, UninformativeWarning
from unmet.kernels import Periodic


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
def test_the_band_of_a_level_covers_it(likelihood):
    X = np.ones((24, 1))  # nothing but a level to learn
    covered = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        y = rng.poisson(5.0, 24) if likelihood == "poisson" else rng.normal(5.0, 2.0, 24)
        low, high = CensoredGP(likelihood=likelihood).fit(X, y).predict_quantiles(X[:1], [0.025, 0.975], "latent")[0]
        covered += low <= 5.0 <= high
    assert covered >= 16


@pytest.mark.parametrize("side", [1, -1])
def test_rows_censored_to_one_side_only_do_not_let_the_estimate_run_away(side):
    x = np.linspace(0, 10, 30)[:, None]
    y = 20 + 4 * np.sin(x[:, 0])
    with pytest.warns(UninformativeWarning, match="no maximum"):
        gp = CensoredGP().fit(x, y, censored=np.full(30, side))
    assert (side * (gp.predict(x) - y) > -2).all()
    assert np.abs(gp.predict(x) - y).max() < 20


def test_counts_all_of_them_bounds_do_not_run_away_either():
    x = np.linspace(0, 10, 30)[:, None]
    y = np.random.default_rng(0).poisson(5.0, 30) + 1
    with pytest.warns(UninformativeWarning, match="no maximum"):
        gp = CensoredGP(likelihood="poisson").fit(x, y, censored=np.ones(30, dtype=bool))
    assert gp.predict(x).max() < 1000


def test_y_outside_its_own_bounds_is_refused():
    with pytest.raises(InputError, match="within its own bounds; row 0"):
        CensoredGP().fit([[0.0], [1.0]], [1.0, 2.0], lower=[2.0, 1.0], upper=[3.0, 3.0])


def test_counts_known_from_above_only_are_refused_in_the_users_words():
    with pytest.raises(InputError, match="must be exact or a lower bound"):
        CensoredGP(likelihood="poisson").fit([[0.0], [1.0]], [1, 2], censored=[0, -1])


def test_a_periodic_kernel_needs_a_period():
    with pytest.raises(InputError, match="give a period"):
        Periodic(None)


def test_scores_say_what_is_wrong_with_their_rows():
    x = np.arange(5.0)[:, None]
    gp = CensoredGP().fit(x, np.sin(x[:, 0]))
    with pytest.raises(InputError, match="one value per row"):
        gp.score(x, [1.0])
    with pytest.raises(InputError, match="All 5 rows are censored"):
        gp.score(x, np.zeros(5), censored=np.ones(5, dtype=bool))
