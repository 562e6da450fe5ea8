"""Hyper-parameters learnt from several data sets at once."""

from __future__ import annotations

import numpy as np
import pytest

from unmet import CensoredGP, InputError
from unmet.estimators.together import learn_together, with_data
from unmet.kernels import LogNormal, Parameter, Periodic, SquaredExponential


def data_set(seed: int, n: int = 60, lengthscale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Counts whose log-rate is drawn from an SE kernel of variance 0.5."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 10, n))[:, None]
    f = rng.multivariate_normal(np.ones(n), SquaredExponential(0.5, lengthscale)(x) + 1e-9 * np.eye(n))
    return x, rng.poisson(np.exp(f)).astype(float)


def fitted(seed: int, kernel=None, inference: str = "dense", **options) -> CensoredGP:
    kernel = kernel or SquaredExponential(Parameter(1.0, bounds=(1e-3, 1e2)), Parameter(2.0, bounds=(1e-2, 1e2)))
    gp = CensoredGP(kernel, likelihood="poisson", optimizer=None, inference=inference, **options)
    return gp.fit(*data_set(seed))


def test_of_one_data_set_it_is_what_a_fit_learns():
    gp = fitted(1)
    found = learn_together([gp])
    model, optimum = found.model, found.optimum
    alone = CensoredGP(gp.kernel, likelihood="poisson", inference="dense").fit(*data_set(1))
    assert optimum.converged
    np.testing.assert_allclose(model.theta, alone.theta_, atol=2e-3)


def test_models_that_only_have_their_data_give_the_same_digits():
    bare = [with_data(CensoredGP(fitted(1).kernel, likelihood="poisson"), *data_set(seed)) for seed in range(2)]
    np.testing.assert_array_equal(
        learn_together(bare).model.theta, learn_together([fitted(seed) for seed in range(2)]).model.theta
    )


def test_the_sum_of_the_evidences_is_highest_where_it_ends():
    gps = [fitted(seed) for seed in range(4)]
    found = learn_together(gps)
    model, optimum = found.model, found.optimum
    total = sum(gp.log_marginal_likelihood(model.theta) for gp in gps)
    assert total == pytest.approx(optimum.value, abs=1e-6)
    for step in 0.05 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]]):
        assert sum(gp.log_marginal_likelihood(model.theta + step) for gp in gps) < total


def test_many_data_sets_find_what_made_them_where_one_may_not():
    truth = np.log([0.5, 1.0])
    together = learn_together([fitted(seed) for seed in range(12)]).model
    alone = [learn_together([fitted(seed)]).model.theta for seed in range(12)]
    # f varies about the log of each set's mean, so that some of its variance is taken for the level.
    assert np.abs(together.theta - truth).max() < 0.6
    assert np.abs(np.array(alone) - truth).max() > 1.2


def test_a_prior_counts_once_however_many_data_sets_there_are():
    prior = LogNormal(30.0, 0.1)  # far from what the data say
    kernel = SquaredExponential(Parameter(1.0, bounds=(1e-3, 1e2)), Parameter(2.0, bounds=(1e-2, 1e2), prior=prior))
    gp = fitted(3, kernel)
    one = learn_together([gp]).model
    many = learn_together([gp] * 20).model
    assert one.theta[1] > many.theta[1] + 0.5


def test_low_rank_features_are_planned_anew_for_the_length_scales_found():
    kernel = SquaredExponential(Parameter(1.0, bounds=(1e-3, 1e2)), Parameter(3.0, bounds=(0.3, 30.0)))
    low = [fitted(seed, kernel, "lowrank", n_features=60) for seed in range(3)]
    dense = [fitted(seed, kernel) for seed in range(3)]
    found, right = learn_together(low).model, learn_together(dense).model
    assert found.block.left_out(found.kernel) < 2e-3
    np.testing.assert_allclose(found.theta, right.theta, atol=0.05)


@pytest.mark.slow
def test_how_well_the_dispersion_is_known_is_told_by_the_width_of_its_peak():
    kernel = SquaredExponential(Parameter(0.5, fixed=True), Parameter(1.0, fixed=True))
    sets = []
    for seed in range(4):
        x, y = data_set(seed, n=150)
        extra = np.random.default_rng(seed).gamma(2.0, 0.5, len(y))
        sets.append((x, np.random.default_rng(seed + 10).poisson(3 * extra).astype(float)))
    gps = [
        CensoredGP(kernel, likelihood="negative-binomial", optimizer=None, inference="dense").fit(*data)
        for data in sets
    ]
    found = learn_together(gps)
    at = found.model.theta[-1] + np.linspace(-1.5, 1.5, 61)
    peak = np.array([sum(gp.log_marginal_likelihood(np.array([value])) for gp in gps) for value in at])
    mass = np.exp(peak - peak.max())
    mean = (mass * at).sum() / mass.sum()
    sd = np.sqrt((mass * (at - mean) ** 2).sum() / mass.sum())
    assert found.likelihood_sd == pytest.approx(sd, rel=0.15)
    assert learn_together([fitted(1)]).likelihood_sd == 0.0  # Poisson counts have none


def test_models_with_other_hyper_parameters_and_none_at_all_are_refused():
    with pytest.raises(InputError, match="the same ones"):
        learn_together([])
    with pytest.raises(InputError, match="the same ones"):
        learn_together([fitted(1), fitted(2, Periodic(period=3.0))])
