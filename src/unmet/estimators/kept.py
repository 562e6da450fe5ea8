"""The posterior of a fitted `CensoredGP` without its data: small, and enough to predict and to draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.special import ndtri
from sklearn.utils import check_random_state

from unmet._typing import Array
from unmet.estimators._likelihoods import likelihood_from_dict, likelihood_to_dict
from unmet.estimators.censored_gp import CensoredGP
from unmet.inference.lowrank import LowRankPosterior
from unmet.inference.planning import block_from_dict
from unmet.kernels import kernel_from_dict
from unmet.likelihoods.base import Likelihood

__all__ = ["KeptGP"]


@dataclass(frozen=True)
class KeptGP:
    """The posterior of a low-rank `CensoredGP` of counts: weights of its features, and their covariance.

    Its methods give what those of the `CensoredGP` give for the same arguments, also the same draws.

    Attributes
    ----------
    columns : tuple of str
        Names of the inputs.
    posterior : LowRankPosterior
        The posterior of the latent function.
    likelihood : Likelihood
        From the latent function to rates.
    dispersion_ : float
        Dispersion of the counts.
    """

    columns: tuple[str, ...]
    posterior: LowRankPosterior
    likelihood: Likelihood
    dispersion_: float

    @classmethod
    def of(cls, gp: CensoredGP) -> Self | None:
        """Keep a fitted model; None for one that is dense, whose inputs have no names, or that is not of counts."""
        posterior = gp._inference.posterior
        names = getattr(gp, "feature_names_in_", None)
        if not isinstance(posterior, LowRankPosterior) or names is None or gp._model.likelihood.units == "y":
            return None
        return cls(tuple(map(str, names)), posterior, gp._model.likelihood, float(getattr(gp, "dispersion_", np.nan)))

    def predict_quantiles(self, X: pd.DataFrame, q: Any, kind: str = "latent") -> Array:
        """Quantiles of the rate, shape (n, len(q)); see `CensoredGP.predict_quantiles`."""
        assert kind == "latent", "a kept posterior has quantiles of the rate only"
        mean, var = self.posterior.marginals(self._inputs(X))
        spread = np.sqrt(np.maximum(var, 0.0))
        return np.asarray(self.likelihood.rate(mean + spread * ndtri(np.atleast_1d(q))[:, None]).T)

    def sample(self, X: pd.DataFrame, size: int, random_state: Any = None) -> Array:
        """Joint draws of the rate, shape (size, n); see `CensoredGP.sample`."""
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
        return np.asarray(self.likelihood.rate(self.posterior.sample(self._inputs(X), size, rng)))

    def _inputs(self, X: pd.DataFrame) -> Array:
        return X[list(self.columns)].to_numpy(dtype=float)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Give a JSON-able header, and arrays."""
        header = {
            "columns": list(self.columns),
            "kernel": self.posterior.kernel.to_dict(),
            "features": self.posterior.block.to_dict(),
            "likelihood": likelihood_to_dict(self.likelihood),
            "dispersion": self.dispersion_,
        }
        return header, {"weights": self.posterior.weights, "factor": np.tril(self.posterior.factor)}

    @classmethod
    def from_parts(cls, header: dict[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Read back what `to_parts` gave."""
        block, kernel = block_from_dict(header["features"]), kernel_from_dict(header["kernel"])
        posterior = LowRankPosterior(kernel, block, arrays["weights"], np.asfortranarray(arrays["factor"]))
        likelihood = likelihood_from_dict(header["likelihood"])
        return cls(tuple(header["columns"]), posterior, likelihood, float(header["dispersion"]))
