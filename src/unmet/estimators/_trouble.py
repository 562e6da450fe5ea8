"""Warnings after the fit of a `CensoredGP`."""

from __future__ import annotations

import warnings

from unmet._exceptions import ConvergenceWarning, NumericalWarning
from unmet.estimators._model import LEFT_OUT, Model
from unmet.evidence import Optimum
from unmet.inference.ep import Sites
from unmet.inference.result import Info

__all__ = ["warn_of_trouble"]


def warn_of_trouble(model: Model, info: Info, optimum: Optimum[Sites] | None, *, converged: bool) -> None:
    """Warn of jitter, of features that leave out too much, and of a fit that did not converge.

    Parameters
    ----------
    model : Model
        The fitted model.
    info : Info
        Diagnostics of the last inference.
    optimum : Optimum or None
        Diagnostics of the search, if there was one.
    converged : bool
        Whether search and inference converged.
    """
    if info.jitter:
        warnings.warn(
            f"Added {info.jitter:.1g} to the diagonal of the covariance matrix, which was not positive definite in "
            "double precision. Raise noise_variance or its lower bound to avoid this.",
            NumericalWarning,
            stacklevel=3,
        )
    missed = 0.0 if model.block is None else model.block.left_out(model.kernel)
    if model.block is not None and missed > 10 * LEFT_OUT:
        warnings.warn(
            f"{model.block.size} features leave out {missed:.1%} of the prior variance of a kernel (see features_). "
            "Raise n_features, use a smoother kernel, or use inference='dense'.",
            NumericalWarning,
            stacklevel=3,
        )
    if not converged:
        optimiser = "converged" if optimum is None or optimum.converged else optimum.message
        warnings.warn(
            f"The fit did not converge (optimiser: {optimiser}; EP: last movement {info.residual:.1g} after "
            f"{info.sweeps} sweeps). Try in turn: 1. n_restarts=3; 2. a larger max_iter; 3. a larger starting value or "
            "lower bound of noise_variance; 4. tighter bounds, or priors, on the hyper-parameters.",
            ConvergenceWarning,
            stacklevel=3,
        )
