"""Likelihoods: the distribution of an observation given the latent function value."""

from unmet.likelihoods.base import Likelihood, Observations, Tilted
from unmet.likelihoods.counts import NegativeBinomial, Poisson
from unmet.likelihoods.gaussian import Gaussian

__all__ = ["Gaussian", "Likelihood", "NegativeBinomial", "Observations", "Poisson", "Tilted"]
