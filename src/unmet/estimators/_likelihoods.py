"""The named likelihoods of `CensoredGP`, and their descriptions in files."""

from __future__ import annotations

from typing import Any

import numpy as np

from unmet._exceptions import InputError
from unmet._parameters import Parameter, as_parameter, parameter_from_dict, parameter_to_dict
from unmet.likelihoods import Gaussian, Likelihood, NegativeBinomial, Observations, Poisson

__all__ = ["COUNTS", "LIKELIHOODS", "likelihood_from_dict", "likelihood_to_dict", "log_level", "make_likelihood"]

COUNTS = ("poisson", "negative-binomial")
LIKELIHOODS = ("gaussian", *COUNTS)
_NOISE_START, _NOISE_BOUNDS = 0.1, (1e-6, 10.0)


def make_likelihood(
    name: str,
    noise_variance: float | Parameter | None,
    dispersion: float | Parameter | None,
    *,
    variance: float,
    level: float,
) -> Likelihood:
    """Return the likelihood of the given name.

    Parameters
    ----------
    name : str
        One of `LIKELIHOODS`.
    noise_variance, dispersion : float, Parameter or None
        Hyper-parameter as given by the user.
    variance : float
        Variance of the data. An open noise variance is relative to it.
    level : float
        Log of the rate around which f varies (counts).

    Returns
    -------
    Likelihood
    """
    if name not in LIKELIHOODS:
        raise InputError(f"likelihood must be one of {', '.join(LIKELIHOODS)}; got {name!r}.")
    if name != "gaussian" and noise_variance is not None:
        raise InputError(f"noise_variance belongs to the Gaussian likelihood, not to {name}. Leave it None.")
    if name != "negative-binomial" and dispersion is not None:
        raise InputError(f"dispersion belongs to the negative binomial likelihood, not to {name}. Leave it None.")
    if name == "gaussian":
        low, high = (share * variance for share in _NOISE_BOUNDS)
        noise = _one_number(noise_variance, "noise_variance")
        return Gaussian(noise.filled(_NOISE_START * variance, (low, high)))
    if name == "poisson":
        return Poisson(log_level=level)
    return NegativeBinomial(0.1 if dispersion is None else _one_number(dispersion, "dispersion"), log_level=level)


def _one_number(given: float | Parameter | None, name: str) -> Parameter:
    try:
        parameter = as_parameter(given)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    if parameter.per_column or isinstance(parameter.value, tuple):
        raise InputError(f"{name} must be one number; got {given!r}.")
    return parameter


def log_level(obs: Observations) -> float:
    """Return the log of counts beyond background over exposure. Half a count is added so that it is finite."""
    exposure = len(obs) if obs.exposure is None else obs.exposure.sum()
    background = 0.0 if obs.background is None else obs.background.sum()
    return float(np.log((max(obs.lower.sum() - background, 0.0) + 0.5) / exposure))


def likelihood_to_dict(likelihood: Likelihood) -> dict[str, Any]:
    """Return a JSON-able description."""
    if isinstance(likelihood, Gaussian):
        return {"name": "gaussian", "parameter": parameter_to_dict(likelihood.parameter)}
    if isinstance(likelihood, Poisson):
        return {"name": "poisson", "log_level": likelihood.log_level}
    assert isinstance(likelihood, NegativeBinomial)
    parameter = parameter_to_dict(as_parameter(likelihood.dispersion))
    return {"name": "negative-binomial", "parameter": parameter, "log_level": likelihood.log_level}


def likelihood_from_dict(description: dict[str, Any]) -> Likelihood:
    """Read the description written by `likelihood_to_dict`."""
    if description["name"] == "gaussian":
        return Gaussian(parameter_from_dict(description["parameter"]))
    if description["name"] == "poisson":
        return Poisson(log_level=description["log_level"])
    return NegativeBinomial(parameter_from_dict(description["parameter"]), log_level=description["log_level"])
