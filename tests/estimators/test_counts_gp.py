"""`CensoredGP` on counts: against MCMC, between engines, what says nothing, what is refused, known truth."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from oracles.ess import count_log_likelihood, elliptical_slice
from unmet import CensoredGP, InputError, UninformativeWarning
from unmet.kernels import Constant, Kernel, Linear, Matern, Parameter, Periodic, SquaredExponential

COUNTS = ["poisson", "negative-binomial"]
ENGINES = ["dense", "lowrank"]


def held(value: float) -> Parameter:
    return Parameter(value, fixed=True)


def draw(rng: np.random.Generator, mu: np.ndarray, dispersion: float) -> np.ndarray:
    if dispersion > 0:
        mu = mu * rng.gamma(1 / dispersion, dispersion, size=mu.shape)
    return rng.poisson(mu).astype(float)


def latent(gp: CensoredGP, X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean and sd of the log-rate."""
    median, upper = np.log(gp.predict_quantiles(X, [0.5, ndtr(1.0)], kind="latent")).T
    return median, upper - median


def small_problem(dispersion: float = 0.0, n: int = 60, seed: int = 4) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.linspace(0, 10, n)[:, None]
    exposure = np.where(rng.random(n) < 0.4, rng.uniform(0.05, 1, n), 1.0)
    y = draw(rng, exposure * np.exp(1 + np.sin(X[:, 0])), dispersion)
    return {"X": X, "y": y, "exposure": exposure, "censored": (rng.random(n) < 0.4) & (y > 0)}


def quick(likelihood: str, **settings: Any) -> CensoredGP:
    """A model at given hyper-parameters."""
    given: dict[str, Any] = {
        "kernel": SquaredExponential(1.0, 1.5) + Constant(0.5),
        "optimizer": None,
        "normalize_y": False,
        "dispersion": 0.3 if likelihood == "negative-binomial" else None,
    }
    return CensoredGP(likelihood=likelihood, **{**given, **settings})


# --------------------------------------------------------------------------------------------- right?


@pytest.mark.parametrize("cut", [False, True], ids=["exact", "censored"])
@pytest.mark.parametrize("dispersion", [0.0, 0.5], ids=["poisson", "negative binomial"])
def test_posteriors_agree_with_mcmc_within_its_error(dispersion: float, cut: bool) -> None:
    data = small_problem(dispersion, n=24)
    censored = data["censored"] & cut
    kernel = SquaredExponential(1.0, 1.5) + Constant(0.5)
    mcmc = elliptical_slice(
        kernel(data["X"]),
        count_log_likelihood(data["y"], censored, data["exposure"], dispersion),
        chains=80,
        burn_in=200,
        steps=1000,
        rng=np.random.default_rng(0),
    )
    assert (mcmc.mean_error < 0.06 * mcmc.sd).all()  # else the test could not fail
    name, own = ("poisson", None) if dispersion == 0 else ("negative-binomial", dispersion)
    for engine in ENGINES:
        gp = quick(name, kernel=kernel, dispersion=own, inference=engine)
        mean, sd = latent(gp.fit(data["X"], data["y"], censored, exposure=data["exposure"]), data["X"])
        assert (np.abs(mean - mcmc.mean) < 4.5 * mcmc.mean_error).all()
        assert (np.abs(sd - mcmc.sd) < 4.5 * mcmc.sd_error).all()


@pytest.mark.parametrize("likelihood", COUNTS)
def test_both_engines_learn_the_same(likelihood: str) -> None:
    data = small_problem(0.3 if likelihood != "poisson" else 0.0, n=150)
    fits = [CensoredGP(SquaredExponential(), likelihood=likelihood, inference=engine).fit(**data) for engine in ENGINES]
    assert fits[0].features_ is None
    assert fits[1].features_ is not None
    assert fits[1].log_marginal_likelihood_ == pytest.approx(fits[0].log_marginal_likelihood_, abs=1e-3)
    np.testing.assert_allclose(fits[1].theta_, fits[0].theta_, atol=0.02)
    X = np.linspace(-3, 13, 50)[:, None]
    (m0, s0), (m1, s1) = latent(fits[0], X), latent(fits[1], X)
    np.testing.assert_allclose(m1 / s0, m0 / s0, atol=0.02)
    np.testing.assert_allclose(s1, s0, rtol=0.02)
    for result in zip(fits[0].predict(X, return_cov=True), fits[1].predict(X, return_cov=True), strict=True):
        np.testing.assert_allclose(result[1], result[0], rtol=0.1, atol=0.05 * np.abs(result[0]).max())


def test_a_negative_binomial_with_little_dispersion_is_poisson() -> None:
    data = small_problem()
    mean, sd = latent(quick("poisson").fit(**data), data["X"])
    close, close_sd = latent(quick("negative-binomial", dispersion=1e-7).fit(**data), data["X"])
    np.testing.assert_allclose(close, mean, atol=1e-5)
    np.testing.assert_allclose(close_sd, sd, rtol=1e-5)


def test_the_dispersion_is_learnt() -> None:
    rng = np.random.default_rng(0)
    X = np.linspace(0, 10, 1500)[:, None]
    y = draw(rng, np.exp(2 + np.sin(X[:, 0])), 0.4)
    gp = CensoredGP(SquaredExponential(), likelihood="negative-binomial", inference="lowrank").fit(X, y)
    assert gp.dispersion_ == pytest.approx(0.4, rel=0.15)
    assert gp.converged_
    assert not hasattr(gp, "noise_variance_")


@pytest.mark.parametrize("likelihood", COUNTS)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_public_gradient_is_that_of_the_evidence(likelihood: str, engine: str) -> None:
    data = small_problem(n=40)
    gp = quick(likelihood, inference=engine).fit(**data)
    theta = gp.theta_ + 0.1
    _, gradient = gp.log_marginal_likelihood(theta, eval_gradient=True)
    step = 1e-4
    numerical = [
        (gp.log_marginal_likelihood(theta + step * e) - gp.log_marginal_likelihood(theta - step * e)) / (2 * step)
        for e in np.eye(theta.size)
    ]
    np.testing.assert_allclose(gradient, numerical, rtol=1e-4, atol=1e-4)


# --------------------------------------------------------------------------------------------- what says nothing


@pytest.mark.parametrize("likelihood", COUNTS)
@pytest.mark.parametrize("engine", ENGINES)
def test_rows_without_exposure_change_nothing_at_all(likelihood: str, engine: str) -> None:
    data = small_problem()
    rng = np.random.default_rng(9)
    at = np.sort(rng.integers(0, 60, 12))
    padded = {
        "X": np.insert(data["X"], at, rng.uniform(-50, 50, (12, 1)), axis=0),
        "y": np.insert(data["y"], at, 0.0),
        "exposure": np.insert(data["exposure"], at, 0.0),
        "censored": np.insert(data["censored"], at, rng.random(12) < 0.5),
    }
    settings: dict[str, Any] = {"kernel": SquaredExponential(), "inference": engine, "max_iter": 20}
    with_them = CensoredGP(likelihood=likelihood, **settings).fit(**padded)
    without = CensoredGP(likelihood=likelihood, **settings).fit(**data)
    assert with_them.log_marginal_likelihood_ == without.log_marginal_likelihood_
    np.testing.assert_array_equal(with_them.theta_, without.theta_)
    for a, b in zip(
        with_them.predict(data["X"], return_std=True), without.predict(data["X"], return_std=True), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_a_censored_count_of_zero_is_left_out_and_said_once() -> None:
    data = small_problem()
    zeros = data["y"] == 0
    assert zeros.sum() > 1
    censored = data["censored"] | zeros
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gp = CensoredGP(SquaredExponential(), likelihood="poisson", max_iter=20)
        gp.fit(data["X"], data["y"], censored, exposure=data["exposure"])
    told = [w for w in caught if issubclass(w.category, UninformativeWarning)]
    assert len(told) == 1
    assert f"{zeros.sum()} censored rows have a count of 0" in str(told[0].message)
    rest = CensoredGP(SquaredExponential(), likelihood="poisson", max_iter=20)
    rest.fit(data["X"][~zeros], data["y"][~zeros], censored[~zeros], exposure=data["exposure"][~zeros])
    np.testing.assert_array_equal(gp.predict(data["X"]), rest.predict(data["X"]))


@pytest.mark.parametrize("mode", ["drop", "ignore"])
def test_dropping_and_ignoring_labels_is_as_if_they_were_not_there(mode: str) -> None:
    data = small_problem()
    keep = ~data["censored"] if mode == "drop" else np.ones(60, dtype=bool)
    gp = quick("poisson", censoring=mode).fit(**data)
    plain = quick("poisson").fit(data["X"][keep], data["y"][keep], exposure=data["exposure"][keep])
    np.testing.assert_array_equal(gp.predict(data["X"]), plain.predict(data["X"]))


# --------------------------------------------------------------------------------------------- what is refused


def test_exposure_with_gaussian_noise_is_refused_with_the_reason() -> None:
    data = small_problem()
    with pytest.raises(
        InputError, match=r"exposure needs a count likelihood: the distribution of a Gaussian total .* not defined"
    ):
        CensoredGP().fit(data["X"], data["y"], exposure=data["exposure"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": -1.0}, r"Counts must be whole numbers of at least 0: row 3 has -1"),
        ({"y": 1.5}, r"Counts must be whole numbers of at least 0: row 3 has 1.5"),
        ({"y": np.nan}, r"y must not contain NaN"),
        ({"exposure": -0.1}, r"exposure must lie between 0 and 1: row 3 has -0.1"),
        ({"exposure": 1.1}, r"exposure must lie between 0 and 1: row 3 has 1.1"),
        ({"exposure": np.nan}, r"exposure must lie between 0 and 1: row 3 has nan"),
        ({"y": 2.0, "exposure": 0.0}, r"A count must be 0 where exposure is 0: row 3 has a count of 2"),
        ({"censored": -1}, r"A count must be exact or a lower bound .* row 3 has only an upper bound"),
        ({"censored": 2}, r"censored must be"),
    ],
)
@pytest.mark.parametrize("likelihood", COUNTS)
def test_what_is_no_count_or_share_is_refused(likelihood: str, change: dict[str, float], message: str) -> None:
    data = {name: values.astype(float) for name, values in small_problem().items()}
    for name, value in change.items():
        data[name][3] = value
    with pytest.raises(InputError, match=message):
        quick(likelihood).fit(**data)


def test_exposure_needs_one_share_per_row() -> None:
    data = small_problem()
    with pytest.raises(InputError, match=r"exposure must have one value per row of X; got 59 for 60 rows"):
        quick("poisson").fit(data["X"], data["y"], exposure=data["exposure"][1:])


def test_nothing_but_closed_bins_is_refused() -> None:
    X = np.arange(5.0)[:, None]
    with pytest.raises(InputError, match="All 5 rows have exposure 0"):
        quick("poisson").fit(X, np.zeros(5), exposure=np.zeros(5))
    with (
        pytest.warns(UninformativeWarning),
        pytest.raises(InputError, match="censored at a count of 0 or have exposure 0"),
    ):
        quick("poisson").fit(X, np.zeros(5), np.ones(5, dtype=bool), exposure=[0, 1, 1, 0, 0.5])


def test_hyper_parameters_of_another_likelihood_are_refused() -> None:
    data = small_problem()
    with pytest.raises(InputError, match="noise_variance belongs to the Gaussian likelihood"):
        CensoredGP(likelihood="poisson", noise_variance=0.1).fit(data["X"], data["y"])
    with pytest.raises(InputError, match="dispersion belongs to the negative binomial"):
        CensoredGP(likelihood="poisson", dispersion=0.1).fit(data["X"], data["y"])
    with pytest.raises(InputError, match="likelihood must be one of gaussian, poisson, negative-binomial"):
        CensoredGP(likelihood="binomial").fit(data["X"], data["y"])  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------- predictions


@pytest.mark.parametrize("likelihood", COUNTS)
@pytest.mark.parametrize("engine", ENGINES)
def test_predictions_are_per_full_bin_and_counts_are_whole(likelihood: str, engine: str) -> None:
    """A rate of 40 seen through a quarter of each bin: 10 are seen, 40 predicted."""
    rng = np.random.default_rng(3)
    X = np.linspace(0, 10, 120)[:, None]
    y = rng.poisson(10.0, 120)
    gp = quick(likelihood, kernel=SquaredExponential(0.1, 5.0), inference=engine, normalize_y=True)
    gp.fit(X, y, exposure=np.full(120, 0.25))
    at = np.array([[2.0], [7.0], [11.0]])
    np.testing.assert_allclose(gp.predict(at), 40.0, rtol=0.2)
    quantiles = gp.predict_quantiles(at, [0.05, 0.5, 0.95])
    np.testing.assert_array_equal(quantiles, np.rint(quantiles))
    assert (np.diff(quantiles, axis=1) > 0).all()
    draws = gp.sample(at, size=30_000, kind="demand", random_state=0)
    np.testing.assert_array_equal(draws, np.rint(draws))
    for k, q in enumerate((0.05, 0.5, 0.95)):  # the smallest count reached with probability q
        assert ((draws <= quantiles[:, k]).mean(axis=0) > q - 0.01).all()
        assert ((draws <= quantiles[:, k] - 1).mean(axis=0) < q + 0.01).all()
    rates = gp.sample(at, size=30_000, kind="latent", random_state=0)
    mean, sd = gp.predict(at, return_std=True)
    np.testing.assert_allclose(rates.mean(axis=0), mean, rtol=0.01)
    np.testing.assert_allclose(rates.std(axis=0), sd, rtol=0.05)
    _, cov = gp.predict(at, return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), sd, rtol=1e-9)
    np.testing.assert_allclose(np.corrcoef(rates.T), cov / np.outer(sd, sd), atol=0.05)


def test_the_scale_of_exposure_only_scales_the_rate() -> None:
    """Half the exposure with the same counts: twice the rate, the same shape and evidence."""
    data = small_problem()
    fits = []
    for share in (1.0, 0.5):
        gp = quick("negative-binomial", normalize_y=True)
        fits.append(gp.fit(data["X"], data["y"], data["censored"], exposure=share * data["exposure"]))
    np.testing.assert_allclose(fits[1].predict(data["X"]), 2 * fits[0].predict(data["X"]), rtol=1e-8)
    assert fits[1].log_marginal_likelihood_ == pytest.approx(fits[0].log_marginal_likelihood_, abs=1e-8)


def test_units_of_the_inputs_do_not_matter() -> None:
    data = small_problem()
    a = CensoredGP(likelihood="poisson").fit(**data)
    b = CensoredGP(likelihood="poisson").fit(**{**data, "X": 24.0 * data["X"] + 1000.0})
    assert b.log_marginal_likelihood_ == pytest.approx(a.log_marginal_likelihood_, abs=1e-4)
    np.testing.assert_allclose(b.predict(24.0 * data["X"] + 1000.0), a.predict(data["X"]), rtol=1e-2)


def test_without_normalising_f_varies_about_a_rate_of_one() -> None:
    data = small_problem()
    far = np.array([[1e6]])
    kernel = SquaredExponential(1.0, 1.5)
    assert latent(quick("poisson", kernel=kernel).fit(**data), far)[0][0] == pytest.approx(0.0, abs=1e-8)
    level = (data["y"].sum() + 0.5) / data["exposure"].sum()
    normalised = quick("poisson", kernel=kernel, normalize_y=True).fit(**data)
    assert latent(normalised, far)[0][0] == pytest.approx(np.log(level), abs=1e-8)


# --------------------------------------------------------------------------------------------- storage

KERNELS: dict[str, Kernel] = {
    "drifting pattern": SquaredExponential(1.0, 6.0) * Periodic(held(3.0), held(1.0), 1.0)
    + Linear(0.1)
    + Constant(0.5),
    "rough": Matern(1.0, 5.0, nu=1.5),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("likelihood", ["gaussian", *COUNTS])
def test_a_saved_model_predicts_the_same_to_the_last_digit(
    likelihood: str, engine: str, kernel: Kernel, tmp_path: Path
) -> None:
    data = small_problem()
    if likelihood == "gaussian":
        del data["exposure"]
    gp = CensoredGP(kernel, likelihood=likelihood, inference=engine, max_iter=4)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # four iterations do not converge
        gp.fit(**data)
    gp.save(tmp_path / "model")
    again = CensoredGP.load(tmp_path / "model")
    X = np.linspace(-2, 12, 30)[:, None]
    for a, b in zip(gp.predict(X, return_cov=True), again.predict(X, return_cov=True), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(gp.predict_quantiles(X), again.predict_quantiles(X))
    for kind in ("demand", "latent"):
        np.testing.assert_array_equal(
            gp.sample(X, 3, kind=kind, random_state=1), again.sample(X, 3, kind=kind, random_state=1)
        )
    assert again.log_marginal_likelihood_ == gp.log_marginal_likelihood_
    assert again.get_params().keys() == gp.get_params().keys()
    assert (again.features_ is None) == (gp.features_ is None)


# --------------------------------------------------------------------------------------------- hard data

SHUFFLED = np.random.default_rng(0).permutation(150)
HARD = {
    "one row": ([3.0], None),
    "one empty row": ([0.0], None),
    "two rows": ([0.0, 10_000.0], None),
    "nothing ever seen": (np.zeros(150), None),
    "one spike": (np.where(np.arange(150) == 70, 10_000.0, 0.0), None),
    "from 0 to 10,000": (np.rint(np.geomspace(1, 10_001, 150)) - 1, None),
    "from 0 to 10,000, shuffled": (np.rint(np.geomspace(1, 10_001, 150))[SHUFFLED] - 1, None),
    "hardly any exposure": (np.where(np.arange(150) % 50 == 9, 1.0, 0.0), np.geomspace(1e-6, 1e-3, 150)),
}


@pytest.mark.parametrize("variance", [1.0, 100.0])
@pytest.mark.parametrize("dispersion", [0.0, 1e-3, 10.0])
@pytest.mark.parametrize(("y", "exposure"), HARD.values(), ids=HARD)
def test_hard_data_converge_to_numbers(y: Any, exposure: Any, dispersion: float, variance: float) -> None:
    n = len(y)
    X = np.linspace(0, 10, n)[:, None]
    name, own = ("poisson", None) if dispersion == 0 else ("negative-binomial", dispersion)
    results = []
    for engine in ENGINES:
        gp = quick(name, kernel=SquaredExponential(variance, 1.5), dispersion=own, inference=engine, normalize_y=True)
        gp.fit(X, np.asarray(y), exposure=exposure)
        assert gp.converged_
        value, gradient = gp.log_marginal_likelihood(eval_gradient=True)
        assert np.isfinite(gradient).all()
        mean, sd = latent(gp, X)
        assert np.isfinite(mean).all()
        assert (sd > 0).all()
        results.append((value, mean, sd))
    (v0, m0, s0), (v1, m1, s1) = results
    if v0 < -10_000:  # nothing that the model could have made: features miss too little, but of too much
        return
    assert v1 == pytest.approx(v0, abs=0.1)
    np.testing.assert_allclose((m1 - m0) / s0, 0.0, atol=0.05)
    np.testing.assert_allclose(s1, s0, rtol=0.05)


def test_every_row_censored_converges() -> None:
    data = small_problem()
    for dispersion in (0.0, 0.1):
        name, own = ("poisson", None) if dispersion == 0 else ("negative-binomial", dispersion)
        gp = quick(name, dispersion=own).fit(data["X"], data["y"] + 1, np.ones(60, dtype=bool))
        assert gp.converged_
        assert (gp.predict(data["X"]) > data["y"]).all()


def test_a_constant_column_and_one_row_more_than_dense_takes() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([np.linspace(0, 10, 2001), np.full(2001, 7.0)])
    y = rng.poisson(np.exp(1 + np.sin(X[:, 0])))
    gp = CensoredGP(likelihood="poisson").fit(X, y)
    assert gp.features_ is not None
    assert gp.converged_
    np.testing.assert_allclose(np.log(gp.predict(X)), 1 + np.sin(X[:, 0]), atol=0.3)


# --------------------------------------------------------------------------------------------- known truth


def test_known_truth_is_covered_and_unbiased_with_exposure_and_biased_without() -> None:
    """Short series of the full check in `benchmarks/check_known_truth.py`."""
    inside, errors, sds, naive = [], [], [], []
    kernel = Periodic(held(24.0), 0.5, 0.7) + SquaredExponential(0.2, 60.0)
    t = np.arange(24.0 * 21)[:, None]
    root = np.linalg.cholesky(kernel(t) + 1e-9 * np.eye(len(t)))
    for seed in range(8):
        rng = np.random.default_rng(seed)
        f = np.log(3.0) + root @ rng.normal(size=len(t))
        demand = draw(rng, np.exp(f), 0.1)
        seen, exposure, censored = served(demand, np.exp(f), rng)
        settings: dict[str, Any] = {
            "kernel": kernel,
            "likelihood": "negative-binomial",
            "dispersion": 0.1,
            "inference": "lowrank",
        }
        gp = CensoredGP(optimizer=None, **settings).fit(t, seen, censored, exposure=exposure)
        mean, sd = latent(gp, t)
        inside.append(np.mean(np.abs(mean - f) < 1.96 * sd))
        totals = gp.sample(t, 300, random_state=seed).mean(axis=1)
        errors.append(gp.predict(t).mean() - np.exp(f).mean())
        sds.append(totals.std())
        plain = CensoredGP(optimizer=None, **settings).fit(t, seen)
        naive.append((plain.predict(t).mean() - np.exp(f).mean()) / np.exp(f).mean())
    assert 0.90 < np.mean(inside) < 0.99
    error = np.sqrt(np.mean(np.square(sds)) / 8)
    assert abs(np.mean(errors)) < 3 * error
    assert np.mean(naive) < -0.05


def served(demand: np.ndarray, rate: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What a bin with a random stock shows: pickups until it runs out, the share of time until then; some labels only.

    Riders come at random times of the bin. A tenth of the bins that ran out have no clock: only the label.
    """
    stock = rng.poisson(1.5 * np.exp(np.log(rate).mean()), size=demand.size) + 1
    ran_out = demand >= stock
    # The last bike goes at the time of the rider with its number, among `demand` uniform times: a beta variable.
    runs_out_at = np.where(ran_out, rng.beta(stock, np.where(ran_out, demand - stock + 1.0, 1.0)), 1.0)
    label_only = ran_out & (rng.random(demand.size) < 0.1)
    seen = np.where(ran_out, stock, demand)
    return seen, np.where(label_only, 1.0, runs_out_at), label_only
