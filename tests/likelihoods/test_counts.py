import itertools

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from oracles.brute_force import count_curve, count_log_probability, derivative, tilted_on_a_grid
from unmet import InputError
from unmet._exceptions import NumericalError
from unmet._parameters import LogNormal, Parameter
from unmet.likelihoods import _log_concave
from unmet.likelihoods._count_curves import CountCurve
from unmet.likelihoods.base import Observations
from unmet.likelihoods.counts import NegativeBinomial, Poisson
from unmet.likelihoods.quadrature import QuadratureLikelihood

LIKELIHOODS = [Poisson(), NegativeBinomial(0.1), NegativeBinomial(20.0)]
DISPERSIONS = (0.0, 1e-4, 0.05, 1.0, 100.0)
kinds = pytest.mark.parametrize("censored", [False, True], ids=["exact", "censored"])
likelihoods = pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=["poisson", "nb 0.1", "nb 20"])


def likelihood_of(dispersion):
    return NegativeBinomial(dispersion) if dispersion else Poisson()


def observations(y, censored=False, exposure=None):
    y = np.atleast_1d(np.asarray(y, dtype=float))
    exposure = None if exposure is None else np.broadcast_to(np.asarray(exposure, dtype=float), y.shape).copy()
    return Observations(y, np.where(censored, np.inf, y), exposure)


# --- curves -----------------------------------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("dispersion", DISPERSIONS)
def test_curves_equal_forty_digits_from_the_far_left_tail_to_certainty(dispersion, censored):
    for y in (1, 2, 7, 60, 70, 10_000) if censored else (0, 1, 7, 10_000):
        etas = (-30.0, 8.5, 9.25) if y > 1_000 and censored and dispersion else (-60.0, -5.0, 0.0, 2.0, 4.3, 9.2, 25.0)
        for eta in etas:
            got = CountCurve(np.array([float(y)]), dispersion, at_least=censored)(np.array([eta]))
            value, slope, curvature = count_curve(y, eta, dispersion, at_least=censored)
            where = f"y = {y}, eta = {eta}"
            assert got.value[0] == pytest.approx(value, rel=1e-10, abs=1e-10), where
            assert got.slope[0] == pytest.approx(slope, rel=1e-9, abs=1e-12), where
            assert got.curvature[0] == pytest.approx(curvature, rel=1e-8, abs=1e-300), where


@kinds
@pytest.mark.parametrize("dispersion", [0.0, 0.3])
def test_closed_forms_of_slope_and_curvature_equal_differences_of_forty_digits(dispersion, censored):
    for y, eta in itertools.product((1, 9), (-6.0, 0.5, 2.5)):

        def log_p(x, y=y):
            return count_log_probability(y, x, dispersion, at_least=censored)

        _, slope, curvature = count_curve(y, eta, dispersion, at_least=censored)
        assert slope == pytest.approx(float(derivative(log_p, eta)), rel=1e-12)
        assert curvature == pytest.approx(float(derivative(log_p, eta, order=2)), rel=1e-12)


@kinds
@pytest.mark.parametrize("dispersion", [1e-4, 0.05, 1.0, 100.0])
def test_derivatives_by_dispersion_equal_forty_digits(dispersion, censored):
    for y, eta in itertools.product((1, 7, 80), (-20.0, -2.0, 1.0, 4.0, 8.0)):
        got = CountCurve(np.array([float(y)]), dispersion, at_least=censored).by_log_dispersion(np.array([eta]))[0]
        with mp.workdps(60):
            exact = derivative(
                lambda d, y=y, eta=eta: count_log_probability(y, eta, mp.exp(d), at_least=censored),
                mp.log(mp.mpf(dispersion)),
            )
        assert got == pytest.approx(float(exact), rel=1e-6, abs=1e-9), f"y = {y}, eta = {eta}"


def test_the_derivative_by_dispersion_has_its_poisson_limit():
    y, eta, dispersion = np.array([3.0, 40.0]), np.log([5.0, 30.0]), 1e-8
    got = CountCurve(y, dispersion, at_least=False).by_log_dispersion(eta)
    np.testing.assert_allclose(got, dispersion * ((y - np.exp(eta)) ** 2 - y) / 2, rtol=1e-4)


def test_small_and_large_counts_meet_where_the_way_to_sum_their_tail_changes():
    y = np.array([64.0, 65.0])
    eta = np.linspace(2, 6, 41)[:, None] * np.ones(2)
    tail = np.exp(CountCurve(y, 0.2, at_least=True)(eta).value)
    pmf = np.exp(CountCurve(y[:1], 0.2, at_least=False)(eta[:, :1]).value)
    np.testing.assert_allclose(tail[:, :1] - tail[:, 1:], pmf, rtol=1e-9, atol=1e-12)


# --- tilted moments ---------------------------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("dispersion", [0.0, 0.1, 20.0])
@pytest.mark.slow
def test_tilted_moments_equal_a_very_fine_grid(dispersion, censored):
    counts = (1, 30, 10_000) if censored else (0, 1, 30, 10_000)
    grid = itertools.product(counts, (1e-6, 1.0), (-30.0, 0.0, 5.0, 30.0), (1e-8, 0.1, 10.0, 1e4))
    y, exposure, mean, var = np.array(list(grid)).T
    got = likelihood_of(dispersion).tilted(observations(y, censored, exposure), mean, var)
    for i in range(y.size):
        curve, shift = CountCurve(y[i : i + 1], dispersion, at_least=censored), np.log(exposure[i])

        def log_likelihood(f, curve=curve, shift=shift):
            return curve(np.reshape(f, (-1, 1)) + shift).value.reshape(np.shape(f))

        wide = var[i] > 10 and y[i] > 1_000 and censored  # a cliff of 0.01 (Poisson) in a width of 1,000
        nodes = (20_001 if dispersion else 160_001) if wide else 6_001
        log_z, offset, spread = tilted_on_a_grid(log_likelihood, mean[i], var[i], nodes)
        where = f"y = {y[i]}, exposure = {exposure[i]}, mean = {mean[i]}, var = {var[i]}"
        assert got.log_z[i] == pytest.approx(log_z, rel=1e-6, abs=1e-6), where
        assert var[i] * got.d1[i] == pytest.approx(offset, rel=1e-6, abs=1e-6 * np.sqrt(spread)), where
        assert got.shrink[i] == pytest.approx(spread / var[i], rel=1e-6), where
        assert got.d2[i] == pytest.approx((spread / var[i] - 1) / var[i], rel=1e-5, abs=1e-6 / var[i]), where


@kinds
@pytest.mark.parametrize("dispersion", [0.0, 0.01, 0.5, 50.0])
def test_tilted_moments_equal_generic_quadrature_wherever_one_looks(dispersion, censored):
    rng = np.random.default_rng([5, int(100 * dispersion), censored])
    n = 500
    y = np.floor(10 ** rng.uniform(0, 4.0, n)) - (0 if censored else 1)
    exposure, var = 10 ** rng.uniform(-6, 0, n), 10 ** rng.uniform(-8, 4, n)
    near = np.log((y + 0.5) / exposure) + 2 * np.sqrt(var) * rng.standard_normal(n)
    mean = np.clip(np.where(rng.random(n) < 0.6, near, rng.uniform(-30, 30, n)), -30, 40)
    obs = observations(y, censored, exposure)
    likelihood = likelihood_of(dispersion)
    got, slow = (
        likelihood.tilted(obs, mean, var),
        QuadratureLikelihood(likelihood.log_likelihood).tilted(obs, mean, var),
    )
    tolerance = np.where(var <= 10, 1e-6, 2e-6)
    sd = np.sqrt(slow.shrink * var)
    assert (np.abs(got.log_z - slow.log_z) <= tolerance * np.maximum(1, np.abs(slow.log_z))).all()
    assert (np.abs(got.d1 - slow.d1) * var <= tolerance * np.maximum(sd, np.abs(slow.d1) * var)).all()
    assert (np.abs(got.shrink - slow.shrink) <= tolerance * slow.shrink).all()


@kinds
@likelihoods
def test_a_narrow_cavity_gives_the_curve_itself(likelihood, censored):
    y, mean = (a.ravel() for a in np.meshgrid([1.0, 40.0, 10_000.0], [-25.0, -3.0, 1.0, 6.0, 9.3]))
    obs = observations(y, censored)
    got = likelihood.tilted(obs, mean, np.full(y.size, 1e-12))
    slope, curvature = likelihood.derivatives(obs, mean)
    np.testing.assert_allclose(got.log_z, likelihood.log_likelihood(obs, mean), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(got.d1, slope, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(got.d2, curvature, rtol=1e-6, atol=1e-20)


@kinds
@likelihoods
def test_gradients_equal_finite_differences(likelihood, censored):
    y, mean, var = (a.ravel() for a in np.meshgrid([1.0, 6.0, 90.0], [-3.0, 1.0, 3.0], [0.05, 2.0]))
    obs = observations(y, censored, 0.7)
    got = likelihood.tilted(obs, mean, var)
    h = 1e-3
    up, down = (likelihood.tilted(obs, mean + s * h, var) for s in (1, -1))
    np.testing.assert_allclose(got.d1, (up.log_z - down.log_z) / (2 * h), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(got.d2, (up.d1 - down.d1) / (2 * h), rtol=1e-4, atol=1e-7)
    assert got.d_theta.shape == (y.size, likelihood.theta.size)
    for k in range(likelihood.theta.size):
        step = h * np.eye(likelihood.theta.size)[k]
        up, down = (likelihood.with_theta(likelihood.theta + s * step).tilted(obs, mean, var) for s in (1, -1))
        np.testing.assert_allclose(got.d_theta[:, k], (up.log_z - down.log_z) / (2 * h), rtol=1e-4, atol=2e-6)


def test_near_gaussian_rows_are_believed_at_once_and_a_cliff_in_a_broad_cavity_is_not():
    def believed(y, mean, var):
        curve, m, v = CountCurve(np.array([y]), 0.0, at_least=False), np.array([mean]), np.array([var])
        placed = _log_concave._Placed.find(curve, m, v, m)
        return bool(_log_concave._trapezoid(placed, np.arange(1), 31, None)[1][0])

    assert believed(5.0, 1.5, 0.1)
    assert believed(0.0, -2.0, 0.1)
    assert not believed(0.0, 0.0, 1e4)
    assert not believed(0.0, -12.0, 10.0)


def test_work_stays_bounded_where_rounding_hides_the_answer():
    obs = observations([1e9, 1e9], censored=True)
    got = Poisson().tilted(obs, np.array([0.0, 20.0]), np.array([1e4, 1.0]))
    assert np.isfinite(got.log_z).all()
    assert ((got.shrink > 0) & (got.shrink <= 1)).all()


# --- properties -------------------------------------------------------------------------------------------------------

cavities = st.tuples(st.floats(-30, 30), st.floats(-8, 4).map(lambda e: 10.0**e))
counts = st.integers(0, 10_000)


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(LIKELIHOODS), counts, st.booleans(), st.floats(1e-6, 1), cavities)
def test_every_row_narrows_the_cavity(likelihood, y, censored, exposure, cavity):
    got = likelihood.tilted(observations(y, censored, exposure), *np.array([cavity]).T)
    assert 0 < got.shrink[0] <= 1
    assert got.d2[0] <= 0
    assert np.isfinite([got.log_z[0], got.d1[0]]).all()
    assert got.log_z[0] <= 1e-6
    if censored:
        assert got.d1[0] >= 0  # a lower bound only ever pushes up


@settings(deadline=None, max_examples=75)
@given(st.sampled_from(LIKELIHOODS), counts, st.tuples(st.floats(1e-6, 1), st.floats(1e-6, 1)), cavities)
def test_a_lower_bound_is_likelier_with_more_exposure_and_zero_less_so(likelihood, y, exposures, cavity):
    low, high = sorted(exposures)
    mean, var = np.repeat(np.array([cavity]).T, 2, axis=1)
    bound = likelihood.tilted(observations([y, y], True, [low, high]), mean, var).log_z
    zero = likelihood.tilted(observations([0, 0], False, [low, high]), mean, var).log_z
    slack = 2e-6 * max(1.0, *np.abs(bound))
    assert bound[0] <= bound[1] + slack
    assert zero[1] <= zero[0] + 2e-6 * max(1.0, *np.abs(zero))


@settings(deadline=None, max_examples=75)
@given(st.sampled_from(LIKELIHOODS), st.integers(1, 200), st.floats(-3, 6), st.floats(-4, 1).map(lambda e: 10.0**e))
def test_the_evidence_of_a_count_is_the_difference_of_two_bounds(likelihood, y, mean, var):
    m, v = np.full(2, mean), np.full(2, var)
    bounds = np.exp(likelihood.tilted(observations([y, y + 1], True), m, v).log_z)
    exact = np.exp(likelihood.tilted(observations(y), m[:1], v[:1]).log_z)
    assume(exact[0] > 1e-4)
    assert bounds[0] - bounds[1] == pytest.approx(exact[0], rel=1e-2, abs=2e-7)


@likelihoods
def test_rows_without_information_change_nothing(likelihood):
    obs = Observations(np.zeros(3), np.array([0.0, np.inf, np.inf]), np.array([0.0, 1.0, 0.0]))
    got = likelihood.tilted(obs, np.array([-30.0, 0.0, 700.0]), np.array([1e-8, 1.0, 1e4]))
    assert not likelihood.informative(obs).any()
    assert not np.concatenate([got.log_z, got.d1, got.d2, got.d_theta.ravel()]).any()
    assert (got.shrink == 1).all()
    assert not likelihood.log_likelihood(obs, np.ones(3)).any()


# --- what the model says ----------------------------------------------------------------------------------------------


def test_exposure_thins_a_full_bin_rider_by_rider():
    likelihood, f, share = NegativeBinomial(0.4), np.log(6.0), 0.3
    full = np.arange(400.0)
    p_full = np.exp(likelihood.log_likelihood(observations(full), np.full(full.size, f)))
    for seen in (0.0, 2.0, 9.0):
        thinned = (p_full * stats.binom.pmf(seen, full, share)).sum()
        log_p = likelihood.log_likelihood(observations(seen, exposure=share), np.array([f]))
        assert np.exp(log_p[0]) == pytest.approx(thinned, rel=1e-10)


def test_a_vanishing_dispersion_is_poisson():
    y, censored = np.array([0.0, 3.0, 12.0, 12.0]), np.array([False, False, False, True])
    args = observations(y, censored, 0.5), np.array([-1.0, 1.0, 2.0, 1.0]), np.array([0.5, 1.0, 3.0, 0.2])
    nearly, exactly = NegativeBinomial(1e-8).tilted(*args), Poisson().tilted(*args)
    for name in ("log_z", "d1", "d2", "shrink"):
        np.testing.assert_allclose(getattr(nearly, name), getattr(exactly, name), rtol=1e-5, atol=1e-6)


def test_the_log_level_shifts_the_latent_value():
    obs, mean, var = observations([4.0, 2.0], [False, True], 0.5), np.array([0.3, -0.2]), np.array([0.4, 1.0])
    shifted, plain = NegativeBinomial(0.2, log_level=1.5), NegativeBinomial(0.2)
    np.testing.assert_allclose(shifted.tilted(obs, mean, var).d1, plain.tilted(obs, mean + 1.5, var).d1)
    np.testing.assert_allclose(shifted.predict(mean, var), plain.predict(mean + 1.5, var))
    q = np.array([0.1, 0.9])
    np.testing.assert_array_equal(shifted.quantile(mean, var, q), plain.quantile(mean + 1.5, var, q))


@likelihoods
def test_prediction_equals_integration_over_the_rate(likelihood):
    mean, var = np.array([-1.0, 2.0, 3.0]), np.array([0.0, 0.3, 1.5])
    t = np.linspace(-12, 12, 4001)[:, None]
    weight = np.exp(-0.5 * t**2) / np.exp(-0.5 * t**2).sum()
    rate = np.exp(mean + np.sqrt(var) * t)
    dispersion = np.exp(likelihood.log_dispersion) if isinstance(likelihood, NegativeBinomial) else 0.0
    expected = (weight * rate).sum(axis=0)
    variance = (weight * (rate + dispersion * rate**2 + (rate - expected) ** 2)).sum(axis=0)
    np.testing.assert_allclose(likelihood.predict(mean, var), (expected, variance), rtol=1e-9)
    of_rate = (weight * (rate - expected) ** 2).sum(axis=0)
    np.testing.assert_allclose(likelihood.rate_moments(mean, var)[1], of_rate, rtol=1e-9, atol=1e-20)


@likelihoods
def test_prediction_overflows_to_infinity_only_where_the_answer_does(likelihood):
    mean, var = likelihood.predict(np.array([800.0, -2_000.0, 300.0]), np.array([1.0, 1_000.0, 1.0]))
    np.testing.assert_array_equal(mean, [np.inf, 0.0, np.exp(300.5)])
    np.testing.assert_array_equal(np.isinf(var), [True, False, False])


@likelihoods
def test_quantiles_are_the_smallest_counts_that_reach_their_probability(likelihood):
    mean, var = np.array([-4.0, 0.0, 1.5, 3.0, 6.0]), np.array([0.5, 2.0, 0.01, 0.3, 1e-4])
    q = np.array([0.01, 0.3, 0.5, 0.9, 0.999])
    got = likelihood.quantile(mean, var, q)
    assert got.shape == (5, 5)
    np.testing.assert_array_equal(got, np.rint(got))
    t = np.linspace(-9, 9, 6001)[:, None]
    weight = np.exp(-0.5 * t**2) / np.exp(-0.5 * t**2).sum()
    f = mean + np.sqrt(var) * t
    for row, level in zip(got, q, strict=True):
        at, before = (-np.expm1(likelihood.log_likelihood(observations(k, True), f)) for k in (row + 1, row))
        assert ((weight * at).sum(axis=0) >= level - 1e-6).all()
        assert (((weight * before).sum(axis=0) < level + 1e-6) | (row == 0)).all()


@likelihoods
def test_quantiles_agree_with_draws(likelihood):
    rng = np.random.default_rng(8)
    mean, var, n = np.array([-1.0, 1.0, 4.0]), np.array([1.0, 0.2, 0.05]), 100_000
    draws = likelihood.sample(mean + np.sqrt(var) * rng.standard_normal((n, 3)), rng)
    np.testing.assert_array_equal(draws, np.rint(draws))
    for q in (0.1, 0.5, 0.95):
        k = likelihood.quantile(mean, var, np.array([q]))[0]
        margin = 4.5 * np.sqrt(q * (1 - q) / n)
        assert ((draws <= k).mean(axis=0) >= q - margin).all()
        assert ((draws < k).mean(axis=0) <= q + margin).all()


@likelihoods
def test_draws_have_the_predicted_mean_and_variance(likelihood):
    rng = np.random.default_rng(9)
    draws = likelihood.sample(np.full(200_000, 1.2), rng)
    mean, var = (a[0] for a in likelihood.predict(np.array([1.2]), np.zeros(1)))
    kurtosis = np.mean((draws - draws.mean()) ** 4) / draws.var() ** 2
    assert draws.mean() == pytest.approx(mean, abs=4.5 * np.sqrt(var / draws.size))
    assert draws.var() == pytest.approx(var, rel=4.5 * np.sqrt(kurtosis / draws.size))


def test_very_high_rates_are_drawn_and_impossible_ones_refused():
    rng = np.random.default_rng(10)
    draws = Poisson().sample(np.full(1_000, 60.0), rng)
    assert draws.mean() == pytest.approx(np.exp(60.0), rel=1e-9)
    with pytest.raises(NumericalError, match="beyond double precision"):
        Poisson().sample(np.array([800.0]), rng)
    with pytest.raises(NumericalError, match="quantile exceeds 1e"):
        Poisson().quantile(np.array([40.0]), np.array([1.0]), np.array([0.5]))
    with pytest.raises(NumericalError, match="double precision"):
        Poisson().tilted(observations(0.0), np.array([800.0]), np.array([1e-307]))


# --- hyper-parameters and refusals ------------------------------------------------------------------------------------


def test_dispersion_is_a_parameter_in_log_space():
    likelihood = NegativeBinomial(Parameter(0.2, prior=LogNormal(0.1, 1.0)))
    np.testing.assert_allclose(likelihood.theta, np.log([0.2]))
    assert likelihood.bounds.shape == (1, 2)
    assert likelihood.with_theta(np.log([0.5])).log_dispersion == pytest.approx(np.log(0.5))
    assert likelihood.log_prior()[1].shape == (1,)
    fixed = NegativeBinomial(Parameter(0.2, fixed=True))
    assert fixed.theta.size == 0
    assert fixed.tilted(observations([1.0, 2.0]), np.zeros(2), np.ones(2)).d_theta.shape == (2, 0)
    with pytest.raises(InputError, match="dispersion must be one number"):
        NegativeBinomial(Parameter((0.1, 0.2)))


@pytest.mark.parametrize(
    ("lower", "upper", "exposure", "message"),
    [
        ([1, -1], [1, -1], None, r"whole numbers.*row 1 has -1"),
        ([1, 2.5], [1, np.inf], None, r"whole numbers.*row 1 has 2.5"),
        ([np.inf, 1], [np.inf, 1], None, r"whole numbers.*row 0 has inf"),
        ([0, 1], [4, 1], None, r"row 0 has between 0 and 4.*Gaussian"),
        ([-np.inf, 1], [3, 1], None, r"row 0 has -inf"),
        ([1, 1], [1, 1], [0.5, 1.5], r"between 0 and 1: row 1 has 1.5"),
        ([1, 1], [1, 1], [-0.1, 1.0], r"row 0 has -0.1"),
        ([1, 1], [1, 1], [np.nan, 1.0], r"row 0 has nan"),
        ([0, 3], [0, 3], [0.0, 0.0], r"row 1 has a count of 3 with exposure 0"),
        ([1, 1], [1, 1], [1.0], r"one value per row"),
    ],
)
def test_what_is_no_count_or_no_exposure_is_refused_with_its_row(lower, upper, exposure, message):
    exposure = None if exposure is None else np.array(exposure, dtype=float)
    obs = Observations(np.array(lower, dtype=float), np.array(upper, dtype=float), exposure)
    with pytest.raises(InputError, match=message):
        Poisson().validate(obs)
    with pytest.raises(InputError):
        NegativeBinomial().tilted(obs, np.zeros(2), np.ones(2))


def test_a_long_list_of_refused_rows_is_counted():
    with pytest.raises(InputError, match="and 7 more rows"):
        Poisson().validate(observations(np.full(12, 0.5)))


def test_quantiles_outside_zero_and_one_are_refused():
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        Poisson().quantile(np.zeros(1), np.ones(1), np.array([1.0]))
