"""What holds for every kernel: parametrised over one example of each class and over sums and products of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from unmet import InputError, kernels
from unmet.kernels import (
    Constant,
    Kernel,
    Linear,
    LogNormal,
    Matern,
    Parameter,
    Periodic,
    Product,
    SquaredExponential,
    Sum,
    White,
    kernel_from_dict,
)
from unmet.kernels.base import Leaf
from unmet.kernels.pairs import Pairs
from unmet.kernels.scales import scales_of

LEAVES: list[Leaf] = [
    SquaredExponential(variance=1.7, lengthscale=0.9),
    SquaredExponential(variance=1.7, lengthscale=[0.9, 2.1]),
    SquaredExponential(variance=0.5, lengthscale=1.5, columns=1),
    *[Matern(variance=1.3, lengthscale=1.1, nu=nu) for nu in (0.5, 1.5, 2.5, 0.3, 0.9, 1.0, 1.2, 3.0, 7.5, 20.0)],
    Matern(variance=1.3, lengthscale=[0.6, 1.9], nu=0.5),
    Matern(variance=1.3, lengthscale=[0.6, 1.9], nu=3.5),
    Periodic(period=2.3, variance=0.8, lengthscale=1.2),
    Periodic(period=2.3, variance=0.8, lengthscale=[1.2, 0.7]),
    Periodic(period=Parameter(2.3, fixed=True), variance=0.8, lengthscale=1.2, columns=0),
    Linear(variance=0.4),
    Linear(variance=[0.4, 1.1]),
    Constant(2.2),
    White(0.3),
]
SE, PERIODIC, LINEAR, WHITE = LEAVES[0], Periodic(2.3, 0.8, 1.2, columns=0), Linear(0.4), White(0.3)
COMPOSED: list[Kernel] = [
    SE + PERIODIC,
    SE * PERIODIC,  # two sets of lags
    SE * LEAVES[3],  # one set of lags
    2.0 * SE + 0.5,
    SE * LINEAR + WHITE,
    (SE + PERIODIC) * (LINEAR + Constant(1.5)),
    SE * PERIODIC * LINEAR + Matern(0.7, 2.0, nu=1.5, columns=1) + WHITE,
    Constant(2.0) * Constant(3.0),
    WHITE * SE,
]
ALL = LEAVES + COMPOSED


def inputs(n: int = 12, seed: int = 0) -> np.ndarray:
    """Rows on a grid and off it, with two of them equal."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) * [1.0, 2.0]
    X[: n // 2] = np.round(X[: n // 2])
    X[1] = X[0]
    return X


def name_of(kernel: Kernel) -> str:
    return repr(kernel)


every_kernel = pytest.mark.parametrize("kernel", ALL, ids=name_of)


def subclasses(of: type) -> Iterator[type]:
    for cls in of.__subclasses__():
        yield cls
        yield from subclasses(cls)


def test_every_kernel_class_is_among_the_examples() -> None:
    concrete = {cls for cls in subclasses(Kernel) if not getattr(cls, "__abstractmethods__", None)}
    examples = {type(k) for k in ALL} | {type(leaf) for k in ALL for leaf in k.leaves()}
    public = {cls for cls in concrete if not cls.__name__.startswith("_")}
    assert public <= examples, f"no example of {public - examples} in this file"
    assert all(cls.__name__ in kernels.__all__ for cls in public)


@every_kernel
def test_the_matrix_is_symmetric_and_positive_semidefinite(kernel: Kernel) -> None:
    K = kernel(inputs(20))
    np.testing.assert_array_equal(K, K.T)
    assert np.linalg.eigvalsh(K).min() > -1e-10 * np.trace(K)


@every_kernel
def test_the_diagonal_is_that_of_the_matrix(kernel: Kernel) -> None:
    X = inputs()
    np.testing.assert_allclose(kernel.resolved(None, 2).diag(X), np.diag(kernel(X)), rtol=1e-13)


@every_kernel
def test_lags_give_the_same_matrix_as_pair_by_pair(kernel: Kernel) -> None:
    """White apart, which tells rows apart and not inputs: it is zero between any two."""
    X = inputs()
    one_by_one = np.array([[float(kernel(X[i : i + 1], X[j : j + 1])[0, 0]) for j in range(12)] for i in range(12)])
    K = kernel(X)
    off = ~np.eye(12, dtype=bool)
    np.testing.assert_allclose(K[off], one_by_one[off], rtol=1e-12, atol=1e-14)
    if not any(isinstance(leaf, White) for leaf in kernel.leaves()):
        np.testing.assert_allclose(K, kernel(X, X), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(kernel(X[:5], X), K[:5], rtol=1e-12, atol=1e-14)


@every_kernel
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_contracted_gradient_equals_central_differences(kernel: Kernel, symmetric: bool) -> None:
    X = inputs()
    F = np.random.default_rng(1).normal(size=(12, 12))
    F = F + F.T if symmetric else F
    theta, h = kernel.theta, 1e-5
    numeric = np.array(
        [
            (F * (kernel.with_theta(theta + h * e)(X) - kernel.with_theta(theta - h * e)(X))).sum() / (2 * h)
            for e in np.eye(theta.size)
        ]
    )
    got = kernel.contract_gradient(X, F)
    assert got.shape == theta.shape
    scale = np.abs(F * kernel(X)).sum()
    np.testing.assert_allclose(got, numeric, rtol=1e-6, atol=1e-8 * scale)


@every_kernel
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_memory_order_of_the_weights_does_not_matter(kernel: Kernel, order: str) -> None:
    X, F = inputs(), np.random.default_rng(2).normal(size=(12, 12))
    wide = np.zeros((12, 24))
    wide[:, ::2] = F
    expected = kernel.contract_gradient(X, F.copy())
    np.testing.assert_allclose(kernel.contract_gradient(X, F.copy(order=order)), expected, rtol=1e-12)
    np.testing.assert_allclose(kernel.contract_gradient(X, wide[:, ::2]), expected, rtol=1e-12)


@every_kernel
def test_the_repr_is_a_formula_that_evaluates_to_the_same_function(kernel: Kernel) -> None:
    again = eval(repr(kernel), vars(kernels))
    np.testing.assert_allclose(again(inputs()), kernel(inputs()), rtol=1e-14)
    assert repr(again) == repr(kernel)


@every_kernel
def test_a_description_in_json_reads_back_to_an_equal_kernel(kernel: Kernel) -> None:
    again = kernel_from_dict(json.loads(json.dumps(kernel.to_dict())))
    assert again == kernel
    assert hash(again) == hash(kernel)
    np.testing.assert_array_equal(again(inputs()), kernel(inputs()))


@every_kernel
def test_theta_comes_with_names_and_bounds_and_goes_back_in(kernel: Kernel) -> None:
    theta = kernel.theta
    assert len(kernel.theta_names) == theta.size
    assert kernel.bounds.shape == (theta.size, 2)
    assert kernel.with_theta(theta) == kernel
    moved = np.linspace(-0.5, 0.5, theta.size) if theta.size else theta
    np.testing.assert_allclose(kernel.with_theta(moved).theta, moved, atol=1e-14)
    assert kernel.with_theta(moved).theta_names == kernel.theta_names


@every_kernel
def test_columns_by_name_are_those_by_position(kernel: Kernel) -> None:
    X = inputs()
    frame = pd.DataFrame(X, columns=["hour", "rain"])
    by_name = eval(
        repr(kernel).replace("columns=0", "columns='hour'").replace("columns=1", "columns='rain'"), vars(kernels)
    )
    np.testing.assert_array_equal(by_name(frame), kernel(X))
    np.testing.assert_array_equal(by_name(frame, frame[:3]), kernel(X, X[:3]))


@every_kernel
def test_open_values_and_bounds_are_filled_from_the_data(kernel: Kernel) -> None:
    filled = kernel.resolved(None, 2).filled(scales_of(inputs(), 3.0))
    assert np.isfinite(filled.bounds).all()
    assert (filled.bounds[:, 0] < filled.bounds[:, 1]).all()
    np.testing.assert_allclose(filled.theta, kernel.theta)  # given values stay
    assert ((filled.theta >= filled.bounds[:, 0]) & (filled.theta <= filled.bounds[:, 1])).all()


@every_kernel
def test_one_row_is_enough(kernel: Kernel) -> None:
    X = inputs()[:1]
    K = kernel(X)
    assert K.shape == (1, 1)
    assert K[0, 0] == pytest.approx(kernel.resolved(None, 2).diag(X)[0])


@every_kernel
def test_the_result_is_a_fresh_array_that_may_be_written_to(kernel: Kernel) -> None:
    K = kernel(inputs())
    K[0, 0] = 99.0
    assert kernel(inputs())[0, 0] != 99.0


@every_kernel
def test_the_prior_is_the_sum_over_hyper_parameters(kernel: Kernel) -> None:
    prior = LogNormal(1.5, 0.4)

    def with_priors(k: Kernel) -> Kernel:
        if isinstance(k, Leaf):
            return k._rebuilt({n: replace(p, prior=prior) for n, p in k.parameters.items()}, k.columns)
        assert isinstance(k, (Sum, Product))
        return type(k)(with_priors(k.left), with_priors(k.right))

    believed = with_priors(kernel)
    value, slope = believed.log_prior()
    assert value == pytest.approx(prior.log_density(believed.theta).sum())
    np.testing.assert_allclose(slope, prior.d_log_density(believed.theta))


OPEN = [
    SquaredExponential(),
    SquaredExponential(lengthscale="per column"),
    Matern(nu=1.5),
    Matern(nu=0.7, lengthscale="per column"),
    Periodic(period=7.0),
    Periodic(period=7.0, lengthscale="per column"),
    Linear(),
    Linear(variance="per column"),
    Constant(),
    White(),
]


@pytest.mark.parametrize("kernel", OPEN, ids=name_of)
@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_an_open_kernel_takes_its_values_from_the_scale_of_the_data(kernel: Leaf, unit: float) -> None:
    X = inputs() * unit
    filled = kernel.resolved(None, 2).filled(scales_of(X, 3.0))
    assert not any(p.is_open for p in filled.parameters.values())
    assert np.isfinite(filled(X)).all()
    if not isinstance(kernel, Periodic):  # a period is in the caller's units and moves with them
        at_one = kernel.resolved(None, 2).filled(scales_of(inputs(), 3.0))
        np.testing.assert_allclose(filled(X), at_one(inputs()), rtol=1e-9)
    per_column = [n for n, p in kernel.parameters.items() if p.per_column]
    assert all(len(filled.value(n)) == 2 for n in per_column)


@pytest.mark.parametrize("kernel", OPEN, ids=name_of)
def test_the_repr_of_an_open_kernel_evaluates_back(kernel: Kernel) -> None:
    assert eval(repr(kernel), vars(kernels)) == kernel


@pytest.mark.parametrize("kernel", OPEN, ids=name_of)
def test_an_open_kernel_cannot_be_evaluated_and_says_so(kernel: Kernel) -> None:
    with pytest.raises(InputError, match="open"):
        kernel(inputs())


def test_the_second_variance_of_a_product_is_held_and_given_ones_are_bounded() -> None:
    X = inputs()
    filled = (SquaredExponential() * Periodic(7.0)).resolved(None, 2).filled(scales_of(X, 3.0))
    assert [n for n in filled.theta_names if n.endswith("variance")] == ["SquaredExponential.variance"]
    given = (SquaredExponential() * Periodic(7.0, variance=2.0)).resolved(None, 2).filled(scales_of(X, 3.0))
    assert np.isfinite(given.bounds).all()


class TestColumns:
    X = inputs()
    frame = pd.DataFrame(X, columns=["hour", "rain"])

    def test_a_kernel_looks_only_at_its_columns(self) -> None:
        k = SquaredExponential(1.0, 1.0, columns="rain")
        np.testing.assert_array_equal(k(self.frame), SquaredExponential(1.0, 1.0)(self.X[:, 1:]))
        np.testing.assert_array_equal(k(self.frame[["rain", "hour"]]), k(self.frame))

    def test_names_are_looked_up_in_each_table(self) -> None:
        k = SquaredExponential(1.0, 1.0, columns="rain") + Linear(0.4, columns=["hour"])
        swapped = self.frame[["rain", "hour"]]
        np.testing.assert_array_equal(k(self.frame, swapped), k(self.frame, self.frame))

    def test_negative_positions_count_from_the_end(self) -> None:
        np.testing.assert_array_equal(
            SquaredExponential(1.0, 1.0, columns=-1)(self.X), SquaredExponential(1.0, 1.0, columns=1)(self.X)
        )

    def test_numpy_integers_are_positions_and_reach_json(self) -> None:
        k = SquaredExponential(1.0, 1.0, columns=np.arange(1, 2))
        assert kernel_from_dict(json.loads(json.dumps(k.to_dict()))) == k == SquaredExponential(1.0, 1.0, columns=1)

    @pytest.mark.parametrize(
        ("columns", "message"),
        [("snow", "no column 'snow'; the inputs have hour, rain"), (2, "no column 2"), (-3, "no column -3")],
    )
    def test_an_unknown_column_is_refused_with_those_that_are_there(self, columns: int | str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            SquaredExponential(1.0, 1.0, columns=columns)(self.frame)

    def test_a_name_needs_inputs_with_names(self) -> None:
        with pytest.raises(InputError, match="Pass a DataFrame, or columns by position"):
            SquaredExponential(1.0, 1.0, columns="rain")(self.X)

    def test_no_columns_at_all_are_refused(self) -> None:
        with pytest.raises(InputError, match="columns is empty"):
            SquaredExponential(columns=[])

    def test_length_scales_must_match_the_columns(self) -> None:
        with pytest.raises(InputError, match="3 values for 2 columns"):
            SquaredExponential(1.0, [1.0, 2.0, 3.0])(self.X)

    def test_two_tables_of_different_width_are_refused(self) -> None:
        with pytest.raises(InputError, match=r"2 columns.*1"):
            SquaredExponential(1.0, 1.0)(self.X, self.X[:, :1])

    def test_a_vector_is_no_table(self) -> None:
        with pytest.raises(InputError, match="rows and columns"):
            SquaredExponential(1.0, 1.0)([1.0, 2.0])


@pytest.mark.parametrize(
    "build",
    [
        lambda: SquaredExponential(variance=[1.0, 2.0]),
        lambda: SquaredExponential(variance="per column"),
        lambda: Periodic(period=[1.0, 2.0]),
        lambda: Constant([1.0, 2.0]),
        lambda: White([1.0]),
        lambda: Matern(variance=(1.0, 2.0)),
    ],
)
def test_one_value_per_column_is_refused_where_only_one_has_a_meaning(build: Callable[[], Kernel]) -> None:
    with pytest.raises(InputError, match="one number"):
        build()


@pytest.mark.parametrize("period", [0, -7, np.nan, np.inf])
def test_a_period_that_is_not_positive_is_refused(period: float) -> None:
    with pytest.raises(InputError, match=r"Periodic: period: .*positive, finite number.*got"):
        Periodic(period=period)


@pytest.mark.parametrize("nu", [0.0, -1.0, 51.0, np.nan])
def test_a_smoothness_out_of_reach_is_refused(nu: float) -> None:
    with pytest.raises(InputError, match="nu must lie in"):
        Matern(nu=nu)


def test_an_unknown_kernel_in_a_description_is_refused() -> None:
    with pytest.raises(InputError, match="Unknown kernel 'Exec'"):
        kernel_from_dict({"kind": "Exec", "parameters": {}})


class TestLags:
    """Gridded inputs: few distinct lags, found once."""

    grid = np.column_stack([np.arange(60) * 0.1, np.arange(60) % 24, np.arange(60) // 24 % 7]).astype(float)

    def test_a_grid_has_few_lags_even_where_its_steps_are_not_exact_in_binary(self) -> None:
        assert Pairs(self.grid).lags((0,)).distances[0].size == 60
        assert Pairs(self.grid).lags((0, 1, 2)).distances[0].size < 60 * 59 / 4

    @pytest.mark.parametrize("columns", [(0,), (1,), (0, 1, 2), (2, 0)])
    def test_every_pair_is_given_its_own_lag(self, columns: tuple[int, ...]) -> None:
        lags = Pairs(self.grid).lags(columns)
        for k, c in enumerate(columns):
            brute = np.abs(np.subtract.outer(self.grid[:, c], self.grid[:, c]))
            np.testing.assert_allclose(lags.distances[k][lags.index], brute, atol=1e-12)

    @pytest.mark.parametrize("shift", [0.0, 1e9])
    def test_close_but_different_lags_stay_apart(self, shift: float) -> None:
        x = np.array([0.0, 1.0, 2.0 + 1e-6, 1000.0]) + shift
        distances = np.sort(Pairs(x[:, None]).lags((0,)).distances[0])
        assert distances.size == 7
        assert all(b > a for a, b in pairwise(distances))

    def test_inputs_off_any_grid_keep_a_lag_for_each_pair(self) -> None:
        scattered = np.random.default_rng(0).normal(size=(40, 2))
        lags = Pairs(scattered).lags((0, 1))
        assert lags.distances[0].size == 40 * 41 / 2
        brute = np.abs(np.subtract.outer(scattered[:, 1], scattered[:, 1]))
        np.testing.assert_array_equal(lags.distances[1][lags.index], brute)

    def test_lags_are_found_once_for_each_set_of_columns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from unmet.kernels import pairs as module

        found = []
        find = module._find_lags
        monkeypatch.setattr(module, "_find_lags", lambda X: found.append(X.shape) or find(X))
        p = Pairs(self.grid)
        kernel = (SquaredExponential(1.0, 1.0) + Periodic(24.0, 1.0, 1.0) * Matern(1.0, 2.0, columns=0)).resolved(
            None, 3
        )
        for shift in (0.0, 0.1, 0.2):
            at = kernel.with_theta(kernel.theta + shift)
            at.on(p)
            at.contract(p, module.Weights(np.ones((60, 60))))
        assert sorted(found) == [(60, 1), (60, 3)]


@pytest.mark.parametrize("nu", ["1.5", None, [1.5], True])
def test_the_smoothness_of_a_matern_is_a_number(nu: object) -> None:
    with pytest.raises(InputError, match=r"Matern: nu must be a number in \(0, 50\]; got"):
        Matern(nu=nu)  # type: ignore[arg-type]
