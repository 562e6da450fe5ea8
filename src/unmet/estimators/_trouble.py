"""What a fitted `CensoredGP` has to warn of."""

from __future__ import annotations

import warnings

from unmet._exceptions import ConvergenceWarning, NumericalWarning
from unmet.estimators._model import LEFT_OUT, Model
from unmet.evidence import Optimum
from unmet.inference.ep import Sites
from unmet.inference.result import Info

__all__ = ["warn_of_trouble"]


def warn_of_trouble(model: Model, info: Info, optimum: Optimum[Sites] | None, *, converged: bool) -> None:
    """Jitter that was added, features that leave out too much, a fit that did not converge; in the name of `fit`."""
    if info.jitter:
        warnings.warn(
            f"{info.jitter:.1g} was added to the diagonal of the covariance matrix, which was not positive "
            "definite in double precision. Raise noise_variance or its lower bound if that matters.",
            NumericalWarning,
            stacklevel=3,
        )
    missed = 0.0 if model.block is None else model.block.left_out(model.kernel)
    if model.block is not None and missed > 10 * LEFT_OUT:
        warnings.warn(
            f"{model.block.size} features leave out {missed:.1%} of the prior variance of a kernel (see features_). "
            "Raise n_features, use a smoother kernel, or inference='dense'.",
            NumericalWarning,
            stacklevel=3,
        )
    if not converged:
        optimiser = "converged" if optimum is None or optimum.converged else optimum.message
        warnings.warn(
            f"the fit did not converge (optimiser: {optimiser}; EP: last movement {info.residual:.1g} after "
            f"{info.sweeps} sweeps). Try in turn: 1. n_restarts=3; 2. a larger max_iter; 3. a larger starting or "
            "lower bound of noise_variance; 4. tighter bounds, or priors, on the hyper-parameters.",
            ConvergenceWarning,
            stacklevel=3,
        )
