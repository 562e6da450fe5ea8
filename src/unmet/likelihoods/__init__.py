"""Likelihoods: the distribution of an observation given the latent function value."""

from unmet.likelihoods.base import Likelihood, Observations, Tilted
from unmet.likelihoods.beta import Beta
from unmet.likelihoods.counts import NegativeBinomial, Poisson
from unmet.likelihoods.gaussian import Gaussian
from unmet.likelihoods.quadrature import QuadratureLikelihood

__all__ = [
    "LIKELIHOODS",
    "Beta",
    "Gaussian",
    "Likelihood",
    "NegativeBinomial",
    "Observations",
    "Poisson",
    "QuadratureLikelihood",
    "Tilted",
]

LIKELIHOODS: dict[str, type[Likelihood]] = {
    "gaussian": Gaussian,
    "poisson": Poisson,
    "negative-binomial": NegativeBinomial,
}
"""Likelihoods by the name that ``CensoredGP(likelihood=...)`` and model files use; add your own here."""
