"""The likelihood of a `CensoredGP`: from a name or an object, and to and from the description in a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from unmet._exceptions import InputError
from unmet._parameters import Parameter
from unmet.likelihoods import LIKELIHOODS, Likelihood, Observations
from unmet.likelihoods.share import Shared, shared_class

__all__ = ["likelihood_from_dict", "likelihood_to_dict", "log_level", "make_likelihood"]

# Hyper-parameters that `CensoredGP` takes as arguments: the likelihood that each belongs to, and its name in words.
_BELONGS_TO = {
    "noise_variance": ("gaussian", "Gaussian"),
    "dispersion": ("negative-binomial", "negative binomial"),
}


def make_likelihood(given: str | Likelihood, **hyperparameters: float | Parameter | None) -> Likelihood:
    """The likelihood of that name, or the object itself.

    Parameters
    ----------
    given : str or Likelihood
        A name in `LIKELIHOODS`, or a likelihood.
    hyperparameters : float, Parameter or None
        ``noise_variance`` and ``dispersion`` as the user gave them; None where the user did not.
    """
    set_ = {name: value for name, value in hyperparameters.items() if value is not None}
    for name in set_:
        owner, words = _BELONGS_TO[name]
        if given != owner:
            if isinstance(given, str):
                raise InputError(f"{name} belongs to the {words} likelihood, not to {given}. Leave it None.")
            raise InputError(
                f"{name} belongs to the {words} likelihood; set those of {type(given).__name__} on the object."
            )
    if isinstance(given, Likelihood):
        return given
    if not isinstance(given, str) or given not in LIKELIHOODS:
        raise InputError(f"likelihood must be one of {', '.join(LIKELIHOODS)}, or a Likelihood object; got {given!r}")
    return LIKELIHOODS[given](**set_)


def log_level(obs: Observations) -> float:
    """Return the log of counts beyond background over exposure. Half a count is added so that it is finite."""
    exposure = len(obs) if obs.exposure is None else obs.exposure.sum()
    background = 0.0 if obs.background is None else obs.background.sum()
    return float(np.log((max(obs.lower.sum() - background, 0.0) + 0.5) / exposure))


def likelihood_to_dict(likelihood: Likelihood) -> dict[str, Any]:
    """A JSON-able description with the likelihood's name in `LIKELIHOODS`; refuses a likelihood that is not there."""
    if isinstance(likelihood, Shared):
        return {**likelihood_to_dict(likelihood.base), "shared": likelihood.to_dict()}
    for name, kind in LIKELIHOODS.items():
        if type(likelihood) is kind:
            return {"name": name, **likelihood.to_dict()}
    raise InputError(
        f"a model with the likelihood {type(likelihood).__name__} cannot be saved, because a file holds no code: give "
        "the class a name in unmet.likelihoods.LIKELIHOODS, and define to_dict and from_dict"
    )


def likelihood_from_dict(description: dict[str, Any]) -> Likelihood:
    """Read back what `likelihood_to_dict` wrote."""
    name = description["name"]
    if name not in LIKELIHOODS:
        raise InputError(f"the file needs the likelihood {name!r}; add its class to unmet.likelihoods.LIKELIHOODS")
    likelihood = LIKELIHOODS[name].from_dict(description)
    if description.get("shared") is None:
        return likelihood
    return shared_class(likelihood).from_dict(description["shared"], likelihood)
