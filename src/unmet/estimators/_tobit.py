"""Maximum likelihood of the linear Tobit model (paper eq. 5), for any mixture of exact and censored rows.

In Olsen's (1978) parameters ``δ = β/σ, γ = 1/σ`` the log-likelihood is concave, so Newton's method with step halving
finds the maximum from any start. Per row, with ``η = xᵀδ``, an exact value contributes ``log γ + log φ(γy − η)``, and
bounds contribute ``log[Φ(γu − η) − Φ(γl − η)]``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unmet._normal import log_pdf, truncated_above, truncated_between
from unmet._typing import Array
from unmet.likelihoods.base import Observations

__all__ = ["TobitFit", "fit_tobit", "normal_moments", "size_of"]

_LARGEST_PRECISION = 1e6  # 1/σ in units of the data; beyond it the fit is exact, and Newton's equations are singular


@dataclass(frozen=True)
class TobitFit:
    """Coefficients, scale, their covariance (inverse observed information; σ last) and diagnostics."""

    coef: Array
    scale: float
    covariance: Array
    log_likelihood: float
    converged: bool
    iterations: int


def fit_tobit(X: Array, obs: Observations, *, max_iter: int = 100) -> TobitFit:
    """Fit ``y* = X coef + scale·ε`` by Newton's method.

    Parameters
    ----------
    X : array of shape (n, p)
        Design matrix, with a column of ones for an intercept.
    obs : Observations
        Observations or bounds of y*.
    max_iter : int
        Most Newton steps.

    Returns
    -------
    TobitFit
    """
    unit = size_of(obs)
    scaled = Observations(obs.lower / unit, obs.upper / unit)
    start = np.where(np.isfinite(scaled.lower), scaled.lower, scaled.upper)
    start = np.where(np.isfinite(start), start, 0.0)
    beta = np.linalg.lstsq(X, start, rcond=None)[0]
    sigma = max(float(np.std(start - X @ beta)), 1e-3)
    params = np.append(beta, 1.0) / sigma
    converged, iterations = False, 0
    value, gradient, hessian = _log_likelihood(X, scaled, params)
    while iterations < max_iter:
        iterations += 1
        step = _pseudo_inverse(-hessian) @ gradient
        decrement = float(gradient @ step)
        if params[-1] > _LARGEST_PRECISION:
            break
        if decrement < 1e-10:
            converged = True
            break
        length = 1.0 if step[-1] >= 0 else min(1.0, 0.9 * params[-1] / -step[-1])  # γ stays positive
        while True:
            trial = params + length * step
            new = _log_likelihood(X, scaled, trial)
            if new[0] >= value + 1e-4 * length * decrement or length < 1e-10:
                break
            length /= 2
        params = trial
        value, gradient, hessian = new
    sigma = 1.0 / params[-1]
    # Delta method from (δ, γ) to (β, σ) = (δ/γ, 1/γ).
    p = X.shape[1]
    jacobian = np.zeros((p + 1, p + 1))
    jacobian[:p, :p] = np.eye(p) * sigma
    jacobian[:p, p] = -params[:p] * sigma**2
    jacobian[p, p] = -(sigma**2)
    with np.errstate(over="ignore", invalid="ignore"):  # parameters that the rows do not determine
        covariance = jacobian @ _pseudo_inverse(-hessian) @ jacobian.T * unit**2
    log_likelihood = value - np.log(unit) * obs.exact.sum()
    return TobitFit(params[:p] * sigma * unit, sigma * unit, covariance, float(log_likelihood), converged, iterations)


def _pseudo_inverse(A: Array) -> Array:
    """Return the pseudo-inverse of a positive semidefinite matrix, scaled to a unit diagonal first.

    With the scaling, the cutoff removes repeated columns but not columns in small units.
    """
    scale = 1.0 / np.sqrt(np.where(np.diag(A) > 0, np.diag(A), 1.0))
    return scale[:, None] * np.linalg.pinv(A * scale[:, None] * scale, rcond=1e-14, hermitian=True) * scale


def size_of(obs: Observations) -> float:
    """Return the root mean square of the finite bounds. Dividing by it makes every y a number of order one."""
    ends = np.concatenate([obs.lower[np.isfinite(obs.lower)], obs.upper[np.isfinite(obs.upper)]])
    return float(np.sqrt(np.mean(np.square(ends / (np.abs(ends).max() or 1.0)))) * np.abs(ends).max()) or 1.0


def _log_likelihood(X: Array, obs: Observations, params: Array) -> tuple[float, Array, Array]:
    """Return value, gradient and Hessian in ``(δ, γ)``."""
    eta, gamma = X @ params[:-1], params[-1]
    value, by_eta, by_gamma, hee, heg, hgg = _row_terms(obs, eta, gamma)
    gradient = np.append(X.T @ by_eta, by_gamma.sum())
    hessian = np.empty((params.size, params.size))
    hessian[:-1, :-1] = (X * hee[:, None]).T @ X
    hessian[:-1, -1] = hessian[-1, :-1] = X.T @ heg
    hessian[-1, -1] = hgg.sum()
    return float(value.sum()), gradient, hessian


def _row_terms(obs: Observations, eta: Array, gamma: float) -> tuple[Array, ...]:
    """Return per row: log-likelihood, derivatives by η and γ, and second derivatives (ηη, ηγ, γγ)."""
    terms = np.zeros((6, len(obs)))
    exact, above, below = obs.exact, np.isposinf(obs.upper), np.isneginf(obs.lower)
    y, x = obs.lower[exact], gamma * obs.lower[exact] - eta[exact]
    ones = np.ones_like(y)
    terms[:, exact] = log_pdf(x) + np.log(gamma), x, 1 / gamma - x * y, -ones, y, -1 / gamma**2 - y**2
    for rows, bound, sign in ((above & ~below, obs.lower, 1.0), (below & ~above, obs.upper, -1.0)):
        b = bound[rows]
        log_mass, mean, var = truncated_above(sign * (gamma * b - eta[rows]))
        w = 1.0 - var
        terms[:, rows] = log_mass, sign * mean, -sign * b * mean, -w, w * b, -w * b**2
    inside = ~(exact | above | below)
    low, high = obs.lower[inside], obs.upper[inside]
    a, b = gamma * low - eta[inside], gamma * high - eta[inside]
    log_mass, mean, var = truncated_between(a, b)
    pa, pb = np.exp(log_pdf(a) - log_mass), np.exp(log_pdf(b) - log_mass)
    by_gamma = high * pb - low * pa
    heg = b * high * pb - a * low * pa - mean * by_gamma
    hgg = low**2 * a * pa - high**2 * b * pb - by_gamma**2
    terms[:, inside] = log_mass, mean, by_gamma, var - 1.0, heg, hgg
    return tuple(terms)


def normal_moments(obs: Observations) -> tuple[float, float]:
    """Return mean and standard deviation of a normal fitted to censored data, with regard to the censoring.

    If nothing bounds the true values from both sides (every row censored, all to one side), no such fit exists. The
    mean and spread of the bounds are returned then.
    """
    centre = np.where(np.isfinite(obs.lower), obs.lower, obs.upper)
    finite = np.isfinite(centre)
    low, high = np.isfinite(obs.lower), np.isfinite(obs.upper)
    if obs.exact.all() or not ((low & high).any() or (low.any() and high.any())) or np.ptp(centre[finite]) == 0:
        return _mean_and_spread(centre[finite])
    # Shifted so that a large level does not cost digits.
    shift = float(np.median(centre[finite]))
    fit = fit_tobit(np.ones((len(obs), 1)), Observations(obs.lower - shift, obs.upper - shift))
    mean, spread = shift + float(fit.coef[0]), fit.scale
    reach = np.ptp(centre[finite])
    sane = np.isfinite(mean) and abs(mean - shift) <= 10 * reach and 1e-6 * reach <= spread <= 10 * reach
    return (mean, spread) if sane else _mean_and_spread(centre[finite])


def _mean_and_spread(values: Array) -> tuple[float, float]:
    if values.size == 0:
        return 0.0, 1.0
    mean = float(np.mean(values / values.size) * values.size) if np.isfinite(values).all() else 0.0
    spread = float(np.std(values))
    return mean, spread if spread > 1e-12 * abs(mean) else (abs(mean) or 1.0)
