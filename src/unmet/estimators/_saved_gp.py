"""Conversion of a fitted `CensoredGP` to a header and arrays, and back.

A file has the data, the hyper-parameters and EP's sites. One inference recomputes the posterior from them, in the same
way for every likelihood and engine.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from unmet._exceptions import InputError
from unmet._parameters import Parameter, parameter_from_dict, parameter_to_dict
from unmet.estimators._likelihoods import likelihood_from_dict, likelihood_to_dict
from unmet.estimators._model import Model
from unmet.estimators._storage import finite_array, finite_number, names_in, restoring
from unmet.inference.ep import Sites
from unmet.inference.planning import block_from_dict
from unmet.kernels import kernel_from_dict
from unmet.likelihoods.base import Likelihood, Observations
from unmet.likelihoods.beta import Beta

if TYPE_CHECKING:
    from unmet.estimators.censored_gp import CensoredGP

__all__ = ["describe", "restore"]

GP = TypeVar("GP", bound="CensoredGP")
_PARAMETERS = ("noise_variance", "dispersion", "label_odds")


def describe(gp: CensoredGP) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return header and arrays of a fitted model."""
    settings = {k: v for k, v in gp.get_params(deep=False).items() if k != "random_state"}
    settings["kernel"] = None if gp.kernel is None else gp.kernel.to_dict()
    for name in _PARAMETERS:
        if isinstance(settings[name], Parameter):
            settings[name] = parameter_to_dict(settings[name])
    if gp.share is not None:
        settings["share"] = gp.share.to_dict()
    if isinstance(gp.likelihood, Likelihood):
        settings["likelihood"] = likelihood_to_dict(gp.likelihood)
    model, sites = gp._model, gp._inference.sites
    header = {
        "estimator": type(gp).__name__,
        "settings": settings,
        "kernel": model.kernel.to_dict(),
        "kernel_by_name": gp.kernel_.to_dict(),
        "likelihood": likelihood_to_dict(model.likelihood),
        "features": None if model.block is None else model.block.to_dict(),
        "y_mean": gp.y_mean_,
        "y_scale": gp.y_scale_,
        "converged": gp.converged_,
        "censoring": gp.censoring_,
        "n_iter": gp.n_iter_,
        "n_features_in": gp.n_features_in_,
        "feature_names_in": list(gp.feature_names_in_) if hasattr(gp, "feature_names_in_") else None,
    }
    arrays = {"X": model.X, "lower": model.obs.lower, "upper": model.obs.upper, "tau": sites.tau, "nu": sites.nu}
    for name in ("exposure", "short", "background"):
        if getattr(model.obs, name) is not None:
            arrays[name] = getattr(model.obs, name)
    return header, arrays


def restore(cls: type[GP], path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, np.ndarray]) -> GP:
    """Return the model described by `describe`.

    Parameters
    ----------
    cls : type
        The class of the model.
    path : path
        The file, for messages.
    header, arrays : dict
        Results of `describe`.
    """
    with restoring(path, header, cls.__name__):
        return _restore(cls, header, arrays)


def _restore(cls: type[GP], header: dict[str, Any], arrays: dict[str, np.ndarray]) -> GP:
    settings = dict(header["settings"])
    settings["kernel"] = None if settings["kernel"] is None else kernel_from_dict(settings["kernel"])
    for name in _PARAMETERS:
        if isinstance(settings.get(name), dict):
            settings[name] = parameter_from_dict(settings[name])
    if settings.get("share") is not None:
        settings["share"] = Beta.from_dict(settings["share"])
    if isinstance(settings["likelihood"], dict):
        settings["likelihood"] = likelihood_from_dict(settings["likelihood"])
    gp = cls(**settings)
    gp.n_features_in_ = arrays["X"].shape[1]
    if header["n_features_in"] != gp.n_features_in_:
        raise InputError(f"n_features_in: expected {gp.n_features_in_}, got {header['n_features_in']!r:.60}")
    if (names := names_in(header, gp.n_features_in_)) is not None:
        gp.feature_names_in_ = names
    gp.y_mean_, gp.y_scale_ = (finite_number(header[name], name) for name in ("y_mean", "y_scale"))
    if gp.y_scale_ <= 0:
        raise InputError(f"y_scale: expected a positive number, got {gp.y_scale_}")
    kernel, likelihood = kernel_from_dict(header["kernel"]), likelihood_from_dict(header["likelihood"])
    X = finite_array(arrays, "X")
    extra = (arrays.get(name) for name in ("exposure", "short", "background"))
    obs = Observations(arrays["lower"], arrays["upper"], *extra)
    if header["features"] is None:
        model = Model.dense(kernel, likelihood, X, obs)
    else:
        model = Model.lowrank(kernel, likelihood, X, obs, block_from_dict(header["features"]))
    gp._keep(model, None, Sites(arrays["tau"], arrays["nu"]))
    gp.kernel_, gp.converged_ = kernel_from_dict(header["kernel_by_name"]), header["converged"]
    gp.n_iter_ = header["n_iter"]
    gp.censoring_ = header.get("censoring", gp.censoring)
    return gp
