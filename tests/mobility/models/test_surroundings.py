"""Riders counted at a zone, split by where they came from."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from unmet.mobility.models.surroundings import Received, relative_walking
from unmet.mobility.models.walking import DEFAULT_WALKING

DRAWS = 20_000


def received(counts: list[int]) -> Received:
    """Two bins: the first with three sources, the second with one."""
    return Received(
        zone=0,
        bin=np.array([3, 3, 3, 8]),
        source=np.array([1, 2, 4, 2]),
        metres=np.array([150.0, 300.0, 420.0, 300.0]),
        walkers=np.array([0.8, 0.3, 0.0, 0.5]),
        count=np.array([counts[0]] * 3 + [counts[1]], dtype=float),
        own=np.array([2.0, 2.0, 2.0, 1.0]),
    )


def test_the_split_is_multinomial_about_the_shares_of_each_draw() -> None:
    of_zone = received([5, 2])
    drawn = of_zone.split(DEFAULT_WALKING, DRAWS, seed=0).toarray()
    relative, of_row = relative_walking(DEFAULT_WALKING, of_zone.metres, DRAWS, 0)
    expected = of_zone.walkers * relative[:, of_row]
    total = np.stack([2.0 + expected[:, :3].sum(axis=1)] * 3 + [1.0 + expected[:, 3]], axis=1)
    mean = of_zone.count * expected / total
    np.testing.assert_allclose(drawn.mean(axis=0), mean.mean(axis=0), atol=4 * np.sqrt(2 / DRAWS))
    # Two sources of a bin: binomial margins, and a negative covariance in between.
    np.testing.assert_allclose(
        np.bincount(drawn[:, 0], minlength=6) / DRAWS,
        binom.pmf(np.arange(6)[:, None], 5, (expected / total)[:, 0]).mean(axis=1),
        atol=4 * np.sqrt(0.25 / DRAWS),
    )
    spread = drawn - mean
    share = expected / total
    covariance = -5 * (share[:, 0] * share[:, 1]).mean()
    np.testing.assert_allclose((spread[:, 0] * spread[:, 1]).mean(), covariance, atol=4 * np.sqrt(1 / DRAWS))
    assert (drawn[:, :3].sum(axis=1) <= 5).all()
    assert (drawn[:, 2] == 0).all()


def test_nobody_walks_in_where_nothing_was_counted() -> None:
    assert received([0, 0]).split(DEFAULT_WALKING, 50, seed=1).nnz == 0
    empty = np.empty(0)
    nobody = Received(0, empty.astype(int), empty.astype(int), empty, empty, empty, empty)
    assert nobody.split(DEFAULT_WALKING, 50, seed=1).shape == (50, 0)
