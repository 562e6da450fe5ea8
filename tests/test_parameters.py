"""Hyper-parameters: what may be written, what an optimiser sees of it, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import norm

from unmet import InputError
from unmet._parameters import LogNormal, Parameter, as_parameter, parameter_from_dict, parameter_to_dict

EVERY_KIND = [
    Parameter(),
    Parameter(2.5),
    Parameter(1e-12, bounds=(1e-13, 1e12)),
    Parameter((1.0, 2.0, 3.0), bounds=((0.1, 10.0), (0.2, 20.0), (0.3, 30.0))),
    Parameter(7.0, fixed=True),
    Parameter(3.0, prior=LogNormal(2.0, 0.5)),
    Parameter(per_column=True),
]


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, [], [1.0, -1.0], [[1.0]], "seven"])
def test_a_value_that_is_not_positive_and_finite_is_refused(bad: object) -> None:
    with pytest.raises(InputError, match="hyper-parameter"):
        as_parameter(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [(0.0, 1.0), (2.0, 1.0), (-1.0, 1.0), (np.nan, 1.0), (1.0, 2.0, 3.0)])
def test_bounds_that_are_not_an_interval_above_zero_are_refused(bad: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="bounds must be 0 < low <= high"):
        Parameter(1.0, bounds=bad)  # type: ignore[arg-type]


def test_bounds_for_each_value_must_be_as_many_as_the_values() -> None:
    with pytest.raises(InputError, match="one per value; got 3"):
        Parameter((1.0, 2.0), bounds=((0.1, 10.0),) * 3)


def test_a_fixed_parameter_needs_a_value() -> None:
    with pytest.raises(InputError, match="fixed hyper-parameter needs a value"):
        Parameter(fixed=True)


@pytest.mark.parametrize(("median", "sd"), [(0.0, 1.0), (1.0, 0.0), (np.inf, 1.0), (1.0, -1.0), (np.nan, 1.0)])
def test_a_prior_needs_a_positive_median_and_spread(median: float, sd: float) -> None:
    with pytest.raises(InputError, match="LogNormal needs"):
        LogNormal(median, sd)


@pytest.mark.parametrize("prior", [5, "wide"])
def test_a_prior_is_a_log_normal(prior: object) -> None:
    with pytest.raises(InputError, match=r"prior must be a LogNormal, or None; got"):
        Parameter(1.0, prior=prior)  # type: ignore[arg-type]


def test_an_open_parameter_has_no_number_to_give() -> None:
    with pytest.raises(InputError, match="open"):
        _ = Parameter().array


@pytest.mark.parametrize("parameter", EVERY_KIND)
def test_a_description_in_json_reads_back_to_the_same_parameter(parameter: Parameter) -> None:
    assert parameter_from_dict(json.loads(json.dumps(parameter_to_dict(parameter)))) == parameter


@pytest.mark.parametrize("parameter", [p for p in EVERY_KIND if not p.is_open])
def test_theta_is_the_logarithm_of_what_may_move(parameter: Parameter) -> None:
    theta = parameter.theta
    assert theta.size == (0 if parameter.fixed else parameter.array.size)
    assert parameter.theta_bounds.shape == (theta.size, 2)
    assert parameter.with_theta(theta) == parameter  # not moved, so not rounded either
    moved = parameter.with_theta(theta + 1.0)
    np.testing.assert_allclose(moved.array, parameter.array * (1.0 if parameter.fixed else np.e), rtol=1e-14)
    assert (moved.fixed, moved.bounds, moved.prior) == (parameter.fixed, parameter.bounds, parameter.prior)


def test_moving_one_of_several_values_keeps_the_others() -> None:
    moved = Parameter((1.0, 2.0)).with_theta(np.log([1.0, 5.0]))
    assert moved.value == pytest.approx((1.0, 5.0))


def test_what_is_open_is_filled_and_what_was_given_is_kept() -> None:
    filled = Parameter().filled(2.0, (1.0, 4.0))
    assert (filled.value, filled.bounds) == (2.0, (1.0, 4.0))
    given = Parameter(3.0, bounds=(2.0, 5.0)).filled(2.0, (1.0, 4.0))
    assert (given.value, given.bounds) == (3.0, (2.0, 5.0))


def test_bounds_from_the_data_widen_to_hold_a_given_value() -> None:
    assert Parameter(9.0).filled(2.0, (1.0, 4.0)).bounds == (1.0, 9.0)
    assert Parameter((0.5, 9.0)).filled(2.0, (1.0, 4.0)).bounds == ((0.5, 4.0), (1.0, 9.0))


def test_a_given_value_outside_its_own_bounds_is_refused() -> None:
    with pytest.raises(InputError, match=r"5\.0.*outside its bounds"):
        Parameter(5.0, bounds=(0.1, 1.0)).filled(2.0, (1.0, 4.0))


def test_a_value_from_the_data_keeps_within_given_bounds() -> None:
    assert Parameter(bounds=(0.1, 1.0)).filled(2.0, (1.0, 4.0)).value == 1.0


def test_a_value_that_an_optimiser_left_on_a_bound_is_within_it() -> None:
    p = Parameter(1.0, bounds=(0.1, 3.0))
    for end in p.theta_bounds[0]:
        p.with_theta(np.array([end])).filled(1.0, (0.1, 1.0))  # exp(log(0.1)) may differ from 0.1 by a rounding


def test_the_prior_is_a_normal_over_the_logarithm() -> None:
    prior = LogNormal(median=3.0, sd=0.7)
    at = np.linspace(-2, 3, 7)
    np.testing.assert_allclose(prior.log_density(at), norm.logpdf(at, np.log(3.0), 0.7), rtol=1e-13)
    h = 1e-6
    slope = (prior.log_density(at + h) - prior.log_density(at - h)) / (2 * h)
    np.testing.assert_allclose(prior.d_log_density(at), slope, atol=1e-8)


def test_the_prior_of_several_values_is_the_sum_over_them() -> None:
    value, slope = Parameter((1.0, 2.0), prior=LogNormal(2.0, 0.5)).log_prior()
    assert value == pytest.approx(norm.logpdf(np.log([1.0, 2.0]), np.log(2.0), 0.5).sum())
    assert slope.shape == (2,)
    assert Parameter(1.0).log_prior()[0] == 0.0


def test_the_repr_tells_all_of_it() -> None:
    parameter = Parameter(2.0, bounds=(0.5, 4.0), prior=LogNormal(2.0, 0.5))
    assert eval(repr(parameter)) == parameter
    assert eval(repr(Parameter(7.0, fixed=True))) == Parameter(7.0, fixed=True)
    assert eval(repr(Parameter(per_column=True))) == Parameter(per_column=True)
    assert eval(repr(Parameter((1.0, 2.0)))) == Parameter((1.0, 2.0))
