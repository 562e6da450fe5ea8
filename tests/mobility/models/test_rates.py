"""Quantiles of draws of counts."""

from __future__ import annotations

import numpy as np

from unmet.mobility.models.rates import mid_quantiles

LEVELS = [0.05, 0.5, 0.95]


def test_mid_quantiles_of_draws_without_ties_are_those_of_hazen():
    draws = np.random.default_rng(1).normal(size=(201, 7))
    np.testing.assert_allclose(mid_quantiles(draws, LEVELS), np.quantile(draws, LEVELS, axis=0, method="hazen"))


def test_mid_quantiles_interpolate_the_middle_of_each_step_of_the_distribution():
    draws = np.random.default_rng(2).poisson([0.02, 0.5, 3.0, 40.0], size=(400, 4)).astype(float)
    expected = np.empty((len(LEVELS), draws.shape[1]))
    for column, values in enumerate(draws.T):
        value, count = np.unique(values, return_counts=True)
        middle = (np.cumsum(count) - 0.5 * count) / count.sum()
        expected[:, column] = np.interp(LEVELS, middle, value)
    np.testing.assert_allclose(mid_quantiles(draws, LEVELS), expected, atol=1e-12)


def test_an_interval_of_mid_quantiles_covers_counts_more_nearly_as_often_as_it_claims():
    rng = np.random.default_rng(3)
    rate = rng.gamma(3.0, 1.0, 8_000)
    truth, draws = rng.poisson(rate), rng.poisson(rate, (200, rate.size))
    low, high = mid_quantiles(draws, [0.05, 0.95])
    plain_low, plain_high = np.quantile(draws, [0.05, 0.95], axis=0)
    covered = np.mean((truth >= low) & (truth <= high))
    assert 0.89 < covered < 0.94 < np.mean((truth >= plain_low) & (truth <= plain_high))


def test_mid_quantiles_stay_between_the_smallest_and_the_largest_draw():
    draws = np.array([[4.0, 0.0], [4.0, 0.0], [4.0, 1.0]])
    found = mid_quantiles(draws, [0.01, 0.99])
    np.testing.assert_array_equal(found[:, 0], [4.0, 4.0])
    np.testing.assert_array_equal(found[:, 1], [0.0, 1.0])


def test_mid_quantiles_of_columns_do_not_depend_on_those_beside_them():
    draws = np.random.default_rng(3).poisson(0.4, (50, 30)).astype(float)
    draws[:, ::4] = 7.0
    alone = np.concatenate([mid_quantiles(draws[:, [i]], LEVELS) for i in range(30)], axis=1)
    np.testing.assert_array_equal(mid_quantiles(draws, LEVELS), alone)
    assert (mid_quantiles(draws, LEVELS)[:, ::4] == 7.0).all()
