"""`CensoredGP` with a likelihood of one's own: fit, predict, save, and refusals that say what is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone

from unmet import CensoredGP, FileFormatError, InputError
from unmet.kernels import Parameter, SquaredExponential
from unmet.likelihoods import LIKELIHOODS, Gaussian, Likelihood, NegativeBinomial, Poisson, QuadratureLikelihood

RNG = np.random.default_rng(0)
X = np.linspace(0, 10, 30)[:, None]
Y = np.sin(X[:, 0]) + 0.2 * RNG.normal(size=30)
COUNTS = RNG.poisson(np.exp(1 + np.sin(X[:, 0]))).astype(float)
KERNEL = SquaredExponential(1.0, 1.0)


def normal(obs, f):
    return stats.norm.logpdf(obs.lower, f, 0.2)


QUADRATURE = QuadratureLikelihood(
    normal, moments=lambda f: (f, np.full(f.shape, 0.04)), sampler=lambda f, rng: f + 0.2 * rng.standard_normal(f.shape)
)


def test_a_gaussian_by_quadrature_is_the_gaussian() -> None:
    """The whole way: search of the kernel's hyper-parameters, posterior and evidence."""
    own = CensoredGP(KERNEL, likelihood=QUADRATURE).fit(X, Y)
    known = CensoredGP(KERNEL, noise_variance=Parameter(0.04, fixed=True), normalize_y=False).fit(X, Y)
    np.testing.assert_allclose(own.theta_, known.theta_, atol=1e-3)
    for ours, exact in zip(own.predict(X, return_std=True), known.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(ours, exact, atol=1e-4)
    assert own.log_marginal_likelihood_ == pytest.approx(known.log_marginal_likelihood_, abs=1e-5)
    assert own.sample(X, 3, kind="demand", random_state=0).shape == (3, 30)
    assert (own.y_mean_, own.y_scale_) == (0.0, 1.0)


def test_a_clone_is_fitted_like_its_original() -> None:
    gp = CensoredGP(KERNEL, likelihood=QUADRATURE, optimizer=None)
    np.testing.assert_array_equal(clone(gp).fit(X, Y).predict(X), gp.fit(X, Y).predict(X))


def test_a_likelihood_of_functions_is_not_saved_and_nothing_is_written(tmp_path: Path) -> None:
    gp = CensoredGP(KERNEL, likelihood=QUADRATURE, optimizer=None).fit(X, Y)
    with pytest.raises(InputError, match=r"QuadratureLikelihood cannot be saved.*holds no code.*LIKELIHOODS"):
        gp.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_what_it_cannot_say_is_refused_by_name() -> None:
    gp = CensoredGP(KERNEL, likelihood=QuadratureLikelihood(normal), optimizer=None).fit(X, Y)
    with pytest.raises(InputError, match="as `moments`"):
        gp.predict(X)
    with pytest.raises(InputError, match="as `sampler`"):
        gp.sample(X, kind="demand")


@pytest.mark.parametrize(
    ("given", "name", "y"),
    [
        (Gaussian(), "gaussian", Y),
        (Poisson(), "poisson", COUNTS),
        (NegativeBinomial(0.3), "negative-binomial", COUNTS),
    ],
)
def test_an_object_is_the_same_as_its_name(given: Likelihood, name: str, y: np.ndarray, tmp_path: Path) -> None:
    by_object = CensoredGP(likelihood=given).fit(X, y)
    by_name = CensoredGP(likelihood=name, dispersion=0.3 if "neg" in name else None).fit(X, y)
    np.testing.assert_array_equal(by_object.theta_, by_name.theta_)
    by_object.save(tmp_path / "model")
    loaded = CensoredGP.load(tmp_path / "model")
    np.testing.assert_allclose(loaded.predict(X), by_name.predict(X), rtol=1e-7)
    assert type(loaded.likelihood) is type(given)


def test_a_level_that_was_given_is_kept() -> None:
    gp = CensoredGP(likelihood=Poisson(log_level=2.0), optimizer=None).fit(X, COUNTS)
    assert gp._model.likelihood.log_level == 2.0


def test_a_registered_class_is_known_by_name_and_a_forgotten_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Louder(Gaussian):
        pass

    with pytest.raises(InputError, match="Louder cannot be saved"):
        CensoredGP(KERNEL, likelihood=Louder(0.1), optimizer=None).fit(X, Y).save(tmp_path / "model")
    monkeypatch.setitem(LIKELIHOODS, "louder", Louder)
    CensoredGP(KERNEL, likelihood="louder").fit(X, Y).save(tmp_path / "model")
    assert CensoredGP.load(tmp_path / "model").noise_variance_ < 1
    monkeypatch.delitem(LIKELIHOODS, "louder")
    with pytest.raises(FileFormatError, match="needs the likelihood 'louder'"):
        CensoredGP.load(tmp_path / "model")


def test_hyperparameters_of_another_likelihood_are_refused() -> None:
    with pytest.raises(InputError, match="noise_variance belongs to the Gaussian likelihood; set those of Poisson on"):
        CensoredGP(likelihood=Poisson(), noise_variance=1.0).fit(X, COUNTS)
    with pytest.raises(InputError, match=r"or a Likelihood object; got <class"):
        CensoredGP(likelihood=Poisson).fit(X, COUNTS)


def test_a_class_without_its_two_methods_cannot_be_made() -> None:
    class Nothing(Likelihood):
        pass

    with pytest.raises(TypeError, match="tilted"):
        Nothing()
